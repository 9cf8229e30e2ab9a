//! Predicts a job's loss from what was seen of it: `l(k) = 1 / (b0 k + b1) + b2` (equation 1 of
//! arXiv 1908.08082, the form that Optimus has too).
//!
//! The floor `b2` is tried on a grid below the least loss, then between its best neighbours; for
//! each, `1 / (l - b2)` is a line in `k` with coefficients of at least 0 ([`super::nnls`]). A line's
//! residual is that of the loss divided by `(l - b2)²`, so each row is multiplied by it: what is
//! smallest in the end is the residual of the loss. *Derived*: the paper leaves the weights open.
//!
//! Invariant: a prediction never rises with `k`.

use alloc::vec::Vec;

use thiserror::Error;
use weft_plan::float::{ceil, sqrt};

use super::nnls;

/// A loss curve. `k` counts steps or epochs, whichever its samples counted.
#[derive(Clone, Debug, PartialEq)]
pub struct LossCurve {
    /// How fast it falls, per step.
    pub b0: f64,
    /// Where it starts: `1 / b1` above the floor.
    pub b1: f64,
    /// The floor.
    pub b2: f64,
    /// The root of the mean of the squared residuals, in units of the loss, weights apart.
    pub residual_rms: f64,
    /// Prediction minus sample, one a sample.
    pub residuals: Vec<f64>,
}

/// Why no curve was fitted.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum LossError {
    /// Three coefficients need three samples.
    #[error("a loss curve needs at least {SAMPLES_MIN} samples, and has {0}: report more losses")]
    TooFew(usize),
    /// A sample that is no number, or not positive.
    #[error("sample {0} of a loss curve is not a step of at least 0 and a loss above 0")]
    BadSample(usize),
    /// The curve of these samples has no slope down.
    #[error("the loss of these samples does not fall: there is no progress to predict from")]
    DoesNotFall,
}

/// How much samples count.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Weighting {
    /// All alike.
    #[default]
    Equal,
    /// As Optimus does: a standard deviation of 1, 1/4 and 1/16 for the first, second and last
    /// third, so that the late ones decide.
    LateThirds,
}

impl LossCurve {
    /// Fits a curve to `(k, loss)`.
    ///
    /// # Errors
    /// [`LossError`].
    pub fn fit(samples: &[(f64, f64)], weighting: Weighting) -> Result<Self, LossError> {
        if samples.len() < SAMPLES_MIN {
            return Err(LossError::TooFew(samples.len()));
        }
        let is_bad = |(k, loss): &(f64, f64)| {
            !(k.is_finite() && *k >= 0.0 && loss.is_finite() && *loss > 0.0)
        };
        if let Some(bad) = samples.iter().position(is_bad) {
            return Err(LossError::BadSample(bad));
        }
        let lowest = samples.iter().map(|(_, loss)| *loss).fold(f64::INFINITY, f64::min);
        let [mut from, mut to] = [0.0, lowest];
        let mut best: Option<(f64, Self)> = None;
        for _ in 0..REFINEMENTS {
            let step = (to - from) / f64::from(GRID_STEPS);
            for floor in (0..GRID_STEPS).map(|i| from + step * f64::from(i)) {
                let Some((error, curve)) = Self::with_floor(samples, weighting, floor) else {
                    continue;
                };
                if best.as_ref().is_none_or(|(least, _)| error < *least) {
                    best = Some((error, curve));
                }
            }
            let middle = best.as_ref().map_or(0.0, |(_, curve)| curve.b2);
            [from, to] = [(middle - step).max(0.0), (middle + step).min(lowest)];
        }
        best.map(|(_, curve)| curve).filter(|curve| curve.b0 > 0.0).ok_or(LossError::DoesNotFall)
    }

    /// The best curve of a floor, and its weighted squared error.
    fn with_floor(samples: &[(f64, f64)], weighting: Weighting, floor: f64) -> Option<(f64, Self)> {
        let weight = |index: usize| match weighting {
            Weighting::Equal => 1.0,
            Weighting::LateThirds => f64::from(1_u32 << (2 * (3 * index / samples.len()))),
        };
        let row = |(index, (k, loss)): (usize, &(f64, f64))| {
            let above = loss - floor;
            let scale = above * above * weight(index);
            ([k * scale, scale], scale / above)
        };
        let rows: Vec<_> = samples.iter().enumerate().map(row).collect();
        let [b0, b1] = nnls::solve(&rows)?.coefficients;
        if b1 <= 0.0 && samples.iter().any(|(k, _)| *k <= 0.0) || b0 + b1 <= 0.0 {
            return None;
        }
        let mut curve = Self { b0, b1, b2: floor, residual_rms: 0.0, residuals: Vec::new() };
        curve.residuals = samples.iter().map(|(k, loss)| curve.loss(*k) - loss).collect();
        let squares = |weights: &dyn Fn(usize) -> f64| -> f64 {
            curve
                .residuals
                .iter()
                .enumerate()
                .map(|(i, r)| (r * weights(i)) * (r * weights(i)))
                .sum()
        };
        let [error, plain] = [squares(&weight), squares(&|_| 1.0)];
        curve.residual_rms = sqrt(plain / samples.len() as f64);
        Some((error, curve))
    }

    /// The loss after `k` steps.
    #[must_use]
    pub fn loss(&self, k: f64) -> f64 {
        1.0 / (self.b0 * k + self.b1) + self.b2
    }

    /// The steps after which the loss is at most `target`; `None` if it stays above.
    #[must_use]
    pub fn steps_to(&self, target: f64) -> Option<f64> {
        let above = target - self.b2;
        let can_reach = above > 0.0 && self.b0 > 0.0;
        can_reach.then(|| ((1.0 / above - self.b1) / self.b0).max(0.0))
    }

    /// The first whole step from which on the loss falls by less than `change` in `window` steps:
    /// Optimus calls a job converged there (0.05 in 10 epochs).
    ///
    /// With `x = b0 k + b1` and `d = b0 window`, the fall is `1/x - 1/(x+d)`, so `x² + d x = d /
    /// change` at that step.
    #[must_use]
    pub fn converges_at(&self, window: f64, change: f64) -> f64 {
        let d = self.b0 * window;
        let x = (sqrt(d * d + 4.0 * d / change) - d) / 2.0;
        ceil(((x - self.b1) / self.b0).max(0.0))
    }
}

/// Fewest samples of a fit.
pub const SAMPLES_MIN: usize = 3;

/// Floors of one grid.
const GRID_STEPS: u32 = 32;

/// Grids, each between the neighbours of the best floor of the one before.
const REFINEMENTS: u32 = 6;

#[cfg(test)]
mod tests;
