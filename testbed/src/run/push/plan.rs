//! Decides what a push run consists of: server, replica, aggregators, controller and workers, and
//! each one's configuration. Pure: the same scenario and options give the same files.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use weft_client::push::{ControllerConfig, PushConfig, TlsFiles};
use weft_config::controller as config;
use weft_rpc::identity::Identity;

use super::certs::worker_identity;
use super::configs;
use crate::certs::file_name;
use crate::lab::topology::{Topology, TopologyError};
use crate::run::background::FlowPlan;
use crate::run::plan::{BoxPlan, Io, Place};
use crate::scenario::{CONTROLLER, FaultSection, PushSection, REPLICA, SERVER, Scenario};

/// UDP port of boxes in a lab.
const BOX_PORT: u16 = 22341;
/// TCP port of the controller in a lab.
const CONTROLLER_PORT: u16 = 22342;
/// UDP port of workers in a lab.
const WORKER_PORT: u16 = 23000;
/// Port of the controller on loopback, above the base of a run.
const LOOPBACK_CONTROLLER: u16 = 1;
/// First port of the workers on loopback, above the base of a run.
const LOOPBACK_WORKERS: u16 = 64;
/// Least retransmission timeout of workers that share CPUs and lose nothing on purpose.
const RTO_MIN_LOSSLESS: Duration = Duration::from_millis(5);
/// Bytes of IPv4, UDP and Weft headers.
const OVERHEAD: u32 = 60;

/// A run, box by box and worker by worker.
#[derive(Clone, Debug)]
pub struct PushPlan {
    /// What the boxes' ports are.
    pub io: Io,
    /// The network; `None` on loopback.
    pub topology: Option<Topology>,
    /// Server, replica and aggregators: `weft-node`.
    pub boxes: Vec<BoxPlan>,
    /// The controller: `weft-controller`.
    pub controller: Option<BoxPlan<config::ControllerConfig>>,
    /// Where the controller is called.
    pub controller_addr: SocketAddr,
    /// The workers by rank.
    pub workers: Vec<PushWorkerPlan>,
    /// Elements per chunk.
    pub elements: u16,
    /// Traffic of others.
    pub background: Vec<FlowPlan>,
}

/// A worker: everything that its process is told.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct PushWorkerPlan {
    /// Its rank.
    pub rank: u8,
    /// 0, and one more after each restart.
    pub life: u32,
    /// Where it sends from.
    pub local: SocketAddr,
    /// The server.
    pub server: SocketAddr,
    /// The controller's endpoint.
    pub controller: Option<String>,
    /// This worker's certificate, for a controller that wants one.
    pub tls: Option<TlsFiles>,
    /// Largest IP packet.
    pub mtu: u16,
    /// Whether runs of frames cross the kernel as one message each: not beside a box that takes
    /// frames from an interface.
    pub offload: bool,
    /// How long its fault port delays each frame in each direction, in microseconds.
    pub link_delay_us: u64,
    /// Seed of data, model and faults.
    pub seed: u64,
    /// The scenario.
    pub scenario: Scenario,
}

impl PushWorkerPlan {
    /// The scenario's `[push]`.
    ///
    /// # Panics
    /// Without one, which [`PushPlan::new`] does not make.
    #[must_use]
    pub fn push(&self) -> &PushSection {
        self.scenario.push.as_ref().expect("a push plan comes of a scenario with [push]")
    }

    /// The model's version at which the job has taken in all its updates.
    #[must_use]
    pub fn last_version(&self) -> u64 {
        let job = &self.scenario.job;
        u64::from(job.rounds) * u64::from(self.push().updates_per_round(job))
    }

    /// The client's configuration.
    #[must_use]
    pub fn client(&self) -> PushConfig {
        let mut config = PushConfig::new(self.local, self.server).rank(self.rank).mtu(self.mtu);
        config.controller = self.controller.as_ref().map(|endpoint| ControllerConfig {
            tls: self.tls.clone(),
            ..ControllerConfig::new(endpoint.clone())
        });
        config.updates_open_max = 1;
        config.member_timeout = self.scenario.job.member_timeout();
        if self.scenario.faults == FaultSection::default() {
            // Nothing gets lost on purpose: what is late waits for a CPU, and a repeat takes one.
            config.rto_min = RTO_MIN_LOSSLESS;
        }
        config
    }
}

impl PushPlan {
    /// Plans a run over `io` at a place, with `directory` for what the boxes write. `certs`: the
    /// folder with the certificates of those who call the controller.
    ///
    /// # Errors
    /// When the lab's address plan is too small.
    pub fn new(
        scenario: &Scenario,
        io: Io,
        place: &Place,
        seed: u64,
        directory: &Path,
        certs: Option<&Path>,
    ) -> Result<Self, TopologyError> {
        let mut topology = (*place == Place::Lab).then(|| scenario.topology()).transpose()?;
        let push = scenario.push.as_ref().expect("a scenario with [push]");
        let nodes: Vec<String> =
            push.boxes().into_iter().filter(|name| name != CONTROLLER).collect();
        if matches!(io, Io::AfPacket | Io::Dpdk)
            && let Some(topology) = &mut topology
        {
            for name in &nodes {
                topology.leave_address_to_port(name);
            }
            // The boxes hear the controller through their kernels.
            topology.add_control_addresses();
        }
        let layout =
            Layout { scenario, push, io, place, topology: topology.as_ref(), directory, certs };
        let boxes = nodes
            .iter()
            .map(|name| BoxPlan { name: name.clone(), config: configs::node(&layout, name) })
            .collect();
        let controller = push
            .controller
            .then(|| BoxPlan { name: CONTROLLER.to_owned(), config: configs::controller(&layout) });
        let workers = (0..scenario.job.workers).map(|rank| layout.worker(rank, seed)).collect();
        let (elements, controller_addr) = (layout.elements(), layout.controller_addr());
        let background = FlowPlan::all(scenario, topology.as_ref());
        Ok(Self { io, boxes, controller, controller_addr, workers, elements, background, topology })
    }
}

