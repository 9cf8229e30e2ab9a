//! Whether a lane's sums come to the row's multicast address (SPEC#answers-by-multicast).
//!
//! Decides when the box is told that this member hears that address, and when it is told the
//! contrary. LISTEN goes until the first sum has come there; then silence is trusted. A network
//! that has stopped carrying the address shows in answers to repeats alone, each to this member's
//! own address: after [`DEAF_AFTER`] of them in a row the lane says DEAF, until a sum comes by
//! itself. Then it rests, longer each time, and listens again, for a busy host or a link that was
//! down for a moment looks the same. Invariant: what is said changes by which address sums come,
//! never which or whether (I1, I9). O(1) per call, no memory.

use weft_wire::Nanos;
use weft_wire::hello::Phase;

use super::config::WorkerConfig;
use crate::session::backoff::Backoff;

/// What a lane says of the multicast address, and when.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hearing {
    state: State,
    /// When the next word goes.
    backoff: Backoff,
    /// How long the next rest is.
    rest: Nanos,
    /// How often in a row, a retransmission timeout apart, a sum came only after a repeat, and to
    /// this member alone.
    unheard: u32,
    unheard_at: Nanos,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    /// The worker has no such address.
    Off,
    /// It hears, as far as it knows.
    Listening,
    /// It heard nothing, and says so.
    Deaf,
    /// It will listen again then.
    Resting(Nanos),
}

impl Hearing {
    /// Says nothing before [`Hearing::begin`].
    pub(super) fn new(config: &WorkerConfig) -> Self {
        let pause_min = Nanos(config.hello_interval_ns);
        let state = if config.multicast.is_some() { State::Listening } else { State::Off };
        let backoff = Backoff::new(pause_min, PAUSE_MAX.max(pause_min));
        Self { state, backoff, rest: REST_MIN, unheard: 0, unheard_at: Nanos(0) }
    }

    /// An epoch has begun, of which the box knows nothing yet.
    pub(super) fn begin(&mut self, now: Nanos) {
        self.unheard = 0;
        match self.state {
            State::Listening => self.backoff.start(now),
            State::Deaf => self.rest(now),
            State::Off | State::Resting(_) => {}
        }
    }

    /// When [`Hearing::poll`] will have something; [`Nanos::MAX`]: never.
    pub(super) fn timeout(&self) -> Nanos {
        match self.state {
            State::Resting(until) => until,
            _ => self.backoff.at(),
        }
    }

    /// The word that is due, if one is.
    pub(super) fn poll(&mut self, now: Nanos) -> Option<Phase> {
        if now < self.timeout() {
            return None;
        }
        if let State::Resting(_) = self.state {
            self.state = State::Listening;
            self.backoff.start(now);
        }
        self.backoff.sent(now);
        Some(if self.state == State::Deaf { Phase::Deaf } else { Phase::Listen })
    }

    /// A sum has come there, known already or not.
    pub(super) fn take_heard(&mut self) {
        self.unheard = 0;
        if self.state == State::Listening {
            self.backoff.stop();
        }
    }

    /// A new sum has come to this member alone; its contribution went more than once or not. True
    /// when the lane has found out by it that it is deaf. What comes within an `rto` is one sign of
    /// it: repeats leave together, and a loss of one run is no more.
    pub(super) fn take_unheard(&mut self, now: Nanos, rto: Nanos, is_repeated: bool) -> bool {
        match (self.state, is_repeated) {
            (State::Listening, true) if self.unheard > 0 && now.since(self.unheard_at) < rto => {}
            (State::Listening, true) => {
                self.unheard += 1;
                self.unheard_at = now;
                if self.unheard >= DEAF_AFTER {
                    self.state = State::Deaf;
                    self.backoff.start(now);
                    return true;
                }
            }
            (State::Listening, false) => self.unheard = 0,
            (State::Deaf, false) => self.rest(now),
            _ => {}
        }
        false
    }

    fn rest(&mut self, now: Nanos) {
        self.backoff.stop();
        self.unheard = 0;
        self.state = State::Resting(now.saturating_add(self.rest));
        self.rest = Nanos(self.rest.0.saturating_mul(2)).min(REST_MAX);
    }
}

