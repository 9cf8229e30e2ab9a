//! Runs a trace under a policy, event by event.
//!
//! At one time ends come first, then arrivals; then the policy is polled until it wants no more.
//! Invariants: no more GPUs are in use than there are, each placed job holds exactly the GPUs of
//! its width, and work is conserved: a job ends when what it did is what it had to do. Memory is
//! linear in the jobs that wait or run: jobs come from an iterator and rows go to an [`Observer`].

use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use thiserror::Error;

use crate::cluster::Cluster;
use crate::job::{Job, JobId, NS_PER_S};
use crate::place::Placer;
use crate::policy::{Change, Decision, Delta, Manner, PolicyError, Scheduler};

mod live;
pub mod rows;
pub mod setup;
pub mod speed;
pub mod summary;

use live::{Jobs, Live};
pub use rows::Row;
use speed::{Overheads, Speeds, Start};

/// What a simulation is made of.
#[derive(Debug)]
pub struct Parts {
    /// The cluster.
    pub cluster: Cluster,
    /// The policy's name, for errors.
    pub policy: String,
    /// How the policy wants rows counted.
    pub manner: Manner,
    /// The policy at work.
    pub scheduler: Box<dyn Scheduler>,
    /// Where jobs go.
    pub placer: Box<dyn Placer>,
    /// How fast they are there.
    pub speeds: Box<dyn Speeds>,
    /// What a start takes.
    pub overheads: Box<dyn Overheads>,
}

/// Sees what happens in a simulation.
pub trait Observer {
    /// A job ended.
    fn ended(&mut self, row: Row<'_>);

    /// From now on so many GPUs are in use, so many jobs run and so many wait.
    fn usage(&mut self, now_ns: u64, usage: Usage) {
        let _ = (now_ns, usage);
    }
}

/// What is in use.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Usage {
    /// GPUs.
    pub gpus: u32,
    /// Jobs that run.
    pub running: u32,
    /// Jobs that wait.
    pub waiting: u32,
}

/// Why a simulation ended early.
#[derive(Debug, Error)]
pub enum SimError {
    /// The policy failed.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// Jobs wait, nothing runs, and the policy wants nothing.
    #[error("policy {policy} lets {waiting} jobs wait for ever, first {job}; {reason}")]
    Stuck {
        /// Which.
        policy: String,
        /// How many jobs wait.
        waiting: u32,
        /// The one that waits longest; of those that found no place, if there are any.
        job: String,
        /// Whether the cluster is too small, or all its GPUs are free.
        reason: &'static str,
    },
    /// The policy was asked [`POLLS_IDLE_MAX`] times while jobs waited, and no job got any further.
    #[error(
        "policy {policy} was asked {POLLS_IDLE_MAX} times until {now_s} s, while {waiting} jobs \
         wait and none comes, ends or works, first {job}"
    )]
    Idle {
        /// Which.
        policy: String,
        /// When.
        now_s: u64,
        /// How many jobs wait.
        waiting: u32,
        /// The one that waits longest.
        job: String,
    },
    /// Something is later than [`TIME_MAX_NS`].
    #[error("after {} years jobs still run under policy {policy}: they are too long or too slow", TIME_MAX_NS / YEAR_NS)]
    TooLong {
        /// Which.
        policy: String,
    },
    /// The jobs did not come in order.
    #[error("job {job} is submitted before the job ahead of it; sort the trace by time")]
    Unsorted {
        /// Which.
        job: String,
    },
}

/// The last time of a simulation, in nanoseconds: 292 years. What a policy wants later is never.
pub const TIME_MAX_NS: u64 = 1 << 63;

const YEAR_NS: u64 = 365 * 86_400 * NS_PER_S;

/// How often a policy may be asked, while jobs wait, without one that comes, ends or works.
pub const POLLS_IDLE_MAX: u32 = 100_000;

/// Runs all jobs, which come in order of submission, to their ends.
///
/// # Errors
/// [`SimError`] when the policy fails or answers what cannot be done.
pub fn run(
    parts: Parts,
    jobs: impl IntoIterator<Item = Job>,
    observer: &mut dyn Observer,
) -> Result<(), SimError> {
    let live = Jobs::new(parts.manner.end_order);
    let mut sim = Sim {
        parts,
        live,
        now_ns: 0,
        decision: Decision::default(),
        unplaced: Vec::new(),
        polls_idle: 0,
    };
    drive(&mut sim, jobs, observer)
}

