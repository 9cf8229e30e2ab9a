//! What jobs do to the network between the nodes that they run on, and what that does to them.
//!
//! Each node has a link in each direction, each switch's rack has one to the rest. A job on several
//! nodes sums its gradients once a step: in the aggregators of its switches (and one between
//! racks) while they have slots for it, each node sending its gradient once; else around a ring of
//! its nodes, each sending `2 (k - 1) / k` of it. What goes back takes as long and goes at the same
//! time. A step takes its time without a network and then the slowest of these transfers, at the
//! rate that `net::sharing` gives it when the jobs' transfers all go at once (derived: that
//! is the most that they are ever in each other's way).
//!
//! Invariant: a job has its slots on every aggregator that it needs or none, from its start to its
//! stop; what is taken is given back.
//! Costs O(transfers x narrow links) a start or stop.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use weft_plan::case::{Case, HostId};
use weft_plan::net::ledger::Ledger;
use weft_plan::net::sharing::Sharing;
use weft_plan::spec::{CaseSpec, HostSpec, RackSpec};

use super::{Share, skew};
use crate::cluster::Cluster;
use crate::job::{Job, JobId, NS_PER_S};
use crate::policy::Widths;
use crate::sim::speed::Speeds;

mod placers;

pub use placers::{BySight, SlotAware};

/// A network, the same at every node and every switch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Network {
    /// A node's link, each direction. Default 10 Gb/s.
    pub node_bytes_per_sec: u64,
    /// A rack's link to the others, each direction. Default 20 Gb/s.
    pub rack_bytes_per_sec: u64,
    /// Slots of an aggregator: one at each switch and one between racks. Default 2,048.
    pub slots: u32,
    /// Slots that one job needs. Default 512: four jobs share an aggregator.
    pub slots_per_job: u32,
}

impl Default for Network {
    fn default() -> Self {
        Self {
            node_bytes_per_sec: 1_250_000_000,
            rack_bytes_per_sec: 2_500_000_000,
            slots: 2_048,
            slots_per_job: 512,
        }
    }
}

/// The jobs that are on a network.
#[derive(Clone, Debug)]
pub struct Traffic {
    network: Network,
    cluster: Cluster,
    ledger: Ledger,
    /// Per switch, and at last between racks.
    slots_left: Vec<u32>,
    jobs: BTreeMap<JobId, Load>,
}

/// What one job does to the network.
#[derive(Clone, Debug)]
struct Load {
    gpus: u32,
    step_s: f64,
    transfers: Vec<Transfer>,
    /// The aggregators on which it has slots.
    aggregators: Vec<usize>,
}

#[derive(Clone, Copy, Debug)]
struct Transfer {
    from: HostId,
    to: HostId,
    bytes: u64,
}

impl Traffic {
    /// No jobs yet.
    #[must_use]
    pub fn new(network: Network, cluster: &Cluster) -> Self {
        let slots_left = vec![network.slots; cluster.switches as usize + 1];
        let ledger = Ledger::new(&case(&network, cluster));
        Self { network, cluster: *cluster, ledger, slots_left, jobs: BTreeMap::new() }
    }

    /// A job runs from now on.
    pub fn enter(&mut self, id: JobId, job: &Job, gpus: u32, shares: &[Share]) {
        let mut nodes: Vec<u32> = shares.iter().map(|share| share.node).collect();
        nodes.sort_unstable();
        nodes.dedup();
        let bytes = skew::bytes(&job.model).unwrap_or(BYTES_DEFAULT);
        let step_s = match job.iterations {
            0 => 1.0,
            count => job.duration_ns as f64 / count as f64 / NS_PER_S as f64,
        };
        let aggregators = self.take_slots(&nodes);
        let transfers = match (nodes.len(), aggregators.is_empty()) {
            (0 | 1, _) => Vec::new(),
            (_, false) => self.to_aggregators(&nodes, bytes),
            (_, true) => self.around(&nodes, bytes),
        };
        self.jobs.insert(id, Load { gpus, step_s, transfers, aggregators });
    }

    /// It runs no longer.
    pub fn leave(&mut self, id: JobId) {
        let Some(load) = self.jobs.remove(&id) else { return };
        for at in load.aggregators {
            self.slots_left[at] += self.network.slots_per_job;
        }
    }

    /// How fast every job is; 1 is as fast as without a network.
    #[must_use]
    pub fn speeds(&self) -> BTreeMap<JobId, f64> {
        let mut sharing = Sharing::new(&self.ledger, 0);
        let mut flows = Vec::new();
        for (id, load) in &self.jobs {
            for Transfer { from, to, bytes } in &load.transfers {
                let flow = sharing.start(self.ledger.path(*from, *to), *bytes);
                flows.push((*id, flow, *bytes));
            }
        }
        // The rates until the first one ends are those of all at once.
        let _ = sharing.next_ended();
        let mut slowest_s: BTreeMap<JobId, f64> = BTreeMap::new();
        for (id, flow, bytes) in flows {
            let rate = sharing.segments(flow).first().map_or(1, |first| first.bytes_per_sec);
            let slowest_s = slowest_s.entry(id).or_default();
            *slowest_s = slowest_s.max(bytes as f64 / rate.max(1) as f64);
        }
        let speed = |(id, load): (&JobId, &Load)| {
            let transfer_s = slowest_s.get(id).copied().unwrap_or(0.0);
            (*id, load.step_s / (load.step_s + transfer_s))
        };
        self.jobs.iter().map(speed).collect()
    }