/// Where the model that a box ended with is in the run directory.
#[must_use]
pub fn model_path(directory: &Path, name: &str) -> PathBuf {
    directory.join(format!("{name}.f32"))
}

/// Where the initial model is in the run directory.
#[must_use]
pub fn initial_path(directory: &Path) -> PathBuf {
    directory.join("initial.f32")
}

/// Where the log of a box is in the run directory.
#[must_use]
pub fn log_path(directory: &Path, name: &str) -> PathBuf {
    directory.join(format!("{name}.events.jsonl"))
}

/// Addresses: who is where.
pub(super) struct Layout<'a> {
    pub(super) scenario: &'a Scenario,
    pub(super) push: &'a PushSection,
    pub(super) io: Io,
    pub(super) place: &'a Place,
    pub(super) topology: Option<&'a Topology>,
    pub(super) directory: &'a Path,
    pub(super) certs: Option<&'a Path>,
}

impl Layout<'_> {
    /// 256 elements where an Ethernet MTU allows, as many multiples of 64 as fit elsewhere.
    pub(super) fn elements(&self) -> u16 {
        let fit = (self.scenario.lab.mtu - OVERHEAD) / 4;
        u16::try_from(if (256..512).contains(&fit) { 256 } else { fit / 64 * 64 })
            .expect("an MTU is below 65,536")
    }

    fn loopback_base(&self) -> u16 {
        match self.place {
            Place::Loopback { port_base } | Place::Memif { port_base, .. } => *port_base,
            Place::Lab => 0,
        }
    }

    fn lab_ip(&self, name: &str) -> Option<IpAddr> {
        let host = self.topology.and_then(|topology| topology.host(name));
        host.and_then(|host| host.ip).map(|cidr| cidr.address)
    }

    /// Where a box listens; on loopback every box has an address of its own.
    pub(super) fn box_addr(&self, name: &str) -> SocketAddr {
        if let Some(ip) = self.lab_ip(name) {
            return SocketAddr::new(ip, BOX_PORT);
        }
        let last = match name {
            SERVER => 1,
            REPLICA => 2,
            aggregator => 10 + aggregator[1..].parse::<u8>().unwrap_or(0),
        };
        SocketAddr::from((Ipv4Addr::new(127, 0, 0, last), self.loopback_base()))
    }

    /// Where the controller listens.
    pub(super) fn controller_addr(&self) -> SocketAddr {
        let host = self.topology.and_then(|topology| topology.host(CONTROLLER));
        match host.and_then(|host| host.control.or(host.ip)) {
            Some(cidr) => SocketAddr::new(cidr.address, CONTROLLER_PORT),
            None => {
                SocketAddr::from((Ipv4Addr::LOCALHOST, self.loopback_base() + LOOPBACK_CONTROLLER))
            }
        }
    }

    /// The controller's endpoint, if there is one.
    pub(super) fn endpoint(&self) -> Option<String> {
        let scheme = if self.certs.is_some() { "https" } else { "http" };
        self.push.controller.then(|| format!("{scheme}://{}", self.controller_addr()))
    }

    /// The certificate of a controller, a node or a worker.
    pub(super) fn tls(&self, identity: &Identity) -> Option<TlsFiles> {
        self.certs.map(|folder| TlsFiles::in_folder(folder, &file_name(identity)))
    }

    /// Where a worker sends from.
    pub(super) fn worker_addr(&self, rank: u8) -> SocketAddr {
        match self.lab_ip(&format!("w{rank}")) {
            Some(ip) => SocketAddr::new(ip, WORKER_PORT),
            None => SocketAddr::from((
                Ipv4Addr::LOCALHOST,
                self.loopback_base() + LOOPBACK_WORKERS + u16::from(rank),
            )),
        }
    }

    /// Where the workers send from, by rank.
    pub(super) fn worker_addrs(&self) -> Vec<SocketAddr> {
        (0..self.scenario.job.workers).map(|rank| self.worker_addr(rank)).collect()
    }

    /// The interface of a box in its namespace.
    pub(super) fn interface(&self, name: &str) -> &str {
        let ends = self.topology.iter().flat_map(|topology| &topology.links).flat_map(|l| &l.ends);
        ends.into_iter().find(|end| end.node == name).map_or("lo", |end| end.interface.as_str())
    }

    /// Names of the aggregators, by box index.
    pub(super) fn aggregators(&self) -> Vec<String> {
        (0..self.push.aggregators).map(|index| format!("a{index}")).collect()
    }

    fn worker(&self, rank: u8, seed: u64) -> PushWorkerPlan {
        PushWorkerPlan {
            rank,
            life: 0,
            local: self.worker_addr(rank),
            server: self.box_addr(SERVER),
            controller: self.endpoint(),
            tls: self.tls(&worker_identity(rank)),
            mtu: u16::try_from(self.scenario.lab.mtu).expect("an MTU is below 65,536"),
            offload: self.io == Io::Udp,
            link_delay_us: 0,
            seed,
            scenario: self.scenario.clone(),
        }
    }
}
