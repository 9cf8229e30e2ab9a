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
use weft_config::node::{self, IdleSection, NodeConfig, PortSection};

use super::background::FlowPlan;
use super::switch::SwitchPlan;
use super::{push, reduce};
use crate::lab::topology::{Topology, TopologyError};
use crate::scenario::{CONTROLLER, REPLICA, SERVER, Scenario, Site};

pub(super) use layout::Layout;
pub use layout::{LOOPBACK_FIRST, LOOPBACK_PORTS, LOOPBACK_STRIDE};
pub(in crate::run) use worker::CohortPlan;
pub use worker::{WorkerIo, WorkerPlan};

/// Which port carries the frames.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Io {
    /// Rings within one process.
    Memory,
    /// The kernel's UDP sockets.
    Udp,
    /// Memory that aggregator and workers share on one host, beside the aggregator's UDP sockets.
    Shm,
    /// Packet sockets at the aggregator, UDP sockets at the workers.
    AfPacket,
    /// DPDK at the aggregator, UDP sockets at the workers.
    Dpdk,
    /// BMv2 as the lab's switch, which sums; UDP sockets at the workers.
    Bmv2,
}

impl Io {
    /// Its name in options and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Udp => "udp",
            Self::Shm => "shm",
            Self::AfPacket => "af_packet",
            Self::Dpdk => "dpdk",
            Self::Bmv2 => "bmv2",
        }
    }

    /// Whether who sends to such a box may hand runs of frames over as one packet: what the network
    /// does not cut, the box does.
    pub(crate) const fn takes_runs(self) -> bool {
        matches!(self, Self::Udp | Self::AfPacket)
    }

    /// The port of a box: server and replica have no switch.
    pub(super) fn of_box(self, scenario: &Scenario, name: &str) -> Self {
        let is_model = scenario.push.is_some() && [SERVER, REPLICA].contains(&name);
        if self == Self::Bmv2 && is_model { Self::Udp } else { self }
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
    pub(in crate::run) fn port_base(&self) -> Option<u16> {
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
    /// The P4 switch that sums.
    pub switch: Option<SwitchPlan>,
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
    /// What memory shared with one box cannot do.
    #[error(
        "--io shm is for an allreduce, whose worker has one box: a worker that pushes sends to \
         several; use --io udp"
    )]
    PushShm,
    /// What a worker's port cannot do.
    #[error(
        "--worker-io {io} is not for these workers: af_packet is for a lab, where each has an \
         interface; udp_multicast for an allreduce in a lab without a switch that sums. Workers of \
         an allreduce share memory with their box by --io shm alone"
    )]
    WorkerIo {
        /// The port.
        io: &'static str,
    },
    /// What a switch cannot do.
    #[error("--switch bmv2 has one aggregator of one lane, in a lab on one switch")]
    Switch,
    /// The switch's program cannot parse packets of this size.
    #[error(
        "--switch bmv2 sums packets of 32, 64, 128 or 256 elements, and these have {elements}, for \
         lab.mtu is {mtu}: set elements in [job], or lab.mtu = 1500"
    )]
    SwitchElements {
        /// Elements in a packet.
        elements: u16,
        /// The lab's MTU.
        mtu: u32,
    },
    /// The switch's socket cannot have the path that it would.
    #[error(
        "the path of the switch's socket, {path}, is longer than the {SOCKET_PATH_MAX} bytes that \
         one may have: give a shorter --out"
    )]
    SwitchSocket {
        /// The path.
        path: String,
    },
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
        if io == Io::Shm && scenario.push.is_some() {
            return Err(PlanError::PushShm);
        }
        let is_switch = io == Io::Bmv2;
        let mut names = match &scenario.push {
            None => scenario.aggregation.boxes(),
            Some(push) => push.boxes(),
        };
        names.retain(|name| name != CONTROLLER);
        let mut topology = (place == Place::Lab).then(|| scenario.topology()).transpose()?;
        if is_switch {
            check_switch(scenario, topology.as_ref(), directory)?;
        }
        if matches!(io, Io::AfPacket | Io::Dpdk | Io::Bmv2)
            && let Some(topology) = &mut topology
        {
            for name in names.iter().filter(|name| io.of_box(scenario, name) != Io::Udp) {
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
            site: &Site::default(),
            program: Path::new(SWITCH_PROGRAM),
            topology: topology.as_ref(),
            names: &names,
            nodes: &names,
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
        let switch = topology.as_ref().filter(|_| is_switch);
        let switch = switch.map(|topology| switch_plan(topology, directory));
        let boxes = names.iter().enumerate().map(node).collect();
        let controller = scenario.push.as_ref().filter(|push| push.controller).map(|_| BoxPlan {
            name: CONTROLLER.to_owned(),
            config: push::configs::controller(&layout),
        });
        let workers = (0..scenario.job.workers).map(|rank| layout.worker(rank, seed)).collect();
        let elements = layout.elements();
        let background = FlowPlan::all(scenario, topology.as_ref());
        Ok(Self { io, boxes, controller, switch, workers, elements, background, topology, place })
    }

    /// Gives the workers another port than the boxes' suggests.
    ///
    /// # Errors
    /// [`PlanError::WorkerIo`] where a worker cannot have it.
    pub fn set_worker_io(&mut self, io: WorkerIo) -> Result<(), PlanError> {
        let is_push = self.workers.iter().any(|worker| worker.scenario.push.is_some());
        io.check_beside_udp(self.topology.is_some(), is_push || self.switch.is_some())?;
        for worker in &mut self.workers {
            worker.io = io;
        }
        for planned in &mut self.boxes {
            planned.config.port.multicast = io.multicast();
        }
        Ok(())
    }

    /// Has the switch run the program in this folder.
    pub fn use_program(&mut self, folder: &Path) {
        let sections = self.boxes.iter_mut().filter_map(|planned| planned.config.switch.as_mut());
        for section in sections {
            section.program = folder.to_string_lossy().into_owned();
        }
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

/// The lab's switch, and what it is to be started with.
fn switch_plan(topology: &Topology, directory: &Path) -> SwitchPlan {
    let name = topology.switches.first().cloned().unwrap_or_default();
    let ends = topology.links.iter().flat_map(|link| &link.ends);
    let own = ends.filter(|end| end.node == name);
    SwitchPlan {
        interfaces: own.map(|end| end.interface.clone()).collect(),
        name,
        grpc: switch_grpc(directory),
        cpu_port: SWITCH_CPU_PORT,
    }
}

/// Where the switch of a lab listens for its box.
pub(super) fn switch_grpc(directory: &Path) -> String {
    format!("unix:{}", directory.join(SWITCH_SOCKET).display())
}

/// Folder of the switch's compiled program, as it ships.
pub const SWITCH_PROGRAM: &str = "p4/build";
/// The switch's socket in the run directory.
const SWITCH_SOCKET: &str = "switch.grpc";
/// Bytes of the path of a Unix socket.
const SOCKET_PATH_MAX: usize = 107;
/// The sizes that p4/build has.
const SWITCH_ELEMENTS: [u16; 4] = [32, 64, 128, 256];
/// The port of the switch's program that its box is behind.
pub(super) const SWITCH_CPU_PORT: u16 = 255;

/// Refuses what a switch cannot be.
fn check_switch(
    scenario: &Scenario,
    topology: Option<&Topology>,
    directory: &Path,
) -> Result<(), PlanError> {
    let aggregation = &scenario.aggregation;
    let is_one = match &scenario.push {
        None => aggregation.leaves == 0 && aggregation.lanes == 1,
        Some(push) => push.aggregators == 1,
    };
    if !is_one || topology.is_none_or(|topology| topology.switches.len() != 1) {
        return Err(PlanError::Switch);
    }
    let mtu = scenario.lab.mtu;
    let elements = scenario.job.chunk_elements(mtu);
    if !SWITCH_ELEMENTS.contains(&elements) {
        return Err(PlanError::SwitchElements { elements, mtu });
    }
    let path = directory.join(SWITCH_SOCKET).display().to_string();
    if path.len() > SOCKET_PATH_MAX {
        return Err(PlanError::SwitchSocket { path });
    }
    Ok(())
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
        Io::Memory | Io::Udp | Io::Shm => node::Io::Udp,
        Io::AfPacket => node::Io::AfPacket,
        Io::Dpdk => node::Io::Dpdk,
        Io::Bmv2 => node::Io::Switch,
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
        // Which host is at which port its layout knows.
        Io::Shm => {
            config.port.shm = true;
            // A lane that polls takes the CPU of those that it waits for, who wake it at once.
            config.idle = IdleSection { breaths: Some(8), ..IdleSection::default() };
        }
        Io::Memory | Io::Udp | Io::Bmv2 => {}
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
    fn a_switch_sums_packets_of_the_sizes_that_its_program_was_built_for() {
        let with = |mtu: u32, elements: Option<u16>| {
            let mut scenario = scenario(0);
            scenario.lab.mtu = mtu;
            scenario.job.elements = elements;
            Plan::new(&scenario, Io::Bmv2, Place::Lab, 1, Path::new("run"), None)
        };
        for elements in SWITCH_ELEMENTS {
            assert_eq!(with(1500, Some(elements)).unwrap().elements, elements);
            let row = &with(9000, Some(elements)).unwrap().boxes[0].config.row[0];
            assert_eq!(row.elements, elements.into());
        }
        for (mtu, elements) in [(9000, None), (1500, Some(192))] {
            let error = with(mtu, elements).unwrap_err().to_string();
            assert!(error.contains(&format!("lab.mtu is {mtu}")), "{error}");
        }
    }

    #[test]
    fn workers_of_a_lab_may_have_packet_sockets_beside_any_box() {
        let mut lab = plan(&scenario(0), Io::Udp, Place::Lab);
        assert!(lab.workers.iter().all(|worker| worker.io == WorkerIo::Udp));
        lab.set_worker_io(WorkerIo::AfPacket).unwrap();
        assert!(lab.workers.iter().all(|worker| worker.io == WorkerIo::AfPacket));
        let error = lab.set_worker_io(WorkerIo::Shm).unwrap_err();
        assert!(error.to_string().contains("--worker-io shm"), "{error}");
        let mut loopback = plan(&scenario(0), Io::Udp, Place::Loopback { port_base: 20_000 });
        loopback.set_worker_io(WorkerIo::AfPacket).unwrap_err();
    }

    #[test]
    fn workers_that_push_from_a_lab_may_have_packet_sockets() {
        let text = include_str!("../../scenarios/async.toml");
        let scenario = Scenario::parse("async.toml", text).unwrap();
        let mut lab = plan(&scenario, Io::Udp, Place::Lab);
        lab.set_worker_io(WorkerIo::AfPacket).unwrap();
        assert!(lab.workers.iter().all(|worker| worker.io == WorkerIo::AfPacket));
        lab.set_worker_io(WorkerIo::UdpMulticast).unwrap_err();
        lab.set_worker_io(WorkerIo::Shm).unwrap_err();
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
