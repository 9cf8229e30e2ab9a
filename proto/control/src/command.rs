//! What a controller tells a box, and why a box refuses.

use core::fmt;
use core::net::SocketAddr;

use weft_wire::{GroupId, JobId, Rank};

use crate::{GroupDescriptor, HoldingCommand, OrderNumber, ServerEpoch};

/// What a controller tells a box. Boxes take it between bursts, in order.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// Serve this group. Answered by [`crate::Event::Installed`] or [`crate::Event::Refused`].
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
        /// The ceiling of all that comes for it; its credits call for 31/32 of that.
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
    /// Replica: become the job's server (SPEC#promotion). Answered by [`crate::Event::Promoted`],
    /// or by [`crate::Event::PromotionRefused`] if it may lack something
    /// ([`crate::Event::ReplicaFitness`]). Said again, it is answered again.
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
    /// Aggregator: what it holds for a job changes.
    Holding(HoldingCommand),
    /// The box of a host that applies bands: the job's frames, which carry this label, leave in
    /// this band. Answered by [`crate::Event::BandSet`] or [`crate::Event::BandRefused`].
    SetBands {
        /// The job.
        job: JobId,
        /// Its label, 1 to [`crate::LABEL_MAX`]. The box judges it.
        label: u8,
        /// 0 to [`crate::JOB_BANDS`] - 1, which the box judges; `None`: with the rest.
        band: Option<u8>,
    },
    /// A box of the job: its frames carry this label from now on. Not answered.
    SetLabel {
        /// The job.
        job: JobId,
        /// 0 to [`crate::LABEL_MAX`]; another one changes nothing.
        label: u8,
    },
}

impl Command {
    /// The job that it is about.
    #[must_use]
    pub const fn job(&self) -> JobId {
        match self {
            Self::Install(descriptor) => descriptor.job,
            Self::Holding(command) => command.job(),
            Self::Remove { job, .. }
            | Self::CloseMember { job, .. }
            | Self::SetRate { job, .. }
            | Self::Skip { job, .. }
            | Self::Promote { job, .. }
            | Self::MoveServer { job, .. }
            | Self::StandDown { job, .. }
            | Self::LeaveReplica { job }
            | Self::SetBands { job, .. }
            | Self::SetLabel { job, .. } => *job,
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