/// So many timeouts in which nothing was heard are no accident.
const DEAF_AFTER: u32 = 4;
/// The box may have forgotten, or another member may begin to listen late.
const PAUSE_MAX: Nanos = Nanos::from_millis(1_000);
/// The first rest.
const REST_MIN: Nanos = Nanos::from_millis(1_000);
/// The longest: where multicast never comes, each try costs some repeats.
const REST_MAX: Nanos = Nanos::from_millis(64_000);

#[cfg(test)]
mod tests {
    use weft_wire::frame::Endpoint;
    use weft_wire::{JobId, MacAddr, Rank};

    use super::*;

    const RTO: Nanos = Nanos::from_millis(1);

    fn hearing(multicast: Option<&str>) -> Hearing {
        let end = |text: &str| Endpoint { mac: MacAddr::BROADCAST, addr: text.parse().unwrap() };
        let rank = Rank::new(0).unwrap();
        let config =
            WorkerConfig::new(JobId(0), 0, rank, end("10.0.0.1:40000"), end("10.0.0.9:22341"));
        let multicast = multicast.map(|ip| ip.parse().unwrap());
        let mut hearing = Hearing::new(&WorkerConfig { multicast, ..config });
        hearing.begin(Nanos(0));
        hearing
    }

    #[test]
    fn without_an_address_nothing_is_said() {
        let mut hearing = hearing(None);
        (0..100).for_each(|_| assert!(!hearing.take_unheard(Nanos(5), RTO, true)));
        assert_eq!((hearing.poll(Nanos(9)), hearing.timeout()), (None, Nanos::MAX));
    }

    #[test]
    fn listen_goes_until_a_sum_was_heard() {
        let mut hearing = hearing(Some("239.0.0.1"));
        assert_eq!(hearing.poll(Nanos(0)), Some(Phase::Listen));
        assert_eq!(hearing.poll(Nanos(1)), None);
        // Others may not listen yet: sums of one's own say nothing.
        hearing.take_unheard(Nanos(2), RTO, false);
        assert_eq!(hearing.poll(hearing.timeout()), Some(Phase::Listen));
        hearing.take_heard();
        assert_eq!(hearing.timeout(), Nanos::MAX);
        hearing.begin(Nanos(7));
        assert_eq!(hearing.poll(Nanos(7)), Some(Phase::Listen), "a new epoch is told again");
    }

    /// Has it find out that it hears nothing any more, and be served; returns when it rests from.
    fn deafen(hearing: &mut Hearing, mut now: Nanos) -> Nanos {
        for unheard in 1..=DEAF_AFTER {
            now = now.saturating_add(RTO);
            assert_eq!(hearing.take_unheard(now, RTO, true), unheard == DEAF_AFTER);
            assert!(!hearing.take_unheard(now, RTO, true), "the other sums of one run");
        }
        assert_eq!(hearing.poll(now), Some(Phase::Deaf));
        hearing.take_unheard(now, RTO, true);
        let again = hearing.timeout();
        assert_eq!(hearing.poll(again), Some(Phase::Deaf), "the first was lost");
        hearing.take_unheard(again, RTO, false);
        again
    }

    #[test]
    fn a_member_that_hears_nothing_any_more_says_so_and_listens_again_ever_later() {
        let mut hearing = hearing(Some("239.0.0.1"));
        hearing.poll(Nanos(0));
        hearing.take_heard();
        let mut now = Nanos(1);
        for rest in [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 64_000, 64_000] {
            let from = deafen(&mut hearing, now);
            now = from.saturating_add(Nanos::from_millis(rest));
            assert_eq!(hearing.timeout(), now);
            hearing.begin(from);
            assert_eq!(hearing.timeout(), now, "a new epoch does not wake it");
            assert_eq!(hearing.poll(now), Some(Phase::Listen));
        }
    }

    #[test]
    fn losses_between_sums_that_are_heard_are_losses() {
        let mut hearing = hearing(Some("239.0.0.1"));
        hearing.poll(Nanos(0));
        for step in 0..100 {
            match step % u64::from(DEAF_AFTER) {
                0 => hearing.take_heard(),
                _ => assert!(!hearing.take_unheard(Nanos(step * RTO.0), RTO, true)),
            }
        }
        assert_eq!(hearing.timeout(), Nanos::MAX);
    }
}
