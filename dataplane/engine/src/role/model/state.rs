//! What of a job must survive its server (PROTOCOL section 4): the model with its momentum, where
//! the sequence stands, and what each worker is to be told of its last updates.

use alloc::vec::Vec;

use weft_control::{OrderNumber, Version};
use weft_wire::GroupId;
use weft_wire::header::Outcome;

use super::config::{ModelConfig, ModelConfigError};

/// Everything that a server, or a replica that takes its place, must know of a job to go on with
/// it.
///
/// The version is the count of PROTOCOL section 6 alone: every life of a server has an epoch of its
/// own, which it draws.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModelState {
    /// Updates that have entered the model.
    pub version: Version,
    /// The order number that is decided next.
    pub next_order: OrderNumber,
    /// The weights, as many as the model has parameters.
    pub weights: Vec<f32>,
    /// The momentum term, as many.
    pub momentum: Vec<f32>,
    /// The last decided updates of each worker, by rank.
    pub workers: Vec<WorkerOutcomes>,
}

/// What is known of a worker's last updates.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WorkerOutcomes {
    /// The life of the worker that they are of; 0 when it is not known.
    pub life: u64,
    /// The updates, the oldest first.
    pub decided: Vec<DecidedUpdate>,
}

/// One decided update of a worker, which knows it by its group.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct DecidedUpdate {
    /// The group that it was part of.
    pub group: GroupId,
    /// COMMITTED, VOID or DROPPED.
    pub outcome: Outcome,
    /// Version of the model afterwards.
    pub version: Version,
}

impl ModelState {
    /// Judges whether a job of this shape can go on from here.
    ///
    /// # Errors
    /// [`ModelConfigError`] naming what does not fit.
    pub fn check(&self, model: &ModelConfig, workers: usize) -> Result<(), ModelConfigError> {
        let error = |field, problem| Err(ModelConfigError { field, problem });
        if self.weights.len() != model.dimension || self.momentum.len() != model.dimension {
            return error("dimension", "is not the stored model's");
        }
        if self.workers.len() != workers {
            return error("workers", "are not as many as the stored model had");
        }
        Ok(())
    }
}
