//! Whether a port that found nothing sleeps, or lets others run and looks again.
//!
//! Who sleeps has to be woken: the sender's core is told, and the woken thread takes the place of
//! whoever runs. Where workers and their box share cores that costs more than a message's way
//! through the kernel. A thread that yields its core is not woken, and finds all that came
//! meanwhile. On a core of its own a yield ends at once, so the port polls for a moment and then
//! sleeps; where somebody else computes, a yield takes a time slice, so the port sleeps for a while
//! instead of yielding again. Decides only.

use core::time::Duration;

/// What to do where nothing has come.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Rest {
    /// Yield the core and look again.
    Yield,
    /// Sleep until something comes.
    Sleep,
}

/// When yielding pays.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Yielding {
    /// Time spent yielding since something came.
    spent: Duration,
    /// Sleeps to come before the next yield.
    sleeps: u32,
}

impl Yielding {
    /// Something came.
    pub(crate) fn note_received(&mut self) {
        self.spent = Duration::ZERO;
    }

    /// What to do now.
    pub(crate) fn decide(&mut self) -> Rest {
        if self.sleeps > 0 {
            self.sleeps -= 1;
            return Rest::Sleep;
        }
        if self.spent < SPENT_MAX { Rest::Yield } else { Rest::Sleep }
    }

    /// A yield took this long.
    pub(crate) fn note_yield(&mut self, took: Duration) {
        self.spent += took.max(YIELD_MIN);
        if took > SLICE_MIN {
            self.sleeps = SLEEPS_AFTER_SLICE;
        }
    }
}

/// Longest time of yields since something came.
const SPENT_MAX: Duration = Duration::from_micros(40);
/// The least that a yield and a look count.
const YIELD_MIN: Duration = Duration::from_micros(1);
/// A yield that takes as long as this has waited for somebody who computes.
const SLICE_MIN: Duration = Duration::from_micros(1_000);
/// How often the port then sleeps before it yields again.
const SLEEPS_AFTER_SLICE: u32 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    /// Yields until the port would sleep; how many that were.
    fn yields(yielding: &mut Yielding, took: Duration) -> u32 {
        let mut count = 0;
        while yielding.decide() == Rest::Yield {
            yielding.note_yield(took);
            count += 1;
            assert!(count < 1000, "it never sleeps");
        }
        count
    }

    #[test]
    fn on_a_core_of_its_own_a_port_polls_for_a_moment_and_then_sleeps() {
        let mut yielding = Yielding::default();
        assert_eq!(yields(&mut yielding, Duration::ZERO), 40, "a look counts, too");
        assert_eq!(yielding.decide(), Rest::Sleep);
        yielding.note_received();
        assert_eq!(yields(&mut yielding, Duration::from_micros(30)), 2);
    }

    #[test]
    fn beside_somebody_who_computes_a_port_sleeps_for_a_while() {
        let mut yielding = Yielding::default();
        assert_eq!(yields(&mut yielding, Duration::from_millis(3)), 1);
        for _ in 1..SLEEPS_AFTER_SLICE {
            yielding.note_received();
            assert_eq!(yielding.decide(), Rest::Sleep);
        }
        yielding.note_received();
        assert_eq!(yielding.decide(), Rest::Yield, "it tries again");
    }
}
