//! Which step of a lane is sent next, and when it is sent again (SPEC "Member", "Resync").
//!
//! One entry per slot of the lease; a slot has at most one step under way, for step `k` goes out
//! only when the sum of `k - window` is held. Each slot keeps the last sum that it got until the
//! next one arrives: whoever may still lack a sum lacks that one.
//!
//! Steps that may go out for the first time wait in a heap, lowest first; those whose deadline has
//! passed, or whose contribution is known to be lost, wait in `due` and go before them. A frame
//! costs O(log window); only a passed deadline costs a scan of the slots. All memory is taken
//! when the lane opens: an entry of `due` or `ready` that events have overtaken is left in
//! place and skipped later, and there is at most one such per slot.

use alloc::collections::{BinaryHeap, VecDeque};
use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Reverse;

use weft_wire::Nanos;
use weft_wire::header::Flags;

use super::slot::{Action, Answer, Have, Held, Send, Slot, State};
use crate::send::path::{Overdue, Path};

/// The steps of one lane.
#[derive(Debug)]
pub(super) struct Steps {
    window: u32,
    sum_len: usize,
    slots: Vec<Slot>,
    /// The sums held, one per slot, as they came.
    sums: Vec<u8>,
    ready: BinaryHeap<Reverse<u32>>,
    due: VecDeque<u32>,
    /// No step under way has a deadline before this.
    next_deadline: Nanos,
    /// Steps that the box has not said to have.
    in_flight: u32,
    /// Steps that the box has said to have.
    known: u32,
    /// The lowest step whose sum is missing.
    low: u32,
    /// The first step after the round.
    end: u32,
}

impl Steps {
    /// Slots for a lease of `window` steps, a power of two, and sums of `sum_len` bytes.
    pub(super) fn new(window: u16, sum_len: usize) -> Self {
        let slot_count = usize::from(window);
        let window = u32::from(window);
        assert!(window.is_power_of_two(), "the window was checked with the lease");
        Self {
            window,
            sum_len,
            slots: (0..window).map(Slot::new).collect(),
            sums: vec![0; slot_count * sum_len],
            ready: BinaryHeap::with_capacity(2 * slot_count),
            due: VecDeque::with_capacity(2 * slot_count),
            next_deadline: Nanos::MAX,
            in_flight: 0,
            known: 0,
            low: 0,
            end: 0,
        }
    }

    /// Lets the steps below `end` go out: the next round.
    pub(super) fn extend(&mut self, end: u32) {
        self.end = end;
        self.refill_ready();
    }

    /// True while a sum of the round is missing.
    pub(super) fn unfinished(&self) -> bool {
        self.low < self.end
    }

    /// True when nothing is under way or about to be.
    pub(super) fn idle(&self) -> bool {
        self.in_flight + self.known == 0 && self.ready.is_empty()
    }

    /// No deadline passes before this.
    pub(super) fn next_deadline(&self) -> Nanos {
        self.next_deadline
    }

    /// What to send now with a congestion window of `size`. The lowest missing step goes whatever
    /// the window: members whose windows are full of different steps would wait for each other
    /// for ever, but all of them can send the lowest step that any of them lacks.
    pub(super) fn peek(&mut self, size: u32) -> Option<Action> {
        while let Some(&step) = self.due.front() {
            let slot = self.slot(step);
            if slot.queued && slot.current(self.window) == step {
                let send = match slot.state {
                    State::Known => Send::Status,
                    State::HandedOver => Send::HandOver,
                    _ => Send::Contribution,
                };
                return Some(Action { step, send, repeat: true });
            }
            self.due.pop_front();
        }
        while let Some(&Reverse(step)) = self.ready.peek() {
            if self.in_flight >= size && step != self.low {
                return None;
            }
            let slot = self.slot(step);
            let send = match slot.state {
                State::Idle => Send::Contribution,
                State::HandOver => Send::HandOver,
                _ => Send::Status,
            };
            if send != Send::Status && slot.current(self.window) == step {
                let near = step < self.low + RUN_AHEAD_WINDOWS * self.window;
                return near.then_some(Action { step, send, repeat: false });
            }
            self.ready.pop();
        }
        None
    }

