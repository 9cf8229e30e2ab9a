//! Decides what a run consists of: boxes, perhaps a controller, workers, and each one's
//! configuration. Pure: the same scenario and options give the same files and commands, which
//! `--dry-run` prints.

mod layout;
mod worker;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use weft_config::StatsFormat;
use weft_config::controller::ControllerConfig;
use weft_config::node::{self, NodeConfig, PortSection};

use super::background::FlowPlan;
use super::{push, reduce};
use crate::lab::topology::{Topology, TopologyError};
use crate::scenario::{CONTROLLER, Scenario};

pub(super) use layout::Layout;
pub use layout::{LOOPBACK_FIRST, LOOPBACK_PORTS, LOOPBACK_STRIDE};
pub use worker::WorkerPlan;

/// Which port carries the frames.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Io {
    /// Rings within one process.
    Memory,
    /// The kernel's UDP sockets.
    Udp,
    /// Packet sockets at the aggregator, UDP sockets at the workers.
    AfPacket,
    /// DPDK at the aggregator, UDP sockets at the workers.
    Dpdk,
}

impl Io {
    /// Its name in options and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Udp => "udp",
            Self::AfPacket => "af_packet",
            Self::Dpdk => "dpdk",
        }
    }
}

/// Where boxes and workers are.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Place {
    /// Each in a network namespace of its own.
    Lab,
    /// All on this host's loopback, or in this process.
    Loopback {
        /// First of [`LOOPBACK_PORTS`] UDP ports.
        port_base: u16,
    },
    /// Workers on loopback, the DPDK box behind a memif, `weft-bridge` between them.
    Memif {
        /// Path of the memif's socket.
        socket: String,
        /// First of [`LOOPBACK_PORTS`] UDP ports.
        port_base: u16,
    },
}

impl Place {
    fn port_base(&self) -> Option<u16> {
        match self {
            Self::Lab => None,
            Self::Loopback { port_base } | Self::Memif { port_base, .. } => Some(*port_base),
        }
    }
}

/// A run, box by box and worker by worker.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What the boxes' ports are.
    pub io: Io,
    /// Where they are.
    pub place: Place,
    /// The network; `None` on loopback and in memory.
    pub topology: Option<Topology>,
    /// The boxes, `weft-node`: aggregators, the root first; or server, replica and aggregators.
    pub boxes: Vec<BoxPlan>,
    /// `weft-controller`.
    pub controller: Option<BoxPlan<ControllerConfig>>,
    /// The workers by rank.
    pub workers: Vec<WorkerPlan>,
    /// Elements per chunk.
    pub elements: u16,
    /// Traffic of others.
    pub background: Vec<FlowPlan>,
}

/// A box, or the controller.
#[derive(Clone, Debug, PartialEq)]
pub struct BoxPlan<C = NodeConfig> {
    /// Its name, and its host in the lab.
    pub name: String,
    /// Its configuration file.
    pub config: C,
}

/// Why a scenario cannot be planned.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// What a single process cannot do.
    #[error("--io memory has one box, one lane and no restarts: use udp or dpdk")]
    Memory,
    /// What a single process cannot do in a push run.
    #[error(
        "--io memory has no controller, no aggregators, no replica and no restarts or rate steps: \
         add --direct, or use --io udp"
    )]
    PushMemory,
    /// The network cannot be laid out.
    #[error(transparent)]
    Topology(#[from] TopologyError),
}

