//! What goes into a controller and what comes out of it, free of any encoding.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::net::SocketAddr;

use weft_control::{
    BandError, BoxIndex, Command, Decision, DropReason, Holding, HoldingError, InstallError,
    JobState, OrderNumber, RoundWord, ServerEpoch, Version,
};
pub use weft_control::{NodeHello, OpenGroup, RoleState};
use weft_wire::{GroupId, JobId, Rank};

use weft_plan::net::estimate::train::{Arrival, Reading};

use super::steered::Resize;

/// A box, as the controller counts them.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct NodeId(pub u16);

impl NodeId {
    pub(super) const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Who reports of a host's links: a process on it with a stream.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Reporter {
    /// A box.
    Box(NodeId),
    /// A worker of a job.
    Worker(JobId, Rank),
}

/// A message that was not obeyed. It changed nothing.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct Refusal {
    /// The field that is wrong.
    pub field: &'static str,
    /// What is wrong with it and what would be right.
    pub problem: String,
}

impl Refusal {
    pub(super) fn new(field: &'static str, problem: impl Into<String>) -> Self {
        Self { field, problem: problem.into() }
    }
}

/// A worker's question: may I send?
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TransferRequest {
    /// Chosen by the worker, greater than all before.
    pub update_id: u64,
    /// Bytes of Ethernet frames; 0: as the job's chunks say.
    pub size_bytes: u64,
    /// Version that it was computed on.
    pub version: Version,
    /// Euclidean norm.
    pub norm: f64,
    /// Largest absolute value.
    pub max_abs: f64,
}

/// A port's counters.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Telemetry {
    /// On the box's clock.
    pub at_ns: u64,
    /// Weft's own bytes in.
    pub rx_bytes: u64,
    /// Weft's own bytes out.
    pub tx_bytes: u64,
    /// All bytes in, where the port can tell.
    pub nic_rx_bytes: Option<u64>,
    /// All bytes out, where the port can tell.
    pub nic_tx_bytes: Option<u64>,
}

/// A probe train as it arrived.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProbeTrain {
    /// Its number.
    pub train: u32,
    /// Its datagrams, in order of arrival.
    pub arrivals: Vec<Arrival>,
    /// Readings of the receiver's interface meanwhile.
    pub readings: Vec<Reading>,
}

/// What the controller wants done.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Tell a box.
    Command {
        /// Which.
        node: NodeId,
        /// What.
        command: Command,
    },
    /// Tell a box that it holds all that there is for it.
    Settled {
        /// Which.
        node: NodeId,
    },
    /// Tell a worker.
    Reply {
        /// Its job.
        job: JobId,
        /// Its rank.
        rank: Rank,
        /// What.
        reply: Reply,
    },
    /// Have a probe train sent.
    Probe {
        /// By whom.
        from: Reporter,
        /// Its number.
        train: u32,
        /// Where it is received.
        target: SocketAddr,
        /// Datagrams.
        packets: u32,
    },
    /// Tell whoever asked: a box's answer to [`Controller::hold`](crate::Controller::hold).
    Held {
        /// The box.
        node: NodeId,
        /// The job.
        job: JobId,
        /// What it is about.
        holding: Holding,
        /// Done, or why not.
        outcome: Result<(), NotHeld>,
    },
    /// Tell whoever waits for it, and write down: a job does something else now.
    State {
        /// The job.
        job: JobId,
        /// What it does.
        state: JobState,
        /// Once it stands still: how long that took from the word on.
        after_ns: Option<u64>,
    },
    /// Tell whoever waits for it, and write down: a job that was to pause goes on.
    Unpaused {
        /// The job.
        job: JobId,
        /// Why.
        problem: String,
    },
    /// Tell a worker of an allreduce who its cohort is, or what it may do.
    Rounds {
        /// The job.
        job: JobId,
        /// The worker.
        rank: Rank,
        /// What.
        word: RoundWord,
    },
    /// Tell whoever waits for it, and write down: a resize has come to its end.
    Resized {
        /// The job.
        job: JobId,
        /// How long it took; or why the job goes on as it was.
        outcome: Result<Resize, String>,
    },
    /// Tell people.
    Notice {
        /// The job.
        job: JobId,
        /// What.
        notice: Notice,
    },
}

