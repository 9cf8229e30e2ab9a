//! Where the processes of an allreduce bench run, and how they are run: `weft-node` as aggregator
//! and a worker per rank, on loopback or in a lab of namespaces.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use weft_config::node::NodeConfig;
use weft_config::to_toml;

use super::member::{MemberPlan, MemberResult};
use super::process::{BenchError, Program, Running};
use crate::lab::topology::{Star, Topology};
use crate::lab::{self, LabName, netns, tc::Rate};
use crate::run::Io;

/// The link of the aggregator.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum BoxLink {
    /// Without a rate, for the aggregator stands for a switch.
    Unshaped,
    /// With the workers' rate: the aggregator is a host like them.
    Same,
}

impl BoxLink {
    /// The word of column `box_link`.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Unshaped => "unshaped",
            Self::Same => "same",
        }
    }
}

/// The hosts that a bench runs on.
#[derive(Debug)]
pub(super) struct Network {
    io: Io,
    lab: Option<(OwnLab, Topology)>,
}

/// A lab that is taken down with its handle.
#[derive(Debug)]
struct OwnLab(LabName);

impl Drop for OwnLab {
    fn drop(&mut self) {
        if let Err(error) = lab::down(&self.0) {
            weft_process::say!("weft: {error}; `weft lab down {}`", self.0);
        }
    }
}

impl Network {
    /// Everybody on loopback.
    pub(super) fn loopback() -> Self {
        Self { io: Io::Udp, lab: None }
    }

    /// A star: every worker and the aggregator in a namespace of its own. Workers' links have the
    /// rate.
    pub(super) fn lab(
        io: Io,
        workers: u8,
        rate_mbit: Option<u32>,
        box_link: BoxLink,
        mtu: u16,
        keeps_offloads: bool,
    ) -> Result<Self, BenchError> {
        let refused = |error: &dyn std::error::Error| BenchError::Lab(error.to_string());
        let mut topology = Topology::star(&Star {
            workers,
            aggregators: 1,
            rate: rate_mbit.and_then(|rate| Rate::from_mbit(f64::from(rate))),
            mtu: u32::from(mtu),
        })
        .map_err(|error| refused(&error))?;
        topology.keeps_offloads = keeps_offloads;
        for link in &mut topology.links {
            if box_link == BoxLink::Unshaped && link.ends.iter().any(|end| end.node == "a0") {
                link.shapes = [None; 2];
            }
        }
        if matches!(io, Io::AfPacket | Io::Dpdk) {
            topology.leave_address_to_port("a0");
        }
        // Labs of a place stand beside each other: a box with an address of its own has another.
        let name = LabName::of_this_process(match (io, box_link) {
            (Io::Udp, BoxLink::Unshaped) => "bench",
            (Io::Udp, BoxLink::Same) => "benchsame",
            (_, BoxLink::Unshaped) => "benchraw",
            (_, BoxLink::Same) => "benchraws",
        });
        let built = lab::up(&name, &topology).map_err(|error| refused(&error))?;
        for warning in &built.warnings {
            weft_process::say!("weft: warning: {warning}");
        }
        let lab = (OwnLab(name), topology);
        if address(&lab.1, "a0").is_none() {
            return Err(BenchError::Lab("it has no a0".to_owned()));
        }
        Ok(Self { io, lab: Some(lab) })
    }

    /// The lab's name.
    pub(super) fn name(&self) -> Option<&LabName> {
        self.lab.as_ref().map(|(lab, _)| &lab.0)
    }

    /// Where the aggregator listens.
    pub(super) fn aggregator(&self) -> SocketAddr {
        let ip = self.lab.as_ref().and_then(|(_, topology)| address(topology, "a0"));
        ip.map_or_else(
            || SocketAddr::from(([127, 0, 0, 1], loopback_port())),
            |ip| SocketAddr::new(ip, BOX_PORT),
        )
    }

