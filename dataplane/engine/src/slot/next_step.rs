//! What comes of a frame: the last stage, a pure function of the bank's state and of how the frame
//! relates to the bank. This is SPEC#slot's and SPEC#push's table; `proto/vectors/slot.toml` has it
//! cell by cell, with what is counted.

use super::State;
use super::bitmap::{Held, Seen};
use crate::drops::DropReason;

/// A frame, and how it relates to the bank that arithmetic chose.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Event {
    /// CONTRIB.
    Contribution(Seen),
    /// CONTRIB of a rank not yet in the bank, of another length than the bank's.
    Differing,
    /// STATUS: it changes nothing.
    Status(Seen),
    /// A member's ANSWER.
    HandOver(Seen),
    /// The root's ANSWER to a leaf.
    Answer(Seen),
    /// The server's PULL.
    Credit(Held),
}

/// What to do with a frame, and what to send.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum NextStep {
    /// First contribution of a step: store it.
    Claim,
    /// Further contribution: add it.
    Add,
    /// Keep the sum that it carries, and send it to all.
    Keep,
    /// Tell the sender who is in. A credit is remembered.
    Have,
    /// HAVE, and send the sum up again (leaf only).
    HaveAndResend,
    /// Give the sender the kept answer.
    KeptAnswer,
    /// Send the sum up.
    SumUp,
    /// Send the sum up again.
    SumUpAgain,
    /// Tell the sender that its step is not current, or its sum not wanted.
    Stale,
    /// Refuse the step for good, and answer MISMATCH.
    Refuse,
    /// Answer MISMATCH.
    Mismatch,
    /// Refuse it without a word.
    Drop(DropReason),
}

/// Decides what comes of a frame. `completed_it`: its sender's contribution completed the bank.
#[must_use]
pub const fn transition(state: State, event: Event, completed_it: bool) -> NextStep {
    match (event, state) {
        (Event::Differing, State::Collecting) => NextStep::Refuse,
        (Event::Differing, _) => NextStep::Mismatch,
        (Event::Contribution(Seen::Claimable), _) => NextStep::Claim,
        (Event::Contribution(Seen::New), State::Collecting) => NextStep::Add,
        (Event::Status(Seen::Claimable), _) => NextStep::Have,
        (Event::Contribution(Seen::Foreign) | Event::Status(Seen::Foreign), _) => NextStep::Stale,
        (Event::Contribution(Seen::Repeat) | Event::Status(Seen::Repeat), State::Sent)
            if completed_it =>
        {
            NextStep::HaveAndResend
        }
        (Event::Contribution(_) | Event::Status(_), State::Answered) => NextStep::KeptAnswer,
        (Event::Contribution(_) | Event::Status(_), State::Refused) => NextStep::Mismatch,
        (Event::Contribution(_) | Event::Status(_), _) => NextStep::Have,
        (Event::HandOver(Seen::Foreign) | Event::Answer(Seen::Foreign), _) => {
            NextStep::Drop(DropReason::StaleStep)
        }
        (Event::HandOver(Seen::Claimable) | Event::Answer(Seen::Claimable), _) => NextStep::Keep,
        (Event::HandOver(_), State::Answered) => NextStep::KeptAnswer,
        (Event::Answer(_), State::Answered) => NextStep::Drop(DropReason::Duplicate),
        (Event::HandOver(_) | Event::Answer(_), _) => NextStep::Keep,
        (Event::Credit(Held::Outside), _) => NextStep::Stale,
        (Event::Credit(Held::Full), State::Collecting) => NextStep::SumUp,
        (Event::Credit(Held::Full), State::Sent | State::Answered) => NextStep::SumUpAgain,
        (Event::Credit(_), _) => NextStep::Have,
    }
}

/// Whose a lease is: where a full sum goes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum LeaseKind {
    /// Nobody is above: the sum is the answer.
    Root,
    /// A root is above.
    Leaf,
    /// A push group's, above which is a server that asks for each sum.
    Whole {
        /// It has asked for this one, which is on its way to it.
        is_released: bool,
    },
}

/// The state of a bank that has become full.
#[must_use]
pub const fn of_full(lease: LeaseKind) -> State {
    match lease {
        LeaseKind::Root => State::Answered,
        LeaseKind::Leaf | LeaseKind::Whole { is_released: true } => State::Sent,
        LeaseKind::Whole { is_released: false } => State::Collecting,
    }
}
