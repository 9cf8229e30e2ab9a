//! A push group as server, replica, aggregator and controller know it, and what becomes of updates
//! (SPEC#push).

use alloc::vec::Vec;

use weft_wire::header::ElementType;
use weft_wire::{GroupId, JobId, Members, Rank};

use crate::{BoxIndex, OrderNumber, Version};

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
