//! A policy of jobs on jobs that really run: what was seen of them becomes deltas, what the policy
//! says becomes words. Pure; the controller says the words, and looks again in a while.
//!
//! Attained service is what ran: the driver is told it, and a running job is served as time goes
//! only between two looks. A word that is not obeyed (the job is just being resized, an operator
//! paused it) is said again at the next look: what counts is what the policy wants now.
//!
//! Invariant: of a job that is not settled, and of one that somebody else paused, nothing is said.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::job::{Job, JobId};
use crate::policy::{Decision, Delta, PolicyError, Scheduler};

/// A job as it is seen.
#[derive(Clone, Debug, PartialEq)]
pub struct View<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its workers: those that it has, or had when it was paused.
    pub workers: u32,
    /// Those that it asked for.
    pub asked: u32,
    /// Whether it runs.
    pub is_running: bool,
    /// A word of a policy would be obeyed now.
    pub is_steerable: bool,
    /// Time that it ran.
    pub executed_ns: u64,
    /// That times its workers of the time.
    pub service_ns: u64,
    /// Time that is left on the workers that it asked for, where it is known; else 0.
    pub remaining_ns: u64,
}

/// What a policy wants of a job.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Word {
    /// It is to pause.
    Pause(String),
    /// It is to go on.
    Resume(String),
    /// It is to have so many workers.
    Resize(String, u32),
}

/// A policy at work on jobs that run.
#[derive(Debug)]
pub struct Live {
    scheduler: Box<dyn Scheduler>,
    jobs: BTreeMap<String, Known>,
    free: BTreeSet<JobId>,
    decision: Decision,
    looked_ns: u64,
}

#[derive(Clone, Copy, Debug)]
struct Known {
    id: JobId,
    /// What the policy wants; 0: that it is paused.
    workers: u32,
    told: (u64, u64),
}

impl Live {
    /// Of a policy that knows of no job yet.
    #[must_use]
    pub fn new(scheduler: Box<dyn Scheduler>) -> Self {
        Self {
            scheduler,
            jobs: BTreeMap::new(),
            free: BTreeSet::new(),
            decision: Decision::default(),
            looked_ns: 0,
        }
    }

