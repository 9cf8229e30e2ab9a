//! Runs several jobs in processes: the controller and the boxes first, then each job's workers at
//! its start, each job heard by a thread of its own; then the boxes end, and their logs and
//! counters are handed to the jobs that they are of.
//!
//! Every process that is started here is ended here, as in a run of one job.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::gate::{Gate, GateError};
use super::plan::{JobPlan, SeveralPlan};
use super::share::{log_of, name_at, steering_of};
use super::steered::run_steered;
use super::words::say_all;
use crate::lab::LabName;
use crate::operator::Operator;
use crate::report::{EventRow, WordRow};
use crate::run::caller::Caller;
use crate::run::plan::log_path;
use crate::run::processes::{ProcessError, find_controller, find_node, log_error, run_workers};
use crate::run::resize::Seen;
use crate::run::running_box::{RunningBox, counters, statistics_path};
use crate::run::{BoxCounters, Observed, WorkerMessage, monotonic_ns};

/// What was seen of a job.
#[derive(Debug)]
pub struct JobSeen {
    /// What a run of it alone would have seen.
    pub observed: Observed,
    /// When it came, by the monotonic clock.
    pub came_ns: u64,
    /// How long it waited for slots.
    pub waited_ns: u64,
    /// What was done to it, as controller and boxes tell.
    pub steering: Vec<EventRow>,
    /// Times that it got another band.
    pub band_changes: u64,
    /// What came of an operator's words, if a controller steers it.
    pub steered: Option<Seen>,
}

/// Runs a plan to the end of its last job. `lab` is up already, or `None` for loopback; `progress`
/// sees every message with the index of its job; `interrupted` is asked now and then.
///
/// `certs` is where an operator's certificate is, if the controller wants one.
///
/// What comes back is what was seen of each job, in the order of the plan, and what became of the
/// plan's words.
///
/// # Errors
/// [`ProcessError`]; all processes have ended by then.
pub fn run_several(
    plan: &SeveralPlan,
    lab: Option<&LabName>,
    (directory, certs): (&Path, Option<&Path>),
    progress: &(dyn Fn(usize, u8, &WorkerMessage) + Sync),
    interrupted: &(dyn Fn() -> bool + Sync),
) -> Result<(Vec<JobSeen>, Vec<WordRow>), ProcessError> {
    let gate = open_gate(plan)?;
    let mut boxes = start_boxes(plan, lab, directory)?;
    let caller = caller(plan, lab, certs);
    let begun = Instant::now();
    let run = |(index, job): (usize, &JobPlan)| {
        wait(begun + job.start, interrupted)?;
        let came_ns = monotonic_ns();
        gate.pass(index, came_ns, interrupted)?;
        let waited_ns = monotonic_ns() - came_ns;
        let mut own = |rank: u8, message: &WorkerMessage| progress(index, rank, message);
        let seen = match caller.as_ref().filter(|_| job.scenario.resize.is_some()) {
            Some(caller) => run_steered(job, lab, caller, &mut own, interrupted)
                .map(|(observed, steered)| (observed, Some(steered))),
            None => {
                let (scenario, folder) = (&job.scenario, &job.directory);
                run_workers(scenario, &job.plan, lab, folder, &mut own, interrupted)
                    .map(|observed| (observed, None))
            }
        };
        // Also who failed gives others its slots.
        gate.leave(index)?;
        let (observed, steered) = seen?;
        let steering = Vec::new();
        Ok(JobSeen { observed, came_ns, waited_ns, steering, band_changes: 0, steered })
    };
    let run = &run;
    let is_over = AtomicBool::new(false);
    let (ended, words) = thread::scope(|scope| {
        let jobs = plan.jobs.iter().enumerate();
        let threads: Vec<_> = jobs.map(|job| scope.spawn(move || run(job))).collect();
        let is_over = &is_over;
        let stop = move || interrupted() || is_over.load(Ordering::Relaxed);
        let words = caller
            .as_ref()
            .map(|caller| scope.spawn(move || say_all(&plan.words, caller, begun, &stop)));
        let ended: Vec<_> = threads.into_iter().map(joined).collect();
        is_over.store(true, Ordering::Relaxed);
        (ended, words.map(joined).unwrap_or_default())
    });
    // The controller takes what it counted along.
    let read = |operator: &Operator| operator.status().map_err(|error| error.to_string());
    let status = caller.as_ref().and_then(|caller| caller.call(read).ok()).unwrap_or_default();
    // Aggregators first, as in a run of one job; the controller, which is the last, at the end.
    let controller = plan.controller.as_ref().and_then(|_| boxes.pop());
    let stopped: Vec<_> = boxes
        .drain(..)
        .rev()
        .chain(controller)
        .map(|mut running| (running.name().to_owned(), running.stop()))
        .collect();
    let mut seen = Vec::with_capacity(plan.jobs.len());
    for (job, ended) in plan.jobs.iter().zip(ended) {
        let mut ended = ended?;
        let counted = status.jobs.iter().find(|counted| counted.name == job.name);
        ended.band_changes = counted.map_or(0, |counted| counted.band_changes);
        let observed = &mut ended.observed;
        for (host, whole) in &stopped {
            let Some(name) = name_at(job, host) else { continue };
            let own = |whole: BoxCounters| share(directory, host, job, whole);
            observed.take_box(name, whole.clone().map(|whole| whole.map(own)));
            let path = log_path(directory, host);
            let Ok(text) = fs::read_to_string(&path) else { continue };
            let done = steering_of(&text, job.site.job, &job.name, ended.came_ns);
            ended.steering.extend(done);
            let lines = log_of(&text, job.site.job).map_err(log_error(&path))?;
            observed.logs.push((name.to_owned(), lines));
        }
        seen.push(ended);
    }
    Ok((seen, words))
}

