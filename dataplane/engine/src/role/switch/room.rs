//! Room in a switch: banks in ranges, and places among its counters.

use alloc::vec::Vec;

/// A range of numbers, of which parts are taken.
#[derive(Clone, Debug)]
pub(super) struct Room {
    /// Free parts by their first number; no two touch.
    free: Vec<Part>,
}

/// A part.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Part {
    pub(super) first: u32,
    pub(super) len: u32,
}

impl Room {
    pub(super) fn new(len: u32) -> Self {
        Self { free: Vec::from([Part { first: 0, len }]) }
    }

    /// Takes the first part that is long enough.
    pub(super) fn take(&mut self, len: u32) -> Option<Part> {
        let at = self.free.iter().position(|part| part.len >= len)?;
        let first = self.free[at].first;
        if self.free[at].len == len {
            self.free.remove(at);
        } else {
            self.free[at] = Part { first: first + len, len: self.free[at].len - len };
        }
        Some(Part { first, len })
    }

    /// Gives a part back.
    pub(super) fn give_back(&mut self, part: Part) {
        let at = self.free.partition_point(|free| free.first < part.first);
        self.free.insert(at, part);
        if let [left, right] = self.free[at..][..2.min(self.free.len() - at)]
            && left.first + left.len == right.first
        {
            self.free[at].len += right.len;
            self.free.remove(at + 1);
        }
        if at > 0 && self.free[at - 1].first + self.free[at - 1].len == part.first {
            self.free[at - 1].len += self.free[at].len;
            self.free.remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_back_in_any_order_is_whole_again() {
        for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
            let mut room = Room::new(10);
            let parts = [3, 3, 4].map(|len| room.take(len).unwrap());
            assert_eq!(room.take(1), None);
            for index in order {
                room.give_back(parts[index]);
            }
            assert_eq!(room.take(10), Some(Part { first: 0, len: 10 }), "{order:?}");
        }
    }
}
