//! The one task that owns the engine. Streams' messages come in through one bounded queue, what the
//! engine wants told goes out through one bounded queue for each stream.
//!
//! Invariant: this task waits for nothing but its queue and its timer. A peer that does not read
//! finds its stream ended, and dials again.

mod hear;

use std::collections::HashMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, oneshot};
use weft_plan::engine::{
    Action, ConfigError, Controller, JobConfig, NodeId, Notice, Reporter, Saved, Status,
};
use weft_rpc::{convert, v1};
use weft_wire::{JobId, Rank};

use crate::daemon::random;
use crate::{northbound, southbound, state};

/// A worker's stream.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct WorkerKey {
    /// Its job.
    pub job: JobId,
    /// Its rank.
    pub rank: Rank,
    /// Which of its streams.
    pub stream: u64,
}

/// A box's stream.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct NodeKey {
    /// The box.
    pub node: NodeId,
    /// Which of its streams.
    pub stream: u64,
}

/// What a stream is sent.
pub type Outbox<T> = mpsc::Sender<Result<T, tonic::Status>>;

/// What happens outside.
#[derive(Debug)]
pub enum Input {
    /// A worker's first message.
    WorkerHello {
        /// The message.
        hello: v1::WorkerHello,
        /// Where it calls from.
        from: Option<IpAddr>,
        /// Its stream.
        outbox: Outbox<v1::WorkerReply>,
        /// Whether it may stay.
        answer: oneshot::Sender<Result<WorkerKey, v1::Refused>>,
    },
    /// A worker's further message.
    Worker(WorkerKey, v1::worker_message::Message),
    /// A worker's stream has ended.
    WorkerGone(WorkerKey),
    /// A box's first message.
    NodeHello {
        /// The message.
        hello: v1::NodeHello,
        /// Its stream.
        outbox: Outbox<v1::Command>,
        /// Whether it may stay.
        answer: oneshot::Sender<Result<NodeKey, v1::Refused>>,
    },
    /// A box's further message.
    Node(NodeKey, v1::node_message::Message),
    /// A box's stream has ended.
    NodeGone(NodeKey),
    /// A job is made known.
    Register(Box<JobConfig>, oneshot::Sender<Result<v1::JobDescription, ConfigError>>),
    /// Somebody wants figures.
    Read(oneshot::Sender<Snapshot>),
    /// The controller is to end: it saves its state, gives its last figures and takes no more.
    Stop(oneshot::Sender<Snapshot>),
}

/// Figures at one time.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Since the start.
    pub uptime_ns: u64,
    /// The engine's.
    pub status: Status,
    /// Time that the last plan took, with the installs after it.
    pub plan_last_ns: u64,
    /// The longest.
    pub plan_max_ns: u64,
    /// Streams that were ended because their peer did not read.
    pub slow_peers: u64,
    /// Times that the state file could not be written.
    pub save_failures: u64,
}

/// The way to the core.
pub type CoreSender = mpsc::Sender<Input>;

struct Peer<T> {
    stream: u64,
    outbox: Outbox<T>,
}

/// The core's state.
pub struct Core {
    controller: Controller,
    start: Instant,
    state_file: Option<PathBuf>,
    telemetry_period_ns: u64,
    /// Another one in each life, above 0.
    nonce: u64,
    workers: HashMap<(JobId, Rank), Peer<v1::WorkerReply>>,
    nodes: HashMap<NodeId, Peer<v1::Command>>,
    /// Workers that wait for their boxes' addresses, and until when.
    welcomes: Vec<(WorkerKey, Instant)>,
    streams: u64,
    saved_at: Instant,
    snapshot: Snapshot,
}

impl Core {
    /// Around an engine.
    #[must_use]
    pub fn new(
        controller: Controller,
        state_file: Option<PathBuf>,
        telemetry_period_ns: u64,
    ) -> Self {
        let start = Instant::now();
        Self {
            controller,
            start,
            state_file,
            telemetry_period_ns,
            nonce: random().max(1),
            workers: HashMap::new(),
            nodes: HashMap::new(),
            welcomes: Vec::new(),
            streams: 0,
            saved_at: start,
            snapshot: Snapshot::default(),
        }
    }

