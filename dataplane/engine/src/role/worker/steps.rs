//! Which step of a lane is sent next, and when it is sent again (SPEC "Member", "Resync").
//!
//! One entry per slot of the lease; a slot has at most one step under way, for step `k` goes out
//! only when the sum of `k - window` is held. Each slot keeps the last sum that it got until the
//! next one arrives: whoever may still lack a sum lacks that one. Where the payload has it bit for
//! bit, it is copied only when the round ends.
//!
//! Steps that may go out for the first time, or again because their contribution is lost, wait in a
//! list, lowest first, and for the window. [`Order`] says what is lost. Where nothing says
//! so, only the lowest missing step goes again, when a timeout has passed since the last answer,
//! later each time: who is late is not asked for a window of repeats. It, and questions whose
//! deadline has passed, wait in `due` and go before the others, whatever the window.
//!
//! A frame costs O(1) where answers come in the order of steps ([`ready`]); only a passed deadline
//! of a question costs a scan of the slots. All memory is taken when the lane opens: an entry of
//! `due` or `ready` that events have overtaken is left in place and skipped later, and there is at
//! most one such per slot.

mod late;
mod ready;
mod words;

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

use weft_wire::Nanos;

use self::ready::Ready;
use super::slot::{Action, Held, Send, Slot, State};
use crate::send::order::Order;
use crate::send::path::{Path, Sent};

/// The steps of one lane.
#[derive(Debug)]
pub(super) struct Steps {
    window: u32,
    sum_len: usize,
    /// Steps that rather go together.
    batch: u32,
    /// A batch has begun, and goes on while there is something that may go.
    is_batch_open: bool,
    slots: Vec<Slot>,
    /// The sums held, one per slot, as they came; but for those in their places.
    sums: Vec<u8>,
    ready: Ready,
    due: VecDeque<u32>,
    /// The contributions in flight, and which of them are lost.
    order: Order,
    /// No question or hand-over has a deadline before this.
    next_deadline: Nanos,
    /// When the last new sum came.
    answered_at: Nanos,
    /// What was sent until then may have waited for other members: the box has said so of a step.
    awaited_at: Option<Nanos>,
    /// Steps that the box has not said to have.
    in_flight: u32,
    /// As many as there were when one left last: what was used of the window. Answers of one burst
    /// find ever fewer in flight, before what they make room for has left.
    used: u32,
    /// Steps that the box has said to have.
    known: u32,
    /// The lowest step whose sum is missing.
    low: u32,
    /// The first step after the round.
    end: u32,
}

