//! A P4 switch in the place of a lab's bridge: simple_switch_grpc, started in the switch's
//! namespace, killed and started again.
//!
//! The lab has joined the interfaces by a bridge; they are taken out of it. A veth whose offloads
//! are on would hand the switch packets without checksums, so that is an error here.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use super::plan::Plan;
use super::process::{Process, io, program};
use super::processes::ProcessError;
use crate::lab::{LabName, netns};

/// A switch of a plan.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SwitchPlan {
    /// Its name, which is that of its namespace in the lab.
    pub name: String,
    /// Its interfaces; a port's number is its place.
    pub interfaces: Vec<String>,
    /// Where its P4Runtime server listens: a socket in the file system, which its box reaches from
    /// a namespace of its own.
    pub grpc: String,
    /// The port of the box before it.
    pub cpu_port: u16,
}

/// The switch's process.
#[derive(Debug)]
pub(super) struct RunningSwitch {
    plan: SwitchPlan,
    namespace: String,
    program: PathBuf,
    log: PathBuf,
    process: Process,
    /// Of the lives before this one.
    before_cpu_ns: u64,
}

impl RunningSwitch {
    pub(super) fn start(
        planned: &SwitchPlan,
        plan: &Plan,
        lab: &LabName,
        directory: &Path,
    ) -> Result<Self, ProcessError> {
        let path = crate::doctor::find_program(SIMPLE_SWITCH, "WEFT_SIMPLE_SWITCH");
        let path = path.ok_or(ProcessError::NoSwitch)?;
        let links = plan.topology.iter().flat_map(|topology| &topology.links);
        for end in links.flat_map(|link| &link.ends) {
            check_offloads(&lab.namespace(&end.node), &end.interface)?;
        }
        let namespace = lab.namespace(&planned.name);
        for interface in &planned.interfaces {
            let output = netns::command(&namespace, "ip")
                .args(["link", "set", interface, "nomaster"])
                .output()
                .map_err(io("taking an interface out of a bridge"))?;
            if !output.status.success() {
                let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
                return Err(ProcessError::BoxNotReady { name: planned.name.clone(), said });
            }
        }
        let log = directory.join(format!("{}.log", planned.name));
        let process = spawn(planned, &path, &namespace, &log)?;
        Ok(Self { plan: planned.clone(), namespace, program: path, log, process, before_cpu_ns: 0 })
    }

    pub(super) fn name(&self) -> &str {
        &self.plan.name
    }

    /// Processor time of all its lives.
    pub(super) fn cpu_ns(&self) -> u64 {
        self.before_cpu_ns + self.process.cpu_ns()
    }

    /// How it ended, if by itself.
    pub(super) fn ended(&mut self) -> Option<ExitStatus> {
        self.process.ended()
    }

    /// Kills the switch and starts it again: it comes back without a program.
    pub(super) fn restart(&mut self) -> Result<(), ProcessError> {
        self.before_cpu_ns = self.cpu_ns();
        self.process.end(Duration::ZERO);
        self.process = spawn(&self.plan, &self.program, &self.namespace, &self.log)?;
        Ok(())
    }
}

/// Whoever needs it waits until it listens.
fn spawn(
    plan: &SwitchPlan,
    path: &Path,
    namespace: &str,
    log: &Path,
) -> Result<Process, ProcessError> {
    let log = File::options().create(true).append(true).open(log);
    let log = log.map_err(io("creating the switch's log"))?;
    let mut command = program(path, Some(namespace));
    command.args(OPTIONS);
    for (port, interface) in plan.interfaces.iter().enumerate() {
        command.args(["-i", &format!("{port}@{interface}")]);
    }
    command.args(["--", "--grpc-server-addr", &plan.grpc]);
    command.args(["--cpu-port", &plan.cpu_port.to_string()]);
    let errors = log.try_clone().map_err(io("creating the switch's log"))?;
    command.stdin(Stdio::null()).stdout(log).stderr(errors);
    Ok(Process(command.spawn().map_err(io("starting simple_switch_grpc"))?))
}

fn check_offloads(namespace: &str, interface: &str) -> Result<(), ProcessError> {
    let output = netns::command(namespace, "ethtool").args(["-k", interface]).output();
    let output = output.map_err(io("asking ethtool for offloads; `apt install ethtool`"))?;
    let said = String::from_utf8_lossy(&output.stdout);
    match offload_on(&said) {
        Some(feature) => Err(ProcessError::OffloadOn {
            interface: format!("{interface} in {namespace}"),
            feature: feature.to_owned(),
        }),
        None => Ok(()),
    }
}

/// An offload that is on and must not be, as `ethtool -k` tells it.
pub(crate) fn offload_on(said: &str) -> Option<&str> {
    let is_bad = |line: &&str| {
        let name = line.split(':').next().unwrap_or("").trim();
        OFFLOADS.contains(&name) && line.contains(": on")
    };
    said.lines().find(is_bad).and_then(|line| line.split(':').next()).map(str::trim)
}

/// The switch's program.
pub(super) const SIMPLE_SWITCH: &str = "simple_switch_grpc";
/// Without `-L off` it logs each step of each frame, which makes a round ten times as long. The
/// default address of notifications is a socket in /tmp, which a machine's switches would share.
const OPTIONS: [&str; 7] = [
    "--no-p4",
    "--thrift-port",
    "0",
    "-L",
    "off",
    "--notifications-addr",
    "inproc://notifications",
];
const OFFLOADS: [&str; 4] = [
    "tx-checksumming",
    "tcp-segmentation-offload",
    "generic-segmentation-offload",
    "generic-receive-offload",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offload_that_is_on_is_found() {
        let off = "Features for eth0:\ntx-checksumming: off\n\ttx-checksum-ipv4: on [fixed]\n\
                   generic-segmentation-offload: off\ngeneric-receive-offload: off\n";
        assert_eq!(offload_on(off), None);
        let on = off.replace("tx-checksumming: off", "tx-checksumming: on");
        assert_eq!(offload_on(&on), Some("tx-checksumming"));
        let on = off.replace("receive-offload: off", "receive-offload: on");
        assert_eq!(offload_on(&on), Some("generic-receive-offload"));
    }
}
