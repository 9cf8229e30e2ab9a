//! One rule for all that is sent over a path and waits for an answer: a worker's contributions, a
//! pushed update, a model that is pulled, a server's credits, a replica's questions (SPEC#member,
//! SPEC#push).
//!
//! Decides when to send again, and how much may be out.
//!
//! - **Timeout.** RFC 6298 with Karn's rule. What was sent once and is answered is a sample. What
//!   becomes overdue doubles the timeout, for new data too, and it stays doubled until the next
//!   sample (5.5 to 5.7): a round trip that has outgrown the timeout would never be measured
//!   otherwise, and everything would go twice for ever. All that was sent under one timeout
//!   doubles it once. What is overdue although a round trip was measured since it left is lost,
//!   and doubles its own timeout alone (the timer of 5.3 begins anew with each new answer).
//! - **Window.** The first timeout of anything halves it, and so does a mark on a new answer, at
//!   most once a round trip. It is given back when the answer to a repeat comes sooner after the
//!   repeat than any round trip takes, for then it answers what went before (RFC 4015 without its
//!   time stamps); or when the other end says of a first repeat that it had it already.
//!
//! O(1) per call, no memory.

use weft_wire::Nanos;

use super::retransmit::RttEstimator;
use super::window::CongestionWindow;

/// Something that was sent and waits for an answer.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Sent {
    /// When it was sent last.
    at: Nanos,
    /// How often it was sent before that.
    repeats: u8,
    /// How often its timeout was doubled.
    doublings: u8,
}

impl Sent {
    /// True when it was sent more than once.
    #[must_use]
    pub fn is_repeated(&self) -> bool {
        self.repeats > 0
    }

    /// True when it was sent by then.
    #[must_use]
    pub fn is_before(&self, at: Option<Nanos>) -> bool {
        at.is_some_and(|at| self.at <= at)
    }

    /// True when what comes at `now` comes sooner after this than `span`.
    fn is_within(&self, now: Nanos, span: Option<Nanos>) -> bool {
        span.is_some_and(|span| now.since(self.at) < span)
    }

    /// The round trip of its answer; none if that may answer another transmission (Karn).
    fn round_trip(&self, now: Nanos) -> Option<Nanos> {
        (!self.is_repeated()).then(|| now.since(self.at))
    }
}

/// What one look at the clock found overdue.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Overdue {
    /// How many.
    pub count: u32,
    has_first: bool,
    /// Of those whose timeout has passed, the one that was sent last.
    latest: Option<Sent>,
}

impl Overdue {
    /// The timeout of one more has passed.
    pub fn add(&mut self, sent: &Sent) {
        self.add_lost(sent);
        if self.latest.is_none_or(|latest| latest.at <= sent.at) {
            self.latest = Some(*sent);
        }
    }

    /// The timeout of one more has passed, and nothing says that it is lost: it is asked for, and
    /// the window stays.
    pub fn add_probe(&mut self, sent: &Sent) {
        self.count += 1;
        self.latest = Some(*sent);
    }

    /// One more is lost, and known to be before its timeout: what left later was answered.
    pub fn add_lost(&mut self, sent: &Sent) {
        self.count += 1;
        self.has_first |= !sent.is_repeated();
    }
}

/// Timeout and window of one path.
#[derive(Clone, Copy, Debug)]
pub struct Path {
    rtt: RttEstimator,
    /// When the last round trip was measured.
    sampled_at: Nanos,
    window: CongestionWindow,
}

impl Path {
    /// A path of which nothing is known.
    #[must_use]
    pub fn new(rtt: RttEstimator, window: CongestionWindow) -> Self {
        Self { rtt, sampled_at: Nanos(0), window }
    }

    /// Begins with another window; what is known of the time stays.
    pub fn set_window(&mut self, window: CongestionWindow) {
        self.window = window;
    }

    /// How many may be out.
    #[must_use]
    pub fn window(&self) -> u32 {
        self.window.size()
    }

    /// The estimate of its time.
    #[must_use]
    pub fn rtt(&self) -> &RttEstimator {
        &self.rtt
    }

    /// Something is sent for the first time.
    #[must_use]
    pub fn send(&self, now: Nanos) -> Sent {
        Sent { at: now, repeats: 0, doublings: self.rtt.doublings() }
    }

    /// It is sent again: its timeout is doubled each time, however the others fare.
    pub fn repeat(&self, now: Nanos, sent: &mut Sent) {
        let repeats = sent.repeats.saturating_add(1);
        *sent = Sent { at: now, repeats, doublings: self.rtt.doublings().max(repeats) };
    }

