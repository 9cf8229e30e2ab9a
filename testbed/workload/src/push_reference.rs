//! The independent answer to "what should the server's model be?".
//!
//! From the workers' recorded updates and the sequence of groups that the server decided, this file
//! computes the model, in one process and by plain loops. Invariant: it shares no code with the
//! dataplane's roles, slots, kernels and quantiser; only numbers cross over.
//!
//! The arithmetic (PROTOCOL sections 4 and 9), each step on its own element, for one group:
//!
//! 1. quantise each member's update: `q = clamp(round(u * 2^-exponent), -limit, +limit)`;
//! 2. sum: wrapping addition of the members' `q` in 32 bits (any order is the same);
//! 3. dequantise: the `f32` nearest to the sum, times `2^exponent`;
//! 4. momentum: `h = momentum * h + sum`, a product and a sum, each rounded to `f32`;
//! 5. model: `w = w + h` in `f32`, once for the group.

use super::reference::{count_differences, dequantise, quantise};

/// A model and its momentum term, one group after the other.
#[derive(Clone, Debug)]
pub struct PushReference {
    momentum: f32,
    model: Vec<f32>,
    velocity: Vec<f32>,
}

/// One group: its updates, and how they were put into integers.
#[derive(Clone, Debug)]
pub struct ReferenceGroup<'a> {
    /// The committed members' updates.
    pub updates: &'a [Vec<f32>],
    /// Scale exponent of the group.
    pub exponent: i8,
    /// Largest magnitude of a quantised contribution.
    pub clamp_limit: i32,
}

impl PushReference {
    /// Starts from the model that the server started from, at rest.
    #[must_use]
    pub fn new(momentum: f32, initial: &[f32]) -> Self {
        Self { momentum, model: initial.to_vec(), velocity: vec![0.0; initial.len()] }
    }

    /// Takes one group in; returns the Euclidean norm of its sum.
    ///
    /// # Errors
    /// When an update has another length than the model.
    pub fn commit(&mut self, group: &ReferenceGroup<'_>) -> Result<f64, LengthError> {
        let expected = self.model.len();
        for update in group.updates {
            let found = update.len();
            if found != expected {
                return Err(LengthError { found, expected });
            }
        }
        let mut squares = 0.0_f64;
        for index in 0..expected {
            let mut sum = 0_i32;
            for update in group.updates {
                let (quantised, _) = quantise(update[index], group.exponent, group.clamp_limit);
                sum = sum.wrapping_add(quantised);
            }
            let value = dequantise(sum, group.exponent);
            squares += f64::from(value) * f64::from(value);
            let kept = self.momentum * self.velocity[index];
            let velocity = kept + value;
            self.velocity[index] = velocity;
            self.model[index] += velocity;
        }
        Ok(squares.sqrt())
    }

    /// The model after the groups so far.
    #[must_use]
    pub fn model(&self) -> &[f32] {
        &self.model
    }

    /// Counts parameters of `model` whose bits differ; a missing or surplus one differs.
    #[must_use]
    pub fn wrong_parameters(&self, model: &[f32]) -> u64 {
        count_differences(&self.model, model, |a, b| a.to_bits() == b.to_bits())
    }
}

/// The Euclidean distance of two models, in double precision.
#[must_use]
pub fn distance(one: &[f32], other: &[f32]) -> f64 {
    let mut squares = 0.0_f64;
    for (a, b) in one.iter().zip(other) {
        let difference = f64::from(*a) - f64::from(*b);
        squares += difference * difference;
    }
    squares.sqrt()
}

/// A recorded update does not fit the model.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("a recorded update has {found} elements, the model has {expected}")]
pub struct LengthError {
    found: usize,
    expected: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_groups_by_hand() {
        let mut reference = PushReference::new(0.5, &[1.0, -1.0]);
        let mut commit = |updates: &[Vec<f32>]| {
            let group = ReferenceGroup { updates, exponent: -2, clamp_limit: 100 };
            let norm = reference.commit(&group).unwrap();
            (norm, reference.model().to_vec())
        };
        // 1.25 + 0.25 = 1.5; 0.6 rounds to 2 quarters, -30 to the limit of -25.
        let (norm, model) = commit(&[vec![1.25, 0.6], vec![0.25, -30.0]]);
        assert_eq!(model, [2.5, -25.5]);
        assert!((norm - (1.5_f64.powi(2) + 24.5_f64.powi(2)).sqrt()).abs() < 1e-12);
        // h = 0.5 * 1.5 + 1 = 1.75 and 0.5 * -24.5 + 0 = -12.25.
        let (_, model) = commit(&[vec![1.0, 0.0]]);
        assert_eq!(model, [4.25, -37.75]);
        assert_eq!(reference.wrong_parameters(&[4.25, -37.75]), 0);
        assert_eq!(reference.wrong_parameters(&[4.25]), 1);
    }

    #[test]
    fn group_boundaries_matter() {
        let updates = [vec![1.0], vec![2.0]];
        let mut once = PushReference::new(0.9, &[0.0]);
        let mut twice = once.clone();
        let group = |updates| ReferenceGroup { updates, exponent: -20, clamp_limit: 1 << 30 };
        once.commit(&group(&updates)).unwrap();
        for update in &updates {
            twice.commit(&group(std::slice::from_ref(update))).unwrap();
        }
        assert_ne!(once.model(), twice.model());
        assert!((distance(once.model(), twice.model()) - 0.9).abs() < 1e-6);
    }

    #[test]
    fn an_update_of_another_length_is_refused() {
        let mut reference = PushReference::new(0.0, &[0.0; 3]);
        let updates = [vec![0.0; 2]];
        let group = ReferenceGroup { updates: &updates, exponent: 0, clamp_limit: 1 };
        assert_eq!(reference.commit(&group), Err(LengthError { found: 2, expected: 3 }));
    }
}
