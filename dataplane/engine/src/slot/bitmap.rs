//! Seen already? The first stage: from the tag and the contributor bitmap alone, never from the
//! bitmap without the tag (PROTOCOL section 1 has the counterexample).

use weft_wire::Members;

use super::{Slots, State};

/// How a step and a rank relate to the bank that arithmetic chose.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Seen {
    /// The bank is free for this step.
    Claimable,
    /// The bank holds this step, without this rank.
    New,
    /// The bank holds this step, with this rank.
    Repeat,
    /// The bank holds another step and this one may not take it.
    Foreign,
}

/// Looks a rank's bit up in the bank of `step`.
#[inline]
#[must_use]
pub fn look(slots: &Slots, step: u32, bit: Members) -> Seen {
    let bank = slots.bank(slots.locate(step));
    if bank.state != State::Empty && bank.step == step {
        if bank.members.contains(bit) { Seen::Repeat } else { Seen::New }
    } else if slots.is_claimable(step) {
        Seen::Claimable
    } else {
        Seen::Foreign
    }
}
