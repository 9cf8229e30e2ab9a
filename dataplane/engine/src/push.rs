//! What the roles of a push share: rows with a meaning of their own, and the group's descriptor
//! (SPEC#channels, SPEC#push).

use alloc::vec::Vec;

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
    /// The transfer into the server starts when this group is staged (its gate).
    pub after: Option<GroupId>,
    /// How long the group may be at the head of the order without being staged, before it is
    /// judged VOID.
    pub lateness_ns: u64,
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
