//! The policies of Tiresias' public simulator, with its rules and its oddities.
//!
//! Equal to SymbioticLab/Tiresias at 959f9b0 on CPython 2.7, job by job and row by row, where GPUs
//! are counted. Time is in whole seconds, and every event looks at every job, as it does there. The
//! oddities that `exact` mode does not have:
//!
//! - three queues, of which a job that went down is noticed late: the next demotion is looked for
//!   at `(limit - executed) / gpus`, not at `(limit - executed x gpus) / gpus`;
//! - a job goes down one queue an event, however much it ran;
//! - the Gittins index divides by total sizes, not by what is left of them, and in whole numbers;
//! - names with a knob after `gittins` have no index: `dlas-gpu-gittins-8` is `dlas-gpu-8`.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::{
    Change, Decision, Delta, EndOrder, Family, Jobs, Knobs, Manner, Policy, PolicyError, Registry,
    Scheduler, Setting, fifo, gittins, knob_of,
};
use crate::job::{Job, JobId, NS_PER_S};
use weft_plan::float;

/// The policies of the public simulator.
pub const REGISTRY: Registry<Jobs> = Registry {
    listed: &[
        &Public { name: "dlas-gpu", rule: Rule::GPU_TIME, knob: None },
        &Strict("fifo", fifo::Fifo),
        &Strict("fjf", fifo::Backfill),
        &Public { name: "sjf", rule: Rule::Narrowest, knob: None },
        &Public { name: "shortest", rule: Rule::Remaining { by_gpu: false }, knob: None },
        &Public { name: "shortest-gpu", rule: Rule::Remaining { by_gpu: true }, knob: None },
        &Public { name: "dlas", rule: Rule::TIME, knob: None },
        &Public { name: "dlas-gpu-gittins", rule: Rule::GITTINS, knob: None },
    ],
    families: &[Family {
        pattern: "dlas-gpu-KNOB",
        member: |name| {
            let knob = knob_of(name, "dlas-gpu-gittins-").or_else(|| knob_of(name, "dlas-gpu-"))?;
            Some(Arc::new(Public {
                name: String::from(name),
                rule: Rule::GPU_TIME,
                knob: Some(knob),
            }))
        },
    }],
};

/// Cuts times off to whole seconds, as the public simulator reads them.
pub fn in_whole_seconds(jobs: &mut [Job]) {
    for job in jobs {
        job.submit_ns -= job.submit_ns % NS_PER_S;
        job.duration_ns -= job.duration_ns % NS_PER_S;
    }
}

/// A policy that stops no job.
struct Strict<P>(&'static str, P);

impl<P: Policy<Jobs>> Policy<Jobs> for Strict<P> {
    fn name(&self) -> &str {
        self.0
    }

    fn manner(&self) -> Manner {
        Manner { counts_no_resumes: true, end_order: EndOrder::Start, ..Manner::default() }
    }

    fn plan(&self, setting: &Setting) -> Result<Box<dyn Scheduler>, PolicyError> {
        self.1.plan(setting)
    }
}

/// A policy that may stop any job at any event.
struct Public<N> {
    name: N,
    rule: Rule,
    /// PROMOTEKNOB.
    knob: Option<f64>,
}

/// In which order jobs are looked at.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Rule {
    /// Fewest GPUs first.
    Narrowest,
    /// Shortest remaining time, or GPU time, first.
    Remaining { by_gpu: bool },
    /// Queues by attained time, or GPU time.
    Queues { by_gpu: bool, by_index: bool },
}

impl Rule {
    const TIME: Self = Self::Queues { by_gpu: false, by_index: false };
    const GPU_TIME: Self = Self::Queues { by_gpu: true, by_index: false };
    const GITTINS: Self = Self::Queues { by_gpu: true, by_index: true };
}

impl<N: AsRef<str> + Send + Sync> Policy<Jobs> for Public<N> {
    fn name(&self) -> &str {
        self.name.as_ref()
    }

    fn manner(&self) -> Manner {
        let end_order = match self.rule {
            Rule::Narrowest | Rule::Remaining { by_gpu: true } => EndOrder::Narrow,
            _ => EndOrder::Arrival,
        };
        Manner { end_order, ..Manner::default() }
    }