    /// When it is overdue.
    #[must_use]
    pub fn deadline(&self, sent: &Sent) -> Nanos {
        sent.at.saturating_add(self.rtt.timeout(sent.doublings))
    }

    /// When it is overdue if it is waited for from now on.
    #[must_use]
    pub fn deadline_from(&self, now: Nanos, sent: &Sent) -> Nanos {
        now.saturating_add(self.rtt.timeout(sent.doublings))
    }

    /// How long what was sent may go unanswered when the last answer came at `answered_at`: the
    /// timer begins anew with each (RFC 6298, 5.3).
    #[must_use]
    pub fn quiet_until(&self, sent: &Sent, answered_at: Nanos) -> Nanos {
        let doublings = sent.doublings.max(self.rtt.doublings());
        sent.at.max(answered_at).saturating_add(self.rtt.timeout(doublings))
    }

    /// Until when answers to what left before a repeat would have followed the repeat's, at
    /// `answered_at`.
    #[must_use]
    pub fn doubted_until(&self, answered_at: Nanos) -> Nanos {
        answered_at.saturating_add(self.rtt.timeout(0))
    }

    /// How much later than what left after it an answer may come (RFC 8985, 7.2: a quarter of the
    /// round trip).
    #[must_use]
    pub fn reordering(&self) -> Nanos {
        Nanos(self.rtt.round_trip().0 / 4)
    }

    /// What is answered may have waited for others, so its time is no sample; but a short one shows
    /// that the timeout is long enough.
    pub fn on_awaited_answer(&mut self, now: Nanos, sent: &Sent) {
        if !sent.is_repeated() && sent.is_within(now, Some(self.rtt.timeout(0))) {
            self.rtt.end_back_off();
        }
    }

    /// Takes what is overdue without a word. True when the window was halved.
    pub fn on_timeout(&mut self, now: Nanos, overdue: &Overdue) -> bool {
        // What was measured since it left shows that the timeout was long enough: it is lost.
        if let Some(latest) = overdue.latest.filter(|latest| latest.at >= self.sampled_at) {
            self.rtt.back_off(latest.doublings);
        }
        overdue.has_first && self.window.on_timeout(now, self.rtt.round_trip())
    }

    /// Takes the first answer to what was sent. `is_limited`: the window was full until then;
    /// `is_marked`: it met congestion. True when the window was halved.
    pub fn on_answer(
        &mut self,
        now: Nanos,
        sent: &Sent,
        is_limited: bool,
        is_marked: bool,
    ) -> bool {
        match sent.round_trip(now) {
            Some(rtt) => self.sample(now, rtt),
            None if sent.is_within(now, self.rtt.shortest()) => self.window.on_spurious_timeout(),
            None => {}
        }
        self.on_late_answer(now, is_limited, is_marked)
    }

    /// The same for an answer whose time tells nothing: the other end has said before that it waits
    /// for others.
    pub fn on_late_answer(&mut self, now: Nanos, is_limited: bool, is_marked: bool) -> bool {
        if is_marked {
            return self.on_congestion(now);
        }
        self.window.on_answer(is_limited);
        false
    }

    /// Takes the other end's word that it has what was sent, and had it before a repeat, if there
    /// was one. After several it is not known which of them it had.
    pub fn on_have(&mut self, now: Nanos, sent: &Sent) {
        match sent.round_trip(now) {
            Some(rtt) => self.sample(now, rtt),
            None if sent.repeats == 1 => {
                self.window.on_spurious_timeout();
                // It answers the repeat. In time, so others are late, not the path.
                if sent.is_within(now, Some(self.rtt.timeout(0))) {
                    self.rtt.end_back_off();
                }
            }
            None => {}
        }
    }

    /// What was taken for lost was answered before it was sent again.
    pub fn on_found(&mut self) {
        self.window.on_spurious_timeout();
    }

    /// True for an answer that comes sooner after a repeat than any round trip takes: it answers
    /// what went before.
    #[must_use]
    pub fn is_early(&self, now: Nanos, sent: &Sent) -> bool {
        sent.is_repeated() && sent.is_within(now, self.rtt.shortest())
    }

    /// Takes the proof that nothing was lost since the window was of this size.
    pub fn restore_window(&mut self, size: u32) {
        self.window.restore(size);
    }

    fn sample(&mut self, now: Nanos, rtt: Nanos) {
        self.rtt.sample(rtt);
        self.sampled_at = now;
    }

