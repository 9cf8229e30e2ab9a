//! `dlas-gpu` as ElasticFlow's simulator has it, a descendant of Tiresias' public one.
//!
//! Equal in rule to gudiandian/ElasticFlow at b3f5ea4: whole seconds; jobs are looked at not more
//! often than once in a slot of 240 s, so who comes in between waits for the slot's end; a start
//! takes 2 + 2 (log2 gpus + 1) s ([`StartOverhead`]), which is no service; at every 240th look all
//! running jobs start again, which takes 27 s more. Else as [`super::tiresias_compat`], the late
//! demotion included, rounded up and not down.
//!
//! Differs where a job goes on after a preemption: here that takes 27 s more too, there only a
//! periodic restart does; and a job that ends before anything else happened pays for its start.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::{
    Change, Decision, Delta, Jobs, Manner, Policy, PolicyError, Registry, Scheduler, Setting,
};
use crate::job::{Job, JobId, NS_PER_S};
use crate::sim::speed::{Overheads, Start};

/// The policies in ElasticFlow's manner.
pub const REGISTRY: Registry<Jobs> = Registry { listed: &[&DlasGpu], families: &[] };

/// 2D-LAS by GPU time, discretised.
#[derive(Clone, Copy, Debug)]
pub struct DlasGpu;

impl Policy<Jobs> for DlasGpu {
    fn name(&self) -> &str {
        "dlas-gpu"
    }

    fn manner(&self) -> Manner {
        Manner::default()
    }

    fn plan(&self, setting: &Setting) -> Result<Box<dyn Scheduler>, PolicyError> {
        let given = setting.knobs.queue_limits_ns.iter().map(|limit_ns| limit_ns / NS_PER_S);
        let limits_s: Vec<u64> = given.collect();
        let limits_s = if limits_s.is_empty() { LIMITS_S.to_vec() } else { limits_s };
        Ok(Box::new(Slotted {
            gpus: setting.cluster.gpus(),
            jobs: Vec::new(),
            queues: vec![Vec::new(); limits_s.len() + 1],
            limits_s,
            looked_s: None,
            looks: 0,
            is_restarting: false,
            jump_s: None,
            is_stale: false,
        }))
    }
}

/// What a start takes in ElasticFlow's simulator.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct StartOverhead;

impl Overheads for StartOverhead {
    fn before_work_ns(&self, _: &Job, gpus: u32, start: Start) -> u64 {
        overhead_s(gpus, start) * NS_PER_S
    }
}

/// A width that is no power of two counts as the next lower one: whole seconds.
fn overhead_s(gpus: u32, start: Start) -> u64 {
    let again_s = if start == Start::First { 0 } else { 27 };
    2 + 2 * (u64::from(gpus.max(1).ilog2()) + 1) + again_s
}

/// Limits of the first two queues, in GPU-seconds.
const LIMITS_S: [u64; 2] = [3_250, 7_200];

/// The least time from one look to the next.
const SLOT_S: u64 = 240;

/// All running jobs start again at every so many looks.
const LOOKS_TO_RESTART: u64 = 240;

/// The policy at work. Times in whole seconds.
#[derive(Debug)]
struct Slotted {
    gpus: u32,
    /// By [`JobId`].
    jobs: Vec<Option<Entry>>,
    queues: Vec<Vec<JobId>>,
    limits_s: Vec<u64>,
    looked_s: Option<u64>,
    looks: u64,
    /// All running jobs were stopped, and start again now.
    is_restarting: bool,
    /// When a queue is looked at for a demotion.
    jump_s: Option<u64>,
    /// Whether a job came or ended since the last look.
    is_stale: bool,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    gpus: u32,
    queue: usize,
    is_running: bool,
    has_run: bool,
    executed_s: u64,
    /// Until when its service is counted; ahead of now while it starts.
    counted_s: u64,
}

impl Slotted {
    fn entry(&mut self, id: JobId) -> &mut Entry {
        self.jobs[id.index()].as_mut().expect("in a queue, so known")
    }

    /// Counts service, and moves jobs that had enough down by one queue.
    fn count(&mut self, now_s: u64) {
        for index in 0..self.jobs.len() {
            let Some(entry) = &mut self.jobs[index] else { continue };
            if !entry.is_running {
                continue;
            }
            entry.executed_s += now_s.saturating_sub(entry.counted_s);
            entry.counted_s = entry.counted_s.max(now_s);
            let from = entry.queue;
            let service = entry.executed_s * u64::from(entry.gpus);
            if self.limits_s.get(from).is_some_and(|limit| service >= *limit) {
                entry.queue += 1;
                let id = JobId(u32::try_from(index).unwrap_or(u32::MAX));
                self.queues[from].retain(|other| *other != id);
                self.queues[from + 1].push(id);
            }
        }
    }

