//! Whole leases: a job's memory for them, one slot per chunk, one bank, groups in contiguous ranges
//! (SPEC#push, PROTOCOL section 2).
//!
//! Decides which range a group gets, and enters what comes: contributions and credits. A slot's
//! place is the group's first plus the chunk. Everything is taken at the start, to the byte quota
//! of the job; a group that finds no range is refused (I8). Installing costs no time per slot: a
//! slot belongs to a group only while it carries the number of that group's installation, so what
//! another group left there counts as EMPTY. Invariant: a slot's `members` are exactly the ranks
//! whose contributions its data holds (I1, I2). O(1) per packet, O(open groups) per installation.

use alloc::vec;
use alloc::vec::Vec;

use weft_control::GROUPS_OPEN_MAX;
use weft_kernel::Kernels;
use weft_wire::Members;
use weft_wire::header::Flags;

use super::accumulate::{Arithmetic, Contribution, Store};
use super::bitmap::Seen;
use super::next_step::{self, LeaseKind};
use super::run::{self, Run};
use super::{Bank, BankIndex, INHERITED, State};

/// What a slot knows beside its data.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot {
    /// Whose contributions the data holds.
    members: Members,
    /// The installation that this is of; another one's slot is EMPTY.
    installation: u32,
    state: State,
    /// CLAMPED and CONGESTION, OR-ed over the contributions.
    flags: Flags,
    /// The server has asked for the sum.
    has_credit: bool,
    /// The run that waits to be summed into it, or [`Bank::NO_RUN`].
    run: u8,
}

impl Slot {
    /// Of the group that was installed under this number, and EMPTY.
    const fn empty(installation: u32) -> Self {
        Self {
            members: Members::EMPTY,
            installation,
            state: State::Empty,
            flags: Flags::NONE,
            has_credit: false,
            run: Bank::NO_RUN,
        }
    }

    /// Enters a contribution, whose payload is to be summed before anything else reads the data.
    #[inline(always)]
    pub(crate) fn enter(&mut self, bit: Members, mask: Members, flags: Flags) -> Entered {
        let claims = self.state == State::Empty;
        self.members = self.members.union(bit);
        self.state = State::Collecting;
        self.flags = self.flags.union(flags.only(INHERITED));
        let completes = self.members == mask;
        let releases = completes && self.has_credit;
        Entered { members: self.members, claims, completes, releases, clamped: false }
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

    /// Where it stands.
    pub(crate) const fn state(&self) -> State {
        self.state
    }

    /// Whose contributions its data holds.
    pub(crate) const fn members(&self) -> Members {
        self.members
    }

    /// CLAMPED and CONGESTION of its contributions.
    pub(crate) const fn flags(&self) -> Flags {
        self.flags
    }

    /// True when the server has asked for the sum.
    pub(crate) const fn has_credit(&self) -> bool {
        self.has_credit
    }

    /// How a rank relates to it.
    #[inline]
    pub(crate) fn look(&self, bit: Members) -> Seen {
        match self.state {
            State::Empty => Seen::Claimable,
            _ if self.members.contains(bit) => Seen::Repeat,
            _ => Seen::New,
        }
    }
}

/// A slot of an open group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    index: u32,
    installation: u32,
}

/// What a contribution was to its slot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entered {
    /// Whose contributions the slot holds now.
    pub(crate) members: Members,
    /// It was the slot's first.
    pub(crate) claims: bool,
    /// It was the last, so the sum is there.
    pub(crate) completes: bool,
    /// And the server has asked for it: the contribution's payload is the sum too.
    pub(crate) releases: bool,
    /// An element of it was clamped.
    pub(crate) clamped: bool,
}

/// Slots `start .. start + len` of an arena.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Range {
    pub(crate) start: u32,
    pub(crate) len: u32,
}

/// A job's slots.
#[derive(Debug)]
pub(crate) struct Arena {
    slots: Vec<Slot>,
    /// Of these, so many are the job's.
    len: u32,
    store: Store,
    /// Free ranges by start; no two touch.
    free: Vec<Range>,
    installation: u32,
}

impl Arena {
    /// Bytes that one slot of `elements` numbers takes.
    pub(crate) const fn slot_len_bytes(elements: u16) -> u64 {
        // Four bytes a number, in whole cache lines.
        (elements as u64 * 4).next_multiple_of(64) + size_of::<Slot>() as u64
    }

    /// Takes the memory of so many slots, whose data takes no more words than these together.
    pub(crate) fn vacant(slots_max: usize, words_max: usize, kernels: &'static Kernels) -> Self {
        let mut store = Store::vacant(kernels, words_max);
        store.touch();
        let free = Vec::with_capacity(usize::from(GROUPS_OPEN_MAX) + 2);
        let slots = vec![Slot::empty(0); slots_max];
        Self { slots, len: 0, store, free, installation: 0 }
    }

