//! What the caller gives a pusher: who it is, its updates, and what a controller granted them.

use alloc::vec::Vec;

use arrayvec::ArrayVec;
use weft_control::{BoxIndex, Version};
use weft_wire::frame::Endpoint;
use weft_wire::header::ElementType;
use weft_wire::{GroupId, JobId, Nanos, Rank};

/// Configuration of one worker of one job.
#[derive(Clone, Copy, Debug)]
pub struct PusherConfig {
    /// The job.
    pub job: JobId,
    /// This worker's rank in the job.
    pub rank: Rank,
    /// Where frames come from.
    pub local: Endpoint,
    /// The server. A MAC of [`weft_wire::MacAddr::BROADCAST`] is learnt from its replies.
    pub server: Endpoint,
    /// Element type of the job's updates. Models are f32.
    pub element_type: ElementType,
    /// Updates under way at a time: their data is kept until they are decided. Default 2.
    pub updates_max: usize,
    /// Chunks in flight towards a box, or of a model, at the start. Default 32.
    pub cwnd_initial: u32,
    /// Most chunks in flight. Default 512; at most 1024.
    pub cwnd_max: u32,
    /// Retransmission timeout before the first round trip was measured. Default 20 ms.
    pub rto_initial_ns: u64,
    /// Least retransmission timeout. Default 1 ms.
    pub rto_min_ns: u64,
    /// Greatest retransmission timeout, back-off included. Default 1 s.
    pub rto_max_ns: u64,
    /// How long after the last word about an update its server is asked; doubles up to
    /// `rto_max_ns`. Default 20 ms.
    pub status_interval_ns: u64,
    /// Interval of questions for a newer version; doubles up to eight times this. Default 2 ms.
    pub version_interval_ns: u64,
    /// Interval of handshake polls. Default 20 ms.
    pub hello_interval_ns: u64,
    /// How long the server may leave the first handshake unanswered. Default 5 s.
    pub connect_timeout_ns: u64,
    /// How long the server may be silent while it is asked. Default 30 s.
    pub member_timeout_ns: u64,
    /// How long [`super::Pusher::close`] waits. Default 500 ms.
    pub close_linger_ns: u64,
    /// UDP payload bytes of the probe that shows the path carries full datagrams; 0 for no probe.
    pub probe_len: u16,
    /// Ceiling of the sending rate, Ethernet bytes; `None` for no ceiling but the grants'.
    pub rate_bytes_per_sec: Option<u64>,
}

impl PusherConfig {
    /// A configuration with the defaults of the fields' documentation, for i32 updates.
    #[must_use]
    pub fn new(job: JobId, rank: Rank, local: Endpoint, server: Endpoint) -> Self {
        Self {
            job,
            rank,
            local,
            server,
            element_type: ElementType::I32,
            updates_max: 2,
            cwnd_initial: 32,
            cwnd_max: 512,
            rto_initial_ns: Nanos::from_millis(20).0,
            rto_min_ns: Nanos::from_millis(1).0,
            rto_max_ns: Nanos::from_millis(1_000).0,
            status_interval_ns: Nanos::from_millis(20).0,
            version_interval_ns: Nanos::from_millis(2).0,
            hello_interval_ns: Nanos::from_millis(20).0,
            connect_timeout_ns: Nanos::from_millis(5_000).0,
            member_timeout_ns: Nanos::from_millis(30_000).0,
            close_linger_ns: Nanos::from_millis(500).0,
            probe_len: 0,
            rate_bytes_per_sec: None,
        }
    }
}

/// The elements of an update.
#[derive(Clone, Debug, PartialEq)]
pub enum Values {
    /// Real numbers: quantised with the granted exponent where the job is i32.
    Reals(Vec<f32>),
    /// Integers, sent as they are; the job is i32.
    Integers(Vec<i32>),
}

impl Values {
    /// How many.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Reals(values) => values.len(),
            Self::Integers(values) => values.len(),
        }
    }

    /// True when there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// An update as its caller hands it over.
#[derive(Clone, Debug, PartialEq)]
pub struct NewUpdate {
    /// The caller's name for it, not that of another update under way.
    pub number: u64,
    /// Version of the model that it was computed on.
    pub version: Version,
    /// Its elements; at most those of the model. The rest is zero.
    pub values: Values,
}

/// "Send it so": what a controller granted an update.
#[derive(Clone, Debug, PartialEq)]
pub struct Grant {
    /// The group that the update belongs to.
    pub group: GroupId,
    /// The aggregator that takes it; `None`: the server pulls it.
    pub via: Option<BoxIndex>,
    /// Scale exponent of every chunk.
    pub exponent: i8,
    /// Members of the group: no sum of so many contributions may overflow.
    pub member_count: u32,
    /// Rates, in the order in which they hold.
    pub segments: ArrayVec<Segment, SEGMENTS_MAX>,
    /// A copy goes to the replica. The aggregator makes it; without one, this worker does.
    pub replicate: bool,
    /// Chunks that the transfer begins with as a train (SPEC#transfer-trains); 0: none.
    pub train_chunks: u16,
}

/// A part of a transfer. It begins when its gate opens, and holds until the next one begins.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Segment {
    /// The gate is open from the start.
    pub is_open: bool,
    /// A ceiling, Ethernet bytes; 0: the plan knows none.
    pub rate_bytes_per_sec: u64,
}

/// Most segments of a grant.
pub const SEGMENTS_MAX: usize = 32;
/// Aggregators and replicas that a pusher can have channels to.
pub const BOXES_MAX: usize = 16;
