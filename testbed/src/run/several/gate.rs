//! Decides which job may run, where they share slots for workers: what a policy of `weft_jobs`
//! says, the same that the simulator asks. Pure.
//!
//! Invariant: the workers of all jobs that run are no more than there are slots. A policy that
//! stops or widens jobs has no say here: [`GateError::Unsuitable`].

use std::sync::Arc;

use weft_jobs::cluster::Cluster;
use weft_jobs::job::{Job, JobId};
use weft_jobs::policy::{BUILT_IN, Decision, Delta, PolicyError, Scheduler, Setting};

/// Jobs before a gate.
#[derive(Debug)]
pub(super) struct Gate {
    scheduler: Box<dyn Scheduler>,
    jobs: Vec<GatedJob>,
    decision: Decision,
    free: u32,
}

#[derive(Debug)]
struct GatedJob {
    job: Job,
    id: Option<JobId>,
    is_running: bool,
}

/// Why the policy cannot be followed.
#[derive(Debug, thiserror::Error)]
pub(super) enum GateError {
    /// It says so.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// It wants what a gate cannot do.
    #[error("the policy stops jobs, or changes their workers; a run has fifo and fjf")]
    Unsuitable,
}

impl Gate {
    /// Before so many slots, under a policy.
    ///
    /// # Errors
    /// There is no such policy.
    pub(super) fn new(policy: &str, slots: u32, jobs: Vec<Job>) -> Result<Self, GateError> {
        let policy = BUILT_IN.find(policy).map_err(|error| PolicyError::Unsuitable {
            policy: policy.to_owned(),
            reason: error.to_string(),
        })?;
        let scheduler = policy.plan(&Setting::new(Cluster::of_nodes(1, slots)))?;
        let gated = |job| GatedJob { job, id: None, is_running: false };
        let jobs = jobs.into_iter().map(gated).collect();
        Ok(Self { scheduler, jobs, decision: Decision::default(), free: slots })
    }

    /// A job comes.
    ///
    /// # Errors
    /// [`GateError`]
    pub(super) fn handle_arrival(&mut self, now_ns: u64, index: usize) -> Result<(), GateError> {
        let is_taken = |id: u32| self.jobs.iter().any(|job| job.id == Some(JobId(id)));
        // The lowest that is free.
        let id = (0..).find(|id| !is_taken(*id)).map(JobId).expect("few jobs");
        let Some(gated) = self.jobs.get_mut(index) else { return Ok(()) };
        gated.id = Some(id);
        self.scheduler.handle(now_ns, Delta::Arrived { id, job: &gated.job })?;
        self.decide(now_ns)
    }

    /// A job that ran has ended.
    ///
    /// # Errors
    /// [`GateError`]
    pub(super) fn handle_end(&mut self, now_ns: u64, index: usize) -> Result<(), GateError> {
        let Some(gated) = self.jobs.get_mut(index) else { return Ok(()) };
        let Some(id) = gated.id.take() else { return Ok(()) };
        if std::mem::take(&mut gated.is_running) {
            self.free += gated.job.gpus;
        }
        self.scheduler.handle(now_ns, Delta::Ended { id })?;
        self.decide(now_ns)
    }

    /// Whether a job may run.
    #[must_use]
    pub(super) fn is_open_for(&self, index: usize) -> bool {
        self.jobs.get(index).is_some_and(|job| job.is_running)
    }

    /// A policy may say who starts one at a time, so it is asked until it has nothing more to say.
    fn decide(&mut self, now_ns: u64) -> Result<(), GateError> {
        loop {
            self.decision.clear();
            self.scheduler.poll(now_ns, &mut self.decision)?;
            if self.decision.changes.is_empty() {
                return Ok(());
            }
            self.start()?;
        }
    }

    /// Starts whom the decision names.
    fn start(&mut self) -> Result<(), GateError> {
        for change in &self.decision.changes {
            let found = self.jobs.iter_mut().find(|job| job.id == Some(change.id));
            let waits = |job: &&mut GatedJob| !job.is_running && job.job.gpus == change.gpus;
            let gated = found.filter(waits).ok_or(GateError::Unsuitable)?;
            self.free = self.free.checked_sub(change.gpus).ok_or(GateError::Unsuitable)?;
            gated.is_running = true;
        }
        Ok(())
    }
}

/// What a policy is told of a job: its name, its workers, when it comes and how long it runs alone.
#[must_use]
pub(super) fn gated(name: &str, workers: u8, submit_ns: u64, duration_ns: u64) -> Job {
    Job {
        name: Arc::from(name),
        gpus: workers.into(),
        submit_ns,
        duration_ns,
        model: Arc::from(""),
        iterations: 0,
        global_batch: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn jobs() -> Vec<Job> {
        [3, 4, 1].iter().enumerate().map(|(n, w)| gated(&format!("j{n}"), *w, 0, 1)).collect()
    }

    fn running(gate: &Gate) -> [bool; 3] {
        [0, 1, 2].map(|index| gate.is_open_for(index))
    }

    #[test]
    fn who_does_not_fit_holds_up_the_others_under_fifo_and_does_not_under_backfill() {
        for (policy, third_runs) in [("fifo", false), ("fjf", true)] {
            let mut gate = Gate::new(policy, 4, jobs()).expect("a policy");
            for index in 0..3 {
                gate.handle_arrival(index as u64, index).expect("it comes");
            }
            assert_eq!(running(&gate), [true, false, third_runs], "{policy}");
            gate.handle_end(10, 0).expect("it ends");
            assert_eq!(running(&gate), [false, !third_runs, third_runs], "{policy}");
            let next = if third_runs { 2 } else { 1 };
            gate.handle_end(20, next).expect("it ends");
            assert_eq!(running(&gate), [false, third_runs, !third_runs], "{policy}");
        }
    }

    #[test]
    fn all_that_fit_start_when_one_ends() {
        for policy in ["fifo", "fjf"] {
            let jobs = [4, 1, 3].map(|width| gated(&format!("w{width}"), width, 0, 1));
            let mut gate = Gate::new(policy, 4, jobs.to_vec()).expect("a policy");
            (0..3).for_each(|index| gate.handle_arrival(0, index).expect("it comes"));
            assert_eq!(running(&gate), [true, false, false], "{policy}");
            gate.handle_end(10, 0).expect("it ends");
            assert_eq!(running(&gate), [false, true, true], "{policy}");
        }
    }

    #[test]
    fn a_policy_that_stops_jobs_is_refused_and_so_is_none() {
        assert!(matches!(Gate::new("nothing", 4, jobs()), Err(GateError::Policy(_))));
        let long = gated("long", 4, 0, 100);
        let short = gated("short", 4, 0, 1);
        let mut gate = Gate::new("shortest", 4, vec![long, short]).expect("a policy");
        gate.handle_arrival(0, 0).expect("it comes");
        assert!(gate.is_open_for(0));
        // It would have the long one stopped.
        assert!(matches!(gate.handle_arrival(1, 1), Err(GateError::Unsuitable)));
    }
}
