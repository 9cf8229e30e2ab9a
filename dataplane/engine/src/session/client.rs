//! The opening end of a session (SPEC#handshake): a member at its box, a leaf at its root, whoever
//! opens a channel.
//!
//! Decides which handshake datagram goes up and when, and which of those that come down is
//! believed. What one means for sums or updates is its owner's to decide. Two rules keep delayed
//! datagrams harmless: every reply echoes this life, and a WELCOME the token of the JOIN that it
//! answers, which no earlier life of the host can have given.
//!
//! | standing | goes up | ends with |
//! | --- | --- | --- |
//! | Closed | nothing | [`Client::begin`] |
//! | Opening | HELLO until CHALLENGE, then JOIN | WELCOME |
//! | Open | nothing; HELLO and JOIN after [`Client::ask`] | [`Client::begin`], [`Client::close`] |
//! | Closing | CLOSE, and what [`UnheardClose`] says | CLOSED |
//!
//! It sees bodies alone: frames, addresses and their checks are its owner's. No memory, O(1) per
//! call.

use weft_wire::hello::{Hello, Phase, Reason};
use weft_wire::{GroupId, Nanos};

use super::backoff::Backoff;
use super::probe::Probe;
use super::terms::Terms;
use crate::drops::DropReason;

/// Where the opening end of a session stands.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Standing {
    /// The handshake is under way.
    Opening,
    /// Frames may be sent.
    Open,
    /// CLOSE is under way.
    Closing,
    /// The host confirmed the CLOSE, or never will; or nothing was begun.
    Closed,
}

/// What SPEC#handshake and SPEC#timers leave to a client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClientConfig {
    /// First and longest pause between two datagrams.
    pub(crate) pause_min: Nanos,
    pub(crate) pause_max: Nanos,
    /// Datagrams without an answer before the host is no longer taken for the one that was known.
    pub(crate) unanswered_max: u32,
    /// UDP payload bytes of a padded HELLO; 0: none is sent.
    pub(crate) probe_len: u16,
    /// A JOIN says what its sender holds: the session is not open from there to the WELCOME.
    pub(crate) join_suspends: bool,
    /// A WELCOME is believed although HELLO goes again by now.
    pub(crate) takes_late_welcome: bool,
    /// Pauses are short again when HELLO goes again.
    pub(crate) doubt_shortens_pauses: bool,
    pub(crate) unheard_close: UnheardClose,
}

impl ClientConfig {
    /// A datagram every so often, up to four times as rarely; and nothing special.
    pub(crate) fn every(interval_ns: u64, probe_len: u16) -> Self {
        Self {
            pause_min: Nanos(interval_ns),
            pause_max: Nanos(interval_ns.saturating_mul(4)),
            unanswered_max: 4,
            probe_len,
            join_suspends: false,
            takes_late_welcome: false,
            doubt_shortens_pauses: false,
            unheard_close: UnheardClose::Repeat,
        }
    }
}

/// What follows on CLOSEs without an answer. A host that has begun anew does not answer them.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum UnheardClose {
    /// More of them: nobody needs what this end holds.
    Repeat,
    /// Every other one is a HELLO instead.
    AskBetween,
    /// The handshake begins anew; its owner closes again.
    BeginAnew,
}

/// The opening end of one session.
#[derive(Debug)]
pub(crate) struct Client {
    config: ClientConfig,
    life: u64,
    session: u64,
    standing: Standing,
    token: u64,
    /// The token is the present host's, as far as is known: JOIN goes, not HELLO.
    has_token: bool,
    /// A JOIN of this handshake went.
    has_joined: bool,
    /// The session is open, or closing, and a HELLO asks whether the host still knows it.
    is_asking: bool,
    terms: Option<Terms>,
    backoff: Backoff,
    /// Datagrams since the host last answered one.
    unanswered: u32,
    probe: Probe,
    asked_at: Nanos,
}

