//! What a controller must remember of an allreduce job: which workers it has, and whether they are
//! to stop. Where they are they tell themselves.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::job::{Phase, Reduce, Why, width};
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

impl Reduce {
    pub(crate) fn save(&self) -> SavedReduce {
        let mut saved = SavedReduce {
            cohort: self.cohort.id.0,
            workers: Some(self.cohort.workers),
            from_round: self.cohort.from_round,
            has_begun: self.beginning.is_known,
            leased: self.leased.map(|cohort| cohort.0),
            leasing: self.leasing.map(|cohort| cohort.0),
            before: self.before.as_ref().map(|before| width(before)),
            places: unless_first(&self.places),
            before_places: self.before.as_deref().map_or(Vec::new(), unless_first),
            next_places: unless_first(&self.next_places),
            ..SavedReduce::default()
        };
        match self.phase {
            Phase::Running => {}
            Phase::Halting { why: Why::Pause(by), boundary, .. } => {
                (saved.paused, saved.boundary) = (Some(by), boundary);
            }
            Phase::Halting { why: Why::Resize(to), boundary, .. } => {
                (saved.resizing, saved.boundary) = (Some(to), boundary);
            }
            Phase::Leaving { to, boundary, .. } => {
                (saved.resizing, saved.boundary) = (Some(to), Some(boundary));
            }
            Phase::Paused { by, boundary } => {
                (saved.paused, saved.boundary, saved.stands) = (Some(by), Some(boundary), true);
            }
        }
        saved
    }
}

/// Places of so many workers that were saved, or the first ones; none where they do not fit the
/// `count` places that there are.
pub(super) fn placed(saved: &[u16], workers: u16, count: u16) -> Option<Vec<u16>> {
    if saved.is_empty() {
        return (workers <= count).then(|| (0..workers).collect());
    }
    let fits = width(saved) == workers
        && saved.is_sorted_by(|one, next| one < next)
        && saved.last().is_some_and(|last| *last < count);
    fits.then(|| saved.to_vec())
}

/// Places to be saved: those that are not the first ones.
fn unless_first(places: &[u16]) -> Vec<u16> {
    let are_first = places.iter().copied().eq(0..width(places));
    if are_first { Vec::new() } else { places.to_vec() }
}
