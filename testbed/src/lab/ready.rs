//! Waits until a new lab forwards: every interface carries frames and every port of a switch is in
//! the forwarding state.
//!
//! A veth pair that was set up is there at once, but the kernel opens its queues later, when it has
//! looked at its carrier; what is sent before is lost without a word.

use std::thread;
use std::time::{Duration, Instant};

use serde::Deserialize;

use super::netns::{self, ToolError};
use super::{LabError, Plan};

/// Waits until all interfaces of the lab are ready.
///
/// # Errors
/// Names those that are not within [`READY_MAX`].
pub(super) fn wait_until_forwarding(plan: &Plan) -> Result<(), LabError> {
    let begun = Instant::now();
    let mut waiting: Vec<&str> = plan.nodes.iter().map(|node| node.namespace.as_str()).collect();
    loop {
        let mut missing = Vec::new();
        let mut still = Vec::new();
        for namespace in waiting {
            let text = netns::ip(namespace, &["-d", "-j", "link", "show"])?;
            let found = not_ready(&text)?;
            if !found.is_empty() {
                still.push(namespace);
            }
            missing.extend(found.into_iter().map(|name| format!("{namespace}/{name}")));
        }
        if still.is_empty() {
            return Ok(());
        }
        if begun.elapsed() > READY_MAX {
            return Err(LabError::NotForwarding { interfaces: missing.join(", ") });
        }
        waiting = still;
        thread::sleep(POLL);
    }
}

/// The interfaces that do not carry frames yet, from the words of `ip -d -j link show`.
fn not_ready(text: &str) -> Result<Vec<String>, ToolError> {
    let links: Vec<RawLink> = serde_json::from_str(text).map_err(|error| ToolError::Failed {
        tool: "ip",
        command: "-d -j link show".to_owned(),
        stderr: format!("output is not the expected JSON: {error}"),
        line: None,
    })?;
    let is_late = |link: &RawLink| {
        let port = link.linkinfo.slave.as_ref();
        let forwards = port.is_none_or(|port| port.state == "forwarding");
        // A bridge without ports is ready, and has no carrier.
        let is_bridge = link.linkinfo.kind == "bridge";
        !forwards || !(is_bridge || link.operstate == "UP")
    };
    let ours = links.into_iter().filter(|link| link.ifname != "lo");
    Ok(ours.filter(is_late).map(|link| link.ifname).collect())
}

#[derive(Debug, Deserialize)]
struct RawLink {
    ifname: String,
    #[serde(default)]
    operstate: String,
    #[serde(default)]
    linkinfo: RawInfo,
}

#[derive(Debug, Default, Deserialize)]
struct RawInfo {
    #[serde(default, rename = "info_kind")]
    kind: String,
    #[serde(default, rename = "info_slave_data")]
    slave: Option<RawPort>,
}

#[derive(Debug, Deserialize)]
struct RawPort {
    #[serde(default)]
    state: String,
}

/// The kernel looks at carriers at least once a second.
const READY_MAX: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_that_learns_and_a_link_without_a_carrier_are_waited_for() {
        let link = |name: &str, operstate: &str, info: &str| {
            format!(r#"{{"ifname":"{name}","operstate":"{operstate}","linkinfo":{{{info}}}}}"#)
        };
        let port =
            |state: &str| format!(r#""info_kind":"veth","info_slave_data":{{"state":"{state}"}}"#);
        let links = [
            r#"{"ifname":"lo","operstate":"DOWN"}"#.to_owned(),
            link("br0", "DOWN", r#""info_kind":"bridge""#),
            link("s0-p1", "UP", &port("forwarding")),
            link("s0-p2", "UP", &port("learning")),
            link("s0-p3", "DOWN", &port("forwarding")),
            link("eth0", "LOWERLAYERDOWN", r#""info_kind":"veth""#),
        ];
        let late = not_ready(&format!("[{}]", links.join(","))).unwrap();
        assert_eq!(late, ["s0-p2", "s0-p3", "eth0"]);
        assert!(not_ready("{").is_err());
    }
}
