//! Decides whether a link can afford another probe: a token bucket that holds link *time*, so that
//! it needs no rate.
//!
//! Invariant: over any window of [`WINDOW_NS`] probes take at most [`SHARE_MAX`] of a link, as
//! `REFILL * WINDOW + BUCKET = SHARE_MAX * WINDOW`. Only a first probe of unknown cost, and a
//! shortest train on a link below 6 Mbit/s, may overdraw, and is paid back before the next one.

use super::Refusal;

/// What probes may still take of one link.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProbeBudget {
    /// When the bucket was last topped up; full before.
    refilled_ns: Option<u64>,
    saved_ns: f64,
}

impl ProbeBudget {
    /// The link time that probes may take now.
    #[must_use]
    pub fn available_ns(&self, now_ns: u64) -> f64 {
        let Some(refilled_ns) = self.refilled_ns else { return BUCKET_NS };
        let elapsed = now_ns.saturating_sub(refilled_ns) as f64;
        (self.saved_ns + elapsed * REFILL).min(BUCKET_NS)
    }

    /// Takes `cost_ns` if that leaves `reserve_ns`, or if the bucket is full: a train that is
    /// longer than the bucket overdraws it and is paid back. True when it did.
    pub fn take(&mut self, now_ns: u64, cost_ns: f64, reserve_ns: f64) -> bool {
        let available = self.available_ns(now_ns);
        let affordable = available > 0.0 && available - cost_ns >= reserve_ns;
        let enough = cost_ns >= 0.0 && (affordable || available >= BUCKET_NS);
        if enough {
            self.saved_ns = available - cost_ns;
            self.refilled_ns = Some(self.refilled_ns.unwrap_or(0).max(now_ns));
        }
        enough
    }

    /// Corrects a cost that was guessed once it is known; the balance may become negative.
    ///
    /// # Errors
    /// When a cost is not finite or negative.
    pub fn settle(&mut self, guessed_ns: f64, cost_ns: f64) -> Result<(), Refusal> {
        if !guessed_ns.is_finite() || !cost_ns.is_finite() || cost_ns < 0.0 {
            return Err(Refusal::Absurd);
        }
        self.saved_ns = (self.saved_ns + guessed_ns - cost_ns).min(BUCKET_NS);
        Ok(())
    }
}

/// Probes take at most this share of a link.
pub const SHARE_MAX: f64 = 0.01;
/// Over any window of this length.
pub const WINDOW_NS: u64 = 10_000_000_000;
/// What a quiet time saves up, to find out quickly what a change has led to: seven trains.
pub const BUCKET_NS: f64 = 30e6;
/// Link time per time, when all goes on as ever.
const REFILL: f64 = SHARE_MAX - BUCKET_NS / WINDOW_NS as f64;
const _: () = assert!(REFILL > 0.0);