impl Client {
    /// A client that [`Client::begin`] wakes. `life` is random per life of its process, not 0.
    pub(crate) fn new(config: ClientConfig, life: u64) -> Self {
        Self {
            config,
            life,
            session: 0,
            standing: Standing::Closed,
            token: 0,
            has_token: false,
            has_joined: false,
            is_asking: false,
            terms: None,
            backoff: Backoff::new(config.pause_min, config.pause_max),
            unanswered: 0,
            probe: Probe::new(config.probe_len),
            asked_at: Nanos(0),
        }
    }

    pub(crate) fn standing(&self) -> Standing {
        self.standing
    }

    pub(crate) fn life(&self) -> u64 {
        self.life
    }

    /// The session that a JOIN resumes; 0: none.
    pub(crate) fn session(&self) -> u64 {
        self.session
    }

    /// What the last WELCOME agreed.
    pub(crate) fn terms(&self) -> Option<Terms> {
        self.terms
    }

    /// The token of the last CHALLENGE.
    pub(crate) fn token(&self) -> u64 {
        self.token
    }

    /// True when the CHALLENGE that was asked for has come.
    pub(crate) fn has_token(&self) -> bool {
        self.has_token
    }

    /// Datagrams since the host last answered one.
    pub(crate) fn unanswered(&self) -> u32 {
        self.unanswered
    }

    pub(crate) fn probe(&self) -> &Probe {
        &self.probe
    }

    /// Since when the host owes an answer. An MTU probe has its own time.
    pub(crate) fn asked_at(&self) -> Nanos {
        self.asked_at
    }

    /// When [`Client::poll`] will have something; [`Nanos::MAX`]: never.
    pub(crate) fn timeout(&self) -> Nanos {
        self.backoff.at()
    }

    /// Begins the handshake, or begins it anew, for the host does not know this session. `session`
    /// is the one that is resumed; 0: none.
    pub(crate) fn begin(&mut self, session: u64, now: Nanos) {
        self.session = session;
        self.enter(Standing::Opening, now);
    }

    /// Begins as a new life.
    pub(crate) fn begin_life(&mut self, life: u64, now: Nanos) {
        self.life = life;
        self.begin(0, now);
    }

    /// Asks the host of an open session whether it still knows it.
    pub(crate) fn ask(&mut self, now: Nanos) {
        if self.standing == Standing::Open && !self.is_asking {
            self.enter(Standing::Open, now);
            self.is_asking = true;
        }
    }

    /// The host has answered by other means.
    pub(crate) fn stop_asking(&mut self) {
        if self.standing == Standing::Open {
            self.rest(Standing::Open);
        }
    }

    /// Begins to close an open session. Who asks between its CLOSEs still takes the answer to a
    /// HELLO from before.
    pub(crate) fn close(&mut self, now: Nanos) {
        if self.standing == Standing::Open {
            let asks_on = self.is_asking && self.config.unheard_close == UnheardClose::AskBetween;
            self.enter(Standing::Closing, now);
            self.is_asking = asks_on;
        }
    }

    /// Nothing more is sent.
    pub(crate) fn end(&mut self) {
        self.rest(Standing::Closed);
    }

    /// The body of the datagram that is due, if one is, without what its owner knows: a JOIN's held
    /// steps.
    pub(crate) fn poll(&mut self, now: Nanos) -> Option<Hello> {
        if now < self.backoff.at() {
            return None;
        }
        let phase = self.next_phase(now)?;
        self.backoff.sent(now);
        self.unanswered += 1;
        Some(self.body(phase))
    }

    fn next_phase(&mut self, now: Nanos) -> Option<Phase> {
        let in_vain = self.unanswered >= self.config.unanswered_max;
        if in_vain && self.has_token {
            // The host that gave the token may be gone.
            self.has_token = false;
            self.has_joined &= self.config.takes_late_welcome;
            if self.config.doubt_shortens_pauses {
                self.backoff.start(now);
            }
        }
        match self.standing {
            Standing::Open if !self.is_asking => None,
            Standing::Closed => None,
            Standing::Opening | Standing::Open if self.has_token => Some(Phase::Join),
            Standing::Opening | Standing::Open => Some(Phase::Hello),
            Standing::Closing => match self.config.unheard_close {
                UnheardClose::AskBetween if in_vain && self.unanswered % 2 == 1 => {
                    self.is_asking = true;
                    Some(Phase::Hello)
                }
                UnheardClose::BeginAnew if in_vain => {
                    self.begin(self.session, now);
                    Some(Phase::Hello)
                }
                _ => Some(Phase::Close),
            },
        }
    }

