//! What a box holds for jobs: their shares of it, and leases. They come and go at run time.

use alloc::vec::Vec;
use core::fmt;
use core::net::SocketAddr;

use weft_wire::frame::Endpoint;
use weft_wire::header::{ElementType, Operation};
use weft_wire::hello::{Integrity, Overflow};
use weft_wire::{JobId, Rank};

use crate::{BoxIndex, SumOrder};

/// A job's share of the box.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct JobConfig {
    /// Index on the wire.
    pub job: JobId,
    /// Slots over all lanes that its leases may take (both banks of a slot count once).
    pub slots_max: u32,
    /// Token bucket: bytes of frames per second over all lanes; `None` is unlimited.
    pub rate_bytes_per_sec: Option<u64>,
    /// Token bucket: depth in bytes.
    pub burst_bytes: u64,
}

/// A group as the box serves it, with a windowed lease of its own.
#[derive(Clone, Debug, Eq, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct RowConfig {
    /// Row index on the wire.
    pub row: u16,
    /// The job that owns it.
    pub job: JobId,
    /// Members by rank.
    pub members: Vec<MemberConfig>,
    /// What an element is.
    pub element_type: ElementType,
    /// How elements combine.
    pub operation: Operation,
    /// Order of floating-point additions.
    pub sum_order: SumOrder,
    /// What happens when an i32 sum does not fit.
    pub overflow: Overflow,
    /// What protects the payload.
    pub integrity: Integrity,
    /// Elements per chunk.
    pub elements: u16,
    /// Slots over all lanes, a power of two and at least one per lane.
    pub window: u16,
    /// Chunks before the group must be formed again.
    pub chunks_max: u32,
    /// Job-fixed exponent; `None`: the members agree on one per chunk.
    pub exponent: Option<i8>,
    /// Contributions in a final sum, over all levels.
    pub fan_in: u32,
    /// Set on a leaf: where its sums go.
    pub parent: Option<ParentConfig>,
}

/// A member of a group.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct MemberConfig {
    /// Its address; the port is its lane 0, lane `i` uses `port + i`.
    pub addr: SocketAddr,
    /// Workers that its contribution stands for: 1, or a leaf's fan-in.
    pub weight: u32,
    /// True for a leaf aggregator, which may rejoin an open lease.
    pub is_box: bool,
}

/// The root of a leaf.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ParentConfig {
    /// Where the root listens. The Ethernet address may be broadcast until it is learnt.
    pub endpoint: Endpoint,
    /// The row at the root.
    pub row: u16,
    /// This leaf's rank there.
    pub rank: Rank,
    /// UDP port that lane 0 sends up from; lane `i` uses `port + i`.
    pub source_port: u16,
}

/// A job whose updates a box gathers in whole leases, and whose pulls it relays.
#[derive(Clone, Debug, Eq, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct PushConfig {
    /// Index on the wire. A job is either pushed or reduced at a box, never both.
    pub job: JobId,
    /// This aggregator among the job's boxes.
    pub box_index: BoxIndex,
    /// The workers by rank: 1 to 64.
    pub workers: Vec<SocketAddr>,
    /// The server. Its Ethernet address may be broadcast until it answers.
    pub server: Endpoint,
    /// The replica, which gets a copy of each sum of the groups that say so.
    pub replica: Option<Endpoint>,
    /// Memory of the job's whole leases, in bytes: a slot takes its elements at four bytes each, in
    /// whole cache lines, and 16 more.
    pub quota_bytes: u64,
    /// Memory of the relayed model's chunks, in bytes.
    pub pull_cache_bytes: u64,
    /// Chunks of the job's model.
    pub chunks: u32,
    /// Elements of every chunk.
    pub elements: u16,
    /// What an element of an update is.
    pub element_type: ElementType,
    /// What happens when an i32 sum does not fit.
    pub overflow: Overflow,
    /// What protects payloads: `crc32c` or `none`.
    pub integrity: Integrity,
    /// Scale exponent of updates that no controller gave one.
    pub exponent: Option<i8>,
    /// Token bucket: bytes of frames per second; `None` is unlimited.
    pub rate_bytes_per_sec: Option<u64>,
    /// Token bucket: depth in bytes.
    pub burst_bytes: u64,
}

impl PushConfig {
    /// Where its workers, its server and its replica speak from.
    pub fn addresses(&self) -> impl Iterator<Item = SocketAddr> + '_ {
        let ends = [Some(self.server), self.replica].into_iter().flatten();
        self.workers.iter().copied().chain(ends.map(|end| end.addr))
    }
}

/// Has an aggregator hold something for a job, or no more. Boxes take it between bursts, in order,
/// and answer each with one event: [`crate::Event::HoldingInstalled`],
/// [`crate::Event::HoldingRemoved`] or [`crate::Event::HoldingRefused`].
#[derive(Clone, Debug, Eq, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum HoldingCommand {
    /// Give this job a share of the box.
    InstallJob(JobConfig),
    /// Give this row a lease, out of the arena.
    InstallLease(RowConfig),
    /// Gather the pushes of this job and relay its pulls, out of the arena.
    InstallPush(PushConfig),
    /// Take the job's share back. It must have no leases any more.
    RemoveJob {
        /// The job.
        job: JobId,
    },
    /// Take the lease back, whatever its members do. Its session ends, and frames to it are refused
    /// from now on; members hear so when they ask why.
    RemoveLease {
        /// The job.
        job: JobId,
        /// The row.
        row: u16,
    },
    /// Gather the job's pushes no more, whatever its workers and its server do. Its groups end, and
    /// frames to it are refused from now on; its workers hear so when they ask why.
    RemovePush {
        /// The job.
        job: JobId,
    },
}

