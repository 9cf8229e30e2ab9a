//! A push run in processes: `weft-node` for server, replica and aggregators, `weft-controller`, and
//! this program again for each worker, in the namespaces of a lab or on loopback.
//!
//! Every process that is started here is ended here, whatever happens: by its own end, by SIGINT
//! within a time, else by SIGKILL. Nothing waits without bound.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use super::log::{LogLine, parse, told_once};
use super::losses::Losses;
use super::message::{PushMessage, PushSummary, UpdateMessage, UpdateOutcome};
use super::plan::{PushPlan, PushWorkerPlan, log_path};
use super::until::Until;
use crate::lab::live::{self, LiveEnd};
use crate::lab::topology::Link;
use crate::lab::{LabError, LabName};
use crate::run::background::{Background, FlowSeen};
use crate::run::processes::{ProcessError, find_node};
use crate::run::running_box::RunningBox;
use crate::run::running_worker::RunningWorker;
use crate::run::{BoxCounters, monotonic_ns};
use crate::scenario::{RateStepSection, RestartSection, Scenario};

/// How long the run may go without a word from any worker, beyond a worker's own patience.
const SILENCE_MARGIN: Duration = Duration::from_secs(30);

/// What a push run produced, before it is proved and reported.
#[derive(Debug, Default)]
pub struct PushObserved {
    /// Every update whose outcome a worker told, with rank and life, in the order of arrival.
    pub updates: Vec<(u8, u32, UpdateMessage)>,
    /// When workers joined.
    pub joined: Vec<(u64, u8)>,
    /// The summary of each worker that finished.
    pub summaries: Vec<(u8, PushSummary)>,
    /// Workers that gave up: when, who, why.
    pub failures: Vec<(u64, u8, String)>,
    /// What boxes counted, by name; a killed box took its counters along.
    pub boxes: Vec<(String, BoxCounters)>,
    /// What was killed and started again: when, and what.
    pub restarts: Vec<(u64, String)>,
    /// Links that got another rate: when, and which.
    pub rate_steps: Vec<(u64, RateStepSection)>,
    /// What was killed for good: when, and what.
    pub crashes: Vec<(u64, String)>,
    /// The version and loss that ended a run which trains until a loss.
    pub reached: Option<(u64, f64)>,
    /// Why the run was ended before its workers had finished.
    pub ended: Option<String>,
    /// What became of the traffic of others.
    pub background: Vec<FlowSeen>,
    /// The logs of server, replica, aggregators and controller, by name.
    pub logs: Vec<(String, Vec<LogLine>)>,
}

impl PushObserved {
    /// The log of a box.
    #[must_use]
    pub fn log(&self, name: &str) -> Option<&[LogLine]> {
        self.logs.iter().find(|(box_name, _)| box_name == name).map(|(_, lines)| lines.as_slice())
    }
}

type Tag = (u8, u32);

/// Finds `weft-controller` beside this program, on PATH or in `WEFT_CONTROLLER`.
///
/// # Errors
/// [`ProcessError::NoController`].
pub fn find_controller() -> Result<PathBuf, ProcessError> {
    crate::doctor::find_program("weft-controller", "WEFT_CONTROLLER")
        .ok_or(ProcessError::NoController)
}

/// Runs a plan, with what happens to boxes and links on the way. `lab` is up already, or `None` for
/// loopback; `progress` sees every outcome; `interrupted` is asked now and then.
///
/// # Errors
/// [`ProcessError`]; all processes have ended by then.
pub fn run_push_processes(
    plan: &PushPlan,
    lab: Option<&LabName>,
    scenario: &Scenario,
    directory: &Path,
    progress: &mut dyn FnMut(u8, &PushMessage),
    interrupted: &dyn Fn() -> bool,
) -> Result<PushObserved, ProcessError> {
    let mut run = Running::start(plan, lab, directory)?;
    let mut observed = PushObserved::default();
    run.watch(plan, scenario, &mut observed, progress, interrupted)?;
    run.workers.clear();
    run.stop(&mut observed);
    for (name, _) in &observed.boxes {
        let path = log_path(directory, name);
        let Ok(text) = std::fs::read_to_string(&path) else { continue };
        let lines = parse(&text).map_err(|error| ProcessError::Log {
            path: path.clone(),
            problem: error.to_string(),
        })?;
        observed.logs.push((name.clone(), told_once(lines)));
    }
    Ok(observed)
}

