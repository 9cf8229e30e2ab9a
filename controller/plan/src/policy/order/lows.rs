//! A row of numbers that knows its lows: the places whose number is lower than all before them.

use alloc::vec::Vec;

/// Numbers by place, under changes in O(log N) for every low that they make.
#[derive(Debug)]
pub(super) struct Row<T> {
    /// A tree: the lowest number below each node; node 1 is the root.
    lowest: Vec<u32>,
    leaves: usize,
    lows: Vec<Low<T>>,
    scratch: Vec<Low<T>>,
}

/// A number that is lower than all before it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Low<T> {
    pub(super) place: usize,
    pub(super) number: u32,
    /// What the owner of the row wants to find with it.
    pub(super) about: T,
}

/// No number: not lower than any.
pub(super) const NONE: u32 = u32::MAX;

impl<T: Copy> Row<T> {
    /// `about` tells what goes with a number in a place.
    pub(super) fn new(
        numbers: impl ExactSizeIterator<Item = u32>,
        about: impl Fn(usize, u32) -> T,
    ) -> Self {
        let leaves = numbers.len().next_power_of_two();
        let mut lowest = vec![NONE; leaves * 2];
        for (leaf, number) in lowest[leaves..].iter_mut().zip(numbers) {
            *leaf = number;
        }
        for node in (1..leaves).rev() {
            lowest[node] = lowest[node * 2].min(lowest[node * 2 + 1]);
        }
        let mut row = Self { lowest, leaves, lows: Vec::new(), scratch: Vec::new() };
        row.renew(0, 0, NONE, about);
        row
    }

    /// The number in a place.
    pub(super) fn at(&self, place: usize) -> u32 {
        self.lowest[self.leaves + place]
    }

    /// The lows, in the order of their places.
    pub(super) fn lows(&self) -> &[Low<T>] {
        &self.lows
    }

    /// Puts a number in a place.
    pub(super) fn set(&mut self, place: usize, number: u32, about: impl Fn(usize, u32) -> T) {
        self.put(place, number);
        let index = self.lows.partition_point(|low| low.place < place);
        let before = index.checked_sub(1).map_or(NONE, |last| self.lows[last].number);
        let was_low = self.lows.get(index).is_some_and(|low| low.place == place);
        if was_low || number < before {
            self.renew(index, place, before, about);
        }
    }

    fn put(&mut self, place: usize, number: u32) {
        let mut node = self.leaves + place;
        self.lowest[node] = number;
        while node > 1 {
            let lowest = self.lowest[node].min(self.lowest[node ^ 1]);
            node /= 2;
            if self.lowest[node] == lowest {
                return;
            }
            self.lowest[node] = lowest;
        }
    }

    /// Finds the lows from a place on, which is the one that has changed, up to the first that has
    /// been one: those behind it stay. `index` is how many lows are before, `number` is the last's.
    fn renew(
        &mut self,
        index: usize,
        place: usize,
        mut number: u32,
        about: impl Fn(usize, u32) -> T,
    ) {
        self.scratch.clear();
        let (mut from, mut end) = (place, index);
        while let Some(low) = self.first_below(from, number) {
            while self.lows.get(end).is_some_and(|old| old.place < low) {
                end += 1;
            }
            if low > place && self.lows.get(end).is_some_and(|old| old.place == low) {
                return self.replace(index, end);
            }
            number = self.at(low);
            self.scratch.push(Low { place: low, number, about: about(low, number) });
            from = low + 1;
        }
        self.replace(index, self.lows.len());
    }

    /// Puts the new lows where some old ones were; mostly it is one for one.
    fn replace(&mut self, start: usize, end: usize) {
        let kept = self.scratch.len().min(end - start);
        self.lows[start..start + kept].copy_from_slice(&self.scratch[..kept]);
        if start + kept < end {
            self.lows.drain(start + kept..end);
        }
        for (low, at) in self.scratch[kept..].iter().zip(start + kept..) {
            self.lows.insert(at, *low);
        }
    }

    /// The first place from `from` on whose number is below `number`.
    fn first_below(&self, from: usize, number: u32) -> Option<usize> {
        if from >= self.leaves {
            return None;
        }
        let mut node = self.leaves + from;
        while self.lowest[node] >= number {
            // On to the next subtree; up from the last one of a parent.
            while !node.is_multiple_of(2) {
                node /= 2;
            }
            if node == 0 {
                return None;
            }
            node += 1;
        }
        while node < self.leaves {
            node *= 2;
            node += usize::from(self.lowest[node] >= number);
        }
        Some(node - self.leaves)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::Numbers;

    #[test]
    fn the_lows_are_those_of_looking_at_every_place() {
        let mut numbers = Numbers::new(5);
        for len in [0, 1, 2, 3, 8, 13, 40] {
            let mut draw = || match numbers.index(6) {
                0 => NONE,
                _ => u32::try_from(numbers.index(30)).expect("a small number"),
            };
            let mut plain: Vec<u32> = (0..len).map(|_| draw()).collect();
            let about = |place: usize, number: u32| (number, place);
            let mut row = Row::new(plain.iter().copied(), about);
            for change in 0..300 {
                let mut lowest = NONE;
                let mut lows = Vec::new();
                for (place, number) in plain.iter().enumerate() {
                    if *number < lowest {
                        lows.push((place, *number, about(place, *number)));
                    }
                    lowest = lowest.min(*number);
                }
                let known = row.lows().iter().map(|low| (low.place, low.number, low.about));
                assert_eq!(known.collect::<Vec<_>>(), lows, "{plain:?}");
                if len > 0 {
                    let place = change * 7 % len;
                    plain[place] = draw();
                    row.set(place, plain[place], about);
                    assert_eq!(row.at(place), plain[place]);
                }
            }
        }
    }
}
