//! Reads the links of a lab that is up from the kernel, and changes their rates while it runs.
//!
//! A lab keeps no state besides its namespaces, so what its links are is asked of them: the peer of
//! an interface from its index and namespace id, its rate from its queueing discipline.

use serde::Deserialize;

use super::netns::{self, ToolError};
use super::tc::{Rate, RateCheck, Shaper};
use super::topology::LinkEnd;
use super::{LabError, LabName, nodes_of};

/// One direction of a link: what leaves an interface of a node, and where it arrives.
#[derive(Clone, Debug, PartialEq)]
pub struct LiveEnd {
    /// The sending end.
    pub from: LinkEnd,
    /// The receiving end.
    pub to: LinkEnd,
    /// First address of the sending interface, without its prefix length.
    pub address: Option<String>,
    /// Largest IP packet of the interface, in bytes.
    pub mtu: u32,
    /// What shapes it, and its rate; unlimited otherwise.
    pub shaped: Option<(Shaper, Rate)>,
}

/// The directions of all links of the lab `name`.
///
/// # Errors
/// When `ip` or `tc` cannot be run or say what is not understood.
pub fn directions(name: &LabName) -> Result<Vec<LiveEnd>, LabError> {
    let nodes = nodes_of(name)?;
    let mut found = Vec::new();
    for node in &nodes {
        let namespace = name.namespace(node);
        let ids: Vec<RawId> = ask(&namespace, &["-j", "netns", "list-id"])?;
        let interfaces: Vec<RawInterface> = ask(&namespace, &["-j", "addr", "show"])?;
        for interface in interfaces {
            let id = ids.iter().find(|id| Some(id.nsid) == interface.link_netnsid);
            let peer = id.and_then(|id| name.node_of(&id.name)).map(str::to_owned);
            if let (Some(peer), Some(index)) = (peer, interface.link_index) {
                found.push((node.clone(), interface, peer, index));
            }
        }
    }
    let mut ends = Vec::new();
    for (node, interface, peer, index) in &found {
        let far = found.iter().find(|(n, i, _, _)| n == peer && i.ifindex == *index);
        let Some((_, far, _, _)) = far else { continue };
        let namespace = name.namespace(node);
        let device = interface.ifname.as_str();
        let qdiscs = netns::tc(&namespace, &["-j", "qdisc", "show", "dev", device])?;
        let classes = netns::tc(&namespace, &["class", "show", "dev", device])?;
        ends.push(LiveEnd {
            from: LinkEnd { node: node.clone(), interface: interface.ifname.clone() },
            to: LinkEnd { node: peer.clone(), interface: far.ifname.clone() },
            address: interface.addr_info.first().map(|info| info.local.clone()),
            mtu: interface.mtu,
            shaped: Shaper::read(&qdiscs, &classes),
        });
    }
    Ok(ends)
}

/// Gives one direction of a link of the lab `name` another rate; it must be shaped already.
///
/// # Errors
/// When it is not shaped, or the kernel does not take the rate.
pub fn set_rate(name: &LabName, end: &LiveEnd, rate: Rate) -> Result<(), LabError> {
    let namespace = name.namespace(&end.from.node);
    let interface = &end.from.interface;
    let Some((shaper, _)) = end.shaped else {
        return Err(LabError::Unshaped { interface: interface.clone() });
    };
    let queue = super::topology::QUEUE_PACKETS_DEFAULT;
    netns::tc_batch(&namespace, &shaper.change(interface, rate, end.mtu, queue))?;
    let qdiscs = netns::tc(&namespace, &["-j", "qdisc", "show", "dev", interface])?;
    let classes = netns::tc(&namespace, &["class", "show", "dev", interface])?;
    let check = RateCheck { interface: interface.clone(), shaper, rate };
    Ok(check.verify(&qdiscs, &classes)?)
}

#[derive(Debug, Deserialize)]
struct RawId {
    nsid: i64,
    #[serde(default)]
    name: String,
}

#[derive(Debug, Deserialize)]
struct RawInterface {
    ifindex: u64,
    ifname: String,
    mtu: u32,
    link_index: Option<u64>,
    link_netnsid: Option<i64>,
    #[serde(default)]
    addr_info: Vec<RawAddress>,
}

#[derive(Debug, Deserialize)]
struct RawAddress {
    #[serde(default)]
    local: String,
}

/// Asks `ip` in `namespace`.
fn ask<T: for<'de> Deserialize<'de>>(
    namespace: &str,
    arguments: &[&str],
) -> Result<Vec<T>, ToolError> {
    let text = netns::ip(namespace, arguments)?;
    if text.trim().is_empty() {
        return Ok(Vec::new());
    }
    serde_json::from_str(&text).map_err(|error| ToolError::Failed {
        tool: "ip",
        command: arguments.join(" "),
        stderr: format!("output is not the expected JSON: {error}"),
        line: None,
    })
}
