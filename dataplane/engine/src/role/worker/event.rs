//! What a worker reports: events, the ways it can fail, and why it refuses a frame.

use core::fmt;

use weft_wire::header::{ElementType, Operation};
use weft_wire::hello::Reason;
use weft_wire::{JobId, Members};

/// Something that the caller may want to know.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Event {
    /// Every lane's lease is open: rounds can begin.
    Opened,
    /// Every sum of the round has been given to the payload.
    RoundComplete,
    /// The box had lost this lane's lease; the group formed it again and goes on.
    Resynced {
        /// The lane.
        lane: u16,
    },
    /// The worker has stopped for good.
    Failed(WorkerError),
    /// The close exchange is over and the worker has stopped.
    Closed {
        /// True when the box said that every member has closed; false when the linger ran out.
        by_all: bool,
    },
}

/// Why a worker stopped.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum WorkerError {
    /// Local and target addresses are of different families.
    AddressFamily,
    /// The box never answered this lane's handshake.
    NoAnswer {
        /// The lane, by which the UDP source port can be told.
        lane: u16,
    },
    /// Short datagrams reach the box and come back, full ones do not.
    MtuTooSmall {
        /// UDP payload bytes of the probe.
        probe_len: u16,
    },
    /// The lease's chunks or handshakes are longer than the probe that was tried.
    ProbeTooShort {
        /// UDP payload bytes of the longer of the two.
        datagram_len: usize,
    },
    /// The others did not come, or fell silent.
    MembersMissing {
        /// Those missing in the box's last word. Empty when the box had all of this level and
        /// waited for the level above.
        missing: Members,
    },
    /// The box fell silent.
    BoxSilent,
    /// The box answers, but neither sums come nor a word of whom it waits for.
    Stuck,
    /// The box refused.
    Refused {
        /// Why.
        reason: Reason,
        /// The ranks that the refusal concerns.
        members: Members,
    },
    /// The box serves no such row, or not for this job.
    UnknownGroup {
        /// The job that was asked for.
        job: JobId,
        /// The row.
        row: u16,
    },
    /// The lease that the box offered cannot be used.
    BadLease(LeaseFault),
    /// The row has elements of another type or operation than this worker.
    OtherElements {
        /// The row.
        row: u16,
        /// This worker's.
        own: (ElementType, Operation),
        /// The row's.
        rows: (ElementType, Operation),
    },
    /// The members gave vectors of unequal length to one sum.
    LengthsDiffer {
        /// Those that agree with the first contribution.
        members: Members,
        /// The length of their vectors.
        first: Extent,
        /// All other members, of which some have not contributed yet.
        others: Members,
        /// The length of the vector of at least one of them.
        other: Extent,
    },
    /// Members have closed, and the round waits for them.
    MembersLeft {
        /// Those that have closed.
        members: Members,
    },
}

/// The length of a vector in elements, as far as MISMATCH shows it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Extent {
    /// So many.
    Exactly(u64),
    /// So many, or more.
    AtLeast(u64),
    /// More than so many.
    Above(u64),
    /// So many, or fewer.
    AtMost(u64),
}

impl Extent {
    /// The lengths of two vectors that agree in the elements `before` a chunk of `full` elements
    /// and differ in it: one ends there with `last`, if any, and the other has `count` there.
    pub(super) fn of_two(before: u64, full: u16, last: Option<u16>, count: u16) -> (Self, Self) {
        let [one, other] = [last.unwrap_or(full), count].map(|count| before + u64::from(count));
        if last.unwrap_or(full) != count {
            // A whole chunk may be the other's last.
            let whole = before + u64::from(full);
            let of = |len| if len == whole { Self::AtLeast(len) } else { Self::Exactly(len) };
            (of(one), of(other))
        } else if last.is_some() {
            (Self::Exactly(one), Self::Above(one))
        } else {
            (Self::Above(one), Self::Exactly(one))
        }
    }
}

