//! The one task that owns the engine. Streams' messages come in through one bounded queue, what the
//! engine wants told goes out through one bounded queue for each stream.
//!
//! Invariant: this task waits for nothing but its queues and its timer. Policies that are other
//! programs are asked on threads of their own. A peer that does not read finds its stream ended,
//! and dials again.

use std::collections::HashMap;
use std::pin::pin;
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, oneshot};
use tokio::task::spawn_blocking;
use weft_control::{Command, Holding, HoldingCommand};
use weft_controller_engine::{Action, Answer, Controller, NodeId, Notice, Saved};
use weft_rpc::convert::command_to_proto;
use weft_rpc::v1;
use weft_wire::{JobId, Rank};

use crate::events::Events;
use crate::state::StateFile;

mod convert;
mod input;
mod nodes;
mod policy;
mod probes;
mod steer;
#[cfg(test)]
mod tests;
mod workers;

pub use input::{
    CoreSender, Ended, HoldAnswer, INPUTS_MAX, Input, NodeKey, OUTBOX_MAX, Outbox, PauseAnswer,
    ResizeAnswer, ResumeAnswer, Snapshot, Unheld, Unpaused, UnregisterAnswer, Unresized, WorkerKey,
};
pub use policy::JobPolicy;

struct Peer<T> {
    stream: u64,
    outbox: Outbox<T>,
    /// Ends the stream's reading with this.
    _end: oneshot::Sender<()>,
}

/// Sent as soon as the state is saved.
type SavedAnswer = Box<dyn FnOnce(&mut Core) + Send>;

/// The core's state.
pub struct Core {
    controller: Controller,
    start: Instant,
    state_file: Option<StateFile>,
    events: Option<Events>,
    job_policy: Option<JobPolicy>,
    telemetry_period_ns: u64,
    /// Another one in each life, above 0.
    nonce: u64,
    workers: HashMap<(JobId, Rank), Peer<v1::WorkerReply>>,
    nodes: HashMap<NodeId, Peer<v1::Command>>,
    /// Workers that wait for their boxes' addresses, and until when.
    welcomes: Vec<(WorkerKey, Instant)>,
    /// Who waits for what boxes say of their holdings.
    holds: HashMap<(NodeId, JobId, Holding), HoldAnswer>,
    /// Who waits for jobs to stand still.
    pauses: HashMap<JobId, PauseAnswer>,
    /// Who waits for jobs to have another width.
    resizes: HashMap<JobId, ResizeAnswer>,
    /// Answers that are sent as soon as the state is saved.
    answers: Vec<SavedAnswer>,
    /// Problems of jobs' policies that were reported.
    policy_problems: HashMap<JobId, String>,
    streams: u64,
    saved_at: Instant,
    unsaved: Option<Unsaved>,
    snapshot: Snapshot,
}

/// What could not be written; it is tried again when the state is written next.
struct Unsaved {
    saved: Saved,
    /// Actions depend on it.
    is_urgent: bool,
}

impl Core {
    /// Around an engine. `nonce` is another one in each life.
    #[must_use]
    pub fn new(
        controller: Controller,
        state_file: Option<StateFile>,
        telemetry_period_ns: u64,
        nonce: u64,
    ) -> Self {
        let start = Instant::now();
        Self {
            controller,
            start,
            state_file,
            events: None,
            job_policy: None,
            telemetry_period_ns,
            nonce: nonce.max(1),
            workers: HashMap::new(),
            nodes: HashMap::new(),
            welcomes: Vec::new(),
            holds: HashMap::new(),
            pauses: HashMap::new(),
            resizes: HashMap::new(),
            answers: Vec::new(),
            policy_problems: HashMap::new(),
            streams: 0,
            saved_at: start,
            unsaved: None,
            snapshot: Snapshot::default(),
        }
    }

    /// Writes down from now on what boxes are told to install.
    pub fn record(&mut self, events: Events) {
        self.events = Some(events);
    }

    /// Has a policy steer whole jobs from now on.
    pub fn steer_by(&mut self, policy: JobPolicy) {
        self.job_policy = Some(policy);
    }

    /// Serves until it is told to stop, or every sender is gone.
    pub async fn run(mut self, mut inputs: mpsc::Receiver<Input>) {
        let mut batch = Vec::with_capacity(BATCH_MAX);
        // A job has one question at a time.
        let (answered, mut answers) = mpsc::unbounded_channel();
        let mut timer = pin!(tokio::time::sleep_until(self.due().into()));
        loop {
            let due = self.due().into();
            // One that is set too early looks once more; to set it each time would cost more.
            if due < timer.deadline() || timer.is_elapsed() {
                timer.as_mut().reset(due);
            }
            tokio::select! {
                biased;
                count = inputs.recv_many(&mut batch, BATCH_MAX) => {
                    if count == 0 {
                        break;
                    }
                }
                Some(answer) = answers.recv() => self.take_answer(answer),
                () = timer.as_mut() => {}
            }
            for input in batch.drain(..) {
                if let Input::Stop(answer) = input {
                    self.save(true);
                    let _ = answer.send(self.read());
                    return;
                }
                self.handle(input);
            }
            self.advance();
            while let Some(question) = self.controller.poll_question() {
                let answered = answered.clone();
                // Once this task has ended nobody wants to know.
                spawn_blocking(move || drop(answered.send(question.answer())));
            }
        }
        self.save(true);
    }