    /// The body of a word beside the handshake that is not answered: LISTEN or DEAF.
    pub(crate) fn say(&mut self, phase: Phase) -> Hello {
        self.body(phase)
    }

    fn body(&mut self, phase: Phase) -> Hello {
        let mut body = Hello { life: self.life, ..Hello::new(phase) };
        match phase {
            Phase::Hello => body.probe_len = self.probe.next_hello(),
            Phase::Join => {
                self.has_joined = true;
                (body.token, body.session) = (self.token, self.session);
            }
            _ => {
                if let Some(terms) = self.terms {
                    (body.epoch, body.cookie_up) = (terms.epoch, terms.cookie_up);
                }
            }
        }
        body
    }

    /// Takes a body that came down in a datagram of `datagram_len` bytes of UDP payload. `Ok`: it
    /// is believed. On a WELCOME its owner calls [`Client::open`], unless the terms cannot be.
    ///
    /// # Errors
    /// The drop reason; nothing has changed.
    pub(crate) fn hear(
        &mut self,
        hello: &Hello,
        datagram_len: usize,
        now: Nanos,
    ) -> Result<(), DropReason> {
        if hello.life != self.life {
            return Err(DropReason::Handshake);
        }
        let is_shaking = self.standing == Standing::Opening || self.is_asking;
        let is_ours = hello.token == self.token;
        let is_believed = match hello.phase {
            Phase::Challenge => is_shaking && !(self.has_token && is_ours),
            Phase::Welcome => self.has_joined && is_ours,
            Phase::Waiting => self.has_joined,
            // It answers a HELLO, as a CHALLENGE would.
            Phase::Refused if hello.reason == Reason::UnknownGroup => is_shaking,
            Phase::Refused => self.has_joined,
            Phase::Closed => self.standing == Standing::Closing,
            Phase::Hello | Phase::Join | Phase::Close | Phase::Listen | Phase::Deaf => {
                return Err(DropReason::Handshake);
            }
        };
        if !is_believed {
            return Err(DropReason::Unsolicited);
        }
        match hello.phase {
            Phase::Challenge => self.take_challenge(hello, datagram_len, now),
            Phase::Waiting | Phase::Closed => self.unanswered = 0,
            _ => {}
        }
        Ok(())
    }

    fn take_challenge(&mut self, hello: &Hello, datagram_len: usize, now: Nanos) {
        self.unanswered = 0;
        let was_in_doubt = self.probe.is_in_doubt();
        let is_done = self.probe.take_answer(hello.probe_len, datagram_len);
        if was_in_doubt || !is_done {
            self.asked_at = now;
        }
        if !is_done {
            return self.backoff.hurry(now);
        }
        (self.token, self.has_token) = (hello.token, true);
        if self.config.join_suspends {
            (self.standing, self.is_asking) = (Standing::Opening, false);
        }
        self.backoff.start(now);
    }

    /// Opens on a WELCOME that was believed and came under this group id. True when the host never
    /// lost this session.
    pub(crate) fn open(&mut self, welcome: &Hello, group: GroupId) -> bool {
        self.session = welcome.session;
        self.rest(Standing::Open);
        let terms = Some(Terms::of(welcome, group));
        core::mem::replace(&mut self.terms, terms) == terms
    }

    /// Goes where something is sent, at once.
    fn enter(&mut self, standing: Standing, now: Nanos) {
        self.rest(standing);
        self.backoff.start(now);
        self.asked_at = now;
    }

    /// Goes where nothing is sent.
    fn rest(&mut self, standing: Standing) {
        self.standing = standing;
        (self.has_token, self.has_joined, self.is_asking) = (false, false, false);
        self.unanswered = 0;
        self.backoff.stop();
    }
}

#[cfg(test)]
mod tests;
