//! How fast: a token bucket in bytes.
//!
//! A member paces with it (its ceiling), a box holds a job to its share with it (`over_quota`,
//! PROTOCOL section 10). Levels are kept in byte-nanoseconds per second, so nothing is rounded
//! away: over any span the bytes taken are at most `burst + rate x span` and one datagram.
//! O(1), one multiplication per take.

use weft_wire::Nanos;

/// A token bucket.
#[derive(Clone, Copy, Debug)]
pub struct TokenBucket {
    rate_bytes_per_sec: u64,
    burst: i128,
    /// Bytes x 10^9. Negative after a datagram that is larger than the burst.
    level: i128,
    filled_at: Nanos,
}

impl TokenBucket {
    /// A full bucket. A `burst_bytes` of 0 is taken as 1, so that a rate above 0 always passes
    /// something in the end.
    #[must_use]
    pub fn new(rate_bytes_per_sec: u64, burst_bytes: u64) -> Self {
        let burst = i128::from(burst_bytes.max(1)) * NANOS_PER_SEC;
        Self { rate_bytes_per_sec, burst, level: burst, filled_at: Nanos(0) }
    }

    /// Bytes per second that it is filled with.
    #[must_use]
    pub fn rate(&self) -> u64 {
        self.rate_bytes_per_sec
    }

    /// Begins anew at `now` with `bytes`, or with what it can hold.
    pub fn begin(&mut self, now: Nanos, bytes: u64) {
        self.filled_at = now;
        self.level = (i128::from(bytes) * NANOS_PER_SEC).min(self.burst);
    }

    /// Leaves at most `bytes` in it at `now`. A debt stays.
    pub fn limit(&mut self, now: Nanos, bytes: u64) {
        self.fill(now);
        self.level = self.level.min(i128::from(bytes) * NANOS_PER_SEC);
    }

    /// Takes `bytes` if the bucket holds them, or if it is full: a datagram larger than the burst
    /// goes when the bucket is full and leaves a debt. Time that runs backwards adds nothing.
    pub fn take(&mut self, now: Nanos, bytes: u64) -> bool {
        self.fill(now);
        let need = i128::from(bytes) * NANOS_PER_SEC;
        if self.level < need.min(self.burst) {
            return false;
        }
        self.level -= need;
        true
    }

    /// Takes `bytes` whatever the bucket holds: what it lacks is a debt, which later takes wait
    /// for. So over any span the bytes are what [`TokenBucket::take`] alone would pass, and those
    /// that were charged last.
    pub fn charge(&mut self, now: Nanos, bytes: u64) {
        let taken = self.take(now, bytes);
        if !taken {
            self.level -= i128::from(bytes) * NANOS_PER_SEC;
        }
    }

    fn fill(&mut self, now: Nanos) {
        let span_ns = i128::from(now.since(self.filled_at).0);
        self.filled_at = self.filled_at.max(now);
        self.level = (self.level + span_ns * i128::from(self.rate_bytes_per_sec)).min(self.burst);
    }

    /// The earliest time at which [`TokenBucket::take`] of `bytes` can succeed;
    /// [`Nanos::MAX`] when never.
    #[must_use]
    pub fn ready_at(&self, bytes: u64) -> Nanos {
        let need = (i128::from(bytes) * NANOS_PER_SEC).min(self.burst);
        let lack = need - self.level;
        if lack <= 0 {
            return self.filled_at;
        }
        if self.rate_bytes_per_sec == 0 {
            return Nanos::MAX;
        }
        let rate = i128::from(self.rate_bytes_per_sec);
        let span_ns = (lack + rate - 1) / rate;
        self.filled_at.saturating_add(Nanos(u64::try_from(span_ns).unwrap_or(u64::MAX)))
    }
}

/// Depth of a sender's bucket: two milliseconds of its rate, so that a thread that woke late loses
/// nothing; at least `least_bytes`, at most 256 KiB.
#[must_use]
pub fn burst_bytes(rate_bytes_per_sec: u64, least_bytes: u64) -> u64 {
    (rate_bytes_per_sec / 500).clamp(least_bytes, BURST_BYTES_MAX.max(least_bytes))
}

