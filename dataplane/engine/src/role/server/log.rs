//! The decision log: what was decided under each order number, and the sums that were committed,
//! for as long as the replica may ask (PROTOCOL sections 5 and 7).

use alloc::collections::VecDeque;

use weft_control::BoxIndex;
use weft_wire::header::{ElementType, Outcome};
use weft_wire::{GroupId, Members};

use crate::role::model::StageIndex;

/// What was decided under one order number, or under a run of them that nobody has.
#[derive(Clone, Copy, Debug)]
pub(super) struct LogEntry {
    pub(super) order: u64,
    /// The order number that is decided next: one more, but for a run.
    pub(super) after: u64,
    pub(super) group: GroupId,
    /// COMMITTED, VOID or DROPPED.
    pub(super) outcome: Outcome,
    /// The members that were committed.
    pub(super) members: Members,
    pub(super) element_type: ElementType,
    pub(super) exponent: i8,
    /// The delay that the sum was scaled by.
    pub(super) delay: u16,
    /// Version of the model afterwards.
    pub(super) version: u64,
    /// The server put a chunk together from parts.
    pub(super) is_composed: bool,
    /// The sum, while it is kept.
    pub(super) stage: Option<StageIndex>,
    /// Norm of the scaled sum; 0 unless committed.
    pub(super) norm: f64,
    /// Norm of the momentum term afterwards.
    pub(super) momentum_norm: f64,
    /// Members whose updates it decides.
    pub(super) audience: Members,
    /// Of these, the ones that were too old.
    pub(super) old: Members,
    /// The aggregator whose lease it frees.
    pub(super) via: Option<BoxIndex>,
    /// The record of the journal that must be durable before it is told; 0 when there is none.
    pub(super) position: u64,
    /// The members have been told.
    pub(super) is_told: bool,
}

impl LogEntry {
    /// A decision on this order number that changes nothing.
    pub(super) fn empty(order: u64) -> Self {
        Self {
            order,
            after: order + 1,
            group: GroupId::default(),
            outcome: Outcome::Void,
            members: Members::EMPTY,
            element_type: ElementType::None,
            exponent: 0,
            delay: 0,
            version: 0,
            is_composed: false,
            stage: None,
            norm: 0.0,
            momentum_norm: 0.0,
            audience: Members::EMPTY,
            old: Members::EMPTY,
            via: None,
            position: 0,
            is_told: false,
        }
    }

    /// Where a run of order numbers ends that stay unused; `None` for one alone, and for a group.
    pub(super) fn run_end(&self) -> Option<u64> {
        (self.after > self.order + 1).then_some(self.after)
    }

    /// True when this order number is decided by it.
    pub(super) fn has(&self, order: u64) -> bool {
        (self.order..self.after).contains(&order)
    }
}

/// The log. Entries are in sequence, without gaps.
#[derive(Debug)]
pub(super) struct Log {
    entries: VecDeque<LogEntry>,
    entries_max: usize,
    stages_max: usize,
    stages: usize,
    /// Norm of the momentum term before the oldest entry.
    momentum_norm_before: f64,
}

impl Log {
    pub(super) fn new(entries_max: usize, stages_max: usize) -> Self {
        Self {
            entries: VecDeque::with_capacity(entries_max),
            entries_max,
            stages_max,
            stages: 0,
            momentum_norm_before: 0.0,
        }
    }

    /// Begins after a past that is not kept.
    pub(super) fn begin(&mut self, momentum_norm: f64) {
        self.momentum_norm_before = momentum_norm;
    }

    /// The oldest entry, if there must be room for one more before it can be pushed.
    fn evict(&mut self, with_stage: bool) -> Option<LogEntry> {
        let is_full = self.entries.len() >= self.entries_max
            || (with_stage && self.stages >= self.stages_max);
        let entry = is_full.then(|| self.entries.pop_front()).flatten()?;
        self.stages -= usize::from(entry.stage.is_some());
        self.momentum_norm_before = entry.momentum_norm;
        Some(entry)
    }

