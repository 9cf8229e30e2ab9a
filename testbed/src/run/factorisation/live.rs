//! Runs home and processes, opens a gate when all have come to it, and kills the home in the middle
//! of epochs.
//!
//! Every process that is started here is ended here, whatever happens. Nothing waits without bound.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use super::message::{ProcessMessage, TableSummary};
use super::plan::FactorisationPlan;
use crate::lab::LabName;
use crate::run::processes::{ProcessError, find_node};
use crate::run::running_box::{RunningBox, statistics_path};
use crate::run::running_worker::{Life, RunningWorker};

/// What a run showed.
#[derive(Debug, Default)]
pub struct Seen {
    /// How long each epoch took at each process that has ended it, in nanoseconds.
    pub epochs: Vec<(u8, u32, u64)>,
    /// The summary of each process that came to its end.
    pub summaries: Vec<(u8, TableSummary)>,
    /// Epochs in which the home was killed.
    pub kills: Vec<u32>,
    /// All factors in the end, by key; none if process 0 did not keep them.
    pub factors: Option<Vec<f32>>,
    /// What the home counted in its last life, by name.
    pub home: BTreeMap<String, u64>,
    /// What went wrong.
    pub problems: Vec<String>,
}

/// Runs to the end. `progress` sees every message; `interrupted` is asked now and then.
///
/// # Errors
/// [`ProcessError`]; all processes have ended by then.
pub fn run(
    plan: &FactorisationPlan,
    lab: Option<&LabName>,
    directory: &Path,
    progress: &mut dyn FnMut(u8, &ProcessMessage),
    interrupted: &dyn Fn() -> bool,
) -> Result<Seen, ProcessError> {
    let (node, _) = find_node()?;
    let namespace = |host: &str| lab.map(|lab| lab.namespace(host));
    let mut home = RunningBox::start(&node, &plan.home, namespace(&plan.home.name), directory)?;
    home.wait_until_ready()?;
    let (sender, receiver) = mpsc::channel();
    let mut processes = Vec::with_capacity(plan.processes.len());
    for planned in &plan.processes {
        let inside = namespace(&planned.host);
        let (life, command) = ((planned.node, 0), "table-process");
        let started = RunningWorker::spawn(
            (command, planned),
            life,
            inside.as_deref(),
            directory,
            sender.clone(),
        );
        processes.push(started?);
    }
    let mut live = Live { plan, home, processes, seen: Seen::default() };
    let watched = live.watch(&receiver, progress, interrupted);
    live.processes.clear();
    live.seen.problems.extend(live.home.stop().err());
    watched?;
    live.seen.home = read_home(&statistics_path(directory, &plan.home.name));
    live.seen.factors = read_factors(&directory.join(super::FACTORS));
    Ok(live.seen)
}

struct Live<'a> {
    plan: &'a FactorisationPlan,
    home: RunningBox,
    processes: Vec<RunningWorker>,
    seen: Seen,
}

impl Live<'_> {
    fn watch(
        &mut self,
        receiver: &Receiver<(Life, ProcessMessage)>,
        progress: &mut dyn FnMut(u8, &ProcessMessage),
        interrupted: &dyn Fn() -> bool,
    ) -> Result<(), ProcessError> {
        let mut left = self.processes.len();
        let mut waiting = 0;
        let mut heard = Instant::now();
        while left > 0 && self.seen.problems.is_empty() {
            if interrupted() {
                return Err(ProcessError::Interrupted);
            }
            let ((node, _), message) = match receiver.recv_timeout(LOOK_PERIOD) {
                Ok(received) => received,
                Err(RecvTimeoutError::Timeout) if self.is_home_gone() => return Ok(()),
                Err(RecvTimeoutError::Timeout) if heard.elapsed() > PATIENCE => {
                    let seconds = PATIENCE.as_secs();
                    let problem =
                        format!("no process has said anything for {seconds} s; the run was ended");
                    self.seen.problems.push(problem);
                    return Ok(());
                }
                Err(_) => continue,
            };
            heard = Instant::now();
            progress(node, &message);
            match message {
                ProcessMessage::Arrived { gate } => {
                    waiting += 1;
                    if waiting == self.processes.len() {
                        waiting = 0;
                        self.open(gate)?;
                    }
                }
                ProcessMessage::Epoch { epoch, took_ns } => {
                    self.seen.epochs.push((node, epoch, took_ns));
                }
                ProcessMessage::Done(summary) => {
                    left -= 1;
                    self.seen.summaries.push((node, *summary));
                }
                ProcessMessage::Failed { error, .. } => {
                    self.seen.problems.push(format!("process {node}: {error}"));
                }
            }
        }
        Ok(())
    }

    /// Whether somebody else has ended the home, without which no row is found any more.
    fn is_home_gone(&mut self) -> bool {
        let ended = self.home.ended();
        self.seen.problems.extend(ended.as_ref().map(ToString::to_string));
        ended.is_some()
    }

    /// Lets all processes go on; kills the home if its time has come.
    fn open(&mut self, gate: u32) -> Result<(), ProcessError> {
        for process in &mut self.processes {
            process.tell("open");
        }
        // The first gate is before the first step.
        let steps = self.plan.scenario.factorisation.workers();
        let (epoch, step) = (gate / steps, gate % steps);
        let is_due = |in_epoch: u32| in_epoch == epoch && step == steps / 2;
        if self.plan.scenario.kill.iter().any(|kill| is_due(kill.in_epoch)) {
            self.seen.kills.push(epoch);
            self.home.restart()?;
        }
        Ok(())
    }
}

/// The home's figures of the table, from its final statistics.
fn read_home(path: &Path) -> BTreeMap<String, u64> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let json: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
    let figures = json["tables"][0].as_object().into_iter().flatten();
    figures.filter_map(|(name, value)| Some((name.clone(), value.as_u64()?))).collect()
}

fn read_factors(path: &Path) -> Option<Vec<f32>> {
    let octets = std::fs::read(path).ok()?;
    let (elements, rest) = octets.as_chunks::<4>();
    rest.is_empty().then(|| elements.iter().map(|element| f32::from_le_bytes(*element)).collect())
}

/// How often it is looked whether somebody wants the run to end.
const LOOK_PERIOD: Duration = Duration::from_millis(100);
/// Longer than a call of a session may take.
const PATIENCE: Duration = Duration::from_secs(60);
