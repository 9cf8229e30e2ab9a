//! Runs the processes of a job whose number of workers changes: the controller, the box, and the
//! workers of each cohort, which are started when the controller wants them and those before have
//! ended.
//!
//! Every process that is started here is ended here, whatever happens. Nothing waits without bound.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use weft_rpc::v1;

use super::kills::Fell;
use super::plan::{JOB, ResizePlan};
use super::words::{Answer, Word, carry_out};
use crate::lab::LabName;
use crate::operator::Operator;
use crate::report::KillRow;
use crate::run::caller::Caller;
use crate::run::processes::{ProcessError, find_controller, find_node};
use crate::run::running_box::RunningBox;
use crate::run::running_worker::{Life, RunningWorker};
use crate::run::{WorkerMessage, WorkerSummary};
use crate::scenario::{KillSection, ResizeSection, WordSection, WordStep};

/// What a run showed.
#[derive(Debug, Default)]
pub struct Seen {
    /// The summary of each worker of the last cohort.
    pub finished: Vec<(u8, WorkerSummary)>,
    /// The resizes, in order.
    pub resizes: Vec<v1::Resize>,
    /// How long each pause took from the word to the standstill.
    pub standstills: Vec<Duration>,
    /// Boxes that were killed and started again.
    pub killed: Vec<String>,
    /// All that was killed, and when.
    pub kills: Vec<KillRow>,
    /// What went wrong.
    pub problems: Vec<String>,
}

/// Runs to the end. `lab` is up already, or `None` for loopback; `progress` sees every message;
/// `interrupted` is asked now and then.
///
/// # Errors
/// [`ProcessError`]; all processes have ended by then.
pub fn run(
    plan: &ResizePlan,
    lab: Option<&LabName>,
    directory: &Path,
    progress: &mut dyn FnMut(u8, &WorkerMessage),
    interrupted: &dyn Fn() -> bool,
) -> Result<Seen, ProcessError> {
    let mut live = Live::start(plan, lab, directory)?;
    let watched = live.watch(progress, interrupted);
    live.workers.clear();
    for stopped in [live.node.stop(), live.controller.stop()] {
        live.seen.problems.extend(stopped.err());
    }
    watched.map(|()| live.seen)
}

struct Live<'a> {
    plan: &'a ResizePlan,
    lab: Option<&'a LabName>,
    directory: &'a Path,
    caller: Caller,
    controller: RunningBox,
    node: RunningBox,
    operator: Option<Operator>,
    /// The cohort that was started last, and how many of it have not ended.
    cohort: Option<u32>,
    left: usize,
    /// Rounds that somebody has ended.
    rounds: u32,
    workers: Vec<RunningWorker>,
    sender: Sender<(Life, WorkerMessage)>,
    receiver: Receiver<(Life, WorkerMessage)>,
    words: VecDeque<WordSection>,
    said: usize,
    /// The word that is being carried out.
    answer: Option<Receiver<Answer>>,
    kills: Vec<(Instant, KillSection)>,
    /// Workers that are killed when the cohort that a word asked for starts.
    newcomers: Vec<KillSection>,
    /// Processes that were killed in a step of a word.
    fell: (Sender<Fell>, Receiver<Fell>),
    heard: Instant,
    seen: Seen,
}

impl<'a> Live<'a> {
    fn start(
        plan: &'a ResizePlan,
        lab: Option<&'a LabName>,
        directory: &'a Path,
    ) -> Result<Self, ProcessError> {
        let (node, _) = find_node()?;
        let program = find_controller()?;
        let at = |name: &str| lab.map(|lab| lab.namespace(name));
        let caller = Caller {
            endpoint: plan.endpoint.clone(),
            certs: plan.certs.clone(),
            namespace: at(&plan.controller.name),
        };
        let there = at(&plan.controller.name);
        let mut controller = RunningBox::start(&program, &plan.controller, there, directory)?;
        controller.wait_until_ready()?;
        let mut node = RunningBox::start(&node, &plan.node, at(&plan.node.name), directory)?;
        node.wait_until_ready()?;
        let (sender, receiver) = mpsc::channel();
        Ok(Self {
            plan,
            lab,
            directory,
            caller,
            controller,
            node,
            operator: None,
            cohort: None,
            left: 0,
            rounds: 0,
            workers: Vec::new(),
            sender,
            receiver,
            words: section(plan).word.iter().cloned().collect(),
            said: 0,
            answer: None,
            kills: Vec::new(),
            newcomers: Vec::new(),
            fell: mpsc::channel(),
            heard: Instant::now(),
            seen: Seen::default(),
        })
    }

