//! Slots: the aggregator's memory for one step of one lease, two banks each (SPEC#slot).
//!
//! The stages of a contribution, in the order that the P4 program has them too: [`bitmap`] (seen
//! already?), [`counter`] (how often did which transition happen), [`accumulate`] (the sum),
//! [`next_step`] (what goes out). Slots hold no timers and are only a cache; the ends hold the
//! truth. All memory is taken when a lease is made, none per packet.
//!
//! Invariant: a bank's data belongs to exactly the step in its tag, and its `members` are exactly
//! the ranks whose contributions are in that data (I1, I2). Cost per packet: O(1), no search.

pub mod accumulate;
pub mod bitmap;
pub mod counter;
pub mod next_step;

use alloc::vec;
use alloc::vec::Vec;

use weft_wire::header::Flags;
use weft_wire::{Members, Nanos};

use accumulate::Store;

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
        }
    }

    /// SENT or ANSWERED: the step is complete here.
    #[must_use]
    pub const fn is_complete(self) -> bool {
        matches!(self, Self::Sent | Self::Answered)
    }
}

/// What a bank knows beside its data. Two to a cache line, and none in two.
#[derive(Clone, Copy, Debug)]
#[repr(align(32))]
pub struct Bank {
    /// Where it stands.
    pub state: State,
    /// False for the virtual predecessor that a formation seeds: complete, but with no data.
    pub has_data: bool,
    /// Scale exponent, fixed at claim.
    pub exponent: i8,
    /// CLAMPED and CONGESTION, OR-ed over the contributions.
    pub flags: Flags,
    /// The rank whose contribution completed the sum; its repeats make a leaf send up again.
    pub completed_by: u8,
    /// The run that waits to be summed into it, or [`Bank::NO_RUN`].
    pub(crate) run: u8,
    /// The step; meaningless while `state` is EMPTY.
    pub step: u32,
    /// Whose contributions the data holds.
    pub members: Members,
    /// When the first contribution came, for the straggler report.
    pub claimed_at: Nanos,
}

const _: () = assert!(size_of::<Bank>() == 32);

impl Bank {
    /// No run waits.
    pub(crate) const NO_RUN: u8 = u8::MAX;
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
}

/// The slots of one lease in one lane.
#[derive(Debug)]
pub struct Slots {
    window: u32,
    /// Windows are powers of two: the exponent.
    window_log2: u32,
    banks: Vec<Bank>,
    /// The data of the banks, in the same order.
    pub store: Store,
}

impl Slots {
    /// Takes the memory of `window` slots.
    #[must_use]
    pub fn new(window: u32, store: Store) -> Self {
        assert!(window.is_power_of_two(), "the table admits only powers of two");
        Self {
            window,
            window_log2: window.trailing_zeros(),
            banks: vec![Bank::default(); window as usize * 2],
            store,
        }
    }

    /// Finds the bank of a step by arithmetic (PROTOCOL section 2).
    #[inline]
    #[must_use]
    pub fn locate(&self, step: u32) -> BankIndex {
        let slot = step & (self.window - 1);
        let bank = (step >> self.window_log2) & 1;
        BankIndex((slot * 2 + bank) as usize)
    }

    /// Hints that a step's bank will be used soon.
    #[inline]
    pub fn prefetch(&self, step: u32) {
        let index = self.locate(step);
        if let Some(bank) = self.banks.get(index.0..=index.0) {
            weft_kernel::prefetch_write(bank);
        }
        self.store.prefetch(index);
    }

    /// A bank.
    #[inline]
    #[must_use]
    pub fn bank(&self, index: BankIndex) -> &Bank {
        &self.banks[index.0]
    }

    /// A bank, writable.
    pub fn bank_mut(&mut self, index: BankIndex) -> &mut Bank {
        &mut self.banks[index.0]
    }

    /// A bank and its data, both writable.
    pub fn bank_and_store(&mut self, index: BankIndex) -> (&mut Bank, &mut Store) {
        (&mut self.banks[index.0], &mut self.store)
    }

    /// The successor rule (SPEC#slot): may `step` take its bank? Only if the other bank holds the
    /// step's predecessor, complete; or, for a step without predecessor, if the slot is untouched.
    #[must_use]
    pub fn is_claimable(&self, step: u32) -> bool {
        let index = self.locate(step);
        let (bank, other) = (self.bank(index), self.bank(index.other()));
        match step.checked_sub(self.window) {
            Some(predecessor) => {
                other.state.is_complete()
                    && other.step == predecessor
                    && (bank.state == State::Empty || bank.step < step)
            }
            None => bank.state == State::Empty && other.state == State::Empty,
        }
    }

    /// Empties every bank and seeds each slot so that only its frontier step can claim it.
    /// `frontier` gives, for each slot, the smallest step of the slot that not every member holds.
    pub fn seed(&mut self, mut frontier: impl FnMut(u32) -> u32) {
        self.banks.fill(Bank::default());
        for slot in 0..self.window {
            let step = frontier(slot);
            debug_assert_eq!(step & (self.window - 1), slot, "a frontier lies in its slot");
            if let Some(predecessor) = step.checked_sub(self.window) {
                let index = self.locate(predecessor);
                let bank = self.bank_mut(index);
                bank.state = State::Answered;
                bank.step = predecessor;
            }
        }
    }

    /// Banks that hold a step, for gauges and tests.
    pub fn occupied(&self) -> impl Iterator<Item = &Bank> {
        self.banks.iter().filter(|bank| bank.state != State::Empty)
    }
}

#[cfg(test)]
pub(crate) mod cells;
#[cfg(test)]
mod tests;