impl WorkerError {
    /// The same error, where an element stands for a block of so many.
    #[must_use]
    pub fn in_blocks(self, block: u64) -> Self {
        let Self::LengthsDiffer { members, first, others, other } = self else { return self };
        let (first, other) = match (first, other) {
            (Extent::Exactly(one), Extent::Exactly(more) | Extent::AtLeast(more)) if one < more => {
                (Extent::AtMost(one * block), Extent::Above(one * block))
            }
            (Extent::Exactly(one), Extent::Above(_)) => {
                (Extent::AtMost(one * block), Extent::Above(one * block))
            }
            (_, Extent::Exactly(one)) => (Extent::Above(one * block), Extent::AtMost(one * block)),
            unchanged => unchanged,
        };
        Self::LengthsDiffer { members, first, others, other }
    }
}

impl fmt::Display for Extent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exactly(len) => write!(f, "{len}"),
            Self::AtLeast(len) => write!(f, "{len} or more"),
            Self::Above(len) => write!(f, "more than {len}"),
            Self::AtMost(len) => write!(f, "at most {len}"),
        }
    }
}

impl fmt::Display for LeaseFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Window => "its window is no power of two, or too large",
            Self::Shards => "it has no lanes, or more than this worker has ports",
            Self::Elements => "its chunks are empty, or longer than a datagram",
            Self::Mask => "this rank is none of its members",
            Self::Changed => "it is not the one that was agreed before",
        })
    }
}

/// What is wrong with an offered lease.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum LeaseFault {
    /// The window is no power of two, or above the protocol's maximum.
    Window,
    /// No lanes, or more than [`super::LANES_MAX`], or more than the local ports.
    Shards,
    /// No elements, or more than a datagram holds.
    Elements,
    /// This rank is not in the mask.
    Mask,
    /// A lane, the lease after a resync, or its session differs from what was agreed before.
    Changed,
}

impl WorkerError {
    /// True when a round went on no more and nobody has said why.
    #[must_use]
    pub fn is_stall(&self) -> bool {
        matches!(self, Self::MembersMissing { .. } | Self::BoxSilent | Self::Stuck)
    }
}

impl fmt::Display for WorkerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AddressFamily => f.write_str(
                "local and target addresses differ in family: use two IPv4 or two IPv6 addresses",
            ),
            Self::NoAnswer { lane } => write!(
                f,
                "no answer from the aggregator to the handshake of lane {lane}: check its address, \
                 port and that it runs, and this worker's own address and rank: is `local` in the \
                 row's `members`, with this `rank`? If not, the aggregator counts wrong_source or \
                 bad_members"
            ),
            Self::MtuTooSmall { probe_len } => write!(
                f,
                "short datagrams reach the aggregator but {probe_len} bytes of UDP payload do not: \
                 raise the MTU on the path or use fewer elements per chunk"
            ),
            Self::ProbeTooShort { datagram_len } => write!(
                f,
                "the aggregator's row takes {datagram_len} bytes of UDP payload, for a chunk or \
                 for a handshake over its window, and the probe was shorter: raise the MTU here to \
                 fit that, or lower `elements` or `window` there"
            ),
            Self::MembersMissing { missing } if missing.is_empty() => f.write_str(
                "no progress: all members are at the aggregator, which waits for the level above",
            ),
            Self::MembersMissing { missing } => {
                f.write_str("waited too long for rank")?;
                write_ranks(f, *missing)
            }
            Self::BoxSilent => f.write_str(
                "the aggregator stopped answering: check that it runs and that the link is up",
            ),
            Self::Stuck => f.write_str(
                "the aggregator answers but the round does not go on: see its drop counters",
            ),
            Self::Refused { reason, members } => {
                match reason {
                    Reason::MemberLost => f.write_str("the session ended: restarted was rank")?,
                    Reason::OtherSession => f.write_str("another session is resumed by rank")?,
                    Reason::UnknownGroup | Reason::OtherElements | Reason::None => {
                        return f.write_str(
                            "the aggregator refused without a reason: is it another version?",
                        );
                    }
                }
                write_ranks(f, *members)
            }
            Self::UnknownGroup { job, row } => write!(
                f,
                "the aggregator serves no row {row} of job {}: check the row and the job of \
                 this worker, and the aggregator's [[row]] sections",
                job.0
            ),
            Self::BadLease(fault) => write!(
                f,
                "the aggregator offered a lease that cannot be used ({fault}): check its table"
            ),
            Self::OtherElements { row, own, rows } => write!(
                f,
                "this worker's `numbers` need a row whose `element_type` is {} and whose \
                 `operation` is {}; the aggregator's row {row} has {} and {}",
                own.0, own.1, rows.0, rows.1
            ),
            Self::LengthsDiffer { members, first, others, other } => {
                f.write_str("the vectors of one sum differ in length: rank")?;
                write_ranks(f, *members)?;
                let one_of = if others.single().is_some() { "" } else { "one of " };
                write!(f, " gave {first} elements, {one_of}rank")?;
                write_ranks(f, *others)?;
                write!(f, " gave {other}")
            }
            Self::MembersLeft { members } => {
                f.write_str("the round waits for members that have closed their sessions: rank")?;
                write_ranks(f, *members)
            }
        }
    }
}

