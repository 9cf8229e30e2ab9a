//! Benches: figures that `make bench` reproduces, each with what makes it worth something.
//!
//! | module | what it does |
//! | --- | --- |
//! | `aggregator` | one lcore on net_pcap and memif, beside dpdk-testpmd in the same rounds |
//! | `case` | what a row of it measures |
//! | `allreduce`, `member` | nccl-tests' table over any port; one of its workers |
//! | `network` | where its processes run, and runs them |
//! | `peers` | OpenMPI and Gloo beside Weft, in the same rounds on the same links |
//! | `usage` | CPU time and bytes sent of a process; what other programs used meanwhile |
//! | `forged` | what a forger costs a job at its quota |
//! | `gate` | instructions per packet against committed figures |
//! | `keys` | operations on rows that move between processes |
//! | `process` | starts weft-node, weft-bench and dpdk-testpmd, reads what they measured and the CPU they used |
//! | `config` | writes the node's configuration |
//! | `lanes` | how many lanes an aggregator has |
//! | `place` | CPUs and folder |
//! | `interrupt` | a signal ends a bench in order |
//! | `statistics` | medians |

pub mod aggregator;
pub mod allreduce;
pub mod case;
mod config;
pub mod forged;
pub mod gate;
pub mod interrupt;
pub mod keys;
mod lanes;
pub mod member;
mod network;
pub mod peers;
mod place;
mod process;
mod statistics;
mod usage;

pub use lanes::{LANES_MAX, Lanes};
pub use network::BoxLink;
pub use place::{ScratchDir, allowed_cpus};
pub use process::{BenchError, Program, Programs};
