//! Two-dimensional attained service in queues: discretised 2D-LAS and 2D-Gittins.
//!
//! A job that was served `a = GPUs x time` is in the queue whose limits hold `a`; the first queue
//! goes first. Inside a queue the order is that of first starts, or of the Gittins index with `D` =
//! the queue's upper limit; the last queue has no `D` and keeps the order of starts. Only a job of
//! an earlier queue, or of a higher index, stops another. A job that waited `knob` times as long as
//! it ran goes back to the first queue, and both clocks start from 0. Source: Tiresias, NSDI'19,
//! sections 3.2 and 3.3.
//!
//! Invariants: no job of an earlier queue waits while GPUs that it could use have a job of a later
//! one; with a knob, no job that ran waits longer than that between two stays in the first queue.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::gittins::Index;
use super::greedy::{Greedy, Rank};
use super::{
    Decision, Delta, Family, Jobs, NEVER_NS, Policy, PolicyError, Scheduler, Setting, knob_of,
};
use crate::job::{JobId, NS_PER_S};

/// Queues by attained service. Looks at the knobs `queue_limits_ns`, `promote_knob`,
/// `starvation_limit_ns`, and with an index at `history_gpu_ns`, `gittins_table` and `quantum_ns`.
#[derive(Clone, Copy, Debug)]
pub struct AttainedService<N = &'static str> {
    name: N,
    is_by_gpu: bool,
    is_by_index: bool,
    knob: Option<f64>,
}

impl AttainedService {
    /// By time alone, whatever the width.
    pub const TIME: Self = Self { name: "dlas", is_by_gpu: false, is_by_index: false, knob: None };
    /// By time x GPUs: 2D-LAS.
    pub const GPU_TIME: Self =
        Self { name: "dlas-gpu", is_by_gpu: true, is_by_index: false, knob: None };
    /// By time x GPUs, and by Gittins index inside a queue: 2D-Gittins.
    pub const GITTINS: Self =
        Self { name: "dlas-gpu-gittins", is_by_gpu: true, is_by_index: true, knob: None };
}

/// `dlas-gpu-KNOB`: 2D-LAS with a knob of its own.
pub const WITH_KNOB: Family<Jobs> =
    Family { pattern: "dlas-gpu-KNOB", member: |name| with_knob(name, "dlas-gpu-", false) };

/// `dlas-gpu-gittins-KNOB`: 2D-Gittins with a knob of its own.
pub const GITTINS_WITH_KNOB: Family<Jobs> = Family {
    pattern: "dlas-gpu-gittins-KNOB",
    member: |name| with_knob(name, "dlas-gpu-gittins-", true),
};

fn with_knob(name: &str, prefix: &str, is_by_index: bool) -> Option<Arc<dyn Policy<Jobs>>> {
    let knob = Some(knob_of(name, prefix)?);
    Some(Arc::new(AttainedService { name: String::from(name), is_by_gpu: true, is_by_index, knob }))
}

impl<N: AsRef<str> + Send + Sync> Policy<Jobs> for AttainedService<N> {
    fn name(&self) -> &str {
        self.name.as_ref()
    }

    fn plan(&self, setting: &Setting) -> Result<Box<dyn Scheduler>, PolicyError> {
        Ok(Box::new(self.queues(setting)))
    }
}

impl<N> AttainedService<N> {
    fn queues(&self, setting: &Setting) -> Queues {
        let knobs = &setting.knobs;
        let limits_ns = match knobs.queue_limits_ns.is_empty() {
            true => LIMITS_DEFAULT_NS.to_vec(),
            false => knobs.queue_limits_ns.clone(),
        };
        Queues {
            greedy: Greedy::new(setting.cluster.gpus(), |_| 0),
            is_by_gpu: self.is_by_gpu,
            index: self.is_by_index.then(|| Index::new(knobs)),
            limits_ns,
            knob: self.knob.or(knobs.promote_knob),
            starvation_limit_ns: knobs.starvation_limit_ns,
            tick_ns: if knobs.quantum_ns == 0 { TICK_DEFAULT_NS } else { knobs.quantum_ns },
            ticked_ns: 0,
            jobs: Vec::new(),
            timers: BTreeSet::new(),
            entries: 0,
            starts: 0,
        }
    }
}

