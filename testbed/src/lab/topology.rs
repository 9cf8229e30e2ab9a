//! Decides what a lab consists of: hosts, switches and links, read from a Mininet-style
//! `topology.json` or built for a scenario. No I/O.
//!
//! The file's shape is that of the P4 tutorials and of Mininet's `TCLink`:
//!
//! ```json
//! { "hosts":    { "h1": { "ip": "10.0.1.1/24", "mac": "02:00:00:00:01:01", "commands": [] } },
//!   "switches": { "s1": {} },
//!   "links":    [ ["h1", "s1-p1"], [["h2", "s1-p2"], { "bw": 100 }],
//!                 ["h3", "s1", { "bw": 10, "bw_reverse": 50 }] ] }
//! ```
//!
//! `bw_reverse`, the rate from the second end to the first where it is not that of `bw`, is ours.
//!
//! Invariant: a [`Topology`] that exists is consistent: names are unique and short enough for
//! Linux, links end at known nodes, no port is used twice, no address belongs to two hosts.
//! What a link cannot do here (`loss`, `jitter`) is refused, never ignored.

mod build;
mod error;
mod file;
mod write;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use std::time::Duration;

use weft_wire::MacAddr;

pub use build::{Rack, Rates, STAR_SWITCH, Star};
pub use error::TopologyError;
use file::{File, RawHost, RawLink};

use super::tc::{Rate, Shaper};

/// A consistent set of nodes and links.
#[derive(Clone, Debug, PartialEq)]
pub struct Topology {
    /// End systems, by name in order.
    pub hosts: Vec<Host>,
    /// Linux bridges, by name in order.
    pub switches: Vec<String>,
    /// Links, in the file's order.
    pub links: Vec<Link>,
    /// Largest IP packet on every link, in bytes.
    pub mtu: u32,
    /// Whether the interfaces keep their offloads: packets of up to 64 KiB pass, as between hosts
    /// whose cards cut and merge them. False: what is captured is what a wire would show.
    pub keeps_offloads: bool,
}

impl Topology {
    /// Reads a Mininet-style topology.
    ///
    /// # Errors
    /// Names the field, and the line where JSON itself is at fault.
    pub fn from_json(text: &str) -> Result<Self, TopologyError> {
        let file: File = serde_json::from_str(text)?;
        let mut builder = Builder::default();
        for (name, host) in file.hosts {
            builder.host(name, host)?;
        }
        for name in file.switches.into_keys() {
            builder.switch(name)?;
        }
        for (index, link) in file.links.into_iter().enumerate() {
            builder
                .link(link)
                .map_err(|problem| TopologyError::Link { index, reason: Box::new(problem) })?;
        }
        builder.finish(file.mtu.unwrap_or(MTU_DEFAULT))
    }

    /// Gives the kernel of every host a second address, for what does not travel through a
    /// userspace port: 10.88.0.0/24 beside the 10.87.0.0/24 of a built topology. Real machines have
    /// a second network for it; here it shares the link.
    pub fn add_control_addresses(&mut self) {
        for host in &mut self.hosts {
            host.control = host.ip.and_then(Cidr::control);
        }
    }

    /// Leaves the address of `name` to a userspace port: the kernel neither holds nor answers for
    /// it. Returns whether there is such a host.
    pub fn leave_address_to_port(&mut self, name: &str) -> bool {
        let host = self.hosts.iter_mut().find(|host| host.name == name);
        host.map(|host| host.kernel_address = false).is_some()
    }

    /// Gives the links of a host a delay in each direction.
    pub fn set_delay(&mut self, host: &str, delay: Duration) {
        let of_it = |link: &&mut Link| link.ends[0].node == host;
        self.links.iter_mut().filter(of_it).for_each(|link| link.delay = delay);
    }

    /// Leaves the delays of links to somebody else.
    pub fn clear_delays(&mut self) {
        self.links.iter_mut().for_each(|link| link.delay = Duration::ZERO);
    }

    /// The host called `name`.
    #[must_use]
    pub fn host(&self, name: &str) -> Option<&Host> {
        self.hosts.iter().find(|host| host.name == name)
    }