    fn take_answer(&mut self, answer: Answer) {
        let problem = answer.plan.as_ref().err().map(ToString::to_string);
        let known = match &problem {
            Some(problem) => self.policy_problems.insert(answer.job, problem.clone()),
            None => self.policy_problems.remove(&answer.job),
        };
        if let (Some(problem), Some(job)) = (&problem, self.controller.job(answer.job))
            && known.as_ref() != Some(problem)
        {
            weft_process::say!("weft-controller: job `{}`: {problem}", job.name);
        }
        self.controller.handle_answer(self.now_ns(), answer);
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// When to look again without a message. Never at once, so that an engine that wants something
    /// it cannot have does not spin.
    fn due(&self) -> Instant {
        let soonest = Instant::now() + IDLE_MIN;
        let engine = self.controller.poll_timeout().map(|due_ns| {
            self.start + Duration::from_nanos(due_ns.min(self.now_ns() + IDLE_MAX_NS))
        });
        let welcome = self.welcomes.iter().map(|(_, until)| *until).min();
        let latest = soonest + Duration::from_nanos(IDLE_MAX_NS);
        let now_ns = self.now_ns();
        let policy = self.job_policy.as_ref().and_then(|policy| policy.due_in(now_ns));
        let policy = policy.map(|span| Instant::now() + span);
        let retry = self.unsaved.as_ref().map(|_| self.saved_at + SAVE_PERIOD);
        engine
            .into_iter()
            .chain(welcome)
            .chain(policy)
            .chain(retry)
            .min()
            .unwrap_or(latest)
            .max(soonest)
    }

    fn advance(&mut self) {
        let before = self.snapshot.status.plans;
        let begun = Instant::now();
        self.steer_jobs();
        self.controller.handle_timeout(self.now_ns());
        self.snapshot.status.plans = self.controller.plans();
        if self.snapshot.status.plans != before {
            let took_ns = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
            self.snapshot.plan_last_ns = took_ns;
            self.snapshot.plan_max_ns = self.snapshot.plan_max_ns.max(took_ns);
        }
        self.act_all();
        self.welcome();
    }

    /// Does what the engine wants done, once what that depends on is saved.
    fn act_all(&mut self) {
        self.save(false);
        if self.unsaved.as_ref().is_some_and(|unsaved| unsaved.is_urgent) {
            return;
        }
        while let Some(action) = self.controller.poll_action() {
            self.act(action);
        }
        for answer in std::mem::take(&mut self.answers) {
            answer(self);
        }
    }

    /// Answers once what was asked for is saved, and carried out as far as it can be at once. A
    /// refusal waits too: what it refers to may be of a word that is not saved yet.
    fn answer_saved(&mut self, answer: impl FnOnce(&mut Self) + Send + 'static) {
        self.answers.push(Box::new(answer));
        self.act_all();
    }

    /// Writes the state before what depends on it is carried out. What cannot be written is tried
    /// again in a while.
    fn save(&mut self, is_last: bool) {
        let is_due = self.saved_at.elapsed() >= SAVE_PERIOD || is_last;
        let mut is_urgent = self.controller.is_save_urgent();
        if !(is_due || is_urgent) {
            return;
        }
        self.saved_at = Instant::now();
        let before = self.unsaved.take();
        let was_in_trouble = before.is_some();
        is_urgent |= before.as_ref().is_some_and(|unsaved| unsaved.is_urgent);
        let new = self.controller.poll_saved();
        let Some(saved) = new.or_else(|| before.map(|unsaved| unsaved.saved)) else { return };
        match self.state_file.as_ref().map_or(Ok(()), |file| file.write(&saved)) {
            Ok(()) if was_in_trouble => {
                weft_process::say!("weft-controller: the state is saved again")
            }
            Ok(()) => {}
            Err(error) => {
                self.snapshot.save_failures += 1;
                if !was_in_trouble {
                    weft_process::say!("weft-controller: {error}; what depends on it waits");
                }
                self.unsaved = Some(Unsaved { saved, is_urgent });
            }
        }
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Command { node, command } => {
                self.note(&command);
                self.tell_node(node, command_to_proto(&command));
            }
            Action::Settled { node } => {
                let command = Some(v1::command::Command::Settled(v1::Settled {}));
                self.tell_node(node, v1::Command { command });
            }
            Action::Reply { job, rank, reply } => {
                self.reply(job, rank, convert::reply_to_proto(&reply));
            }
            Action::Probe { from, train, target, packets } => {
                let probe = v1::Probe { train, target: target.to_string(), packets };
                self.probe(from, probe);
            }
            Action::Held { node, job, holding, outcome } => {
                let told = outcome.map_or_else(|why| why.to_string(), |()| "done".to_owned());
                let name = self.controller.node_name(node);
                weft_process::say!("weft-controller: `{name}`, job {}: {holding}: {told}", job.0);
                if let Some(answer) = self.holds.remove(&(node, job, holding)) {
                    // Who asked may have gone.
                    let _ = answer.send(outcome.map_err(Unheld::Told));
                }
            }
            Action::State { job, state, after_ns } => self.tell_state(job, state, after_ns),
            Action::Unpaused { job, problem } => self.tell_unpaused(job, problem),
            Action::Rounds { job, rank, word } => {
                self.reply(job, rank, convert::round_word(word));
            }
            Action::Resized { job, outcome } => self.tell_resized(job, outcome),
            Action::Notice { job, notice } => {
                self.log(job, &notice);
                if let Notice::CommitsLost { lost, is_over, .. } = notice {
                    self.lose_commits(job, lost, is_over);
                }
            }
        }
    }

