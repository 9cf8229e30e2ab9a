//! The independent answer to "what should this run have computed?".
//!
//! From the workers' recorded gradients this file computes, in one process and by plain loops, the
//! quantised integers, their sum, the mean that every worker should have got back, and the model
//! that should have come out. Invariant: it shares no code with the dataplane's slots, kernels,
//! roles and quantiser, nor with the trainer's update step; only numbers cross over.
//!
//! The arithmetic (PROTOCOL section 9), each step on its own element:
//!
//! 1. quantise: `q = clamp(round(g * 2^-exponent), -limit, +limit)`, halves to even, NaN to 0;
//! 2. sum: wrapping addition of the workers' `q` in 32 bits, in rank order (any order is the same);
//! 3. dequantise: the `f32` nearest to the sum, times `2^exponent`;
//! 4. mean: divided by the number of workers, rounded to `f32`;
//! 5. model: `v = momentum * v + mean`, then `p = p - learning_rate * v`, each step in `f32`.

/// What the reference is told about the job.
#[derive(Clone, Debug, PartialEq)]
pub struct ReferenceConfig {
    /// Workers that contribute to every round.
    pub workers: usize,
    /// Elements that share one scale exponent: a chunk, or the whole gradient.
    pub block_elements: usize,
    /// Largest magnitude of a quantised contribution.
    pub clamp_limit: i32,
    /// The trainer's step size.
    pub learning_rate: f32,
    /// The trainer's momentum.
    pub momentum: f32,
}

/// Replays a run, one round after the other.
#[derive(Clone, Debug)]
pub struct Reference {
    config: ReferenceConfig,
    parameters: Vec<f32>,
    velocity: Vec<f32>,
}

impl Reference {
    /// Starts from the model that every worker started from.
    #[must_use]
    pub fn new(config: ReferenceConfig, initial_parameters: &[f32]) -> Self {
        let velocity = vec![0.0; initial_parameters.len()];
        Self { config, parameters: initial_parameters.to_vec(), velocity }
    }

    /// Computes one round from the gradients in rank order, and advances the model.
    ///
    /// `exponents` has one entry for each block of the gradient, or a single one for all blocks.
    ///
    /// # Errors
    /// When the number or a length of the gradients or exponents does not fit the job.
    pub fn round(
        &mut self,
        gradients: &[Vec<f32>],
        exponents: &[i8],
    ) -> Result<RoundResult, ReferenceError> {
        self.check(gradients, exponents)?;
        let count = self.parameters.len();
        let mut result =
            RoundResult { sum: vec![0; count], mean: vec![0.0; count], clamped_elements: 0 };
        for index in 0..count {
            let exponent = match exponents {
                [only] => *only,
                each => each[index / self.config.block_elements],
            };
            let mut sum = 0_i32;
            for gradient in gradients {
                let (quantised, clamped) =
                    quantise(gradient[index], exponent, self.config.clamp_limit);
                sum = sum.wrapping_add(quantised);
                result.clamped_elements += u64::from(clamped);
            }
            result.sum[index] = sum;
            result.mean[index] = dequantise(sum, exponent) / self.config.workers as f32;
        }
        for index in 0..count {
            let velocity = self.config.momentum * self.velocity[index] + result.mean[index];
            self.velocity[index] = velocity;
            self.parameters[index] -= self.config.learning_rate * velocity;
        }
        Ok(result)
    }

    /// Goes on with other workers and another step size; model and momentum stay as they are.
    pub fn resize(&mut self, workers: usize, clamp_limit: i32, learning_rate: f32) {
        self.config = ReferenceConfig { workers, clamp_limit, learning_rate, ..self.config };
    }

    /// The model after the rounds so far.
    #[must_use]
    pub fn parameters(&self) -> &[f32] {
        &self.parameters
    }

    /// Counts parameters of `model` whose bits differ from the reference's; a missing or surplus
    /// parameter differs.
    #[must_use]
    pub fn wrong_parameters(&self, model: &[f32]) -> u64 {
        count_differences(&self.parameters, model, |a, b| a.to_bits() == b.to_bits())
    }

