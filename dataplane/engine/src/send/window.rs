//! How many steps may be in flight: additive increase, multiplicative decrease (PROTOCOL
//! section 10, SPEC "Member").
//!
//! The window halves at most once a round trip on loss or on a congestion mark, grows by one for
//! every window of answers while it is the limit (one that probes: for every answer, as in TCP's
//! slow start, until it is halved), and never exceeds the lease. Losses that turn out to be none
//! give back what they took, once all of a row have, as undoing by DSACK does (RFC 3708, RFC 4015);
//! [`super::path`] says which those are. A queue that [`super::delay`] finds too long takes an
//! eighth, which is given back where it does not help. Invariant: `1 <= size <= max`. O(1).

use weft_wire::Nanos;

/// A congestion window in steps.
#[derive(Clone, Copy, Debug)]
pub struct CongestionWindow {
    size: u32,
    max: u32,
    answers: u32,
    reduced_at: Option<Nanos>,
    before_timeout: Option<u32>,
    /// What was taken for lost since then and was not found yet.
    charged: u32,
    /// Its size when easing began.
    before_eased: Option<u32>,
    is_probing: bool,
}

impl CongestionWindow {
    /// A window of `initial` steps that never exceeds `max`; both are at least 1.
    #[must_use]
    pub fn new(initial: u32, max: u32) -> Self {
        let max = max.max(1);
        Self {
            size: initial.clamp(1, max),
            max,
            answers: 0,
            reduced_at: None,
            before_timeout: None,
            charged: 0,
            before_eased: None,
            is_probing: false,
        }
    }

    /// The same, growing by one for every answer until it is halved for the first time.
    #[must_use]
    pub fn probing(initial: u32, max: u32) -> Self {
        Self { is_probing: true, ..Self::new(initial, max) }
    }

    /// Steps that may be in flight.
    #[must_use]
    pub fn size(&self) -> u32 {
        self.size
    }

    /// True when it was halved at some time, be it in error.
    #[must_use]
    pub fn was_halved(&self) -> bool {
        self.reduced_at.is_some()
    }

    /// Takes a new answer. `limited` says that the window was full when it came, for a window
    /// that is not used says nothing about the path.
    pub fn on_answer(&mut self, limited: bool) {
        if !limited {
            return;
        }
        self.answers += 1;
        if self.is_probing || self.answers >= self.size {
            self.answers = 0;
            self.size = (self.size + 1).min(self.max);
        }
    }

    /// True when a timeout now would be undone together with the one before.
    #[must_use]
    pub fn is_in_row(&self, now: Nanos, round_trip: Nanos) -> bool {
        let row_ns = round_trip.0.saturating_mul(ROW_ROUND_TRIPS);
        let is_row = self.reduced_at.is_some_and(|at| now.since(at).0 < row_ns);
        is_row && self.before_timeout.is_some()
    }

    /// Takes a timeout without any word of the steps, or their loss, and how many of them must be
    /// found before it is undone. True when the window was halved.
    pub fn on_timeout(&mut self, now: Nanos, round_trip: Nanos, charge: u32) -> bool {
        let earlier = self.before_timeout.filter(|_| self.is_in_row(now, round_trip));
        let before = self.size.max(earlier.unwrap_or(0));
        let halved = self.halve(now, round_trip);
        if halved {
            self.before_timeout = Some(before);
            self.charged = if earlier.is_some() { self.charged } else { 0 };
        }
        self.charged = self.charged.saturating_add(charge);
        halved
    }

    /// Takes a congestion mark, or a loss that is certain. True when the window was halved.
    pub fn on_congestion(&mut self, now: Nanos, round_trip: Nanos) -> bool {
        self.before_timeout = None;
        self.halve(now, round_trip)
    }

    /// One of the last timeouts or losses was none. True when all of them were, and what they took
    /// is given back.
    pub fn on_spurious_timeout(&mut self) -> bool {
        self.charged = self.charged.saturating_sub(1);
        let before = if self.charged == 0 { self.before_timeout.take() } else { None };
        self.size = self.size.max(before.unwrap_or(0));
        before.is_some()
    }

    /// Takes an eighth off it. `is_first`: what was taken until now is not given back.
    pub fn ease(&mut self, is_first: bool) {
        self.before_eased = self.before_eased.filter(|_| !is_first).or(Some(self.size));
        self.size = (self.size - self.size.div_ceil(EASE_SHARE)).max(1);
        self.answers = 0;
    }

    /// What easing took since the first has not helped.
    pub fn undo_easing(&mut self) {
        self.size = self.size.max(self.before_eased.take().unwrap_or(0));
    }

    /// All that reduced it since it was of this size was no loss.
    pub fn restore(&mut self, size: u32) {
        self.size = self.size.max(size.min(self.max));
    }

    fn halve(&mut self, now: Nanos, round_trip: Nanos) -> bool {
        if self.reduced_at.is_some_and(|at| now.since(at) < round_trip) {
            return false;
        }
        self.reduced_at = Some(now);
        self.answers = 0;
        self.before_eased = None;
        self.is_probing = false;
        self.size = (self.size / 2).max(1);
        true
    }
}

