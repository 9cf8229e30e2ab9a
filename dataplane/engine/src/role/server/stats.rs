//! What a server counts (I11). Plain numbers, read by reports and metrics; nothing decides on them.

use crate::drops::DropCounters;

/// Counters of a server.
#[derive(Clone, Debug, Default)]
pub struct ServerStats {
    /// Frames handled.
    pub frames: u64,
    /// Frames refused, by reason.
    pub drops: DropCounters,
}

/// Counters of a job of a server.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ServerJobStats {
    /// Groups installed, with or without a controller.
    pub groups_installed: u64,
    /// Groups refused.
    pub groups_refused: u64,
    /// Updates announced without a grant and refused, for a controller was there.
    pub announcements_refused: u64,
    /// Groups committed.
    pub groups_committed: u64,
    /// Updates committed.
    pub commits: u64,
    /// Updates judged void: late, closed, removed.
    pub voids: u64,
    /// Updates dropped because of their age.
    pub dropped: u64,
    /// Committed updates by delay; the last counts that delay and above.
    pub delays: [u64; DELAYS_MAX],
    /// Greatest delay of a committed update.
    pub delay_max: u64,
    /// Nanoseconds from install to commit, summed over committed groups.
    pub commit_latency_total_ns: u64,
    /// Chunks staged that came from an aggregator.
    pub chunks_aggregated: u64,
    /// Chunks staged that came from a member itself.
    pub chunks_direct: u64,
    /// Chunks, or parts of them, that were staged already.
    pub duplicates: u64,
    /// Chunks refused because some of their contributors were staged already.
    pub overlaps: u64,
    /// Chunks whose sum the server put together from parts.
    pub chunks_composed: u64,
    /// PULLs sent for the first time.
    pub credits_sent: u64,
    /// PULLs repeated.
    pub credits_repeated: u64,
    /// Halvings of a source's window.
    pub window_reductions: u64,
    /// Groups whose aggregator was given up.
    pub fallbacks: u64,
    /// Members taken out of a group.
    pub members_closed: u64,
    /// Chunks of the model sent to pullers.
    pub model_chunks_sent: u64,
    /// Pulls of a version that is gone.
    pub model_stale: u64,
    /// Decisions repeated to the replica.
    pub decisions_repeated: u64,
    /// Chunks sent to the replica from the log.
    pub repairs: u64,
    /// Bytes of Ethernet frames of these.
    pub replica_repair_bytes: u64,
    /// Commits that waited for the replica.
    pub bound_waits: u64,
    /// Commits that the bound would not have allowed.
    pub bound_broken: u64,
    /// Present bound of the distance to the replica.
    pub divergence_bound: f64,
    /// Greatest bound so far.
    pub divergence_bound_max: f64,
    /// Commits that the replica has not acknowledged.
    pub replica_lag: u64,
    /// Greatest of these numbers.
    pub replica_lag_max: u64,
    /// Updates acknowledged although the replica had not: it was left.
    pub acks_without_replica: u64,
    /// Acknowledgements not sent because their queue was full.
    pub acks_lost: u64,
    /// Events that nobody took in time.
    pub events_lost: u64,
    /// Bytes of Ethernet frames with chunks, staged or not.
    pub chunk_bytes: u64,
    /// Records for the journal.
    pub journal_records: u64,
    /// Bytes of these.
    pub journal_bytes: u64,
    /// Times that a record found no room on its way to the journal.
    pub journal_waits: u64,
}

impl Default for ServerJobStats {
    fn default() -> Self {
        Self {
            groups_installed: 0,
            groups_refused: 0,
            announcements_refused: 0,
            groups_committed: 0,
            commits: 0,
            voids: 0,
            dropped: 0,
            delays: [0; DELAYS_MAX],
            delay_max: 0,
            commit_latency_total_ns: 0,
            chunks_aggregated: 0,
            chunks_direct: 0,
            duplicates: 0,
            overlaps: 0,
            chunks_composed: 0,
            credits_sent: 0,
            credits_repeated: 0,
            window_reductions: 0,
            fallbacks: 0,
            members_closed: 0,
            model_chunks_sent: 0,
            model_stale: 0,
            decisions_repeated: 0,
            repairs: 0,
            replica_repair_bytes: 0,
            bound_waits: 0,
            bound_broken: 0,
            divergence_bound: 0.0,
            divergence_bound_max: 0.0,
            replica_lag: 0,
            replica_lag_max: 0,
            acks_without_replica: 0,
            acks_lost: 0,
            events_lost: 0,
            chunk_bytes: 0,
            journal_records: 0,
            journal_bytes: 0,
            journal_waits: 0,
        }
    }
}

/// Delays counted one by one.
pub const DELAYS_MAX: usize = 65;
