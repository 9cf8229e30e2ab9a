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