    /// The links that close a circle of switches, in which a broadcast would go round for ever: all
    /// but a tree's, which takes links in their order.
    #[must_use]
    pub fn spare_links(&self) -> Vec<&Link> {
        // Which switches are one part so far.
        let mut parts: BTreeMap<&str, &str> =
            self.switches.iter().map(|name| (name.as_str(), name.as_str())).collect();
        let mut closes = |link: &&Link| {
            let [first, second] = link.ends.each_ref().map(|end| parts.get(&*end.node).copied());
            let (Some(first), Some(second)) = (first, second) else { return false };
            parts.values_mut().filter(|part| **part == second).for_each(|part| *part = first);
            first == second
        };
        self.links.iter().filter(|link| closes(link)).collect()
    }

    /// Whether any host has an IPv6 address; otherwise IPv6 is switched off in the lab.
    #[must_use]
    pub fn uses_ipv6(&self) -> bool {
        self.hosts.iter().filter_map(|host| host.ip).any(|ip| ip.address.is_ipv6())
    }
}

/// One end system, in a namespace of its own.
#[derive(Clone, Debug, PartialEq)]
pub struct Host {
    /// Name, such as `h1`.
    pub name: String,
    /// Address of its first interface.
    pub ip: Option<Cidr>,
    /// Ethernet address of its first interface; one is derived otherwise.
    pub mac: Option<MacAddr>,
    /// Shell commands run inside once the links are up, as in the P4 tutorials.
    pub commands: Vec<String>,
    /// False when a userspace port owns `ip`, so that the kernel must not answer for it.
    pub kernel_address: bool,
    /// A further address of its first interface, always the kernel's.
    pub control: Option<Cidr>,
}

/// One link: a veth pair.
#[derive(Clone, Debug, PartialEq)]
pub struct Link {
    /// The two ends.
    pub ends: [LinkEnd; 2],
    /// How what leaves each end is shaped: for a host's link, whose first end is the host, its
    /// uplink and its downlink. Unlimited otherwise.
    pub shapes: [Option<Shape>; 2],
    /// How long a frame takes in each direction, besides waiting for the rate.
    pub delay: Duration,
}

/// An interface of a node. Namespaces keep equal names apart.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct LinkEnd {
    /// The host or switch.
    pub node: String,
    /// `eth0…` in a host, `s1-p1…` in a switch.
    pub interface: String,
}

/// How one direction of a link is shaped.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shape {
    /// Rate of frames on the link.
    pub rate: Rate,
    /// The queueing discipline that enforces it.
    pub shaper: Shaper,
    /// Packets that wait before more are dropped.
    pub queue_packets: u32,
}

impl Shape {
    /// HTB with the default queue.
    #[must_use]
    pub const fn new(rate: Rate) -> Self {
        Self { rate, shaper: Shaper::Htb, queue_packets: QUEUE_PACKETS_DEFAULT }
    }
}

/// An address with its prefix length, such as `10.0.1.1/24`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Cidr {
    /// The address.
    pub address: IpAddr,
    /// Leading bits that name the network.
    pub prefix: u8,
}

