//! A source of chunks: an aggregator, or a member that is asked itself. Holds the credits that it
//! has not answered (SPEC#push "Credits").

use alloc::collections::VecDeque;

use weft_wire::Nanos;

use super::config::ServerJobConfig;
use super::group::OpenIndex;
use crate::send::path::{Overdue, Path, Sent};
use crate::send::retransmit::RttEstimator;
use crate::send::window::CongestionWindow;

/// A PULL that was not answered yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Credit {
    pub(super) group: OpenIndex,
    pub(super) chunk: u32,
    sent: Sent,
    due_at: Nanos,
    /// What was asked for after it is here.
    is_passed_over: bool,
    /// Which of the source's PULLs the last one for it was.
    serial: u64,
}

/// What an answer was.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Answered {
    /// It was asked for once.
    pub(super) is_in_turn: bool,
    /// The window was halved, for it was marked.
    pub(super) is_halved: bool,
}

/// A PULL that is due again, and what that says of the path.
#[derive(Debug)]
pub(super) struct Expired {
    pub(super) group: OpenIndex,
    pub(super) chunk: u32,
    overdue: Overdue,
}

/// How many credits a source may have, and when they are repeated.
#[derive(Clone, Copy, Debug)]
pub(super) struct SourceLimits {
    window_max: u32,
    rto_min: Nanos,
    rto_max: Nanos,
}

impl SourceLimits {
    pub(super) fn of(config: &ServerJobConfig) -> Self {
        let (rto_min, rto_max) = (Nanos(config.rto_min_ns), Nanos(config.rto_max_ns));
        Self { window_max: config.window_max, rto_min, rto_max }
    }
}

/// One source.
#[derive(Debug)]
pub(super) struct Source {
    path: Path,
    /// As they were first sent.
    credits: VecDeque<Credit>,
    /// PULLs sent.
    sent: u64,
    /// A member answers its credits as they come. An aggregator may wait for a chunk's members.
    answers_in_order: bool,
    credits_max: usize,
    /// When it last said anything, or was first asked after having nothing to answer.
    heard_at: Nanos,
    /// No credit is due before.
    due_at: Nanos,
}

impl Source {
    pub(super) fn new(limits: SourceLimits, answers_in_order: bool) -> Self {
        let SourceLimits { window_max, rto_min, rto_max } = limits;
        let initial = Nanos(rto_min.0.saturating_mul(2));
        Self {
            path: Path::new(
                RttEstimator::new(initial, rto_min, rto_max),
                CongestionWindow::probing(window_max.min(WINDOW_PLAIN), window_max),
            ),
            credits: VecDeque::with_capacity(window_max as usize),
            sent: 0,
            answers_in_order,
            credits_max: window_max as usize,
            heard_at: Nanos(0),
            due_at: Nanos::MAX,
        }
    }

    /// Whether it may be asked for another chunk. A train begins whatever the window, which cannot
    /// know a path that nothing has been sent on.
    fn has_room(&self, is_in_train: bool) -> bool {
        let room = if is_in_train { self.credits_max } else { self.path.window() as usize };
        self.credits.len() < room
    }

    /// Room for one more credit at a granted rate: of that no more is called than flows in two of
    /// the shortest round trips and a busy host's delays, for more would only wait in queues.
    pub(super) fn has_room_for(
        &self,
        is_in_train: bool,
        rate_bytes_per_sec: Option<u64>,
        frame_len: u64,
    ) -> bool {
        let most = match rate_bytes_per_sec {
            Some(rate) => {
                let shortest_ns = self.path.rtt().shortest().map_or(SHORTEST_NS_MAX, |rtt| rtt.0);
                let span_ns = DELAY_NS + 2 * u128::from(shortest_ns.min(SHORTEST_NS_MAX));
                let in_flight = u128::from(rate) * span_ns / 1_000_000_000;
                let frames = u64::try_from(in_flight).unwrap_or(u64::MAX) / frame_len.max(1);
                frames.max(WINDOW_LEAST)
            }
            None => u64::from(WINDOW_PLAIN),
        };
        self.has_room(is_in_train) && (is_in_train || (self.credits.len() as u64) < most)
    }

    pub(super) fn credits(&self) -> usize {
        self.credits.len()
    }

    /// No credit is due before.
    pub(super) fn due_at(&self) -> Nanos {
        self.due_at
    }

