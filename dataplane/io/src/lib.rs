//! Ports that move frames, and the wrappers around them.
//!
//! | module | a port over | or around a port |
//! | --- | --- | --- |
//! | [`memory`] | rings between threads of this process | |
//! | [`udp`] | kernel UDP sockets, sendmmsg/recvmmsg | |
//! | [`shm`] | memory shared with the box of the same host, beside its other port | |
//! | [`af_packet`] | packet sockets on a network interface | |
//! | [`pcap`] | capture files | |
//! | [`bands`] | | frames of jobs leave in the order of their bands |
//! | [`fault`] | | loss, duplication, reordering, delay, corruption, by seed |
//! | [`trace`] | | a capture of what the port saw |
//! | [`record`] | | a recording of what an engine met |
//! | [`restamp`] | | replayed contributions made new, for benches |
//!
//! [`probe`] is no port: it sends packet trains and notes when they arrive. [`nic`] reads the
//! counters of interfaces, [`route`] the kernel's routes. [`host`] answers and asks what a kernel
//! would beside a port.
//!
//! [`marks`] says what the frames of each job carry. [`pool`] is where the software ports take
//! their frames from.
// These macros panic when nobody reads: `weft_process::say` does not.
#![cfg_attr(not(test), deny(clippy::print_stderr, clippy::print_stdout))]
#![deny(unsafe_code)]

pub mod af_packet;
pub mod bands;
pub mod fault;
pub mod host;
pub mod joined;
pub mod marks;
pub mod memory;
pub mod nic;
pub mod pcap;
pub mod pool;
mod port;
pub mod probe;
pub mod record;
pub mod reseal;
mod rest;
pub mod restamp;
pub mod route;
mod runs;
pub mod shm;
mod supply;
pub mod trace;
pub mod udp;
mod wake;

pub use port::{BURST_MAX, Burst, Frame, Port, PortInfo, PortStats};
pub use runs::{RUN_BYTES_MAX, run_frames_max};
pub use wake::Waker;

/// A port may be opened on one thread and polled on another.
const _: () = {
    const fn is_send<T: Send>() {}
    is_send::<af_packet::AfPacketPort>();
    is_send::<fault::Fault<memory::MemoryPort>>();
    is_send::<memory::MemoryPort>();
    is_send::<pcap::PcapPort>();
    is_send::<shm::ShmHost<udp::UdpPort>>();
    is_send::<shm::ShmPort>();
    is_send::<udp::UdpPort>();
};
