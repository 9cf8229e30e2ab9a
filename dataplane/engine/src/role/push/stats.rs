//! What a pusher counts.

use crate::drops::DropCounters;

/// Counters since the pusher was made. `chunks_sent` = direct + aggregated + dropped + voided +
/// those of updates under way ([`super::Pusher::chunks_undecided`]), always.
#[derive(Clone, Debug, Default)]
pub struct PusherStats {
    /// Chunks of which at least one transmission was made, once per turn of their update.
    pub chunks_sent: u64,
    /// Of these, in the model, and asked for by the server itself.
    pub chunks_direct: u64,
    /// Of these, in the model, by way of an aggregator.
    pub chunks_aggregated: u64,
    /// Of these, of updates that were dropped.
    pub chunks_dropped: u64,
    /// Of these, of updates that were void.
    pub chunks_voided: u64,
    /// Chunks with an element that was clamped, once per turn of their update.
    pub chunks_clamped: u64,
    /// Transmissions of a chunk after its first.
    pub retransmissions: u64,
    /// Copies sent to the replica.
    pub replica_copies: u64,
    /// Credits of the server that were obeyed.
    pub credits: u64,
    /// Credits that came before their grant and were kept for it.
    pub credits_early: u64,
    /// Credits that found the queue full; the server repeats them.
    pub credits_refused: u64,
    /// Questions to the server: what became of an update, which version is the newest.
    pub status_probes: u64,
    /// Requests for a chunk of a model.
    pub pull_requests: u64,
    /// Of these, repeats.
    pub pull_repeats: u64,
    /// Models pulled.
    pub pulls: u64,
    /// Pulls begun anew because the version was gone.
    pub pulls_restarted: u64,
    /// Pulls that left a silent aggregator for the server.
    pub pulls_rerouted: u64,
    /// Channels opened anew because their host had lost us.
    pub channels_lost: u64,
    /// Times that another server took over.
    pub servers_moved: u64,
    /// Frames that met a congestion mark.
    pub congestion_marks: u64,
    /// Windows halved.
    pub window_reductions: u64,
    /// Frames refused.
    pub drops: DropCounters,
}