impl core::error::Error for WorkerError {}

fn write_ranks(f: &mut fmt::Formatter<'_>, members: Members) -> fmt::Result {
    for (index, rank) in members.iter().enumerate() {
        write!(f, "{} {rank}", if index == 0 { "" } else { "," })?;
    }
    Ok(())
}

/// Why a round cannot begin.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum RoundError {
    /// Not every lane is open yet, or the worker has stopped.
    NotOpen,
    /// The last round is not complete.
    InProgress,
    /// The lease has too few steps left: close, and join with a new worker.
    StepsExhausted,
}

impl fmt::Display for RoundError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotOpen => "cannot begin a round: the lease is not open",
            Self::InProgress => "cannot begin a round: the last one is not complete",
            Self::StepsExhausted => {
                "cannot begin a round: the lease has too few steps left; close and connect again"
            }
        })
    }
}

impl core::error::Error for RoundError {}

/// Why a worker refused a frame. Each is a counter of [`super::WorkerStats`].
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[repr(u8)]
pub enum Refusal {
    /// No whole UDP datagram.
    Frame,
    /// To another address or port than a lane's.
    Addressee,
    /// Shorter or longer than its header says.
    Length,
    /// Another protocol version.
    Version,
    /// A kind, element type or operation without meaning, or one that no box sends to a member.
    Kind,
    /// Another job.
    Job,
    /// A cookie of an earlier epoch.
    OldCookie,
    /// A cookie of nobody we know.
    ForeignCookie,
    /// Another row or generation.
    Group,
    /// Not from the box's address.
    Source,
    /// A sum that is not everybody's.
    Members,
    /// A chunk of another lane, or none that was asked for.
    Chunk,
    /// Element count, type, operation or exponent of another row, or an exponent without meaning.
    Elements,
    /// CRC or checksum wrong, or missing where it is demanded.
    Integrity,
    /// A handshake body that cannot be read, or of another life or round trip.
    Handshake,
    /// A data frame for a lane that is not open, or any frame after the worker has stopped.
    NotOpen,
}

impl Refusal {
    /// Every reason with its name in statistics.
    pub const ALL: &'static [(Self, &'static str)] = &[
        (Self::Frame, "frame"),
        (Self::Addressee, "addressee"),
        (Self::Length, "length"),
        (Self::Version, "version"),
        (Self::Kind, "kind"),
        (Self::Job, "job"),
        (Self::OldCookie, "old_cookie"),
        (Self::ForeignCookie, "foreign_cookie"),
        (Self::Group, "group"),
        (Self::Source, "source"),
        (Self::Members, "members"),
        (Self::Chunk, "chunk"),
        (Self::Elements, "elements"),
        (Self::Integrity, "integrity"),
        (Self::Handshake, "handshake"),
        (Self::NotOpen, "not_open"),
    ];

    /// How many there are.
    pub const COUNT: usize = Self::NotOpen as usize + 1;
}

const _: () = assert!(Refusal::ALL.len() == Refusal::COUNT);