impl Cidr {
    /// The same host in the network whose second octet is one higher; none for IPv6.
    fn control(self) -> Option<Self> {
        let IpAddr::V4(ip) = self.address else { return None };
        let [a, b, c, d] = ip.octets();
        Some(Self { address: [a, b.wrapping_add(1), c, d].into(), ..self })
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

impl FromStr for Cidr {
    type Err = TopologyError;

    fn from_str(text: &str) -> Result<Self, TopologyError> {
        let bad = || TopologyError::Address { text: text.to_owned() };
        let (address, prefix) = text.split_once('/').ok_or_else(bad)?;
        let address: IpAddr = address.parse().map_err(|_| bad())?;
        let prefix: u8 = prefix.parse().map_err(|_| bad())?;
        let longest = if address.is_ipv6() { 128 } else { 32 };
        if prefix > longest {
            return Err(bad());
        }
        Ok(Self { address, prefix })
    }
}

/// Collects nodes and links and checks them against each other.
#[derive(Debug, Default)]
struct Builder {
    hosts: BTreeMap<String, Host>,
    switches: BTreeSet<String>,
    links: Vec<Link>,
    used: BTreeSet<LinkEnd>,
}

impl Builder {
    fn host(&mut self, name: String, raw: RawHost) -> Result<(), TopologyError> {
        let ip = raw.ip.map(|text| text.parse()).transpose()?;
        let mac = raw
            .mac
            .map(|text| text.parse().map_err(|_| TopologyError::Mac { text: text.clone() }))
            .transpose()?;
        self.add_host(Host {
            name,
            ip,
            mac,
            commands: raw.commands,
            kernel_address: true,
            control: None,
        })
    }

    fn add_host(&mut self, host: Host) -> Result<(), TopologyError> {
        self.check_name(&host.name)?;
        for other in self.hosts.values() {
            let same_ip =
                host.ip.is_some() && other.ip.map(|c| c.address) == host.ip.map(|c| c.address);
            if same_ip || (host.mac.is_some() && other.mac == host.mac) {
                let (first, second) = (other.name.clone(), host.name);
                return Err(TopologyError::SharedAddress { first, second });
            }
        }
        self.hosts.insert(host.name.clone(), host);
        Ok(())
    }

    fn switch(&mut self, name: String) -> Result<(), TopologyError> {
        self.check_name(&name)?;
        self.switches.insert(name);
        Ok(())
    }

    fn check_name(&self, name: &str) -> Result<(), TopologyError> {
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        let starts_well = name.starts_with(|c: char| c.is_ascii_alphanumeric());
        if !starts_well || !name.chars().all(plain) || name.len() > NODE_NAME_LEN_MAX {
            return Err(TopologyError::Name { name: name.to_owned() });
        }
        if self.hosts.contains_key(name) || self.switches.contains(name) {
            return Err(TopologyError::Twice { name: name.to_owned() });
        }
        Ok(())
    }

    fn link(&mut self, raw: RawLink) -> Result<(), TopologyError> {
        let (ends, options) = raw.normalise()?;
        let delay = options.delay()?;
        self.connect([&ends[0], &ends[1]], options.shapes()?, delay)
    }

    fn connect(
        &mut self,
        ends: [&str; 2],
        shapes: [Option<Shape>; 2],
        delay: Duration,
    ) -> Result<(), TopologyError> {
        let first = self.end(ends[0])?;
        let second = self.end(ends[1])?;
        if first.node == second.node {
            return Err(TopologyError::Loop { name: first.node });
        }
        self.links.push(Link { ends: [first, second], shapes, delay });
        Ok(())
    }

    /// Resolves `h1`, `s1` (the next free port) or `s1-p2`, and takes the interface.
    fn end(&mut self, text: &str) -> Result<LinkEnd, TopologyError> {
        let unknown = || TopologyError::UnknownEnd { end: text.to_owned() };
        let (node, port) = if self.hosts.contains_key(text) || self.switches.contains(text) {
            (text, None)
        } else {
            let (node, port) = text.rsplit_once("-p").ok_or_else(unknown)?;
            let port: u16 = port.parse().map_err(|_| unknown())?;
            if port > SWITCH_PORT_MAX || !self.switches.contains(node) {
                return Err(unknown());
            }
            (node, Some(port))
        };
        let name = |number: u16| LinkEnd {
            node: node.to_owned(),
            interface: if self.switches.contains(node) {
                format!("{node}-p{number}")
            } else {
                format!("eth{number}")
            },
        };
        let end = match port {
            Some(port) => name(port),
            None => {
                let first = u16::from(self.switches.contains(node));
                (first..=SWITCH_PORT_MAX)
                    .map(name)
                    .find(|end| !self.used.contains(end))
                    .ok_or_else(unknown)?
            }
        };
        if !self.used.insert(end.clone()) {
            return Err(TopologyError::PortTwice { interface: end.interface });
        }
        Ok(end)
    }

    fn finish(self, mtu: u32) -> Result<Topology, TopologyError> {
        if !(MTU_MIN..=MTU_MAX).contains(&mtu) {
            return Err(TopologyError::Mtu { mtu });
        }
        if self.hosts.is_empty() {
            return Err(TopologyError::Empty);
        }
        let hosts = self.hosts.into_values().collect();
        let switches = self.switches.into_iter().collect();
        Ok(Topology { hosts, switches, links: self.links, mtu, keeps_offloads: false })
    }
}

const MTU_DEFAULT: u32 = 1500;
/// IPv6 asks for 1280 of every link; smaller ones are of no use to the protocol either.
const MTU_MIN: u32 = 1280;
/// What a veth pair can carry.
const MTU_MAX: u32 = 65_535;
/// `<switch>-p999` fits 15 bytes.
const NODE_NAME_LEN_MAX: usize = 10;
/// The longest delay of a link: around the world by satellite takes less.
pub(crate) const DELAY_MAX: Duration = Duration::from_secs(1);
const SWITCH_PORT_MAX: u16 = 999;
/// The kernel's own default for an Ethernet device.
pub(super) const QUEUE_PACKETS_DEFAULT: u32 = 1000;

#[cfg(test)]
mod tests;
