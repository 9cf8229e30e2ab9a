//! One slot of a lane as its member sees it: at most one step under way, and the sum before it.

use weft_wire::Nanos;
use weft_wire::header::Flags;

/// A slot.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    pub(super) sent_at: Nanos,
    pub(super) deadline: Nanos,
    /// The step whose sum this slot needs next. The sum of `next - window` is kept.
    pub(super) next: u32,
    pub(super) state: State,
    /// Transmissions after the first, of any kind: the back-off.
    pub(super) repeats: u8,
    /// In `due`.
    pub(super) queued: bool,
    /// A contribution to `next` was sent in this session, so a sum of all can exist.
    pub(super) contributed: bool,
    pub(super) exponent: i8,
    pub(super) sum_exponent: i8,
    pub(super) sum_flags: Flags,
}

impl Slot {
    pub(super) fn new(step: u32) -> Self {
        Self {
            sent_at: Nanos(0),
            deadline: Nanos::MAX,
            next: step,
            state: State::Idle,
            repeats: 0,
            queued: false,
            contributed: false,
            exponent: 0,
            sum_exponent: 0,
            sum_flags: Flags::NONE,
        }
    }

    /// The step that the slot's state is about.
    pub(super) fn current(&self, window: u32) -> u32 {
        match self.state {
            State::HandOver | State::HandedOver => self.next - window,
            State::Idle | State::Contributed | State::Known => self.next,
        }
    }
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum State {
    /// Nothing sent: `next` waits in `ready`, or lies beyond the round.
    Idle,
    /// Our contribution is under way; the box has said nothing of it.
    Contributed,
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

    /// Waiting for the box's word.
    pub(super) fn under_way(self) -> bool {
        matches!(self, Self::Contributed | Self::Known | Self::HandedOver)
    }
}
