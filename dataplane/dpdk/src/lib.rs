//! The DPDK binding of Weft: EAL, Port, Mempool, Mbuf.
//!
//! | module | what it holds |
//! | --- | --- |
//! | `args` | EAL's command line from typed settings |
//! | `eal` | start and end of EAL, lcores, device listing |
//! | [`preflight`] | what this machine lacks for EAL's arguments |
//! | `port` | [`DpdkPort::open`] and one [`DpdkQueue`] (a [`weft_io::Port`]) per queue and lcore |
//! | `mempool`, `mbuf` | buffers, and who may write which of their bytes |
//! | `sys`, `shim/` | the C ABI; the only file set that knows DPDK's structures |
//!
//! ```no_run
//! use weft_dpdk::{DpdkPort, Eal, EalArgs, PortConfig};
//!
//! let eal = Eal::init(&EalArgs::new().memory_mib(128).vdev("net_ring0"))?;
//! let queues = DpdkPort::open(&eal, &PortConfig::named("net_ring0"))?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! **Threads.** Each polling thread calls [`EalHandle::register_lcore`] before its first burst;
//! without it, it works but takes the pool's slow path. EAL itself needs one lcore, the thread that
//! starts it.
//!
//! **DPDK releases.** Built, linked and tested with 22.11 (Debian 12). The shim compiles against
//! the headers of 21.11, 23.11, 24.11, 25.11 and 26.07 (`check-headers.sh`), but has not run on
//! them, nor on any physical NIC.
//!
//! **Drivers' limits, as of 22.11.** net_af_packet copies what arrives without looking at the
//! buffer's size: `mbuf_data_room_bytes` must be at least its `framesz` (default 2048) plus 128.
//! net_memif logs one error about `mp action` without a shared configuration, which is harmless;
//! it unmaps its rings on EAL's interrupt thread when the peer leaves, while an lcore may be inside
//! a burst; and it cannot be closed safely while the program runs, so such a port is only stopped
//! (`shim/port.c`), and EAL's memory then stays mapped until the process ends.
//! net_pcap never says that a file has ended: stop after a count or some idle polls.
//!
//! **Linking.** Shared by default: five core libraries, and EAL loads drivers as plugins. Feature
//! `dpdk-static` links the core and the virtual devices (ring, null, pcap, af_packet, memif,
//! virtio, vhost, tap) into the program; it also needs `libpcap-dev libnuma-dev libbsd-dev`.
//!
//! **Not supported.** Receive and checksum offloads, scattered receive into the engine (chains are
//! linearised), timestamps, secondary processes.

mod args;
mod eal;
mod mbuf;
mod mempool;
mod port;
pub mod preflight;
mod sys;

pub use args::{EalArgs, Memory};
pub use eal::{Eal, EalError, EalHandle, Lcore, rte_version};
pub use mbuf::Mbuf;
pub use mempool::Mempool;
pub use port::{DpdkPort, DpdkQueue, PortConfig, PortError, PortId, PortSummary, Steering};