impl Plan {
    /// Plans a run over `io` at a place, with `directory` for what the boxes write. `certs`: the
    /// folder with the certificates of those who call the controller.
    ///
    /// # Errors
    /// [`PlanError`] when the lab's address plan is too small, or the port cannot do it.
    pub fn new(
        scenario: &Scenario,
        io: Io,
        place: Place,
        seed: u64,
        directory: &Path,
        certs: Option<&Path>,
    ) -> Result<Self, PlanError> {
        if io == Io::Memory {
            check_memory(scenario)?;
        }
        let mut names = match &scenario.push {
            None => scenario.aggregation.boxes(),
            Some(push) => push.boxes(),
        };
        names.retain(|name| name != CONTROLLER);
        let mut topology = (place == Place::Lab).then(|| scenario.topology()).transpose()?;
        if matches!(io, Io::AfPacket | Io::Dpdk)
            && let Some(topology) = &mut topology
        {
            for name in &names {
                topology.leave_address_to_port(name);
            }
            if scenario.push.is_some() || !scenario.background.is_empty() {
                // The boxes hear the controller, and flows of others, through their kernels.
                topology.add_control_addresses();
            }
        }
        let layout = Layout {
            scenario,
            io,
            place: &place,
            topology: topology.as_ref(),
            names: &names,
            directory,
            certs,
        };
        let node = |(index, name): (usize, &String)| {
            let config = match &scenario.push {
                None => reduce::configs::node(&layout, index, name),
                Some(_) => push::configs::node(&layout, name),
            };
            BoxPlan { name: name.clone(), config }
        };
        let boxes = names.iter().enumerate().map(node).collect();
        let controller = scenario.push.as_ref().filter(|push| push.controller).map(|_| BoxPlan {
            name: CONTROLLER.to_owned(),
            config: push::configs::controller(&layout),
        });
        let workers = (0..scenario.job.workers).map(|rank| layout.worker(rank, seed)).collect();
        let elements = layout.elements();
        let background = FlowPlan::all(scenario, topology.as_ref());
        Ok(Self { io, boxes, controller, workers, elements, background, topology, place })
    }

    /// The box that a worker sends to.
    #[must_use]
    pub fn box_name(&self, rank: usize) -> &str {
        let leaves = self.boxes.len() - 1;
        let per_box = self.workers.len() / leaves.max(1);
        let index = if leaves == 0 { 0 } else { 1 + rank / per_box.max(1) };
        self.boxes.get(index).map_or("", |planned| &planned.name)
    }
}

/// Refuses what a single process cannot do.
fn check_memory(scenario: &Scenario) -> Result<(), PlanError> {
    let is_restarted = !scenario.restart.is_empty();
    let aggregation = &scenario.aggregation;
    match &scenario.push {
        None if aggregation.leaves > 0 || aggregation.lanes > 1 || is_restarted => {
            Err(PlanError::Memory)
        }
        Some(push)
            if push.controller
                || push.aggregators > 0
                || push.has_replica()
                || is_restarted
                || !scenario.crash.is_empty()
                || !scenario.rate_step.is_empty() =>
        {
            Err(PlanError::PushMemory)
        }
        _ => Ok(()),
    }
}

/// Where the model that a box ended with is in the run directory.
pub(super) fn model_path(directory: &Path, name: &str) -> PathBuf {
    directory.join(format!("{name}.f32"))
}

/// Where the initial model is in the run directory.
pub(super) fn initial_path(directory: &Path) -> PathBuf {
    directory.join("initial.f32")
}

/// Where the log of a box is in the run directory.
pub(super) fn log_path(directory: &Path, name: &str) -> PathBuf {
    directory.join(format!("{name}.events.jsonl"))
}

/// A box without a job. `interface` is the kernel's, for ports that need one; queueing disciplines
/// stay in the path, for they shape the links.
pub(crate) fn box_config(
    name: &str,
    io: Io,
    addr: SocketAddr,
    mtu: u32,
    interface: &str,
) -> NodeConfig {
    let of_node = match io {
        // In a file there is no port of memory.
        Io::Memory | Io::Udp => node::Io::Udp,
        Io::AfPacket => node::Io::AfPacket,
        Io::Dpdk => node::Io::Dpdk,
    };
    let mut config = NodeConfig::new(PortSection {
        udp_port: addr.port(),
        mtu: u16::try_from(mtu).expect("an MTU is below 65,536"),
        ..PortSection::new(of_node, addr.ip())
    });
    config.node.name = name.to_owned();
    config.node.stats_format = StatsFormat::Json;
    match io {
        Io::AfPacket => {
            config.port.device = Some(interface.to_owned());
            config.port.qdisc_bypass = false;
        }
        Io::Dpdk => {
            let frame = (mtu + 14 + 66).next_multiple_of(1024);
            let block = frame.next_multiple_of(4096);
            config.port.device = Some("net_af_packet0".to_owned());
            config.dpdk.vdev = vec![format!(
                "net_af_packet0,iface={interface},qdisc_bypass=0,framesz={frame},\
                 blocksz={block},framecnt=2048"
            )];
        }
        Io::Memory | Io::Udp => {}
    }
    config
}

