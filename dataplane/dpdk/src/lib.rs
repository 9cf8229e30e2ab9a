//! The DPDK binding of Weft: EAL, Port, Mempool, Mbuf.
