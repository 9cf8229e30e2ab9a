//! Placers that look at the network: one at the slots that aggregators have left, one at what a
//! place would do to every job's steps.

use alloc::vec::Vec;

use super::{Network, Traffic};
use crate::cluster::Cluster;
use crate::job::{Job, JobId};
use crate::place::{Nodes, Placer, Share};

/// A job on several nodes goes under the switch that has room for it and the most aggregator slots
/// left; where no switch has both, and on one node, as few nodes as possible.
#[derive(Debug)]
pub struct SlotAware(Seen);

/// Of a few places that could do (as few nodes as possible, the same under each switch alone, the
/// smallest remainders), the one with which all jobs together get most done; of equals the first.
#[derive(Debug)]
pub struct BySight(Seen);

/// What both know.
#[derive(Debug)]
struct Seen {
    cluster: Cluster,
    network: Network,
    nodes: Nodes,
    traffic: Traffic,
}

impl SlotAware {
    /// On an idle cluster.
    #[must_use]
    pub fn new(network: Network, cluster: &Cluster) -> Self {
        Self(Seen::new(network, cluster))
    }
}

impl BySight {
    /// On an idle cluster.
    #[must_use]
    pub fn new(network: Network, cluster: &Cluster) -> Self {
        Self(Seen::new(network, cluster))
    }
}

impl Placer for SlotAware {
    fn place(&mut self, id: JobId, job: &Job, gpus: u32) -> Option<Vec<Share>> {
        let seen = &mut self.0;
        let packed = seen.packed(gpus)?;
        if packed.len() < 2 {
            return Some(seen.enter(id, job, gpus, packed));
        }
        let has_slots =
            |switch: &u32| seen.traffic.slots_left(*switch) >= seen.network.slots_per_job;
        let places = (0..seen.cluster.switches).filter(has_slots);
        let places = places.filter_map(|switch| Some((switch, seen.under(switch, gpus)?)));
        let best = places.min_by_key(|(switch, shares)| {
            (u32::MAX - seen.traffic.slots_left(*switch), shares.len(), *switch)
        });
        let shares = best.map_or(packed, |(_, shares)| shares);
        Some(seen.enter(id, job, gpus, shares))
    }

    fn release(&mut self, id: JobId, _: &Job, _: u32, shares: &[Share]) {
        self.0.leave(id, shares);
    }
}

impl Placer for BySight {
    fn place(&mut self, id: JobId, job: &Job, gpus: u32) -> Option<Vec<Share>> {
        let seen = &mut self.0;
        let packed = seen.packed(gpus)?;
        if packed.len() < 2 {
            return Some(seen.enter(id, job, gpus, packed));
        }
        let mut places = vec![packed];
        places.extend((0..seen.cluster.switches).filter_map(|switch| seen.under(switch, gpus)));
        places.extend(seen.fragments(gpus));
        let mut best: Option<(f64, Vec<Share>)> = None;
        for shares in places {
            seen.traffic.enter(id, job, gpus, &shares);
            let done = seen.traffic.done();
            seen.traffic.leave(id);
            if best.as_ref().is_none_or(|(most, _)| done > *most) {
                best = Some((done, shares));
            }
        }
        best.map(|(_, shares)| seen.enter(id, job, gpus, shares))
    }

    fn release(&mut self, id: JobId, _: &Job, _: u32, shares: &[Share]) {
        self.0.leave(id, shares);
    }
}

impl Seen {
    fn new(network: Network, cluster: &Cluster) -> Self {
        let (nodes, traffic) = (Nodes::new(cluster), Traffic::new(network, cluster));
        Self { cluster: *cluster, network, nodes, traffic }
    }

    fn packed(&mut self, gpus: u32) -> Option<Vec<Share>> {
        let shares = self.nodes.take_packed(gpus)?;
        self.nodes.give(&shares);
        Some(shares)
    }

    fn fragments(&mut self, gpus: u32) -> Option<Vec<Share>> {
        let shares = self.nodes.take_fragments(gpus)?;
        self.nodes.give(&shares);
        Some(shares)
    }

    /// As few nodes as possible under one switch.
    fn under(&self, switch: u32, gpus: u32) -> Option<Vec<Share>> {
        let first = switch * self.cluster.nodes_per_switch;
        let nodes = first..first + self.cluster.nodes_per_switch;
        let mut free: Vec<Share> =
            nodes.map(|node| Share { node, gpus: self.nodes.free(node) }).collect();
        free.sort_by_key(|share| (u32::MAX - share.gpus, share.node));
        let mut shares = Vec::new();
        let mut left = gpus;
        while left > 0 {
            // What is left fits one node: the fullest that has room.
            let fits = free.iter().rposition(|share| share.gpus >= left);
            let share = free.remove(fits.unwrap_or(0).min(free.len().checked_sub(1)?));
            if share.gpus == 0 {
                return None;
            }
            shares.push(Share { gpus: share.gpus.min(left), ..share });
            left -= share.gpus.min(left);
        }
        Some(shares)
    }

    fn enter(&mut self, id: JobId, job: &Job, gpus: u32, shares: Vec<Share>) -> Vec<Share> {
        for share in &shares {
            self.nodes.take(*share);
        }
        self.traffic.enter(id, job, gpus, &shares);
        shares
    }

    fn leave(&mut self, id: JobId, shares: &[Share]) {
        self.traffic.leave(id);
        self.nodes.give(shares);
    }
}
