//! The slot machine: memory for the steps of a lease, and what a frame does to it (SPEC#slot).
//!
//! Its stages, in the order that the P4 program has them too: [`bitmap`] (seen already?),
//! [`counter`] (which transition is it), [`accumulate`] (the sum), [`next_step`] (what goes out).
//! Its inputs are frames of windowed leases (`windowed`, two banks a slot), of whole leases
//! (`whole`, one bank a slot, and credits), and contributions that are summed together (`run`).
//! Nothing outside this folder writes a bank. Slots hold no timers and are only a cache; the ends
//! hold the truth. All memory is taken when a lease is made, none per packet.
//!
//! `proto/vectors/slot.toml` is the table of its transitions, which the tests of the roles hold
//! them against, cell by cell.
//!
//! Invariant: a bank's data belongs to exactly the step in its tag, and its `members` are exactly
//! the ranks whose contributions are in that data (I1, I2). Cost per packet: O(1), no search.

pub mod accumulate;
mod aligned;
pub mod bitmap;
pub mod counter;
pub mod next_step;
mod run;
pub(crate) mod whole;
mod windowed;

use weft_wire::header::{Flags, Outcome};
use weft_wire::{Members, Nanos};

pub(crate) use run::Run;
pub use windowed::Slots;
pub(crate) use windowed::{Arrival, Entered};

/// Flags that a sum inherits from its contributions.
pub(crate) const INHERITED: Flags = Flags::CLAMPED.union(Flags::CONGESTION);

/// Where a bank stands (PROTOCOL section 1).
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum State {
    /// Holds nothing.
    #[default]
    Empty,
    /// Holds a partial sum.
    Collecting,
    /// Holds the full sum, sent up; a leaf waits for the answer.
    Sent,
    /// Holds the answer.
    Answered,
    /// Its contributions differ in length: there will be no sum of this step.
    Refused,
}

impl State {
    /// Its name in SPEC#slot.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Empty => "EMPTY",
            Self::Collecting => "COLLECTING",
            Self::Sent => "SENT",
            Self::Answered => "ANSWERED",
            Self::Refused => "REFUSED",
        }
    }

    /// SENT or ANSWERED: the step is complete here.
    #[must_use]
    pub const fn is_complete(self) -> bool {
        matches!(self, Self::Sent | Self::Answered)
    }
}

/// The part of its vector that a contribution carries: its elements without padding, and whether
/// the vector ends with them (SPEC#lengths).
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Length(u16);

impl Length {
    /// Above all counts: a datagram holds fewer elements.
    const LAST: u16 = 1 << 15;

    #[inline(always)]
    pub(crate) fn new(count: u16, outcome: Outcome) -> Self {
        Self(count | if outcome == Outcome::LAST { Self::LAST } else { 0 })
    }

    pub(crate) const fn count(self) -> u16 {
        self.0 & !Self::LAST
    }

    pub(crate) const fn outcome(self) -> Outcome {
        if self.0 & Self::LAST == 0 { Outcome::None } else { Outcome::LAST }
    }
}

/// What a bank knows beside its data. Two to a cache line, and none in two.
#[derive(Clone, Copy, Debug)]
#[repr(align(32))]
pub struct Bank {
    /// Where it stands.
    state: State,
    /// False for the virtual predecessor that a formation seeds: complete, but with no data.
    has_data: bool,
    /// Scale exponent, fixed at claim.
    exponent: i8,
    /// CLAMPED and CONGESTION, OR-ed over the contributions.
    flags: Flags,
    /// The rank whose contribution completed the sum; its repeats make a leaf send up again.
    completed_by: u8,
    /// The run that waits to be summed into it, or [`Bank::NO_RUN`].
    run: u8,
    /// Of its first contribution, with which the others agree.
    length: Length,
    /// REFUSED: the elements of the first contribution that differed.
    other_count: u16,
    /// The step; meaningless while `state` is EMPTY.
    step: u32,
    /// Whose contributions the data holds.
    members: Members,
    /// When the first contribution came, for the straggler report.
    claimed_at: Nanos,
}

const _: () = assert!(size_of::<Bank>() == 32);

impl Bank {
    /// No run waits.
    pub(crate) const NO_RUN: u8 = u8::MAX;

    /// Where it stands.
    #[inline(always)]
    #[must_use]
    pub const fn state(&self) -> State {
        self.state
    }

    /// True unless it is the virtual predecessor that a formation seeds.
    #[must_use]
    pub const fn has_data(&self) -> bool {
        self.has_data
    }

    /// Scale exponent of its data.
    #[inline(always)]
    #[must_use]
    pub const fn exponent(&self) -> i8 {
        self.exponent
    }

    /// CLAMPED and CONGESTION of its contributions.
    #[inline(always)]
    #[must_use]
    pub const fn flags(&self) -> Flags {
        self.flags
    }

    /// The rank whose contribution completed it.
    #[must_use]
    pub const fn completed_by(&self) -> u8 {
        self.completed_by
    }

    /// The step; meaningless while it is EMPTY.
    #[inline(always)]
    #[must_use]
    pub const fn step(&self) -> u32 {
        self.step
    }

    /// Whose contributions its data holds.
    #[inline(always)]
    #[must_use]
    pub const fn members(&self) -> Members {
        self.members
    }

    /// The length of each of its contributions.
    #[inline(always)]
    pub(crate) const fn length(&self) -> Length {
        self.length
    }

    /// REFUSED: the elements of contributions that differ from this member's.
    pub(crate) const fn other_count(&self, member: Members) -> u16 {
        if self.members.contains(member) { self.other_count } else { self.length.count() }
    }

    /// True when it holds this step.
    #[inline(always)]
    #[must_use]
    pub fn is_of(&self, step: u32) -> bool {
        self.state != State::Empty && self.step == step
    }

    /// True when its answer to this step is kept, as data.
    #[must_use]
    pub fn keeps_answer(&self, step: u32) -> bool {
        self.state == State::Answered && self.step == step && self.has_data
    }

    /// The run that waits to be summed into it, or [`Bank::NO_RUN`].
    #[inline(always)]
    pub(crate) const fn run(&self) -> u8 {
        self.run
    }

    /// Has a run wait for it.
    #[inline(always)]
    pub(crate) fn begin_run(&mut self, number: u8) {
        self.run = number;
    }
}

impl Default for Bank {
    fn default() -> Self {
        Self {
            state: State::Empty,
            has_data: false,
            exponent: 0,
            flags: Flags::NONE,
            completed_by: 0,
            run: Self::NO_RUN,
            length: Length::default(),
            other_count: 0,
            step: 0,
            members: Members::EMPTY,
            claimed_at: Nanos(0),
        }
    }
}

/// Index of a bank: slot * 2 + bank.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct BankIndex(pub(crate) usize);

impl BankIndex {
    /// The other bank of the same slot.
    #[must_use]
    pub const fn other(self) -> Self {
        Self(self.0 ^ 1)
    }

    /// Its number, counted from the lease's first: two a slot.
    pub(crate) fn number(self) -> u32 {
        u32::try_from(self.0).expect("a lease has at most 4096 banks")
    }
}

#[cfg(test)]
pub(crate) mod cells;
#[cfg(test)]
mod tests;
