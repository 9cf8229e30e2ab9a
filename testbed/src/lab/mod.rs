//! A topology of network namespaces on this machine: up, down, list.
//!
//! This file runs what [`plan`] decided, in this order: namespaces, kernel settings, links,
//! addresses, rates (verified against the kernel's own words), offloads; when all of it forwards,
//! the topology's commands.
//!
//! Invariants: [`up`] leaves a whole lab or nothing; [`down`] removes only namespaces of its lab
//! and is content when there are none; two labs never touch each other. There is no state besides
//! the namespaces themselves, so nothing can disagree with them.

pub mod left;
pub mod live;
mod netem;
pub mod netns;
pub mod plan;
mod ready;
pub mod rootless;
pub mod tc;
pub mod topology;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde::Serialize;

pub use plan::{LabName, Plan};
use topology::Link;
pub use topology::Topology;

/// Brings the lab `name` up.
///
/// # Errors
/// When a lab of that name exists, the process lacks rights, the kernel lacks a queueing
/// discipline, or a tool fails; what was made by then is removed again. A command of the topology
/// that fails is a warning.
pub fn up(name: &LabName, topology: &Topology) -> Result<Lab, LabError> {
    if !nodes_of(name)?.is_empty() {
        return Err(LabError::AlreadyUp { name: name.clone() });
    }
    let plan = Plan::new(name, topology);
    let made = create(&plan)?;
    let mut warnings = Vec::new();
    for node in &plan.nodes {
        configure(node, &mut warnings)?;
    }
    netns::ip_batch(None, &plan.wiring)?;
    for node in &plan.nodes {
        netns::ip_batch(Some(&node.namespace), &node.addresses)?;
        shape(node)?;
        if !topology.keeps_offloads {
            switch_offloads_off(node, &mut warnings);
        }
    }
    ready::wait_until_forwarding(&plan)?;
    for Link { ends: [a, b], .. } in topology.spare_links() {
        let (a, b) = (&a.interface, &b.interface);
        warnings.push(format!("{a} to {b} closes a circle of switches: no bridge forwards there"));
    }
    plan.nodes.iter().for_each(|node| run_commands(node, &mut warnings));
    let nodes = made.keep();
    Ok(Lab { name: name.clone(), nodes: nodes.len(), warnings })
}

/// Takes the lab `name` down; returns how many namespaces there were.
///
/// # Errors
/// When a namespace of the lab cannot be removed; the others are removed all the same.
pub fn down(name: &LabName) -> Result<usize, LabError> {
    let nodes = nodes_of(name)?;
    let mut first_error = None;
    for node in &nodes {
        if let Err(error) = netns::remove(&name.namespace(node)) {
            first_error.get_or_insert(error);
        }
    }
    first_error.map_or(Ok(nodes.len()), |error| Err(error.into()))
}

/// The labs of this machine, in order of their names.
///
/// # Errors
/// When `ip` cannot be run.
pub fn list() -> Result<Vec<LabEntry>, LabError> {
    let mut labs: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for namespace in netns::names()? {
        if let Some((lab, node)) = plan::split(&namespace) {
            labs.entry(lab.to_owned()).or_default().push(node.to_owned());
        }
    }
    Ok(labs.into_iter().map(|(name, nodes)| LabEntry { name, nodes }).collect())
}

/// The nodes of the lab `name` that exist.
///
/// # Errors
/// When `ip` cannot be run.
pub fn nodes_of(name: &LabName) -> Result<Vec<String>, LabError> {
    let all = netns::names()?;
    Ok(all.iter().filter_map(|n| name.node_of(n)).map(str::to_owned).collect())
}

