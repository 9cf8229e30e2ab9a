//! What a box tells its controller.

use weft_wire::{GroupId, JobId, Members, Rank};

use crate::{
    BandError, Decision, Holding, HoldingError, InstallError, OrderNumber, ServerEpoch, Version,
};

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
    ReplicaFitness {
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
    /// Aggregator: the box holds this for the job now, in all its lanes.
    HoldingInstalled {
        /// What.
        holding: Holding,
    },
    /// Aggregator: the box holds this no more, in none of its lanes.
    HoldingRemoved {
        /// What.
        holding: Holding,
    },
    /// The box did not install or remove it.
    HoldingRefused {
        /// What.
        holding: Holding,
        /// Why.
        error: HoldingError,
    },
    /// The job's frames leave in this band from now on.
    BandSet {
        /// `None`: with the rest.
        band: Option<u8>,
    },
    /// The band that the job had is lost, by nobody's word: somebody has changed the link's queues,
    /// or the link is gone. [`Event::BandSet`] says that it is there again.
    BandLost {
        /// The band.
        band: Option<u8>,
        /// Why it cannot be there.
        error: BandError,
    },
    /// The job's frames leave in the band that they had.
    BandRefused {
        /// The band that it was to have.
        band: Option<u8>,
        /// Why.
        error: BandError,
    },
}

impl Event {
    /// Whether it is about a job's band.
    #[must_use]
    pub const fn is_of_bands(&self) -> bool {
        matches!(self, Self::BandSet { .. } | Self::BandLost { .. } | Self::BandRefused { .. })
    }

    /// What it answers about, if it answers a [`crate::HoldingCommand`].
    #[must_use]
    pub const fn holding(&self) -> Option<Holding> {
        match self {
            Self::HoldingInstalled { holding }
            | Self::HoldingRemoved { holding }
            | Self::HoldingRefused { holding, .. } => Some(*holding),
            _ => None,
        }
    }
}
