//! The proof: recomputes the whole run from the recorded gradients, by the independent reference,
//! and counts every bit that differs.

use std::path::Path;

use crate::run::recording::{RecordingError, RecordingReader};
use crate::run::recording_path;
use crate::scenario::Scenario;
use crate::workload::digits::{Trainer, TrainerError, model_bytes, sha256_hex};
use crate::workload::reference::{Reference, ReferenceConfig, ReferenceError};

/// What the proof found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReduceProof {
    /// Round by round.
    pub rounds: Vec<RoundProof>,
    /// Parameters of final models whose bits differ from the reference's, over all workers.
    pub wrong_parameters: u64,
    /// SHA-256 of the reference's model.
    pub model_sha256: String,
}

impl ReduceProof {
    /// Elements of sums that differ, over all rounds and workers.
    #[must_use]
    pub fn wrong_sums(&self) -> u64 {
        self.rounds.iter().map(|round| round.wrong_sums).sum()
    }
}

/// What the proof found in one round.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RoundProof {
    /// Elements of the sums that the workers got which differ from the reference's.
    pub wrong_sums: u64,
    /// Contributed elements that the limit changed.
    pub clamped_elements: u64,
}

/// Why a run could not be recomputed.
#[derive(Debug, thiserror::Error)]
pub(in crate::run) enum VerifyError {
    /// A recording is incomplete.
    #[error(transparent)]
    Recording(#[from] RecordingError),
    /// The recordings do not fit the job.
    #[error(transparent)]
    Reference(#[from] ReferenceError),
    /// The initial model could not be made.
    #[error(transparent)]
    Trainer(#[from] TrainerError),
}

/// Recomputes `rounds` rounds of a run from the recordings in `directory`.
///
/// # Errors
/// [`VerifyError`] when a recording is missing or does not fit.
pub(in crate::run) fn verify(
    scenario: &Scenario,
    seed: u64,
    block_elements: usize,
    directory: &Path,
) -> Result<ReduceProof, VerifyError> {
    let workers = usize::from(scenario.job.workers);
    let initial = Trainer::new(0, workers, seed, &scenario.job.trainer())?;
    let config = ReferenceConfig {
        workers,
        block_elements,
        // Spelt out here and not taken from the quantiser: no contribution may exceed an equal
        // share of the largest sum.
        clamp_limit: i32::MAX / i32::from(scenario.job.workers),
        learning_rate: scenario.job.learning_rate,
        momentum: scenario.job.momentum,
    };
    let mut reference = Reference::new(config, initial.parameters());
    let count = initial.parameter_count();
    let mut readers = (0..workers)
        .map(|rank| RecordingReader::open(&recording_path(directory, rank), count))
        .collect::<Result<Vec<_>, _>>()?;
    let mut proof = ReduceProof::default();
    for _ in 0..scenario.job.rounds {
        let mut recorded = Vec::with_capacity(workers);
        for reader in &mut readers {
            recorded.push(reader.round()?);
        }
        let gradients: Vec<Vec<f32>> =
            recorded.iter_mut().map(|round| std::mem::take(&mut round.gradient)).collect();
        let exponents = &recorded[0].exponents;
        let expected = reference.round(&gradients, exponents)?;
        let mut round =
            RoundProof { clamped_elements: expected.clamped_elements, ..RoundProof::default() };
        for worker in &recorded {
            let disagreed = worker.exponents != *exponents;
            let sums = expected.sum.iter().zip(&worker.sum).enumerate();
            let differs = |(index, (sum, got)): (usize, (&i32, &f32))| {
                let exponent = exponents.get(index / block_elements).unwrap_or(&exponents[0]);
                #[expect(clippy::cast_possible_truncation, reason = "the nearest f32 is meant")]
                // An i32 fits an f64 exactly, and so does a power of two times it.
                let value = (f64::from(*sum) * 2_f64.powi(i32::from(*exponent))) as f32;
                value.to_bits() != got.to_bits()
            };
            let wrong = sums.filter(|pair| differs(*pair)).count() as u64;
            round.wrong_sums += wrong + u64::from(disagreed);
        }
        proof.rounds.push(round);
    }
    for reader in &mut readers {
        proof.wrong_parameters += reference.wrong_parameters(&reader.model()?);
    }
    proof.model_sha256 = sha256_hex(&model_bytes(reference.parameters()));
    Ok(proof)
}
