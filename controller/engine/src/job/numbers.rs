//! The order numbers of a job: which were given, and which below them are free.

use alloc::collections::BTreeSet;

/// The order numbers of a job.
#[derive(Clone, Debug, Default)]
pub(crate) struct Numbers {
    /// Above all that were given.
    next: u64,
    /// Below that, and not given.
    free: BTreeSet<u64>,
}

impl Numbers {
    /// The number above all that were given.
    pub(crate) const fn next(&self) -> u64 {
        self.next
    }

    /// The lowest that can be given.
    pub(crate) fn lowest(&self) -> u64 {
        self.lowest_free().unwrap_or(self.next)
    }

    /// The lowest below [`Numbers::next`] that was not given.
    pub(crate) fn lowest_free(&self) -> Option<u64> {
        self.free.first().copied()
    }

    /// Gives the lowest from `floor` on; one above all others has `room` free numbers below it.
    pub(crate) fn give(&mut self, floor: u64, room: u64) -> u64 {
        if let Some(number) = self.free.range(floor..).next().copied() {
            self.free.remove(&number);
            return number;
        }
        let number = self.next.max(floor) + room;
        self.free.extend(number - room..number);
        self.next = number + 1;
        number
    }

    /// None below is to be given any more.
    pub(crate) fn forget_below(&mut self, first: u64) {
        self.free = self.free.split_off(&first);
    }

    /// All below are decided, or never to be given.
    pub(crate) fn begin_at(&mut self, first: u64) {
        self.next = self.next.max(first);
        self.forget_below(first);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_free_number_is_given_before_one_above_all_others() {
        let mut numbers = Numbers::default();
        let state = |numbers: &Numbers| (numbers.lowest(), numbers.lowest_free(), numbers.next());
        assert_eq!(state(&numbers), (0, None, 0));
        assert_eq!(numbers.give(0, 2), 2, "two stay free below it");
        assert_eq!(state(&numbers), (0, Some(0), 3));
        assert_eq!(numbers.give(1, 2), 1);
        assert_eq!(state(&numbers), (0, Some(0), 3));
        assert_eq!(numbers.give(1, 2), 5, "0 lies below the floor");
        numbers.begin_at(4);
        assert_eq!(state(&numbers), (4, Some(4), 6));
        numbers.begin_at(9);
        assert_eq!(state(&numbers), (9, None, 9));
        assert_eq!(numbers.give(11, 0), 11, "numbers below the floor are not given later");
        assert_eq!(state(&numbers), (12, None, 12));
    }
}