    /// Where a worker of a box with so many lanes sends from, in lane 0. On loopback a UDP port
    /// means one lane, whoever has it, so workers' ports follow each other lane by lane.
    pub(super) fn local(&self, rank: u8, lanes: u16) -> SocketAddr {
        let name = format!("w{rank}");
        let ip = self.lab.as_ref().and_then(|(_, topology)| address(topology, &name));
        let above = lanes * (1 + u16::from(rank));
        ip.map_or_else(
            || SocketAddr::from(([127, 0, 0, 1], loopback_port() + above)),
            |ip| SocketAddr::new(ip, MEMBER_PORT),
        )
    }

    /// The aggregator's interface.
    pub(super) fn interface(&self) -> String {
        let links = self.lab.iter().flat_map(|(_, topology)| &topology.links);
        let end = links.flat_map(|link| &link.ends).find(|end| end.node == "a0");
        end.map_or_else(|| "lo".to_owned(), |end| end.interface.clone())
    }

    /// A command on a host.
    pub(super) fn command(&self, host: &str, program: &Path) -> Command {
        match self.name() {
            Some(lab) => netns::command(&lab.namespace(host), &program.to_string_lossy()),
            None => Command::new(program),
        }
    }

    /// Runs an aggregator and the workers of `plans` to their end, for which they have `limit`.
    pub(super) fn run(
        &self,
        config: &NodeConfig,
        plans: &[MemberPlan],
        directory: &Path,
        limit: Duration,
    ) -> Result<Vec<Vec<MemberResult>>, BenchError> {
        let begun = Instant::now();
        let node = Program::node()?;
        let node = if self.io == Io::Dpdk { node.with_dpdk()? } else { node };
        let file = directory.join("aggregator.toml");
        std::fs::write(&file, to_toml(config))
            .map_err(BenchError::system(format!("writing {}", file.display())))?;
        let mut command = self.command("a0", node.path());
        command.arg("--config").arg(&file).env("RUNTIME_DIRECTORY", directory);
        let mut aggregator = Running::start("weft-node", &mut command)?.within(limit);
        aggregator.wait_for("\"ready\":true")?;
        let this = std::env::current_exe().map_err(BenchError::system("finding this program"))?;
        let mut members = Vec::new();
        for plan in plans {
            let name = format!("w{}", plan.rank);
            let mut command = self.command(&name, &this);
            command.args(["bench", "member"]);
            let plan = MemberPlan { aggregator_pid: Some(aggregator.id()), ..plan.clone() };
            let text = serde_json::to_string(&plan).expect("a plan is a JSON object");
            members.push(Running::start_with(&name, &mut command, &text)?);
        }
        let mut results = Vec::new();
        for member in members {
            let member = member.within(limit.saturating_sub(begun.elapsed()));
            let stdout = member.finish_beside(&mut aggregator)?;
            let lines = stdout.lines().map(serde_json::from_str).collect::<Result<Vec<_>, _>>();
            results.push(lines.map_err(|error| failed_member(error.to_string()))?);
        }
        aggregator.interrupt()?;
        Ok(results)
    }
}

pub(super) fn failed_member(stderr: String) -> BenchError {
    BenchError::Process { program: "a worker".to_owned(), how: "failed".to_owned(), stderr }
}

fn address(topology: &Topology, name: &str) -> Option<std::net::IpAddr> {
    Some(topology.host(name)?.ip?.address)
}

/// High enough to leave the ports of other runs alone, with room for 16 workers of 8 lanes, and a
/// multiple of the lanes, so that the kernel finds a lane by the port alone.
fn loopback_port() -> u16 {
    40_960 + u16::try_from(std::process::id() % 128).unwrap_or(0) * 144
}

pub(super) const BOX_PORT: u16 = 22341;
/// As on loopback a multiple of the lanes.
pub(super) const MEMBER_PORT: u16 = 23000;
const _: () = assert!(MEMBER_PORT.is_multiple_of(super::LANES_MAX));
const _: () = assert!(144 % super::LANES_MAX == 0 && 144 >= 17 * super::LANES_MAX);
