//! Ports that move frames, and the wrappers around them.
//!
//! | module | a port over | or around a port |
//! | --- | --- | --- |
//! | [`memory`] | rings between threads of this process | |
//! | [`udp`] | kernel UDP sockets, sendmmsg/recvmmsg | |
//! | [`pcap`] | capture files | |
//! | [`fault`] | | loss, duplication, reordering, delay, corruption, by seed |
//! | [`trace`] | | a capture of what the port saw |
//! | [`restamp`] | | replayed contributions made new, for benches |
//!
//! [`pool`] is where the software ports take their frames from.
#![deny(unsafe_code)]

mod breath;
pub mod fault;
pub mod memory;
pub mod pcap;
pub mod pool;
mod port;
pub mod restamp;
pub mod trace;
pub mod udp;

pub use breath::{AggregatorLane, HostSide, LaneStats};
pub use port::{BURST_MAX, Burst, Frame, Port, PortInfo, PortStats};
