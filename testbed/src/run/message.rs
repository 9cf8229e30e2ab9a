//! What workers and boxes say about themselves while a run goes on.

use serde::{Deserialize, Serialize};

use super::monotonic_ns;
use super::running_worker::Message;

/// One line of a worker.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(tag = "message", rename_all = "snake_case")]
pub enum WorkerMessage {
    /// All members have joined.
    Joined {
        /// When, by the monotonic clock.
        at_ns: u64,
    },
    /// A round is over.
    Round(RoundMessage),
    /// All rounds are over and the session is closed.
    Done(WorkerSummary),
    /// The worker gave up.
    Failed {
        /// When, by the monotonic clock.
        at_ns: u64,
        /// Why.
        error: String,
    },
}

impl Message for WorkerMessage {
    fn is_last(&self) -> bool {
        matches!(self, Self::Done(_) | Self::Failed { .. })
    }

    fn failed(error: String) -> Self {
        Self::Failed { at_ns: monotonic_ns(), error }
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

/// What a worker has to say at its end.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct WorkerSummary {
    /// Share of held-out images labelled correctly.
    pub accuracy: f64,
    /// SHA-256 of the final model.
    pub model_sha256: String,
    /// Contributions sent for the first time in their epoch.
    pub chunks_sent: u64,
    /// Sums taken.
    pub answers: u64,
    /// Contributions sent again.
    pub retransmissions: u64,
    /// STATUS probes.
    pub status_probes: u64,
    /// Resyncs after a box lost its lease.
    pub resyncs: u64,
    /// Sums handed over after a restart.
    pub hand_overs: u64,
    /// Frames refused.
    pub refused: u64,
    /// Smoothed round trip at the end.
    pub smoothed_rtt_ns: u64,
    /// Processor time.
    pub cpu_ns: u64,
    /// Time spent computing gradients and steps.
    pub compute_ns: u64,
    /// Frames sent.
    pub tx_packets: u64,
    /// Bytes sent, Ethernet headers included.
    pub tx_bytes: u64,
    /// Bytes received.
    pub rx_bytes: u64,
    /// Frames that the faults took: lost, duplicated, reordered, delayed or corrupted.
    pub faults_fired: u64,
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
