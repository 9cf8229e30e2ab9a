//! What several links have left together, and what a sender of some capacity can get of it.
//!
//! The finish of a transfer is the first instant by which that is enough. Asked the other way
//! round, whether it is enough by a given instant, it is a line of the capacity in each of a few
//! bands, and that is what a search rules out most candidates with.

use alloc::vec::Vec;

use crate::case::Segment;

use super::timeline::{Step, Timeline};
use super::units::{HORIZON_NS, NS_PER_SEC, div_up};

/// What is left, from the first instant on at which that is something.
#[derive(Clone, Debug, Default)]
pub(crate) struct Profile {
    steps: Vec<Step>,
    /// Those before an instant by rate, lowest first.
    spans: Vec<Span>,
    sorted_ns: u64,
}

#[derive(Clone, Copy, Debug)]
struct Span {
    bytes_per_sec: u64,
    from_ns: u64,
    until_ns: u64,
}

/// What senders of some capacity, and more up to the next band's, get across before an instant.
/// Amounts are bytes times 1e9, in 64 bits.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Band {
    bytes_per_sec: u64,
    /// While the profile limits.
    amount: u64,
    /// How long the sender does.
    time_ns: u64,
}

/// A size as an amount; saturates.
pub(crate) const fn amount(size_bytes: u64) -> u64 {
    size_bytes.saturating_mul(NS_PER_SEC)
}

impl Profile {
    pub(super) fn clear(&mut self) {
        self.steps.clear();
        self.sorted_ns = 0;
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    pub(super) fn push(&mut self, from_ns: u64, bytes_per_sec: u64) {
        if !self.steps.is_empty() || bytes_per_sec > 0 {
            self.steps.push(Step { from_ns, bytes_per_sec });
        }
    }

    /// What one link has left; false if that is nothing, ever.
    pub(super) fn copy(&mut self, timeline: &Timeline, from_ns: u64) -> bool {
        let Some(free) = timeline.free_from(from_ns) else { return false };
        self.steps.extend_from_slice(&timeline.steps()[free..]);
        self.steps[0].from_ns = self.steps[0].from_ns.max(from_ns);
        true
    }

    pub(super) fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Where it starts.
    pub(crate) fn start_ns(&self) -> u64 {
        self.steps.first().map_or(u64::MAX, |s| s.from_ns)
    }

    /// Writes what comes across before an instant, by the sender's capacity, lowest first. If that
    /// is more than can be counted, everybody gets [`u64::MAX`].
    pub(crate) fn bands(&mut self, by_ns: u64, bands: &mut Vec<Band>) {
        bands.clear();
        if by_ns == u64::MAX {
            bands.push(Band::UNLIMITED);
            return;
        }
        if self.sorted_ns < by_ns {
            self.sort(by_ns);
        }
        let mut time_ns = by_ns.saturating_sub(self.start_ns());
        let mut amount: u64 = 0;
        bands.push(Band { bytes_per_sec: 0, amount, time_ns });
        for span in self.spans.iter().filter(|span| span.from_ns < by_ns) {
            let Span { bytes_per_sec, from_ns, until_ns } = *span;
            let span_ns = until_ns.min(by_ns) - from_ns;
            time_ns -= span_ns;
            amount = amount.saturating_add(bytes_per_sec.saturating_mul(span_ns));
            bands.push(Band { bytes_per_sec, amount, time_ns });
        }
        if amount == u64::MAX {
            bands.clear();
            bands.push(Band::UNLIMITED);
        }
    }

    /// Sorts the steps before an instant by rate.
    fn sort(&mut self, by_ns: u64) {
        self.sorted_ns = by_ns;
        self.spans.clear();
        let mut steps = self.steps.iter().peekable();
        while let Some(Step { from_ns, bytes_per_sec }) = steps.next_if(|s| s.from_ns < by_ns) {
            let until_ns = steps.peek().map_or(u64::MAX, |next| next.from_ns);
            let span = Span { bytes_per_sec: *bytes_per_sec, from_ns: *from_ns, until_ns };
            self.spans.push(span);
            // Mostly the more is left, the later.
            let mut at = self.spans.len() - 1;
            while at > 0 && self.spans[at - 1].bytes_per_sec > span.bytes_per_sec {
                self.spans[at] = self.spans[at - 1];
                at -= 1;
            }
            self.spans[at] = span;
        }
    }

    /// When a sender of that capacity would end; none if never. Its rates go to `note`.
    #[inline]
    pub(crate) fn walk(
        &self,
        capacity: u64,
        size_bytes: u64,
        mut note: impl FnMut(Segment),
    ) -> Option<u64> {
        let mut left = u128::from(size_bytes) * u128::from(NS_PER_SEC);
        for (i, step) in self.steps.iter().enumerate() {
            let rate = step.bytes_per_sec.min(capacity);
            let until_ns = self.until_ns(i, HORIZON_NS);
            let carried = u128::from(rate) * u128::from(until_ns.saturating_sub(step.from_ns));
            let (from_ns, bytes_per_sec) = (step.from_ns, rate);
            if carried >= left {
                let to_ns = from_ns + u64::try_from(div_up(left, rate)).ok()?;
                note(Segment { from_ns, to_ns, bytes_per_sec });
                return Some(to_ns);
            }
            left -= carried;
            if rate > 0 {
                note(Segment { from_ns, to_ns: until_ns, bytes_per_sec });
            }
        }
        None
    }

    /// The end of a step, at most `by_ns`.
    fn until_ns(&self, index: usize, by_ns: u64) -> u64 {
        self.steps.get(index + 1).map_or(by_ns, |next| next.from_ns.min(by_ns))
    }
}

impl Band {
    /// Everybody gets more than can be counted.
    const UNLIMITED: Self = Self { bytes_per_sec: 0, amount: u64::MAX, time_ns: 0 };

    /// Whether a sender of at least that capacity is in this band or a higher one.
    #[inline]
    pub(crate) const fn holds(&self, capacity: u64) -> bool {
        self.bytes_per_sec <= capacity
    }

    /// What a sender of this band gets across.
    #[inline]
    pub(crate) const fn carried(&self, capacity: u64) -> u64 {
        self.amount + capacity * self.time_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::Numbers;

    #[test]
    fn what_is_across_by_an_instant_is_what_ends_by_then() {
        let mut numbers = Numbers::new(4);
        let (mut in_time, mut late) = (0, 0);
        for _ in 0..500 {
            let mut profile = Profile::default();
            profile.clear();
            for _ in 0..1 + numbers.index(8) {
                let from_ns = profile.steps.last().map_or(50, |step| step.from_ns);
                profile.push(from_ns + numbers.within(1, 40), numbers.within(0, 9) * NS_PER_SEC);
            }
            let mut bands = Vec::new();
            for _ in 0..40 {
                let by_ns = numbers.within(40, 400);
                profile.bands(by_ns, &mut bands);
                let capacity = numbers.within(1, 10) * NS_PER_SEC;
                let size_bytes = numbers.within(1, 900);
                let band = bands.iter().rev().find(|band| band.holds(capacity));
                let carried = band.expect("a band for every capacity").carried(capacity);
                let finish_ns = profile.walk(capacity, size_bytes, |_| {}).unwrap_or(u64::MAX);
                assert_eq!(carried >= amount(size_bytes), finish_ns <= by_ns, "{profile:?}");
                *if finish_ns <= by_ns { &mut in_time } else { &mut late } += 1;
            }
        }
        assert!(in_time > 2_000 && late > 2_000, "{in_time} {late}");
    }
}
