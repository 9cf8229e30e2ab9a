//! What a job's first minutes tell about its speed: the exploratory strategy of arXiv 1908.08082.
//!
//! A job keeps [`GPUS`] for itself and runs [`PHASE_NS`] at each width of [`WIDTHS`]; from then on
//! its speed at every width is that of equation 5, fitted to the four speeds seen: what a
//! controller measures, and in a simulation the job's real speed there. Invariant: no speed is used
//! that the job did not show.

use alloc::vec::Vec;

use super::widths::Speedups;
use crate::job::NS_PER_S;
use crate::model::speed::{Batch, Curve, Speed, SpeedModel};

/// GPUs that an exploring job keeps for itself, used or not.
pub const GPUS: u32 = 8;

/// Widths that it tries.
pub const WIDTHS: [u32; 4] = [1, 2, 4, 8];

/// How long it tries each: 10 minutes for all.
pub const PHASE_NS: u64 = 150 * NS_PER_S;

/// A job's exploration: waiting to begin, or in one of its phases.
#[derive(Clone, Debug, Default)]
pub struct Exploration {
    /// When the phase ends; `None` before the first.
    ends_ns: Option<u64>,
    phase: usize,
    /// Width and speed of the phases that are over.
    seen: Vec<(u32, f64)>,
}

impl Exploration {
    /// Whether it is in a phase.
    #[must_use]
    pub const fn has_begun(&self) -> bool {
        self.ends_ns.is_some()
    }

    /// When its phase ends.
    #[must_use]
    pub const fn ends_ns(&self) -> Option<u64> {
        self.ends_ns
    }

    /// Whether its phase is over.
    #[must_use]
    pub fn is_due(&self, now_ns: u64) -> bool {
        self.ends_ns.is_some_and(|ends_ns| ends_ns <= now_ns)
    }

    /// The width of its phase, which begins now if none has.
    pub fn begin(&mut self, now_ns: u64) -> u32 {
        self.ends_ns.get_or_insert_with(|| now_ns.saturating_add(PHASE_NS));
        WIDTHS[self.phase]
    }

    /// Ends a phase that worked so long at this speed, and says whether it was the last.
    pub fn measured(&mut self, now_ns: u64, worked_ns: u64, width: u32, speed: f64) -> bool {
        if worked_ns > 0 && speed > 0.0 {
            self.seen.push((width, speed));
        }
        self.phase += 1;
        self.ends_ns = Some(now_ns.saturating_add(PHASE_NS));
        self.phase == WIDTHS.len()
    }

    /// The speeds at all widths up to `widest`, by equation 5; by what was seen alone where that
    /// is too little for a fit.
    ///
    /// Examples and bytes of the model need not be known: their coefficients take them in.
    #[must_use]
    pub fn speeds(&self, widest: u32) -> Speedups {
        match SpeedModel::fit(&self.seen, Batch::Global(1.0), 1.0) {
            Ok(model) => Speedups::new((1..=widest).map(|width| model.iterations_per_s(width))),
            Err(_) => {
                let curve = Curve::new(self.seen.iter().copied());
                Speedups::new((1..=widest).map(|width| curve.iterations_per_s(width)))
            }
        }
    }
}
