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
//! - **Repeats.** What its timeout has made overdue waits twice as long each time; what is known to
//!   be lost, for what left later was answered, has the timeout of new data. No timeout is doubled
//!   twice while losses are tolerated (`share.rs`).
//! - **Window.** The first timeout of anything halves it, and so does a mark on a new answer, at
//!   most once a round trip. It is given back when the answer to a repeat comes sooner after the
//!   repeat than any round trip takes, for then it answers what went before (RFC 4015 without its
//!   time stamps); or when the other end says of a first repeat that it had it already. What was
//!   lost by evidence must all have been found: one of many that are found says nothing of the
//!   others. A queue that is about to overflow takes a little of it ([`super::delay`]). Both are a
//!   member's alone: see SPEC for why. All others undo halvings by which no smaller share is lost
//!   (`share.rs`).
//!
//! O(1) per call, no memory.

use weft_wire::Nanos;

use super::delay::{Advice, Delay};
use super::retransmit::RttEstimator;
use super::share::LossShare;
use super::window::CongestionWindow;

/// Something that was sent and waits for an answer.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Sent {
    /// When it was sent last.
    at: Nanos,
    /// How often it was sent before that.
    repeats: u8,
    /// How often its timeout has passed since something said that the path carries.
    timeouts: u8,
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
    /// All but those that are only asked for.
    losses: u32,
    /// Those that are known to be lost and were sent once.
    lost: u32,
    /// Of those whose timeout has passed, the one that was sent last.
    latest: Option<Sent>,
}

impl Overdue {
    /// True when a timeout has passed: not all of them are known to be lost.
    #[must_use]
    pub fn has_late(&self) -> bool {
        self.latest.is_some()
    }

    /// The timeout of one more has passed.
    pub fn add(&mut self, sent: &Sent) {
        self.count += 1;
        self.losses += 1;
        self.has_first |= !sent.is_repeated();
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
        self.losses += 1;
        self.has_first |= !sent.is_repeated();
        self.lost += u32::from(!sent.is_repeated());
    }
}

/// Timeout and window of one path.
#[derive(Clone, Copy, Debug)]
pub struct Path {
    rtt: RttEstimator,
    /// When the last round trip was measured.
    sampled_at: Nanos,
    window: CongestionWindow,
    losses: LossShare,
    /// None: loss alone counts.
    delay: Option<Delay>,
}

impl Path {
    /// A path of which nothing is known.
    #[must_use]
    pub fn new(rtt: RttEstimator, window: CongestionWindow) -> Self {
        Self { rtt, sampled_at: Nanos(0), window, losses: LossShare::new(), delay: None }
    }

