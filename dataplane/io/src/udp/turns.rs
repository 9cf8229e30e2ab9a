//! In which order a port's sockets are received from. Decides only.
//!
//! A message fills most of a burst, so one socket is served in each, and the next one first in the
//! next burst: no lane keeps another waiting. What comes to multicast addresses goes before what
//! comes to the port's own, for that is mostly asked for because the other is late: read first, it
//! would look as if the other were lost. It may not go first for ever, though.

use std::ops::Range;

/// Whose turn it is.
#[derive(Debug)]
pub(super) struct Turns {
    own: Round,
    heard: Round,
    /// Bursts in a row in which the port's own sockets had something and were not served.
    passed_over: u32,
    is_served: bool,
}

impl Turns {
    /// Of `own` sockets that send, and others up to `all` of multicast addresses.
    pub(super) fn new(own: usize, all: usize) -> Self {
        let round = |sockets: Range<usize>| Round { next: sockets.start, sockets };
        Self { own: round(0..own), heard: round(own..all), passed_over: 0, is_served: false }
    }

    /// All sockets, in the order of this burst.
    pub(super) fn order(&self) -> impl Iterator<Item = usize> + use<> {
        let (own, heard) = (self.own.order(), self.heard.order());
        let own_first = self.passed_over >= PASSES_MAX;
        let first = own_first.then(|| own.clone()).into_iter().flatten();
        let last = (!own_first).then_some(own).into_iter().flatten();
        first.chain(heard).chain(last)
    }

    /// Something was taken from this socket; `is_first`: before all others of the burst.
    pub(super) fn note(&mut self, index: usize, is_first: bool) {
        let is_own = self.own.sockets.contains(&index);
        self.is_served |= is_own;
        if is_first {
            if is_own { self.own.pass(index) } else { self.heard.pass(index) }
        }
    }

    /// The burst is over, at whose begin these sockets had something, a bit for each.
    pub(super) fn end(&mut self, readable: u64) {
        let had_something = self.own.sockets.clone().any(|index| readable & 1 << index != 0);
        let was_served = std::mem::take(&mut self.is_served);
        self.passed_over = if had_something && !was_served { self.passed_over + 1 } else { 0 };
    }
}

/// Sockets that take turns.
#[derive(Debug)]
struct Round {
    sockets: Range<usize>,
    next: usize,
}

impl Round {
    fn order(&self) -> impl Iterator<Item = usize> + Clone + use<> {
        (self.next..self.sockets.end).chain(self.sockets.start..self.next)
    }

    fn pass(&mut self, index: usize) {
        self.next = if index + 1 < self.sockets.end { index + 1 } else { self.sockets.start };
    }
}

/// Bursts of multicasts between two looks at what else has come.
const PASSES_MAX: u32 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    /// The socket that is served first in each of some bursts in which all have something.
    fn served(turns: &mut Turns, readable: u64, bursts: usize) -> Vec<usize> {
        let mut burst = || {
            let first = turns.order().find(|index| readable & 1 << index != 0).unwrap();
            turns.note(first, true);
            turns.end(readable);
            first
        };
        (0..bursts).map(|_| burst()).collect()
    }

    #[test]
    fn own_sockets_take_turns() {
        let mut turns = Turns::new(3, 3);
        assert_eq!(served(&mut turns, 0b111, 5), [0, 1, 2, 0, 1]);
        assert_eq!(served(&mut turns, 0b001, 2), [0, 0], "an empty one has none");
    }

    #[test]
    fn multicasts_go_first_but_not_for_ever() {
        let mut turns = Turns::new(1, 3);
        assert_eq!(turns.order().collect::<Vec<_>>(), [1, 2, 0]);
        assert_eq!(served(&mut turns, 0b111, 10), [1, 2, 1, 2, 0, 1, 2, 1, 2, 0]);
        assert_eq!(served(&mut turns, 0b110, 6), [1, 2, 1, 2, 1, 2], "nothing else is there");
    }
}