/// The processes of a run.
struct Running<'a> {
    boxes: Vec<RunningBox>,
    controller: Option<RunningBox>,
    workers: Vec<(Tag, RunningWorker)>,
    background: Background,
    lab: Option<&'a LabName>,
    directory: &'a Path,
    /// What workers were told of the version to end at.
    end: Option<u64>,
    sender: Sender<(Tag, PushMessage)>,
    receiver: Receiver<(Tag, PushMessage)>,
}

impl<'a> Running<'a> {
    fn start(
        plan: &PushPlan,
        lab: Option<&'a LabName>,
        directory: &'a Path,
    ) -> Result<Self, ProcessError> {
        let (node, _) = find_node()?;
        let controller = match &plan.controller {
            Some(planned) => {
                let program = find_controller()?;
                let mut controller = RunningBox::start(&program, planned, lab, directory)?;
                controller.wait_until_ready()?;
                Some(controller)
            }
            None => None,
        };
        let mut boxes = Vec::new();
        for planned in &plan.boxes {
            boxes.push(RunningBox::start(&node, planned, lab, directory)?);
        }
        for running in &mut boxes {
            running.wait_until_ready()?;
        }
        let (sender, receiver) = mpsc::channel();
        let mut run = Self {
            boxes,
            controller,
            workers: Vec::new(),
            background: Background::start(lab, &plan.background)?,
            lab,
            directory,
            end: None,
            sender,
            receiver,
        };
        for worker in &plan.workers {
            run.start_worker(worker)?;
        }
        Ok(run)
    }

    fn start_worker(&mut self, plan: &PushWorkerPlan) -> Result<(), ProcessError> {
        let tag = (plan.rank, plan.life);
        let text = serde_json::to_string(plan).expect("a plan is a JSON object");
        let namespace = self.lab.map(|lab| lab.namespace(&format!("w{}", plan.rank)));
        let arguments = [self.directory.as_os_str(), OsStr::new("--push")];
        let mut worker = RunningWorker::start(
            tag,
            &text,
            namespace.as_deref(),
            &arguments,
            self.sender.clone(),
        )?;
        if let Some(version) = self.end {
            worker.tell(&version.to_string());
        }
        self.workers.push((tag, worker));
        Ok(())
    }

