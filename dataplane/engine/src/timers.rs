//! When each of many is due: the earliest at a glance.
//!
//! A lane asks at every breath when it has something to do by itself, and it may have a thousand
//! leases; so what is due is kept in a heap of all of them, each at a place that is known. Reading
//! the earliest is O(1), a change O(log n), and what is due is taken without a look at the others.
//! Invariant: no entry is before the one above it; ties go by index, so the order is determined
//! (I10). All memory is taken at the start (I8).

use alloc::vec::Vec;

use weft_wire::Nanos;

/// The times at which the entries `0 .. len` are due.
#[derive(Clone, Debug)]
pub(crate) struct Timers {
    /// By entry; [`Nanos::MAX`]: never.
    at: Vec<Nanos>,
    /// Entries, a binary heap.
    heap: Vec<u16>,
    /// By entry: its place in the heap.
    place: Vec<u16>,
}

impl Timers {
    /// Entries that are never due.
    pub(crate) fn new(len: usize) -> Self {
        let len = u16::try_from(len).expect("at most 1024 rows");
        let at = (0..len).map(|_| Nanos::MAX).collect();
        Self { at, heap: (0..len).collect(), place: (0..len).collect() }
    }

    /// The earliest time; [`Nanos::MAX`]: never.
    #[inline]
    pub(crate) fn earliest(&self) -> Nanos {
        self.heap.first().map_or(Nanos::MAX, |entry| self.at[usize::from(*entry)])
    }

    /// The earliest entry, if it is due.
    pub(crate) fn due(&self, now: Nanos) -> Option<usize> {
        let first = usize::from(*self.heap.first()?);
        (self.at[first] <= now && self.at[first] != Nanos::MAX).then_some(first)
    }

    /// Changes when an entry is due.
    #[inline]
    pub(crate) fn set(&mut self, entry: usize, at: Nanos) {
        if self.at[entry] != at {
            self.at[entry] = at;
            self.sift(usize::from(self.place[entry]));
        }
    }

    /// Moves the entry at a place of the heap to where it belongs.
    fn sift(&mut self, mut place: usize) {
        while place > 0 && self.key(place) < self.key((place - 1) / 2) {
            self.swap(place, (place - 1) / 2);
            place = (place - 1) / 2;
        }
        loop {
            let below = [2 * place + 1, 2 * place + 2].into_iter();
            let below = below.filter(|child| *child < self.heap.len());
            match below.min_by_key(|child| self.key(*child)) {
                Some(child) if self.key(child) < self.key(place) => {
                    self.swap(place, child);
                    place = child;
                }
                _ => return,
            }
        }
    }

    fn key(&self, place: usize) -> (Nanos, u16) {
        let entry = self.heap[place];
        (self.at[usize::from(entry)], entry)
    }

    fn swap(&mut self, one: usize, other: usize) {
        self.heap.swap(one, other);
        for place in [one, other] {
            let entry = usize::from(self.heap[place]);
            self.place[entry] = u16::try_from(place).expect("fewer places than entries");
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn nothing_is_due_where_there_is_nothing() {
        let mut timers = Timers::new(0);
        assert_eq!((timers.earliest(), timers.due(Nanos::MAX)), (Nanos::MAX, None));
        timers = Timers::new(3);
        assert_eq!((timers.earliest(), timers.due(Nanos(u64::MAX - 1))), (Nanos::MAX, None));
    }

    proptest! {
        #[test]
        fn the_earliest_is_that_of_a_search(
            len in 1usize..70,
            changes in prop::collection::vec((0usize..70, prop_oneof![0u64..20, Just(u64::MAX)]), 0..300),
        ) {
            let mut timers = Timers::new(len);
            let mut plain = vec![Nanos::MAX; len];
            for (entry, at) in changes {
                timers.set(entry % len, Nanos(at));
                plain[entry % len] = Nanos(at);
                let (first, at) = plain.iter().enumerate().min_by_key(|(_, at)| **at).unwrap();
                prop_assert_eq!(timers.earliest(), *at);
                prop_assert_eq!(timers.due(*at), (*at != Nanos::MAX).then_some(first));
                prop_assert!(at.0 == 0 || timers.due(Nanos(at.0 - 1)).is_none());
            }
        }
    }
}
