//! Decides whether samples have left the level they were at: a two-sided CUSUM (Page 1954) over
//! log ratios in units of their spread, each clipped.
//!
//! Clipping makes it robust: one sample, however far off, moves the sum by `CLIP - SLACK` = 3 and
//! the threshold is 5, so a single outlier never triggers and two in a row do. A lasting shift of
//! two spreads takes five or six samples. Upwards it takes three in a row: a sleeping CPU that
//! catches up makes trains look fast, and believing too much costs more than believing it late.

use crate::float;

/// The detector of one link.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cusum {
    up: f64,
    down: f64,
    /// Samples since the sum that leads last was zero.
    run: usize,
}

/// What the detector makes of a sample.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Shift {
    /// At its level.
    None,
    /// Off its level, not often enough yet.
    Suspected,
    /// Left its level, with this many samples, the present one among them.
    Found {
        /// Samples at the new level.
        samples: usize,
    },
}

impl Cusum {
    /// Takes in `sample` where `level` was expected, both positive; `spread` is the relative
    /// deviation that is usual.
    pub fn handle(&mut self, sample: f64, level: f64, spread: f64) -> Shift {
        let deviation = float::ln(sample / level) / spread.max(SPREAD_MIN);
        let step = deviation.clamp(-CLIP, CLIP);
        self.up = (self.up + step - SLACK).max(0.0);
        self.down = (self.down - step - SLACK).max(0.0);
        let (sum, found) =
            (self.up.max(self.down), self.up > THRESHOLD_UP || self.down > THRESHOLD);
        self.run = if sum > 0.0 { self.run + 1 } else { 0 };
        if found {
            let samples = self.run;
            *self = Self::default();
            return Shift::Found { samples };
        }
        // A far outlier is suspected at once, a drift when it has come half way.
        if sum >= CLIP - SLACK { Shift::Suspected } else { Shift::None }
    }
}

/// Trains on a quiet link agree to about this much.
pub const SPREAD_MIN: f64 = 0.03;
const CLIP: f64 = 4.0;
const SLACK: f64 = 1.0;
const THRESHOLD: f64 = 5.0;
const THRESHOLD_UP: f64 = 8.0;