impl HoldingCommand {
    /// The job that it is about.
    #[must_use]
    pub const fn job(&self) -> JobId {
        match self {
            Self::InstallJob(config) => config.job,
            Self::InstallLease(config) => config.job,
            Self::InstallPush(config) => config.job,
            Self::RemoveJob { job } | Self::RemoveLease { job, .. } | Self::RemovePush { job } => {
                *job
            }
        }
    }

    /// Whether it has the box hold something.
    #[must_use]
    pub const fn is_install(&self) -> bool {
        matches!(self, Self::InstallJob(_) | Self::InstallLease(_) | Self::InstallPush(_))
    }

    /// What it is about.
    #[must_use]
    pub const fn holding(&self) -> Holding {
        match self {
            Self::InstallJob(_) | Self::RemoveJob { .. } => Holding::Job,
            Self::InstallLease(config) => Holding::Row(config.row),
            Self::RemoveLease { row, .. } => Holding::Row(*row),
            Self::InstallPush(_) | Self::RemovePush { .. } => Holding::Push,
        }
    }
}

/// One thing that a box holds for a job.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Holding {
    /// The job's share of the box.
    Job,
    /// The windowed lease of a row.
    Row(u16),
    /// The job's whole leases, and the relay of its pulls.
    Push,
}

impl fmt::Display for Holding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Job => f.write_str("the job's share"),
            Self::Row(row) => write!(f, "the lease of row {row}"),
            Self::Push => f.write_str("the job's pushes"),
        }
    }
}

/// Why a box neither installed nor removed what it was told to. Nothing has changed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum HoldingError {
    /// The job has no share of this box.
    UnknownJob,
    /// It is not there.
    Missing,
    /// It is there already.
    Taken,
    /// The row is another job's.
    OtherJob,
    /// The job still has leases here.
    InUse,
    /// The arena has no place that it fits.
    Full,
    /// The job's leases would take more slots than the job may.
    Quota,
    /// A number of it cannot be: job, row, box index, chunks, rate or burst.
    Number,
    /// Members cannot be these: how many, their addresses, weights or lanes.
    Members,
    /// The window cannot be this.
    Window,
    /// Elements, their type or how they combine cannot be these.
    Elements,
    /// The root cannot be this.
    Root,
    /// The job is pushed here, or reduced, and cannot be both: its groups and rows would have the
    /// same numbers on the wire.
    Both,
    /// Workers, server and replica of a push job cannot be these: how many, or their addresses.
    Workers,
    /// The elements of a push job's updates cannot be these.
    Updates,
    /// The memory of a push job holds no update, or no chunk of the model.
    Memory,
    /// The port was opened for none of these leases: without UDP checksums, or with no socket that
    /// the leaf could send from.
    Port,
    /// The box does nothing of the kind: it is a server or a replica.
    Role,
    /// The box is a switch, whose program cannot do this.
    Switch,
}

impl fmt::Display for HoldingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::UnknownJob => "the job has no share of this box; install it first",
            Self::Missing => "it is not there",
            Self::Taken => "it is there already; remove it first",
            Self::OtherJob => "the row is another job's",
            Self::InUse => "the job still has leases here; remove them first",
            Self::Full => "the arena has no place that it fits; free one or enlarge [arena]",
            Self::Quota => "the job's leases would take more than its slots_max",
            Self::Number => {
                "a number of it is out of range: job, row, box index, chunks, rate or burst"
            }
            Self::Members => {
                "its members must be 1 to 64, of distinct addresses of the box's family, of \
                 weights of at least 1 and within fan_in together, with ports that no other \
                 member or root has in another lane"
            }
            Self::Window => {
                "its window must be a power of two, from 1 to 2048 slots per lane, with handshakes \
                 that fit the MTU"
            }
            Self::Elements => {
                "its elements must fit the MTU, be i32, f32 or bf16, with a sum or a max, an order \
                 and an exponent that their type has"
            }
            Self::Root => "its root must be of the box's family, with room for a port per lane",
            Self::Both => {
                "a job is either reduced or pushed at one box, for its groups and rows would have \
                 the same numbers on the wire; give one of the two another job's index"
            }
            Self::Workers => {
                "it must have 1 to 64 workers, a server and a replica of distinct addresses of the \
                 box's family, with ports that no row's member or root has in a further lane"
            }
            Self::Updates => {
                "its elements must fit the MTU at 4 bytes each, be i32 or f32, with an exponent \
                 from -126 to 126"
            }
            Self::Memory => {
                "its quota_bytes must hold one update, chunks x (elements x 4 in whole cache lines \
                 + 16), and its pull_cache_bytes one chunk of elements x 4"
            }
            Self::Port => {
                "the port was opened without UDP checksums, or with no socket that the leaf could \
                 send from; have a row in the box's file that asks for it"
            }
            Self::Role => "the box is no aggregator",
            Self::Switch => {
                "the box is a switch: it adds i32 with wrap and checksum16, in chunks of the \
                 elements that its program was built for, for IPv4 hosts at ports that its file \
                 names, and is no leaf"
            }
        })
    }
}

impl core::error::Error for HoldingError {}
