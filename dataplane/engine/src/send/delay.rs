//! What round trips say of the queue that a path's window fills (SPEC "Member").
//!
//! An answer holds the wait for the slowest member, and on a busy host the wait for a core, so no
//! fixed target tells a queue from them (Swift, SIGCOMM 2020, section 3, has time stamps of the
//! NIC for that). What a loss says is certain, and so is the round trip at which it happened: the
//! *brink*. The window then keeps the queue at three quarters of that, what a window that goes by
//! loss alone has on average between two halvings, as TCP DUAL (Wang and Crowcroft, CCR 22(2),
//! 1992) does at the middle between the least and the greatest.
//!
//! - A *round* ends with the answer to what left after it began; its round trip is the least of its
//!   samples. Who was last to contribute, be it once in a round, waited for nobody.
//! - **Ease.** A round above the limit takes an eighth of the window, once.
//! - **Give back.** Four such rounds in a row leave 0.59 of the window. If the round trip has not
//!   fallen by a quarter, the queue is not this window's: a member is late, a host is busy, or
//!   others fill it. What they took is given back, and loss alone counts until the next one (as
//!   CDG's "ineffectual backoff", Hayes and Armitage, NETWORKING 2011).
//! - The limit leaves half of the least round trip at least, so a link whose queue is deep never
//!   idles, and 0.5 ms, which a core may be away.
//! - The brink rises by 1/1024 a round, and so finds out that a queue has become longer; a loss
//!   below it moves it a quarter of the way.
//!
//! Before the first loss nothing is limited. O(1) per call, no memory.

use core::mem;

use weft_wire::Nanos;

/// What a sample says of the window.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Advice {
    /// Nothing yet: the round goes on, or no limit is known.
    None,
    /// The queue is within its limit.
    Keep,
    /// It is above: let there be less.
    Ease {
        /// After a round that was within the limit, or after less has been seen to help.
        is_first: bool,
    },
    /// Less has not helped: give back what went since the first.
    GiveBack,
}

/// The queue of one path.
#[derive(Clone, Copy, Debug)]
pub struct Delay {
    /// The least round trips of the present span and of the one before.
    least_ns: [u64; 2],
    span_began: Nanos,
    round_began: Nanos,
    /// The least round trip of this round, and of the last one.
    trip_ns: u64,
    last_trip_ns: u64,
    /// The round trip at which something was lost.
    brink_ns: u64,
    /// The same before the last row of losses.
    earlier_brink_ns: u64,
    is_over: bool,
    /// Rounds in a row that have eased the window, at most [`EASES_MAX`], and the round trip of the
    /// first of them.
    eases: u32,
    eased_from_ns: u64,
}

impl Delay {
    /// Of a path of which nothing is known.
    #[must_use]
    pub fn new() -> Self {
        Self {
            least_ns: [NONE; 2],
            span_began: Nanos(0),
            round_began: Nanos(0),
            trip_ns: NONE,
            last_trip_ns: NONE,
            brink_ns: NONE,
            earlier_brink_ns: NONE,
            is_over: false,
            eases: 0,
            eased_from_ns: NONE,
        }
    }

    /// True when the last round was above the limit.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// Takes the answer to what left once, at `sent_at`.
    pub fn sample(&mut self, now: Nanos, sent_at: Nanos) -> Advice {
        let trip_ns = now.since(sent_at).0.min(NONE - 1);
        if now.since(self.span_began) >= SPAN {
            self.span_began = now;
            self.least_ns = [NONE, self.least_ns[0]];
        }
        self.least_ns[0] = self.least_ns[0].min(trip_ns);
        self.trip_ns = self.trip_ns.min(trip_ns);
        if sent_at < self.round_began {
            return Advice::None;
        }
        self.round_began = now;
        self.last_trip_ns = mem::replace(&mut self.trip_ns, NONE);
        if self.brink_ns == NONE { Advice::None } else { self.judge() }
    }

