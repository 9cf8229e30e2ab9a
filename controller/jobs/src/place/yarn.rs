//! Placement as YARN's in Tiresias' public simulator.
//!
//! A job of at most one node's GPUs goes to the first node that has room; a larger one to wholly
//! idle nodes under one switch and one more node for what is over. What finds no such place waits.
//! Processors and memory count too: 6 processors a GPU (2 for a job of one GPU) and 5 GB a job on
//! one node, 11 + 0.1 x GPUs of the job in GB a GPU on several. Source: SymbioticLab/Tiresias at
//! 959f9b0. It never gives memory back when it takes all jobs off; that leak is not kept.

use alloc::vec::Vec;

use super::{Nodes, Placer, Share};
use crate::cluster::Cluster;
use crate::job::{Job, JobId};

/// The placer.
#[derive(Debug)]
pub(super) struct Yarn {
    cluster: Cluster,
    nodes: Nodes,
    free: Vec<Spare>,
}

/// What else a node has, or a share needs.
#[derive(Clone, Copy, Debug)]
struct Spare {
    cpus: u32,
    /// Tenths of a GB.
    mem_tenths: u32,
}

impl Yarn {
    pub(super) fn new(cluster: &Cluster) -> Self {
        let (cpus, mem) = (cluster.cpus_per_node, cluster.mem_per_node_gb);
        let free = Spare { cpus, mem_tenths: mem.saturating_mul(10) };
        let free = vec![free; cluster.nodes() as usize];
        Self { cluster: *cluster, nodes: Nodes::new(cluster), free }
    }

    /// What a share of a job needs beside its GPUs.
    fn need(&self, job_gpus: u32, share_gpus: u32) -> Spare {
        if job_gpus > self.cluster.gpus_per_node {
            let mem_tenths = (110 + job_gpus).saturating_mul(share_gpus);
            return Spare { cpus: 6 * share_gpus, mem_tenths };
        }
        let cpus = if job_gpus == 1 { 2 } else { 6 * share_gpus };
        Spare { cpus, mem_tenths: 50 }
    }

    /// The first node of a switch with so many free GPUs, and all else that the share needs.
    fn first(&self, switch: u32, gpus: u32, need: Spare, not: &[Share]) -> Option<u32> {
        let from = switch * self.cluster.nodes_per_switch;
        let range = from..from + self.cluster.nodes_per_switch;
        let has_room = |node: &&u32| {
            let spare = self.free[**node as usize];
            spare.cpus >= need.cpus
                && spare.mem_tenths >= need.mem_tenths
                && !not.iter().any(|share| share.node == **node)
        };
        let enough = gpus..=self.cluster.gpus_per_node;
        enough
            .filter_map(|free| self.nodes.with(free).range(range.clone()).find(has_room))
            .min()
            .copied()
    }

    fn place_under(&self, switch: u32, gpus: u32) -> Option<Vec<Share>> {
        let per_node = self.cluster.gpus_per_node;
        let mut shares = Vec::new();
        if gpus > per_node {
            let need = self.need(gpus, per_node);
            for _ in 0..gpus / per_node {
                let node = self.first(switch, per_node, need, &shares)?;
                shares.push(Share { node, gpus: per_node });
            }
            if !gpus.is_multiple_of(per_node) {
                let over = gpus % per_node;
                let node = self.first(switch, over, self.need(gpus, over), &shares)?;
                shares.push(Share { node, gpus: over });
            }
        } else {
            let node = self.first(switch, gpus, self.need(gpus, gpus), &shares)?;
            shares.push(Share { node, gpus });
        }
        Some(shares)
    }
}

impl Placer for Yarn {
    fn place(&mut self, _: JobId, _: &Job, gpus: u32) -> Option<Vec<Share>> {
        let shares =
            (0..self.cluster.switches).find_map(|switch| self.place_under(switch, gpus))?;
        for share in &shares {
            let need = self.need(gpus, share.gpus);
            self.nodes.take(*share);
            let free = &mut self.free[share.node as usize];
            free.cpus -= need.cpus;
            free.mem_tenths -= need.mem_tenths;
        }
        Some(shares)
    }

    fn release(&mut self, _: JobId, _: &Job, gpus: u32, shares: &[Share]) {
        self.nodes.give(shares);
        for share in shares {
            let need = self.need(gpus, share.gpus);
            let free = &mut self.free[share.node as usize];
            free.cpus += need.cpus;
            free.mem_tenths += need.mem_tenths;
        }
    }
}
