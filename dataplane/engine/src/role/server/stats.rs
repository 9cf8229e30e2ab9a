//! What a server counts (I11). Plain numbers, read by reports and metrics; nothing decides on them.

use crate::drops::DropCounters;
use crate::figures::figures;

/// Counters of a server.
#[derive(Clone, Debug, Default)]
pub struct ServerStats {
    /// Frames handled.
    pub frames: u64,
    /// Frames refused, by reason.
    pub drops: DropCounters,
}

figures! {
    /// Counters of a job of a server.
    #[derive(Clone, Copy, Debug, PartialEq)]
    pub struct ServerJobStats {
        /// Groups installed, with or without a controller.
        counter groups_installed,
        /// Groups refused.
        counter groups_refused,
        /// Updates announced without a grant and refused, for a controller was there.
        counter announcements_refused,
        /// Groups committed.
        counter groups_committed,
        /// Updates committed.
        counter commits,
        /// Updates judged void: late, closed, removed.
        counter voids,
        /// Updates dropped because of their age.
        counter dropped,
        /// Greatest delay of a committed update.
        gauge delay_max,
        /// Chunks staged that came from an aggregator.
        counter chunks_aggregated,
        /// Chunks staged that came from a member itself.
        counter chunks_direct,
        /// Chunks, or parts of them, that were staged already.
        counter duplicates,
        /// Chunks refused because some of their contributors were staged already.
        counter overlaps,
        /// Chunks whose sum the server put together from parts.
        counter chunks_composed,
        /// PULLs sent for the first time.
        counter credits_sent,
        /// PULLs repeated.
        counter credits_repeated,
        /// Halvings of a source's window.
        counter window_reductions,
        /// Groups whose aggregator was given up.
        counter fallbacks,
        /// Members taken out of a group.
        counter members_closed,
        /// Chunks of the model sent to pullers.
        counter model_chunks_sent,
        /// Pulls of a version that is gone.
        counter model_stale,
        /// Decisions repeated to the replica.
        counter decisions_repeated,
        /// Chunks sent to the replica from the log.
        counter repairs,
        /// Bytes of Ethernet frames of chunks sent to the replica from the log.
        counter replica_repair_bytes,
        /// Commits that waited for the replica.
        counter bound_waits,
        /// Commits that the bound would not have allowed.
        counter bound_broken,
        /// Commits that the replica has not acknowledged.
        gauge replica_lag,
        /// Most commits that the replica had not acknowledged.
        gauge replica_lag_max,
        /// Updates acknowledged although the replica had not: it was left.
        counter acks_without_replica,
        /// Acknowledgements not sent because their queue was full.
        counter acks_lost,
        /// Events that nobody took in time.
        counter events_lost,
        /// Bytes of Ethernet frames with chunks, staged or not.
        counter chunk_bytes,
        /// Records for the journal.
        counter journal_records,
        /// Bytes of records for the journal.
        counter journal_bytes,
        /// Times that a record found no room on its way to the journal.
        counter journal_waits,
    }
    besides {
        /// Committed updates by delay; the last counts that delay and above.
        pub delays: [u64; DELAYS_MAX] = [0; DELAYS_MAX],
        /// Nanoseconds from install to commit, summed over committed groups.
        pub commit_latency_total_ns: u64 = 0,
        /// Present bound of the distance to the replica.
        pub divergence_bound: f64 = 0.0,
        /// Greatest bound so far.
        pub divergence_bound_max: f64 = 0.0,
    }
}

/// Delays counted one by one.
pub const DELAYS_MAX: usize = 65;
