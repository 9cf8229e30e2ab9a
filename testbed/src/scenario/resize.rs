//! `[resize]`: an allreduce whose number of workers changes while it runs.

use serde::{Deserialize, Serialize};
use weft_config::Problem;

use super::{ScaleExponent, Scenario, refuse};
use crate::workload::digits::TrainerError;

/// `[resize]`: the job has a controller, which stops its workers before one round and has others go
/// on from their checkpoint. The job's `workers` and `learning_rate` are those that it begins with.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ResizeSection {
    /// Places for workers: the most that there may be.
    pub places: u8,
    /// What an operator says, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub word: Vec<WordSection>,
    /// Boxes that are killed without a word and started again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kill: Vec<KillSection>,
}

/// `[[resize.word]]`
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct WordSection {
    /// It is said when this round has ended.
    pub after_round: u32,
    /// With so many workers the job goes on; missing: it pauses, ...
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workers: Option<u8>,
    /// ... and goes on when it has stood still for so long. Default 200.
    #[serde(default = "pause_ms")]
    pub pause_ms: u64,
}

/// `[[resize.kill]]`
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct KillSection {
    /// `a0`, the aggregator, or `controller`.
    #[serde(rename = "box")]
    pub name: String,
    /// Which word it follows, from 0.
    pub word: usize,
    /// How long after it.
    pub after_ms: u64,
}

const fn pause_ms() -> u64 {
    200
}

impl ResizeSection {
    pub(super) fn validate(&self, scenario: &Scenario) -> Result<(), Problem> {
        let job = &scenario.job;
        if scenario.push.is_some() {
            return refuse("resize", "places", "are of an allreduce; leave out [push]");
        }
        if scenario.aggregation.leaves > 0 {
            return refuse(
                "aggregation",
                "leaves",
                "must be 0 with [resize]: one box has the lease",
            );
        }
        if !matches!(job.scale_exponent, ScaleExponent::Fixed(_)) {
            let reason = "must be a number with [resize]: all widths round alike";
            return refuse("job", "scale_exponent", reason);
        }
        if !(job.workers..=PLACES_MAX).contains(&self.places) {
            let reason = format!("is {}; expected {} to {PLACES_MAX}", self.places, job.workers);
            return refuse("resize", "places", reason);
        }
        let mut before = None;
        for (index, word) in self.word.iter().enumerate() {
            let section = format!("resize.word[{index}]");
            if word.after_round >= job.rounds || before.is_some_and(|last| word.after_round <= last)
            {
                let reason = format!("is {}; rounds grow, below job.rounds", word.after_round);
                return refuse(&section, "after_round", reason);
            }
            before = Some(word.after_round);
            let Some(workers) = word.workers else { continue };
            if !(1..=self.places).contains(&workers) {
                let reason = format!("is {workers}; there are {} places", self.places);
                return refuse(&section, "workers", reason);
            }
            let shard: Result<(), TrainerError> = job.trainer().validate(usize::from(workers));
            shard.map_err(|error| Problem::new(format!("{section}.workers"), error.to_string()))?;
        }
        for (index, kill) in self.kill.iter().enumerate() {
            let section = format!("resize.kill[{index}]");
            if !["a0", super::CONTROLLER].contains(&kill.name.as_str()) {
                let reason = format!("is `{}`; expected a0 or {}", kill.name, super::CONTROLLER);
                return refuse(&section, "box", reason);
            }
            if kill.word >= self.word.len() {
                return refuse(&section, "word", format!("is {}; there is none", kill.word));
            }
        }
        Ok(())
    }
}

/// Members of a group.
const PLACES_MAX: u8 = 64;
