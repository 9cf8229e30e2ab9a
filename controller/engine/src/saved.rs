//! What a controller must remember beyond its own death and cannot learn from its boxes.
//!
//! Order numbers, versions and open groups are the servers' to tell. Here is the rest: how many
//! times rows were used (a group id is not to come twice), who was dropped lately (the drop
//! budget), which server was replaced by its replica, who is paused, jobs that were registered at
//! run time, and what boxes were told to hold. It may be lost without harm to a model: a controller
//! that has none promotes nobody before the server itself has said that it did not leave its
//! replica.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};
use weft_config::controller::JobConfig;
use weft_control::HoldingCommand;

use super::reduce::SavedReduce;
use super::steered::Steerer;

/// The content of the state file.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Saved {
    /// Version of this format; 1.
    pub schema: u32,
    /// No row has been used more often than this.
    pub generation_ceiling: u32,
    /// By name of the job.
    pub jobs: BTreeMap<String, SavedJob>,
    /// Allreduce jobs by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub reduces: BTreeMap<String, SavedReduce>,
    /// Jobs registered at run time.
    pub registered: Vec<JobConfig>,
    /// What boxes shall hold because somebody said so.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub held: Vec<SavedHolding>,
}

/// What is saved of something that a box holds because somebody said so.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct SavedHolding {
    /// The box, by its name.
    pub node: String,
    /// What installs it.
    pub install: HoldingCommand,
    /// Whoever asked heard that it is held. Else the box says whether it is.
    pub is_certain: bool,
}

/// What is saved of a job.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct SavedJob {
    /// The last decisions of plans, oldest first: `x` for a drop, `.` for a grant.
    pub recent: String,
    /// Ranks whose last update was dropped.
    pub dropped_before: Vec<u8>,
    /// How many times its replica took over from its server.
    #[serde(default)]
    pub epoch: u32,
    /// The node that serves it since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// Its replica was told to take over, with this order number first, and has not answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub promoting: Option<u64>,
    /// Acknowledgements do not wait for its replica any more.
    #[serde(default)]
    pub is_replica_left: bool,
    /// Its server said that it had not left its replica; only a controller could have it do so.
    #[serde(default, alias = "is_vouched")]
    pub is_replica_confirmed: bool,
    /// Who had it pause, while it is paused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<Steerer>,
    /// Nobody was ever granted anything of it; missing: nobody knows.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub is_untouched: bool,
}

impl Saved {
    /// For a controller without a state file. `seed` makes its group ids differ from those of a
    /// former life.
    #[must_use]
    pub fn fresh(seed: u16) -> Self {
        Self { schema: SCHEMA, generation_ceiling: seed.into(), ..Self::default() }
    }
}

/// Version of the format that this controller writes and reads.
pub(super) const SCHEMA: u32 = 1;