    /// Takes note that the action of the last [`Steps::peek`] was carried out.
    pub(super) fn sent(&mut self, action: Action, now: Nanos, path: &Path, exponent: i8) {
        if action.repeat {
            self.due.pop_front();
        } else {
            self.ready.pop();
            self.in_flight += 1;
        }
        let slot = self.slot_mut(action.step);
        if action.repeat {
            slot.queued = false;
            path.repeat(now, &mut slot.sent);
        } else {
            slot.sent = path.send(now);
        }
        match action.send {
            Send::Contribution => {
                slot.state = State::Contributed;
                slot.contributed = true;
                slot.exponent = exponent;
            }
            Send::Status => {}
            Send::HandOver => slot.state = State::HandedOver,
        }
        slot.deadline = path.deadline(&slot.sent);
        self.next_deadline = self.next_deadline.min(self.slot(action.step).deadline);
    }

    /// Queues what is overdue. `None` when no deadline has passed; else the contributions among it
    /// of which the box has said nothing.
    pub(super) fn expire(&mut self, now: Nanos) -> Option<Overdue> {
        if now < self.next_deadline {
            return None;
        }
        let mut overdue: Option<Overdue> = None;
        self.next_deadline = Nanos::MAX;
        for slot in &mut self.slots {
            if !slot.state.under_way() || slot.queued {
                continue;
            }
            if slot.deadline > now {
                self.next_deadline = self.next_deadline.min(slot.deadline);
                continue;
            }
            slot.queued = true;
            self.due.push_back(slot.current(self.window));
            let overdue = overdue.get_or_insert_default();
            if slot.state == State::Contributed {
                overdue.add(&slot.sent);
            }
        }
        overdue
    }

    /// Takes a sum of all members.
    pub(super) fn take_answer(
        &mut self,
        step: u32,
        exponent: i8,
        flags: Flags,
        sum: &[u8],
    ) -> Answer {
        let (window, in_flight) = (self.window, self.in_flight);
        let slot = self.slot_mut(step);
        if step != slot.next {
            let handing_over = matches!(slot.state, State::HandOver | State::HandedOver);
            if handing_over && slot.current(window) == step {
                self.release(step);
                return Answer::HandedOver;
            }
            return if step < slot.next { Answer::Duplicate } else { Answer::Unexpected };
        }
        if !slot.contributed {
            return Answer::Unexpected;
        }
        let sent = (slot.state == State::Contributed).then_some(slot.sent);
        slot.next += window;
        slot.contributed = false;
        slot.sum_exponent = exponent;
        slot.sum_flags = flags.only(Flags::CLAMPED);
        let start = self.index(step) * self.sum_len;
        self.sums[start..start + self.sum_len].copy_from_slice(sum);
        self.release(step);
        while self.slot(self.low).next > self.low {
            self.low += 1;
        }
        Answer::New { sent, in_flight }
    }

    /// Takes the box's word that it collects this step; `named` says that we are in already.
    pub(super) fn take_have(&mut self, step: u32, named: bool) -> Have {
        let slot = self.slot_mut(step);
        if step != slot.next {
            return Have::Ignored;
        }
        match (slot.state, named) {
            (State::Contributed, true) => {
                slot.state = State::Known;
                self.in_flight -= 1;
                self.known += 1;
                Have::Known(self.slot(step).sent)
            }
            // Only a STATUS is answered so; a repeat of this word finds `Contributed`.
            (State::Known, false) => {
                slot.state = State::Contributed;
                let queued = core::mem::replace(&mut slot.queued, true);
                self.in_flight += 1;
                self.known -= 1;
                if !queued {
                    self.due.push_back(step);
                }
                Have::Lost
            }
            _ => Have::Ignored,
        }
    }

