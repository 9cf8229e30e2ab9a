//! What a worker has counted since its start.

use weft_wire::Nanos;

use super::event::Refusal;

/// Counters of one worker over all lanes. They never reset.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct WorkerStats {
    /// Contributions sent for the first time in their epoch.
    pub chunks_sent: u64,
    /// Contributions sent again.
    pub retransmissions: u64,
    /// Header-only STATUS probes sent.
    pub status_probes: u64,
    /// New sums taken.
    pub answers: u64,
    /// Those of them that came to the row's multicast address.
    pub answers_by_multicast: u64,
    /// Times that a lane found out that nothing comes there any more.
    pub times_deaf: u64,
    /// Sums that were here already.
    pub duplicate_answers: u64,
    /// HAVE taken.
    pub have: u64,
    /// HAVE that did not name us: the contribution was lost.
    pub have_without_us: u64,
    /// STALE taken for one step.
    pub stale: u64,
    /// Sums that carried a congestion mark.
    pub congestion_marks: u64,
    /// Times that a congestion window was halved.
    pub window_reductions: u64,
    /// Times that a lane went back to the handshake because the box did not know it.
    pub resyncs: u64,
    /// Sums handed over, repeats included.
    pub handovers_sent: u64,
    /// Sums handed over and seen coming down.
    pub handovers_done: u64,
    /// Handshake datagrams sent.
    pub hellos_sent: u64,
    /// Smoothed round trip of the lane that measured last; zero before the first.
    pub smoothed_rtt: Nanos,
    /// Frames refused, indexed by [`Refusal`].
    pub refused: [u64; Refusal::COUNT],
}

impl WorkerStats {
    /// Frames refused for this reason.
    #[must_use]
    pub fn refused(&self, reason: Refusal) -> u64 {
        self.refused[reason as usize]
    }
}
