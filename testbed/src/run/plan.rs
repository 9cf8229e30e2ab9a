//! Decides what a live run consists of: boxes, workers, and each one's configuration. Pure: the
//! same scenario and options give the same files and commands, which `--dry-run` prints.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use weft_client::Numbers;
use weft_config::StatsFormat;
use weft_config::node::{
    self, JobSection, MemberSection, NodeConfig, ParentSection, PortSection, RowSection,
};
use weft_wire::header::Operation;
use weft_wire::hello::Overflow;

use super::background::FlowPlan;
use crate::lab::topology::{Topology, TopologyError};
use crate::scenario::{FaultSection, ScaleExponent, Scenario};

/// UDP port that boxes in a lab listen on.
const BOX_PORT: u16 = 22341;
/// First UDP port of the lanes of a worker in a lab.
const WORKER_PORT: u16 = 23000;
/// First UDP port of runs on loopback. Wireshark has no other protocol at this port, nor at one
/// that is a multiple of [`LOOPBACK_STRIDE`] above it.
pub const LOOPBACK_FIRST: u16 = 10_005;
/// UDP ports between one process's lanes and the next on loopback.
pub const LOOPBACK_STRIDE: u16 = 16;
/// UDP ports that a run on loopback may use from its base on.
pub const LOOPBACK_PORTS: u16 = 65 * LOOPBACK_STRIDE;
/// Row of the gradients, and of the block exponents.
pub(super) const ROWS: [u16; 2] = [0, 1];
/// Least retransmission timeout of workers that share CPUs and lose nothing on purpose.
const RTO_MIN_LOSSLESS: Duration = Duration::from_millis(5);
/// Bytes of IPv4, UDP and Weft headers.
const OVERHEAD: u32 = 60;

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
    /// The boxes, the root first.
    pub boxes: Vec<BoxPlan>,
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

/// A worker: everything that its process is told.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct WorkerPlan {
    /// Its rank in the whole job.
    pub rank: u8,
    /// Its rank at its box.
    pub box_rank: u8,
    /// Where it sends from.
    pub local: SocketAddr,
    /// The box that it sends to.
    pub aggregator: SocketAddr,
    /// Largest IP packet.
    pub mtu: u16,
    /// True when exponents are agreed per chunk.
    pub block_exponents: bool,
    /// How long its fault port delays each frame in each direction, in microseconds.
    pub link_delay_us: u64,
    /// Seed of data, model and faults.
    pub seed: u64,
    /// The scenario.
    pub scenario: Scenario,
}

impl WorkerPlan {
    /// The client's configuration.
    #[must_use]
    pub fn client(&self) -> weft_client::Config {
        let numbers = if self.block_exponents {
            Numbers::Block { exponent_row: ROWS[1] }
        } else {
            Numbers::Fixed
        };
        let mut config = weft_client::Config::new(self.local, self.aggregator)
            .rank(self.box_rank)
            .row(ROWS[0])
            .lanes(self.scenario.aggregation.lanes)
            .mtu(self.mtu)
            .numbers(numbers);
        config.member_timeout = self.scenario.job.member_timeout();
        if self.scenario.faults == FaultSection::default() {
            // Nothing gets lost on purpose: what is late waits for a CPU, and a repeat takes one.
            config.rto_min = RTO_MIN_LOSSLESS;
        }
        config
    }
}

/// Why a scenario cannot be planned.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// What a single process cannot do.
    #[error("--io memory has one box, one lane and no restarts: use udp or dpdk")]
    Memory,
    /// The network cannot be laid out.
    #[error(transparent)]
    Topology(#[from] TopologyError),
}

impl Plan {
    /// Plans a run over `io` at a place.
    ///
    /// # Errors
    /// [`PlanError`] when the lab's address plan is too small, or the port cannot do it.
    pub fn new(scenario: &Scenario, io: Io, place: Place, seed: u64) -> Result<Self, PlanError> {
        let in_lab = place == Place::Lab;
        let aggregation = &scenario.aggregation;
        let plain = aggregation.leaves == 0 && aggregation.lanes == 1;
        if io == Io::Memory && !(plain && scenario.restart.is_empty()) {
            return Err(PlanError::Memory);
        }
        let names = aggregation.boxes();
        let mut topology = in_lab.then(|| scenario.topology()).transpose()?;
        if matches!(io, Io::AfPacket | Io::Dpdk)
            && let Some(topology) = &mut topology
        {
            for name in &names {
                topology.leave_address_to_port(name);
            }
            if !scenario.background.is_empty() {
                // The kernels of the boxes have no other.
                topology.add_control_addresses();
            }
        }
        let layout = Layout { scenario, io, place: &place, topology: topology.as_ref() };
        let boxes = names
            .iter()
            .enumerate()
            .map(|(index, name)| BoxPlan { name: name.clone(), config: layout.node(index, name) })
            .collect();
        let workers = (0..scenario.job.workers).map(|rank| layout.worker(rank, seed)).collect();
        let elements = layout.elements();
        let background = FlowPlan::all(scenario, topology.as_ref());
        Ok(Self { io, boxes, workers, elements, background, topology, place })
    }
}