    /// Takes the box's word that this step cannot be claimed. A contribution is tried again when
    /// its time comes; a sum handed over is no longer wanted.
    pub(super) fn take_stale(&mut self, step: u32) {
        let window = self.window;
        let slot = self.slot_mut(step);
        match slot.state {
            State::Known if step == slot.next => {
                slot.state = State::Contributed;
                self.in_flight += 1;
                self.known -= 1;
            }
            State::HandedOver if step == slot.current(window) => self.release(step),
            _ => {}
        }
    }

    /// Begins anew in a new epoch: nothing is under way, and of the `wanted` steps those that we
    /// hold are handed over before their slot goes on.
    pub(super) fn resume(&mut self, wanted: impl Iterator<Item = u32>) {
        (self.in_flight, self.known) = (0, 0);
        self.due.clear();
        self.next_deadline = Nanos::MAX;
        for slot in &mut self.slots {
            slot.state = State::Idle;
            slot.queued = false;
        }
        for step in wanted {
            let window = self.window;
            let slot = self.slot_mut(step);
            if step.checked_add(window) == Some(slot.next) {
                slot.state = State::HandOver;
            }
        }
        self.refill_ready();
    }

    /// The sum of this step, if it is the last that its slot got.
    pub(super) fn held(&self, step: u32) -> Option<Held<'_>> {
        let slot = self.slot(step);
        if step.checked_add(self.window) != Some(slot.next) {
            return None;
        }
        let start = self.index(step) * self.sum_len;
        Some(Held {
            sum: &self.sums[start..start + self.sum_len],
            exponent: slot.sum_exponent,
            flags: slot.sum_flags,
        })
    }

    /// The exponent that went with our contribution to the slot of this step.
    pub(super) fn exponent_sent(&self, step: u32) -> i8 {
        self.slot(step).exponent
    }

    /// The lowest step whose sum is missing.
    pub(super) fn low(&self) -> u32 {
        self.low
    }

    /// The lowest missing step, and how many steps from there a bitmap must cover to show every
    /// sum held above it.
    pub(super) fn held_range(&self) -> (u32, u32) {
        let next_max = self.slots.iter().map(|slot| slot.next).max().unwrap_or(0);
        let held_end = (next_max + 1).saturating_sub(self.window);
        (self.low, held_end.saturating_sub(self.low))
    }

    /// True when the sum of this step has arrived, kept or not.
    pub(super) fn has(&self, step: u32) -> bool {
        self.slot(step).next > step
    }

    /// Entries that both queues can hold without more memory, if it is the same for both.
    #[cfg(test)]
    pub(super) fn queue_capacity(&self) -> Option<usize> {
        (self.ready.capacity() == self.due.capacity()).then(|| self.due.capacity())
    }

    /// Ends what is under way in the slot of this step and lets the slot go on.
    fn release(&mut self, step: u32) {
        let end = self.end;
        let slot = self.slot_mut(step);
        let (in_flight, known) = (slot.state.in_flight(), slot.state == State::Known);
        slot.state = State::Idle;
        slot.queued = false;
        let next = slot.next;
        self.in_flight -= u32::from(in_flight);
        self.known -= u32::from(known);
        if next < end {
            self.ready.push(Reverse(next));
        }
    }

    fn refill_ready(&mut self) {
        self.ready.clear();
        for slot in &self.slots {
            match slot.state {
                State::Idle if slot.next < self.end => self.ready.push(Reverse(slot.next)),
                State::HandOver => self.ready.push(Reverse(slot.current(self.window))),
                _ => {}
            }
        }
    }

    fn index(&self, step: u32) -> usize {
        (step & (self.window - 1)) as usize
    }

    fn slot(&self, step: u32) -> &Slot {
        &self.slots[self.index(step)]
    }

    fn slot_mut(&mut self, step: u32) -> &mut Slot {
        let index = self.index(step);
        &mut self.slots[index]
    }
}

/// How far a member runs ahead of its lowest missing step, in windows: what the bitmap of a JOIN
/// can tell (SPEC "Resync").
pub(super) const RUN_AHEAD_WINDOWS: u32 = 4;
