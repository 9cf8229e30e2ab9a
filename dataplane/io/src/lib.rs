//! Ports that move frames: memory, pcap, UDP, AF_PACKET, and the wrappers around them.

mod port;

pub use port::{BURST_MAX, Burst, Frame, Port, PortInfo, PortStats};