    /// It has said something.
    pub(super) fn hear(&mut self, now: Nanos) {
        self.heard_at = now;
    }

    /// True when it owes answers, and has said nothing at all for so long.
    pub(super) fn is_silent(&self, now: Nanos, timeout_ns: u64) -> bool {
        !self.credits.is_empty() && now.since(self.heard_at).0 >= timeout_ns
    }

    /// Counts a loss; true when that reduces the window.
    pub(super) fn lose(&mut self, now: Nanos, expired: &Expired) -> bool {
        self.path.on_timeout(now, &expired.overdue)
    }

    /// Takes note of a PULL.
    pub(super) fn send(&mut self, now: Nanos, group: OpenIndex, chunk: u32) {
        if self.credits.is_empty() {
            self.heard_at = now;
        }
        let sent = self.path.send(now);
        let due_at = self.path.deadline(&sent);
        self.sent += 1;
        let (serial, is_passed_over) = (self.sent, false);
        self.credits.push_back(Credit { group, chunk, sent, due_at, is_passed_over, serial });
        self.due_at = self.due_at.min(due_at);
    }

    /// Takes an answer; says what it was to, if that was asked for and not answered yet.
    pub(super) fn answer(
        &mut self,
        now: Nanos,
        group: OpenIndex,
        chunk: u32,
        is_marked: bool,
    ) -> Option<Answered> {
        self.heard_at = now;
        let is_it = |credit: &Credit| credit.group == group && credit.chunk == chunk;
        let at = self.credits.iter().position(is_it)?;
        let is_limited = !self.has_room(false);
        let credit = self.credits.remove(at)?;
        let is_in_turn = !credit.sent.is_repeated();
        if is_in_turn && self.answers_in_order {
            self.pass_over(now, credit.serial);
        }
        let is_halved = self.path.on_answer(now, &credit.sent, is_limited, is_marked);
        Some(Answered { is_in_turn, is_halved })
    }

    /// What was asked for before the PULL of this number, and is not here, is lost: due at once.
    fn pass_over(&mut self, now: Nanos, serial: u64) {
        let is_lost = |credit: &&mut Credit| credit.serial + REORDERED_MAX <= serial;
        let asked_before = self
            .credits
            .iter_mut()
            .take_while(|credit| credit.sent.is_repeated() || credit.serial < serial);
        for credit in asked_before.filter(is_lost) {
            credit.due_at = now;
            credit.is_passed_over = true;
            self.due_at = now;
        }
    }

    /// The first credit that is overdue, given a new deadline, and what that says of the path;
    /// `needed` says whether its chunk is still missing. Credits that are not are forgotten.
    pub(super) fn expire(
        &mut self,
        now: Nanos,
        mut needed: impl FnMut(&Credit) -> bool,
    ) -> Option<Expired> {
        if now < self.due_at {
            return None;
        }
        let mut at = 0;
        while at < self.credits.len() {
            if self.credits[at].due_at > now {
                at += 1;
            } else if needed(&self.credits[at]) {
                let credit = &mut self.credits[at];
                let mut overdue = Overdue::default();
                if core::mem::take(&mut credit.is_passed_over) {
                    overdue.add_lost(&credit.sent);
                    self.path.repeat_lost(now, &mut credit.sent);
                } else {
                    overdue.add(&credit.sent);
                    self.path.repeat(now, &mut credit.sent);
                }
                credit.due_at = self.path.deadline(&credit.sent);
                self.sent += 1;
                credit.serial = self.sent;
                return Some(Expired { group: credit.group, chunk: credit.chunk, overdue });
            } else {
                self.credits.remove(at);
            }
        }
        self.due_at = self.credits.iter().map(|credit| credit.due_at).min().unwrap_or(Nanos::MAX);
        None
    }

    /// Forgets all credits.
    pub(super) fn clear(&mut self) {
        self.credits.clear();
        self.due_at = Nanos::MAX;
    }

    /// Forgets the credits of a group.
    pub(super) fn forget(&mut self, group: OpenIndex) {
        self.credits.retain(|credit| credit.group != group);
    }
}