    /// Begins anew for another job, with `slot_count` slots of so many elements. What is in them
    /// is of installations that are over.
    pub(crate) fn renew(&mut self, slot_count: u32, arithmetic: Arithmetic, elements: usize) {
        let fits = self.store.lay_out(arithmetic, elements, 1, slot_count as usize);
        assert!(fits && slot_count as usize <= self.slots.len(), "the place has room for it");
        self.len = slot_count;
        self.free.clear();
        self.free.push(Range { start: 0, len: slot_count });
    }

    /// True when contributions are summed in runs.
    pub(crate) fn adds_runs(&self) -> bool {
        self.store.adds_runs()
    }

    /// Finds room for a group: the first range that is long enough. Returns it with the number of
    /// the installation; `None` when none is.
    pub(crate) fn take(&mut self, len: u32) -> Option<(Range, u32)> {
        let index = self.free.iter().position(|range| range.len >= len)?;
        let range = &mut self.free[index];
        let taken = Range { start: range.start, len };
        range.start += len;
        range.len -= len;
        if range.len == 0 {
            self.free.remove(index);
        }
        self.installation = match self.installation.checked_add(1) {
            Some(next) => next,
            None => {
                // The numbers begin again, so what is left of the old ones must go. The open groups
                // lose what they gathered; once in four thousand million groups.
                self.slots.fill(Slot::empty(0));
                1
            }
        };
        Some((taken, self.installation))
    }

    /// Gives a group's range back.
    pub(crate) fn give_back(&mut self, range: Range) {
        let index = self.free.partition_point(|free| free.start < range.start);
        self.free.insert(index, range);
        let joins = |left: &Range, right: &Range| left.start + left.len == right.start;
        if index + 1 < self.free.len() && joins(&self.free[index], &self.free[index + 1]) {
            let right = self.free.remove(index + 1);
            self.free[index].len += right.len;
        }
        if index > 0 && joins(&self.free[index - 1], &self.free[index]) {
            let right = self.free.remove(index);
            self.free[index - 1].len += right.len;
        }
    }

    /// The slot there, as EMPTY if another group left it.
    #[inline]
    pub(crate) fn slot(&self, place: Place) -> Slot {
        let slot = self.slots[place.index as usize];
        if slot.installation == place.installation { slot } else { Slot::empty(place.installation) }
    }

    /// Puts a contribution into its slot. `flags`: CONGESTION is among them where it was marked.
    #[inline]
    pub(crate) fn enter(
        &mut self,
        place: Place,
        from: Contribution,
        bit: Members,
        mask: Members,
        flags: Flags,
        wire: &mut [u8],
    ) -> Entered {
        let mut entered = self.slot_mut(place).enter(bit, mask, flags);
        let Entered { claims, releases, .. } = entered;
        entered.clamped = self.store.put(place.bank(), from, wire, claims, releases);
        if entered.clamped {
            let slot = &mut self.slots[place.index as usize];
            slot.flags = slot.flags.union(Flags::CLAMPED);
        }
        entered
    }

    /// The slot there, to be changed.
    #[inline(always)]
    pub(crate) fn slot_mut(&mut self, place: Place) -> &mut Slot {
        let slot = &mut self.slots[place.index as usize];
        if slot.installation != place.installation {
            *slot = Slot::empty(place.installation);
        }
        slot
    }

    /// Sums a run into the slot that it waits for. `claims`: its first is the slot's first.
    #[inline(always)]
    pub(crate) fn sum_run<F: AsRef<[u8]> + AsMut<[u8]>>(
        &mut self,
        place: Place,
        claims: bool,
        frames: &mut [F],
        payload: core::ops::Range<usize>,
    ) {
        self.slots[place.index as usize].run = Bank::NO_RUN;
        // A credit gets the sum, and none waits.
        let run = Run { claims, completes: false };
        run::sum(&mut self.store, place.bank(), run, frames, payload);
    }

    /// The server has asked for a sum that is not there yet.
    pub(crate) fn remember_credit(&mut self, place: Place) {
        let slot = Slot { has_credit: true, ..self.slot(place) };
        self.slots[place.index as usize] = slot;
    }

    /// The sum is on its way to the server.
    pub(crate) fn release(&mut self, place: Place) {
        let state = next_step::of_full(LeaseKind::Whole { is_released: true });
        let slot = Slot { state, ..self.slot(place) };
        self.slots[place.index as usize] = slot;
    }