    /// Until the last cohort has computed all rounds.
    fn watch(
        &mut self,
        progress: &mut dyn FnMut(u8, &WorkerMessage),
        interrupted: &dyn Fn() -> bool,
    ) -> Result<(), ProcessError> {
        let patience = self.plan.scenario.job.member_timeout() + SILENCE_MARGIN;
        loop {
            if interrupted() {
                return Err(ProcessError::Interrupted);
            }
            match self.receiver.recv_timeout(LOOK_PERIOD) {
                Ok(((rank, life), message)) => {
                    self.heard = Instant::now();
                    progress(rank, &message);
                    self.hear(rank, life, message);
                }
                Err(RecvTimeoutError::Timeout) if self.heard.elapsed() > patience => {
                    let seconds = patience.as_secs();
                    let problem =
                        format!("nobody has said anything for {seconds} s; the run was ended");
                    self.seen.problems.push(problem);
                    return Ok(());
                }
                Err(_) => {}
            }
            self.take_answer();
            self.kill_due()?;
            self.start_cohort()?;
            let is_failed = !self.seen.problems.is_empty();
            if is_failed || (self.is_computed() && self.answer.is_none()) {
                self.learn_resizes();
                return Ok(());
            }
        }
    }

    /// All rounds are, and the last cohort has ended.
    fn is_computed(&self) -> bool {
        let is_over = self.cohort.is_some() && self.left == 0;
        is_over && self.rounds >= self.plan.scenario.job.rounds
    }

    /// Where the scenario has no words, somebody else may have said some.
    fn learn_resizes(&mut self) {
        if !section(self.plan).word.is_empty() {
            return;
        }
        // A connection that nobody used for long is made anew.
        let Some(status) = self.status().or_else(|| self.status()) else { return };
        let job = status.reduces.into_iter().find(|job| job.name == JOB);
        self.seen.resizes = job.map(|job| job.resizes).unwrap_or_default();
    }

    fn hear(&mut self, rank: u8, life: u32, message: WorkerMessage) {
        let is_current = self.cohort == Some(life);
        if let WorkerMessage::Round(round) = &message {
            self.rounds = self.rounds.max(round.round + 1);
        }
        match message {
            WorkerMessage::Round(round) if rank == 0 => {
                let is_due = |word: &WordSection| word.after_round <= round.round;
                if self.answer.is_none()
                    && let Some(word) = self.words.pop_front_if(|word| is_due(word))
                {
                    self.say(&word);
                }
            }
            WorkerMessage::Done(summary) if is_current => {
                self.left = self.left.saturating_sub(1);
                // One that was told to end for a resize is no last word of the job's.
                self.seen.finished.push((rank, *summary));
            }
            WorkerMessage::Failed { error, .. } => {
                self.seen.problems.push(format!("worker {rank} of cohort {life}: {error}"));
            }
            _ => {}
        }
    }

    /// Says a word to the controller, on a thread: its answer takes as long as it takes.
    fn say(&mut self, word: &WordSection) {
        let now = Instant::now();
        for kill in section(self.plan).kill.iter().filter(|kill| kill.word == self.said) {
            match kill.step {
                None => self.kills.push((now + Duration::from_millis(kill.after_ms), kill.clone())),
                // It is not there yet; a worker of its rank in the cohort that ends is another.
                Some(WordStep::Start) if kill.is_worker() => self.newcomers.push(kill.clone()),
                Some(_) => {
                    let Some(pid) = self.pid(&kill.name) else { continue };
                    self.plan.sight().watch(kill, pid, self.fell.0.clone());
                }
            }
        }
        self.said += 1;
        let (tell, answer) = mpsc::channel();
        let (caller, word) = (self.caller.clone(), word.clone());
        thread::spawn(move || {
            // Whoever started this may have given the run up.
            let _ = tell.send(carry_out(&caller, &word));
        });
        self.answer = Some(answer);
    }

    fn take_answer(&mut self) {
        let Some(answer) = &self.answer else { return };
        let answered = match answer.try_recv() {
            Ok(answered) => answered,
            Err(mpsc::TryRecvError::Empty) => return,
            Err(mpsc::TryRecvError::Disconnected) => Err("a word had no answer".to_owned()),
        };
        self.answer = None;
        self.heard = Instant::now();
        match answered {
            Ok(Word::Resized(resize)) => self.seen.resizes.push(resize),
            Ok(Word::Paused(standstill)) => self.seen.standstills.push(standstill),
            Err(problem) => self.seen.problems.push(problem),
        }
    }

