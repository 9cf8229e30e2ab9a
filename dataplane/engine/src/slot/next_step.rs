//! What goes out: the last stage, a pure function of the bank's state and what was seen.
//! This is SPEC#slot's table, cell by cell.

use super::State;
use super::bitmap::Seen;

/// What to do with a frame, and what to send.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum NextStep {
    /// First contribution of a step: store it.
    Claim,
    /// Further contribution: add it.
    Add,
    /// Tell the sender who is in.
    Have,
    /// HAVE, and send the sum up again (leaf only).
    HaveAndResend,
    /// Give the sender the kept answer.
    KeptAnswer,
    /// Tell the sender that its step is not current.
    Stale,
}

/// Decides for a CONTRIB.
#[must_use]
pub const fn of_contribution(state: State, seen: Seen, completed_it: bool) -> NextStep {
    match (seen, state) {
        (Seen::Claimable, _) => NextStep::Claim,
        (Seen::Foreign, _) => NextStep::Stale,
        (Seen::New, State::Collecting) => NextStep::Add,
        (Seen::Repeat, State::Sent) if completed_it => NextStep::HaveAndResend,
        (_, State::Answered) => NextStep::KeptAnswer,
        (Seen::New | Seen::Repeat, _) => NextStep::Have,
    }
}

/// Decides for a STATUS: it changes nothing, but a leaf's completing rank still makes it resend.
#[must_use]
pub const fn of_status(state: State, seen: Seen, completed_it: bool) -> NextStep {
    match (seen, state) {
        (Seen::Foreign, _) => NextStep::Stale,
        (Seen::Claimable, _) => NextStep::Have,
        (Seen::Repeat, State::Sent) if completed_it => NextStep::HaveAndResend,
        (_, State::Answered) => NextStep::KeptAnswer,
        (Seen::New | Seen::Repeat, _) => NextStep::Have,
    }
}
