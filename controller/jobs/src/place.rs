//! Decides on which GPUs of which nodes a job runs.
//!
//! Invariant: no GPU has two jobs: a placer gives only what is free, and each share back once.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use thiserror::Error;

use crate::cluster::Cluster;
use crate::job::{Job, JobId};
use crate::policy::Manner;

pub mod network;
pub mod skew;
pub mod trial;
pub mod yarn;

/// GPUs of one node.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Share {
    /// The node; those of a switch follow each other.
    pub node: u32,
    /// How many of its GPUs.
    pub gpus: u32,
}

/// Finds places for jobs.
pub trait Placer: fmt::Debug + Send {
    /// Takes a place for a job on so many GPUs: its shares, none where GPUs are only counted.
    /// `None` when there is no place that will do.
    fn place(&mut self, id: JobId, job: &Job, gpus: u32) -> Option<Vec<Share>>;

    /// Gives a job's place back, all of it.
    fn release(&mut self, id: JobId, job: &Job, gpus: u32, shares: &[Share]);

    /// Takes in how fast a job was where it was placed, before its place is given back. 1 is as the
    /// trace says.
    fn observed(&mut self, id: JobId, job: &Job, speed: f64) {
        let _ = (id, job, speed);
    }
}

/// The name of a placement and what makes its placer.
#[derive(Clone, Copy, Debug)]
pub struct Placement {
    /// Its name on command lines.
    pub name: &'static str,
    /// What it does, in a line.
    pub about: &'static str,
    /// Its placer on an empty cluster.
    pub placer: fn(&Cluster, &Options) -> Box<dyn Placer>,
}

/// What can be turned at placements.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// PACKLIMIT: a model whose largest tensor is more than this part of it is skewed.
    pub pack_limit: f64,
    /// The network, for placements that look at it and for the speeds of jobs on it. `None`: jobs
    /// are as fast on any nodes, and placements that look see the default one.
    pub network: Option<network::Network>,
}

impl Default for Options {
    fn default() -> Self {
        Self { pack_limit: skew::PACK_LIMIT_DEFAULT, network: None }
    }
}

/// All placements; the first is the default.
pub const PLACEMENTS: &[Placement] = &[
    Placement {
        name: "count",
        about: "GPUs are counted; nodes do not matter",
        placer: |cluster, _| Box::new(Count { free: cluster.gpus() }),
    },
    Placement {
        name: "yarn",
        about: "one node, or wholly idle nodes under one switch; else the job waits",
        placer: |cluster, _| Box::new(yarn::Yarn::new(cluster)),
    },
    Placement {
        name: "consolidate",
        about: "as few nodes as what is free allows",
        placer: |cluster, _| Box::new(Packed { nodes: Nodes::new(cluster) }),
    },
    Placement {
        name: "fragments",
        about: "the smallest remainders of nodes first",
        placer: |cluster, _| Box::new(Fragments { nodes: Nodes::new(cluster) }),
    },
    Placement {
        name: "skew",
        about: "consolidate for skewed models, fragments for the others (Tiresias)",
        placer: |cluster, options| {
            let nodes = Nodes::new(cluster);
            Box::new(skew::BySkew { nodes, pack_limit: options.pack_limit })
        },
    },
    Placement {
        name: "trial",
        about: "in fragments once, on few nodes once, then where the model was faster",
        placer: |cluster, _| Box::new(trial::Trial::new(Nodes::new(cluster))),
    },
    Placement {
        name: "slot-aware",
        about: "few nodes under the switch whose aggregator has the most slots left",
        placer: |cluster, options| {
            Box::new(network::SlotAware::new(options.network.unwrap_or_default(), cluster))
        },
    },
    Placement {
        name: "network",
        about: "where all jobs together get most done, by their links and slots",
        placer: |cluster, options| {
            Box::new(network::BySight::new(options.network.unwrap_or_default(), cluster))
        },
    },
];

/// The placement of that name.
///
/// # Errors
/// [`UnknownPlacement`] lists the known names.
pub fn by_name(name: &str) -> Result<&'static Placement, UnknownPlacement> {
    let found = PLACEMENTS.iter().find(|placement| placement.name == name);
    found.ok_or_else(|| UnknownPlacement {
        name: name.into(),
        known: PLACEMENTS.iter().map(|placement| placement.name).collect(),
    })
}

/// The placement of those who name none under a policy.
///
/// # Panics
/// If the policy names one that there is not.
#[must_use]
pub fn default_of(manner: Manner) -> &'static Placement {
    manner.placement.map_or(&PLACEMENTS[0], |name| by_name(name).expect("policies know the names"))
}

/// No placement has that name.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[error("there is no placement `{name}`; known are {}", known.join(", "))]
pub struct UnknownPlacement {
    /// The name.
    pub name: String,
    /// The names that there are.
    pub known: Vec<&'static str>,
}

