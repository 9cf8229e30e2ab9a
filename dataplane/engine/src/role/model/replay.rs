//! A model made again from a checkpoint and the decisions after it, bit for bit: the same sums with
//! the same scales through the same step, in the same sequence (I3).

use core::fmt;

use weft_control::{Decision, Event, OrderNumber, Version};
use weft_kernel::Kernels;
use weft_wire::Members;
use weft_wire::header::{ElementType, Outcome};

use super::journal::{DecisionRecord, Record};
use super::outcomes::{Decided, Outcomes};
use super::params::{Model, Sum};
use super::state::ModelState;
use crate::role::model::{ModelConfig, ModelConfigError};

/// A model on its way to where a journal ends.
#[derive(Debug)]
pub struct Replay {
    model: Model,
    dimension: usize,
    sum_len: usize,
    outcomes: Outcomes,
    next_order: u64,
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
        state.check(config, workers)?;
        let len = config.chunks() as usize * usize::from(config.elements);
        let mut model = Model::new(kernels, config.momentum, len);
        model.restore(state);
        let mut outcomes = Outcomes::new(workers);
        outcomes.restore(&state.workers, None);
        let next_order = state.next_order.0;
        Ok(Self { model, dimension: config.dimension, sum_len: len * 4, outcomes, next_order })
    }

    /// Applies the next record, and says what it decided. What the checkpoint holds already changes
    /// nothing.
    ///
    /// # Errors
    /// The record is none that can come next.
    pub fn apply(&mut self, record: &Record<'_>) -> Result<Option<Event>, ReplayError> {
        match record {
            Record::Decision(decision) if decision.order.0 < self.next_order => Ok(None),
            Record::Decision(decision) => self.decide(decision).map(Some),
            Record::Forsworn { rank, life, group, version } => {
                if self.outcomes.get(*rank, *group).is_none() {
                    self.outcomes.begin_life(*rank, *life);
                    let outcome = Outcome::Void;
                    self.outcomes.push(*rank, Decided::new(*group, outcome, version.0));
                }
                Ok(None)
            }
        }
    }

    fn decide(&mut self, decision: &DecisionRecord<'_>) -> Result<Event, ReplayError> {
        if decision.order.0 != self.next_order {
            return Err(ReplayError("a record skips order numbers: one is missing"));
        }
        let mut norm = 0.0;
        let is_committed = decision.outcome == Outcome::Committed;
        if is_committed {
            if decision.sum.len() != self.sum_len || decision.element_type == ElementType::None {
                return Err(ReplayError("a record's sum is not of this model"));
            }
            let sum = Sum {
                wire: decision.sum,
                element_type: decision.element_type,
                exponent: decision.exponent,
                scale: decision.scale,
            };
            norm = self.model.apply(&sum, decision.members.len() as u64);
        }
        if self.model.version != decision.version.0 {
            return Err(ReplayError("a record's version is not what it makes of the model"));
        }
        for (position, rank) in decision.audience.iter().enumerate() {
            self.outcomes.begin_life(rank, decision.lives.get(position));
            let outcome = decision.outcome_of(rank);
            self.outcomes.push(rank, Decided::new(decision.group, outcome, decision.version.0));
        }
        let is_run = decision.outcome == Outcome::Void && !decision.members.is_empty();
        // Of a run of numbers that nobody had, `members` is where it ends.
        let after = if is_run { decision.members.0 } else { decision.order.0 + 1 };
        if after <= decision.order.0 {
            return Err(ReplayError("a record's run of order numbers ends before it begins"));
        }
        self.next_order = after;
        Ok(Event::Decided {
            group: decision.group,
            order: OrderNumber(after - 1),
            decision: match decision.outcome {
                Outcome::Committed => Decision::Committed(Version(self.model.version)),
                Outcome::Dropped => Decision::Dropped,
                _ => Decision::Void,
            },
            members: if is_run { Members::EMPTY } else { decision.members },
            norm,
            momentum_norm: self.model.momentum_norm,
        })
    }

    /// The order number that is decided next.
    #[must_use]
    pub fn next_order(&self) -> OrderNumber {
        OrderNumber(self.next_order)
    }

    /// Version of the model.
    #[must_use]
    pub fn version(&self) -> Version {
        Version(self.model.version)
    }

    /// Euclidean norm of the momentum term.
    #[must_use]
    pub fn momentum_norm(&self) -> f64 {
        self.model.momentum_norm
    }

    /// Where it stands. Copies the model.
    #[must_use]
    pub fn state(&self) -> ModelState {
        let model = self.model.state(self.dimension, self.next_order);
        ModelState { workers: self.outcomes.state(), ..model }
    }
}
