//! What workers and boxes say about themselves while a run goes on.

use serde::{Deserialize, Serialize};

/// One line of a worker.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(tag = "message", rename_all = "snake_case")]
pub enum WorkerMessage {
    /// All members have joined, or the channel to the server is open.
    Joined {
        /// When, by the monotonic clock.
        at_ns: u64,
    },
    /// A round of an allreduce is over.
    Round(RoundMessage),
    /// The held-out loss of a model that worker 0 pulled.
    Measured {
        /// The model's version.
        version: u64,
        /// Its loss.
        loss: f64,
    },
    /// The outcome of an update is known.
    Update(UpdateMessage),
    /// All rounds are over, or the job has taken in its updates; the session is closed.
    Done(Box<WorkerSummary>),
    /// The worker gave up.
    Failed {
        /// When, by the monotonic clock.
        at_ns: u64,
        /// Why.
        error: String,
    },
}

impl WorkerMessage {
    /// Whether nothing comes after it.
    pub(super) const fn is_last(&self) -> bool {
        matches!(self, Self::Done(_) | Self::Failed { .. })
    }
}

/// A worker's part in one round.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct RoundMessage {
    /// Number of the round.
    pub round: u32,
    /// When the gradient was ready, by the monotonic clock.
    pub start_ns: u64,
    /// From then until the sum was there.
    pub duration_ns: u64,
    /// Mean loss of the minibatch.
    pub loss: f32,
    /// Chunks summed.
    pub chunks: u64,
    /// Contributions sent again in this round.
    pub retransmissions: u64,
    /// Answers that were here already.
    pub duplicates: u64,
    /// Chunks in which somebody's element was clamped.
    pub chunks_clamped: u64,
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

/// What a worker has to say at its end.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct WorkerSummary {
    /// Allreduce: share of held-out images labelled correctly.
    pub accuracy: f64,
    /// Allreduce: SHA-256 of the final model.
    pub model_sha256: String,
    /// Chunks sent: an allreduce's for the first time in their epoch, a push's once for each turn
    /// of their update, which then are direct + aggregated + dropped + voided + undecided.
    pub chunks_sent: u64,
    /// Chunks that went to the server by themselves.
    pub chunks_direct: u64,
    /// Chunks that entered a sum on their way.
    pub chunks_aggregated: u64,
    /// Chunks whose sum came once for all workers.
    #[serde(default)]
    pub chunks_by_multicast: u64,
    /// Chunks of updates that were dropped.
    pub chunks_dropped: u64,
    /// Chunks of updates that were void.
    pub chunks_voided: u64,
    /// Chunks of updates whose outcome nobody told.
    pub chunks_undecided: u64,
    /// Chunks sent again.
    pub retransmissions: u64,
    /// Bytes sent, Ethernet headers included.
    pub tx_bytes: u64,
    /// Bytes received.
    pub rx_bytes: u64,
    /// Frames that the faults took: lost, duplicated, reordered, delayed or corrupted.
    pub faults_fired: u64,
    /// Updates that were dropped.
    pub updates_dropped: u64,
    /// Updates that were void.
    pub updates_void: u64,
    /// Updates that went without a word from the controller.
    pub controller_fallbacks: u64,
    /// Time from asking for a grant to having it, over all grants.
    pub request_to_grant_total_ns: u64,
    /// Grants.
    pub request_to_grant_count: u64,
    /// Time from a grant to the first chunk, over all transfers.
    pub grant_to_first_chunk_total_ns: u64,
    /// Transfers.
    pub grant_to_first_chunk_count: u64,
    /// Processor time.
    pub cpu_ns: u64,
}

impl WorkerSummary {
    /// Adds another worker's counters.
    pub fn add(&mut self, other: &Self) {
        self.chunks_sent += other.chunks_sent;
        self.chunks_direct += other.chunks_direct;
        self.chunks_aggregated += other.chunks_aggregated;
        self.chunks_by_multicast += other.chunks_by_multicast;
        self.chunks_dropped += other.chunks_dropped;
        self.chunks_voided += other.chunks_voided;
        self.chunks_undecided += other.chunks_undecided;
        self.retransmissions += other.retransmissions;
        self.tx_bytes += other.tx_bytes;
        self.rx_bytes += other.rx_bytes;
        self.faults_fired += other.faults_fired;
        self.updates_dropped += other.updates_dropped;
        self.updates_void += other.updates_void;
        self.controller_fallbacks += other.controller_fallbacks;
        self.request_to_grant_total_ns += other.request_to_grant_total_ns;
        self.request_to_grant_count += other.request_to_grant_count;
        self.grant_to_first_chunk_total_ns += other.grant_to_first_chunk_total_ns;
        self.grant_to_first_chunk_count += other.grant_to_first_chunk_count;
        self.cpu_ns += other.cpu_ns;
    }

    /// Push: whether every chunk sent is accounted for.
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

/// What a box counted, summed over its jobs.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct BoxCounters {
    /// Contributions that entered a sum.
    pub contributions_added: u64,
    /// Chunks completed.
    pub chunks_completed: u64,
    /// Repeated contributions recognised and not added.
    pub duplicates: u64,
    /// Processor time.
    pub cpu_ns: u64,
    /// Frames received.
    pub rx_packets: u64,
    /// Bytes received.
    pub rx_bytes: u64,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Frames lost at the port, by full rings or buffers.
    pub port_losses: u64,
    /// Controller: plans that the job's policy failed to make, so that the default one made them.
    pub policy_failures: u64,
    /// What its capture holds, if there is one.
    pub capture: Option<CaptureCounters>,
}

/// What a box says of its capture.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct CaptureCounters {
    /// Frames in it.
    pub frames: u64,
    /// Frames that had no room.
    pub cut: u64,
    /// Frames that could not be written.
    pub errors: u64,
}
