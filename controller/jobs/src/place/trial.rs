//! Placement by trial, like Gandiva's (OSDI'18, section 4.2): a model is tried in fragments and on
//! few nodes, and then goes where it was faster.
//!
//! What is learnt holds for all jobs of one model; a job without a model learns for itself alone.
//! No size of a tensor is known here. Trials come with the starts that time slicing makes anyway; a
//! job that is never stopped stays where it is.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::{Nodes, Placer, Share};
use crate::job::{Job, JobId};

/// The placer.
#[derive(Debug)]
pub(super) struct Trial {
    nodes: Nodes,
    learnt: BTreeMap<Arc<str>, Learnt>,
    /// How a job was placed, by id.
    packed: Vec<bool>,
}

/// The worst speeds seen, by way of placing.
#[derive(Clone, Copy, Debug, Default)]
struct Learnt {
    in_fragments: Option<f64>,
    packed: Option<f64>,
}

impl Trial {
    pub(super) const fn new(nodes: Nodes) -> Self {
        Self { nodes, learnt: BTreeMap::new(), packed: Vec::new() }
    }

    fn key(job: &Job) -> &Arc<str> {
        if job.model.is_empty() { &job.name } else { &job.model }
    }
}

impl Placer for Trial {
    fn place(&mut self, id: JobId, job: &Job, gpus: u32) -> Option<Vec<Share>> {
        let learnt = self.learnt.get(Self::key(job)).copied().unwrap_or_default();
        let is_packed = match (learnt.in_fragments, learnt.packed) {
            (None, _) => false,
            (Some(_), None) => true,
            (Some(in_fragments), Some(packed)) => packed > in_fragments,
        };
        self.packed.resize(self.packed.len().max(id.index() + 1), false);
        self.packed[id.index()] = is_packed;
        if is_packed { self.nodes.take_packed(gpus) } else { self.nodes.take_fragments(gpus) }
    }

    fn release(&mut self, _: JobId, _: &Job, _: u32, shares: &[Share]) {
        self.nodes.give(shares);
    }

    fn observed(&mut self, id: JobId, job: &Job, speed: f64) {
        let learnt = self.learnt.entry(Arc::clone(Self::key(job))).or_default();
        let worst = match self.packed[id.index()] {
            true => &mut learnt.packed,
            false => &mut learnt.in_fragments,
        };
        *worst = Some(worst.map_or(speed, |before| before.min(speed)));
    }
}