#[cfg(test)]
mod tests {
    use weft_config::{ConfigFile, to_toml};

    use super::*;
    use crate::scenario::ScaleExponent;
    use weft_wire::header::Operation;

    fn plan(scenario: &Scenario, io: Io, place: Place) -> Plan {
        Plan::new(scenario, io, place, 1, Path::new("run"), None).unwrap()
    }

    const DIGITS: &str = include_str!("../../scenarios/digits.toml");

    fn scenario(leaves: u8) -> Scenario {
        let mut scenario = Scenario::parse("digits.toml", DIGITS).unwrap();
        scenario.aggregation.leaves = leaves;
        scenario
    }

    #[test]
    fn one_level_has_one_box_with_all_workers() {
        let plan = plan(&scenario(0), Io::Dpdk, Place::Lab);
        assert_eq!(plan.boxes.len(), 1);
        assert_eq!(plan.elements, 256);
        let row = &plan.boxes[0].config.row[0];
        assert_eq!((row.members.len(), row.exponent), (4, Some(-20)));
        assert!(plan.workers.iter().all(|worker| worker.target == plan.workers[0].target));
    }

    #[test]
    fn two_levels_share_the_workers_among_the_leaves() {
        let plan = plan(&scenario(2), Io::Udp, Place::Loopback { port_base: 20_000 });
        let names: Vec<&str> = plan.boxes.iter().map(|b| b.name.as_str()).collect();
        assert_eq!(names, ["a0", "a1", "a2"]);
        let ranks: Vec<u8> = plan.workers.iter().map(|worker| worker.box_rank).collect();
        assert_eq!(ranks, [0, 1, 0, 1]);
        assert_ne!(plan.workers[1].target, plan.workers[2].target);
        assert_eq!(plan.boxes[0].config.row[0].members[0].weight, 2);
        let leaf = &plan.boxes[2].config.row[0];
        assert_eq!((leaf.parent.unwrap().rank, leaf.fan_in), (1, Some(4)));
    }

    #[test]
    fn runs_on_loopback_share_no_port() {
        let ports = |port_base: u16| {
            let plan = plan(&scenario(0), Io::Udp, Place::Loopback { port_base });
            plan.workers.iter().map(|worker| worker.local.port()).collect::<Vec<u16>>()
        };
        let (one, other) = (ports(20_000), ports(20_000 + LOOPBACK_PORTS));
        assert_eq!(one, [20_016, 20_032, 20_048, 20_064]);
        assert!(one.iter().all(|port| !other.contains(port)));
    }

    #[test]
    fn block_exponents_take_a_second_row() {
        let mut scenario = scenario(0);
        scenario.job.scale_exponent = ScaleExponent::Auto;
        let plan = plan(&scenario, Io::Udp, Place::Loopback { port_base: 20_000 });
        let rows = &plan.boxes[0].config.row;
        assert_eq!((rows[1].operation, rows[0].exponent), (Operation::Max, None));
    }

    #[test]
    fn every_box_can_run_what_is_planned_for_it() {
        let socket = "memif.sock".to_owned();
        for (io, place) in [
            (Io::Udp, Place::Loopback { port_base: 20_000 }),
            (Io::AfPacket, Place::Lab),
            (Io::Dpdk, Place::Lab),
            (Io::Dpdk, Place::Memif { socket, port_base: 20_000 }),
        ] {
            for (leaves, mtu) in [(0, 1500), (2, 1500), (2, 9000)] {
                let mut scenario = scenario(leaves);
                scenario.lab.mtu = mtu;
                for planned in plan(&scenario, io, place.clone()).boxes {
                    let file = ConfigFile::new("planned.toml", to_toml(&planned.config));
                    let config: NodeConfig = file.read().unwrap();
                    assert_eq!(config, planned.config);
                    let settings = weft_lane::Settings::new(config);
                    assert!(settings.is_ok(), "{io:?} {leaves} {mtu}: {settings:?}");
                }
            }
        }
    }
}