    /// Takes a loss. `is_in_row`: it is taken back together with the one before, or not at all.
    pub fn on_loss(&mut self, now: Nanos, is_in_row: bool) {
        if !is_in_row {
            self.earlier_brink_ns = self.brink_ns;
        }
        let trip_ns = if self.last_trip_ns == NONE { self.trip_ns } else { self.last_trip_ns };
        self.brink_ns = match (trip_ns, self.brink_ns) {
            (NONE, brink_ns) => brink_ns,
            (_, NONE) => trip_ns,
            (_, brink_ns) => trip_ns.max(brink_ns - brink_ns.saturating_sub(trip_ns) / 4),
        };
        // What is on its way left before the window was halved.
        self.round_began = now;
        self.trip_ns = NONE;
        self.end_row();
    }

    /// The last row of losses was none.
    pub fn on_no_loss(&mut self) {
        self.brink_ns = self.earlier_brink_ns;
        self.end_row();
    }

    fn judge(&mut self) -> Advice {
        let limit_ns = self.limit_ns();
        self.brink_ns = self.brink_ns.saturating_add(self.brink_ns >> BRINK_RISE_SHIFT);
        let trip_ns = self.last_trip_ns;
        if trip_ns <= limit_ns {
            self.end_row();
            return Advice::Keep;
        }
        if self.eases == EASES_MAX {
            if trip_ns > self.eased_from_ns / 4 * 3 {
                self.brink_ns = NONE;
                self.end_row();
                return Advice::GiveBack;
            }
            self.eases = 0;
        }
        if self.eases == 0 {
            self.eased_from_ns = trip_ns;
        }
        self.eases += 1;
        self.is_over = true;
        Advice::Ease { is_first: self.eases == 1 }
    }

    /// What a round may take.
    fn limit_ns(&self) -> u64 {
        let least_ns = self.least_ns[0].min(self.least_ns[1]);
        let queue_ns = self.brink_ns.saturating_sub(least_ns);
        let room_ns = (queue_ns / 4 * 3).max(least_ns / 2).max(ROOM_MIN.0);
        least_ns.saturating_add(room_ns)
    }

    fn end_row(&mut self) {
        (self.eases, self.is_over) = (0, false);
    }
}

impl Default for Delay {
    fn default() -> Self {
        Self::new()
    }
}

/// No such time.
const NONE: u64 = u64::MAX;
/// The least round trip is that of one to two of these: a path that has become longer is learnt.
const SPAN: Nanos = Nanos::from_millis(10_000);
/// A queue as short as this is left alone.
const ROOM_MIN: Nanos = Nanos::from_micros(500);
/// Rounds after which less must have helped.
const EASES_MAX: u32 = 4;
/// The brink rises by this power of a half in a round.
const BRINK_RISE_SHIFT: u32 = 10;

#[cfg(test)]
mod tests {
    use super::*;

    const US: u64 = 1_000;

    /// A delay that has seen `least_us`, and lost something at `brink_us`.
    fn delay(least_us: u64, brink_us: u64) -> Delay {
        let mut delay = Delay::new();
        assert_eq!(round(&mut delay, least_us), Advice::None);
        assert_eq!(round(&mut delay, brink_us), Advice::None, "nothing was lost yet");
        delay.on_loss(delay.round_began, false);
        delay
    }

    /// A round all of whose answers take as long.
    fn round(delay: &mut Delay, us: u64) -> Advice {
        let began = delay.round_began;
        delay.sample(Nanos(began.0 + us * US), began)
    }

    #[test]
    fn above_three_quarters_of_the_queue_that_lost_something_the_window_is_eased() {
        let mut delay = delay(100, 4_100);
        assert_eq!(round(&mut delay, 3_100), Advice::Keep);
        assert!(!delay.is_over());
        assert_eq!(round(&mut delay, 3_110), Advice::Ease { is_first: true });
        assert!(delay.is_over());
        assert_eq!(round(&mut delay, 3_200), Advice::Ease { is_first: false });
        assert_eq!(round(&mut delay, 3_000), Advice::Keep);
        assert!(!delay.is_over());
    }