impl Plan {
    /// The box that a worker sends to.
    #[must_use]
    pub fn box_name(&self, rank: usize) -> &str {
        let leaves = self.boxes.len() - 1;
        let per_box = self.workers.len() / leaves.max(1);
        let index = if leaves == 0 { 0 } else { 1 + rank / per_box.max(1) };
        self.boxes.get(index).map_or("", |planned| &planned.name)
    }
}

/// Addresses and shares: who sends where.
struct Layout<'a> {
    scenario: &'a Scenario,
    io: Io,
    place: &'a Place,
    topology: Option<&'a Topology>,
}

impl Layout<'_> {
    /// 256 elements where an Ethernet MTU allows, as many multiples of 64 as fit elsewhere.
    fn elements(&self) -> u16 {
        let fit = (self.scenario.lab.mtu - OVERHEAD) / 4;
        u16::try_from(if (256..512).contains(&fit) { 256 } else { fit / 64 * 64 })
            .expect("an MTU is below 65,536")
    }

    fn leaves(&self) -> u8 {
        self.scenario.aggregation.leaves
    }

    fn workers_per_box(&self) -> u8 {
        self.scenario.job.workers / self.leaves().max(1)
    }

    fn box_ip(&self, index: usize) -> Ipv4Addr {
        let host = self.topology.and_then(|topology| topology.host(&format!("a{index}")));
        match host.and_then(|host| host.ip).map(|cidr| cidr.address) {
            Some(std::net::IpAddr::V4(ip)) => ip,
            // On loopback every box has an address of its own, so that all use one port.
            _ => Ipv4Addr::new(127, 0, 0, 1 + u8::try_from(index).expect("few boxes")),
        }
    }

    /// The interface of a box in its namespace.
    fn interface(&self, name: &str) -> &str {
        let ends = self.topology.iter().flat_map(|topology| &topology.links).flat_map(|l| &l.ends);
        ends.into_iter().find(|end| end.node == name).map_or("lo", |end| end.interface.as_str())
    }

    fn box_addr(&self, index: usize) -> SocketAddr {
        let port = self.place.port_base().unwrap_or(BOX_PORT);
        SocketAddr::from((self.box_ip(index), port))
    }

    fn worker_addr(&self, rank: u8) -> SocketAddr {
        let host = self.topology.and_then(|topology| topology.host(&format!("w{rank}")));
        match host.and_then(|host| host.ip).map(|cidr| cidr.address) {
            Some(ip) => SocketAddr::new(ip, WORKER_PORT),
            None => {
                // The boxes' lanes have the first ports.
                let base = self.place.port_base().unwrap_or(WORKER_PORT);
                let port = base + LOOPBACK_STRIDE * (1 + u16::from(rank));
                SocketAddr::from((Ipv4Addr::LOCALHOST, port))
            }
        }
    }

    /// The box that a worker belongs to, and its rank there.
    fn box_of(&self, rank: u8) -> (usize, u8) {
        if self.leaves() == 0 {
            return (0, rank);
        }
        (1 + usize::from(rank / self.workers_per_box()), rank % self.workers_per_box())
    }

    fn worker(&self, rank: u8, seed: u64) -> WorkerPlan {
        let (index, box_rank) = self.box_of(rank);
        WorkerPlan {
            rank,
            box_rank,
            local: self.worker_addr(rank),
            aggregator: self.box_addr(index),
            mtu: u16::try_from(self.scenario.lab.mtu).expect("an MTU is below 65,536"),
            block_exponents: self.scenario.job.scale_exponent == ScaleExponent::Auto,
            link_delay_us: 0,
            seed,
            scenario: self.scenario.clone(),
        }
    }

    /// A box's `node.toml`.
    fn node(&self, index: usize, name: &str) -> NodeConfig {
        let (addr, mtu) = (self.box_addr(index), self.scenario.lab.mtu);
        let mut config = box_config(name, self.io, addr, mtu, self.interface(name));
        if let Place::Memif { socket, .. } = self.place {
            config.port.device = Some("net_memif0".to_owned());
            config.dpdk.memory_mib = 128;
            config.dpdk.vdev = vec![format!(
                "net_memif0,role=server,id=0,socket={socket},socket-abstract=no,bsize=2048,rsize=10"
            )];
        }
        config.lcores.shards = self.scenario.aggregation.lanes;
        config.job = vec![JobSection { name: Some("train".to_owned()), ..JobSection::new(0) }];
        config.row = vec![self.row(index, 0)];
        if self.scenario.job.scale_exponent == ScaleExponent::Auto {
            config.row.push(self.row(index, 1));
        }
        config
    }

    /// Row 0 sums gradients, row 1 agrees on exponents.
    fn row(&self, index: usize, row: usize) -> RowSection {
        let workers = self.scenario.job.workers;
        let members = if self.leaves() > 0 && index == 0 {
            let leaf = |leaf: u8| MemberSection {
                addr: self.box_addr(leaf.into()),
                weight: self.workers_per_box().into(),
                is_box: true,
            };
            (1..=self.leaves()).map(leaf).collect()
        } else {
            let own = (0..workers).filter(|rank| self.box_of(*rank).0 == index);
            own.map(|rank| self.worker_addr(rank).into()).collect()
        };
        let (operation, exponent) = match self.scenario.job.scale_exponent {
            _ if row == 1 => (Operation::Max, Some(0)),
            ScaleExponent::Fixed(exponent) => (Operation::Sum, Some(exponent)),
            ScaleExponent::Auto => (Operation::Sum, None),
        };
        let parent = (index > 0).then(|| ParentSection {
            addr: self.box_addr(0),
            row: ROWS[row],
            rank: u8::try_from(index - 1).expect("few boxes"),
            source_port: None,
            mac: None,
        });
        RowSection {
            operation,
            overflow: Overflow::Clamp,
            elements: self.elements(),
            window: self.scenario.aggregation.window,
            exponent,
            fan_in: Some(workers.into()),
            parent,
            ..RowSection::new(ROWS[row], 0, members)
        }
    }
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

    const DIGITS: &str = include_str!("../../scenarios/digits.toml");

    fn scenario(leaves: u8) -> Scenario {
        let mut scenario = Scenario::parse("digits.toml", DIGITS).unwrap();
        scenario.aggregation.leaves = leaves;
        scenario
    }

    #[test]
    fn one_level_has_one_box_with_all_workers() {
        let plan = Plan::new(&scenario(0), Io::Dpdk, Place::Lab, 1).unwrap();
        assert_eq!(plan.boxes.len(), 1);
        assert_eq!(plan.elements, 256);
        let row = &plan.boxes[0].config.row[0];
        assert_eq!((row.members.len(), row.exponent), (4, Some(-20)));
        assert!(plan.workers.iter().all(|worker| worker.aggregator == plan.workers[0].aggregator));
    }

    #[test]
    fn two_levels_share_the_workers_among_the_leaves() {
        let plan =
            Plan::new(&scenario(2), Io::Udp, Place::Loopback { port_base: 20_000 }, 1).unwrap();
        let names: Vec<&str> = plan.boxes.iter().map(|b| b.name.as_str()).collect();
        assert_eq!(names, ["a0", "a1", "a2"]);
        let ranks: Vec<u8> = plan.workers.iter().map(|worker| worker.box_rank).collect();
        assert_eq!(ranks, [0, 1, 0, 1]);
        assert_ne!(plan.workers[1].aggregator, plan.workers[2].aggregator);
        assert_eq!(plan.boxes[0].config.row[0].members[0].weight, 2);
        let leaf = &plan.boxes[2].config.row[0];
        assert_eq!((leaf.parent.unwrap().rank, leaf.fan_in), (1, Some(4)));
    }

    #[test]
    fn runs_on_loopback_share_no_port() {
        let ports = |port_base: u16| {
            let plan = Plan::new(&scenario(0), Io::Udp, Place::Loopback { port_base }, 1).unwrap();
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
        let plan = Plan::new(&scenario, Io::Udp, Place::Loopback { port_base: 20_000 }, 1).unwrap();
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
                for planned in Plan::new(&scenario, io, place.clone(), 1).unwrap().boxes {
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
