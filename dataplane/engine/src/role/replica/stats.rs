//! What a replica counts (I11).

#[cfg(doc)]
use weft_control::Event;

use crate::drops::DropCounters;
use crate::figures::figures;

/// Counters of a replica.
#[derive(Clone, Debug, Default)]
pub struct ReplicaStats {
    /// Frames handled.
    pub frames: u64,
    /// Frames refused, by reason.
    pub drops: DropCounters,
}

figures! {
    /// Counters of a job of a replica.
    #[derive(Clone, Copy, Debug, PartialEq)]
    pub struct ReplicaJobStats {
        /// Groups applied.
        counter groups_applied,
        /// Updates applied.
        counter commits,
        /// Decisions that changed nothing.
        counter voids,
        /// Chunks staged from copies.
        counter chunks_copied,
        /// Chunks fetched from the server's log.
        counter chunks_repaired,
        /// Bytes of Ethernet frames of fetched chunks.
        counter replica_repair_bytes,
        /// Bytes of Ethernet frames of copies.
        counter copy_bytes,
        /// Copies that were there already.
        counter duplicates,
        /// Copies of floating-point sums that could not be used.
        counter copies_unusable,
        /// Questions sent again.
        counter questions_repeated,
        /// Snapshots taken.
        counter snapshots,
        /// Chunks of snapshots.
        counter snapshot_chunks,
        /// Times that it took over from its server: then what follows is counted as a server's.
        counter promotions,
        /// Order numbers that are decided and not applied, as far as is known here.
        gauge lag,
        /// Greatest lag.
        gauge lag_max,
        /// Events that nobody took in time.
        counter events_lost,
    }
    besides {
        /// It could take its server's place, as it knows ([`Event::ReplicaFitness`]).
        pub is_fit: bool = false,
    }
}
