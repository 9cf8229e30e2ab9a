//! When the next of a series of datagrams goes, while nothing comes back (SPEC#timers).

use weft_wire::Nanos;

/// A pause that doubles from one datagram to the next, up to a bound.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Backoff {
    at: Nanos,
    pause: Nanos,
    pause_min: Nanos,
    pause_max: Nanos,
}

impl Backoff {
    /// Nothing is due until [`Backoff::start`].
    pub(crate) fn new(pause_min: Nanos, pause_max: Nanos) -> Self {
        let pause_min = Nanos(pause_min.0.max(1));
        Self { at: Nanos::MAX, pause: pause_min, pause_min, pause_max }
    }

    /// When the next datagram goes; [`Nanos::MAX`]: none does.
    pub(crate) fn at(&self) -> Nanos {
        self.at
    }

    /// The next datagram goes now, and the pauses are short again.
    pub(crate) fn start(&mut self, now: Nanos) {
        (self.at, self.pause) = (now, self.pause_min);
    }

    pub(crate) fn stop(&mut self) {
        self.at = Nanos::MAX;
    }

    /// A datagram went.
    pub(crate) fn sent(&mut self, now: Nanos) {
        self.at = now.saturating_add(self.pause);
        self.pause = Nanos(self.pause.0.saturating_mul(2)).min(self.pause_max);
    }

    /// Something came back that asks for another datagram soon.
    pub(crate) fn hurry(&mut self, now: Nanos) {
        self.pause = self.pause_min;
        self.at = self.at.min(now.saturating_add(self.pause_min));
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    /// The pauses of a series, beginning at `now`.
    fn pauses(backoff: &mut Backoff, mut now: Nanos, count: usize) -> Vec<u64> {
        let mut pause = || {
            backoff.sent(now);
            let pause = backoff.at().since(now);
            now = backoff.at();
            pause.0
        };
        (0..count).map(|_| pause()).collect()
    }

    #[test]
    fn pauses_double_up_to_the_bound_and_begin_again() {
        let mut backoff = Backoff::new(Nanos(20), Nanos(80));
        assert_eq!(backoff.at(), Nanos::MAX);
        backoff.start(Nanos(5));
        assert_eq!(backoff.at(), Nanos(5));
        assert_eq!(pauses(&mut backoff, Nanos(5), 5), [20, 40, 80, 80, 80]);
        backoff.start(Nanos(1_000));
        assert_eq!(pauses(&mut backoff, Nanos(1_000), 2), [20, 40]);
        backoff.stop();
        assert_eq!(backoff.at(), Nanos::MAX);
        let mut backoff = Backoff::new(Nanos(2), Nanos(100));
        assert_eq!(pauses(&mut backoff, Nanos(0), 8), [2, 4, 8, 16, 32, 64, 100, 100]);
    }

    #[test]
    fn who_hurries_is_never_later_for_it() {
        let mut backoff = Backoff::new(Nanos(20), Nanos(80));
        backoff.sent(Nanos(0));
        backoff.hurry(Nanos(15));
        assert_eq!(backoff.at(), Nanos(20), "it was due before");
        pauses(&mut backoff, Nanos(20), 3);
        let due = backoff.at();
        backoff.hurry(Nanos(due.0 - 50));
        assert_eq!(backoff.at(), Nanos(due.0 - 30));
        assert_eq!(pauses(&mut backoff, due, 2), [20, 40]);
    }

    #[test]
    fn an_interval_of_nothing_still_lets_time_pass() {
        let mut backoff = Backoff::new(Nanos(0), Nanos(0));
        backoff.sent(Nanos(7));
        assert_eq!(backoff.at(), Nanos(8));
    }
}