    /// The entries that may have to make room for the next one.
    pub(super) fn next_evicted(&self) -> impl Iterator<Item = &LogEntry> {
        let is_full = self.keeps_sums() && self.stages >= self.stages_max;
        let staged = || self.entries.iter().position(|entry| entry.stage.is_some());
        let for_a_stage = is_full.then(staged).flatten().map_or(0, |place| place + 1);
        let for_an_entry = usize::from(self.entries.len() >= self.entries_max);
        self.entries.iter().take(for_a_stage.max(for_an_entry))
    }

    /// True when sums are kept.
    pub(super) fn keeps_sums(&self) -> bool {
        self.stages_max > 0
    }

    /// Adds the next decision; `give_back` gets the sums that make room for it.
    pub(super) fn push(&mut self, entry: LogEntry, give_back: impl FnMut(StageIndex)) {
        let evicted = core::iter::from_fn(|| self.evict(entry.stage.is_some()));
        evicted.filter_map(|evicted| evicted.stage).for_each(give_back);
        debug_assert!(
            self.entries.back().is_none_or(|last| last.after == entry.order),
            "order numbers are decided in sequence"
        );
        self.stages += usize::from(entry.stage.is_some());
        self.entries.push_back(entry);
    }

    pub(super) fn get(&self, order: u64) -> Option<&LogEntry> {
        self.entries.get(self.place(order)).filter(|entry| entry.has(order))
    }

    /// The first entry that decides this order number or a later one. O(log entries).
    fn place(&self, order: u64) -> usize {
        self.entries.partition_point(|entry| entry.after <= order)
    }

    /// Norm of the momentum term after all before `order`, which is not older than the log.
    pub(super) fn momentum_norm_at(&self, order: u64) -> f64 {
        let last = order.checked_sub(1).and_then(|last| self.get(last));
        last.map_or(self.momentum_norm_before, |entry| entry.momentum_norm)
    }

    /// The members of this decision are told of it. Returns it, and whether they had been.
    pub(super) fn mark_told(&mut self, order: u64) -> Option<(LogEntry, bool)> {
        let place = self.place(order);
        let entry = self.entries.get_mut(place).filter(|entry| entry.has(order))?;
        let was_told = core::mem::replace(&mut entry.is_told, true);
        Some((*entry, was_told))
    }

    /// The oldest order number that is kept, or `next` when none is.
    pub(super) fn front(&self, next: u64) -> u64 {
        self.entries.front().map_or(next, |entry| entry.order)
    }

    /// Entries from `order` on, oldest first.
    pub(super) fn since(&self, order: u64) -> impl DoubleEndedIterator<Item = &LogEntry> {
        self.entries.range(self.place(order)..)
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use weft_kernel::Kernels;

    use super::*;
    use crate::role::model::StagePool;

    fn entry(order: u64, stage: Option<StageIndex>, momentum_norm: f64) -> LogEntry {
        LogEntry { stage, momentum_norm, ..LogEntry::empty(order) }
    }

    #[test]
    fn a_stage_takes_the_place_of_the_oldest_one_and_of_all_before_it() {
        let mut pool = StagePool::new(Kernels::detect(), 3, 1, 1);
        let [first, second, third] = core::array::from_fn(|_| pool.take());
        let mut log = Log::new(3, 2);
        let orders = |log: &Log| log.next_evicted().map(|entry| entry.order).collect::<Vec<_>>();
        let mut given_back = Vec::new();
        log.begin(0.5);
        log.push(entry(0, None, 1.0), |stage| given_back.push(stage));
        log.push(entry(1, first, 2.0), |stage| given_back.push(stage));
        assert!(orders(&log).is_empty(), "there is room");
        log.push(entry(2, second, 3.0), |stage| given_back.push(stage));
        assert_eq!(orders(&log), [0, 1]);
        let norms = [0, 1, 2, 3].map(|order| log.momentum_norm_at(order));
        assert!(norms.iter().zip([0.5, 1.0, 2.0, 3.0]).all(|(is, was)| (is - was).abs() < 1e-9));
        log.push(entry(3, third, 4.0), |stage| given_back.push(stage));
        assert_eq!(Some(given_back), first.map(|stage| [stage].into()));
        assert_eq!((log.front(9), orders(&log)), (2, [2].into()));
        assert!((log.momentum_norm_at(2) - 2.0).abs() < 1e-9, "before all that is kept");
    }
}
