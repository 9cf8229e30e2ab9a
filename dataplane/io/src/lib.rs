//! Ports that move frames, and the wrappers around them.
//!
//! | module | a port over | or around a port |
//! | --- | --- | --- |
//! | [`memory`] | rings between threads of this process | |
//! | [`udp`] | kernel UDP sockets, sendmmsg/recvmmsg | |
//!
//! [`pool`] is where the software ports take their frames from.
#![deny(unsafe_code)]

mod breath;
pub mod memory;
pub mod pool;
mod port;
pub mod udp;

pub use breath::{AggregatorLane, HostSide, LaneStats};
pub use port::{BURST_MAX, Burst, Frame, Port, PortInfo, PortStats};
