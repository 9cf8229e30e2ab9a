//! Whether a lane's sums come to the row's multicast address (SPEC#answers-by-multicast).
//!
//! Decides when the box is told that this member hears that address, and when it is told the
//! contrary. LISTEN goes until the first sum has come there; then silence is trusted. A network
//! that has stopped carrying the address shows in answers to repeats alone, each to this member's
//! own address: after [`DEAF_AFTER`] of them in a row the lane says DEAF, until a sum comes by
//! itself, and never listens again. Invariant: what is said changes by which address sums come,
//! never which or whether (I1, I9). O(1) per call, no memory.

use weft_wire::Nanos;
use weft_wire::hello::Phase;

use super::config::WorkerConfig;
use crate::session::backoff::Backoff;

/// What a lane says of the multicast address, and when.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hearing {
    /// The worker has such an address, and has heard it or not given it up.
    listens: bool,
    /// When the next word goes.
    backoff: Backoff,
    /// Sums in a row that came by themselves only after a repeat, and to this member alone.
    unheard: u32,
}

impl Hearing {
    /// Says nothing before [`Hearing::begin`].
    pub(super) fn new(config: &WorkerConfig) -> Self {
        let pause_min = Nanos(config.hello_interval_ns);
        Self {
            listens: config.multicast.is_some(),
            backoff: Backoff::new(pause_min, PAUSE_MAX.max(pause_min)),
            unheard: 0,
        }
    }

    /// An epoch has begun, of which the box knows nothing yet.
    pub(super) fn begin(&mut self, now: Nanos) {
        self.unheard = 0;
        if self.listens {
            self.backoff.start(now);
        } else {
            self.backoff.stop();
        }
    }

    /// When [`Hearing::poll`] will have something; [`Nanos::MAX`]: never.
    pub(super) fn timeout(&self) -> Nanos {
        self.backoff.at()
    }

    /// The word that is due, if one is.
    pub(super) fn poll(&mut self, now: Nanos) -> Option<Phase> {
        if now < self.backoff.at() {
            return None;
        }
        self.backoff.sent(now);
        Some(if self.listens { Phase::Listen } else { Phase::Deaf })
    }

    /// A new sum has come; its contribution went more than once or not.
    pub(super) fn take_answer(&mut self, now: Nanos, by_multicast: bool, is_repeated: bool) {
        match (by_multicast, is_repeated) {
            (true, _) => {
                self.unheard = 0;
                if self.listens {
                    self.backoff.stop();
                }
            }
            (false, false) => {
                self.unheard = 0;
                if !self.listens {
                    self.backoff.stop();
                }
            }
            (false, true) if self.listens => {
                self.unheard += 1;
                if self.unheard >= DEAF_AFTER {
                    self.listens = false;
                    self.backoff.start(now);
                }
            }
            (false, true) => {}
        }
    }
}

/// So many losses in a row are no accident: of the datagrams between them none has come.
pub(super) const DEAF_AFTER: u32 = 4;
/// The box may have forgotten, or another member may begin to listen late.
const PAUSE_MAX: Nanos = Nanos::from_millis(1_000);

#[cfg(test)]
mod tests {
    use weft_wire::frame::Endpoint;
    use weft_wire::{JobId, MacAddr, Rank};

    use super::*;

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
        (0..100).for_each(|_| hearing.take_answer(Nanos(5), false, true));
        assert_eq!((hearing.poll(Nanos(9)), hearing.timeout()), (None, Nanos::MAX));
    }

    #[test]
    fn listen_goes_until_a_sum_was_heard() {
        let mut hearing = hearing(Some("239.0.0.1"));
        assert_eq!(hearing.poll(Nanos(0)), Some(Phase::Listen));
        assert_eq!(hearing.poll(Nanos(1)), None);
        // Others may not listen yet: sums of one's own say nothing.
        hearing.take_answer(Nanos(2), false, false);
        assert_eq!(hearing.poll(hearing.timeout()), Some(Phase::Listen));
        hearing.take_answer(Nanos(3), true, false);
        assert_eq!(hearing.timeout(), Nanos::MAX);
        hearing.begin(Nanos(7));
        assert_eq!(hearing.poll(Nanos(7)), Some(Phase::Listen), "a new epoch is told again");
    }

    #[test]
    fn a_member_that_hears_nothing_any_more_says_so_for_good() {
        let mut hearing = hearing(Some("239.0.0.1"));
        hearing.poll(Nanos(0));
        hearing.take_answer(Nanos(1), true, false);
        for _ in 1..DEAF_AFTER {
            hearing.take_answer(Nanos(2), false, true);
        }
        assert_eq!(hearing.timeout(), Nanos::MAX, "these may be losses");
        hearing.take_answer(Nanos(3), false, true);
        assert_eq!(hearing.poll(Nanos(3)), Some(Phase::Deaf));
        hearing.take_answer(Nanos(4), false, true);
        assert_eq!(hearing.poll(hearing.timeout()), Some(Phase::Deaf), "the first was lost");
        hearing.take_answer(Nanos(5), false, false);
        assert_eq!(hearing.timeout(), Nanos::MAX);
        hearing.begin(Nanos(9));
        assert_eq!(hearing.timeout(), Nanos::MAX, "it does not listen again");
    }

    #[test]
    fn losses_between_sums_that_are_heard_are_losses() {
        let mut hearing = hearing(Some("239.0.0.1"));
        hearing.poll(Nanos(0));
        for step in 0..100 {
            hearing.take_answer(Nanos(step), step % u64::from(DEAF_AFTER) == 0, true);
        }
        assert_eq!(hearing.timeout(), Nanos::MAX);
    }
}