    fn plan(&self, setting: &Setting) -> Result<Box<dyn Scheduler>, PolicyError> {
        let Knobs { queue_limits_ns, promote_knob, history_gpu_ns, .. } = &setting.knobs;
        let limits_s: Vec<i64> = match queue_limits_ns.is_empty() {
            true => LIMITS_S.to_vec(),
            false => queue_limits_ns.iter().map(|limit_ns| seconds(*limit_ns)).collect(),
        };
        let index = match self.rule {
            Rule::GITTINS => gittins::PublicTable::new(&gittins::history_s(history_gpu_ns)),
            _ => gittins::PublicTable::default(),
        };
        Ok(Box::new(Clockwork {
            rule: self.rule,
            knob: self.knob.or(*promote_knob),
            index,
            gpus: setting.cluster.gpus().into(),
            jobs: Vec::new(),
            queues: vec![Vec::new(); limits_s.len() + 1],
            limits_s,
        }))
    }
}

/// Limits of the first two queues, in seconds or GPU-seconds.
const LIMITS_S: [i64; 2] = [3_250, 7_200];

/// All jobs that wait or run, looked at one by one. Times in whole seconds.
#[derive(Debug)]
struct Clockwork {
    rule: Rule,
    knob: Option<f64>,
    index: gittins::PublicTable,
    gpus: i64,
    limits_s: Vec<i64>,
    /// In order of arrival, or as last sorted.
    jobs: Vec<Entry>,
    queues: Vec<Vec<JobId>>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    id: JobId,
    gpus: i64,
    submit_s: i64,
    duration_s: i64,
    is_running: bool,
    checked_s: i64,
    total_s: i64,
    /// What decides its queue; back to 0 when it is promoted.
    executed_s: i64,
    waited_s: i64,
    queue: usize,
    index: f64,
}

impl Scheduler for Clockwork {
    fn handle(&mut self, now_ns: u64, delta: Delta<'_>) -> Result<(), PolicyError> {
        match delta {
            Delta::Arrived { id, job } => {
                self.jobs.push(Entry {
                    id,
                    gpus: job.gpus.into(),
                    submit_s: seconds(job.submit_ns),
                    duration_s: seconds(job.duration_ns),
                    is_running: false,
                    checked_s: seconds(now_ns),
                    total_s: 0,
                    executed_s: 0,
                    waited_s: 0,
                    queue: 0,
                    index: 0.0,
                });
                self.queues[0].push(id);
            }
            Delta::Ended { id } => {
                self.jobs.retain(|entry| entry.id != id);
                self.queues.iter_mut().for_each(|queue| queue.retain(|other| *other != id));
            }
            // It counts by itself. Places never lack where GPUs are only counted.
            Delta::Served { .. } | Delta::Unplaced { .. } => {}
        }
        Ok(())
    }

    fn poll(&mut self, now_ns: u64, decision: &mut Decision) -> Result<(), PolicyError> {
        let now_s = seconds(now_ns);
        match self.rule {
            Rule::Narrowest => self.advance(now_s, |entry| entry.gpus),
            Rule::Remaining { by_gpu } => self.advance(now_s, |entry| {
                let remaining_s = entry.duration_s - entry.total_s;
                if by_gpu { remaining_s * entry.gpus } else { remaining_s }
            }),
            Rule::Queues { by_gpu, by_index } => {
                for position in 0..self.jobs.len() {
                    self.advance_in_queues(position, now_s, by_gpu, by_index, decision);
                }
            }
        }
        self.choose(decision);
        if let Rule::Queues { by_gpu, .. } = self.rule {
            let jump_s = self.jobs.iter().filter_map(|entry| self.jump_s(entry, by_gpu)).min();
            decision.again_at_ns = jump_s.map(|jump_s| time_ns(now_s.saturating_add(jump_s)));
        }
        Ok(())
    }
}

impl Clockwork {
    fn advance(&mut self, now_s: i64, key: impl Fn(&Entry) -> i64) {
        for entry in &mut self.jobs {
            if entry.is_running {
                entry.total_s += now_s - entry.checked_s;
            }
            entry.checked_s = now_s;
        }
        self.jobs.sort_by_key(key);
        self.queues[0] = self.jobs.iter().map(|entry| entry.id).collect();
    }

