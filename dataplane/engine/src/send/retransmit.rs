//! How long to wait before a repeat: RFC 6298 with Karn's rule.
//!
//! The caller gives samples of first transmissions only (Karn), and doubles the timeout once for
//! every repeat of the same step. Invariant: the timeout lies between the configured minimum and
//! maximum. O(1) per sample, no memory.

use weft_wire::Nanos;

/// Smoothed round-trip time and the timeout derived from it.
#[derive(Clone, Copy, Debug)]
pub struct RttEstimator {
    smoothed_ns: u64,
    variation_ns: u64,
    sampled: bool,
    rto_ns: u64,
    min_ns: u64,
    max_ns: u64,
}

impl RttEstimator {
    /// Starts with `initial` as the timeout until the first sample. All bounds are made consistent:
    /// the maximum is at least the minimum.
    #[must_use]
    pub fn new(initial: Nanos, min: Nanos, max: Nanos) -> Self {
        let min_ns = min.0.max(1);
        let max_ns = max.0.max(min_ns);
        Self {
            smoothed_ns: 0,
            variation_ns: 0,
            sampled: false,
            rto_ns: initial.0.clamp(min_ns, max_ns),
            min_ns,
            max_ns,
        }
    }

    /// Takes the round trip of a datagram that was sent once.
    pub fn sample(&mut self, rtt: Nanos) {
        // RFC 6298 section 2; half the range is plenty and keeps the sums from overflowing.
        let rtt_ns = rtt.0.min(u64::MAX >> 4);
        if self.sampled {
            let distance = self.smoothed_ns.abs_diff(rtt_ns);
            self.variation_ns = (3 * self.variation_ns + distance) / 4;
            self.smoothed_ns = (7 * self.smoothed_ns + rtt_ns) / 8;
        } else {
            self.sampled = true;
            self.smoothed_ns = rtt_ns;
            self.variation_ns = rtt_ns / 2;
        }
        let rto_ns = self.smoothed_ns.saturating_add(self.variation_ns.saturating_mul(4).max(1));
        self.rto_ns = rto_ns.clamp(self.min_ns, self.max_ns);
    }

    /// Timeout of a first transmission.
    #[must_use]
    pub fn rto(&self) -> Nanos {
        Nanos(self.rto_ns)
    }

    /// Timeout after `repeats` repeats: doubled each time, never above the maximum.
    #[must_use]
    pub fn rto_after(&self, repeats: u8) -> Nanos {
        let factor = 1u64.checked_shl(u32::from(repeats)).unwrap_or(u64::MAX);
        Nanos(self.rto_ns.saturating_mul(factor).min(self.max_ns))
    }

    /// Smoothed round trip, once there was a sample.
    #[must_use]
    pub fn smoothed(&self) -> Option<Nanos> {
        self.sampled.then_some(Nanos(self.smoothed_ns))
    }

    /// The smoothed round trip, or the timeout while there is none.
    #[must_use]
    pub fn round_trip(&self) -> Nanos {
        self.smoothed().unwrap_or(Nanos(self.rto_ns))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn estimator() -> RttEstimator {
        RttEstimator::new(Nanos::from_millis(20), Nanos::from_millis(1), Nanos::from_millis(1000))
    }

    #[test]
    fn first_sample_gives_three_times_the_round_trip() {
        let mut rtt = estimator();
        assert_eq!(rtt.rto(), Nanos::from_millis(20));
        rtt.sample(Nanos::from_millis(4));
        // RFC 6298 (2.2): SRTT = R, RTTVAR = R/2, RTO = SRTT + 4 RTTVAR.
        assert_eq!(rtt.rto(), Nanos::from_millis(12));
        assert_eq!(rtt.smoothed(), Some(Nanos::from_millis(4)));
    }

    #[test]
    fn later_samples_weigh_an_eighth_and_a_quarter() {
        let mut rtt = estimator();
        rtt.sample(Nanos::from_millis(8));
        rtt.sample(Nanos::from_millis(16));
        assert_eq!(rtt.smoothed(), Some(Nanos::from_millis(9)));
        // RTTVAR = 3/4 x 4 + 1/4 x 8 = 5 ms.
        assert_eq!(rtt.rto(), Nanos::from_millis(29));
    }

    #[test]
    fn repeats_double_up_to_the_maximum() {
        let rtt = estimator();
        assert_eq!(rtt.rto_after(0), Nanos::from_millis(20));
        assert_eq!(rtt.rto_after(3), Nanos::from_millis(160));
        assert_eq!(rtt.rto_after(6), Nanos::from_millis(1000));
        assert_eq!(rtt.rto_after(255), Nanos::from_millis(1000));
    }

    proptest! {
        #[test]
        fn the_timeout_stays_within_its_bounds(samples in prop::collection::vec(any::<u64>(), 1..50)) {
            let mut rtt = estimator();
            for sample in samples {
                rtt.sample(Nanos(sample));
                prop_assert!(rtt.rto() >= Nanos::from_millis(1));
                prop_assert!(rtt.rto() <= Nanos::from_millis(1000));
            }
        }

        #[test]
        fn a_constant_round_trip_is_learnt(ns in 1_000_000u64..100_000_000) {
            let mut rtt = estimator();
            rtt.sample(Nanos(3 * ns));
            for _ in 0..200 {
                rtt.sample(Nanos(ns));
            }
            prop_assert!(rtt.smoothed().unwrap().0.abs_diff(ns) <= 8);
            prop_assert!(rtt.rto().0 <= ns + ns / 8);
        }
    }
}
