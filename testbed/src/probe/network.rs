//! Decides what the shaped truth is: which hosts, racks and rates a lab has, and what an estimate
//! of each link can at best be. No I/O.
//!
//! What is free on a link is its rate less the rate at which UDP cross traffic is offered to it. A
//! path has what its fullest link has free, and the truth of a link is what the best path through
//! it has: what is free on the link, or less where no path can use that.

use std::net::IpAddr;

use weft_plan::case::{HostId, RackId};
use weft_plan::net::topology::{LinkId, Topology};

use crate::lab::live::LiveEnd;

/// The hosts of a lab and their links.
#[derive(Clone, Debug, PartialEq)]
pub struct Network {
    /// Hosts with an address on a switch, in order of their names.
    pub hosts: Vec<Host>,
    /// Switches with hosts, if there are several.
    pub racks: Vec<Rack>,
}

/// A host.
#[derive(Clone, Debug, PartialEq)]
pub struct Host {
    /// Its name.
    pub name: String,
    /// Its address.
    pub address: IpAddr,
    /// Its interface.
    pub interface: String,
    /// Largest IP packet.
    pub mtu: u32,
    /// Index of its rack.
    pub rack: Option<u32>,
    /// Its link.
    pub link: Directions,
}

/// A switch with hosts.
#[derive(Clone, Debug, PartialEq)]
pub struct Rack {
    /// The switch's name.
    pub name: String,
    /// Its uplink.
    pub link: Directions,
}

/// The two directions of a link.
#[derive(Clone, Debug, PartialEq)]
pub struct Directions {
    /// Towards the core.
    pub up: LiveEnd,
    /// From the core.
    pub down: LiveEnd,
    /// Cross traffic offered, up and down, in bits per second.
    pub cross_bits_per_sec: [f64; 2],
}

impl Directions {
    fn bits_per_sec(&self, up: bool) -> Option<f64> {
        let end = if up { &self.up } else { &self.down };
        end.shaped.map(|(_, rate)| rate.bits_per_sec() as f64)
    }
}

/// Why a lab cannot be probed.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum NetworkError {
    /// Too few hosts.
    #[error("probing needs two hosts with an address on a common network; this lab has {count}")]
    Hosts {
        /// Those found.
        count: usize,
    },
}

impl Network {
    /// Makes a network of the directions of a lab's links.
    ///
    /// # Errors
    /// When there are not two hosts.
    pub fn new(ends: &[LiveEnd]) -> Result<Self, NetworkError> {
        let reverse = |end: &LiveEnd| ends.iter().find(|other| other.from == end.to);
        let link = |end: &LiveEnd| {
            let down = reverse(end)?.clone();
            Some(Directions { up: end.clone(), down, cross_bits_per_sec: [0.0; 2] })
        };
        let is_host = |end: &&LiveEnd| end.address.is_some();
        let mut switches: Vec<&str> =
            ends.iter().filter(is_host).map(|end| end.to.node.as_str()).collect();
        switches.sort_unstable();
        switches.dedup();
        // The uplink of a switch with hosts leads to another switch.
        let uplink = |switch: &str| {
            let leads_up = |end: &&LiveEnd| {
                end.from.node == switch
                    && end.address.is_none()
                    && reverse(end).is_some_and(|back| back.address.is_none())
            };
            ends.iter().find(leads_up).and_then(link)
        };
        let racks: Vec<Rack> = if switches.len() < 2 {
            Vec::new()
        } else {
            let rack = |name: &&str| Some(Rack { name: (*name).to_owned(), link: uplink(name)? });
            switches.iter().filter_map(rack).collect()
        };
        let host = |end: &LiveEnd| {
            let rack = racks.iter().position(|rack| rack.name == end.to.node);
            Some(Host {
                name: end.from.node.clone(),
                address: end.address.as_deref()?.parse().ok()?,
                interface: end.from.interface.clone(),
                mtu: end.mtu,
                rack: rack.and_then(|rack| u32::try_from(rack).ok()),
                link: link(end)?,
            })
        };
        let mut hosts: Vec<Host> = ends.iter().filter_map(host).collect();
        hosts.sort_by(|a, b| a.name.cmp(&b.name));
        hosts.dedup_by(|a, b| a.name == b.name);
        if hosts.len() < 2 {
            return Err(NetworkError::Hosts { count: hosts.len() });
        }
        Ok(Self { hosts, racks })
    }

    /// As the planner sees it.
    #[must_use]
    pub fn topology(&self) -> Topology {
        Topology::from_racks(self.hosts.iter().map(|host| host.rack.map(RackId)).collect())
    }

    /// The index of a host.
    #[must_use]
    pub fn position(&self, name: &str) -> Option<usize> {
        self.hosts.iter().position(|host| host.name == name)
    }

