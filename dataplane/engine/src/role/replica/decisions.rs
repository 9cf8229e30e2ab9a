//! Decisions of the server that are not applied yet, and how far behind it the replica is.
//!
//! Invariant: place i holds the decision on the i-th order number that is not applied; a place is
//! filled once. What does not fit is refused, and asked for again.

use alloc::collections::VecDeque;
use alloc::vec;

use weft_wire::header::{ElementType, Outcome};
use weft_wire::{GroupId, Members, Nanos};

use crate::drops::DropReason;

/// The decisions from the next order number on.
#[derive(Debug)]
pub(super) struct Decisions {
    /// `None` where one is missing.
    pending: VecDeque<Option<PendingDecision>>,
    /// The order number that the server decides next, as far as is known.
    server_order: u64,
}

/// A decision that was announced.
#[derive(Clone, Copy, Debug)]
pub(super) struct PendingDecision {
    /// The order number that is decided next: one more, but for a run of numbers that nobody has.
    pub(super) after: u64,
    pub(super) group: GroupId,
    pub(super) outcome: Outcome,
    pub(super) members: Members,
    pub(super) element_type: ElementType,
    pub(super) exponent: i8,
    pub(super) delay: u16,
    pub(super) is_composed: bool,
    /// When it was announced.
    pub(super) at: Nanos,
}

impl Decisions {
    pub(super) fn new(next_order: u64) -> Self {
        Self { pending: VecDeque::from(vec![None; DECISIONS_MAX]), server_order: next_order }
    }

    /// The next one, if it is here.
    pub(super) fn first(&self) -> Option<PendingDecision> {
        self.pending.front().copied().flatten()
    }

    /// Takes the decision on `order`. `next_order` is applied next.
    pub(super) fn add(
        &mut self,
        next_order: u64,
        order: u64,
        decision: PendingDecision,
    ) -> Result<(), DropReason> {
        let place = order.checked_sub(next_order).ok_or(DropReason::Duplicate)?;
        let place = usize::try_from(place).ok().and_then(|place| self.pending.get_mut(place));
        let place = place.ok_or(DropReason::StaleStep)?;
        if place.is_some() {
            return Err(DropReason::Duplicate);
        }
        *place = Some(decision);
        Ok(())
    }

    /// All from `old` to `new` are done with. Those behind stay, unless the sequence went back.
    pub(super) fn pass(&mut self, old: u64, new: u64) {
        let passed = new.checked_sub(old).and_then(|passed| usize::try_from(passed).ok());
        let passed = passed.filter(|passed| *passed < self.pending.len());
        let kept = passed.map_or(0, |passed| self.pending.len() - passed);
        self.pending.rotate_left(passed.unwrap_or(0));
        self.pending.range_mut(kept..).for_each(|place| *place = None);
        if new < old {
            // A restarted server counts anew.
            self.server_order = new;
        }
    }

    /// Forgets all: a restarted server's sequence is another one.
    pub(super) fn clear(&mut self) {
        self.pending.iter_mut().for_each(|place| *place = None);
    }

    /// The server decides this order number next, or a later one.
    pub(super) fn note_server_order(&mut self, order: u64) {
        self.server_order = self.server_order.max(order);
    }

    /// By how many decisions the server is ahead.
    pub(super) fn lag(&self, next_order: u64) -> u64 {
        self.server_order.saturating_sub(next_order)
    }
}

/// Decisions that are kept ahead of the next.
const DECISIONS_MAX: usize = 64;
