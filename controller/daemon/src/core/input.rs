//! What the core is told, by whom, and what it answers.

use tokio::sync::{mpsc, oneshot};
use weft_control::HoldingCommand;
use weft_controller_engine::{
    BandsConfig, BandsSet, ConfigError, JobConfig, NodeId, NotHeld, Refusal, Resize, Status,
    SteerError, UnregisterError, Unregistered,
};
use weft_rpc::v1;
use weft_wire::{JobId, Rank};

use crate::auth::Peer;

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

/// Tells a stream that the core has let go of it: it is to end, whatever its peer still says.
pub type Ended = oneshot::Receiver<()>;

/// What happens outside.
#[derive(Debug)]
pub enum Input {
    /// A worker's first message.
    WorkerHello {
        /// The message.
        hello: v1::WorkerHello,
        /// Who calls, and where from.
        peer: Peer,
        /// Its stream.
        outbox: Outbox<v1::WorkerReply>,
        /// Whether it may stay.
        answer: oneshot::Sender<Result<(WorkerKey, Ended), v1::Refused>>,
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
        answer: oneshot::Sender<Result<(NodeKey, Ended), v1::Refused>>,
    },
    /// A box's further message.
    Node(NodeKey, v1::node_message::Message),
    /// A box's stream has ended.
    NodeGone(NodeKey),
    /// A job is made known.
    Register(Box<JobConfig>, oneshot::Sender<Result<v1::JobDescription, ConfigError>>),
    /// A job that was registered is to end.
    Unregister(String, UnregisterAnswer),
    /// A box, by its name, is to install or remove what it holds for a job.
    Hold(String, Box<HoldingCommand>, HoldAnswer),
    /// A job, by its name, is to pause.
    Pause(String, PauseAnswer),
    /// A job, by its name, is to go on.
    Resume(String, ResumeAnswer),
    /// An allreduce job, by its name, is to have so many workers.
    Resize(String, u32, ResizeAnswer),
    /// An operator sets the policy of bands; the change that it knows of, if that matters.
    SetBandPolicy(BandsConfig, Option<u64>, oneshot::Sender<Result<BandsSet, Refusal>>),
    /// Somebody wants figures.
    Read(oneshot::Sender<Snapshot>),
    /// The controller is to end: it saves its state, gives its last figures and takes no more.
    Stop(oneshot::Sender<Snapshot>),
}

/// How a job's end is answered.
pub type UnregisterAnswer = oneshot::Sender<Result<Unregistered, UnregisterError>>;

/// How a box's holding is answered.
pub type HoldAnswer = oneshot::Sender<Result<(), Unheld>>;

/// How a pause is answered: how long the standstill took.
pub type PauseAnswer = oneshot::Sender<Result<u64, Unpaused>>;

/// How a resume is answered.
pub type ResumeAnswer = oneshot::Sender<Result<(), SteerError>>;

/// How a resize is answered.
pub type ResizeAnswer = oneshot::Sender<Result<Resize, Unresized>>;

/// Why a job has not another number of workers.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Unresized {
    /// It was not told to.
    Untold(SteerError),
    /// It goes on as it was.
    Reverted(String),
}

/// Why a job does not stand still.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Unpaused {
    /// It was not told to.
    Untold(SteerError),
    /// It was told to go on before it stood still.
    Resumed,
    /// It cannot stop, and goes on.
    GivenUp(String),
}

/// Why a box does not hold what it should, or still does.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Unheld {
    /// It was not told.
    Untold(Refusal),
    /// It was.
    Told(NotHeld),
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
    /// Connections that came to nothing: other certificates, no TLS, too slow, too many at a time.
    pub connections_refused: u64,
    /// Calls that the caller's role may not make.
    pub calls_refused: u64,
}

/// The way to the core.
pub type CoreSender = mpsc::Sender<Input>;

/// Messages that wait for the core.
pub const INPUTS_MAX: usize = 4096;
/// Messages that wait for a peer.
pub const OUTBOX_MAX: usize = 4096;