    /// Serves until it is told to stop, or every sender is gone.
    pub async fn run(mut self, mut inputs: mpsc::Receiver<Input>) {
        let mut batch = Vec::with_capacity(BATCH_MAX);
        loop {
            let due = self.due();
            tokio::select! {
                biased;
                count = inputs.recv_many(&mut batch, BATCH_MAX) => {
                    if count == 0 {
                        break;
                    }
                }
                () = tokio::time::sleep_until(due.into()) => {}
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
        }
        self.save(true);
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
        engine.into_iter().chain(welcome).min().unwrap_or(latest).max(soonest)
    }

    fn advance(&mut self) {
        let before = self.snapshot.status.plans;
        let begun = Instant::now();
        self.controller.handle_timeout(self.now_ns());
        self.snapshot.status.plans = self.controller.plans();
        if self.snapshot.status.plans != before {
            let took_ns = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
            self.snapshot.plan_last_ns = took_ns;
            self.snapshot.plan_max_ns = self.snapshot.plan_max_ns.max(took_ns);
        }
        self.save(false);
        while let Some(action) = self.controller.poll_action() {
            self.act(action);
        }
        self.welcome();
    }

    /// Writes the state before what depends on it is carried out.
    fn save(&mut self, is_last: bool) {
        let is_due = self.saved_at.elapsed() >= SAVE_PERIOD || is_last;
        if !(is_due || self.controller.is_save_urgent()) {
            return;
        }
        self.saved_at = Instant::now();
        let Some(saved) = self.controller.poll_saved() else { return };
        self.write_state(&saved);
    }

    fn write_state(&mut self, saved: &Saved) {
        let Some(path) = &self.state_file else { return };
        if let Err(error) = state::write(path, saved) {
            self.snapshot.save_failures += 1;
            eprintln!("weft-controller: {error}");
        }
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Command { node, command } => {
                let Some(peer) = self.nodes.get(&node) else { return };
                if peer.outbox.try_send(Ok(convert::command_to_proto(&command))).is_err() {
                    self.snapshot.slow_peers += 1;
                    self.nodes.remove(&node);
                    self.controller.handle_node_gone(self.now_ns(), node);
                }
            }
            Action::Reply { job, rank, reply } => {
                self.reply(job, rank, northbound::reply_to_proto(&reply));
            }
            Action::Probe { from, train, target, packets } => {
                let probe = v1::Probe { train, target: target.to_string(), packets };
                self.probe(from, probe);
            }
            Action::Notice { job, notice } => self.log(job, &notice),
        }
    }

    fn probe(&mut self, from: Reporter, probe: v1::Probe) {
        match from {
            // One that does not read is dealt with by the next command.
            Reporter::Box(node) => {
                let command = Some(v1::command::Command::Probe(probe));
                if let Some(peer) = self.nodes.get(&node) {
                    let _ = peer.outbox.try_send(Ok(v1::Command { command }));
                }
            }
            Reporter::Worker(job, rank) => {
                self.reply(job, rank, v1::worker_reply::Message::Probe(probe));
            }
        }
    }

    /// What datagrams of probe trains carry; 0 when there are none.
    fn probe_nonce(&self) -> u64 {
        if self.controller.wants_probes() { self.nonce } else { 0 }
    }

    fn log(&self, job: JobId, notice: &Notice) {
        let job = self.controller.job(job).map_or("?", |job| &job.name);
        eprintln!("weft-controller: job `{job}`: {notice}");
    }

    fn reply(&mut self, job: JobId, rank: Rank, message: v1::worker_reply::Message) {
        let Some(peer) = self.workers.get(&(job, rank)) else { return };
        if peer.outbox.try_send(Ok(v1::WorkerReply { message: Some(message) })).is_err() {
            self.snapshot.slow_peers += 1;
            self.workers.remove(&(job, rank));
            self.controller.handle_worker_gone(job, rank);
        }
    }

    fn handle(&mut self, input: Input) {
        match input {
            Input::WorkerHello { hello, from, outbox, answer } => {
                let attached = self.attach_worker(&hello, from, outbox);
                // An asker that is gone will send WorkerGone, or never came to know its key.
                if let (Ok(key), Err(_)) = (attached.clone(), answer.send(attached)) {
                    self.worker_gone(key);
                }
            }
            Input::Worker(key, message) => self.hear_worker(key, message),
            Input::WorkerGone(key) => self.worker_gone(key),
            Input::NodeHello { hello, outbox, answer } => {
                let attached = self.attach_node(&hello, outbox);
                if let (Ok(key), Err(_)) = (attached.clone(), answer.send(attached)) {
                    self.node_gone(key);
                }
            }
            Input::Node(key, message) => self.hear_node(key, message),
            Input::NodeGone(key) => self.node_gone(key),
            Input::Register(job, answer) => {
                let registered = self.controller.register_job(self.now_ns(), *job);
                let described = registered.map(|id| self.describe(id).unwrap_or_default());
                let _ = answer.send(described);
            }
            Input::Read(answer) | Input::Stop(answer) => {
                let _ = answer.send(self.read());
            }
        }
    }

    fn read(&self) -> Snapshot {
        let uptime_ns = self.now_ns();
        Snapshot { uptime_ns, status: self.controller.status(uptime_ns), ..self.snapshot.clone() }
    }

