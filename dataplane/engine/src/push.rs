//! What the roles of a push share: rows with a meaning of their own, and the group's descriptor
//! (SPEC#channels, SPEC#push).

use alloc::vec::Vec;
use core::fmt;
use core::net::SocketAddr;

use weft_wire::header::ElementType;
use weft_wire::{GroupId, JobId, Members, Rank};

/// Groups that a controller may have open at one box, rows `0 .. GROUPS_OPEN_MAX`.
pub const GROUPS_OPEN_MAX: u16 = 1024;
/// Chunks of one update.
pub const UPDATE_CHUNKS_MAX: u32 = 1 << 20;
/// First of the 64 rows of direct updates without a controller.
pub const ROW_DIRECT: u16 = 0x8000;
/// The decision log, for replicas.
pub const ROW_LOG: u16 = 0xfffc;
/// The model.
pub const ROW_MODEL: u16 = 0xfffd;
/// Channel of a box.
pub const ROW_BOX_CHANNEL: u16 = 0xfffe;
/// Channel of a worker.
pub const ROW_WORKER_CHANNEL: u16 = 0xffff;

/// Position of an aggregator or a replica among the boxes of a job.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct BoxIndex(pub u8);

/// Position of a group in a server's commit sequence. Never used twice (PROTOCOL section 5).
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct OrderNumber(pub u64);

/// Version of a model: how many updates have entered it.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Version(pub u64);

/// How many times a job's replica took over from its server (SPEC#promotion). Grows only.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct ServerEpoch(pub u32);

/// One update of a group, in the group's order.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GroupMember {
    /// The worker's rank in the job, and its bit in every bitmap.
    pub rank: Rank,
    /// Version of the model that the update was computed on.
    pub version: Version,
}

/// A push group as its server, its replica and its aggregator know it.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupDescriptor {
    /// The job.
    pub job: JobId,
    /// Id, unique among the open groups of the job.
    pub group: GroupId,
    /// Position in the server's commit sequence.
    pub order: OrderNumber,
    /// The updates, in order: 1 to 64.
    pub members: Vec<GroupMember>,
    /// Chunks of every update.
    pub chunks: u32,
    /// What an element is.
    pub element_type: ElementType,
    /// Elements of every chunk.
    pub elements: u16,
    /// Scale exponent of every contribution and of the sum.
    pub exponent: i8,
    /// The aggregator that sums the group; `None`: the (one) member sends to the server itself.
    pub via: Option<BoxIndex>,
    /// True when a copy goes to the job's replica.
    pub replicate: bool,
    /// Ceiling of the rate of the transfer into the server, bytes of Ethernet frames per second.
    pub rate_bytes_per_sec: Option<u64>,
    /// Chunks that each of the group's transfers begins with as a train (SPEC#transfer-trains); 0:
    /// none.
    pub train_chunks: u16,
    /// The transfer into the server starts when this group is staged (its gate).
    pub after: Option<GroupId>,
    /// How long the group may be at the head of the order without being staged, before it is
    /// judged VOID.
    pub lateness_ns: u64,
}

/// True for what updates are made of: i32 and f32. A server stages nothing else, so nothing else is
/// taken into a configuration or a group.
#[must_use]
pub const fn is_pushed(element_type: ElementType) -> bool {
    matches!(element_type, ElementType::I32 | ElementType::F32)
}

impl GroupDescriptor {
    /// The members as a bitmap.
    #[must_use]
    pub fn mask(&self) -> Members {
        self.members.iter().fold(Members::EMPTY, |mask, member| mask.union(member.rank.bit()))
    }
}

/// What became of an update.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Decision {
    /// It is in the model, which then had this version.
    Committed(Version),
    /// It never will be: late, closed, or the controller asked so. It may be sent anew.
    Void,
    /// It never will be: too old, or dropped by the plan. The worker pulls a fresh model.
    Dropped,
}

/// What a controller tells a box. Boxes take it between bursts, in order.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// Serve this group. Answered by [`Event::Installed`] or [`Event::Refused`].
    Install(GroupDescriptor),
    /// Forget the group (aggregator), or judge it VOID if it is still undecided (server).
    Remove {
        /// The job.
        job: JobId,
        /// The group.
        group: GroupId,
    },
    /// Close the open groups of the job without this member: it died or its update is dropped.
    CloseMember {
        /// The job.
        job: JobId,
        /// The one group, or all of the job's.
        group: Option<GroupId>,
        /// The member.
        rank: Rank,
    },
    /// What the server's own link may receive for this job, bytes of Ethernet frames per second.
    SetRate {
        /// The job.
        job: JobId,
        /// The ceiling of all its credits together.
        rate_bytes_per_sec: u64,
    },
    /// Order numbers below this one that no group has by now stay unused: the server judges them
    /// VOID as their turn comes, without waiting for a group.
    Skip {
        /// The job.
        job: JobId,
        /// The first order number that is not meant.
        below: OrderNumber,
    },
    /// Replica: become the job's server (SPEC#promotion). Answered by [`Event::Promoted`], or by
    /// [`Event::PromotionRefused`] if it may lack something ([`Event::Heir`]). Said again, it is
    /// answered again.
    Promote {
        /// The job.
        job: JobId,
        /// The server's epoch from now on: greater than that of all its servers before.
        epoch: ServerEpoch,
        /// The order number that it decides first. None at or above it was ever used.
        order: OrderNumber,
    },
    /// Aggregator: the job has another server and no replica any more; its open groups end.
    MoveServer {
        /// The job.
        job: JobId,
        /// Where the server listens.
        server: SocketAddr,
    },
    /// Server: another one has taken the job over; serve it no more.
    StandDown {
        /// The job.
        job: JobId,
        /// The epoch of the server that has it.
        epoch: ServerEpoch,
    },
    /// Server: the replica is gone; acknowledge without it, for good. Replica: that was said of it;
    /// never take over.
    LeaveReplica {
        /// The job.
        job: JobId,
    },
}

