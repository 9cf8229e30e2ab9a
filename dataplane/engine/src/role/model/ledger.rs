//! The one sequence of a job: the model, the order number that is decided next, and what became of
//! each worker's last updates (PROTOCOL sections 4 and 5).
//!
//! A server, its replica and the replay of a journal all decide here. Invariants: a model changes
//! only together with the order number that its sum was decided under, and by nothing else than a
//! decision or the load of a stored state (I1); order numbers are decided once each, in sequence
//! (I3). What changes a model is private to this folder.

use alloc::vec::Vec;

use weft_control::{OrderNumber, Version};
use weft_kernel::Kernels;
use weft_wire::header::{ElementType, Outcome};
use weft_wire::{GroupId, Members, Rank};

use super::config::{ModelConfig, ModelConfigError};
use super::outcomes::{Decided, Outcomes, outcome_of};
use super::params::{Model, ModelView, Sum};
use super::rate::scale;
use super::state::ModelState;

/// The sequence of a job up to now.
#[derive(Debug)]
pub(crate) struct Ledger {
    shape: ModelConfig,
    workers: usize,
    model: Model,
    /// Everything below is decided.
    next_order: u64,
    outcomes: Outcomes,
}

/// What is decided under the next order number, or under a run of them that nobody has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    /// The order number that is decided next: one more, but for a run.
    pub(crate) after: u64,
    pub(crate) group: GroupId,
    /// The members that are committed.
    pub(crate) members: Members,
    /// All whose updates it decides.
    pub(crate) audience: Members,
    /// Of these, the ones that were too old.
    pub(crate) old: Members,
    /// The decision that the audience is told of only when others have it.
    pub(crate) held_by: Option<u64>,
    /// The record of the journal that must be durable before it is told; 0 when there is none.
    pub(crate) position: u64,
}

impl Ledger {
    /// A ledger of the initial model; weights that are missing are zero.
    pub(crate) fn new(
        shape: &ModelConfig,
        workers: usize,
        initial: (&[f32], Version, OrderNumber),
        kernels: &'static Kernels,
    ) -> Self {
        let (weights, version, order) = initial;
        let len = shape.chunks() as usize * usize::from(shape.elements);
        let mut model = Model::new(kernels, shape.momentum, len);
        model.load(version.0, weights, &[]);
        let outcomes = Outcomes::new(workers);
        Self { shape: shape.clone(), workers, model, next_order: order.0, outcomes }
    }

    /// The model, to look at.
    pub(crate) fn model(&self) -> &Model {
        &self.model
    }

    /// The order number that is decided next.
    pub(crate) fn next_order(&self) -> u64 {
        self.next_order
    }

    /// The model without padding, to look at from outside.
    pub(crate) fn view(&self) -> ModelView<'_> {
        let (weights, momentum) = self.model.parts();
        ModelView {
            version: Version(self.model.version()),
            next_order: OrderNumber(self.next_order),
            weights: &weights[..self.shape.dimension],
            momentum: &momentum[..self.shape.dimension],
        }
    }

    /// Everything that must survive. Copies the model.
    pub(crate) fn state(&self) -> ModelState {
        let view = self.view();
        ModelState {
            version: view.version,
            next_order: view.next_order,
            weights: view.weights.to_vec(),
            momentum: view.momentum.to_vec(),
            workers: self.outcomes.state(),
        }
    }

    /// Goes on where a stored state stopped. If `is_held`, what that state committed is told only
    /// when the replica has all of it.
    ///
    /// # Errors
    /// The state is not one of this job.
    pub(crate) fn restore(
        &mut self,
        state: &ModelState,
        is_held: bool,
    ) -> Result<(), ModelConfigError> {
        state.check(&self.shape, self.workers)?;
        self.model.load(state.version.0, &state.weights, &state.momentum);
        self.next_order = state.next_order.0;
        let held_by = is_held.then(|| self.next_order.saturating_sub(1));
        self.outcomes.restore(&state.workers, held_by);
        Ok(())
    }

    /// Changes places with a whole model that came over the network. What workers were told stays.
    pub(crate) fn exchange(
        &mut self,
        version: u64,
        next_order: u64,
        w: &mut Vec<f32>,
        h: &mut Vec<f32>,
    ) {
        self.model.exchange(version, w, h);
        self.next_order = next_order;
    }

    /// Leaves all order numbers below `order` to a former server.
    pub(crate) fn begin_at(&mut self, order: u64) {
        self.next_order = order;
    }

    /// A whole staged update, as it would be committed now.
    pub(crate) fn sum<'a>(
        &self,
        wire: &'a [u8],
        element_type: ElementType,
        exponent: i8,
        delay: u16,
    ) -> Sum<'a> {
        let scale = scale(self.shape.learning_rate, self.model.version(), delay);
        Sum { wire, element_type, exponent, scale }
    }

    /// Decides the next order number: commits `sum`, if there is one, and notes what became of
    /// each member's update. Returns the norm of the scaled sum.
    pub(crate) fn decide(&mut self, entry: &Entry, sum: Option<&Sum<'_>>) -> f64 {
        debug_assert!(entry.after > self.next_order, "order numbers are decided in sequence");
        let count = entry.members.len() as u64;
        let norm = sum.map_or(0.0, |sum| self.model.apply(sum, count));
        self.next_order = entry.after;
        for rank in entry.audience.iter() {
            let outcome = outcome_of(rank, entry.members, entry.old);
            let decided = Decided::new(entry.group, outcome, self.model.version());
            let Entry { held_by, position, .. } = *entry;
            self.outcomes.push(rank, Decided { held_by, position, ..decided });
        }
        norm
    }

    /// Notes that a worker is told VOID of a group that is not known here.
    pub(crate) fn withdraw(&mut self, rank: Rank, group: GroupId, version: u64, position: u64) {
        let decided = Decided::new(group, Outcome::Void, version);
        self.outcomes.push(rank, Decided { position, ..decided });
    }

    /// What each worker's last updates became, to look at.
    pub(crate) fn outcomes(&self) -> &Outcomes {
        &self.outcomes
    }

    /// A worker speaks in this life ([`Outcomes::begin_life`]).
    pub(crate) fn begin_life(&mut self, rank: Rank, life: u64) -> bool {
        self.outcomes.begin_life(rank, life)
    }

    /// A worker may be told what became of its update; returns that, if it is kept.
    pub(crate) fn release(&mut self, rank: Rank, group: GroupId) -> Option<Decided> {
        self.outcomes.release(rank, group)
    }
}