    fn attach_worker(
        &mut self,
        hello: &v1::WorkerHello,
        from: Option<IpAddr>,
        outbox: Outbox<v1::WorkerReply>,
    ) -> Result<WorkerKey, v1::Refused> {
        let job = match &hello.name {
            Some(name) => self.controller.job_by_name(name).ok_or_else(|| v1::Refused {
                field: "name".into(),
                problem: format!("there is no job `{name}`"),
                update_id: None,
            })?,
            None => convert::job(hello.job)?,
        };
        let rank = convert::rank(hello.rank)?;
        let attached = self.controller.handle_worker(job, rank, hello.life, from);
        attached.map_err(|refusal| northbound::refused(&refusal, None))?;
        self.streams += 1;
        let key = WorkerKey { job, rank, stream: self.streams };
        self.workers.insert((job, rank), Peer { stream: key.stream, outbox });
        self.welcomes.push((key, Instant::now() + ADDRESSES_TIMEOUT));
        Ok(key)
    }

    /// Answers the hellos of workers whose boxes' addresses are known by now, or will not be.
    fn welcome(&mut self) {
        let now = Instant::now();
        let mut ready = Vec::new();
        let mut waiting = Vec::with_capacity(self.welcomes.len());
        for (key, until) in std::mem::take(&mut self.welcomes) {
            match until <= now || self.knows_addresses(key.job) {
                true => ready.push(key),
                false => waiting.push((key, until)),
            }
        }
        self.welcomes = waiting;
        for key in ready {
            let is_current =
                self.workers.get(&(key.job, key.rank)).is_some_and(|p| p.stream == key.stream);
            let described = self.describe(key.job).filter(|_| is_current);
            if let Some(described) = described {
                self.reply(key.job, key.rank, v1::worker_reply::Message::Welcome(described));
            }
        }
    }

    fn knows_addresses(&self, job: JobId) -> bool {
        self.controller.job(job).is_none_or(|job| {
            let boxes = job.aggregators.iter().chain([&job.server]).chain(&job.replica);
            boxes.into_iter().all(|node| !self.controller.address(node).is_empty())
        })
    }

    fn describe(&self, job: JobId) -> Option<v1::JobDescription> {
        let config = self.controller.job(job)?;
        let address = |node: &str| self.controller.address(node).to_owned();
        let epoch = self.controller.server_epoch(job);
        let links = (self.telemetry_period_ns, self.probe_nonce());
        Some(northbound::describe(config, epoch, links, &address))
    }

    fn worker_gone(&mut self, key: WorkerKey) {
        if self.workers.get(&(key.job, key.rank)).is_some_and(|peer| peer.stream == key.stream) {
            self.workers.remove(&(key.job, key.rank));
            self.controller.handle_worker_gone(key.job, key.rank);
        }
    }

    fn attach_node(
        &mut self,
        hello: &v1::NodeHello,
        outbox: Outbox<v1::Command>,
    ) -> Result<NodeKey, v1::Refused> {
        let read = southbound::node::hello(hello)?;
        let attached = self.controller.handle_node(self.now_ns(), &read);
        let node = attached.map_err(|refusal| northbound::refused(&refusal, None))?;
        self.streams += 1;
        let welcome = v1::NodeWelcome {
            telemetry_period_ns: self.telemetry_period_ns,
            probe_nonce: self.probe_nonce(),
        };
        let command = Some(v1::command::Command::Welcome(welcome));
        // The queue is new and empty.
        let _ = outbox.try_send(Ok(v1::Command { command }));
        self.nodes.insert(node, Peer { stream: self.streams, outbox });
        eprintln!("weft-controller: box `{}` attached", hello.name);
        Ok(NodeKey { node, stream: self.streams })
    }

    fn node_gone(&mut self, key: NodeKey) {
        if self.nodes.get(&key.node).is_some_and(|peer| peer.stream == key.stream) {
            self.nodes.remove(&key.node);
            self.controller.handle_node_gone(self.now_ns(), key.node);
            eprintln!("weft-controller: the stream of box {} ended", key.node.0);
        }
    }
}

impl std::fmt::Debug for Core {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Core").field("controller", &self.controller).finish_non_exhaustive()
    }
}

/// Messages that wait for the core.
pub const INPUTS_MAX: usize = 4096;
/// Messages that wait for a peer.
pub const OUTBOX_MAX: usize = 4096;
/// Messages taken before the engine acts.
const BATCH_MAX: usize = 256;
/// Least time between two looks without a message.
const IDLE_MIN: Duration = Duration::from_micros(200);
/// Greatest time between two looks.
const IDLE_MAX_NS: u64 = 1_000_000_000;
/// How often the state is written when nothing is urgent.
const SAVE_PERIOD: Duration = Duration::from_secs(1);
/// How long a worker's welcome waits for its boxes' addresses.
const ADDRESSES_TIMEOUT: Duration = Duration::from_secs(3);
