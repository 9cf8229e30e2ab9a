//! What a lane counts (I11). Plain numbers, read by reports and metrics; nothing decides on them.

use crate::drops::DropCounters;
use crate::figures::figures;
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

figures! {
    /// Counters of a job in a lane.
    #[derive(Clone, Copy, Debug, Eq, PartialEq)]
    pub struct JobStats {
        /// Contributions that entered a sum.
        counter contributions_added,
        /// Chunks whose sum was completed here.
        counter chunks_completed,
        /// Answers multicast to the members.
        counter answers_sent,
        /// Those of them that left once, for a multicast address that all members hear.
        counter answers_cast,
        /// Kept answers sent to one member again.
        counter answers_repeated,
        /// Contributions that were already in the sum.
        counter duplicates,
        /// Contributions with at least one clamped element.
        counter contributions_clamped,
        /// Contributions that met congestion on their way.
        counter contributions_marked,
        /// Sums that a member handed over after a restart.
        counter hand_overs,
        /// Bytes of frames accepted into slots.
        counter bytes_accepted,
        /// Frames refused by the job's token bucket.
        counter over_quota,
    }
}