/// Limits of the first two queues, in GPU-nanoseconds: those of the public simulator.
pub const LIMITS_DEFAULT_NS: [u64; 2] = [3_250 * NS_PER_S, 7_200 * NS_PER_S];

/// How often the indices of running jobs are worked out again while others wait.
const TICK_DEFAULT_NS: u64 = 60 * NS_PER_S;

/// A tie of a job that did not start since it entered the first queue: behind all that did.
const NOT_STARTED: u64 = 1 << 63;

#[derive(Debug)]
struct Queues {
    greedy: Greedy,
    is_by_gpu: bool,
    index: Option<Index>,
    limits_ns: Vec<u64>,
    knob: Option<f64>,
    starvation_limit_ns: Option<u64>,
    tick_ns: u64,
    ticked_ns: u64,
    jobs: Vec<Entry>,
    /// When a job goes to another queue.
    timers: BTreeSet<(u64, JobId)>,
    entries: u64,
    starts: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    gpus: u32,
    queue: usize,
    tie: u64,
    /// Since when it runs.
    runs_from_ns: Option<u64>,
    waits_from_ns: u64,
    /// Until it was last stopped, since it came.
    executed_ns: u64,
    /// What of that was before it was last promoted.
    forgotten_ns: u64,
    /// Since it was last promoted.
    waited_ns: u64,
    timer_ns: Option<u64>,
}

impl Entry {
    /// Time on GPUs since it came or was promoted.
    fn ran_ns(&self, now_ns: u64) -> u64 {
        let now = self.runs_from_ns.map_or(0, |from_ns| now_ns - from_ns);
        (self.executed_ns + now).saturating_sub(self.forgotten_ns)
    }
}

impl Scheduler for Queues {
    fn handle(&mut self, now_ns: u64, delta: Delta<'_>) -> Result<(), PolicyError> {
        match delta {
            Delta::Arrived { id, job } => {
                self.jobs.resize(self.jobs.len().max(id.index() + 1), Entry::default());
                let tie = self.enter();
                let gpus = job.gpus;
                let waits_from_ns = now_ns;
                self.jobs[id.index()] = Entry { gpus, tie, waits_from_ns, ..Entry::default() };
                self.greedy.add(id, gpus, self.rank(id, now_ns), tie);
            }
            Delta::Ended { id } => {
                self.greedy.remove(id);
                self.set_timer(id, None);
            }
            Delta::Served { id, executed_ns, .. } => {
                let entry = &mut self.jobs[id.index()];
                entry.executed_ns = executed_ns;
                entry.runs_from_ns = entry.runs_from_ns.map(|_| now_ns);
                self.requeue(id, now_ns);
            }
            Delta::Unplaced { id } => {
                self.greedy.unplaced(id, now_ns);
                self.stopped(id, now_ns);
            }
        }
        Ok(())
    }

    fn poll(&mut self, now_ns: u64, decision: &mut Decision) -> Result<(), PolicyError> {
        while let Some((_, id)) = self.timers.first().filter(|(at_ns, _)| *at_ns <= now_ns).copied()
        {
            self.set_timer(id, None);
            if self.jobs[id.index()].runs_from_ns.is_none() {
                self.promote(id, now_ns);
                decision.promoted.push(id);
            }
            self.requeue(id, now_ns);
        }
        let is_tick = self.index.is_some() && now_ns >= self.ticked_ns + self.tick_ns;
        if is_tick {
            self.ticked_ns = now_ns - now_ns % self.tick_ns;
            let running: Vec<JobId> = self.greedy.running().collect();
            running.into_iter().for_each(|id| self.requeue(id, now_ns));
        }
        self.greedy.settle(now_ns, true, decision);
        for change in &decision.changes {
            match change.gpus {
                0 => self.stopped(change.id, now_ns),
                _ => self.started(change.id, now_ns),
            }
        }
        let timer_ns = self.timers.first().map(|(at_ns, _)| *at_ns);
        let has_tick = self.index.is_some() && self.greedy.has_rivals();
        let tick_ns = has_tick.then_some(now_ns - now_ns % self.tick_ns + self.tick_ns);
        decision.again_at_ns = timer_ns.into_iter().chain(tick_ns).min();
        Ok(())
    }
}