/// Checks that the lab `name` is up with every host of `topology`.
///
/// # Errors
/// Names the hosts that it lacks.
pub fn check_nodes(name: &LabName, topology: &Topology) -> Result<(), LabError> {
    let nodes = nodes_of(name)?;
    let hosts = topology.hosts.iter().map(|host| host.name.as_str());
    let missing: Vec<&str> = hosts.filter(|host| !nodes.iter().any(|node| node == host)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(LabError::MissingNodes { name: name.clone(), missing: missing.join(", ") })
}

/// Whether the kernel says that what leaves each of these hosts of the lab `name` goes through
/// netem.
///
/// # Errors
/// When `tc` cannot be run.
pub fn have_netem<'a>(
    name: &LabName,
    hosts: impl IntoIterator<Item = &'a str>,
) -> Result<bool, LabError> {
    for host in hosts {
        let qdiscs = netns::tc(&name.namespace(host), &["-j", "qdisc", "show"])?;
        if tc::verify_netem(host, &qdiscs).is_err() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// A lab that is up. It stays up until [`down`].
#[derive(Clone, Debug, PartialEq)]
pub struct Lab {
    /// Its name.
    pub name: LabName,
    /// How many namespaces it has.
    pub nodes: usize,
    /// What could not be done and may matter to a measurement.
    pub warnings: Vec<String>,
}

/// A lab in [`list`].
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct LabEntry {
    /// Its name.
    pub name: String,
    /// Its nodes.
    pub nodes: Vec<String>,
}

/// Namespaces that one call of [`up`] made, and takes back unless the lab is whole.
struct Made(Vec<String>);

impl Made {
    fn keep(mut self) -> Vec<String> {
        std::mem::take(&mut self.0)
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        for namespace in &self.0 {
            // The error that brought us here is the one to report.
            let _ = netns::remove(namespace);
        }
    }
}

/// Creates the namespaces; on failure removes exactly those that this call had made, which a
/// second `up` at the same time may have raced for.
fn create(plan: &Plan) -> Result<Made, LabError> {
    let namespaces = plan.nodes.iter().map(|node| node.namespace.clone());
    match netns::ip_batch(None, &plan.creation()) {
        Ok(()) => Ok(Made(namespaces.collect())),
        Err(error) => {
            let done = match &error {
                netns::ToolError::Failed { line: Some(line), .. } => line - 1,
                _ => 0,
            };
            drop(Made(namespaces.take(done).collect()));
            if rootless::is_privileged() { Err(error.into()) } else { Err(LabError::Privilege) }
        }
    }
}

fn configure(node: &plan::NodePlan, warnings: &mut Vec<String>) -> Result<(), LabError> {
    let namespace = &node.namespace;
    let enter = |reason| LabError::Enter { namespace: namespace.clone(), reason };
    let write = || {
        let mut failed = Vec::new();
        for (path, value) in &node.settings {
            let path = Path::new("/proc/sys/net").join(path);
            // A setting that does not exist (no IPv6, no bridge filter) needs no change.
            if path.exists() && fs::write(&path, value).is_err() {
                failed.push(format!("{namespace}: cannot write {value} to {}", path.display()));
            }
        }
        failed
    };
    warnings.extend(netns::within(namespace, write).map_err(enter)?);
    Ok(())
}

fn shape(node: &plan::NodePlan) -> Result<(), LabError> {
    netns::tc_batch(&node.namespace, &node.shaping).map_err(|error| match error {
        netns::ToolError::Failed { stderr, command, .. } if tc::lacks_discipline(&stderr) => {
            LabError::KernelLacks { command }
        }
        other => other.into(),
    })?;
    for check in &node.rates {
        let device = check.interface.as_str();
        let qdiscs = netns::tc(&node.namespace, &["-j", "qdisc", "show", "dev", device])?;
        let classes = netns::tc(&node.namespace, &["class", "show", "dev", device])?;
        check.verify(&qdiscs, &classes)?;
    }
    for device in &node.delayed {
        let qdiscs = netns::tc(&node.namespace, &["-j", "qdisc", "show", "dev", device])?;
        tc::verify_netem(device, &qdiscs)?;
    }
    Ok(())
}

/// Checksum and segmentation offloads make captured frames differ from those on a real wire, and
/// let "packets" of 64 KiB pass; without `ethtool` they stay on, which is worth a warning.
fn switch_offloads_off(node: &plan::NodePlan, warnings: &mut Vec<String>) {
    let work = || {
        let mut failed = Vec::new();
        for device in &node.interfaces {
            let output = Command::new("ethtool").arg("-K").arg(device).args(OFFLOADS_OFF).output();
            if !output.is_ok_and(|output| output.status.success()) {
                failed.push(format!("{}: offloads of {device} stay on", node.namespace));
            }
        }
        failed
    };
    match netns::within(&node.namespace, work) {
        Ok(failed) if failed.is_empty() => {}
        Ok(failed) => {
            warnings.extend(failed);
            let hint = "`ethtool -K` failed; install it with `apt install ethtool`".to_owned();
            if !warnings.contains(&hint) {
                warnings.push(hint);
            }
        }
        Err(error) => warnings.push(format!("{}: {error}", node.namespace)),
    }
}

/// Runs the topology's commands. As in Mininet, one that fails does not keep the others.
fn run_commands(node: &plan::NodePlan, warnings: &mut Vec<String>) {
    for text in &node.commands {
        let reason = match netns::command(&node.namespace, "sh").args(["-c", text]).output() {
            Ok(output) if output.status.success() => continue,
            Ok(Output { status, stderr, .. }) => {
                format!("{status}: {}", String::from_utf8_lossy(&stderr).trim())
            }
            Err(error) => error.to_string(),
        };
        warnings.push(format!("command `{text}` of node `{}` failed: {reason}", node.node));
    }
}

/// Why a lab is not as asked for.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// There is such a lab already.
    #[error("lab `{name}` is up already; take it down with `weft lab down {name}`")]
    AlreadyUp {
        /// Its name.
        name: LabName,
    },
    /// The process has no rights.
    #[error("creating network namespaces needs CAP_NET_ADMIN and CAP_SYS_ADMIN; run as root")]
    Privilege,
    /// `ip` or `tc` failed.
    #[error(transparent)]
    Tool(#[from] netns::ToolError),
    /// A rate is not there.
    #[error(transparent)]
    Rate(#[from] tc::TcError),
    /// The kernel has no such queueing discipline.
    #[error(
        "the kernel lacks a queueing discipline, so `tc {command}` failed; try \
         `modprobe -a sch_htb sch_tbf sch_netem`, or leave rates and delays out of the topology"
    )]
    KernelLacks {
        /// The line that failed.
        command: String,
    },
    /// A lab that somebody else brought up is not what a run needs.
    #[error(
        "lab `{name}` has no {missing}: `weft lab list` says what is up, `weft lab topology` what \
         a scenario needs"
    )]
    MissingNodes {
        /// Its name.
        name: LabName,
        /// The hosts that it lacks.
        missing: String,
    },
    /// The lab is there but carries no frames.
    #[error("the lab does not forward; still waiting after 10 s: {interfaces}")]
    NotForwarding {
        /// The interfaces that are not ready, with their namespaces.
        interfaces: String,
    },
    /// A namespace cannot be entered.
    #[error("cannot enter network namespace {namespace}: {reason}")]
    Enter {
        /// Which.
        namespace: String,
        /// Why.
        reason: std::io::Error,
    },
    /// A direction of a link has no rate that could be changed.
    #[error("{interface} is not shaped, so its rate cannot be changed; give its link a `bw`")]
    Unshaped {
        /// The interface.
        interface: String,
    },
}

const OFFLOADS_OFF: [&str; 8] = ["tx", "off", "gso", "off", "tso", "off", "gro", "off"];
