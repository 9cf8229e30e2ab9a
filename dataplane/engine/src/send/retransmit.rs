//! How long to wait before a repeat: RFC 6298 with Karn's rule.
//!
//! The caller ([`super::path`]) gives samples of first transmissions only (Karn), and says when a
//! timeout has passed: from then on it is doubled, until the next sample (5.5 to 5.7). Invariant:
//! the timeout lies between the configured minimum and maximum. O(1) per sample, no memory.

use core::cmp::Ordering;

use weft_wire::Nanos;

/// Smoothed round-trip time and the timeout derived from it.
#[derive(Clone, Copy, Debug)]
pub struct RttEstimator {
    smoothed_ns: u64,
    variation_ns: u64,
    sampled: bool,
    /// The least sample; `u64::MAX` when there was none.
    shortest_ns: u64,
    rto_ns: u64,
    /// How often the timeout is doubled, since the last sample.
    doublings: u8,
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
            shortest_ns: u64::MAX,
            rto_ns: initial.0.clamp(min_ns, max_ns),
            doublings: 0,
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
        // A queue that grows while answers come regularly leaves no variation, and yet each is
        // later than the last.
        let margin_ns = self.variation_ns.saturating_mul(4).max(self.smoothed_ns / 2).max(1);
        let rto_ns = self.smoothed_ns.saturating_add(margin_ns);
        self.rto_ns = rto_ns.clamp(self.min_ns, self.max_ns);
        self.doublings = 0;
        self.shortest_ns = self.shortest_ns.min(rtt_ns);
    }

    /// Takes note that a timeout has passed that was doubled `doublings` times. The present one is
    /// doubled, unless it has been since: all that was sent under one timeout doubles it once.
    pub fn back_off(&mut self, doublings: u8) {
        self.doublings = match doublings.cmp(&self.doublings) {
            Ordering::Less => self.doublings,
            Ordering::Equal => self.doublings.saturating_add(1),
            // There was a sample since.
            Ordering::Greater => self.doublings.max(1),
        };
    }

    /// Takes note that the timeout is long enough as it is without doubling.
    pub fn end_back_off(&mut self) {
        self.doublings = 0;
    }

    /// How often the timeout is doubled now.
    #[must_use]
    pub fn doublings(&self) -> u8 {
        self.doublings
    }

    /// The timeout of what is sent now for the first time.
    #[must_use]
    pub fn rto(&self) -> Nanos {
        self.timeout(self.doublings)
    }

    /// The timeout, doubled so many times; never above the maximum.
    #[must_use]
    pub fn timeout(&self, doublings: u8) -> Nanos {
        let factor = 1u64.checked_shl(u32::from(doublings)).unwrap_or(u64::MAX);
        Nanos(self.rto_ns.saturating_mul(factor).min(self.max_ns))
    }

    /// The shortest round trip, once there was a sample.
    #[must_use]
    pub fn shortest(&self) -> Option<Nanos> {
        self.sampled.then_some(Nanos(self.shortest_ns))
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
        assert_eq!(rtt.shortest(), None);
        rtt.sample(Nanos::from_millis(4));
        // RFC 6298 (2.2): SRTT = R, RTTVAR = R/2, RTO = SRTT + 4 RTTVAR.
        assert_eq!(rtt.timeout(0), Nanos::from_millis(12));
        assert_eq!(rtt.smoothed(), Some(Nanos::from_millis(4)));
    }

    #[test]
    fn later_samples_weigh_an_eighth_and_a_quarter() {
        let mut rtt = estimator();
        rtt.sample(Nanos::from_millis(8));
        rtt.sample(Nanos::from_millis(16));
        assert_eq!(rtt.smoothed(), Some(Nanos::from_millis(9)));
        // RTTVAR = 3/4 x 4 + 1/4 x 8 = 5 ms.
        assert_eq!(rtt.timeout(0), Nanos::from_millis(29));
    }

    #[test]
    fn repeats_double_up_to_the_maximum() {
        let rtt = estimator();
        assert_eq!(rtt.timeout(0), Nanos::from_millis(20));
        assert_eq!(rtt.timeout(3), Nanos::from_millis(160));
        assert_eq!(rtt.timeout(6), Nanos::from_millis(1000));
        assert_eq!(rtt.timeout(255), Nanos::from_millis(1000));
    }

    #[test]
    fn a_timeout_that_has_passed_counts_for_all_until_the_next_sample() {
        let mut rtt = estimator();
        rtt.back_off(0);
        rtt.back_off(0);
        assert_eq!(rtt.rto(), Nanos::from_millis(40), "both left under the same");
        rtt.back_off(1);
        assert_eq!(rtt.rto(), Nanos::from_millis(80));
        rtt.sample(Nanos::from_millis(4));
        assert_eq!(rtt.rto(), Nanos::from_millis(12));
        rtt.back_off(2);
        rtt.back_off(2);
        assert_eq!(rtt.rto(), Nanos::from_millis(24), "what left before the sample doubles once");
        rtt.sample(Nanos::from_millis(9));
        assert_eq!(rtt.shortest(), Some(Nanos::from_millis(4)));
    }

    proptest! {
        #[test]
        fn the_timeout_stays_within_its_bounds(
            samples in prop::collection::vec((any::<u64>(), any::<u8>()), 1..50),
        ) {
            let mut rtt = estimator();
            for (sample, repeats) in samples {
                rtt.sample(Nanos(sample));
                rtt.back_off(repeats);
                prop_assert!(rtt.rto() <= Nanos::from_millis(1000));
                prop_assert!(rtt.timeout(0) >= Nanos::from_millis(1));
                prop_assert!(rtt.timeout(0) <= Nanos::from_millis(1000));
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
            prop_assert!(rtt.rto().0 <= ns + ns / 2 + 16);
        }
    }
}