    /// Takes in all jobs that there are, and says what is to change.
    ///
    /// # Errors
    /// [`PolicyError`] of the policy.
    pub fn look(&mut self, now_ns: u64, views: &[View<'_>]) -> Result<Vec<Word>, PolicyError> {
        // Times never go back.
        let now_ns = now_ns.max(self.looked_ns);
        self.looked_ns = now_ns;
        self.take_ends(now_ns, views)?;
        for view in views {
            self.take(now_ns, view)?;
        }
        for _ in 0..POLLS_MAX {
            self.decision.clear();
            self.scheduler.poll(now_ns, &mut self.decision)?;
            for change in &self.decision.changes {
                for known in self.jobs.values_mut().filter(|known| known.id == change.id) {
                    known.workers = change.gpus;
                }
            }
            if self.decision.again_at_ns.is_none_or(|again_ns| again_ns > now_ns) {
                break;
            }
        }
        Ok(views.iter().filter_map(|view| self.word(view)).collect())
    }

    fn take_ends(&mut self, now_ns: u64, views: &[View<'_>]) -> Result<(), PolicyError> {
        let is_there = |name: &String| views.iter().any(|view| view.name == name);
        let ended: Vec<String> = self.jobs.keys().filter(|name| !is_there(name)).cloned().collect();
        for name in ended {
            if let Some(known) = self.jobs.remove(&name) {
                self.scheduler.handle(now_ns, Delta::Ended { id: known.id })?;
                self.free.insert(known.id);
            }
        }
        Ok(())
    }

    fn take(&mut self, now_ns: u64, view: &View<'_>) -> Result<(), PolicyError> {
        let told = (view.executed_ns, view.service_ns);
        let id = match self.jobs.get_mut(view.name) {
            Some(known) if known.told == told => return Ok(()),
            Some(known) => {
                known.told = told;
                known.id
            }
            None => {
                let next = JobId(u32::try_from(self.jobs.len()).unwrap_or(u32::MAX));
                let id = self.free.pop_first().unwrap_or(next);
                let known = Known { id, workers: 0, told };
                self.jobs.insert(view.name.into(), known);
                let job = Job {
                    name: Arc::from(view.name),
                    gpus: view.asked,
                    submit_ns: now_ns,
                    duration_ns: view.executed_ns.saturating_add(view.remaining_ns),
                    model: Arc::from(""),
                    iterations: 0,
                    global_batch: 0,
                };
                self.scheduler.handle(now_ns, Delta::Arrived { id, job: &job })?;
                if told == (0, 0) {
                    return Ok(());
                }
                id
            }
        };
        self.scheduler.handle(
            now_ns,
            Delta::Served {
                id,
                executed_ns: view.executed_ns,
                gpu_ns: view.service_ns,
                remaining_ns: view.remaining_ns,
            },
        )
    }

    fn word(&self, view: &View<'_>) -> Option<Word> {
        let known = self.jobs.get(view.name).filter(|_| view.is_steerable)?;
        let name = String::from(view.name);
        match (view.is_running, known.workers) {
            (true, 0) => Some(Word::Pause(name)),
            (false, 0) => None,
            (false, _) => Some(Word::Resume(name)),
            (true, workers) if workers != view.workers => Some(Word::Resize(name, workers)),
            (true, _) => None,
        }
    }
}

/// Answers of a policy within one look.
const POLLS_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::Cluster;
    use crate::policy::{BUILT_IN, Knobs, Setting};

    const S: u64 = 1_000_000_000;

    /// Jobs that run as they are told to, a step of a tenth of a second at a time.
    struct Floor {
        live: Live,
        now_ns: u64,
        jobs: Vec<(View<'static>, u64)>,
        log: Vec<(u64, Word)>,
    }

    impl Floor {
        fn new(policy: &str, slots: u32, knobs: Knobs, jobs: &[(&'static str, u32, u64)]) -> Self {
            let setting = Setting { knobs, ..Setting::new(Cluster::of_nodes(1, slots)) };
            let policy = BUILT_IN.by_name(policy).expect("it is built in");
            let view = |(name, workers, work_ns): &(&'static str, u32, u64)| {
                let view = View {
                    name,
                    workers: *workers,
                    asked: *workers,
                    is_running: true,
                    is_steerable: true,
                    executed_ns: 0,
                    service_ns: 0,
                    remaining_ns: *work_ns,
                };
                (view, *work_ns)
            };
            Self {
                live: Live::new(policy.plan(&setting).expect("it plans")),
                now_ns: 0,
                jobs: jobs.iter().map(view).collect(),
                log: Vec::new(),
            }
        }

        /// Until all have ended; returns when each did.
        fn run(&mut self) -> Vec<(&'static str, u64)> {
            let mut ended = Vec::new();
            while !self.jobs.is_empty() {
                assert!(self.now_ns < 1000 * S, "{:?}", self.log);
                let views: Vec<View<'_>> = self.jobs.iter().map(|(view, _)| view.clone()).collect();
                for word in self.live.look(self.now_ns, &views).expect("it answers") {
                    self.log.push((self.now_ns, word.clone()));
                    let (name, is_running) = match &word {
                        Word::Pause(name) => (name, false),
                        Word::Resume(name) => (name, true),
                        Word::Resize(..) => panic!("nobody said that it may"),
                    };
                    let of_it = self.jobs.iter_mut().find(|(view, _)| view.name == name);
                    of_it.expect("it is there").0.is_running = is_running;
                }
                self.now_ns += S / 10;
                for (view, left_ns) in self.jobs.iter_mut().filter(|(view, _)| view.is_running) {
                    view.executed_ns += S / 10;
                    view.service_ns += S / 10 * u64::from(view.workers);
                    *left_ns -= S / 10;
                    view.remaining_ns = *left_ns;
                    if *left_ns == 0 {
                        ended.push((view.name, self.now_ns));
                    }
                }
                self.jobs.retain(|(_, left_ns)| *left_ns > 0);
            }
            ended
        }
    }

    /// The example of Tiresias' slides with limits at 4 GPU-seconds, as the simulator has it (2,
    /// 14, 16): the first job ends in its first queue, the long ones pass it and take turns.
    #[test]
    fn two_dimensional_attained_service_is_the_simulators() {
        let knobs = Knobs { queue_limits_ns: vec![4 * S, 8 * S, 12 * S], ..Knobs::default() };
        let jobs = [("j1", 2, 2 * S), ("j2", 1, 8 * S), ("j3", 2, 6 * S)];
        let mut floor = Floor::new("dlas-gpu", 2, knobs, &jobs);
        let ended = floor.run();
        assert_eq!(ended, [("j1", 2 * S), ("j2", 14 * S), ("j3", 16 * S)], "{:?}", floor.log);
    }

    #[test]
    fn never_are_more_workers_at_work_than_there_are_slots() {
        let knobs = Knobs { queue_limits_ns: vec![S], ..Knobs::default() };
        let jobs = [("a", 2, 5 * S), ("b", 2, 5 * S), ("c", 1, 3 * S), ("d", 1, S)];
        let mut floor = Floor::new("dlas-gpu", 3, knobs, &jobs);
        let ended = floor.run();
        assert_eq!(ended.len(), 4);
        assert!(ended.last().expect("four").1 >= 24 * S / 3);
    }

    /// Of a job that is not settled nothing is said, and what is still wanted is said later.
    #[test]
    fn a_word_that_cannot_be_obeyed_now_is_said_later() {
        let knobs = Knobs::default();
        let mut floor = Floor::new("dlas-gpu", 2, knobs, &[("a", 2, S), ("b", 2, S)]);
        floor.jobs[1].0.is_steerable = false;
        let look = |floor: &mut Floor| {
            let views: Vec<View<'_>> = floor.jobs.iter().map(|(view, _)| view.clone()).collect();
            floor.live.look(0, &views).expect("it answers")
        };
        assert_eq!(look(&mut floor), []);
        floor.jobs[1].0.is_steerable = true;
        assert_eq!(look(&mut floor), [Word::Pause("b".into())]);
        assert_eq!(look(&mut floor), [Word::Pause("b".into())], "it still runs");
        floor.jobs[1].0.is_running = false;
        assert_eq!(look(&mut floor), []);
        floor.jobs.remove(0);
        assert_eq!(look(&mut floor), [Word::Resume("b".into())]);
    }
}