fn drive(
    sim: &mut Sim,
    jobs: impl IntoIterator<Item = Job>,
    observer: &mut dyn Observer,
) -> Result<(), SimError> {
    let mut trace = jobs.into_iter().peekable();
    let mut again_at_ns: Option<u64> = None;
    loop {
        let submit_ns = trace.peek().map(|job| job.submit_ns);
        if submit_ns.is_none() && sim.live.count() == 0 {
            break;
        }
        let next = [sim.live.next_end_ns(), submit_ns, again_at_ns].into_iter().flatten().min();
        let Some(next_ns) = next else { break };
        if next_ns < sim.now_ns {
            let job = trace.peek().map_or_else(String::new, |job| job.name.as_ref().to_owned());
            return Err(SimError::Unsorted { job });
        }
        if next_ns > TIME_MAX_NS {
            return Err(SimError::TooLong { policy: sim.parts.policy.clone() });
        }
        sim.now_ns = next_ns;
        while let Some(id) = sim.live.ends_at(next_ns) {
            sim.end(id, observer)?;
        }
        while let Some(job) = trace.next_if(|job| job.submit_ns == next_ns) {
            let id = sim.live.arrive(job);
            sim.polls_idle = 0;
            let job = &sim.live.get(id).job;
            sim.parts.scheduler.handle(next_ns, Delta::Arrived { id, job })?;
        }
        again_at_ns = sim.settle()?.filter(|again_ns| *again_ns <= TIME_MAX_NS);
        observer.usage(next_ns, sim.live.usage());
    }
    let gpus = sim.parts.cluster.gpus();
    let has_no_place = |live: &Live| live.is_unplaced || live.job.gpus > gpus;
    let (job, reason) = match sim.live.longest_waiting(has_no_place) {
        Some(job) => (job, "the cluster is too small for them under this placement"),
        None => match sim.live.longest_waiting(|_| true) {
            Some(job) => (job, "it starts none of them though all GPUs are free"),
            None => return Ok(()),
        },
    };
    Err(SimError::Stuck {
        policy: sim.parts.policy.clone(),
        waiting: sim.live.usage().waiting,
        job: job.name.as_ref().to_owned(),
        reason,
    })
}

struct Sim {
    parts: Parts,
    live: Jobs,
    now_ns: u64,
    decision: Decision,
    /// Kept for its memory.
    unplaced: Vec<JobId>,
    /// How often the policy was asked since a job came, ended or worked.
    polls_idle: u32,
}

impl Sim {
    fn end(&mut self, id: JobId, observer: &mut dyn Observer) -> Result<(), SimError> {
        let now_ns = self.now_ns;
        self.polls_idle = 0;
        self.live.settle(id, now_ns);
        let live = self.live.get(id);
        self.parts.placer.observed(id, &live.job, live.speed);
        self.parts.placer.release(id, &live.job, live.gpus, &live.place);
        observer.ended(live.row(now_ns, self.parts.manner));
        self.live.remove(id);
        self.parts.speeds.stopped(id, &mut |id, speed| self.live.change_speed(id, speed, now_ns));
        Ok(self.parts.scheduler.handle(now_ns, Delta::Ended { id })?)
    }

    /// Polls the policy until it wants nothing more now; says when it wants to be asked again.
    fn settle(&mut self) -> Result<Option<u64>, SimError> {
        // Each poll that wants another one changes something, or it would go on for ever.
        let mut polls_left = 16 + 4 * u64::from(self.live.count());
        loop {
            let mut decision = core::mem::take(&mut self.decision);
            decision.clear();
            self.parts.scheduler.poll(self.now_ns, &mut decision)?;
            let done = self.carry_out(&decision);
            self.count_idle(&decision)?;
            let again_at_ns = decision.again_at_ns.map(|again_ns| again_ns.max(self.now_ns));
            self.decision = decision;
            done?;
            let mut unplaced = core::mem::take(&mut self.unplaced);
            let is_again = !unplaced.is_empty() || again_at_ns == Some(self.now_ns);
            for id in unplaced.drain(..) {
                self.parts.scheduler.handle(self.now_ns, Delta::Unplaced { id })?;
            }
            self.unplaced = unplaced;
            if !is_again {
                return Ok(again_at_ns);
            }
            polls_left -= 1;
            if polls_left == 0 {
                return Err(self.refused("it asks again and again at one time".to_owned()).into());
            }
        }
    }

