//! `[port]`: the port, and the box's address on it.

use alloc::string::String;
use alloc::vec::Vec;
use core::net::IpAddr;

use serde::{Deserialize, Serialize};
use weft_wire::MacAddr;
use weft_wire::frame::multicast::memory_base;

use super::{HostAddr, address, defaults};

/// `[port]`
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct PortSection {
    /// `udp` (kernel sockets, no privileges), `af_packet` (an interface's packet
    /// sockets, CAP_NET_RAW), `dpdk`, or `switch` (the CPU port of the P4 switch of `[switch]`).
    pub io: Io,
    /// The device. `dpdk`: EAL's name for it, such as `net_af_packet0` or a PCI address; by default
    /// the only one that EAL knows. `af_packet`: the interface, and the key may be `interface`.
    /// `udp` needs none.
    #[serde(default, alias = "interface", skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// The box's IPv4 or IPv6 address with its prefix length, such as `10.0.0.1/24`. On `udp` the
    /// kernel must have it; on the others the kernel must not, for the node answers ARP, NDP and
    /// ping itself. Without a prefix length: 24, or 64 for IPv6.
    pub ip: HostAddr,
    /// The box's Ethernet address. Default: the port's own; on `switch` one made of `ip`.
    #[serde(default, with = "address::optional", skip_serializing_if = "Option::is_none")]
    pub mac: Option<MacAddr>,
    /// UDP port that the box listens on. Default 22341 (0x5745, "WE").
    #[serde(default = "defaults::udp_port")]
    pub udp_port: u16,
    /// Largest IP packet in bytes. Default 1500.
    #[serde(default = "defaults::mtu")]
    pub mtu: u16,
    /// `udp`, `af_packet`, `switch`: frame buffers per lane, of `mtu + 14` bytes each; at most
    /// 1048576, and 16 GiB over all lanes. Default 2048.
    #[serde(default = "defaults::frame_count")]
    pub frame_count: usize,
    /// `udp`: bytes of socket buffer asked for in each direction, or as many as the members of the
    /// rows may have under way, if that is more (at most 64 MiB). At most 1 GiB. Default
    /// 4194304.
    #[serde(default = "defaults::socket_buffer_bytes")]
    pub socket_buffer_bytes: usize,
    /// `udp`, `af_packet`: hand runs of frames to the kernel, and take them from it, as one message
    /// each, where it can. On a wire they are the same datagrams, for less CPU; a bridge or
    /// queueing discipline of this host sees packets of up to 64 KiB, and so does a `dpdk` box, an
    /// `af_packet` box without this, or BMv2, at a veth whose offloads are on: switch it off beside
    /// those, and in other boxes of a host whose link has bands (`[bands]`), or a band waits for a
    /// whole run of a later one. An `af_packet` box with it takes rows with `checksum16` only from
    /// its file, as one on `udp` does. Default true.
    #[serde(default = "defaults::yes")]
    pub offload: bool,
    /// Where multicast addresses begin, such as `239.87.69.0`: the sums of row `r` go to the one
    /// `r` above it, once for all members that hear it, when all have said so. They hear it with
    /// the same address in their configuration, on a port of the kernel's UDP sockets, across any
    /// switch or bridge that floods or snoops, and no router. Anybody on that network can read the
    /// sums. Not for `switch`. Default none: each member gets a copy of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub multicast: Option<IpAddr>,
    /// Share memory with the workers of this host that ask for it, beside the port: each gets two
    /// rings, about 0.75 MiB at an MTU of 1500, and keeps the address that its row has. A sum for
    /// workers that all do is written once, in half as much for all of them, to a multicast address
    /// that stays in memory; with `multicast`, to that one. They must run as this user, as root,
    /// or as one of `shm_users`. Each of several lanes has rings of its own with each worker; then
    /// not with `dpdk`. Not for `switch`. Default false.
    #[serde(default)]
    pub shm: bool,
    /// With `shm`: other users, by name or number, from which workers are served. A worker takes
    /// memory from its own user's box or from root's, so this is for a box that runs as root.
    /// Default none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shm_users: Vec<String>,
    /// `af_packet`: bytes of each lane's receive ring, or with `offload` asked for as its
    /// socket's receive buffer, as `socket_buffer_bytes`. At most 1 GiB. Default 4194304.
    #[serde(default = "defaults::socket_buffer_bytes")]
    pub ring_bytes: usize,
    /// `af_packet`: send past the interface's queueing discipline: faster, but a rate limit set
    /// with `tc` does not apply. Default true.
    #[serde(default = "defaults::yes")]
    pub qdisc_bypass: bool,
}

/// Which kind of port.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Io {
    /// The kernel's UDP sockets.
    Udp,
    /// Packet sockets on a network interface.
    AfPacket,
    /// A DPDK device.
    Dpdk,
    /// The CPU port of a P4 switch.
    Switch,
}

impl PortSection {
    /// Where the multicast addresses of rows begin: as configured, else those that stay in the
    /// memory that the box shares, if it does.
    #[must_use]
    pub fn multicast_base(&self) -> Option<IpAddr> {
        self.multicast.or_else(|| self.shm.then(|| memory_base(self.ip.ip)))
    }

    /// True for a port that takes packets from a socket of the kernel by system calls: who waits
    /// for one is woken at once, and a checksum that was left to hardware is only made if the port
    /// was told so at its start.
    #[must_use]
    pub fn is_socket(&self) -> bool {
        self.io == Io::Udp || (self.io == Io::AfPacket && self.offload)
    }

    /// A port with what has no default.
    ///
    /// # Panics
    /// If `ip` is no address of one host.
    #[cfg(feature = "text")]
    #[must_use]
    pub fn new(io: Io, ip: impl Into<HostAddr>) -> Self {
        let ip = ip.into();
        section!(io, ip)
    }
}