/// Counts GPUs.
#[derive(Debug)]
struct Count {
    free: u32,
}

impl Placer for Count {
    fn place(&mut self, _: JobId, _: &Job, gpus: u32) -> Option<Vec<Share>> {
        self.free = self.free.checked_sub(gpus)?;
        Some(Vec::new())
    }

    fn release(&mut self, _: JobId, _: &Job, gpus: u32, _: &[Share]) {
        self.free += gpus;
    }
}

/// As few nodes as possible.
#[derive(Debug)]
struct Packed {
    nodes: Nodes,
}

impl Placer for Packed {
    fn place(&mut self, _: JobId, _: &Job, gpus: u32) -> Option<Vec<Share>> {
        self.nodes.take_packed(gpus)
    }

    fn release(&mut self, _: JobId, _: &Job, _: u32, shares: &[Share]) {
        self.nodes.give(shares);
    }
}

/// The smallest remainders first.
#[derive(Debug)]
struct Fragments {
    nodes: Nodes,
}

impl Placer for Fragments {
    fn place(&mut self, _: JobId, _: &Job, gpus: u32) -> Option<Vec<Share>> {
        self.nodes.take_fragments(gpus)
    }

    fn release(&mut self, _: JobId, _: &Job, _: u32, shares: &[Share]) {
        self.nodes.give(shares);
    }
}

/// The free GPUs of every node, found by how many they are.
#[derive(Debug)]
pub struct Nodes {
    free: Vec<u32>,
    /// Nodes with so many free GPUs, by that number.
    by_free: Vec<BTreeSet<u32>>,
    free_all: u32,
}

impl Nodes {
    /// All nodes, all idle.
    #[must_use]
    pub fn new(cluster: &Cluster) -> Self {
        let (nodes, gpus) = (cluster.nodes(), cluster.gpus_per_node);
        let mut by_free = vec![BTreeSet::new(); gpus as usize + 1];
        by_free[gpus as usize] = (0..nodes).collect();
        Self { free: vec![gpus; nodes as usize], by_free, free_all: cluster.gpus() }
    }

    /// Free GPUs of all nodes.
    #[must_use]
    pub const fn free_all(&self) -> u32 {
        self.free_all
    }

    /// Free GPUs of a node.
    #[must_use]
    pub fn free(&self, node: u32) -> u32 {
        self.free[node as usize]
    }

    /// Nodes with exactly so many free GPUs, in order.
    #[must_use]
    pub fn with(&self, free: u32) -> &BTreeSet<u32> {
        &self.by_free[free as usize]
    }

    /// Takes GPUs of one node.
    ///
    /// # Panics
    /// If it has fewer free ones.
    pub fn take(&mut self, share: Share) {
        let free = self.free[share.node as usize];
        self.put(share.node, free.checked_sub(share.gpus).expect("they are free"));
    }

    /// Takes GPUs of as few nodes as possible: of one node the one that has least over; of several
    /// those with most.
    pub fn take_packed(&mut self, gpus: u32) -> Option<Vec<Share>> {
        if gpus > self.free_all {
            return None;
        }
        let mut shares = Vec::new();
        let mut left = gpus;
        while left > 0 {
            let fits = self.by_free.get(left as usize..).unwrap_or(&[]);
            let node = match fits.iter().find_map(BTreeSet::first) {
                Some(node) => *node,
                None => *self.by_free[1..].iter().rev().find_map(BTreeSet::first)?,
            };
            let share = Share { node, gpus: self.free(node).min(left) };
            self.take(share);
            left -= share.gpus;
            shares.push(share);
        }
        Some(shares)
    }

    /// Takes GPUs of the nodes that have the fewest left.
    pub fn take_fragments(&mut self, gpus: u32) -> Option<Vec<Share>> {
        if gpus > self.free_all {
            return None;
        }
        let mut shares = Vec::new();
        let mut left = gpus;
        while left > 0 {
            let node = *self.by_free[1..].iter().find_map(BTreeSet::first)?;
            let share = Share { node, gpus: self.free(node).min(left) };
            self.take(share);
            left -= share.gpus;
            shares.push(share);
        }
        Some(shares)
    }

    /// Gives GPUs back.
    ///
    /// # Panics
    /// If they were not taken.
    pub fn give(&mut self, shares: &[Share]) {
        for share in shares {
            self.put(share.node, self.free(share.node) + share.gpus);
        }
    }

    fn put(&mut self, node: u32, free: u32) {
        let before = core::mem::replace(&mut self.free[node as usize], free);
        self.free_all = self.free_all - before + free;
        self.by_free[before as usize].remove(&node);
        self.by_free[free as usize].insert(node);
    }
}

#[cfg(test)]
mod tests;