    /// The process of this name, if it runs.
    fn pid(&self, name: &str) -> Option<u32> {
        if let Some(rank) = name.strip_prefix('w') {
            return self.workers.get(rank.parse::<usize>().ok()?)?.pid();
        }
        let is_controller = self.controller.name() == name;
        Some(if is_controller { self.controller.pid() } else { self.node.pid() })
    }

    fn kill_due(&mut self) -> Result<(), ProcessError> {
        let now = Instant::now();
        while let Some(due) = self.kills.iter().position(|(at, _)| *at <= now) {
            let (_, kill) = self.kills.remove(due);
            self.restart(&Fell { name: kill.name, word: kill.word, step: None })?;
        }
        while let Ok(fell) = self.fell.1.try_recv() {
            if fell.step.is_some() {
                self.restart(&fell)?;
            }
        }
        Ok(())
    }

    /// Kills a process, if that is not done yet, and starts it again; a worker does not come back.
    fn restart(&mut self, fell: &Fell) -> Result<(), ProcessError> {
        let name = fell.name.clone();
        if fell.step.is_none() && self.pid(&name).is_none() {
            return Ok(());
        }
        self.seen.kills.push(KillRow {
            name: name.clone(),
            word: fell.word,
            step: fell.step.map(|step| step.word().to_owned()),
        });
        if let Some(rank) = name.strip_prefix('w') {
            let worker = rank.parse().ok().and_then(|rank: usize| self.workers.get(rank));
            worker.into_iter().for_each(RunningWorker::kill);
            return Ok(());
        }
        let is_controller = self.controller.name() == name;
        let killed = if is_controller { &mut self.controller } else { &mut self.node };
        killed.restart()?;
        self.operator = None;
        self.seen.killed.push(name);
        Ok(())
    }

    /// Starts the workers that the controller wants, when those before have ended.
    fn start_cohort(&mut self) -> Result<(), ProcessError> {
        if self.left > 0 || self.is_computed() {
            return Ok(());
        }
        let Some(status) = self.status() else { return Ok(()) };
        let Some(job) = status.reduces.iter().find(|job| job.name == JOB) else { return Ok(()) };
        if !job.wants_workers || self.cohort == Some(job.cohort) {
            return Ok(());
        }
        let workers = u8::try_from(job.workers).unwrap_or(u8::MAX);
        self.workers.clear();
        self.seen.finished.clear();
        for plan in self.plan.cohort(job.cohort, &job.placed) {
            let sender = self.sender.clone();
            let there = self.lab.map(|lab| lab.namespace(&plan.host));
            let there = there.as_deref();
            self.workers.push(RunningWorker::start(&plan, there, self.directory, sender)?);
        }
        (self.cohort, self.left) = (Some(job.cohort), usize::from(workers));
        for kill in std::mem::take(&mut self.newcomers) {
            if self.pid(&kill.name).is_some() {
                self.restart(&Fell { name: kill.name, word: kill.word, step: kill.step })?;
            }
        }
        Ok(())
    }

    /// What the controller knows; none while it is not there.
    fn status(&mut self) -> Option<v1::StatusReply> {
        if self.lab.is_some() {
            // Whose connections are made where the controller is.
            let read = |operator: &Operator| operator.status().map_err(|error| error.to_string());
            return self.caller.call(read).ok();
        }
        if self.operator.is_none() {
            let certs = self.plan.certs.as_deref();
            self.operator = Operator::dial(&self.plan.endpoint, certs, STATUS_TIMEOUT).ok();
        }
        let status = self.operator.as_ref()?.status();
        if status.is_err() {
            self.operator = None;
        }
        status.ok()
    }
}

fn section(plan: &ResizePlan) -> &ResizeSection {
    plan.scenario.resize.as_ref().expect("checked with the plan")
}

/// How often it is looked whether something is due.
const LOOK_PERIOD: Duration = Duration::from_millis(5);
/// How long the controller may take to tell its status.
const STATUS_TIMEOUT: Duration = Duration::from_secs(2);
/// How much longer than a worker's patience the run's is.
const SILENCE_MARGIN: Duration = Duration::from_secs(15);
