//! Windowed leases: the slots of one lease in one lane, two banks each (SPEC#slot, PROTOCOL section
//! 2).
//!
//! Decides where a step lies and whether it may take its bank, and enters what comes:
//! contributions, answers from elsewhere, and the frontiers of a formation.

use alloc::vec;
use alloc::vec::Vec;

use weft_wire::header::{Flags, Header, Outcome};
use weft_wire::{Members, Nanos, Rank};

use super::accumulate::{Arithmetic, Contribution, Store};
use super::next_step::{self, LeaseKind};
use super::{Bank, BankIndex, INHERITED, Length, State};
use crate::drops::DropReason;

/// The slots of one lease in one lane.
#[derive(Debug)]
pub struct Slots {
    window: u32,
    /// Windows are powers of two: the exponent.
    window_log2: u32,
    banks: Vec<Bank>,
    /// The data of the banks, in the same order.
    store: Store,
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

    /// Takes the memory of at most this many slots, for a window that is not known yet.
    #[must_use]
    pub fn vacant(slots_max: usize, store: Store) -> Self {
        Self { window: 1, window_log2: 0, banks: Vec::with_capacity(slots_max * 2), store }
    }

    /// Divides the memory anew: `window` slots, all EMPTY, of chunks of so many elements. False
    /// where they do not fit.
    #[must_use]
    pub fn lay_out(
        &mut self,
        window: u32,
        arithmetic: Arithmetic,
        elements: usize,
        members: usize,
    ) -> bool {
        assert!(window.is_power_of_two(), "the table admits only powers of two");
        let banks = window as usize * 2;
        let fits = banks <= self.banks.capacity()
            && self.store.lay_out(arithmetic, elements, members, banks);
        if !fits {
            return false;
        }
        self.window = window;
        self.window_log2 = window.trailing_zeros();
        self.banks.clear();
        self.banks.resize(banks, Bank::default());
        true
    }