    fn advance_in_queues(
        &mut self,
        position: usize,
        now_s: i64,
        by_gpu: bool,
        by_index: bool,
        decision: &mut Decision,
    ) {
        let Self { jobs, queues, limits_s, .. } = self;
        let entry = &mut jobs[position];
        let passed_s = now_s - entry.checked_s;
        entry.checked_s = now_s;
        let mut to = entry.queue;
        if entry.is_running {
            entry.total_s += passed_s;
            entry.executed_s += passed_s;
            let limit_s = limits_s.get(entry.queue);
            if limit_s.is_some_and(|limit_s| entry.served_s(by_gpu) >= *limit_s) {
                to = entry.queue + 1;
            }
        } else if entry.executed_s > 0 {
            entry.waited_s += passed_s;
            if let Some(knob) = self.knob
                && entry.queue > 0
                && entry.waited_s >= whole(entry.executed_s as f64 * knob)
            {
                (entry.executed_s, entry.waited_s) = (0, 0);
                decision.promoted.push(entry.id);
                to = 0;
            }
        }
        if to != entry.queue {
            queues[entry.queue].retain(|id| *id != entry.id);
            queues[to].push(entry.id);
            entry.queue = to;
        }
        if by_index {
            entry.index = self.index.at(entry.served_s(by_gpu));
        }
    }

    /// Goes through all queues from the first; what fits runs, and the others wait.
    fn choose(&mut self, decision: &mut Decision) {
        let Self { jobs, queues, .. } = self;
        let mut at = vec![usize::MAX; jobs.iter().map(|e| e.id.index() + 1).max().unwrap_or(0)];
        for (position, entry) in jobs.iter().enumerate() {
            at[entry.id.index()] = position;
        }
        let mut free = self.gpus;
        for queue in queues {
            if self.rule == Rule::GITTINS {
                let place = |id: &JobId| &jobs[at[id.index()]];
                queue.sort_by(|a, b| {
                    let (a, b) = (place(a), place(b));
                    b.index.total_cmp(&a.index).then(a.submit_s.cmp(&b.submit_s))
                });
            }
            for id in queue.iter() {
                let entry = &mut jobs[at[id.index()]];
                let runs = free >= entry.gpus;
                if runs {
                    free -= entry.gpus;
                }
                if core::mem::replace(&mut entry.is_running, runs) != runs {
                    let gpus = if runs { u32::try_from(entry.gpus).unwrap_or(0) } else { 0 };
                    decision.changes.push(Change { id: *id, gpus });
                }
            }
            queue.sort_by_key(|id| !jobs[at[id.index()]].is_running);
        }
    }

    /// In how many seconds a job may change its queue, as it is looked for there.
    fn jump_s(&self, entry: &Entry, by_gpu: bool) -> Option<i64> {
        if entry.is_running {
            let left_s = self.limits_s.get(entry.queue)? - entry.executed_s;
            // Where it would be looked for at the same time again, a second later.
            let later_s = i64::from(left_s > 0);
            return Some(if by_gpu { left_s.div_euclid(entry.gpus).max(later_s) } else { left_s });
        }
        let knob = self.knob.filter(|_| entry.queue > 0 && entry.executed_s > 0)?;
        let left_s = whole(entry.executed_s as f64 * knob - entry.waited_s as f64);
        (left_s > 0).then_some(left_s)
    }
}

impl Entry {
    const fn served_s(&self, by_gpu: bool) -> i64 {
        if by_gpu { self.executed_s * self.gpus } else { self.executed_s }
    }
}

/// Whole seconds.
fn seconds(time_ns: u64) -> i64 {
    i64::try_from(time_ns / NS_PER_S).unwrap_or(i64::MAX)
}

fn time_ns(time_s: i64) -> u64 {
    u64::try_from(time_s).unwrap_or(0).saturating_mul(NS_PER_S)
}

/// Cut off to a whole number.
#[expect(clippy::cast_possible_truncation, reason = "casts of floats clamp")]
fn whole(number: f64) -> i64 {
    float::floor(number) as i64
}
