//! Which numbers a process has open at a table: the lowest is its `low` (PROTOCOL section 13,
//! "Numbers").
//!
//! Numbers are given in ascending order and closed in any, so they stand in a ring, each with how
//! many keys it is open for; the ring's front is the lowest. O(log n) per close.

use alloc::collections::VecDeque;

use weft_wire::keys::Number;

/// The open numbers.
#[derive(Debug)]
pub(super) struct OpenNumbers {
    ring: VecDeque<(Number, u32)>,
    len_max: usize,
    /// Counts the numbers that were given; never goes back.
    count: u64,
}

impl OpenNumbers {
    pub(super) fn new(len_max: usize) -> Self {
        Self { ring: VecDeque::with_capacity(len_max), len_max, count: 0 }
    }

    /// Gives a new number of lane `lane` of `lanes`, open for no key yet; `None` when too many are
    /// open.
    pub(super) fn give(&mut self, life: u16, lane: u8, lanes: u8) -> Option<Number> {
        self.trim();
        let (lane, lanes) = (u64::from(lane), u64::from(lanes.max(1)));
        let next = self.count + 1;
        let count = next + (lane + lanes - next % lanes) % lanes;
        if self.ring.len() >= self.len_max || count > Number::COUNT_MAX {
            return None;
        }
        self.count = count;
        let number = Number::new(life, self.count);
        self.ring.push_back((number, 0));
        Some(number)
    }

    /// `number` is open for one more key.
    pub(super) fn open(&mut self, number: Number) {
        if let Some(place) = self.place(number) {
            self.ring[place].1 += 1;
        }
    }

    /// `number` is open for one key less.
    pub(super) fn close(&mut self, number: Number) {
        if let Some(place) = self.place(number) {
            self.ring[place].1 = self.ring[place].1.saturating_sub(1);
        }
    }

    /// Below this nothing is open.
    pub(super) fn low(&mut self, life: u16) -> Number {
        self.trim();
        let next = Number::new(life, self.count + 1);
        self.ring.front().map_or(next, |(number, _)| *number)
    }

    fn trim(&mut self) {
        while self.ring.front().is_some_and(|(_, keys)| *keys == 0) {
            self.ring.pop_front();
        }
    }

    fn place(&self, number: Number) -> Option<usize> {
        self.ring.binary_search_by_key(&number, |(number, _)| *number).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_open_number_is_low() {
        let mut open = OpenNumbers::new(3);
        assert_eq!(open.low(1), Number::new(1, 1));
        let first = open.give(1, 0, 1).unwrap();
        open.open(first);
        open.open(first);
        let second = open.give(1, 0, 1).unwrap();
        open.open(second);
        open.close(second);
        assert_eq!(open.low(1), first, "it is open for two keys");
        open.close(first);
        assert_eq!(open.low(1), first);
        open.close(first);
        assert_eq!(open.low(2), Number::new(2, 3), "none is open: the next");
    }

    #[test]
    fn numbers_of_a_lane_grow_and_are_of_no_other() {
        let mut open = OpenNumbers::new(8);
        let lanes = [1, 1, 0, 3, 2, 3];
        let counts = lanes.map(|lane| open.give(1, lane, 4).unwrap().count());
        assert_eq!(counts, [1, 5, 8, 11, 14, 15]);
    }

    #[test]
    fn numbers_are_never_given_again_and_are_limited() {
        let mut open = OpenNumbers::new(2);
        let mut give = || {
            let number = open.give(1, 0, 1).unwrap();
            open.open(number);
            number
        };
        let numbers = [give(), give()];
        assert_eq!(open.give(1, 0, 1), None);
        open.close(numbers[1]);
        assert_eq!(open.give(1, 0, 1), None, "the lowest is open still");
        open.close(numbers[0]);
        assert_eq!(open.give(2, 0, 1), Some(Number::new(2, 3)));
    }
}