    /// Gives the memory its pages.
    pub fn touch(&mut self) {
        self.store.touch();
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

    /// A bank and its data, both writable.
    #[inline(always)]
    pub(super) fn bank_and_store(&mut self, index: BankIndex) -> (&mut Bank, &mut Store) {
        (&mut self.banks[index.0], &mut self.store)
    }

    /// The successor rule (SPEC#slot): may `step` take its bank? Only if the other bank holds the
    /// step's predecessor, complete; or, for a step without predecessor, if the slot is untouched.
    /// A refused bank stays refused.
    #[must_use]
    pub fn is_claimable(&self, step: u32) -> bool {
        let index = self.locate(step);
        let (bank, other) = (self.bank(index), self.bank(index.other()));
        match step.checked_sub(self.window) {
            Some(predecessor) => {
                other.state.is_complete()
                    && other.step == predecessor
                    && (bank.state == State::Empty
                        || bank.step < step && bank.state != State::Refused)
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
                let bank = &mut self.banks[index.0];
                bank.state = State::Answered;
                bank.step = predecessor;
            }
        }
    }

    /// All banks, by number.
    pub(crate) fn banks(&self) -> impl Iterator<Item = (u32, &Bank)> {
        (0..).zip(&self.banks)
    }

    /// Banks that hold a step, for gauges and tests.
    pub fn occupied(&self) -> impl Iterator<Item = &Bank> {
        self.banks.iter().filter(|bank| bank.state != State::Empty)
    }

    /// The data, to be read.
    #[inline(always)]
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Puts a contribution into its bank. When that completes the step, `wire` is the sum too.
    ///
    /// # Errors
    /// [`DropReason::Exponent`] where it is not the bank's; nothing has changed.
    #[inline(always)]
    pub(crate) fn take(
        &mut self,
        arrival: &Arrival,
        mask: Members,
        limit: i32,
        wire: &mut [u8],
    ) -> Result<Entered, DropReason> {
        let place = arrival.place;
        if !arrival.first && self.banks[place.0].exponent != arrival.exponent {
            return Err(DropReason::Exponent);
        }
        let (_, mut entered) = self.enter(arrival, mask);
        let from = Contribution { rank: arrival.rank.index(), limit };
        entered.clamped = self.store.put(place, from, wire, arrival.first, entered.completes);
        if entered.clamped {
            let bank = &mut self.banks[place.0];
            bank.flags = bank.flags.union(Flags::CLAMPED);
        }
        Ok(entered)
    }

    /// Enters a contribution in its bank's books, and not yet in its data.
    #[inline(always)]
    pub(crate) fn enter(&mut self, arrival: &Arrival, mask: Members) -> (&mut Bank, Entered) {
        let bank = &mut self.banks[arrival.place.0];
        if arrival.first {
            *bank = Bank {
                state: State::Collecting,
                has_data: true,
                exponent: arrival.exponent,
                length: arrival.length,
                step: arrival.step,
                claimed_at: arrival.now,
                ..Bank::default()
            };
        }
        bank.members = bank.members.union(arrival.rank.bit());
        bank.flags = bank.flags.union(arrival.flags.only(INHERITED));
        if arrival.congestion {
            bank.flags = bank.flags.union(Flags::CONGESTION);
        }
        let completes = bank.members == mask;
        if completes {
            bank.completed_by = arrival.rank.number();
        }
        let lag = arrival.now.since(bank.claimed_at);
        (bank, Entered { completes, clamped: false, lag })
    }

    /// The bank holds the full sum, which is on its way: up, or as the answer.
    #[inline(always)]
    pub(crate) fn complete(&mut self, place: BankIndex, lease: LeaseKind) {
        self.banks[place.0].state = next_step::of_full(lease);
    }

    /// A contribution of another length has come: the step gets no sum, whatever comes.
    pub(crate) fn refuse(&mut self, place: BankIndex, length: Length) {
        let bank = &mut self.banks[place.0];
        (bank.state, bank.other_count) = (State::Refused, length.count());
    }

    /// The root has refused the step, to which a contribution of this many elements differs from
    /// this leaf's: from the first one, with which this leaf `agrees`, or that is the first one.
    pub(crate) fn refuse_above(&mut self, place: BankIndex, agrees: bool, count: u16) {
        let bank = &mut self.banks[place.0];
        (bank.state, bank.other_count) = (State::Refused, count);
        if !agrees {
            (bank.members, bank.length) = (Members::EMPTY, Length::new(count, Outcome::None));
        }
    }

    /// One more member agrees with the first contribution to a refused step.
    pub(crate) fn note_agreement(&mut self, place: BankIndex, member: Members, length: Length) {
        let bank = &mut self.banks[place.0];
        if bank.length == length && !bank.members.is_empty() {
            bank.members = bank.members.union(member);
        }
    }

    /// Keeps an answer to `step` that was computed elsewhere.
    pub(crate) fn keep_answer(&mut self, step: u32, header: &Header, mask: Members, wire: &[u8]) {
        let place = self.locate(step);
        let (bank, store) = self.bank_and_store(place);
        store.keep(place, wire);
        *bank = Bank {
            state: State::Answered,
            has_data: true,
            exponent: header.exponent,
            flags: header.flags.only(INHERITED),
            step,
            members: mask,
            run: Bank::NO_RUN,
            ..*bank
        };
    }
}

/// What is known of a contribution when it has passed all checks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    pub(crate) rank: Rank,
    pub(crate) step: u32,
    /// The step's bank.
    pub(crate) place: BankIndex,
    /// It claims its bank.
    pub(crate) first: bool,
    pub(crate) exponent: i8,
    pub(crate) length: Length,
    pub(crate) flags: Flags,
    pub(crate) congestion: bool,
    pub(crate) payload_start: usize,
    /// Bytes up to the end of the datagram.
    pub(crate) frame_len: usize,
    pub(crate) now: Nanos,
}

/// What a contribution was to its bank.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entered {
    /// It was the step's last.
    pub(crate) completes: bool,
    /// An element of it was clamped.
    pub(crate) clamped: bool,
    /// How long after the step's first it came.
    pub(crate) lag: Nanos,
}
