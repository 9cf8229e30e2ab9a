//! One slot of a lane as its member sees it: at most one step under way, and the sum before it;
//! and what is said about a slot's step, up and down.

use weft_wire::Nanos;
use weft_wire::header::Flags;

use crate::send::path::Sent;

/// A slot.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    /// What is under way; its repeats are of any kind.
    pub(super) sent: Sent,
    pub(super) deadline: Nanos,
    /// The step whose sum this slot needs next. The sum of `next - window` is kept.
    pub(super) next: u32,
    pub(super) state: State,
    /// In `due`.
    pub(super) queued: bool,
    /// The step that was put into `ready` last and is there yet.
    pub(super) listed: Option<u32>,
    /// A contribution to `next` was sent in this session, so a sum of all can exist.
    pub(super) contributed: bool,
    pub(super) exponent: i8,
    pub(super) sum_exponent: i8,
    pub(super) sum_flags: Flags,
    /// The sum kept is in its place, and not here.
    pub(super) in_place: bool,
}

impl Slot {
    pub(super) fn new(step: u32) -> Self {
        Self {
            sent: Sent::default(),
            deadline: Nanos::MAX,
            next: step,
            state: State::Idle,
            queued: false,
            listed: None,
            contributed: false,
            exponent: 0,
            sum_exponent: 0,
            sum_flags: Flags::NONE,
            in_place: false,
        }
    }

    /// Our contribution leaves.
    pub(super) fn contribute(&mut self, exponent: i8) {
        self.state = State::Contributed;
        self.contributed = true;
        self.exponent = exponent;
    }

    /// The step that the slot's state is about.
    pub(super) fn current(&self, window: u32) -> u32 {
        match self.state {
            State::HandOver | State::HandedOver => self.next - window,
            State::Idle | State::Contributed | State::Lost | State::Known => self.next,
        }
    }
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum State {
    /// Nothing sent: `next` waits in `ready`, or lies beyond the round.
    Idle,
    /// Our contribution is under way; the box has said nothing of it.
    Contributed,
    /// Our contribution, or its sum, or another member's contribution is lost: ours waits in
    /// `ready`.
    Lost,
    /// The box has our contribution and waits for others.
    Known,
    /// The kept sum is wanted and waits in `ready`.
    HandOver,
    /// The kept sum was sent up and has not come down yet.
    HandedOver,
}

impl State {
    /// On its way to the box, as far as we know.
    pub(super) fn in_flight(self) -> bool {
        matches!(self, Self::Contributed | Self::HandedOver)
    }

    /// Waiting for the box's word, with a time of its own to ask again. A contribution has none:
    /// it is lost when what left later is answered.
    pub(super) fn has_deadline(self) -> bool {
        matches!(self, Self::Known | Self::HandedOver)
    }
}

/// What to send next. Nothing has changed until [`Steps::sent`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Action {
    pub(super) step: u32,
    pub(super) send: Send,
    pub(super) repeat: bool,
}

/// The three things that a member sends about a step.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Send {
    Contribution,
    Status,
    HandOver,
}

/// What an ANSWER was.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Answer {
    /// A sum that was missing; with what was in flight until then and when a step left last, and
    /// what it answers, unless a HAVE has spoken of that. `is_awaited`: one has come since that
    /// left, so that the time since may be another's delay. `was_lost`: it was taken for lost, and
    /// waited for its repeat.
    New {
        sent: Option<Sent>,
        is_awaited: bool,
        was_lost: bool,
        in_flight: u32,
        used: u32,
    },
    /// A sum that this member handed over.
    HandedOver,
    Duplicate,
    /// A step that this member did not contribute to.
    Unexpected,
}

/// What a HAVE was.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Have {
    /// The contribution is there, and this is news.
    Known(Sent),
    /// The contribution is lost; it goes again.
    Lost,
    Ignored,
}

/// A sum that has come.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sum<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) exponent: i8,
    pub(super) flags: Flags,
    /// The payload keeps it until the round ends.
    pub(super) in_place: bool,
}

/// A kept sum.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held<'a> {
    /// `None`: the payload has it in its place.
    pub(super) sum: Option<&'a [u8]>,
    pub(super) exponent: i8,
    pub(super) flags: Flags,
}