    /// Runs whatever fits, from the first queue on.
    fn fill(&mut self, now_s: u64, changes: &mut Vec<Change>) {
        let mut free = self.gpus;
        let order: Vec<JobId> = self.queues.iter().flatten().copied().collect();
        for id in order {
            let entry = self.entry(id);
            let runs = entry.gpus <= free;
            if runs {
                free -= entry.gpus;
            }
            if runs == entry.is_running {
                continue;
            }
            if runs {
                let start = if entry.has_run { Start::Again } else { Start::First };
                entry.counted_s = now_s + overhead_s(entry.gpus, start);
                entry.has_run = true;
            }
            entry.is_running = runs;
            changes.push(Change { id, gpus: if runs { entry.gpus } else { 0 } });
        }
        for queue in &mut self.queues {
            let jobs = &self.jobs;
            queue.sort_by_key(|id| jobs[id.index()].as_ref().is_none_or(|e| !e.is_running));
        }
    }

    fn stop_all(&mut self, changes: &mut Vec<Change>) {
        for (index, entry) in self.jobs.iter_mut().enumerate() {
            if let Some(entry) = entry.as_mut().filter(|entry| entry.is_running) {
                entry.is_running = false;
                let id = JobId(u32::try_from(index).unwrap_or(u32::MAX));
                changes.push(Change { id, gpus: 0 });
            }
        }
    }

    /// When a running job is taken to reach its queue's limit: the oddity of the public simulator.
    fn next_jump_s(&self, now_s: u64) -> Option<u64> {
        let running = self.jobs.iter().flatten().filter(|entry| entry.is_running);
        let jump = |entry: &Entry| {
            let limit = self.limits_s.get(entry.queue)?;
            let left = limit.saturating_sub(entry.executed_s);
            Some(now_s + left.div_ceil(entry.gpus.into()))
        };
        running.filter_map(jump).min()
    }
}

impl Scheduler for Slotted {
    fn handle(&mut self, now_ns: u64, delta: Delta<'_>) -> Result<(), PolicyError> {
        match delta {
            Delta::Arrived { id, job } => {
                if self.jobs.len() <= id.index() {
                    self.jobs.resize(id.index() + 1, None);
                }
                self.jobs[id.index()] = Some(Entry {
                    gpus: job.gpus,
                    queue: 0,
                    is_running: false,
                    has_run: false,
                    executed_s: 0,
                    counted_s: now_ns / NS_PER_S,
                });
                self.queues[0].push(id);
                self.is_stale = true;
            }
            Delta::Ended { id } => {
                if let Some(entry) = self.jobs[id.index()].take() {
                    self.queues[entry.queue].retain(|other| *other != id);
                }
                self.is_stale = true;
            }
            Delta::Unplaced { id } => self.entry(id).is_running = false,
            Delta::Served { .. } => {}
        }
        Ok(())
    }

    fn poll(&mut self, now_ns: u64, decision: &mut Decision) -> Result<(), PolicyError> {
        let now_s = now_ns.div_ceil(NS_PER_S);
        let open_s = self.looked_s.map_or(0, |looked_s| looked_s + SLOT_S);
        let is_due = self.is_stale || self.jump_s.is_some_and(|jump_s| jump_s <= now_s);
        if is_due && now_s >= open_s || self.is_restarting {
            self.looked_s = Some(now_s);
            self.is_stale = false;
            if !self.is_restarting {
                self.count(now_s);
                let restarts = self.looks > 0 && self.looks.is_multiple_of(LOOKS_TO_RESTART);
                self.looks += 1;
                if restarts {
                    self.is_restarting = true;
                    self.stop_all(&mut decision.changes);
                    decision.again_at_ns = Some(now_ns);
                    return Ok(());
                }
            }
            self.is_restarting = false;
            self.fill(now_s, &mut decision.changes);
            self.jump_s = self.next_jump_s(now_s);
        }
        let open_s = self.looked_s.map_or(0, |looked_s| looked_s + SLOT_S);
        let wanted_s = if self.is_stale { Some(open_s) } else { self.jump_s };
        decision.again_at_ns =
            wanted_s.map(|wanted_s| wanted_s.max(open_s).saturating_mul(NS_PER_S));
        Ok(())
    }
}
