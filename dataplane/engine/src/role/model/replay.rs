//! A model made again from a checkpoint and the decisions after it, bit for bit: the same sums with
//! the same scales through the same step, in the same sequence (I3).

use core::fmt;

use weft_control::{Decision, Event, OrderNumber, Version};
use weft_kernel::Kernels;
use weft_wire::Members;
use weft_wire::header::{ElementType, Outcome};

use super::config::{ModelConfig, ModelConfigError};
use super::journal::{DecisionRecord, Record};
use super::ledger::{Entry, Ledger};
use super::params::Sum;
use super::state::ModelState;

/// A model on its way to where a journal ends.
#[derive(Debug)]
pub struct Replay {
    ledger: Ledger,
    sum_len: usize,
}

/// Why a record cannot be applied.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ReplayError(&'static str);

impl fmt::Display for ReplayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl core::error::Error for ReplayError {}

impl Replay {
    /// Begins at a checkpoint.
    ///
    /// # Errors
    /// The state is not one of this job.
    pub fn new(
        config: &ModelConfig,
        workers: usize,
        state: &ModelState,
        kernels: &'static Kernels,
    ) -> Result<Self, ModelConfigError> {
        let mut ledger = Ledger::new(config, workers, Default::default(), kernels);
        ledger.restore(state, false)?;
        let sum_len = config.chunks() as usize * usize::from(config.elements) * 4;
        Ok(Self { ledger, sum_len })
    }

    /// Applies the next record, and says what it decided. What the checkpoint holds already changes
    /// nothing.
    ///
    /// # Errors
    /// The record is none that can come next.
    pub fn apply(&mut self, record: &Record<'_>) -> Result<Option<Event>, ReplayError> {
        match record {
            Record::Decision(decision) if decision.order < self.next_order() => Ok(None),
            Record::Decision(decision) => self.decide(decision).map(Some),
            Record::Withdrawn { rank, life, group, version } => {
                if self.ledger.outcomes().get(*rank, *group).is_none() {
                    self.ledger.begin_life(*rank, *life);
                    self.ledger.withdraw(*rank, *group, version.0, 0);
                }
                Ok(None)
            }
        }
    }

    fn decide(&mut self, decision: &DecisionRecord<'_>) -> Result<Event, ReplayError> {
        let order = decision.order.0;
        if order != self.ledger.next_order() {
            return Err(ReplayError("a record skips order numbers: one is missing"));
        }
        let is_committed = decision.outcome == Outcome::Committed;
        let is_ours =
            decision.sum.len() == self.sum_len && decision.element_type != ElementType::None;
        if is_committed && !is_ours {
            return Err(ReplayError("a record's sum is not of this model"));
        }
        let is_run = decision.outcome == Outcome::Void && !decision.members.is_empty();
        // Of a run of numbers that nobody had, `members` is where it ends.
        let (after, members) = match is_run {
            true => (decision.members.0, Members::EMPTY),
            false => (order + 1, decision.members),
        };
        if after <= order {
            return Err(ReplayError("a record's run of order numbers ends before it begins"));
        }
        let count = if is_committed { members.len() as u64 } else { 0 };
        if self.version().0 + count != decision.version.0 {
            return Err(ReplayError("a record's version is not what it makes of the model"));
        }
        for (position, rank) in decision.audience.iter().enumerate() {
            self.ledger.begin_life(rank, decision.lives.get(position));
        }
        let sum = Sum {
            wire: decision.sum,
            element_type: decision.element_type,
            exponent: decision.exponent,
            scale: decision.scale,
        };
        let DecisionRecord { group, audience, old, .. } = *decision;
        let entry = Entry { after, group, members, audience, old, held_by: None, position: 0 };
        let norm = self.ledger.decide(&entry, is_committed.then_some(&sum));
        Ok(Event::Decided {
            group,
            order: OrderNumber(after - 1),
            decision: match decision.outcome {
                Outcome::Committed => Decision::Committed(self.version()),
                Outcome::Dropped => Decision::Dropped,
                _ => Decision::Void,
            },
            members,
            norm,
            momentum_norm: self.momentum_norm(),
        })
    }

    /// The order number that is decided next.
    #[must_use]
    pub fn next_order(&self) -> OrderNumber {
        OrderNumber(self.ledger.next_order())
    }

    /// Version of the model.
    #[must_use]
    pub fn version(&self) -> Version {
        Version(self.ledger.model().version())
    }

    /// Euclidean norm of the momentum term.
    #[must_use]
    pub fn momentum_norm(&self) -> f64 {
        self.ledger.model().momentum_norm()
    }

    /// Where it stands. Copies the model.
    #[must_use]
    pub fn state(&self) -> ModelState {
        self.ledger.state()
    }
}
