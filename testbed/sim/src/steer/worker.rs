//! A worker whose model is a number: what came of all rounds so far. And the disk.

use std::net::IpAddr;

use weft_agent::rounds::{Rounds, Step};
use weft_control::{CohortId, Halt};

use crate::hash;

/// A model, as far as anybody must be able to tell two apart.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Model {
    /// Rounds that are in it.
    pub(super) rounds: u64,
    pub(super) digest: u64,
}

impl Model {
    pub(super) const FIRST: Self = Self { rounds: 0, digest: 1 };

    /// With the sum of one more round, of so many workers.
    pub(super) fn after(self, round: u64, workers: u16) -> Self {
        Self { rounds: self.rounds + 1, digest: hash(&[self.digest, round, workers.into()]) }
    }
}

/// A worker.
#[derive(Clone, Debug)]
pub(super) struct Worker {
    pub(super) cohort: CohortId,
    pub(super) life: u64,
    /// Where it calls from.
    pub(super) address: IpAddr,
    pub(super) rounds: Rounds,
    pub(super) model: Model,
    /// The round that it is within.
    pub(super) within: Option<u64>,
    /// Number of its stream, while it has one.
    pub(super) stream: Option<u64>,
    pub(super) is_welcome: bool,
    pub(super) is_keeping: bool,
}

impl Worker {
    /// It may have to send, or to send again, before its cohort is over.
    pub(super) fn uses_lease(&self) -> bool {
        self.is_welcome
            && self.rounds.position().halt != Halt::Left
            && self.rounds.step(0) != Step::End
    }

    pub(super) fn new(cohort: CohortId, (life, address): (u64, IpAddr), model: Model) -> Self {
        Self {
            cohort,
            life,
            address,
            rounds: Rounds::new(model.rounds),
            model,
            within: None,
            stream: None,
            is_welcome: false,
            is_keeping: false,
        }
    }
}