/// Timeouts no further apart belong together.
const ROW_ROUND_TRIPS: u64 = 8;
/// Easing takes one of so many.
const EASE_SHARE: u32 = 8;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const RTT: Nanos = Nanos(1_000);

    #[test]
    fn it_halves_once_a_round_trip() {
        let mut window = CongestionWindow::new(64, 128);
        assert!(window.on_timeout(Nanos(5_000), RTT, 1));
        assert!(!window.on_congestion(Nanos(5_999), RTT));
        assert_eq!(window.size(), 32);
        assert!(window.on_congestion(Nanos(6_000), RTT));
        assert_eq!(window.size(), 16);
    }

    #[test]
    fn it_grows_by_one_for_a_window_of_answers() {
        let mut window = CongestionWindow::new(4, 6);
        for _ in 0..3 {
            window.on_answer(true);
        }
        assert_eq!(window.size(), 4);
        window.on_answer(true);
        assert_eq!(window.size(), 5);
        for _ in 0..100 {
            window.on_answer(true);
        }
        assert_eq!(window.size(), 6);
    }

    #[test]
    fn a_probing_window_doubles_in_a_round_trip_until_it_is_halved() {
        let mut window = CongestionWindow::probing(4, 64);
        for _ in 0..4 {
            window.on_answer(true);
        }
        assert_eq!(window.size(), 8);
        window.on_answer(false);
        assert_eq!(window.size(), 8, "an unused one does not grow");
        window.on_congestion(Nanos(5_000), RTT);
        for _ in 0..3 {
            window.on_answer(true);
        }
        assert_eq!(window.size(), 4);
        window.on_answer(true);
        assert_eq!(window.size(), 5);
    }

    #[test]
    fn an_unused_window_does_not_grow() {
        let mut window = CongestionWindow::new(4, 64);
        for _ in 0..100 {
            window.on_answer(false);
        }
        assert_eq!(window.size(), 4);
    }

    #[test]
    fn a_spurious_timeout_is_undone_but_a_mark_is_not() {
        let mut window = CongestionWindow::new(64, 64);
        window.on_timeout(Nanos(1), RTT, 1);
        window.on_spurious_timeout();
        assert_eq!(window.size(), 64);
        window.on_spurious_timeout();
        window.on_congestion(Nanos(10_000), RTT);
        window.on_spurious_timeout();
        assert_eq!(window.size(), 32);
    }

    #[test]
    fn a_row_of_losses_is_undone_when_all_of_them_were_none() {
        let mut window = CongestionWindow::new(64, 64);
        window.on_timeout(Nanos(1), RTT, 2);
        window.on_timeout(Nanos(500), RTT, 1);
        assert!(window.is_in_row(Nanos(5_000), RTT));
        window.on_timeout(Nanos(5_000), RTT, 1);
        assert_eq!(window.size(), 16);
        for _ in 0..3 {
            assert!(!window.on_spurious_timeout());
            assert_eq!(window.size(), 16);
        }
        assert!(window.on_spurious_timeout());
        assert_eq!(window.size(), 64);
        assert!(!window.is_in_row(Nanos(6_000), RTT));
    }

    #[test]
    fn losses_further_apart_are_undone_apart() {
        let mut window = CongestionWindow::new(64, 64);
        window.on_timeout(Nanos(1), RTT, 5);
        assert!(!window.is_in_row(Nanos(8_001), RTT));
        window.on_timeout(Nanos(8_001), RTT, 1);
        assert!(window.on_spurious_timeout());
        assert_eq!(window.size(), 32);
    }

    #[test]
    fn easing_takes_an_eighth_and_gives_back_what_went_since_the_first() {
        let mut window = CongestionWindow::new(64, 64);
        window.ease(true);
        assert_eq!(window.size(), 56);
        window.ease(true);
        window.ease(false);
        assert_eq!(window.size(), 42);
        window.undo_easing();
        assert_eq!(window.size(), 56);
        window.undo_easing();
        window.ease(false);
        window.on_congestion(Nanos(10_000), RTT);
        window.undo_easing();
        assert_eq!(window.size(), 24, "a loss meanwhile ends it");
        (0..100).for_each(|_| window.ease(false));
        assert_eq!(window.size(), 1);
    }

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Answer(bool),
        Timeout(u32),
        Mark,
        Spurious,
        Ease(bool),
        UndoEasing,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            any::<bool>().prop_map(Step::Answer),
            (0u32..3).prop_map(Step::Timeout),
            Just(Step::Mark),
            Just(Step::Spurious),
            any::<bool>().prop_map(Step::Ease),
            Just(Step::UndoEasing),
        ]
    }

    proptest! {
        #[test]
        fn it_stays_between_one_and_the_lease(
            initial in 0u32..100,
            max in 0u32..100,
            is_probing in any::<bool>(),
            steps in prop::collection::vec((step(), 0u64..3_000), 0..300),
        ) {
            let mut window = match is_probing {
                true => CongestionWindow::probing(initial, max),
                false => CongestionWindow::new(initial, max),
            };
            let mut now = Nanos(0);
            let mut reduced_at: Option<Nanos> = None;
            for (step, wait) in steps {
                now = Nanos(now.0 + wait);
                let before = window.size();
                let halved = match step {
                    Step::Answer(limited) => { window.on_answer(limited); false }
                    Step::Timeout(charge) => window.on_timeout(now, RTT, charge),
                    Step::Mark => window.on_congestion(now, RTT),
                    Step::Spurious => { window.on_spurious_timeout(); false }
                    Step::Ease(is_first) => { window.ease(is_first); false }
                    Step::UndoEasing => { window.undo_easing(); false }
                };
                if halved {
                    prop_assert!(reduced_at.is_none_or(|at| now.since(at) >= RTT));
                    prop_assert_eq!(window.size(), (before / 2).max(1));
                    reduced_at = Some(now);
                }
                prop_assert!(window.size() >= 1);
                prop_assert!(window.size() <= max.max(1));
            }
        }
    }
}
