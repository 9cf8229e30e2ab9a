//! Seen already? The first stage: from the tag and the contributor bitmap alone, never from the
//! bitmap without the tag (PROTOCOL section 1 has the counterexample).

use weft_wire::Members;

use super::Slots;

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
    if bank.is_of(step) {
        if bank.members.contains(bit) { Seen::Repeat } else { Seen::New }
    } else if slots.is_claimable(step) {
        Seen::Claimable
    } else {
        Seen::Foreign
    }
}

/// How what a bank holds relates to the members of its group.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Held {
    /// Some of them.
    Part,
    /// All of them.
    Full,
    /// One who is no member any more.
    Outside,
}

/// Compares contributors with a mask.
#[inline]
#[must_use]
pub fn hold(members: Members, mask: Members) -> Held {
    if mask.is_empty() || !mask.contains(members) {
        Held::Outside
    } else if members == mask {
        Held::Full
    } else {
        Held::Part
    }
}