    /// Hears the workers until the last life of each has ended.
    fn watch(
        &mut self,
        plan: &PushPlan,
        scenario: &Scenario,
        observed: &mut PushObserved,
        progress: &mut dyn FnMut(u8, &PushMessage),
        interrupted: &dyn Fn() -> bool,
    ) -> Result<(), ProcessError> {
        let push = plan.workers[0].push();
        let per_round = u64::from(push.updates_per_round(&scenario.job));
        let patience = scenario.job.member_timeout() + SILENCE_MARGIN;
        let mut due: Vec<(&RestartSection, bool)> =
            scenario.restart.iter().map(|restart| (restart, false)).collect();
        due.extend(scenario.crash.iter().map(|crash| (crash, true)));
        let mut steps: Vec<&RateStepSection> = scenario.rate_step.iter().collect();
        let mut lives: Vec<u32> = vec![0; plan.workers.len()];
        let mut left = plan.workers.len();
        let mut heard = Instant::now();
        let wanted = plan.workers[0].last_version();
        let computing = Duration::from_millis(push.compute_ms[1].into());
        let patience_ends = patience + push.lateness() + 4 * computing;
        let mut losses = Losses::new(lives.len() as u64, wanted, patience_ends, heard);
        let mut until = Until::new(push, &scenario.job);
        while left > 0 {
            let received = self.receiver.recv_timeout(Duration::from_millis(100));
            // Asked for after every message, for workers may never be silent.
            if interrupted() {
                return Err(ProcessError::Interrupted);
            }
            let ((rank, life), message) = match received {
                Ok(received) => received,
                Err(RecvTimeoutError::Timeout) if heard.elapsed() > patience => {
                    observed.ended = Some(ProcessError::Silence(patience).to_string());
                    return Ok(());
                }
                Err(_) => continue,
            };
            heard = Instant::now();
            // The last words of a worker that was killed on purpose.
            let is_old = lives[usize::from(rank)] != life;
            if is_old && !matches!(message, PushMessage::Update(_)) {
                continue;
            }
            progress(rank, &message);
            if let Some(version) = until.note(&message) {
                observed.reached = until.reached();
                self.tell_end(version);
            }
            match message {
                PushMessage::Joined { at_ns } => observed.joined.push((at_ns, rank)),
                PushMessage::Measured { .. } => {}
                PushMessage::Update(update) => {
                    let version = update.committed_version;
                    let committed = update.outcome == UpdateOutcome::Committed;
                    observed.ended = losses.note(update.outcome, heard);
                    observed.updates.push((rank, life, update));
                    if committed {
                        let is_due = |(death, _): &mut (&RestartSection, bool)| {
                            version >= (u64::from(death.after_round) + 1) * per_round
                        };
                        let is_step_due = |step: &mut &RateStepSection| {
                            version >= (u64::from(step.after_round) + 1) * per_round
                        };
                        for step in steps.extract_if(.., is_step_due) {
                            observed.rate_steps.push((monotonic_ns(), step.clone()));
                            self.step_rate(plan, step)?;
                        }
                        for (death, is_final) in due.extract_if(.., is_due) {
                            match is_final {
                                true => self.crash(&death.name, observed),
                                false => self.restart(death, plan, &mut lives, observed)?,
                            }
                        }
                    }
                    if observed.ended.is_some() {
                        return Ok(());
                    }
                }
                PushMessage::Done(summary) => {
                    observed.summaries.push((rank, *summary));
                    left -= 1;
                }
                PushMessage::Failed { at_ns, error } => {
                    observed.failures.push((at_ns, rank, error));
                    left -= 1;
                }
            }
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
    fn step_rate(&self, plan: &PushPlan, step: &RateStepSection) -> Result<(), ProcessError> {
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
    fn crash(&mut self, name: &str, observed: &mut PushObserved) {
        observed.crashes.push((monotonic_ns(), name.to_owned()));
        let boxes = self.boxes.iter_mut().chain(&mut self.controller);
        for running in boxes.filter(|running| running.name() == name) {
            running.crash();
        }
    }

    fn restart(
        &mut self,
        restart: &RestartSection,
        plan: &PushPlan,
        lives: &mut [u32],
        observed: &mut PushObserved,
    ) -> Result<(), ProcessError> {
        let name = &restart.name;
        observed.restarts.push((monotonic_ns(), name.clone()));
        let boxes = self.boxes.iter_mut().chain(&mut self.controller);
        for running in boxes {
            if running.name() == name {
                return running.restart();
            }
        }
        let planned = plan.workers.iter().find(|worker| *name == format!("w{}", worker.rank));
        let Some(planned) = planned else { return Ok(()) };
        let life = &mut lives[usize::from(planned.rank)];
        // One that has finished stays so.
        if observed.summaries.iter().any(|(rank, _)| *rank == planned.rank) {
            return Ok(());
        }
        self.workers.retain(|((rank, _), worker)| {
            if *rank == planned.rank {
                worker.kill();
            }
            *rank != planned.rank
        });
        *life += 1;
        let next = PushWorkerPlan { life: *life, ..planned.clone() };
        self.start_worker(&next)
    }

    fn stop(&mut self, observed: &mut PushObserved) {
        self.workers.clear();
        observed.background = std::mem::take(&mut self.background).stop();
        // Aggregators first, so that nobody is left without the box that it waits for.
        for running in self.boxes.iter_mut().rev().chain(&mut self.controller) {
            observed.boxes.push((running.name().to_owned(), running.stop()));
        }
    }
}