    /// Counts a poll under which no job gets any further: nothing runs but what it started.
    fn count_idle(&mut self, decision: &Decision) -> Result<(), SimError> {
        let Usage { running, waiting, .. } = self.live.usage();
        let changed = decision.changes.iter().filter(|change| change.gpus > 0).count();
        if waiting == 0 || running as usize > changed {
            self.polls_idle = 0;
            return Ok(());
        }
        self.polls_idle += 1;
        if self.polls_idle < POLLS_IDLE_MAX {
            return Ok(());
        }
        let job = self.live.longest_waiting(|_| true);
        Err(SimError::Idle {
            policy: self.parts.policy.clone(),
            now_s: self.now_ns / NS_PER_S,
            waiting,
            job: job.map_or_else(String::new, |job| job.name.as_ref().to_owned()),
        })
    }

    fn carry_out(&mut self, decision: &Decision) -> Result<(), SimError> {
        for id in &decision.promoted {
            let Some(live) = self.live.get_mut(*id) else { return Err(self.no_job(*id).into()) };
            live.promotes += 1;
        }
        let mut grow_count = 0;
        for change in &decision.changes {
            let Some(live) = self.live.get_mut(change.id) else {
                return Err(self.no_job(change.id).into());
            };
            match change.gpus {
                0 if live.gpus == 0 => {
                    let name = live.job.name.to_string();
                    return Err(self.refused(format!("job {name} does not run")).into());
                }
                gpus if gpus < live.gpus => self.resize(*change)?,
                gpus if gpus > live.gpus => grow_count += 1,
                _ => {}
            }
        }
        if grow_count > 0 {
            let grown = decision.changes.iter().filter(|change| change.gpus > 0);
            for change in grown {
                let has = self.live.get(change.id).gpus;
                let in_use = u64::from(self.live.usage().gpus - has) + u64::from(change.gpus);
                if in_use > u64::from(self.parts.cluster.gpus()) {
                    let reason = format!("{in_use} GPUs would be in use");
                    return Err(self.refused(reason).into());
                }
                if change.gpus > has {
                    self.resize(*change)?;
                }
            }
        }
        Ok(())
    }

    /// Stops a job, starts it, or gives it another width.
    fn resize(&mut self, change: Change) -> Result<(), SimError> {
        let Change { id, gpus } = change;
        let now_ns = self.now_ns;
        let was_running = self.live.get(id).gpus > 0;
        if was_running {
            if self.live.settle(id, now_ns) {
                self.polls_idle = 0;
            }
            let live = self.live.get(id);
            self.parts.placer.observed(id, &live.job, live.speed);
            self.parts.placer.release(id, &live.job, live.gpus, &live.place);
            self.live.stop(id, now_ns);
            let changed = &mut |id, speed| self.live.change_speed(id, speed, now_ns);
            self.parts.speeds.stopped(id, changed);
            self.parts.scheduler.handle(now_ns, self.live.get(id).served(id))?;
        }
        if gpus == 0 {
            self.live.count_preemption(id);
            return Ok(());
        }
        let live = self.live.get(id);
        let Some(place) = self.parts.placer.place(id, &live.job, gpus) else {
            if was_running {
                self.live.count_preemption(id);
            }
            self.live.lacks_place(id);
            self.unplaced.push(id);
            return Ok(());
        };
        let start = match (was_running, live.starts) {
            (true, _) => Start::Resized,
            (false, 0) => Start::First,
            (false, _) => Start::Again,
        };
        let overhead_ns = self.parts.overheads.before_work_ns(&live.job, gpus, start);
        self.live.start(id, gpus, place, now_ns, overhead_ns, start);
        // The job is not borrowed while speeds of any job may change.
        let mut speeds = Vec::new();
        let live = self.live.get(id);
        let changed = &mut |id, speed| speeds.push((id, speed));
        self.parts.speeds.started(id, &live.job, gpus, &live.place, changed);
        for (id, speed) in speeds {
            self.live.change_speed(id, speed, now_ns);
        }
        match self.live.get(id) {
            Live { speed, .. } if *speed > 0.0 => Ok(()),
            Live { job, .. } => {
                let reason = format!("job {} cannot run on {gpus} GPUs", job.name);
                Err(self.refused(reason).into())
            }
        }
    }

    fn no_job(&self, id: JobId) -> PolicyError {
        self.refused(format!("there is no job with id {id}"))
    }

    fn refused(&self, reason: String) -> PolicyError {
        PolicyError::BadAnswer { policy: self.parts.policy.clone(), reason }
    }
}

#[cfg(test)]
mod tests;