impl Steps {
    /// Slots for a lease of `window` steps, a power of two, and sums of `sum_len` bytes.
    /// Steps rather go `batch` at a time.
    pub(super) fn new(window: u16, sum_len: usize, batch: u32) -> Self {
        let slot_count = usize::from(window);
        let window = u32::from(window);
        assert!(window.is_power_of_two(), "the window was checked with the lease");
        Self {
            window,
            sum_len,
            batch,
            is_batch_open: false,
            slots: (0..window).map(Slot::new).collect(),
            sums: vec![0; slot_count * sum_len],
            ready: Ready::with_capacity(2 * slot_count),
            due: VecDeque::with_capacity(2 * slot_count),
            order: Order::new(slot_count),
            next_deadline: Nanos::MAX,
            answered_at: Nanos(0),
            awaited_at: None,
            in_flight: 0,
            used: 0,
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

    /// True for a step of the round that lacks its sum.
    pub(super) fn awaits(&self, step: u32) -> bool {
        step < self.end && !self.has(step)
    }

    /// True when nothing is under way or about to be.
    pub(super) fn idle(&self) -> bool {
        self.in_flight + self.known == 0 && self.ready.is_empty()
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
        while let Some(step) = self.ready.lowest() {
            let slot = self.slot(step);
            let send = match slot.state {
                State::Idle | State::Lost => Send::Contribution,
                State::HandOver => Send::HandOver,
                _ => Send::Status,
            };
            // First of all, for what events have overtaken stands before others and has no room.
            if send == Send::Status || slot.current(self.window) != step {
                self.pop_ready();
                continue;
            }
            let room = if slot.state == State::Lost { size.max(REPEATS_MIN) } else { size };
            if self.in_flight >= room && step != self.low {
                break;
            }
            let repeat = slot.state == State::Lost;
            if !self.is_near(step) || (!repeat && step != self.low && self.waits_for_batch(size)) {
                break;
            }
            self.is_batch_open = true;
            return Some(Action { step, send, repeat });
        }
        self.is_batch_open = false;
        None
    }

    /// True while fewer steps may go than rather go together, and more will: answers to what is in
    /// flight let others go. The lowest missing step and repeats never wait, so what is in flight
    /// is answered.
    fn waits_for_batch(&self, size: u32) -> bool {
        let batch = self.batch.min(size / 4);
        if self.is_batch_open || batch <= 1 || self.in_flight == 0 {
            return false;
        }
        let listed = u32::try_from(self.ready.len()).unwrap_or(u32::MAX);
        let sendable = listed.min(size.saturating_sub(self.in_flight));
        let to_come = self.end.saturating_sub(self.window).saturating_sub(self.low);
        sendable < batch && to_come >= batch - sendable
    }

    /// Takes note that the action of the last [`Steps::peek`] was carried out.
    pub(super) fn sent(&mut self, action: Action, now: Nanos, path: &Path, exponent: i8) {
        let index = self.index(action.step);
        let is_late = self.slots[index].queued;
        if is_late {
            self.due.pop_front();
        } else {
            self.pop_ready();
        }
        let slot = &mut self.slots[index];
        slot.queued = false;
        let was_in_flight = slot.state.in_flight();
        if action.repeat {
            path.repeat(now, &mut slot.sent);
        } else {
            slot.sent = path.send(now);
        }
        slot.deadline = path.deadline(&slot.sent);
        let deadline = slot.deadline;
        match action.send {
            Send::Contribution => {
                slot.contribute(exponent);
                self.order.push(index, now, is_late);
            }
            Send::Status => self.order.number(index),
            Send::HandOver => slot.state = State::HandedOver,
        }
        if self.slots[index].state.has_deadline() {
            self.next_deadline = self.next_deadline.min(deadline);
        }
        self.in_flight += u32::from(self.slots[index].state.in_flight() && !was_in_flight);
        self.used = self.in_flight;
    }

    /// How many contributions may follow at most where a batch has begun.
    pub(super) fn run_len_max(&self, size: u32) -> usize {
        let may_follow = self.is_batch_open && self.due.is_empty();
        let room = if may_follow { size.saturating_sub(self.in_flight) } else { 0 };
        self.ready.len().min(room as usize)
    }

    /// The step of a contribution that goes out for the first time, where that is what
    /// [`Steps::peek`] would say and a batch has begun.
    pub(super) fn next_of_run(&self, size: u32) -> Option<u32> {
        let step = self.ready.lowest().filter(|_| self.run_len_max(size) > 0)?;
        let slot = self.slot(step);
        let is_first = slot.state == State::Idle && slot.next == step;
        (is_first && self.is_near(step)).then_some(step)
    }

    /// As [`Steps::sent`] for what [`Steps::next_of_run`] has said.
    pub(super) fn sent_in_run(
        &mut self,
        step: u32,
        now: Nanos,
        sent: Sent,
        deadline: Nanos,
        exponent: i8,
    ) {
        self.pop_ready();
        let index = self.index(step);
        let slot = &mut self.slots[index];
        (slot.sent, slot.deadline) = (sent, deadline);
        slot.contribute(exponent);
        self.order.push(index, now, false);
        self.in_flight += 1;
        self.used = self.in_flight;
    }

    fn is_near(&self, step: u32) -> bool {
        step < self.low + RUN_AHEAD_WINDOWS * self.window
    }

    /// The contribution of this slot is lost and waits for its repeat; one that waits in `due` goes
    /// from there.
    fn list_lost(&mut self, index: usize) {
        let slot = &mut self.slots[index];
        slot.state = State::Lost;
        let step = slot.next;
        if !slot.queued && slot.listed.replace(step) != Some(step) {
            self.ready.push(step);
        }
    }

    fn pop_ready(&mut self) {
        if let Some(step) = self.ready.pop() {
            let slot = self.slot_mut(step);
            if slot.listed == Some(step) {
                slot.listed = None;
            }
        }
    }

    /// Begins anew in a new epoch: nothing is under way, and of the `wanted` steps those that we
    /// hold are handed over before their slot goes on.
    pub(super) fn resume(&mut self, wanted: impl Iterator<Item = u32>) {
        (self.in_flight, self.known) = (0, 0);
        self.due.clear();
        self.order.clear();
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
            sum: (!slot.in_place).then(|| &self.sums[start..start + self.sum_len]),
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

    /// Steps that the box has not said to have.
    #[cfg(test)]
    pub(super) fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Entries that both queues can hold without more memory, if it is the same for both.
    #[cfg(test)]
    pub(super) fn queue_capacity(&self) -> Option<usize> {
        (self.ready.capacity() == self.due.capacity()).then(|| self.due.capacity())
    }

    /// Ends what is under way in the slot of this step and lets the slot go on.
    fn release(&mut self, step: u32) {
        let (end, index) = (self.end, self.index(step));
        self.order.remove(index);
        let slot = &mut self.slots[index];
        let (in_flight, known) = (slot.state.in_flight(), slot.state == State::Known);
        slot.state = State::Idle;
        slot.queued = false;
        let next = slot.next;
        if next < end {
            slot.listed = Some(next);
            self.ready.push(next);
        }
        self.in_flight -= u32::from(in_flight);
        self.known -= u32::from(known);
    }

    fn refill_ready(&mut self) {
        self.ready.clear();
        // From the lowest step on, so that most are appended.
        let (before, from) = self.slots.split_at_mut((self.low & (self.window - 1)) as usize);
        for slot in from.iter_mut().chain(before) {
            slot.listed = match slot.state {
                State::Idle | State::Lost if slot.next < self.end => Some(slot.next),
                State::HandOver => Some(slot.current(self.window)),
                _ => None,
            };
            if let Some(step) = slot.listed {
                self.ready.push(step);
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

/// Repeats of what is lost that may be in flight whatever the window: a path that loses much would
/// have a window of one, and then a step a round trip.
const REPEATS_MIN: u32 = 4;

/// How far a member runs ahead of its lowest missing step, in windows: what the bitmap of a JOIN
/// can tell (SPEC "Resync").
pub(super) const RUN_AHEAD_WINDOWS: u32 = 4;