/// Why a box does not hold what it was told to, or still does.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum NotHeld {
    /// It says so. Nothing has changed there.
    Refused(HoldingError),
    /// Its stream broke before it answered: it may have done it or not. Tell it again when it is
    /// back.
    Gone,
}

impl fmt::Display for NotHeld {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(error) => error.fmt(f),
            Self::Gone => f.write_str("the box went before it answered; tell it again"),
        }
    }
}

/// What people are told of a job's boxes. Names are the boxes'.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Notice {
    /// The server is silent; its replica was told to take over.
    Promoting {
        /// The silent one.
        server: String,
        /// The other.
        replica: String,
        /// The epoch that begins.
        epoch: ServerEpoch,
    },
    /// The replica has taken over. There is no replica any more.
    Promoted {
        /// The server now.
        server: String,
        /// Its epoch.
        epoch: ServerEpoch,
        /// It had applied all below this order number.
        applied: u64,
        /// Version of its model.
        version: Version,
    },
    /// The replica would not take over: it lacks what workers may have been told of.
    Refused {
        /// The server that is needed.
        server: String,
        /// The replica has applied all below this order number; 0 if it took a snapshot.
        applied: u64,
    },
    /// The server is silent and nobody can take over.
    Stranded {
        /// The silent one.
        server: String,
    },
    /// The replica is silent; the job goes on without.
    ReplicaLeft {
        /// The silent one.
        replica: String,
    },
    /// A box refuses the job's groups.
    InstallRefused {
        /// Which.
        node: String,
        /// Why.
        error: InstallError,
    },
    /// A former server came back, and was told to stand down.
    StoodDown {
        /// Which.
        server: String,
        /// The epoch of the server that has the job.
        epoch: ServerEpoch,
    },
    /// A server returned without commits that it had announced. Its replica is promoted, or the job
    /// has ended.
    CommitsLost {
        /// Which.
        server: String,
        /// The versions.
        lost: LostCommits,
        /// The job has ended: no replica is fit.
        is_over: bool,
    },
    /// The job's frames leave the host of its server in another band. `None`: with the rest.
    Band {
        /// The band that it had.
        from: Option<u8>,
        /// The one that it is to have.
        to: Option<u8>,
    },
    /// A box did not give the job its band.
    BandRefused {
        /// Which.
        node: String,
        /// The band.
        band: Option<u8>,
        /// Why.
        error: BandError,
    },
}

/// Commits that a server had announced and lost.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct LostCommits {
    /// The version that it is back with.
    pub returned: Version,
    /// The version that it had announced.
    pub acknowledged: Version,
}

impl fmt::Display for LostCommits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (returned, acknowledged) = (self.returned.0, self.acknowledged.0);
        write!(f, "server returned with version {returned}, {acknowledged} were acknowledged")
    }
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Promoting { server, replica, epoch } => write!(
                f,
                "server `{server}` is silent; `{replica}` was told to take over as epoch {}",
                epoch.0
            ),
            Self::Promoted { server, epoch, applied, version } => write!(
                f,
                "`{server}` is the server now, epoch {}, with all below order {applied}, at version \
                 {}; there is no replica any more, replication is not held",
                epoch.0, version.0
            ),
            Self::Refused { server, applied } => write!(
                f,
                "the replica cannot take over: workers may know of more than the order numbers below \
                 {applied} that it has; start `{server}` again with its state"
            ),
            Self::Stranded { server } => write!(
                f,
                "server `{server}` is silent and no replica can take over; start it again"
            ),
            Self::ReplicaLeft { replica } => write!(
                f,
                "replica `{replica}` is silent; updates are acknowledged without it from now on, \
                 replication is not held"
            ),
            Self::InstallRefused { node, error } => {
                write!(f, "`{node}` refuses groups: {}", explain(*error))
            }
            Self::StoodDown { server, epoch } => write!(
                f,
                "`{server}` says that it is the server, and is told to stand down: the server is \
                 another one since epoch {}; end it, and begin the next job with new files",
                epoch.0
            ),
            Self::CommitsLost { server, lost, is_over } => {
                let what = if *is_over { "the job ends" } else { "its replica takes over" };
                write!(f, "`{server}`: {lost}; {what}")
            }
            Self::Band { from, to } => {
                write!(f, "band {} instead of {}", Shown(*to), Shown(*from))
            }
            Self::BandRefused { node, band, error } => {
                write!(f, "`{node}` does not give it band {}: {error}", Shown(*band))
            }
        }
    }
}