    /// Takes a loss that is certain, or a mark. True when the window was halved.
    pub fn on_congestion(&mut self, now: Nanos) -> bool {
        self.window.on_congestion(now, self.rtt.round_trip())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn path(window: u32) -> Path {
        let ms = Nanos::from_millis;
        let rtt = RttEstimator::new(ms(20), ms(1), ms(1_000));
        Path::new(rtt, CongestionWindow::new(window, window))
    }

    fn overdue(sent: &[Sent]) -> Overdue {
        let mut overdue = Overdue::default();
        sent.iter().for_each(|sent| overdue.add(sent));
        overdue
    }

    fn timeout_ms(path: &Path) -> u64 {
        path.deadline(&path.send(Nanos(0))).0 / MS
    }

    #[test]
    fn the_timeout_stays_doubled_for_new_data_until_a_clean_sample() {
        let mut path = path(16);
        assert_eq!(timeout_ms(&path), 20);
        let mut sent = [path.send(Nanos(0)); 3];
        let early = path.send(Nanos(MS));
        assert!(path.on_timeout(Nanos(20 * MS), &overdue(&sent)));
        assert_eq!(timeout_ms(&path), 40, "three at once double it once");
        assert!(!path.on_timeout(Nanos(21 * MS), &overdue(&[early])));
        assert_eq!(timeout_ms(&path), 40, "so does a fourth that left under the same");
        path.repeat(Nanos(20 * MS), &mut sent[0]);
        assert!(!path.on_timeout(Nanos(60 * MS), &overdue(&sent[..1])), "halved by it before");
        assert_eq!(timeout_ms(&path), 80);
        path.on_answer(Nanos(61 * MS), &sent[0], false, false);
        assert_eq!(timeout_ms(&path), 80, "whose answer it is cannot be known");
        let clean = path.send(Nanos(60 * MS));
        path.on_answer(Nanos(66 * MS), &clean, false, false);
        assert_eq!(timeout_ms(&path), 18, "three times a first round trip of 6 ms");
    }

    #[test]
    fn an_answer_too_early_for_the_repeat_gives_the_window_back() {
        for (answered_ms, window) in [(5, 16), (6, 8)] {
            let mut path = path(16);
            let first = path.send(Nanos(MS));
            path.on_answer(Nanos(6 * MS), &first, false, false);
            let mut sent = path.send(Nanos(10 * MS));
            assert!(path.on_timeout(Nanos(30 * MS), &overdue(&[sent])));
            path.repeat(Nanos(30 * MS), &mut sent);
            path.on_answer(Nanos(30 * MS + answered_ms * MS - 1), &sent, false, false);
            assert_eq!(path.window(), window, "{answered_ms} ms after the repeat");
        }
    }

    #[test]
    fn nothing_is_early_before_a_round_trip_was_measured() {
        let mut path = path(16);
        let mut sent = path.send(Nanos(0));
        path.on_timeout(Nanos(20 * MS), &overdue(&[sent]));
        path.repeat(Nanos(20 * MS), &mut sent);
        path.on_answer(Nanos(20 * MS), &sent, false, false);
        assert_eq!(path.window(), 8);
    }

    #[test]
    fn have_of_a_first_repeat_gives_the_window_back_and_of_a_later_one_does_not() {
        for (repeats, window) in [(1, 16), (2, 8)] {
            let mut path = path(16);
            let mut sent = path.send(Nanos(0));
            path.on_timeout(Nanos(20 * MS), &overdue(&[sent]));
            for repeat in 1..=repeats {
                path.repeat(Nanos(40 * MS * repeat), &mut sent);
            }
            path.on_have(Nanos(500 * MS), &sent);
            assert_eq!(path.window(), window);
            assert_eq!(timeout_ms(&path), 40);
        }
    }

    #[test]
    fn what_is_known_to_be_lost_before_its_time_halves_and_does_not_double() {
        let mut path = path(16);
        let mut lost = Overdue::default();
        lost.add_lost(&path.send(Nanos(0)));
        assert!(path.on_timeout(Nanos(5 * MS), &lost));
        assert_eq!((path.window(), timeout_ms(&path)), (8, 20));
    }

    #[test]
    fn a_mark_halves_and_does_not_grow() {
        let mut path = path(16);
        let sent = path.send(Nanos(0));
        assert!(path.on_answer(Nanos(MS), &sent, true, true));
        assert!(!path.on_answer(Nanos(MS), &sent, true, true));
        assert_eq!(path.window(), 8);
    }
}
