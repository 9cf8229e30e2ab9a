//! What a run of a scenario with `[factorisation]` came to. No I/O.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Record, Verdict, VirtualTime};
use crate::scenario::ModeWord;

/// `run.json` of such a run.
pub type FactorisationRecord = Record<FactorisationOutcome>;

/// What it came to; keys that scripts read.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct FactorisationOutcome {
    /// The scenario's name.
    pub name: String,
    /// Whether everything held.
    pub verdict: Verdict,
    /// Where the factors were and how processes came to them.
    pub mode: ModeWord,
    /// Processes.
    pub nodes: u8,
    /// Worker threads of each.
    pub threads: u8,
    /// Elements of factors that differ from the reference's in any bit; where there are copies,
    /// those that are no number.
    pub wrong_values: u64,
    /// Mean square of what the known entries lack in the end; none if the factors were not kept.
    pub loss: Option<f64>,
    /// The same of one process that works alone.
    pub reference_loss: f64,
    /// Share of operations that ran on a row that was at their process, without a message.
    pub local_share: f64,
    /// Operations by key, of which that is the share, and the others.
    pub local_operations: u64,
    /// See above.
    pub remote_operations: u64,
    /// Rows that moved.
    pub relocations: u64,
    /// Half of them took no longer than this, from the call to the row; 0 if none moved.
    pub relocation_us_p50: f64,
    /// Time of an epoch: the median.
    pub epoch_s: f64,
    /// Of each.
    pub epochs_s: Vec<f64>,
    /// Bytes of frames that the link of a process carried in an epoch: of the one that carried
    /// most, in the direction that did; 0 where processes have no links of their own.
    pub wire_bytes: u64,
    /// How long these take at the lab's rate; none without a rate.
    pub wire_s: Option<f64>,
    /// Entries of frames that were sent again.
    pub repeats: u64,
    /// What the home counted in its last life, by name as in its `tables`: accesses and localizes
    /// that it sent on, rows that arrived, and so on.
    pub home: BTreeMap<String, u64>,
    /// Epochs in which the home was killed.
    pub home_kills: Vec<u32>,
    /// How long operations took.
    pub latencies: Vec<LatencyRow>,
    /// What went wrong, for people.
    pub problems: Vec<String>,
    /// The clock, where it was not this machine's.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub virtual_time: Option<VirtualTime>,
}

/// How long operations of a kind took, at all processes; 0 if there were none.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct LatencyRow {
    /// The kind: of rows that were here (`local`, one in 251 is timed), elsewhere (`remote`), or
    /// that came (`localize`).
    pub operation: String,
    /// Operations that were timed, by key.
    pub count: u64,
    /// So many did not take longer: half of them,
    pub p50_us: f64,
    /// nine in ten,
    pub p90_us: f64,
    /// all but one in a hundred,
    pub p99_us: f64,
    /// all.
    pub most_us: f64,
}
