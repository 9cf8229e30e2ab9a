//! What the caller gives a worker and what it learns from the box: configuration, payload, lease.

use core::net::IpAddr;

use weft_wire::frame::Endpoint;
use weft_wire::header::{ElementType, Flags, Operation};
use weft_wire::hello::{Integrity, Overflow};
use weft_wire::{JobId, Members, Nanos, Rank};

/// Configuration of one member of one group at one box.
#[derive(Clone, Copy, Debug)]
pub struct WorkerConfig {
    /// The job, by its index at the box.
    pub job: JobId,
    /// The group's row at the box.
    pub row: u16,
    /// This member's position in the group.
    pub rank: Rank,
    /// Where frames come from. The port is the member's port base: lane `i` uses port + `i`.
    pub local: Endpoint,
    /// The box. A MAC of [`weft_wire::MacAddr::BROADCAST`] is learnt from its replies.
    pub target: Endpoint,
    /// Element type of the group. The box refuses any other.
    pub element_type: ElementType,
    /// Operation of the group.
    pub operation: Operation,
    /// Steps in flight per lane at the start; at most the lease's window is used. Default 64.
    pub cwnd_initial: u32,
    /// Bytes of frames that a lane rather sends together than one by one, for ports that carry a
    /// run of frames as one message; at most a quarter of the congestion window is waited for, and
    /// at most 64 frames. Default 0.
    pub batch_bytes: usize,
    /// Retransmission timeout before the first round trip was measured. Default 20 ms.
    pub rto_initial_ns: u64,
    /// Least retransmission timeout. Default 1 ms.
    pub rto_min_ns: u64,
    /// Greatest retransmission timeout, back-off included. Default 1 s.
    pub rto_max_ns: u64,
    /// Interval of handshake polls; it backs off to four times this. Default 20 ms.
    pub hello_interval_ns: u64,
    /// How long a box may leave the handshake unanswered. Default 5 s.
    pub connect_timeout_ns: u64,
    /// How long a round, or the wait for other members, may go without progress. Default 30 s.
    pub member_timeout_ns: u64,
    /// How long [`super::Worker::close`] waits for the others. Default 2 s.
    pub close_linger_ns: u64,
    /// UDP payload bytes of the probe that shows the path carries full datagrams; 0 for no probe.
    /// Default 1128: a handshake over the largest window, which is longer than a chunk of 1 KiB.
    pub probe_len: u16,
    /// The row's multicast address, where the box may send sums to all members at once and the
    /// port of this worker hears it (SPEC#answers-by-multicast). `None`: sums come to `local`.
    pub multicast: Option<IpAddr>,
    /// Ceiling of the sending rate over all lanes, Ethernet bytes; `None` for no ceiling.
    pub rate_bytes_per_sec: Option<u64>,
    /// Burst of that ceiling. Default 64 KiB.
    pub burst_bytes: u64,
}

impl WorkerConfig {
    /// A configuration with the defaults of the fields' documentation, summing i32.
    #[must_use]
    pub fn new(job: JobId, row: u16, rank: Rank, local: Endpoint, target: Endpoint) -> Self {
        Self {
            job,
            row,
            rank,
            local,
            target,
            element_type: ElementType::I32,
            operation: Operation::Sum,
            cwnd_initial: 64,
            batch_bytes: 0,
            rto_initial_ns: Nanos::from_millis(20).0,
            rto_min_ns: Nanos::from_millis(1).0,
            rto_max_ns: Nanos::from_millis(1_000).0,
            hello_interval_ns: Nanos::from_millis(20).0,
            connect_timeout_ns: Nanos::from_millis(5_000).0,
            member_timeout_ns: Nanos::from_millis(30_000).0,
            close_linger_ns: Nanos::from_millis(2_000).0,
            probe_len: PROBE_LEN_DEFAULT,
            multicast: None,
            rate_bytes_per_sec: None,
            burst_bytes: 64 * 1024,
        }
    }
}

/// The caller's data, chunk by chunk, in place: a chunk's place holds the contribution until its
/// sum has arrived, then the sum. Sums that others may need are kept: by the worker, or until the
/// round ends in their places, where those have all of their bits.
pub trait Payload {
    /// Writes the contribution to `chunk` of this round over all of `out`, in network byte order;
    /// what lies beyond the data is zero. Called again for each repeat, with the same result.
    fn write_chunk(&self, chunk: u32, out: &mut [u8]) -> ChunkMeta;

    /// The part of a vector that `chunk` of this round is. Default: one that does not end it.
    fn part(&self, _chunk: u32) -> Part {
        Part::default()
    }

    /// Takes the sum of `chunk` of this round, in network byte order.
    fn read_chunk(&mut self, chunk: u32, exponent: i8, flags: Flags, sum: &[u8]);

    /// True when [`Payload::write_sum`] gives the sum of `chunk` back, bit for bit, until the round
    /// ends. The worker then copies what others may still lack when it ends, and no more. Default:
    /// false.
    fn keeps_sum(&self, _chunk: u32) -> bool {
        false
    }

    /// Writes the sum of `chunk` over all of `out`, as [`Payload::read_chunk`] was given it. Called
    /// for chunks of this round that have their sum and whose place keeps it.
    fn write_sum(&self, _chunk: u32, _out: &mut [u8]) {
        unreachable!("no place keeps its sum")
    }
}

/// What goes with a contribution.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct ChunkMeta {
    /// Scale exponent, from -126 to 126. Not used where the lease fixes one.
    pub exponent: i8,
    /// An element was clamped.
    pub clamped: bool,
    /// The chunk's elements, where the vector ends with them; what follows them is padding.
    pub last: Option<u16>,
}

/// The part of a vector that a chunk is.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Part {
    /// Elements of the vector before the chunk.
    pub before: u64,
    /// The chunk's elements, where the vector ends with them.
    pub last: Option<u16>,
}

/// What the box says of the lease.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct LeaseInfo {
    /// Lanes of the box.
    pub shards: u16,
    /// Slots of each lane.
    pub window: u16,
    /// Elements of every chunk.
    pub elements: u16,
    /// Element type, as configured.
    pub element_type: ElementType,
    /// Operation, as configured.
    pub operation: Operation,
    /// Contributions in a final sum, over all levels.
    pub fan_in: u32,
    /// All members of the group.
    pub mask: Members,
    /// What happens when a sum does not fit.
    pub overflow: Overflow,
    /// What protects the payload.
    pub integrity: Integrity,
    /// The job's exponent, or `None` when chunks carry their own.
    pub exponent: Option<i8>,
    /// Steps that each lane has before the group must be formed anew.
    pub step_count: u32,
    /// The box compares the lengths that contributions name (SPEC#lengths).
    pub compares_lengths: bool,
}

impl LeaseInfo {
    /// Bytes of a chunk's payload.
    #[must_use]
    pub const fn chunk_len(&self) -> usize {
        self.elements as usize * self.element_type.len_bytes()
    }
}

pub(super) const PROBE_LEN_DEFAULT: u16 = 1128;
