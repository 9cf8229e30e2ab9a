//! What a lane counts (I11). Plain numbers, read by reports and metrics; nothing decides on them.

use crate::drops::DropCounters;
use crate::slot::counter::TransitionCounters;

/// Counters of a lane.
#[derive(Clone, Debug, Default)]
pub struct Stats {
    /// Frames handled.
    pub frames: u64,
    /// Frames refused, by reason.
    pub drops: DropCounters,
    /// What slots went through.
    pub transitions: TransitionCounters,
    /// Handshakes: leases opened.
    pub formations: u64,
    /// Handshakes: sessions ended because a member began a new life.
    pub sessions_broken: u64,
}

/// Counters of a job in a lane.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct JobStats {
    /// Contributions that entered a sum.
    pub contributions_added: u64,
    /// Chunks whose sum was completed here.
    pub chunks_completed: u64,
    /// Answers multicast to the members.
    pub answers_sent: u64,
    /// Kept answers sent to one member again.
    pub answers_repeated: u64,
    /// Contributions that were already in the sum.
    pub duplicates: u64,
    /// Contributions with at least one clamped element.
    pub contributions_clamped: u64,
    /// Contributions that met congestion on their way.
    pub contributions_marked: u64,
    /// Sums that a member handed over after a restart.
    pub hand_overs: u64,
    /// Bytes of frames accepted into slots.
    pub bytes_accepted: u64,
    /// Frames refused by the job's token bucket.
    pub over_quota: u64,
}
