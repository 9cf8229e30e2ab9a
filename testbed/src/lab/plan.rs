//! Decides every command that brings a lab up, from its topology. No I/O.
//!
//! Invariants: a lab's objects are network namespaces called `wf-<lab>-<node>` and what lives in
//! them. Links are created with both ends already inside, so nothing ever appears in the caller's
//! namespace, and removing the namespaces removes the lab. Lab names have no hyphen, so one lab's
//! prefix is never the beginning of another's.

use std::fmt;
use std::str::FromStr;

use weft_wire::MacAddr;

use super::netem;
use super::tc::RateCheck;
use super::topology::{Host, Link, LinkEnd, Topology};

/// The commands of one lab, in the order in which they run.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// What each namespace needs, hosts first.
    pub nodes: Vec<NodePlan>,
    /// For `ip -batch`: the links, from namespace to namespace.
    pub wiring: Vec<String>,
}

/// One namespace.
#[derive(Clone, Debug, PartialEq)]
pub struct NodePlan {
    /// The node's name in the topology.
    pub node: String,
    /// Its namespace.
    pub namespace: String,
    /// Kernel settings, before any interface exists: path below `/proc/sys/net/` and value.
    pub settings: Vec<(&'static str, &'static str)>,
    /// For `ip -netns … -batch`.
    pub addresses: Vec<String>,
    /// For `tc -netns … -batch`.
    pub shaping: Vec<String>,
    /// What must hold after `shaping`.
    pub rates: Vec<RateCheck>,
    /// Interfaces that must have netem after `shaping`.
    pub delayed: Vec<String>,
    /// Interfaces whose offloads are switched off.
    pub interfaces: Vec<String>,
    /// Shell commands of the topology file.
    pub commands: Vec<String>,
}

impl Plan {
    /// Plans the lab `name`.
    #[must_use]
    pub fn new(name: &LabName, topology: &Topology) -> Self {
        let hosts = topology.hosts.iter().map(|host| host_plan(name, topology, host));
        let switches = topology.switches.iter().map(|switch| switch_plan(name, topology, switch));
        let nodes = hosts.chain(switches).collect();
        let wiring = topology.links.iter().map(|link| wire(name, link)).collect();
        Self { nodes, wiring }
    }

    /// For `ip -batch`: the namespaces.
    #[must_use]
    pub fn creation(&self) -> Vec<String> {
        self.nodes.iter().map(|node| format!("netns add {}", node.namespace)).collect()
    }
}

/// The name of a lab: 1 to 16 lower-case letters and digits.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct LabName(String);

impl LabName {
    /// The longest name.
    pub const LEN_MAX: usize = 16;

    /// Makes a name of a file's stem, leaving out what a name cannot hold.
    #[must_use]
    pub fn from_stem(stem: &str) -> Option<Self> {
        let kept = stem.chars().filter(char::is_ascii_alphanumeric).take(Self::LEN_MAX);
        kept.map(|c| c.to_ascii_lowercase()).collect::<String>().parse().ok()
    }

    /// The lab that this process makes for itself, so that two do not meet. `kind` is one of
    /// [`KINDS`].
    #[must_use]
    pub fn of_this_process(kind: &'static str) -> Self {
        Self(format!("{kind}{}", std::process::id()))
    }

    /// The process that made it for itself; none for a lab that was given a name.
    #[must_use]
    pub fn owner(&self) -> Option<u32> {
        KINDS.iter().find_map(|kind| self.0.strip_prefix(kind)?.parse().ok())
    }

    /// The namespace of a node.
    #[must_use]
    pub fn namespace(&self, node: &str) -> String {
        format!("{PREFIX}{}-{node}", self.0)
    }

    /// The node whose namespace this is, if it is this lab's.
    #[must_use]
    pub fn node_of<'n>(&self, namespace: &'n str) -> Option<&'n str> {
        split(namespace).filter(|(lab, _)| *lab == self.0).map(|(_, node)| node)
    }
}

/// What commands call the labs that they make for themselves, with the process's id behind it.
pub const KINDS: [&str; 6] = ["run", "probe", "bench", "benchraw", "benchsame", "benchraws"];