    /// Writes the sum that a slot keeps.
    pub(crate) fn emit(&self, place: Place, wire: &mut [u8]) {
        self.store.emit(place.bank(), wire);
    }

    /// Hints that a chunk's slot will be used soon.
    #[inline]
    pub(crate) fn prefetch(&self, range: Range, chunk: u32) {
        let index = (range.start + chunk) as usize;
        if let Some(slot) = self.slots.get(index..=index) {
            weft_kernel::prefetch_write(slot);
            self.store.prefetch(BankIndex(index));
        }
    }

    /// All slots.
    pub(crate) fn len(&self) -> usize {
        self.len as usize
    }

    /// Slots that no group has.
    pub(crate) fn free_len(&self) -> usize {
        self.free.iter().map(|range| range.len as usize).sum()
    }
}

impl Range {
    /// The slot of a chunk of the group that was installed here under this number.
    #[inline]
    pub(crate) const fn place(self, installation: u32, chunk: u32) -> Place {
        Place { index: self.start + chunk, installation }
    }
}

impl Place {
    /// The first of the first group: only memory.
    pub(crate) const NONE: Self = Self { index: 0, installation: 0 };

    const fn bank(self) -> BankIndex {
        BankIndex(self.index as usize)
    }
}

const _: () = assert!(size_of::<Slot>() == 16, "four slots share a cache line");

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use weft_wire::header::{ElementType, Operation};
    use weft_wire::hello::Overflow;

    use super::*;
    use weft_control::SumOrder;

    fn arena(slot_count: u32) -> Arena {
        let arithmetic = Arithmetic {
            element_type: ElementType::I32,
            operation: Operation::Sum,
            sum_order: SumOrder::Arrival,
            overflow: Overflow::Wrap,
        };
        let mut arena =
            Arena::vacant(slot_count as usize, 16 * slot_count as usize, Kernels::detect());
        arena.renew(slot_count, arithmetic, 1);
        arena
    }

    fn put(arena: &mut Arena, place: Place) {
        let from = Contribution { rank: 0, limit: i32::MAX };
        arena.enter(place, from, Members(1), Members(3), Flags::NONE, &mut [0; 4]);
    }

    #[test]
    fn a_slot_takes_its_numbers_in_whole_cache_lines_and_what_it_knows() {
        let lens = [1, 16, 17, 256].map(Arena::slot_len_bytes);
        assert_eq!(lens, [64 + 16, 64 + 16, 128 + 16, 1024 + 16]);
    }

    #[test]
    fn what_another_group_left_counts_as_empty() {
        let mut arena = arena(4);
        let (range, first) = arena.take(4).unwrap();
        put(&mut arena, range.place(first, 2));
        assert_eq!(arena.slot(range.place(first, 2)).members, Members(1));
        arena.give_back(range);
        let (range, second) = arena.take(3).unwrap();
        assert_eq!(arena.slot(range.place(second, 2)).members, Members::EMPTY);
    }

    #[test]
    fn numbers_of_installations_that_begin_again_find_no_old_slot() {
        let mut arena = arena(1);
        arena.installation = 0;
        let (range, first) = arena.take(1).unwrap();
        put(&mut arena, range.place(first, 0));
        arena.give_back(range);
        arena.installation = u32::MAX;
        let (range, again) = arena.take(1).unwrap();
        assert_eq!(again, first);
        assert_eq!(arena.slot(range.place(again, 0)).members, Members::EMPTY);
    }

    proptest! {
        /// Against a map of single slots: ranges are disjoint, nothing is lost, and a refusal
        /// means that no gap is long enough.
        #[test]
        fn ranges_never_overlap(steps in prop::collection::vec((any::<bool>(), 1u32..9), 1..200)) {
            const LEN: usize = 32;
            let mut arena = arena(32);
            let mut held: Vec<Range> = Vec::new();
            let mut used = [false; LEN];
            for (takes, number) in steps {
                if takes {
                    match arena.take(number) {
                        Some((range, _)) => {
                            for slot in range.start..range.start + range.len {
                                prop_assert!(!used[slot as usize]);
                                used[slot as usize] = true;
                            }
                            held.push(range);
                        }
                        None => {
                            let gap = used.windows(number as usize).any(|w| w.iter().all(|u| !u));
                            prop_assert!(!gap, "there was room for {number}");
                        }
                    }
                } else if !held.is_empty() {
                    let range = held.swap_remove(number as usize % held.len());
                    used[range.start as usize..(range.start + range.len) as usize].fill(false);
                    arena.give_back(range);
                }
                prop_assert_eq!(arena.free_len(), used.iter().filter(|used| !**used).count());
            }
        }
    }
}
