//! Questions to the switch that are not answered yet, and whether it still is the one it was.
//!
//! Decides when a question goes out again, and that a switch with another life, or one that answers
//! no more, has restarted. Invariant: seeds go out only while the switch keeps this box's life.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use weft_wire::Nanos;

use super::op::{Echo, Op};
use crate::role::LeaseIndex;

/// What a question is for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum For {
    Life,
    /// A row waits for it.
    Row {
        lease_epoch: u32,
    },
    /// Members wait for this step's answer.
    HandOver {
        lease_epoch: u32,
        lease: LeaseIndex,
        step: u32,
    },
}

impl For {
    pub(super) const fn lease_epoch(self) -> Option<u32> {
        match self {
            Self::Life => None,
            Self::Row { lease_epoch } | Self::HandOver { lease_epoch, .. } => Some(lease_epoch),
        }
    }
}

/// A question.
#[derive(Clone, Copy, Debug)]
pub(super) struct Question {
    pub(super) op: Op,
    pub(super) whose: For,
}

#[derive(Clone, Copy, Debug)]
struct Flying {
    question: Question,
    nonce: u32,
    since: Nanos,
    due: Nanos,
    interval_ns: u64,
}

/// Why the switch is not what it was.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Lost {
    /// It keeps another life: it has restarted, or another program was put into it.
    OtherLife,
    /// It does not answer any more.
    Silent,
    /// It has answered no op frame yet.
    NeverAnswered,
    /// It refused to remove what it was told to hold.
    Removal,
}

impl core::fmt::Display for Lost {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::OtherLife => "the switch has restarted: it keeps another life",
            Self::Silent => {
                "the switch answers no op frames any more: it has died, or has more frames to \
                 forward than it can"
            }
            Self::NeverAnswered => {
                "the switch answers no op frames; is switch.cpu_port the port of its program?"
            }
            Self::Removal => "the switch does not remove an entry that it was told to hold",
        })
    }
}

/// The questions of a box to its switch.
#[derive(Debug)]
pub(super) struct Ops {
    life: u64,
    /// The switch has said that it keeps this life.
    is_kept: bool,
    waiting: VecDeque<Question>,
    flying: Vec<Flying>,
    next_nonce: u32,
    ask_at: Nanos,
    lost: Option<Lost>,
}

impl Ops {
    /// `life` must differ from start to start.
    pub(super) fn new(life: u64, nonce: u32) -> Self {
        let mut waiting = VecDeque::new();
        waiting.push_back(Question { op: Op::SetLife(life), whose: For::Life });
        Self {
            life,
            is_kept: false,
            waiting,
            flying: Vec::with_capacity(FLYING_MAX),
            next_nonce: nonce,
            ask_at: Nanos::MAX,
            lost: None,
        }
    }

    /// True when the switch is known to be this box's.
    pub(super) fn is_kept(&self) -> bool {
        self.is_kept
    }

    pub(super) fn lost(&self) -> Option<Lost> {
        self.lost
    }

    pub(super) fn lose(&mut self, why: Lost) {
        self.lost.get_or_insert(why);
    }

    pub(super) fn ask(&mut self, question: Question) {
        self.waiting.push_back(question);
    }

    /// True while somebody waits for an answer of this kind.
    pub(super) fn any(&self, is_it: impl Fn(For) -> bool) -> bool {
        let flying = self.flying.iter().map(|flying| flying.question.whose);
        flying.chain(self.waiting.iter().map(|question| question.whose)).any(is_it)
    }

    /// Asks no more for an installation that is over.
    pub(super) fn forget(&mut self, lease_epoch: u32) {
        self.waiting.retain(|question| question.whose.lease_epoch() != Some(lease_epoch));
        self.flying.retain(|flying| flying.question.whose.lease_epoch() != Some(lease_epoch));
    }

    /// Takes an echo; says what was waiting for it.
    pub(super) fn handle_echo(&mut self, now: Nanos, echo: Echo) -> Option<For> {
        let at = self.flying.iter().position(|flying| flying.nonce == echo.nonce)?;
        if echo.life != self.life {
            self.lose(Lost::OtherLife);
            return None;
        }
        let whose = self.flying.swap_remove(at).question.whose;
        if whose == For::Life {
            self.is_kept = true;
            self.ask_at = now.saturating_add(ASK_EVERY);
        }
        Some(whose)
    }

    /// The next question that is due, and its nonce.
    pub(super) fn poll(&mut self, now: Nanos) -> Option<(Question, u32)> {
        if self.lost.is_some() {
            return None;
        }
        if now >= self.ask_at {
            self.ask_at = Nanos::MAX;
            self.waiting.push_front(Question { op: Op::AskLife, whose: For::Life });
        }
        if let Some(flying) = self.flying.iter_mut().find(|flying| flying.due <= now) {
            if now.since(flying.since) >= SILENT_AFTER {
                self.lost = Some(if self.is_kept { Lost::Silent } else { Lost::NeverAnswered });
                return None;
            }
            flying.interval_ns = (flying.interval_ns * 2).min(AGAIN_MAX_NS);
            flying.due = now.saturating_add(Nanos(flying.interval_ns));
            return Some((flying.question, flying.nonce));
        }
        let may_ask = self.flying.len() < FLYING_MAX
            && (self.is_kept || self.waiting.front()?.whose == For::Life);
        let question = if may_ask { self.waiting.pop_front()? } else { return None };
        let nonce = self.next_nonce;
        self.next_nonce = nonce.wrapping_add(1);
        let due = now.saturating_add(Nanos(AGAIN_MIN_NS));
        let flying = Flying { question, nonce, since: now, due, interval_ns: AGAIN_MIN_NS };
        self.flying.push(flying);
        Some((question, nonce))
    }

    /// When [`Ops::poll`] will have something.
    pub(super) fn timeout(&self) -> Nanos {
        if self.lost.is_some() {
            return Nanos::MAX;
        }
        let is_ready = |question: &Question| self.is_kept || question.whose == For::Life;
        if self.flying.len() < FLYING_MAX && self.waiting.front().is_some_and(is_ready) {
            return Nanos(0);
        }
        let again = self.flying.iter().map(|flying| flying.due).min().unwrap_or(Nanos::MAX);
        again.min(self.ask_at)
    }
}

/// Questions under way at a time: a switch in software has short queues.
const FLYING_MAX: usize = 32;
/// A question goes out again after this, doubling.
const AGAIN_MIN_NS: u64 = 20_000_000;
/// The longest time between two of them.
const AGAIN_MAX_NS: u64 = 320_000_000;
/// How often the switch is asked for its life.
const ASK_EVERY: Nanos = Nanos::from_millis(250);
/// A switch that has not answered a question for this long has restarted.
const SILENT_AFTER: Nanos = Nanos::from_millis(2_000);