    fn check(&self, gradients: &[Vec<f32>], exponents: &[i8]) -> Result<(), ReferenceError> {
        let (expected, found) = (self.config.workers, gradients.len());
        if found != expected {
            return Err(ReferenceError::Gradients { found, expected });
        }
        let expected = self.parameters.len();
        for (rank, gradient) in gradients.iter().enumerate() {
            let found = gradient.len();
            if found != expected {
                return Err(ReferenceError::Length { rank, found, expected });
            }
        }
        let (expected, found) = (expected.div_ceil(self.config.block_elements), exponents.len());
        if found != 1 && found != expected {
            return Err(ReferenceError::Exponents { found, expected });
        }
        Ok(())
    }
}

/// What one round should have given.
#[derive(Clone, Debug, PartialEq)]
pub struct RoundResult {
    /// The integer sums.
    pub sum: Vec<i32>,
    /// The mean gradient that each worker applies.
    pub mean: Vec<f32>,
    /// Contributed elements that the limit changed.
    pub clamped_elements: u64,
}

impl RoundResult {
    /// Counts elements of `sums` that differ; a missing or surplus element differs.
    #[must_use]
    pub fn wrong_sums(&self, sums: &[i32]) -> u64 {
        count_differences(&self.sum, sums, |a, b| a == b)
    }

    /// Counts elements of `means` whose bits differ; a missing or surplus element differs.
    #[must_use]
    pub fn wrong_means(&self, means: &[f32]) -> u64 {
        count_differences(&self.mean, means, |a, b| a.to_bits() == b.to_bits())
    }
}

/// Why a round cannot be computed.
#[derive(Debug, PartialEq, thiserror::Error)]
pub enum ReferenceError {
    /// A worker's recording is missing, or there is one too many.
    #[error("recorded gradients of {found} workers in a round of {expected}")]
    Gradients {
        /// Gradients given.
        found: usize,
        /// Workers in the job.
        expected: usize,
    },
    /// A recording has another length than the model.
    #[error("gradient of rank {rank} has {found} elements, the model has {expected}")]
    Length {
        /// Whose gradient.
        rank: usize,
        /// Its elements.
        found: usize,
        /// The model's parameters.
        expected: usize,
    },
    /// The exponents do not fit the blocks.
    #[error("{found} scale exponents for {expected} blocks; give one for each, or one for all")]
    Exponents {
        /// Exponents given.
        found: usize,
        /// Blocks in a gradient.
        expected: usize,
    },
}

/// Step 1. Double precision holds every product here exactly, so only `round` rounds.
pub(super) fn quantise(value: f32, exponent: i8, limit: i32) -> (i32, bool) {
    let scaled = f64::from(value) * 2.0_f64.powi(-i32::from(exponent));
    if scaled.is_nan() {
        return (0, false);
    }
    let rounded = scaled.round_ties_even();
    let bound = f64::from(limit);
    if rounded > bound {
        return (limit, true);
    }
    if rounded < -bound {
        return (-limit, true);
    }
    #[expect(clippy::cast_possible_truncation, reason = "whole, and inside the limit")]
    let quantised = rounded as i32;
    (quantised, false)
}

/// Step 3.
pub(super) fn dequantise(sum: i32, exponent: i8) -> f32 {
    let exact = f64::from(sum as f32) * 2.0_f64.powi(i32::from(exponent));
    #[expect(clippy::cast_possible_truncation, reason = "rounds only below f32's normal range")]
    let value = exact as f32;
    value
}

pub(super) fn count_differences<T>(
    expected: &[T],
    found: &[T],
    same: impl Fn(&T, &T) -> bool,
) -> u64 {
    let differing = expected.iter().zip(found).filter(|(a, b)| !same(a, b)).count();
    (differing + expected.len().abs_diff(found.len())) as u64
}

#[cfg(test)]
mod tests;