/// Takes a namespace's name apart into lab and node; `None` for namespaces of others.
#[must_use]
pub fn split(namespace: &str) -> Option<(&str, &str)> {
    namespace.strip_prefix(PREFIX)?.split_once('-')
}

impl fmt::Display for LabName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for LabName {
    type Err = LabNameError;

    fn from_str(text: &str) -> Result<Self, LabNameError> {
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        if (1..=Self::LEN_MAX).contains(&text.len()) && text.chars().all(plain) {
            Ok(Self(text.to_owned()))
        } else {
            Err(LabNameError { name: text.to_owned() })
        }
    }
}

/// A text that is no lab name.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("lab name `{name}`: use 1 to {} lower-case letters and digits", LabName::LEN_MAX)]
pub struct LabNameError {
    name: String,
}

fn host_plan(name: &LabName, topology: &Topology, host: &Host) -> NodePlan {
    let mut plan = node_plan(name, topology, &host.name);
    plan.commands.clone_from(&host.commands);
    let mtu = topology.mtu;
    for (index, interface) in plan.interfaces.iter().enumerate() {
        let first = index == 0;
        let mac = host.mac.filter(|_| first).unwrap_or_else(|| mac_of(topology, host, index));
        plan.addresses.push(format!("link set {interface} address {mac} mtu {mtu}"));
        let addresses = [host.ip.filter(|_| host.kernel_address), host.control];
        for ip in addresses.into_iter().flatten().filter(|_| first) {
            let nodad = if ip.address.is_ipv6() { " nodad" } else { "" };
            plan.addresses.push(format!("addr add {ip} dev {interface}{nodad}"));
        }
        plan.addresses.push(format!("link set {interface} up"));
    }
    plan
}

fn switch_plan(name: &LabName, topology: &Topology, switch: &str) -> NodePlan {
    let mut plan = node_plan(name, topology, switch);
    let mtu = topology.mtu;
    // No spanning tree and no snooping: a port forwards at once, and the bridge itself is silent.
    // Links that close a circle stay out of it instead.
    plan.addresses.push(format!(
        "link add {BRIDGE} type bridge stp_state 0 forward_delay 0 mcast_snooping 0"
    ));
    let spare = topology.spare_links();
    for interface in &plan.interfaces {
        let is_port =
            !spare.iter().flat_map(|link| &link.ends).any(|it| it.interface == *interface);
        let master = if is_port { format!(" master {BRIDGE}") } else { String::new() };
        plan.addresses.push(format!("link set {interface} mtu {mtu}{master}"));
        plan.addresses.push(format!("link set {interface} up"));
    }
    plan.addresses.push(format!("link set {BRIDGE} mtu {mtu} up"));
    plan.settings.extend(BRIDGE_SETTINGS);
    plan
}

/// What hosts and switches have in common.
fn node_plan(name: &LabName, topology: &Topology, node: &str) -> NodePlan {
    let mut plan = NodePlan {
        node: node.to_owned(),
        namespace: name.namespace(node),
        settings: if topology.uses_ipv6() { IPV6_QUIET.to_vec() } else { IPV6_OFF.to_vec() },
        addresses: vec!["link set lo up".to_owned()],
        shaping: Vec::new(),
        rates: Vec::new(),
        delayed: Vec::new(),
        interfaces: Vec::new(),
        commands: Vec::new(),
    };
    for link in &topology.links {
        for (LinkEnd { interface, .. }, shape) in
            link.ends.iter().zip(link.shapes).filter(|(end, _)| end.node == node)
        {
            let mut lines = Vec::new();
            if let Some(shape) = shape {
                let (rate, queue) = (shape.rate, shape.queue_packets);
                lines = shape.shaper.batch(interface, rate, topology.mtu, queue);
                let (interface, shaper) = (interface.clone(), shape.shaper);
                plan.rates.push(RateCheck { interface, shaper, rate });
            }
            if !link.delay.is_zero() {
                netem::add(&mut lines, interface, shape.as_ref(), link.delay, topology.mtu);
                plan.delayed.push(interface.clone());
            }
            plan.shaping.extend(lines);
            plan.interfaces.push(interface.clone());
        }
    }
    plan
}

fn wire(name: &LabName, link: &Link) -> String {
    let [a, b] = &link.ends;
    let (a_namespace, b_namespace) = (name.namespace(&a.node), name.namespace(&b.node));
    format!(
        "link add name {} netns {a_namespace} type veth peer name {} netns {b_namespace}",
        a.interface, b.interface
    )
}

