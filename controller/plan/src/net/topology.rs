//! Decides which links a transfer crosses: its host's uplink, the receiver's downlink, and between
//! racks the two racks' links. The core between racks never limits (big-switch model).

use alloc::vec::Vec;

use crate::case::{Case, HostId, RackId};

/// Index of a link in the [`crate::net::ledger::Ledger`].
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct LinkId(pub u32);

impl LinkId {
    /// As a slice index.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// The links of a transfer, sender's side first; none inside one host.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Path {
    links: [LinkId; LINKS_MAX],
    len: u8,
}

const LINKS_MAX: usize = 4;

impl Path {
    const EMPTY: Self = Self { links: [LinkId(0); LINKS_MAX], len: 0 };

    /// The links.
    #[must_use]
    pub fn links(&self) -> &[LinkId] {
        &self.links[..usize::from(self.len)]
    }

    /// The links behind the first.
    #[must_use]
    pub fn behind(&self) -> Self {
        let mut path = Self::EMPTY;
        for link in self.links().iter().skip(1) {
            path.push(*link);
        }
        path
    }

    fn push(&mut self, link: LinkId) {
        self.links[usize::from(self.len)] = link;
        self.len += 1;
    }
}

/// Where hosts are attached.
#[derive(Clone, Debug)]
pub struct Topology {
    racks: Vec<Option<RackId>>,
    rack_count: u32,
}

impl Topology {
    /// The topology of a case.
    #[must_use]
    pub fn new(case: &Case) -> Self {
        let racks: Vec<_> = case.hosts.iter().map(|h| h.rack).collect();
        Self { racks, rack_count: RackId::from_index(case.racks.len()).0 }
    }

    /// The topology of hosts by the rack that each is in.
    #[must_use]
    pub fn from_racks(racks: Vec<Option<RackId>>) -> Self {
        let rack_count = racks.iter().flatten().map(|rack| rack.0 + 1).max().unwrap_or(0);
        Self { racks, rack_count }
    }

    /// Hosts in this topology.
    #[must_use]
    pub const fn host_count(&self) -> usize {
        self.racks.len()
    }

    /// Links of hosts and racks: all [`LinkId`]s are below.
    #[must_use]
    pub const fn link_count(&self) -> usize {
        self.racks.len() * 2 + self.rack_count as usize * 2
    }

    /// All links with their capacity in bytes per second, by [`LinkId`].
    #[must_use]
    pub fn capacities(case: &Case) -> Vec<u64> {
        let hosts = case.hosts.iter().flat_map(|h| [h.up_bytes_per_sec, h.down_bytes_per_sec]);
        let racks = case.racks.iter().flat_map(|r| [r.up_bytes_per_sec, r.down_bytes_per_sec]);
        hosts.chain(racks).collect()
    }

    /// From a host into the network.
    #[must_use]
    pub const fn up(&self, host: HostId) -> LinkId {
        LinkId(host.0 * 2)
    }

    /// From the network to a host.
    #[must_use]
    pub const fn down(&self, host: HostId) -> LinkId {
        LinkId(host.0 * 2 + 1)
    }

    /// The rack of a host.
    #[must_use]
    pub fn rack(&self, host: HostId) -> Option<RackId> {
        self.racks[host.index()]
    }

    /// Racks in this topology.
    #[must_use]
    pub const fn rack_count(&self) -> u32 {
        self.rack_count
    }

    /// The links from one host to another.
    #[must_use]
    pub fn path(&self, from: HostId, to: HostId) -> Path {
        self.half_open_path(Some(from), Some(to))
    }

    /// The links of a transfer of which one end may be outside of the case.
    #[must_use]
    pub fn half_open_path(&self, from: Option<HostId>, to: Option<HostId>) -> Path {
        let mut path = Path::EMPTY;
        if from == to {
            return path;
        }
        let racks = (from.and_then(|h| self.rack(h)), to.and_then(|h| self.rack(h)));
        let crosses = racks.0 != racks.1;
        if let Some(from) = from {
            path.push(self.up(from));
        }
        if crosses && let Some(rack) = racks.0 {
            path.push(self.rack_link(rack, 0));
        }
        if crosses && let Some(rack) = racks.1 {
            path.push(self.rack_link(rack, 1));
        }
        if let Some(to) = to {
            path.push(self.down(to));
        }
        path
    }

    #[expect(clippy::cast_possible_truncation, reason = "made from a 32-bit index")]
    const fn rack_link(&self, rack: RackId, direction: u32) -> LinkId {
        LinkId(self.racks.len() as u32 * 2 + rack.0 * 2 + direction)
    }
}