    /// Puts cross traffic on the path between two hosts.
    pub fn add_cross(&mut self, from: usize, to: usize, bits_per_sec: f64) {
        let racks = [from, to].map(|host| self.hosts[host].rack);
        self.hosts[from].link.cross_bits_per_sec[0] += bits_per_sec;
        self.hosts[to].link.cross_bits_per_sec[1] += bits_per_sec;
        if racks[0] != racks[1] {
            for (direction, rack) in racks.into_iter().enumerate() {
                if let Some(rack) = rack.and_then(|rack| self.racks.get_mut(rack as usize)) {
                    rack.link.cross_bits_per_sec[direction] += bits_per_sec;
                }
            }
        }
    }

    /// The link and its direction.
    #[must_use]
    pub fn link(&self, link: LinkId) -> (&str, &Directions, bool) {
        let (index, up) = (link.index() / 2, link.0.is_multiple_of(2));
        match self.hosts.get(index) {
            Some(host) => (&host.name, &host.link, up),
            None => {
                let rack = &self.racks[index - self.hosts.len()];
                (&rack.name, &rack.link, up)
            }
        }
    }

    /// What is free on a link, in bits per second; `None` when it is not shaped.
    #[must_use]
    pub fn free_bits_per_sec(&self, link: LinkId) -> Option<f64> {
        let (_, directions, up) = self.link(link);
        let cross = directions.cross_bits_per_sec[usize::from(!up)];
        Some((directions.bits_per_sec(up)? - cross).max(0.0))
    }

    /// The most that a path through the link has free; `None` when the link is not shaped.
    #[must_use]
    pub fn truth_bits_per_sec(&self, link: LinkId) -> Option<f64> {
        let topology = self.topology();
        let count = u32::try_from(self.hosts.len()).unwrap_or(u32::MAX);
        let hosts = || (0..count).map(HostId);
        let pairs = hosts().flat_map(|from| hosts().map(move |to| (from, to)));
        let best = pairs
            .filter_map(|(from, to)| {
                let path = topology.path(from, to);
                path.links().contains(&link).then_some(())?;
                let free = path.links().iter().filter_map(|link| self.free_bits_per_sec(*link));
                Some(free.fold(f64::INFINITY, f64::min))
            })
            .fold(0.0, f64::max);
        self.free_bits_per_sec(link).map(|_| best)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::tc::{Rate, Shaper};
    use crate::lab::topology::LinkEnd;

    fn ends(node: &str, address: Option<&str>, switch: &str, mbit: [f64; 2]) -> [LiveEnd; 2] {
        let end = |node: &str, interface: String| LinkEnd { node: node.to_owned(), interface };
        let host = end(node, "eth0".to_owned());
        let port = end(switch, format!("{switch}-{node}"));
        let shaped = |mbit| Rate::from_mbit(mbit).map(|rate| (Shaper::Htb, rate));
        let direction = |from: &LinkEnd, to: &LinkEnd, address: Option<&str>, mbit| LiveEnd {
            from: from.clone(),
            to: to.clone(),
            address: address.map(str::to_owned),
            mtu: 1500,
            shaped: shaped(mbit),
        };
        [direction(&host, &port, address, mbit[0]), direction(&port, &host, None, mbit[1])]
    }

    fn two_racks() -> Network {
        let mut all = Vec::new();
        for (host, switch) in [("w0", "r0"), ("w1", "r0"), ("w2", "r1")] {
            let address = format!("10.0.0.{}", all.len() + 1);
            all.extend(ends(host, Some(&address), switch, [100.0, 80.0]));
        }
        all.extend(ends("r0", None, "s0", [60.0, 400.0]));
        all.extend(ends("r1", None, "s0", [0.0, 0.0]));
        Network::new(&all).unwrap()
    }

    #[test]
    fn hosts_and_racks_are_found_and_their_truth() {
        let mut network = two_racks();
        assert_eq!(
            network.racks.iter().map(|rack| rack.name.as_str()).collect::<Vec<_>>(),
            ["r0", "r1"]
        );
        assert_eq!(network.hosts[2].rack, Some(1));
        let truth = |network: &Network, link| {
            network.truth_bits_per_sec(LinkId(link)).map(|bits| bits / 1e6)
        };
        // w0 up: no downlink takes more than 80.
        assert_eq!(truth(&network, 0), Some(80.0));
        // w2 down: both others are behind the uplink of 60.
        assert_eq!(truth(&network, 5), Some(60.0));
        assert_eq!(truth(&network, 6), Some(60.0));
        assert_eq!(truth(&network, 8), None, "not shaped");
        network.add_cross(0, 2, 25e6);
        assert_eq!((truth(&network, 0), truth(&network, 6)), (Some(75.0), Some(35.0)));
        // Both ways to w2 down share what the uplink has left.
        assert_eq!(truth(&network, 5), Some(35.0));
        assert_eq!(network.link(LinkId(7)).0, "r0");
    }

    #[test]
    fn a_single_host_is_refused() {
        let alone = ends("w0", Some("10.0.0.1"), "s0", [1.0, 1.0]);
        assert_eq!(Network::new(&alone), Err(NetworkError::Hosts { count: 1 }));
    }
}
