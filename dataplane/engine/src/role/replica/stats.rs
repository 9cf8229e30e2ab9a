//! What a replica counts (I11).

#[cfg(doc)]
use weft_control::Event;

use crate::drops::DropCounters;

/// Counters of a replica.
#[derive(Clone, Debug, Default)]
pub struct ReplicaStats {
    /// Frames handled.
    pub frames: u64,
    /// Frames refused, by reason.
    pub drops: DropCounters,
}

/// Counters of a job of a replica.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ReplicaJobStats {
    /// Groups applied.
    pub groups_applied: u64,
    /// Updates in them.
    pub commits: u64,
    /// Decisions that changed nothing.
    pub voids: u64,
    /// Chunks staged from copies.
    pub chunks_copied: u64,
    /// Chunks fetched from the server's log.
    pub chunks_repaired: u64,
    /// Bytes of Ethernet frames of these.
    pub replica_repair_bytes: u64,
    /// Bytes of Ethernet frames of copies.
    pub copy_bytes: u64,
    /// Copies that were there already.
    pub duplicates: u64,
    /// Copies of floating-point sums that could not be used.
    pub copies_unusable: u64,
    /// Questions sent again.
    pub questions_repeated: u64,
    /// Snapshots taken.
    pub snapshots: u64,
    /// Chunks of these.
    pub snapshot_chunks: u64,
    /// Times that it took over from its server: then what follows is counted as a server's.
    pub promotions: u64,
    /// Order numbers that are decided and not applied, as far as is known here.
    pub lag: u64,
    /// Greatest of these numbers.
    pub lag_max: u64,
    /// It could take its server's place, as it knows ([`Event::Heir`]).
    pub is_fit: bool,
    /// Events that nobody took in time.
    pub events_lost: u64,
}