impl Queues {
    /// The tie of a job that enters the first queue.
    fn enter(&mut self) -> u64 {
        self.entries += 1;
        NOT_STARTED | self.entries
    }

    fn served_ns(&self, entry: &Entry, now_ns: u64) -> u64 {
        let width = if self.is_by_gpu { entry.gpus } else { 1 };
        entry.ran_ns(now_ns).saturating_mul(width.into())
    }

    fn rank(&self, id: JobId, now_ns: u64) -> Rank {
        let entry = &self.jobs[id.index()];
        let queue = (Rank::try_from(entry.queue).unwrap_or(Rank::MAX >> 64)) << 64;
        let (Some(index), Some(limit_ns)) = (&self.index, self.limits_ns.get(entry.queue)) else {
            return queue;
        };
        queue + index.rank(index.within(self.served_ns(entry, now_ns), *limit_ns))
    }

    /// Puts a job where it belongs now, and sets its timer anew.
    fn requeue(&mut self, id: JobId, now_ns: u64) {
        let entry = self.jobs[id.index()];
        let served_ns = self.served_ns(&entry, now_ns);
        let queue = self.limits_ns.partition_point(|limit_ns| *limit_ns <= served_ns);
        let queue = queue.max(entry.queue);
        self.jobs[id.index()].queue = queue;
        self.greedy.rank(id, now_ns, self.rank(id, now_ns), entry.tie);
        let timer_ns = match entry.runs_from_ns {
            Some(_) => self.limits_ns.get(queue).map(|limit_ns| {
                let width = if self.is_by_gpu { entry.gpus } else { 1 };
                now_ns + (limit_ns - served_ns).div_ceil(width.into())
            }),
            None if queue > 0 => self.promoted_in_ns(&entry, now_ns),
            None => None,
        };
        self.set_timer(id, timer_ns);
    }

    /// When a job that waits in a later queue is promoted.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "casts clamp")]
    fn promoted_in_ns(&self, entry: &Entry, now_ns: u64) -> Option<u64> {
        let limit_ns = self.knob.map(|knob| (entry.ran_ns(now_ns) as f64 * knob) as u64);
        let limit_ns = limit_ns.into_iter().chain(self.starvation_limit_ns).min()?;
        // It is told of later, never of earlier.
        let left_ns = limit_ns.saturating_sub(entry.waited_ns).min(NEVER_NS);
        Some((entry.waits_from_ns + left_ns).max(now_ns))
    }

    fn promote(&mut self, id: JobId, now_ns: u64) {
        let tie = self.enter();
        let entry = &mut self.jobs[id.index()];
        entry.queue = 0;
        entry.tie = tie;
        entry.forgotten_ns = entry.executed_ns;
        (entry.waited_ns, entry.waits_from_ns) = (0, now_ns);
    }

    fn started(&mut self, id: JobId, now_ns: u64) {
        let entry = &mut self.jobs[id.index()];
        entry.runs_from_ns = Some(now_ns);
        // Who waits for the first time is in the first queue already.
        if entry.executed_ns > entry.forgotten_ns {
            entry.waited_ns += now_ns - entry.waits_from_ns;
        }
        if entry.tie & NOT_STARTED != 0 {
            self.starts += 1;
            entry.tie = self.starts;
        }
        self.requeue(id, now_ns);
    }

    fn stopped(&mut self, id: JobId, now_ns: u64) {
        let entry = &mut self.jobs[id.index()];
        if let Some(from_ns) = entry.runs_from_ns.take() {
            entry.executed_ns += now_ns - from_ns;
            entry.waits_from_ns = now_ns;
        }
        self.requeue(id, now_ns);
    }

    fn set_timer(&mut self, id: JobId, at_ns: Option<u64>) {
        let before_ns = core::mem::replace(&mut self.jobs[id.index()].timer_ns, at_ns);
        if let Some(before_ns) = before_ns {
            self.timers.remove(&(before_ns, id));
        }
        if let Some(at_ns) = at_ns {
            self.timers.insert((at_ns, id));
        }
    }
}

#[cfg(test)]
mod tests;