/// A locally administered address from the host's and the interface's position.
fn mac_of(topology: &Topology, host: &Host, interface: usize) -> MacAddr {
    let position = topology.hosts.iter().position(|other| other.name == host.name).unwrap_or(0);
    let low = |number: usize| number.to_be_bytes()[size_of::<usize>() - 1];
    MacAddr([0x02, 0x57, 0x45, 0x80 | low(position >> 8), low(position), low(interface)])
}

/// Marks everything that Weft's labs own.
const PREFIX: &str = "wf-";
const BRIDGE: &str = "br0";

/// Without IPv6 addresses in the topology: no router solicitations, no listener reports.
const IPV6_OFF: [(&str, &str); 2] =
    [("ipv6/conf/all/disable_ipv6", "1"), ("ipv6/conf/default/disable_ipv6", "1")];

/// With them: no addresses but those of the topology, and nobody solicits a router.
const IPV6_QUIET: [(&str, &str); 6] = [
    ("ipv6/conf/all/accept_ra", "0"),
    ("ipv6/conf/default/accept_ra", "0"),
    ("ipv6/conf/default/autoconf", "0"),
    ("ipv6/conf/all/addr_gen_mode", "1"),
    ("ipv6/conf/default/addr_gen_mode", "1"),
    ("ipv6/conf/default/dad_transmits", "0"),
];

