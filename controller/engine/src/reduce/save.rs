//! Writes down what the next life must know of an allreduce job.

use alloc::vec::Vec;

use super::job::{Phase, Reduce, Why};
use super::places::{unless_first, width};
use super::saved::SavedReduce;

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