    /// Writes an install down; a log that cannot be written any more is given up, with a word.
    fn note(&mut self, command: &Command) {
        let Command::Install(group) = command else { return };
        self.write_event(|events| events.installed(group));
    }

    /// Writes a line of the log.
    fn write_event(&mut self, write: impl FnOnce(&mut Events) -> std::io::Result<()>) {
        let Some(events) = &mut self.events else { return };
        if let Err(error) = write(events) {
            weft_process::say!(
                "weft-controller: cannot write events: {error}; no more are written"
            );
            self.events = None;
        }
    }

    fn log(&self, job: JobId, notice: &Notice) {
        let job = self.controller.job(job).map_or("?", |job| &job.name);
        weft_process::say!("weft-controller: job `{job}`: {notice}");
    }

    fn handle(&mut self, input: Input) {
        match input {
            Input::WorkerHello { hello, peer, outbox, answer } => {
                let attached = self.attach_worker(&hello, &peer, outbox);
                // An asker that is gone will send WorkerGone, or never came to know its key.
                let key = attached.as_ref().ok().map(|(key, _)| *key);
                if let (Err(_), Some(key)) = (answer.send(attached), key) {
                    self.worker_gone(key);
                }
            }
            Input::Worker(key, message) => self.hear_worker(key, message),
            Input::WorkerGone(key) => self.worker_gone(key),
            Input::NodeHello { hello, outbox, answer } => {
                let attached = self.attach_node(&hello, outbox);
                let key = attached.as_ref().ok().map(|(key, _)| *key);
                if let (Err(_), Some(key)) = (answer.send(attached), key) {
                    self.node_gone(key);
                }
            }
            Input::Node(key, message) => self.hear_node(key, message),
            Input::NodeGone(key) => self.node_gone(key),
            Input::Register(job, answer) => {
                let registered = self.controller.register_job(self.now_ns(), *job);
                let described = registered.map(|id| self.describe(id).unwrap_or_default());
                self.answer_saved(move |_| drop(answer.send(described)));
            }
            Input::Unregister(name, answer) => self.unregister(&name, answer),
            Input::Pause(name, answer) => self.pause(&name, answer),
            Input::Resume(name, answer) => self.resume(&name, answer),
            Input::Resize(name, workers, answer) => self.resize(&name, workers, answer),
            Input::Hold(node, command, answer) => self.hold(&node, *command, answer),
            Input::SetBandPolicy(config, seen, answer) => {
                let set = self.controller.set_band_policy(self.now_ns(), config, seen);
                if set.is_ok() {
                    let (policy, interval_s) = (config.policy, config.interval_s);
                    weft_process::say!("weft-controller: bands: {policy}, every {interval_s} s");
                }
                // Boxes are told first, so that they may have answered when the caller asks.
                self.act_all();
                let _ = answer.send(set);
            }
            Input::Read(answer) | Input::Stop(answer) => {
                let _ = answer.send(self.read());
            }
        }
    }

    /// Has a box hold something, or no more. Its answer is an action.
    fn hold(&mut self, node: &str, command: HoldingCommand, answer: HoldAnswer) {
        let (job, holding) = (command.job(), command.holding());
        match self.controller.hold(node, command) {
            Ok(node) => {
                self.holds.insert((node, job, holding), answer);
            }
            Err(refusal) => {
                let _ = answer.send(Err(Unheld::Untold(refusal)));
            }
        }
    }

    fn read(&self) -> Snapshot {
        let uptime_ns = self.now_ns();
        Snapshot { uptime_ns, status: self.controller.status(uptime_ns), ..self.snapshot.clone() }
    }
}

impl std::fmt::Debug for Core {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Core").field("controller", &self.controller).finish_non_exhaustive()
    }
}

/// Messages taken before the engine acts.
const BATCH_MAX: usize = 256;
/// Least time between two looks without a message.
const IDLE_MIN: Duration = Duration::from_micros(200);
/// Greatest time between two looks.
const IDLE_MAX_NS: u64 = 1_000_000_000;
/// How often the state is written when nothing is urgent.
const SAVE_PERIOD: Duration = Duration::from_secs(1);