    /// What all jobs get done: their speeds, each times its GPUs.
    #[must_use]
    pub fn done(&self) -> f64 {
        let speeds = self.speeds();
        self.jobs.iter().map(|(id, load)| speeds[id] * f64::from(load.gpus)).sum()
    }

    /// Slots that the aggregator of a switch has left.
    #[must_use]
    pub fn slots_left(&self, switch: u32) -> u32 {
        self.slots_left[switch as usize]
    }

    /// The aggregators on which a job of these nodes has slots from now on: all that it needs, or
    /// none.
    fn take_slots(&mut self, nodes: &[u32]) -> Vec<usize> {
        if nodes.len() < 2 {
            return Vec::new();
        }
        let switches =
            nodes.chunk_by(|a, b| self.cluster.switch_of(*a) == self.cluster.switch_of(*b));
        let mut needed: Vec<usize> =
            switches.map(|nodes| self.cluster.switch_of(nodes[0]) as usize).collect();
        if needed.len() > 1 {
            needed.push(self.cluster.switches as usize);
        }
        let each = self.network.slots_per_job;
        if needed.iter().any(|at| self.slots_left[*at] < each) {
            return Vec::new();
        }
        for at in &needed {
            self.slots_left[*at] -= each;
        }
        needed
    }

    fn to_aggregators(&self, nodes: &[u32], bytes: u64) -> Vec<Transfer> {
        let of = |node: &u32| self.leaf(self.cluster.switch_of(*node));
        let mut transfers: Vec<Transfer> = nodes
            .iter()
            .map(|node| Transfer { from: self.node(*node), to: of(node), bytes })
            .collect();
        let mut leaves: Vec<HostId> = nodes.iter().map(of).collect();
        leaves.dedup();
        if leaves.len() > 1 {
            let root = HostId(self.cluster.switches + self.cluster.nodes());
            transfers.extend(leaves.iter().map(|leaf| Transfer { from: *leaf, to: root, bytes }));
        }
        transfers
    }

    fn around(&self, nodes: &[u32], bytes: u64) -> Vec<Transfer> {
        let count = nodes.len() as u64;
        let bytes = 2 * (count - 1) * bytes / count;
        let next = nodes.iter().cycle().skip(1);
        let pairs = nodes.iter().zip(next);
        pairs.map(|(a, b)| Transfer { from: self.node(*a), to: self.node(*b), bytes }).collect()
    }

    const fn leaf(&self, switch: u32) -> HostId {
        HostId(switch)
    }

    const fn node(&self, node: u32) -> HostId {
        HostId(self.cluster.switches + node)
    }
}

/// Speeds of jobs that share a network; on one node a job is as fast as without one.
#[derive(Debug)]
pub struct ByNetwork {
    widths: Arc<dyn Widths>,
    traffic: Traffic,
    /// Per job: how fast its width makes it, and how fast it was said to be.
    known: BTreeMap<JobId, (f64, f64)>,
}

impl ByNetwork {
    /// An idle network.
    #[must_use]
    pub fn new(widths: Arc<dyn Widths>, network: Network, cluster: &Cluster) -> Self {
        Self { widths, traffic: Traffic::new(network, cluster), known: BTreeMap::new() }
    }

    fn tell(&mut self, changed: &mut dyn FnMut(JobId, f64)) {
        for (id, of_network) in self.traffic.speeds() {
            let Some((of_width, told)) = self.known.get_mut(&id) else { continue };
            let speed = *of_width * of_network;
            if speed.to_bits() != told.to_bits() {
                *told = speed;
                changed(id, speed);
            }
        }
    }
}

impl Speeds for ByNetwork {
    fn started(
        &mut self,
        id: JobId,
        job: &Job,
        gpus: u32,
        shares: &[Share],
        changed: &mut dyn FnMut(JobId, f64),
    ) {
        self.traffic.enter(id, job, gpus, shares);
        self.known.insert(id, (self.widths.speedup(job, gpus), f64::NAN));
        self.tell(changed);
    }

    fn stopped(&mut self, id: JobId, changed: &mut dyn FnMut(JobId, f64)) {
        self.traffic.leave(id);
        self.known.remove(&id);
        self.tell(changed);
    }
}

/// The hosts of a case: the switches' aggregators, the nodes, and the aggregator between racks, in
/// this order. Aggregators are as fast as all links that lead to them.
fn case(network: &Network, cluster: &Cluster) -> Case {
    let mut spec = CaseSpec { schema: 1, ..CaseSpec::default() };
    let mut add = |name: String, rate: u64, rack: Option<u32>| {
        let rack = rack.map(|rack| format!("{rack:08}"));
        let host = HostSpec { up_bytes_per_sec: rate, down_bytes_per_sec: rate, rack };
        spec.hosts.insert(name, host);
    };
    let all = network.node_bytes_per_sec.saturating_mul(cluster.nodes().into());
    for switch in 0..cluster.switches {
        add(format!("a{switch:08}"), all, Some(switch));
    }
    for node in 0..cluster.nodes() {
        add(format!("n{node:08}"), network.node_bytes_per_sec, Some(cluster.switch_of(node)));
    }
    add("r".into(), all, None);
    for switch in 0..cluster.switches {
        let rack = RackSpec {
            up_bytes_per_sec: network.rack_bytes_per_sec,
            down_bytes_per_sec: network.rack_bytes_per_sec,
            hosts: Vec::new(),
        };
        spec.links.racks.insert(format!("{switch:08}"), rack);
    }
    Case::new(&spec).expect("rates above 0, and names that are unique")
}

/// The gradient of a model of unknown size: 100 MB, that of `ResNet-50`.
const BYTES_DEFAULT: u64 = 100_000_000;

#[cfg(test)]
mod tests;