/// A band as people read it.
struct Shown(Option<u8>);

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(band) => band.fmt(f),
            None => f.write_str("none"),
        }
    }
}

/// Why a box refused a group, and what to do, for people.
#[must_use]
pub(super) const fn explain(error: InstallError) -> &'static str {
    match error {
        InstallError::UnknownJob => "it does not have the job; add it to its file",
        InstallError::RowTaken => "it has another group in that row; its updates are planned anew",
        InstallError::Shape => {
            "members, chunks, elements or element type do not fit the job there; compare its file \
             with the controller's"
        }
        InstallError::Order => "the order number is taken; its updates are planned anew",
        InstallError::Full => {
            "no memory is left for staging or slots; raise staging_bytes_max or groups_open_max there"
        }
    }
}

/// What a worker is told.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// Send it so.
    Grant(Grant),
    /// Do not send it.
    Drop {
        /// Which update.
        update_id: u64,
        /// Why.
        reason: DropReason,
    },
    /// A gate is open.
    Release {
        /// Which update's.
        update_id: u64,
        /// Position of the segment that begins.
        segment: u32,
    },
    /// What became of a granted update.
    Delivered {
        /// Which.
        update_id: u64,
        /// The decision.
        decision: Decision,
    },
    /// The job has another server.
    ServerMoved {
        /// "address:port" of its data port.
        address: String,
        /// Its epoch.
        epoch: ServerEpoch,
    },
}

/// How an update is to be sent. Every box on its path knows its group.
#[derive(Clone, Debug, PartialEq)]
pub struct Grant {
    /// Which update.
    pub update_id: u64,
    /// Its group.
    pub group: GroupId,
    /// The group's place in the commit sequence.
    pub order: OrderNumber,
    /// The aggregator; none: straight to the server.
    pub via: Option<BoxIndex>,
    /// Scale exponent.
    pub exponent: i8,
    /// Rates, in the order in which they hold.
    pub segments: Vec<GrantSegment>,
    /// The replica gets a copy.
    pub replicate: bool,
    /// Members of the group.
    pub member_count: u32,
    /// Chunks that the transfer begins with as a train; 0: none.
    pub train_chunks: u16,
}

/// A part of a transfer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct GrantSegment {
    /// When it begins.
    pub gate: Gate,
    /// Ceiling of its rate.
    pub rate_bytes_per_sec: u64,
    /// When the plan expects the gate to open, from now.
    pub expected_in_ns: u64,
}

/// What opens a segment.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Gate {
    /// Nothing: it is open.
    Open,
    /// The end of this transfer; a [`Reply::Release`] tells.
    After(TransferKey),
}

/// A transfer of a group.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum TransferKey {
    /// From a member to its aggregator.
    Member(GroupId, Rank),
    /// Into the server: the sum, or the only member.
    Sum(GroupId),
    /// Into the replica.
    Copy(GroupId),
}

impl TransferKey {
    /// The group that it belongs to.
    #[must_use]
    pub const fn group(self) -> GroupId {
        match self {
            Self::Member(group, _) | Self::Sum(group) | Self::Copy(group) => group,
        }
    }
}