    /// The same, heeding round trips too, and undoing losses by evidence only when all of a row
    /// were none.
    #[must_use]
    pub fn heeding_delay(self) -> Self {
        Self { delay: Some(Delay::new()), ..self }
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

    /// True when the window was halved at some time, be it in error.
    #[must_use]
    pub fn was_halved(&self) -> bool {
        self.window.was_halved()
    }

    /// The estimate of its time.
    #[must_use]
    pub fn rtt(&self) -> &RttEstimator {
        &self.rtt
    }

    /// Something is sent for the first time.
    #[must_use]
    pub fn send(&self, now: Nanos) -> Sent {
        Sent { at: now, repeats: 0, timeouts: 0, doublings: self.rtt.doublings() }
    }

    /// It is sent again, for its timeout has passed: that is doubled each time, however the others
    /// fare.
    pub fn repeat(&self, now: Nanos, sent: &mut Sent) {
        let repeats = sent.repeats.saturating_add(1);
        let timeouts = sent.timeouts.saturating_add(1);
        let doublings = self.rtt.doublings().max(timeouts.min(self.losses.doublings_max()));
        *sent = Sent { at: now, repeats, timeouts, doublings };
    }

    /// It is sent again, for it is known to be lost: what left later was answered, so the path
    /// carries, and the timeout is that of new data.
    pub fn repeat_lost(&self, now: Nanos, sent: &mut Sent) {
        let repeats = sent.repeats.saturating_add(1);
        *sent = Sent { repeats, ..self.send(now) };
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
    /// `answered_at`. The time of what was `sent` later begins then: before, there was nothing to
    /// wait for.
    #[must_use]
    pub fn doubted_until(&self, sent: &Sent, answered_at: Nanos) -> Nanos {
        sent.at.max(answered_at).saturating_add(self.rtt.timeout(0))
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
        let may_double = self.rtt.doublings() < self.losses.doublings_max();
        if let Some(latest) = overdue.latest.filter(|it| may_double && it.at >= self.sampled_at) {
            self.rtt.back_off(latest.doublings);
        }
        self.losses.on_losses(now, overdue.losses);
        if !overdue.has_first || !self.losses.is_heeded() {
            return false;
        }
        let round_trip = self.rtt.round_trip();
        let before = self.window.size();
        let is_in_row = self.window.is_in_row(now, round_trip);
        // Any word of what is merely late undoes its timeout. What is lost by evidence may be
        // another member's or ours, each by itself.
        let charge = if self.delay.is_some() { overdue.lost.max(1) } else { 0 };
        let is_halved = self.window.on_timeout(now, round_trip, charge);
        if is_halved && self.delay.is_none() {
            self.losses.on_halved(now, before, self.window.size(), round_trip);
        }
        if let (true, Some(delay)) = (is_halved, &mut self.delay) {
            delay.on_loss(now, is_in_row);
        }
        is_halved
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
        let mut may_grow = is_limited;
        match sent.round_trip(now) {
            Some(rtt) => {
                self.sample(now, rtt, sent.at);
                may_grow &= !self.delay.is_some_and(|delay| delay.is_over());
            }
            None if sent.is_within(now, self.rtt.shortest()) => self.on_spurious_timeout(),
            None => {}
        }
        self.on_late_answer(now, may_grow, is_marked)
    }

    /// The same for an answer whose time tells nothing: the other end has said before that it waits
    /// for others.
    pub fn on_late_answer(&mut self, now: Nanos, is_limited: bool, is_marked: bool) -> bool {
        if is_marked {
            return self.window.on_congestion(now, self.rtt.round_trip());
        }
        self.window.on_answer(is_limited && self.window.size() < self.losses.window_max());
        if let Some(size) = self.losses.on_answer(now) {
            self.restore_window(size);
        }
        false
    }

    /// Takes the other end's word that it has what was sent, and had it before a repeat, if there
    /// was one. After several it is not known which of them it had.
    pub fn on_have(&mut self, now: Nanos, sent: &Sent) {
        match sent.round_trip(now) {
            Some(rtt) => self.sample(now, rtt, sent.at),
            None if sent.repeats == 1 => {
                self.on_spurious_timeout();
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
        self.on_spurious_timeout();
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
        self.on_no_loss();
    }

    fn sample(&mut self, now: Nanos, rtt: Nanos, sent_at: Nanos) {
        self.rtt.sample(rtt);
        self.sampled_at = now;
        let advice = self.delay.as_mut().map(|delay| delay.sample(now, sent_at));
        match advice.unwrap_or(Advice::None) {
            Advice::None | Advice::Keep => {}
            Advice::Ease { is_first } => self.window.ease(is_first),
            Advice::GiveBack => self.window.undo_easing(),
        }
    }

    fn on_spurious_timeout(&mut self) {
        if self.window.on_spurious_timeout() {
            self.on_no_loss();
        }
    }

    fn on_no_loss(&mut self) {
        self.losses.on_no_loss();
        if let Some(delay) = &mut self.delay {
            delay.on_no_loss();
        }
    }

    /// Takes a loss that is certain. True when the window was halved.
    pub fn on_congestion(&mut self, now: Nanos) -> bool {
        let is_halved = self.window.on_congestion(now, self.rtt.round_trip());
        if let (true, Some(delay)) = (is_halved, &mut self.delay) {
            delay.on_loss(now, false);
        }
        is_halved
    }
}

#[cfg(test)]
mod tests;
