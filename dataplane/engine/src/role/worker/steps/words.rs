//! What the box says of a step, and what comes of it.

use weft_wire::Nanos;
use weft_wire::header::Flags;

use super::Steps;
use crate::role::worker::slot::{Answer, Have, State, Sum};

impl Steps {
    /// Takes a sum of all members.
    pub(in crate::role::worker) fn take_answer(
        &mut self,
        step: u32,
        now: Nanos,
        shortest: Option<Nanos>,
        sum: Sum<'_>,
    ) -> Answer {
        let (window, awaited_at) = (self.window, self.awaited_at);
        let (in_flight, used) = (self.in_flight, self.used);
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
        let was_lost = slot.state == State::Lost;
        let is_timed = slot.state == State::Contributed || was_lost;
        let sent = is_timed.then_some(slot.sent);
        let is_awaited = slot.sent.is_before(awaited_at);
        let is_repeated = slot.sent.is_repeated();
        slot.next += window;
        slot.contributed = false;
        slot.sum_exponent = sum.exponent;
        slot.sum_flags = sum.flags.only(Flags::CLAMPED);
        slot.in_place = sum.in_place;
        let index = self.index(step);
        if !sum.in_place {
            let start = index * self.sum_len;
            self.sums[start..start + self.sum_len].copy_from_slice(sum.bytes);
        }
        self.order.answer(index, now, is_repeated, shortest.unwrap_or_default());
        self.answered_at = now;
        self.release(step);
        while self.slot(self.low).next > self.low {
            self.low += 1;
        }
        Answer::New { sent, is_awaited, was_lost, in_flight, used }
    }

    /// Copies the sums that are in their places, for the round ends: `write` gives that of a step.
    pub(in crate::role::worker) fn take_sums(&mut self, mut write: impl FnMut(u32, &mut [u8])) {
        let sums = self.sums.chunks_exact_mut(self.sum_len);
        for (slot, sum) in self.slots.iter_mut().zip(sums).filter(|(slot, _)| slot.in_place) {
            slot.in_place = false;
            write(slot.next - self.window, sum);
        }
    }

    /// Takes the box's word that it collects this step; `named` says that we are in already.
    pub(in crate::role::worker) fn take_have(
        &mut self,
        step: u32,
        now: Nanos,
        named: bool,
    ) -> Have {
        let index = self.index(step);
        let slot = &mut self.slots[index];
        if step != slot.next {
            return Have::Ignored;
        }
        match (slot.state, named) {
            (State::Contributed | State::Lost, true) => {
                self.in_flight -= u32::from(slot.state.in_flight());
                slot.state = State::Known;
                self.known += 1;
                self.awaited_at = Some(now);
                self.next_deadline = self.next_deadline.min(slot.deadline);
                self.order.remove(index);
                Have::Known(self.slot(step).sent)
            }
            // Only a STATUS is answered so; a repeat of this word finds `Lost`.
            (State::Known, false) => {
                self.known -= 1;
                self.list_lost(index);
                Have::Lost
            }
            _ => Have::Ignored,
        }
    }

    /// Takes the box's word that this step cannot be claimed. A contribution is tried again when
    /// its time comes; a sum handed over is no longer wanted.
    pub(in crate::role::worker) fn take_stale(&mut self, step: u32, now: Nanos) {
        let (window, index) = (self.window, self.index(step));
        let slot = &mut self.slots[index];
        match slot.state {
            State::Known if step == slot.next => {
                slot.state = State::Contributed;
                self.in_flight += 1;
                self.known -= 1;
                self.order.push(index, now, true);
            }
            State::HandedOver if step == slot.current(window) => self.release(step),
            _ => {}
        }
    }
}
