//! What several links have left together, and what a sender of some capacity can get of it.
//!
//! The finish of a transfer is the first instant by which that is enough. Asked the other way round,
//! whether it is enough by a given instant, it needs no division, and that is what a search rules
//! out most candidates with.

use super::ledger::{HORIZON_NS, NS_PER_SEC, div_up};
use super::timeline::{Step, Timeline};

/// What is left, from the first instant on at which that is something.
#[derive(Clone, Debug, Default)]
pub(crate) struct Profile {
    steps: Vec<Step>,
}

/// What an instant means in a [`Profile`]: how much comes across before it. Amounts are bytes times
/// 1e9, in 64 bits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reach {
    by_ns: u64,
    /// Since the profile's start.
    time_ns: u64,
    /// If only the profile limits; [`u64::MAX`] for more than can be counted.
    total: u64,
    /// Steps that begin before.
    count: usize,
    /// The lowest and highest rate of those.
    lowest: u64,
    highest: u64,
}

/// A size as an amount; saturates.
pub(crate) const fn amount(size_bytes: u64) -> u64 {
    size_bytes.saturating_mul(NS_PER_SEC)
}

impl Profile {
    pub(super) fn clear(&mut self) {
        self.steps.clear();
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

    /// How much can be carried before an instant.
    pub(crate) fn reach(&self, by_ns: u64) -> Reach {
        let time_ns = by_ns.saturating_sub(self.start_ns());
        let mut reach = Reach { by_ns, time_ns, total: 0, count: 0, lowest: u64::MAX, highest: 0 };
        if by_ns == u64::MAX {
            // For ever: everybody gets more than can be counted.
            (reach.time_ns, reach.total) = (u64::MAX, u64::MAX);
            return reach;
        }
        for (i, step) in self.steps.iter().enumerate() {
            if step.from_ns >= by_ns {
                break;
            }
            let rate = step.bytes_per_sec;
            let part = rate.saturating_mul(self.until_ns(i, by_ns) - step.from_ns);
            reach.total = reach.total.saturating_add(part);
            reach.count += 1;
            reach.lowest = reach.lowest.min(rate);
            reach.highest = reach.highest.max(rate);
        }
        if reach.total == u64::MAX {
            // Then every capacity gets that.
            reach.highest = 0;
        }
        reach
    }

    /// What a sender of that capacity gets across in time; [`u64::MAX`] for more than can be
    /// counted.
    #[inline]
    pub(crate) fn carried(&self, reach: &Reach, capacity: u64) -> u64 {
        if capacity >= reach.highest {
            return reach.total;
        }
        // At most the total, which fits.
        if capacity <= reach.lowest {
            return capacity * reach.time_ns;
        }
        let steps = &self.steps[..reach.count];
        let mut until_ns = reach.by_ns;
        let mut carried = 0;
        for step in steps.iter().rev() {
            carried += step.bytes_per_sec.min(capacity) * (until_ns - step.from_ns);
            until_ns = step.from_ns;
        }
        carried
    }

    /// When a sender of that capacity would end; none if never.
    pub(crate) fn finish_ns(&self, capacity: u64, size_bytes: u64) -> Option<u64> {
        let mut left = u128::from(size_bytes) * u128::from(NS_PER_SEC);
        for (i, step) in self.steps.iter().enumerate() {
            let rate = step.bytes_per_sec.min(capacity);
            let until_ns = self.until_ns(i, HORIZON_NS);
            let carried = u128::from(rate) * u128::from(until_ns.saturating_sub(step.from_ns));
            if carried >= left {
                return Some(step.from_ns + u64::try_from(div_up(left, rate)).ok()?);
            }
            left -= carried;
        }
        None
    }

    /// The end of a step, at most `by_ns`.
    fn until_ns(&self, index: usize, by_ns: u64) -> u64 {
        self.steps.get(index + 1).map_or(by_ns, |next| next.from_ns.min(by_ns))
    }
}

impl Reach {
    /// Time since something is left.
    pub(crate) const fn time_ns(&self) -> u64 {
        self.time_ns
    }
}