/// Credits of a source at its start, and the most for a group without a granted rate.
const WINDOW_PLAIN: u32 = 64;
/// Credits that a source may always have.
const WINDOW_LEAST: u64 = 16;
/// How late a busy host's threads may be: what is called ahead for them.
const DELAY_NS: u128 = 6_000_000;
/// A round trip that was never measured, or longer than this, counts as this.
const SHORTEST_NS_MAX: u64 = 500_000_000;
/// By how many places answers may overtake each other before one counts as lost, as in QUIC (RFC
/// 9002).
const REORDERED_MAX: u64 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    const GROUP: OpenIndex = OpenIndex(0);
    const FRAME_LEN: u64 = 82;

    fn source(window_max: u32, answers_in_order: bool) -> Source {
        let (rto_min, rto_max) = (Nanos::from_millis(20), Nanos::from_millis(200));
        Source::new(SourceLimits { window_max, rto_min, rto_max }, answers_in_order)
    }

    fn send(source: &mut Source, chunks: core::ops::Range<u32>) {
        chunks.for_each(|chunk| source.send(Nanos(0), GROUP, chunk));
    }

    /// How many credits it may have at this rate.
    fn room(mut source: Source, rate: Option<u64>) -> usize {
        while source.has_room_for(false, rate, FRAME_LEN) {
            source.send(Nanos(0), GROUP, 0);
        }
        source.credits()
    }

    #[test]
    fn a_window_and_a_rate_bound_what_is_asked_for() {
        assert_eq!(room(source(4, true), None), 4);
        assert_eq!(room(source(256, true), None), 64);
        // What flows in a second, two round trips that nobody measured, and 6 ms.
        assert_eq!(room(source(256, true), Some(2_446)), 30);
        assert_eq!(room(source(256, true), Some(82)), 16, "whatever the rate");
        let mut measured = source(256, true);
        measured.send(Nanos(0), GROUP, 0);
        measured.answer(Nanos::from_millis(7), GROUP, 0, false).unwrap();
        assert_eq!(room(measured, Some(82_000)), 20, "in 6 ms and twice 7");
    }

    #[test]
    fn a_window_grows_only_where_it_was_the_bound() {
        for (asked, grows) in [(64, true), (2, false)] {
            let mut source = source(256, true);
            send(&mut source, 0..asked);
            for chunk in 0..400 {
                source.answer(Nanos::from_millis(1), GROUP, chunk, false).unwrap();
                source.send(Nanos(0), GROUP, asked + chunk);
            }
            assert_eq!(source.path.window() > 64, grows, "{asked} at once");
        }
    }

    /// An aggregator answers when its members have come, in any order.
    #[test]
    fn what_a_member_passes_over_is_due_at_once() {
        let now = Nanos::from_millis(3);
        for answers_in_order in [true, false] {
            let mut source = source(256, answers_in_order);
            send(&mut source, 0..5);
            source.answer(now, GROUP, 4, false).unwrap();
            let lost = source.expire(now, |_| true).map(|expired| expired.chunk);
            assert_eq!(lost, answers_in_order.then_some(0));
            let lost = source.expire(now, |_| true).map(|expired| expired.chunk);
            assert_eq!(lost, answers_in_order.then_some(1));
            assert!(source.expire(now, |_| true).is_none(), "2 and 3 may be on the way");
        }
    }

    /// A repeat is a PULL like any other.
    #[test]
    fn a_repeat_counts_among_what_was_asked_for_since() {
        let mut source = source(256, true);
        send(&mut source, 0..4);
        let late = source.due_at();
        assert_eq!(source.expire(late, |_| true).map(|expired| expired.chunk), Some(0));
        for chunk in [4, 5] {
            source.send(late, GROUP, chunk);
        }
        source.credits.iter_mut().for_each(|credit| credit.due_at = Nanos::MAX);
        source.answer(late, GROUP, 5, false).unwrap();
        // 1, 2 and 3 were asked for before the repeat, and 3 three places before the answered.
        let mut due: alloc::vec::Vec<u32> = alloc::vec::Vec::new();
        while let Some(expired) = source.expire(late, |_| true) {
            due.push(expired.chunk);
        }
        assert_eq!(due, [1, 2, 3]);
    }

    #[test]
    fn what_is_forgotten_is_neither_counted_nor_due() {
        let mut source = source(256, false);
        send(&mut source, 0..3);
        source.send(Nanos(0), OpenIndex(1), 0);
        source.forget(GROUP);
        assert_eq!(source.credits(), 1);
        source.clear();
        assert_eq!((source.credits(), source.due_at()), (0, Nanos::MAX));
        assert!(!source.is_silent(Nanos::MAX, 1));
    }
}
