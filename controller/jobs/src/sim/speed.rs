//! How fast jobs are where they run, and what a start takes: what a simulation is given.

use alloc::sync::Arc;
use core::fmt;

use crate::job::{Job, JobId};
use crate::place::Share;
use crate::place::skew::is_skewed;
use crate::policy::Widths;

/// How fast jobs are where they run. 1 is as the trace says.
pub trait Speeds: fmt::Debug {
    /// A job runs from now on. Names its speed, and the speed of every other job that changes with
    /// it.
    fn started(
        &mut self,
        id: JobId,
        job: &Job,
        gpus: u32,
        shares: &[Share],
        changed: &mut dyn FnMut(JobId, f64),
    );

    /// It runs no longer. Names every other job whose speed changes with that.
    fn stopped(&mut self, id: JobId, changed: &mut dyn FnMut(JobId, f64)) {
        let _ = (id, changed);
    }
}

/// Speeds that depend on nothing but the width.
#[derive(Clone, Debug)]
pub struct ByWidth(pub Arc<dyn Widths>);

impl Speeds for ByWidth {
    fn started(
        &mut self,
        id: JobId,
        job: &Job,
        gpus: u32,
        _: &[Share],
        changed: &mut dyn FnMut(JobId, f64),
    ) {
        changed(id, self.0.speedup(job, gpus));
    }
}

/// Speeds by width, where a skewed model on more nodes than it needs is slower.
#[derive(Clone, Debug)]
pub struct BySpread {
    /// By width.
    pub widths: Arc<dyn Widths>,
    /// GPUs of one node.
    pub gpus_per_node: u32,
    /// PACKLIMIT: whose models are skewed.
    pub pack_limit: f64,
    /// How many times as long such a job takes; 1 is as long.
    pub slowdown: f64,
}

impl Speeds for BySpread {
    fn started(
        &mut self,
        id: JobId,
        job: &Job,
        gpus: u32,
        shares: &[Share],
        changed: &mut dyn FnMut(JobId, f64),
    ) {
        let speed = self.widths.speedup(job, gpus);
        let nodes_least = gpus.div_ceil(self.gpus_per_node) as usize;
        let is_spread = shares.len() > nodes_least && is_skewed(&job.model, self.pack_limit);
        changed(id, if is_spread { speed / self.slowdown } else { speed });
    }
}

/// Why a job starts.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Start {
    /// It never ran.
    First,
    /// It was stopped before.
    Again,
    /// It ran until now on another number of GPUs.
    Resized,
}

/// What a start takes.
pub trait Overheads: fmt::Debug {
    /// How long the job holds its GPUs before it works.
    fn before_work_ns(&self, job: &Job, gpus: u32, start: Start) -> u64;
}

/// The same for every job.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Costs {
    /// Going on after a stop: the checkpoint that was written and is read.
    pub preemption_ns: u64,
    /// Going on with another width.
    pub restart_ns: u64,
}

impl Overheads for Costs {
    fn before_work_ns(&self, _: &Job, _: u32, start: Start) -> u64 {
        match start {
            Start::First => 0,
            Start::Again => self.preemption_ns,
            Start::Resized => self.restart_ns,
        }
    }
}
