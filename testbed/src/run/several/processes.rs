//! Runs several jobs in processes: the controller and the boxes first, then each job's workers at
//! its start, each job heard by a thread of its own; then the boxes end, and their logs and
//! counters are handed to the jobs that they are of.
//!
//! Every process that is started here is ended here, as in a run of one job.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use super::plan::{JobPlan, SeveralPlan};
use super::share::{log_of, name_at};
use crate::lab::LabName;
use crate::run::plan::log_path;
use crate::run::processes::{ProcessError, find_controller, find_node, log_error, run_workers};
use crate::run::running_box::{RunningBox, counters, statistics_path};
use crate::run::{BoxCounters, Observed, WorkerMessage, monotonic_ns};

/// Runs a plan to the end of its last job. `lab` is up already, or `None` for loopback; `progress`
/// sees every message with the index of its job; `interrupted` is asked now and then.
///
/// What comes back is what was seen of each job, with the instant from which its start counts, in
/// the order of the plan.
///
/// # Errors
/// [`ProcessError`]; all processes have ended by then.
pub fn run_several(
    plan: &SeveralPlan,
    lab: Option<&LabName>,
    directory: &Path,
    progress: &(dyn Fn(usize, u8, &WorkerMessage) + Sync),
    interrupted: &(dyn Fn() -> bool + Sync),
) -> Result<Vec<(Observed, u64)>, ProcessError> {
    let mut boxes = start_boxes(plan, lab, directory)?;
    let begun = Instant::now();
    let begun_ns = monotonic_ns();
    let run = |(index, job): (usize, &JobPlan)| {
        wait(begun + job.start, interrupted)?;
        let mut own = |rank: u8, message: &WorkerMessage| progress(index, rank, message);
        let seen =
            run_workers(&job.scenario, &job.plan, lab, &job.directory, &mut own, interrupted)?;
        let start_ns = u64::try_from(job.start.as_nanos()).unwrap_or(u64::MAX);
        Ok((seen, begun_ns.saturating_add(start_ns)))
    };
    let run = &run;
    let ended: Vec<Result<(Observed, u64), ProcessError>> = thread::scope(|scope| {
        let jobs = plan.jobs.iter().enumerate();
        let threads: Vec<_> = jobs.map(|job| scope.spawn(move || run(job))).collect();
        let end = |thread: thread::ScopedJoinHandle<'_, _>| thread.join();
        threads
            .into_iter()
            .map(|thread| end(thread).unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    });
    // Aggregators first, as in a run of one job; the controller, which is the last, at the end.
    let controller = plan.controller.as_ref().and_then(|_| boxes.pop());
    let stopped: Vec<(String, BoxCounters)> = boxes
        .drain(..)
        .rev()
        .chain(controller)
        .map(|mut running| (running.name().to_owned(), running.stop()))
        .collect();
    let mut seen = Vec::with_capacity(plan.jobs.len());
    for (job, ended) in plan.jobs.iter().zip(ended) {
        let (mut observed, begun_ns) = ended?;
        for (host, whole) in &stopped {
            let Some(name) = name_at(job, host) else { continue };
            observed.boxes.push((name.to_owned(), share(directory, host, job, *whole)));
            let path = log_path(directory, host);
            let Ok(text) = fs::read_to_string(&path) else { continue };
            let lines = log_of(&text, job.site.job).map_err(log_error(&path))?;
            observed.logs.push((name.to_owned(), lines));
        }
        seen.push((observed, begun_ns));
    }
    Ok(seen)
}

/// What a box counted of a job; what its port carried is of all jobs together.
fn share(directory: &Path, host: &str, job: &JobPlan, whole: BoxCounters) -> BoxCounters {
    let text = fs::read_to_string(statistics_path(directory, host)).unwrap_or_default();
    let own = counters(&text, Some(job.site.job)).unwrap_or_default();
    BoxCounters { cpu_ns: whole.cpu_ns, ..own }
}

/// Starts the controller and the boxes, which comes last in what is returned.
fn start_boxes(
    plan: &SeveralPlan,
    lab: Option<&LabName>,
    directory: &Path,
) -> Result<Vec<RunningBox>, ProcessError> {
    let (node, _) = find_node()?;
    let namespace = |name: &str| lab.map(|lab| lab.namespace(name));
    let mut controller = None;
    if let Some(planned) = &plan.controller {
        let program = find_controller()?;
        let mut running =
            RunningBox::start(&program, planned, namespace(&planned.name), directory)?;
        running.wait_until_ready()?;
        controller = Some(running);
    }
    let start = |planned| RunningBox::start(&node, planned, namespace(&planned.name), directory);
    let mut boxes = plan.nodes.iter().map(start).collect::<Result<Vec<_>, _>>()?;
    for running in &mut boxes {
        running.wait_until_ready()?;
    }
    boxes.extend(controller);
    Ok(boxes)
}

/// Waits until a job's start.
fn wait(until: Instant, interrupted: &dyn Fn() -> bool) -> Result<(), ProcessError> {
    loop {
        if interrupted() {
            return Err(ProcessError::Interrupted);
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        thread::sleep(left.min(LOOK));
    }
}

/// How often a job that has not begun looks whether it shall.
const LOOK: Duration = Duration::from_millis(50);