fn joined<T>(thread: thread::ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// How the plan's controller is called.
fn caller(plan: &SeveralPlan, lab: Option<&LabName>, certs: Option<&Path>) -> Option<Caller> {
    let planned = plan.controller.as_ref()?;
    let scheme = if certs.is_some() { "https" } else { "http" };
    Some(Caller {
        endpoint: format!("{scheme}://{}", planned.config.listen),
        certs: certs.map(Path::to_owned),
        namespace: lab.map(|lab| lab.namespace(&planned.name)),
    })
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

/// The gate that jobs wait at, if they share slots.
struct SharedGate(Option<(Mutex<Gate>, Condvar)>);

fn open_gate(plan: &SeveralPlan) -> Result<SharedGate, ProcessError> {
    let Some(cluster) = &plan.cluster else { return Ok(SharedGate(None)) };
    let jobs = plan.jobs.iter().map(JobPlan::gated).collect();
    let gate = Gate::new(&cluster.policy, cluster.slots, jobs).map_err(gate_error)?;
    Ok(SharedGate(Some((Mutex::new(gate), Condvar::new()))))
}

impl SharedGate {
    /// A job comes, and waits until it may run.
    fn pass(
        &self,
        index: usize,
        now_ns: u64,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<(), ProcessError> {
        let Some((gate, moved)) = &self.0 else { return Ok(()) };
        let mut gate = gate.lock().unwrap_or_else(PoisonError::into_inner);
        gate.handle_arrival(now_ns, index).map_err(gate_error)?;
        while !gate.is_open_for(index) {
            if interrupted() {
                return Err(ProcessError::Interrupted);
            }
            gate = moved.wait_timeout(gate, LOOK).unwrap_or_else(PoisonError::into_inner).0;
        }
        Ok(())
    }

    /// A job has ended.
    fn leave(&self, index: usize) -> Result<(), ProcessError> {
        let Some((gate, moved)) = &self.0 else { return Ok(()) };
        let mut gate = gate.lock().unwrap_or_else(PoisonError::into_inner);
        moved.notify_all();
        gate.handle_end(monotonic_ns(), index).map_err(gate_error)
    }
}

fn gate_error(error: GateError) -> ProcessError {
    ProcessError::Order { problem: error.to_string() }
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
