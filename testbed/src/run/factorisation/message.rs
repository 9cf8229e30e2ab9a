//! What processes say while a run goes on.

use serde::{Deserialize, Serialize};
use weft_client::keys::{Histogram, KeyStatistics};

use crate::run::running_worker::Spoken;

/// One line of a process.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(tag = "message", rename_all = "snake_case")]
pub enum ProcessMessage {
    /// All its threads stand before a gate, counted from 0.
    Arrived {
        /// Which.
        gate: u32,
    },
    /// An epoch is over.
    Epoch {
        /// Which, counted from 0.
        epoch: u32,
        /// How long it took.
        took_ns: u64,
    },
    /// All is computed, and the session is closed.
    Done(Box<TableSummary>),
    /// The process gave up.
    Failed {
        /// When, by the monotonic clock.
        at_ns: u64,
        /// Why.
        error: String,
    },
}

impl Spoken for ProcessMessage {
    fn is_last(&self) -> bool {
        matches!(self, Self::Done(_) | Self::Failed { .. })
    }

    fn failed(at_ns: u64, error: String) -> Self {
        Self::Failed { at_ns, error }
    }
}

/// What a process counted at its table.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct TableSummary {
    /// Operations on rows that were here, by key.
    pub local: u64,
    /// Operations on rows that were not.
    pub remote: u64,
    /// Rows that came.
    pub relocations: u64,
    /// Accesses of other processes that were run here.
    pub served: u64,
    /// Accesses and localizes that came to the wrong process and were sent on.
    pub passed_on: u64,
    /// Frames' entries that were sent again.
    pub repeats: u64,
    /// Lives of the table that this process has joined: one, and one more for each restart of the
    /// home.
    pub lives: u64,
    /// How long operations took: for each kind the longest length of a class in nanoseconds, and
    /// how many.
    pub pull_local: Vec<(u64, u64)>,
    /// See above.
    pub push_local: Vec<(u64, u64)>,
    /// See above.
    pub pull_remote: Vec<(u64, u64)>,
    /// See above.
    pub push_remote: Vec<(u64, u64)>,
    /// See above.
    pub localize: Vec<(u64, u64)>,
    /// Processor time.
    pub cpu_ns: u64,
    /// Bytes of Ethernet frames that came over the process's own link while epochs lasted, and that
    /// left; 0 where it has none, as on loopback.
    pub rx_bytes: u64,
    /// See above.
    pub tx_bytes: u64,
}

impl TableSummary {
    pub(super) fn new(statistics: &KeyStatistics, cpu_ns: u64) -> Self {
        let KeyStatistics { local, latencies, process } = statistics;
        let classes = |histogram: &Histogram| histogram.classes().collect();
        Self {
            local: *local,
            remote: process.remote,
            relocations: process.rows_taken,
            served: process.served,
            passed_on: process.passed_on,
            repeats: process.repeats,
            lives: process.lives,
            pull_local: classes(&latencies.pull_local),
            push_local: classes(&latencies.push_local),
            pull_remote: classes(&latencies.pull_remote),
            push_remote: classes(&latencies.push_remote),
            localize: classes(&latencies.localize),
            cpu_ns,
            ..Self::default()
        }
    }
}
