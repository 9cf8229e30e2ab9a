//! What the workers of a push run say about themselves while it goes on.

use serde::{Deserialize, Serialize};

use crate::run::monotonic_ns;
use crate::run::running_worker::Message;

/// One line of a worker.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(tag = "message", rename_all = "snake_case")]
pub enum PushMessage {
    /// The channel to the server is open.
    Joined {
        /// When, by the monotonic clock.
        at_ns: u64,
    },
    /// The held-out loss of a model that worker 0 pulled.
    Measured {
        /// The model's version.
        version: u64,
        /// Its loss.
        loss: f64,
    },
    /// The outcome of an update is known.
    Update(UpdateMessage),
    /// The job has taken in its updates, all or those to its target loss; the session is closed.
    Done(Box<PushSummary>),
    /// The worker gave up.
    Failed {
        /// When, by the monotonic clock.
        at_ns: u64,
        /// Why.
        error: String,
    },
}

impl Message for PushMessage {
    fn is_last(&self) -> bool {
        matches!(self, Self::Done(_) | Self::Failed { .. })
    }

    fn failed(error: String) -> Self {
        Self::Failed { at_ns: monotonic_ns(), error }
    }
}

/// One update, from the pull of its model to its outcome.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct UpdateMessage {
    /// Number of the update in this life of its worker.
    pub number: u64,
    /// Version of the model that it was computed on.
    pub version: u64,
    /// When the pull of that model began.
    pub pull_ns: u64,
    /// How long the pull took, the wait for a new version included.
    pub pull_duration_ns: u64,
    /// How long the gradient took, emulated computing included.
    pub compute_ns: u64,
    /// When the update was handed over.
    pub push_ns: u64,
    /// When the outcome was known.
    pub outcome_ns: u64,
    /// What became of it.
    pub outcome: UpdateOutcome,
    /// `committed`: the model's version afterwards.
    pub committed_version: u64,
    /// Mean loss of the minibatch.
    pub loss: f32,
}

/// What became of an update.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum UpdateOutcome {
    /// It is in the model.
    Committed,
    /// It never will be: too old, or left out by the plan.
    Dropped,
    /// It was judged void too often.
    Void,
    /// Nobody told: its worker died first.
    #[default]
    Unknown,
}

/// What a worker has to say at its end. Its chunks, counted once for each turn of their update, are
/// `chunks_sent` = direct + aggregated + dropped + voided + undecided.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[expect(missing_docs, reason = "the counters are those of `weft_client::push::PushStatistics`")]
pub struct PushSummary {
    pub updates_pushed: u64,
    pub updates_committed: u64,
    pub updates_dropped: u64,
    pub updates_void: u64,
    pub updates_resent: u64,
    pub controller_fallbacks: u64,
    pub chunks_sent: u64,
    pub chunks_direct: u64,
    pub chunks_aggregated: u64,
    pub chunks_dropped: u64,
    pub chunks_voided: u64,
    pub chunks_undecided: u64,
    pub chunks_clamped: u64,
    pub replica_copies: u64,
    pub retransmissions: u64,
    pub bytes_sent: u64,
    pub bytes_received: u64,
    pub request_to_grant_total_ns: u64,
    pub request_to_grant_count: u64,
    pub request_to_grant_max_ns: u64,
    pub grant_to_first_chunk_total_ns: u64,
    pub grant_to_first_chunk_count: u64,
    pub grant_to_first_chunk_max_ns: u64,
    pub cpu_ns: u64,
}

impl PushSummary {
    /// Adds another worker's counters.
    pub fn add(&mut self, other: &Self) {
        self.updates_pushed += other.updates_pushed;
        self.updates_committed += other.updates_committed;
        self.updates_dropped += other.updates_dropped;
        self.updates_void += other.updates_void;
        self.updates_resent += other.updates_resent;
        self.controller_fallbacks += other.controller_fallbacks;
        self.chunks_sent += other.chunks_sent;
        self.chunks_direct += other.chunks_direct;
        self.chunks_aggregated += other.chunks_aggregated;
        self.chunks_dropped += other.chunks_dropped;
        self.chunks_voided += other.chunks_voided;
        self.chunks_undecided += other.chunks_undecided;
        self.chunks_clamped += other.chunks_clamped;
        self.replica_copies += other.replica_copies;
        self.retransmissions += other.retransmissions;
        self.bytes_sent += other.bytes_sent;
        self.bytes_received += other.bytes_received;
        self.request_to_grant_total_ns += other.request_to_grant_total_ns;
        self.request_to_grant_count += other.request_to_grant_count;
        self.request_to_grant_max_ns =
            self.request_to_grant_max_ns.max(other.request_to_grant_max_ns);
        self.grant_to_first_chunk_total_ns += other.grant_to_first_chunk_total_ns;
        self.grant_to_first_chunk_count += other.grant_to_first_chunk_count;
        self.grant_to_first_chunk_max_ns =
            self.grant_to_first_chunk_max_ns.max(other.grant_to_first_chunk_max_ns);
        self.cpu_ns += other.cpu_ns;
    }

    /// Whether every chunk sent is accounted for.
    #[must_use]
    pub fn is_accounted(&self) -> bool {
        self.chunks_sent
            == self.chunks_direct
                + self.chunks_aggregated
                + self.chunks_dropped
                + self.chunks_voided
                + self.chunks_undecided
    }
}
