//! `[aggregation]`, `[faults]` and `[[restart]]`: the boxes of an allreduce, and what goes wrong.

use serde::{Deserialize, Serialize};
use weft_config::Problem;

use super::job::JobSection;
use super::refuse;

/// `[aggregation]`: the boxes.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct AggregationSection {
    /// Leaf aggregators below the root, each with an equal share of the workers; 0 for one level.
    /// Leaves are `a1`, `a2` and so on; the root, or the only box, is `a0`.
    pub leaves: u8,
    /// Slots of the group's lease.
    pub window: u16,
    /// Lanes of every box, each a thread with its own slots.
    pub lanes: u16,
}

impl Default for AggregationSection {
    fn default() -> Self {
        Self { leaves: 0, window: 128, lanes: 1 }
    }
}

impl AggregationSection {
    /// Names of the boxes, the root first.
    #[must_use]
    pub fn boxes(&self) -> Vec<String> {
        (0..=self.leaves).map(|index| format!("a{index}")).collect()
    }

    pub(super) fn validate(&self, job: &JobSection) -> Result<(), Problem> {
        let leaves = self.leaves;
        if leaves > 0 && (leaves > job.workers || !job.workers.is_multiple_of(leaves)) {
            let reason = format!("is {leaves}; expected a divisor of the {} workers", job.workers);
            return refuse("aggregation", "leaves", reason);
        }
        let window = self.window;
        if !window.is_power_of_two() || window > 2048 {
            let reason = format!("is {window}; expected a power of two, at most 2048");
            return refuse("aggregation", "window", reason);
        }
        let lanes = self.lanes;
        if !lanes.is_power_of_two() || lanes > window.min(LANES_MAX) {
            let reason =
                format!("is {lanes}; expected a power of two, at most {LANES_MAX} and the window");
            return refuse("aggregation", "lanes", reason);
        }
        Ok(())
    }
}

/// `[[restart]]`: a box that dies without a word and comes back at once. `[[crash]]`: one that dies
/// and does not come back.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct RestartSection {
    /// Name of the box; with `[push]` also `server`, `replica`, `controller` or a worker.
    #[serde(rename = "box")]
    pub name: String,
    /// It is killed when rank 0 has finished this round, counted from 0. With `[push]`: when the
    /// model has taken in this round's last update.
    pub after_round: u32,
}

impl RestartSection {
    pub(super) fn validate(
        &self,
        section: &str,
        job: &JobSection,
        names: &[String],
    ) -> Result<(), Problem> {
        if self.after_round >= job.rounds {
            let reason = format!("is {}; the last round is {}", self.after_round, job.rounds - 1);
            return refuse(section, "after_round", reason);
        }
        if !names.contains(&self.name) {
            return refuse(section, "box", format!("names no box: {}", self.name));
        }
        Ok(())
    }
}

/// `[faults]`: probabilities per frame.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct FaultSection {
    /// The frame is lost.
    pub loss: f64,
    /// The frame arrives twice.
    pub duplicate: f64,
    /// The frame is overtaken.
    pub reorder: f64,
    /// A range of the frame's bytes is overwritten.
    pub corrupt: f64,
}

impl FaultSection {
    pub(super) fn validate(&self) -> Result<(), Problem> {
        for (key, value) in [
            ("loss", self.loss),
            ("duplicate", self.duplicate),
            ("reorder", self.reorder),
            ("corrupt", self.corrupt),
        ] {
            if !(0.0..1.0).contains(&value) {
                let reason = format!("is {value}; expected a probability, 0 to below 1");
                return refuse("faults", key, reason);
            }
        }
        Ok(())
    }
}

/// A worker has a UDP port for each lane, and on loopback the ranks share an address.
const LANES_MAX: u16 = 16;
