//! Predicts how many iterations per second a job does at a width.
//!
//! [`SpeedModel`] is equation 5 of arXiv 1908.08082, fitted to samples: `1 / f(w) = th0 m + th1
//! (w-1) + th2 (w-1) n/w + th3`, no coefficient below 0; the shape holds for ring, halving-doubling
//! and binary blocks alike. [`Curve`] is what somebody measured, width by width. Both are a
//! [`Speed`].
//!
//! Invariant: a width that was not measured, and lies beyond the widest one that was, has speed 0.

use alloc::vec::Vec;

use thiserror::Error;
use weft_plan::float::sqrt;

use super::nnls;

/// How fast a job runs.
pub trait Speed {
    /// Iterations per second with `width` workers; 0 where it cannot run so wide, or so narrow.
    fn iterations_per_s(&self, width: u32) -> f64;

    /// Seconds for `iterations` at `width`; infinite where it cannot run.
    fn seconds(&self, iterations: f64, width: u32) -> f64 {
        let speed = self.iterations_per_s(width);
        if speed > 0.0 { iterations / speed } else { f64::INFINITY }
    }
}

impl<S: Speed + ?Sized> Speed for &S {
    fn iterations_per_s(&self, width: u32) -> f64 {
        (**self).iterations_per_s(width)
    }
}

/// How a job's batch follows its width.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Batch {
    /// Examples of each worker: the whole batch grows with the width.
    PerWorker(f64),
    /// Examples of all workers together: each one's share shrinks.
    Global(f64),
}

impl Batch {
    /// Examples that a worker computes in an iteration.
    #[must_use]
    pub fn of_worker(self, width: u32) -> f64 {
        match self {
            Self::PerWorker(examples) => examples,
            Self::Global(examples) => examples / f64::from(width),
        }
    }
}

/// Equation 5 with its coefficients.
#[derive(Clone, Debug, PartialEq)]
pub struct SpeedModel {
    /// Seconds per example, per worker beyond the first, per byte, and of an iteration.
    pub theta: [f64; 4],
    /// The batch.
    pub batch: Batch,
    /// Bytes of the model.
    pub model_bytes: f64,
    /// The root of the mean of the squared residuals, in seconds of an iteration.
    pub residual_rms_s: f64,
    /// Predicted seconds of an iteration over those of the sample, minus 1, one a sample.
    pub relative_residuals: Vec<f64>,
}

/// Why no model was fitted.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum SpeedError {
    /// Nothing to fit.
    #[error(
        "a speed model needs samples at {WIDTHS_MIN} widths or more, and has {0}: measure more"
    )]
    TooFew(usize),
    /// A sample that cannot be.
    #[error("sample {0} of a speed model is not a width of at least 1 and a speed above 0")]
    BadSample(usize),
}

impl SpeedModel {
    /// Fits `(width, iterations per second)`; each sample counts by its share, not by its seconds.
    ///
    /// # Errors
    /// [`SpeedError`].
    pub fn fit(samples: &[(u32, f64)], batch: Batch, model_bytes: f64) -> Result<Self, SpeedError> {
        let is_bad =
            |(width, speed): &(u32, f64)| *width == 0 || !(speed.is_finite() && *speed > 0.0);
        if let Some(bad) = samples.iter().position(is_bad) {
            return Err(SpeedError::BadSample(bad));
        }
        let mut widths: Vec<u32> = samples.iter().map(|(width, _)| *width).collect();
        widths.sort_unstable();
        widths.dedup();
        if widths.len() < WIDTHS_MIN {
            return Err(SpeedError::TooFew(widths.len()));
        }
        let row = |(width, speed): &(u32, f64)| {
            (columns(batch, model_bytes, *width).map(|x| x * speed), 1.0)
        };
        let rows: Vec<_> = samples.iter().map(row).collect();
        let theta = nnls::solve(&rows).ok_or(SpeedError::TooFew(0))?.coefficients;
        let mut model =
            Self { theta, batch, model_bytes, residual_rms_s: 0.0, relative_residuals: Vec::new() };
        let off = |(width, speed): &(u32, f64)| model.iteration_s(*width) * speed - 1.0;
        model.relative_residuals = samples.iter().map(off).collect();
        let seconds =
            model.relative_residuals.iter().zip(samples).map(|(off, (_, speed))| off / speed);
        let squares: f64 = seconds.map(|s| s * s).sum();
        model.residual_rms_s = sqrt(squares / samples.len() as f64);
        Ok(model)
    }

    /// Seconds of an iteration.
    #[must_use]
    pub fn iteration_s(&self, width: u32) -> f64 {
        let columns = columns(self.batch, self.model_bytes, width);
        columns.iter().zip(self.theta).map(|(x, theta)| x * theta).sum()
    }
}

impl Speed for SpeedModel {
    fn iterations_per_s(&self, width: u32) -> f64 {
        if width == 0 { 0.0 } else { 1.0 / self.iteration_s(width) }
    }
}

/// What the coefficients are multiplied with.
fn columns(batch: Batch, model_bytes: f64, width: u32) -> [f64; 4] {
    let others = f64::from(width - 1);
    [batch.of_worker(width), others, others * model_bytes / f64::from(width), 1.0]
}

/// Speeds that were measured. Between two widths the speed is on the line that joins them
/// (*derived*); beyond the widest and below the narrowest it is 0.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Curve(Vec<(u32, f64)>);

impl Curve {
    /// From `(width, iterations per second)`, in any order; of two of a width the last counts.
    #[must_use]
    pub fn new(points: impl IntoIterator<Item = (u32, f64)>) -> Self {
        let mut curve = Self::default();
        for (width, speed) in points {
            curve.set(width, speed);
        }
        curve
    }

    /// Sets the speed of a width.
    pub fn set(&mut self, width: u32, iterations_per_s: f64) {
        match self.0.binary_search_by_key(&width, |point| point.0) {
            Ok(at) => self.0[at].1 = iterations_per_s,
            Err(at) => self.0.insert(at, (width, iterations_per_s)),
        }
    }

    /// The measured points, the narrowest first.
    #[must_use]
    pub fn points(&self) -> &[(u32, f64)] {
        &self.0
    }

    /// The highest speed that was measured, at most `width_max` wide, and the narrowest width that
    /// has it.
    #[must_use]
    pub fn fastest(&self, width_max: u32) -> Option<(u32, f64)> {
        let fit = self.0.iter().take_while(|point| point.0 <= width_max);
        fit.fold(None, |best: Option<(u32, f64)>, point| match best {
            Some(best) if best.1 >= point.1 => Some(best),
            _ => Some(*point),
        })
    }
}

impl Speed for Curve {
    fn iterations_per_s(&self, width: u32) -> f64 {
        let after = self.0.partition_point(|point| point.0 < width);
        match (after.checked_sub(1).map(|at| self.0[at]), self.0.get(after)) {
            (_, Some((at, speed))) if *at == width => *speed,
            (Some((left, slow)), Some((right, fast))) => {
                let share = f64::from(width - left) / f64::from(right - left);
                slow + (fast - slow) * share
            }
            _ => 0.0,
        }
    }
}

/// Fewest widths of a fit.
pub const WIDTHS_MIN: usize = 2;

#[cfg(test)]
mod tests;
