//! Counts how often each datagram has been seen, in a table of fixed size.
//!
//! Sets of [`WAYS`] entries, chosen by the identity's key. A full set forgets the entry that was
//! seen longest ago, counted as `forgotten`; that identity, should it come again, starts at
//! attempt 0. Entries of finished chunks are forgotten all the time and nobody misses them. An
//! unfinished chunk is missed only if the table is smaller than what can be in flight: a member
//! may be four windows ahead of its lowest step, so make it at least
//! `4 x window x members x kinds`; below, a lost datagram can be lost again each time.

/// Entries of a set.
const WAYS: usize = 8;

/// The table.
#[derive(Debug)]
pub(super) struct Attempts {
    sets: Box<[[Entry; WAYS]]>,
    clock: u64,
    forgotten: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    key: u64,
    count: u32,
    /// When it was last seen; 0: free.
    seen: u64,
}

impl Attempts {
    /// Makes room for at least `entry_count` identities, 24 bytes each.
    pub(super) fn new(entry_count: usize) -> Self {
        let set_count = entry_count.div_ceil(WAYS).next_power_of_two();
        let sets = vec![[Entry::default(); WAYS]; set_count].into_boxed_slice();
        Self { sets, clock: 0, forgotten: 0 }
    }

    /// Counts one more sight of `key`; returns how many there were before.
    pub(super) fn next(&mut self, key: u64) -> u32 {
        self.clock += 1;
        let mask = self.sets.len() as u64 - 1;
        let set_index = usize::try_from(key & mask).unwrap_or(0);
        let set = &mut self.sets[set_index];
        if let Some(entry) = set.iter_mut().find(|entry| entry.seen > 0 && entry.key == key) {
            entry.seen = self.clock;
            entry.count = entry.count.saturating_add(1);
            return entry.count - 1;
        }
        let fresh = Entry { key, count: 1, seen: self.clock };
        if let Some(oldest) = set.iter_mut().min_by_key(|entry| entry.seen) {
            self.forgotten += u64::from(oldest.seen > 0);
            *oldest = fresh;
        }
        0
    }

    pub(super) fn forgotten(&self) -> u64 {
        self.forgotten
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_count_up_per_key() {
        let mut attempts = Attempts::new(64);
        assert_eq!([attempts.next(5), attempts.next(5), attempts.next(9)], [0, 1, 0]);
        assert_eq!(attempts.next(5), 2);
        assert_eq!(attempts.forgotten(), 0);
    }

    #[test]
    fn a_full_set_forgets_what_was_seen_longest_ago() {
        let mut attempts = Attempts::new(WAYS);
        for key in 0..WAYS as u64 {
            assert_eq!(attempts.next(key), 0);
        }
        // 0 is now the newest, 1 the oldest.
        assert_eq!(attempts.next(0), 1);
        assert_eq!(attempts.next(100), 0);
        assert_eq!(attempts.forgotten(), 1);
        assert_eq!(attempts.next(0), 2);
        assert_eq!(attempts.next(1), 0);
    }
}
