//! What a push session counts.

/// How long something took, over all updates.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Latency {
    /// How often.
    pub count: u64,
    /// All together.
    pub total_ns: u64,
    /// The longest.
    pub max_ns: u64,
}

impl Latency {
    /// Takes one more.
    pub(crate) fn take(&mut self, span_ns: u64) {
        self.count += 1;
        self.total_ns = self.total_ns.saturating_add(span_ns);
        self.max_ns = self.max_ns.max(span_ns);
    }

    /// The mean; 0 when there was none.
    #[must_use]
    pub fn mean_ns(&self) -> u64 {
        self.total_ns.checked_div(self.count).unwrap_or(0)
    }
}

/// Counters of a push session. Chunks are counted once for each time that their update was granted
/// a turn, and `chunks_sent` = direct + aggregated + dropped + voided + undecided, always.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PushStatistics {
    /// Updates handed over.
    pub updates_pushed: u64,
    /// Updates in the model.
    pub updates_committed: u64,
    /// Updates that were too old or that the plan left out.
    pub updates_dropped: u64,
    /// Updates given up after `resends_max` voids.
    pub updates_void: u64,
    /// Times that an update was void and was requested anew.
    pub updates_resent: u64,
    /// Updates added to a later one (`error_feedback`).
    pub updates_fed_back: u64,
    /// Updates that went without the controller's word because it was silent.
    pub controller_fallbacks: u64,
    /// Chunks of which at least one transmission was made.
    pub chunks_sent: u64,
    /// Of these, in the model, and the server had them from this worker itself.
    pub chunks_direct: u64,
    /// Of these, in the model, by way of an aggregator.
    pub chunks_aggregated: u64,
    /// Of these, of updates that were dropped.
    pub chunks_dropped: u64,
    /// Of these, of updates that were void.
    pub chunks_voided: u64,
    /// Of these, of updates whose outcome is not known.
    pub chunks_undecided: u64,
    /// Chunks with an element that did not fit the exponent.
    pub chunks_clamped: u64,
    /// Copies to the replica.
    pub replica_copies: u64,
    /// Transmissions of a chunk after its first.
    pub retransmissions: u64,
    /// Bytes of Ethernet frames sent, headers included.
    pub bytes_sent: u64,
    /// Bytes of Ethernet frames received.
    pub bytes_received: u64,
    /// Pulls of a model.
    pub pulls: u64,
    /// Requests for a chunk of the model that were made again.
    pub pull_repeats: u64,
    /// Pulls begun anew because the server had forgotten the version.
    pub pulls_restarted: u64,
    /// Windows halved by a loss or a congestion mark.
    pub window_reductions: u64,
    /// Frames that met a congestion mark.
    pub congestion_marks: u64,
    /// Frames refused, for any reason.
    pub frames_refused: u64,
    /// Times that a replica took over from the server.
    pub servers_moved: u64,
    /// From the request to the grant: what planning adds.
    pub request_to_grant: Latency,
    /// From the grant to the first chunk: what gating adds.
    pub grant_to_first_chunk: Latency,
    /// From the grant to the whole update at the server or its aggregator.
    pub grant_to_staged: Latency,
    /// From the push to the outcome.
    pub push_to_outcome: Latency,
}
