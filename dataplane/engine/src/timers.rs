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
    /// A heap in which each has [`BELOW`] below it. Times and entries lie together, and wide rather
    /// than deep: a table of rows changes a time four times for each row that moves.
    heap: Vec<Due>,
    /// By entry: its place in the heap.
    place: Vec<u16>,
}

/// When an entry is due; [`Nanos::MAX`]: never. The order is that of the heap.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
struct Due {
    at: Nanos,
    entry: u16,
}

impl Timers {
    /// Entries that are never due.
    pub(crate) fn new(len: usize) -> Self {
        let len = u16::try_from(len).expect("at most 1024 rows");
        let heap = (0..len).map(|entry| Due { at: Nanos::MAX, entry }).collect();
        Self { heap, place: (0..len).collect() }
    }

    /// The earliest time; [`Nanos::MAX`]: never.
    #[inline]
    pub(crate) fn earliest(&self) -> Nanos {
        self.heap.first().map_or(Nanos::MAX, |first| first.at)
    }

    /// The earliest entry, if it is due.
    pub(crate) fn due(&self, now: Nanos) -> Option<usize> {
        let first = self.heap.first()?;
        (first.at <= now && first.at != Nanos::MAX).then_some(usize::from(first.entry))
    }

    /// Changes when an entry is due.
    #[inline]
    pub(crate) fn set(&mut self, entry: usize, at: Nanos) {
        let place = usize::from(self.place[entry]);
        if self.heap[place].at != at {
            self.sift(place, Due { at, ..self.heap[place] });
        }
    }

    /// Puts what was at a place of the heap, with another time, to where it belongs.
    fn sift(&mut self, mut place: usize, due: Due) {
        while place > 0 {
            let above = (place - 1) / BELOW;
            if self.heap[above] < due {
                break;
            }
            self.put(place, self.heap[above]);
            place = above;
        }
        loop {
            let first = place * BELOW + 1;
            let below = self.heap.get(first..).unwrap_or_default().iter().take(BELOW);
            match below.zip(first..).min() {
                Some((least, below)) if *least < due => {
                    self.put(place, *least);
                    place = below;
                }
                _ => return self.put(place, due),
            }
        }
    }

    fn put(&mut self, place: usize, due: Due) {
        self.heap[place] = due;
        self.place[usize::from(due.entry)] = u16::try_from(place).expect("no more than entries");
    }
}

/// Entries below each in the heap.
const BELOW: usize = 4;

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
