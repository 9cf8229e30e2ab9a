//! What an AF_PACKET port is opened with, and why it could not be.

use std::io;

/// What an AF_PACKET port is opened with.
#[derive(Clone, Debug)]
pub struct AfPacketConfig {
    /// The interface's name.
    pub interface: String,
    /// Largest IP packet, both ways; `None`, or more than the interface's MTU: that.
    pub mtu: Option<usize>,
    /// Buffers in the pool, each for a frame of that length with a VLAN tag.
    pub frame_count: usize,
    /// Bytes of the receive ring, rounded up to whole blocks. With `offload`: bytes asked for as
    /// the socket's receive buffer; the kernel may grant less.
    pub ring_bytes: usize,
    /// Bytes of a block, a power of two from 4096 on; raised to what one frame needs. Small blocks
    /// are handed over sooner. Without `offload` only.
    pub block_bytes: usize,
    /// Send without the interface's queueing discipline: faster, but then a rate limit set with
    /// `tc` does not apply.
    pub qdisc_bypass: bool,
    /// Receive frames for other Ethernet addresses as well.
    pub promiscuous: bool,
    /// Receive UDP datagrams for these target ports only, and no TCP; `None`: all there is. What
    /// neither is (ARP, ICMP) comes in any case.
    pub listens: Option<Listens>,
    /// Which share of the frames this port gets; `None`: all.
    pub steering: Option<Steering>,
    /// Hand runs of frames to the kernel, and take them from it, as one packet each
    /// (`PACKET_VNET_HDR`), where it can. On a wire they are the same datagrams, but that those
    /// over IPv4 have a UDP checksum; a veth, a bridge and a queueing discipline see one packet of
    /// up to 64 KiB. 4 MiB of addresses, most of which is never touched. Frames over IPv4 that have
    /// a UDP checksum of their own are in no run: it would be made anew. Not beside a DPDK port,
    /// BMv2, or a port of this kind without `offload`, at a veth whose offloads are on: what reads
    /// frames there is given the packet whole.
    pub offload: bool,
    /// Complete the UDP checksum of received IPv4 frames whose sender has left it to hardware that
    /// was not there, for groups whose integrity is `checksum16`; otherwise they have none. Over
    /// IPv6 it is completed in any case.
    pub ipv4_checksum: bool,
}

impl AfPacketConfig {
    /// The interface with its MTU, 2048 frames, a ring of 4 MiB in blocks of 16 KiB, past the queueing
    /// discipline, not promiscuous, not shared, no offload, all checksums complete.
    #[must_use]
    pub fn new(interface: &str) -> Self {
        Self {
            interface: interface.to_owned(),
            mtu: None,
            frame_count: 2048,
            ring_bytes: 4 << 20,
            block_bytes: 16 << 10,
            qdisc_bypass: true,
            promiscuous: false,
            listens: None,
            steering: None,
            offload: false,
            ipv4_checksum: true,
        }
    }
}

/// Shares an interface among lcores by UDP source port.
///
/// Ports of one `group` are numbered in the order in which they are opened; number
/// `(source port - first_port) mod shard_count` gets the frame, number 0 what is not UDP. Until
/// all are open, frames go to those that are.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Steering {
    /// Any number that no other group of this network namespace uses.
    pub group: u16,
    /// Ports that share the interface, a power of two.
    pub shard_count: u16,
    /// The source port of lane 0, or 0 for the port number itself modulo `shard_count`.
    pub first_port: u16,
}

/// Consecutive UDP ports.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Listens {
    /// The first.
    pub first_port: u16,
    /// How many.
    pub count: u16,
}

/// Why an AF_PACKET port could not be opened. Each message says what to do.
#[derive(Debug, thiserror::Error)]
pub enum AfPacketError {
    /// The process may not open packet sockets.
    #[error(
        "no right to open a packet socket on {interface}: run as root, or `setcap cap_net_raw+ep` \
         the binary, or use a namespace of your own (`unshare -rn`)"
    )]
    NotPermitted {
        /// The interface.
        interface: String,
    },
    /// The namespace has no such interface.
    #[error("no interface {interface} in this network namespace: `ip link` lists those it has")]
    UnknownInterface {
        /// The name asked for.
        interface: String,
    },
    /// The interface is not up.
    #[error("interface {interface} is down: `ip link set {interface} up`")]
    Down {
        /// The interface.
        interface: String,
    },
    /// The interface carries something else than Ethernet frames.
    #[error("interface {interface} is no Ethernet device (ARP type {arp_type}): use the udp port")]
    NotEthernet {
        /// The interface.
        interface: String,
        /// The kernel's ARPHRD_ number.
        arp_type: u16,
    },
    /// The configuration cannot work, whatever the interface.
    #[error("AF_PACKET port on {interface}: {problem}")]
    Config {
        /// The interface.
        interface: String,
        /// What is wrong, and what to write instead.
        problem: &'static str,
    },
    /// The kernel refused something else.
    #[error("could not {attempt} on interface {interface}")]
    Socket {
        /// The interface.
        interface: String,
        /// What was attempted.
        attempt: &'static str,
        /// The kernel's answer.
        #[source]
        source: io::Error,
    },
}

/// What cannot work, whatever the interface.
pub(super) fn check(config: &AfPacketConfig) -> Option<&'static str> {
    if !config.block_bytes.is_power_of_two() || !(4096..=1 << 22).contains(&config.block_bytes) {
        return Some("block_bytes must be a power of two from 4096 to 4194304");
    }
    if config.ring_bytes == 0 || config.ring_bytes > 1 << 30 {
        return Some("ring_bytes must be between 1 and 1 GiB");
    }
    if config.steering.is_some_and(|steering| !steering.shard_count.is_power_of_two()) {
        return Some("shard_count must be a power of two");
    }
    None
}