/// With `bridge-nf-call-*` set, bridged frames pass the firewall and may be dropped there.
const BRIDGE_SETTINGS: [(&str, &str); 3] = [
    ("bridge/bridge-nf-call-iptables", "0"),
    ("bridge/bridge-nf-call-ip6tables", "0"),
    ("bridge/bridge-nf-call-arptables", "0"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::tc::Rate;
    use crate::lab::topology::Star;

    fn name(text: &str) -> LabName {
        text.parse().unwrap()
    }

    fn star() -> Topology {
        let rate = Rate::from_mbit(100.0);
        Topology::star(&Star { workers: 2, aggregators: 1, rate, mtu: 1500 }).unwrap()
    }

    #[test]
    fn a_star_becomes_these_commands() {
        let mut topology = star();
        topology.leave_address_to_port("a0");
        topology.add_control_addresses();
        let plan = Plan::new(&name("t1"), &topology);
        assert_eq!(
            plan.creation(),
            [
                "netns add wf-t1-a0",
                "netns add wf-t1-w0",
                "netns add wf-t1-w1",
                "netns add wf-t1-s0"
            ]
        );
        assert_eq!(
            plan.wiring,
            [
                "link add name eth0 netns wf-t1-w0 type veth peer name s0-p1 netns wf-t1-s0",
                "link add name eth0 netns wf-t1-w1 type veth peer name s0-p2 netns wf-t1-s0",
                "link add name eth0 netns wf-t1-a0 type veth peer name s0-p3 netns wf-t1-s0",
            ]
        );
        let [a0, w0, _, s0] = &plan.nodes[..] else { panic!("four nodes expected") };
        assert_eq!(
            w0.addresses,
            [
                "link set lo up",
                "link set eth0 address 02:57:45:00:00:01 mtu 1500",
                "addr add 10.87.0.1/24 dev eth0",
                "addr add 10.88.0.1/24 dev eth0",
                "link set eth0 up",
            ]
        );
        let owned: Vec<_> = a0.addresses.iter().filter(|line| line.starts_with("addr")).collect();
        assert_eq!(owned, ["addr add 10.88.0.254/24 dev eth0"], "a port owns the other");
        assert_eq!(s0.interfaces, ["s0-p1", "s0-p2", "s0-p3"]);
        assert_eq!(s0.addresses.last().unwrap(), "link set br0 mtu 1500 up");
        assert_eq!((s0.rates.len(), s0.shaping.len()), (3, 12));
        assert_eq!((w0.rates.len(), w0.shaping.len()), (1, 4));
        assert!(s0.settings.contains(&("bridge/bridge-nf-call-iptables", "0")));
        assert!(w0.settings.contains(&("ipv6/conf/all/disable_ipv6", "1")));
    }

    #[test]
    fn each_direction_has_its_rate_at_its_sending_end() {
        let text = r#"{"hosts":{"h1":{}},"switches":{"s1":{}},
            "links":[["h1","s1",{"bw":10,"bw_reverse":50}]]}"#;
        let plan = Plan::new(&name("two"), &Topology::from_json(text).unwrap());
        let rates: Vec<_> = plan.nodes.iter().map(|node| node.rates[0].rate).collect();
        assert_eq!(rates, [10.0, 50.0].map(|mbit| Rate::from_mbit(mbit).unwrap()));
        assert!(plan.nodes[1].shaping[1].contains("rate 50000000bit"));
    }

    /// Of P4 tutorials' topologies, 12 of 14 have circles.
    #[test]
    fn links_that_close_a_circle_are_no_ports_of_bridges() {
        let spare = |links: &str, out: &[&str]| {
            let text = format!(
                r#"{{"hosts":{{"h1":{{}},"h2":{{}}}},"switches":{{"s1":{{}},"s2":{{}},"s3":{{}}}},
                "links":[["h1","s1"],["h1","s2"],["h2","s3"],{links}]}}"#
            );
            let plan = Plan::new(&name("circle"), &Topology::from_json(&text).unwrap());
            let lines = plan.nodes.iter().flat_map(|node| &node.addresses);
            let alone =
                lines.filter(|line| line.starts_with("link set s") && line.ends_with("1500"));
            let alone: Vec<_> = alone.map(|line| line.split(' ').nth(2).unwrap()).collect();
            assert_eq!(alone, out, "{links}");
        };
        // A host does not forward.
        spare(r#"["s1","s2"]"#, &[]);
        spare(r#"["s1","s2"],["s2","s3"],["s3","s1"]"#, &["s1-p3", "s3-p3"]);
        spare(r#"["s1","s2"],["s1","s2"],["s2","s1"]"#, &["s1-p3", "s1-p4", "s2-p3", "s2-p4"]);
        spare(r#"["s2","s3"],["s1","s2"]"#, &[]);
    }

    #[test]
    fn a_delay_is_made_at_both_ends_of_its_link() {
        let text = r#"{"hosts":{"h1":{},"h2":{}},"switches":{"s1":{}},
            "links":[["h1","s1",{"bw":10,"delay":"5ms"}],["h2","s1"]]}"#;
        let plan = Plan::new(&name("far"), &Topology::from_json(text).unwrap());
        let delayed: Vec<_> = plan.nodes.iter().map(|node| node.delayed.len()).collect();
        assert_eq!(delayed, [1, 0, 1]);
        for node in [&plan.nodes[0], &plan.nodes[2]] {
            assert!(node.shaping[3].contains("netem delay 5000us"), "{:?}", node.shaping);
            assert_eq!(node.shaping.len(), 4);
        }
    }

    #[test]
    fn ipv6_stays_on_and_quiet_where_a_host_uses_it() {
        let text = r#"{"hosts":{"h1":{"ip":"fd00::1/64"},"h2":{}},"links":[["h1","h2"]]}"#;
        let plan = Plan::new(&name("six"), &Topology::from_json(text).unwrap());
        assert!(plan.nodes[0].addresses.contains(&"addr add fd00::1/64 dev eth0 nodad".to_owned()));
        assert!(plan.nodes[0].settings.iter().all(|(path, _)| !path.ends_with("disable_ipv6")));
        assert!(plan.nodes[1].addresses[1].starts_with("link set eth0 address 02:57:45:80:01:00"));
    }

    #[test]
    fn labs_do_not_claim_each_others_namespaces() {
        let lab = name("a");
        assert_eq!(lab.node_of("wf-a-b-h1"), Some("b-h1"));
        assert_eq!(lab.node_of("wf-ab-h1"), None);
        assert_eq!(lab.node_of("wf-a"), None);
        assert_eq!(lab.node_of("xwf-a-h1"), None);
        for bad in ["", "a-b", "A", "seventeenletters1", "a b", "ä"] {
            assert!(bad.parse::<LabName>().is_err(), "{bad}");
        }
        assert_eq!(LabName::from_stem("My-topology_2").unwrap(), name("mytopology2"));
        assert_eq!(LabName::from_stem("--"), None);
    }
}