const BURST_BYTES_MAX: u64 = 256 * 1024;
const NANOS_PER_SEC: i128 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_full_bucket_passes_its_burst_and_then_its_rate() {
        let mut bucket = TokenBucket::new(1_000_000, 3_000);
        let now = Nanos(77);
        assert!(bucket.take(now, 1_500));
        assert!(bucket.take(now, 1_500));
        assert!(!bucket.take(now, 1_500));
        let ready = bucket.ready_at(1_500);
        assert_eq!(ready, Nanos(77 + 1_500_000));
        assert!(!bucket.take(Nanos(ready.0 - 1), 1_500));
        assert!(bucket.take(ready, 1_500));
    }

    #[test]
    fn a_bucket_that_begins_anew_has_saved_nothing() {
        let mut bucket = TokenBucket::new(1_000_000, 3_000);
        bucket.begin(Nanos(50), 1_500);
        assert!(bucket.take(Nanos(50), 1_500));
        assert_eq!(bucket.ready_at(1_500), Nanos(50 + 1_500_000));
        bucket.begin(Nanos(90), 1 << 40);
        assert!(bucket.take(Nanos(90), 3_000) && !bucket.take(Nanos(90), 1));
    }

    #[test]
    fn a_datagram_above_the_burst_leaves_a_debt() {
        let mut bucket = TokenBucket::new(1_000, 100);
        assert!(bucket.take(Nanos(0), 1_100));
        assert_eq!(bucket.ready_at(100), Nanos(1_100_000_000));
        assert!(!bucket.take(Nanos(1_099_999_999), 100));
        assert!(bucket.take(Nanos(1_100_000_000), 100));
    }

    #[test]
    fn what_is_charged_is_paid_back_before_anything_passes() {
        let mut bucket = TokenBucket::new(1_000_000, 3_000);
        for _ in 0..10 {
            bucket.charge(Nanos(0), 1_000);
        }
        // Ten went at once; the eleventh goes when all eleven could have gone by rate.
        assert_eq!(bucket.ready_at(1_000), Nanos(8_000_000));
        assert!(!bucket.take(Nanos(7_999_999), 1_000));
        assert!(bucket.take(Nanos(8_000_000), 1_000));
        assert!(!bucket.take(Nanos(8_000_001), 1_000));
    }

    #[test]
    fn a_rate_of_zero_passes_the_burst_only() {
        let mut bucket = TokenBucket::new(0, 10);
        assert!(bucket.take(Nanos(0), 10));
        assert_eq!(bucket.ready_at(1), Nanos::MAX);
        assert!(!bucket.take(Nanos(u64::MAX), 1));
    }

    proptest! {
        #[test]
        fn no_span_passes_more_than_burst_and_rate(
            rate in 1u64..10_000_000_000,
            burst in 1_500u64..1_000_000,
            takes in prop::collection::vec((0u64..100_000, 1u64..1_500), 1..400),
        ) {
            let mut bucket = TokenBucket::new(rate, burst);
            let mut now = Nanos(0);
            let mut taken = 0u128;
            for (wait, bytes) in takes {
                now = Nanos(now.0 + wait);
                if bucket.take(now, bytes) {
                    taken += u128::from(bytes);
                }
                let bound = u128::from(burst) * 1_000_000_000 + u128::from(now.0) * u128::from(rate);
                prop_assert!(taken * 1_000_000_000 <= bound);
            }
        }

        #[test]
        fn ready_at_is_the_first_time_that_passes(
            rate in 1u64..10_000_000_000,
            burst in 1_500u64..20_000,
            bytes in 1u64..3_000,
        ) {
            let mut bucket = TokenBucket::new(rate, burst);
            for _ in 0..100 {
                let ready = bucket.ready_at(bytes);
                if ready.0 > 0 {
                    let mut early = bucket;
                    prop_assert!(ready <= bucket.filled_at || !early.take(Nanos(ready.0 - 1), bytes));
                }
                prop_assert!(bucket.take(ready, bytes));
            }
        }
    }
}
