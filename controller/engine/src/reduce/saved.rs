//! What a controller must remember of an allreduce job: which workers it has, and whether they are
//! to stop. Where they are they tell themselves.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::steered::Steerer;

/// What is saved of an allreduce job.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct SavedReduce {
    /// Its cohort.
    pub cohort: u32,
    /// How many workers that has; missing: as many as it is configured with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workers: Option<u16>,
    /// The round that it began with.
    pub from_round: u64,
    /// All its workers have begun that.
    #[serde(skip_serializing_if = "is_false")]
    pub has_begun: bool,
    /// The cohort whose lease the box acknowledged last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leased: Option<u32>,
    /// The cohort whose lease the box was told to install last, when it had none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leasing: Option<u32>,
    /// The width before, while the new lease is not in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<u16>,
    /// The places of its workers, of those before and of those that it stops for; missing: the
    /// first ones.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub places: Vec<u16>,
    /// See above.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub before_places: Vec<u16>,
    /// See above.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub next_places: Vec<u16>,
    /// Who had it pause, while it is paused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paused: Option<Steerer>,
    /// The width that it stops for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resizing: Option<u16>,
    /// The round that it stops before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub boundary: Option<u64>,
    /// All its workers stand there.
    pub stands: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
const fn is_false(is_so: &bool) -> bool {
    !*is_so
}
