//! How the chunks that a transfer began with arrived (SPEC#transfer-trains).

use arrayvec::ArrayVec;
use weft_wire::{GroupId, JobId, Rank};

use crate::TRAIN_CHUNKS_MAX;

/// One chunk's arrival.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct TrainArrival {
    /// When, by the clock of the port.
    pub at_ns: u64,
    /// Bytes of Ethernet frames that the port's jobs had received by then, this one's among them.
    pub rx_bytes: u64,
}

/// A train that has arrived: a sample of its path's bandwidth.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Train {
    /// The job.
    pub job: JobId,
    /// The group.
    pub group: GroupId,
    /// The one member (into an aggregator, or direct); `None`: a sum.
    pub rank: Option<Rank>,
    /// Length of each frame.
    pub frame_len: u32,
    /// Its arrivals, in order.
    pub arrivals: ArrayVec<TrainArrival, { TRAIN_CHUNKS_MAX as usize }>,
}
