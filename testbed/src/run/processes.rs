//! A run in processes: `weft-node` for each box, `weft-controller`, and this program again for each
//! worker, in the namespaces of a lab or on loopback.
//!
//! Every process that is started here is ended here, whatever happens: by its own end, by SIGINT
//! within a time, else by SIGKILL. Nothing waits without bound.

mod error;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use super::background::Background;
use super::plan::{BoxPlan, Place, Plan, WorkerPlan, log_path};
use super::process::{Process, io};
use super::push::log::{LogError, parse, told_once};
use super::running_box::{RunningBox, wait_until_ready};
use super::running_worker::{Life, RunningWorker};
use super::switch::{RunningSwitch, SIMPLE_SWITCH};
use super::watch::{Due, SILENCE_MARGIN, Watch};
use super::{Observed, WorkerMessage, monotonic_ns};
use crate::lab::live::{self, LiveEnd};
use crate::lab::topology::Link;
use crate::lab::{LabError, LabName};
use crate::scenario::{CONTROLLER, RateStepSection, Scenario};

pub use error::ProcessError;

/// Finds `weft-node` and checks that it is of this version; true when it can do DPDK.
///
/// # Errors
/// [`ProcessError::NoNode`], [`ProcessError::NodeVersion`].
pub fn find_node() -> Result<(PathBuf, bool), ProcessError> {
    let path = crate::doctor::find_weft_node().ok_or(ProcessError::NoNode)?;
    let output =
        Command::new(&path).arg("--version").output().map_err(io("asking for a version"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let found = text.split_whitespace().nth(1).unwrap_or("unknown").to_owned();
    let wanted = env!("CARGO_PKG_VERSION");
    if found != wanted {
        return Err(ProcessError::NodeVersion { path, found, wanted });
    }
    Ok((path, text.contains("dpdk")))
}

/// Finds `weft-controller` beside this program, on PATH or in `WEFT_CONTROLLER`.
///
/// # Errors
/// [`ProcessError::NoController`].
pub fn find_controller() -> Result<PathBuf, ProcessError> {
    crate::doctor::find_program("weft-controller", "WEFT_CONTROLLER")
        .ok_or(ProcessError::NoController)
}

/// Runs a plan, with what happens to boxes and links on the way. `lab` is up already, or `None` for
/// loopback; `progress` sees every message; `interrupted` is asked now and then.
///
/// # Errors
/// [`ProcessError`]; all processes have ended by then.
pub fn run_processes(
    scenario: &Scenario,
    plan: &Plan,
    lab: Option<&LabName>,
    directory: &Path,
    progress: &mut dyn FnMut(u8, &WorkerMessage),
    interrupted: &dyn Fn() -> bool,
) -> Result<Observed, ProcessError> {
    let mut run = Running::start(plan, lab, directory)?;
    let mut observed = Observed::default();
    run.watch(plan, scenario, &mut observed, progress, interrupted)?;
    for name in run.stop(&mut observed) {
        let path = log_path(directory, &name);
        let Ok(text) = std::fs::read_to_string(&path) else { continue };
        let lines = parse(&text).map_err(log_error(&path))?;
        observed.logs.push((name, told_once(lines)));
    }
    Ok(observed)
}

/// Runs one job of several, whose boxes are up and stay so: starts its workers and hears them.
///
/// # Errors
/// [`ProcessError`]; its workers have ended by then.
pub(super) fn run_workers(
    scenario: &Scenario,
    plan: &Plan,
    lab: Option<&LabName>,
    directory: &Path,
    progress: &mut dyn FnMut(u8, &WorkerMessage),
    interrupted: &dyn Fn() -> bool,
) -> Result<Observed, ProcessError> {
    let mut run = Running::with_boxes(Vec::new(), lab, directory);
    for worker in &plan.workers {
        run.start_worker(worker)?;
    }
    let mut observed = Observed::default();
    run.watch(plan, scenario, &mut observed, progress, interrupted)?;
    run.stop(&mut observed);
    Ok(observed)
}

/// The error for a box's log that cannot be read.
pub(super) fn log_error(path: &Path) -> impl Fn(LogError) -> ProcessError {
    move |error| ProcessError::Log { path: path.to_owned(), problem: error.to_string() }
}

/// The processes of a run.
struct Running<'a> {
    /// The controller is the last.
    boxes: Vec<RunningBox>,
    bridge: Option<Process>,
    switch: Option<RunningSwitch>,
    workers: Vec<(u8, RunningWorker)>,
    background: Background,
    lab: Option<&'a LabName>,
    directory: &'a Path,
    /// What workers were told of the version to end at.
    end: Option<u64>,
    sender: Sender<(Life, WorkerMessage)>,
    receiver: Receiver<(Life, WorkerMessage)>,
}

impl<'a> Running<'a> {
    fn start(
        plan: &Plan,
        lab: Option<&'a LabName>,
        directory: &'a Path,
    ) -> Result<Self, ProcessError> {
        let (node, _) = find_node()?;
        let controller = match &plan.controller {
            Some(planned) => {
                let program = find_controller()?;
                let mut controller = RunningBox::start(
                    &program,
                    planned,
                    lab.map(|lab| lab.namespace(&planned.name)),
                    directory,
                )?;
                controller.wait_until_ready()?;
                Some(controller)
            }
            None => None,
        };
        let switch = match (&plan.switch, lab) {
            (Some(planned), Some(lab)) => {
                Some(RunningSwitch::start(planned, plan, lab, directory)?)
            }
            _ => None,
        };
        let start = |planned: &BoxPlan| {
            let namespace = lab.map(|lab| lab.namespace(&planned.name));
            RunningBox::start(&node, planned, namespace, directory)
        };
        let mut boxes = plan.boxes.iter().map(start).collect::<Result<Vec<_>, _>>()?;
        for running in &mut boxes {
            running.wait_until_ready()?;
        }
        boxes.extend(controller);
        let bridge = match &plan.place {
            Place::Memif { socket, .. } => Some(startbridge(&node, plan, socket, directory)?),
            Place::Lab | Place::Loopback { .. } => None,
        };
        let mut run = Self {
            bridge,
            switch,
            background: Background::start(lab, &plan.background)?,
            ..Self::with_boxes(boxes, lab, directory)
        };
        for worker in &plan.workers {
            run.start_worker(worker)?;
        }
        Ok(run)
    }

    /// With boxes that are up, and nobody else yet.
    fn with_boxes(boxes: Vec<RunningBox>, lab: Option<&'a LabName>, directory: &'a Path) -> Self {
        let (sender, receiver) = mpsc::channel();
        Self {
            boxes,
            bridge: None,
            switch: None,
            workers: Vec::new(),
            background: Background::default(),
            lab,
            directory,
            end: None,
            sender,
            receiver,
        }
    }

    fn start_worker(&mut self, plan: &WorkerPlan) -> Result<(), ProcessError> {
        let namespace = self.lab.map(|lab| lab.namespace(&plan.host));
        let sender = self.sender.clone();
        let mut worker = RunningWorker::start(plan, namespace.as_deref(), self.directory, sender)?;
        if let Some(version) = self.end {
            worker.tell(&version.to_string());
        }
        self.workers.push((plan.rank, worker));
        Ok(())
    }

    /// Hears the workers until the last life of each has ended.
    fn watch(
        &mut self,
        plan: &Plan,
        scenario: &Scenario,
        observed: &mut Observed,
        progress: &mut dyn FnMut(u8, &WorkerMessage),
        interrupted: &dyn Fn() -> bool,
    ) -> Result<(), ProcessError> {
        let patience = scenario.job.member_timeout() + SILENCE_MARGIN;
        let mut lives: Vec<u32> = vec![0; plan.workers.len()];
        let mut left = plan.workers.len();
        let mut heard = Instant::now();
        let mut watch = Watch::new(scenario, plan, patience, heard);
        while left > 0 && observed.ended.is_none() {
            let received = self.receiver.recv_timeout(Duration::from_millis(100));
            // Asked for after every message, for workers may never be silent.
            if interrupted() {
                return Err(ProcessError::Interrupted);
            }
            let ((rank, life), message) = match received {
                Ok(received) => received,
                Err(RecvTimeoutError::Timeout) if heard.elapsed() > patience => {
                    let seconds = patience.as_secs();
                    observed.ended = Some(format!(
                        "no worker has said anything for {seconds} s; the run was ended"
                    ));
                    return Ok(());
                }
                Err(_) => continue,
            };
            heard = Instant::now();
            // The last words of a worker that was killed on purpose.
            let is_old = lives[usize::from(rank)] != life;
            if is_old && !matches!(message, WorkerMessage::Update(_)) {
                continue;
            }
            progress(rank, &message);
            let noted = watch.note(rank, &message, heard);
            left -= usize::from(message.is_last());
            observed.take(rank, life, message);
            if let Some(version) = noted.end {
                observed.reached = watch.reached();
                self.tell_end(version);
            }
            for due in noted.due {
                match due {
                    Due::Rate(step) => {
                        observed.rate_steps.push((monotonic_ns(), step.clone()));
                        self.step_rate(plan, step)?;
                    }
                    Due::Restart(name) => self.restart(name, plan, &mut lives, observed)?,
                    Due::Crash(name) => self.crash(name, observed),
                }
            }
            observed.ended = noted.ended;
        }
        Ok(())
    }

    /// Tells every worker, and those that are started later, at which version to end.
    fn tell_end(&mut self, version: u64) {
        self.end = Some(version);
        for (_, worker) in &mut self.workers {
            worker.tell(&version.to_string());
        }
    }

    /// Gives a host's link its new rate, in both directions.
    fn step_rate(&self, plan: &Plan, step: &RateStepSection) -> Result<(), ProcessError> {
        let (Some(lab), Some(topology)) = (self.lab, &plan.topology) else { return Ok(()) };
        let failed = |error: LabError| ProcessError::RateStep {
            name: step.name.clone(),
            problem: error.to_string(),
        };
        // A host's link has the host as its first end.
        let of_it = |link: &&Link| link.ends[0].node == step.name;
        for link in topology.links.iter().filter(of_it) {
            for (end, rate) in step.rates().into_iter().enumerate() {
                let (Some(rate), Some(shape)) = (rate, link.shapes[end]) else { continue };
                let live = LiveEnd {
                    from: link.ends[end].clone(),
                    to: link.ends[1 - end].clone(),
                    address: None,
                    mtu: topology.mtu,
                    shaped: Some((shape.shaper, shape.rate)),
                };
                live::set_rate(lab, &live, rate).map_err(failed)?;
            }
        }
        Ok(())
    }

    /// Kills a box for good.
    fn crash(&mut self, name: &str, observed: &mut Observed) {
        observed.crashes.push((monotonic_ns(), name.to_owned()));
        if let Some(running) = self.boxes.iter_mut().find(|running| running.name() == name) {
            running.crash();
        }
    }

    /// Kills a box or a worker and starts it again.
    fn restart(
        &mut self,
        name: &str,
        plan: &Plan,
        lives: &mut [u32],
        observed: &mut Observed,
    ) -> Result<(), ProcessError> {
        observed.restarts.push((monotonic_ns(), name.to_owned()));
        if let Some(running) = self.boxes.iter_mut().find(|running| running.name() == name) {
            return running.restart();
        }
        if let Some(switch) = self.switch.as_mut().filter(|switch| switch.name() == name) {
            return switch.restart();
        }
        let planned = plan.workers.iter().find(|worker| name == format!("w{}", worker.rank));
        let Some(planned) = planned else { return Ok(()) };
        // One that has finished stays so.
        if observed.summaries.iter().any(|(rank, _)| *rank == planned.rank) {
            return Ok(());
        }
        // Killed by its end.
        self.workers.retain(|(rank, _)| *rank != planned.rank);
        let life = &mut lives[usize::from(planned.rank)];
        *life += 1;
        let next = WorkerPlan { life: *life, ..planned.clone() };
        self.start_worker(&next)
    }

    /// Ends all; the names of the boxes in the order in which they ended.
    fn stop(&mut self, observed: &mut Observed) -> Vec<String> {
        self.workers.clear();
        observed.background = std::mem::take(&mut self.background).stop();
        let bridge = self.bridge.as_mut().map(|it| ("weft-bridge", it.cpu_ns(), it.ended()));
        let switch = self.switch.as_mut().map(|it| (SIMPLE_SWITCH, it.cpu_ns(), it.ended()));
        for (name, cpu_ns, ended) in bridge.into_iter().chain(switch) {
            observed.others_cpu_ns += cpu_ns;
            let why = |status| format!("{name} ended before the run did, with {status}");
            observed.missing.extend(ended.map(why));
        }
        // Aggregators first, so that nobody is left without the box that it waits for; the
        // controller last.
        let controller = self.boxes.pop_if(|last| last.name() == CONTROLLER);
        let boxes = self.boxes.drain(..).rev().chain(controller);
        let stop = |mut running: RunningBox| {
            let stopped = running.stop();
            observed.take_box(running.name(), stopped);
            running.name().to_owned()
        };
        boxes.map(stop).collect()
    }
}

/// Starts the program that stands between the workers' loopback and the box's memif.
fn startbridge(
    node: &Path,
    plan: &Plan,
    socket: &str,
    directory: &Path,
) -> Result<Process, ProcessError> {
    let log = directory.join("bridge.log");
    let child = Command::new(node.with_file_name("weft-bridge"))
        .arg(format!("--addr={}", plan.workers[0].target))
        .arg(format!("--socket={socket}"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(File::create(&log).map_err(io("creating the bridge's log"))?)
        .env("RUNTIME_DIRECTORY", directory)
        .spawn()
        .map_err(io("starting weft-bridge"))?;
    let mut process = Process(child);
    wait_until_ready(&mut process, "weft-bridge", &log)?;
    Ok(process)
}