impl Command {
    /// The job that it is about.
    #[must_use]
    pub const fn job(&self) -> JobId {
        match self {
            Self::Install(descriptor) => descriptor.job,
            Self::Remove { job, .. }
            | Self::CloseMember { job, .. }
            | Self::SetRate { job, .. }
            | Self::Skip { job, .. }
            | Self::Promote { job, .. }
            | Self::MoveServer { job, .. }
            | Self::StandDown { job, .. }
            | Self::LeaveReplica { job } => *job,
        }
    }
}

/// Why a box refused a group.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum InstallError {
    /// The job is not served here.
    UnknownJob,
    /// The row holds another open group.
    RowTaken,
    /// Members, chunks, elements or element type do not fit the job.
    Shape,
    /// The order number is below the next one, or taken.
    Order,
    /// No memory is left for its staging or its slots.
    Full,
}

impl fmt::Display for InstallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::UnknownJob => "the job is not served here",
            Self::RowTaken => "the row holds another open group",
            Self::Shape => "members, chunks, elements or element type do not fit the job",
            Self::Order => "the order number is below the next one, or taken",
            Self::Full => "no memory is left for its staging or its slots",
        })
    }
}

impl core::error::Error for InstallError {}

/// What a box tells its controller, and its reports.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Event {
    /// The group is served here.
    Installed {
        /// The group.
        group: GroupId,
    },
    /// The group is not served here.
    Refused {
        /// The group.
        group: GroupId,
        /// Why.
        error: InstallError,
    },
    /// Aggregator: all chunks of this member's update are in.
    Gathered {
        /// The group.
        group: GroupId,
        /// The member.
        rank: Rank,
    },
    /// Server or replica: all chunks of the group are staged.
    Staged {
        /// The group.
        group: GroupId,
    },
    /// A transfer has arrived whole: a sample of the path's bandwidth.
    Transferred {
        /// The group.
        group: GroupId,
        /// The one member (into an aggregator, or direct); `None`: a sum.
        rank: Option<Rank>,
        /// Bytes of Ethernet frames.
        bytes: u64,
        /// From its first frame to its last.
        duration_ns: u64,
        /// Server: from its first PULL to its first frame. Others: 0.
        wait_ns: u64,
        /// Server: how long no chunk of any group had come when its first one did. Others: 0.
        idle_ns: u64,
    },
    /// Server: the order number is decided. Replica: it is applied.
    Decided {
        /// The group.
        group: GroupId,
        /// Its order number.
        order: OrderNumber,
        /// What became of it.
        decision: Decision,
        /// The members that were committed.
        members: Members,
        /// Euclidean norm of the sum.
        norm: f64,
        /// Euclidean norm of the momentum term afterwards.
        momentum_norm: f64,
    },
    /// Server: a member began a new life, or closed its channel.
    MemberLost {
        /// The job.
        job: JobId,
        /// The member.
        rank: Rank,
    },
    /// Server: the replica has applied everything below this order number.
    ReplicaAt {
        /// The next order number that it wants.
        order: OrderNumber,
        /// Bound of the distance between server and replica.
        divergence_bound: f64,
        /// False when `div_max` could not be held.
        is_held: bool,
    },
    /// Replica: whether it knows that it has all that workers were told of, so that it could take
    /// its server's place; said when that changes. At first it does not.
    Heir {
        /// True when it does.
        is_fit: bool,
    },
    /// Replica: it is the job's server now.
    Promoted {
        /// Its epoch.
        epoch: ServerEpoch,
        /// It has applied all below this of its predecessor's order numbers, and nothing else.
        applied: OrderNumber,
        /// The order number that it decides first.
        order: OrderNumber,
        /// Version of its model.
        version: Version,
        /// Euclidean norm of its momentum term.
        momentum_norm: f64,
    },
    /// Replica: it lacks decisions that workers may have been told of.
    PromotionRefused {
        /// The next order number that it wanted.
        applied: OrderNumber,
    },
    /// Server: it serves the job no more.
    StoodDown {
        /// The epoch of the server that does.
        epoch: ServerEpoch,
    },
}
