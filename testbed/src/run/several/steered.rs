//! Runs one job of several whose number of workers the controller changes: starts the workers of
//! each cohort when it wants them and those before have ended.
//!
//! Every process that is started here is ended here. Nothing waits without bound.

use std::path::PathBuf;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use weft_rpc::v1;

use super::plan::JobPlan;
use crate::lab::LabName;
use crate::run::caller::Caller;
use crate::run::processes::ProcessError;
use crate::run::resize::Seen;
use crate::run::resize::plan::cohort_plans;
use crate::run::running_worker::RunningWorker;
use crate::run::watch::SILENCE_MARGIN;
use crate::run::{Observed, WorkerMessage};

/// Runs it to its last round. What it was asked for on the way is in what comes back.
///
/// # Errors
/// [`ProcessError`]; its workers have ended by then.
pub(super) fn run_steered(
    job: &JobPlan,
    lab: Option<&LabName>,
    caller: &Caller,
    progress: &mut dyn FnMut(u8, &WorkerMessage),
    interrupted: &dyn Fn() -> bool,
) -> Result<(Observed, Seen), ProcessError> {
    let patience = job.scenario.job.member_timeout() + SILENCE_MARGIN;
    let (sender, receiver) = mpsc::channel();
    let (mut observed, mut seen) = (Observed::default(), Seen::default());
    let mut workers: Vec<RunningWorker> = Vec::new();
    let mut cohort: Option<u32> = None;
    let (mut left, mut rounds, mut heard) = (0_usize, 0, Instant::now());
    while !is_over(cohort, left, rounds, job) && seen.problems.is_empty() {
        if interrupted() {
            return Err(ProcessError::Interrupted);
        }
        match receiver.recv_timeout(LOOK_PERIOD) {
            Ok(((rank, life), message)) => {
                heard = Instant::now();
                progress(rank, &message);
                match &message {
                    WorkerMessage::Round(round) => rounds = rounds.max(round.round + 1),
                    WorkerMessage::Done(summary) if cohort == Some(life) => {
                        left = left.saturating_sub(1);
                        seen.finished.push((rank, (**summary).clone()));
                    }
                    WorkerMessage::Failed { error, .. } => {
                        seen.problems.push(format!("worker {rank} of cohort {life}: {error}"));
                    }
                    _ => {}
                }
                observed.take(rank, life, message);
            }
            Err(RecvTimeoutError::Timeout) if heard.elapsed() > patience => {
                let seconds = patience.as_secs();
                seen.problems.push(format!("nobody has said anything for {seconds} s"));
            }
            Err(_) => {}
        }
        if left > 0 || is_over(cohort, left, rounds, job) {
            continue;
        }
        // A controller that does not answer is asked again.
        let Ok(status) = status(caller, &job.name) else { continue };
        if !status.wants_workers || cohort == Some(status.cohort) {
            continue;
        }
        workers.clear();
        seen.finished.clear();
        // What a cohort said of itself is not the next one's.
        observed.summaries.clear();
        let count = u8::try_from(status.workers).unwrap_or(u8::MAX);
        let own = (status.cohort, &*status.placed);
        for plan in cohort_plans(&job.plan.workers, own, &checkpoint_path(job)) {
            let namespace = lab.map(|lab| lab.namespace(&plan.host));
            let sender = sender.clone();
            let directory = &job.directory;
            workers.push(RunningWorker::start(&plan, namespace.as_deref(), directory, sender)?);
        }
        (cohort, left) = (Some(status.cohort), usize::from(count));
    }
    drop(workers);
    if let Ok(status) = status(caller, &job.name) {
        seen.resizes = status.resizes;
    }
    Ok((observed, seen))
}

fn is_over(cohort: Option<u32>, left: usize, rounds: u32, job: &JobPlan) -> bool {
    cohort.is_some() && left == 0 && rounds >= job.scenario.job.rounds
}

fn status(caller: &Caller, name: &str) -> Result<v1::ReduceStatus, String> {
    let status = caller.call(|operator| operator.status().map_err(|error| error.to_string()))?;
    let found = status.reduces.into_iter().find(|job| job.name == name);
    found.ok_or_else(|| format!("the controller does not know {name}"))
}

fn checkpoint_path(job: &JobPlan) -> PathBuf {
    job.directory.join("model.ckpt")
}

/// How often the controller is asked whether it wants workers, while there are none.
const LOOK_PERIOD: Duration = Duration::from_millis(10);