    #[test]
    fn a_round_is_as_long_as_the_least_of_its_answers() {
        let mut delay = delay(100, 4_100);
        let began = delay.round_began.0;
        let before = Nanos(began - 1);
        assert_eq!(delay.sample(Nanos(began + 900 * US), before), Advice::None);
        assert_eq!(delay.sample(Nanos(began + 9_000 * US), Nanos(began)), Advice::Keep);
        assert_eq!(round(&mut delay, 9_000), Advice::Ease { is_first: true });
    }

    #[test]
    fn half_of_the_least_round_trip_and_half_a_millisecond_are_no_queue() {
        let mut short = delay(100, 200);
        assert_eq!(round(&mut short, 600), Advice::Keep);
        assert_eq!(round(&mut short, 601), Advice::Ease { is_first: true });
        let mut long = delay(4_000, 4_100);
        assert_eq!(round(&mut long, 6_000), Advice::Keep);
        assert_eq!(round(&mut long, 6_001), Advice::Ease { is_first: true });
    }

    #[test]
    fn what_does_not_help_is_given_back_and_loss_alone_counts() {
        let mut delay = delay(100, 4_100);
        for count in 0..4 {
            assert_eq!(round(&mut delay, 8_000), Advice::Ease { is_first: count == 0 });
        }
        assert_eq!(round(&mut delay, 6_001), Advice::GiveBack);
        assert_eq!(round(&mut delay, 8_000), Advice::None);
        delay.on_loss(delay.round_began, false);
        assert_eq!(round(&mut delay, 7_900), Advice::Ease { is_first: true });
    }

    #[test]
    fn what_helps_goes_on() {
        let mut delay = delay(100, 4_100);
        for us in [8_000, 7_500, 7_000, 6_500] {
            assert!(matches!(round(&mut delay, us), Advice::Ease { .. }));
        }
        assert_eq!(round(&mut delay, 6_000), Advice::Ease { is_first: true });
        for us in [5_500, 5_000, 4_750] {
            assert_eq!(round(&mut delay, us), Advice::Ease { is_first: false });
        }
        assert_eq!(round(&mut delay, 4_501), Advice::GiveBack, "of 6 ms more than three quarters");
    }

    #[test]
    fn a_loss_below_the_brink_moves_it_a_quarter_and_one_above_at_once() {
        for (lost_us, limit_us) in [(2_100, 2_725), (8_100, 6_100)] {
            let mut delay = delay(100, 4_100);
            round(&mut delay, lost_us);
            delay.brink_ns = 4_100 * US;
            delay.on_loss(delay.round_began, false);
            assert_eq!(delay.limit_ns(), limit_us * US);
        }
    }

    #[test]
    fn a_row_of_losses_that_were_none_is_forgotten() {
        let mut delay = delay(100, 4_100);
        let limit_ns = delay.limit_ns();
        for is_in_row in [false, true] {
            delay.last_trip_ns = 1_000 * US;
            delay.on_loss(delay.round_began, is_in_row);
        }
        assert!(delay.limit_ns() < limit_ns);
        delay.on_no_loss();
        assert_eq!(delay.limit_ns(), limit_ns);
    }

    #[test]
    fn a_longer_queue_and_a_longer_path_are_learnt() {
        let mut queue = delay(100, 4_100);
        let limit_ns = queue.limit_ns();
        (0..400).for_each(|_| assert_eq!(round(&mut queue, 3_000), Advice::Keep));
        assert!(queue.limit_ns() > limit_ns + limit_ns / 4);
        let mut path = delay(100, 4_100);
        for least_us in [100, 4_000] {
            (0..2_400).for_each(|_| _ = round(&mut path, 4_000));
            let least_ns = path.least_ns[0].min(path.least_ns[1]);
            assert_eq!(least_ns, least_us * US, "10 to 20 s are seen");
            (0..200).for_each(|_| _ = round(&mut path, 4_000));
        }
    }

    #[test]
    fn times_of_any_size_are_taken() {
        let mut delay = delay(100, 4_100);
        delay.sample(Nanos(u64::MAX), delay.round_began);
        delay.on_loss(Nanos(u64::MAX), false);
        for _ in 0..10 {
            delay.sample(Nanos(u64::MAX), Nanos(u64::MAX));
            delay.sample(Nanos(0), Nanos(u64::MAX));
        }
    }
}
