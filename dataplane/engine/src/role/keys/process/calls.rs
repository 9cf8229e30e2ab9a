//! What becomes of the application's operations: at once, into the queue, into an access.

use weft_wire::keys::{Number, Parts};

use super::queue::{Item, Kind, List};
use super::state::{Active, Core, Flight, Left, NO_FLIGHT};
use super::{CallError, Op, Presence, Sink};
use crate::role::keys::config::IN_FLIGHT_MAX;
use crate::role::keys::pool::NONE;
use crate::role::keys::store::Slot;

impl Core {
    /// The place of the key, if the call can be taken.
    pub(super) fn check_call(&self, key: u64, op: &Op<'_>) -> Result<u32, CallError> {
        let index = self.table.index(key).ok_or(CallError::UnknownKey(key))?;
        if let Op::Set(value) | Op::Add(value) = op
            && value.len() != usize::from(self.table.row_len)
        {
            return Err(CallError::RowLen { given: value.len(), row_len: self.table.row_len });
        }
        if self.presence() == Presence::Lost { Err(CallError::Lost) } else { Ok(index) }
    }

    /// Takes an operation of the application.
    pub(super) fn call(
        &mut self,
        slot: &mut Slot<'_>,
        index: u32,
        op: Op<'_>,
        call: u64,
        sink: &mut impl Sink,
    ) -> Result<(), CallError> {
        let key = self.table.key(index);
        if slot.is_held() && self.mode.is_fast() {
            self.stats.local += 1;
            apply(slot.value, op);
            let value = matches!(op, Op::Pull).then_some(&*slot.value);
            sink.done(call, key, value);
            return Ok(());
        }
        if self.has_copies(index) && self.use_copy(slot, index, op, call, sink)? {
            return Ok(());
        }
        let (kind, value) = match op {
            Op::Set(value) => (Kind::Set, value),
            Op::Add(value) => (Kind::Add, value),
            Op::Pull => (Kind::Pull, &[][..]),
        };
        let active = self.enqueue(index, kind, call, value)?;
        self.stats.remote += 1;
        self.launch(active);
        Ok(())
    }

    /// Takes a localize of the application.
    pub(super) fn localize(
        &mut self,
        slot: &Slot<'_>,
        index: u32,
        call: u64,
        sink: &mut impl Sink,
    ) -> Result<(), CallError> {
        if slot.is_held() || self.mode.is_static() {
            sink.done(call, self.table.key(index), None);
            return Ok(());
        }
        let active = self.enqueue(index, Kind::Localize, call, &[])?;
        if !self.actives[active].localize.is_some() {
            self.open_localize(active);
        }
        Ok(())
    }

    /// Lets an operation wait for the row or for its turn.
    fn enqueue(
        &mut self,
        index: u32,
        kind: Kind,
        call: u64,
        value: &[f32],
    ) -> Result<u32, CallError> {
        if self.operations.free_count() == 0 {
            return Err(CallError::Full);
        }
        let active = self.activate(index).ok_or(CallError::Full)?;
        let Active { queue, localizers, .. } = &mut self.actives[active];
        let list = if kind == Kind::Localize { localizers } else { queue };
        if list.len() >= self.limits.key_queue_max {
            return Err(CallError::Full);
        }
        let is_taken = self.operations.push(list, kind, call, value);
        debug_assert!(is_taken, "there was room");
        Ok(active)
    }

    /// A number of `lane` for this turn's accesses or localizes, which have a place in the batch,
    /// above `above`; `None` when too many are open.
    fn number(&mut self, of: usize, lane: u8, above: Number) -> Option<Number> {
        if self.batch[of] <= above || !self.batch[of].is_some() {
            match self.open.give(self.life, lane, self.table.in_flight) {
                Some(number) => self.batch[of] = number,
                None => {
                    self.stats.numbers_full += 1;
                    return None;
                }
            }
        }
        self.open.open(self.batch[of]);
        Some(self.batch[of])
    }

    /// Gives the localize of this key a number; without one the key is looked at again later.
    pub(super) fn open_localize(&mut self, active: u32) {
        self.unsent.mark(active);
        if self.presence() != Presence::Present {
            return;
        }
        let above = self.flight(active, 0).number;
        if let Some(number) = self.number(OF_LOCALIZES, 0, above) {
            self.stats.localizes += 1;
            self.actives[active].localize = number;
            self.actives[active].localize_left = Left::No;
            self.begin_pause(active);
        }
    }

    /// Begins the next access in each lane that has none in flight, if the row is not on its way
    /// here.
    pub(super) fn launch(&mut self, active: u32) {
        for lane in 0..self.table.in_flight {
            self.launch_in(active, lane);
        }
    }

    fn launch_in(&mut self, active: u32, lane: u8) {
        let Active { localize, queue, wants_copy, .. } = &self.actives[active];
        let is_idle = queue.is_empty() && !wants_copy;
        if localize.is_some() || is_idle || self.flight(active, lane).number.is_some() {
            return;
        }
        self.unsent.mark(active);
        if self.presence() != Presence::Present {
            return;
        }
        let Some(number) = self.number(usize::from(lane), lane, Number::NONE) else { return };
        self.stats.accesses += 1;
        *self.flight_mut(active, lane) = Flight { number, ..self.merge(active) };
        self.begin_pause(active);
    }

    /// Merges the head of the queue into one access: `set? add* pull*`.
    fn merge(&mut self, active: u32) -> Flight {
        let may_take = self.may_take(self.actives[active].index);
        let Active { queue, wants_copy, .. } = &mut self.actives[active];
        let mut flight = Flight { clock: self.clock, ..NO_FLIGHT };
        while let Some((_, item)) = self.operations.first(queue) {
            let fits = match item.kind {
                Kind::Set => flight.parts == Parts::NONE,
                Kind::Add => !flight.parts.contains(Parts::PULL),
                Kind::Pull | Kind::Localize => true,
            };
            if !fits {
                break;
            }
            let Some((place, _)) = self.operations.pop(queue) else { break };
            match item.kind {
                Kind::Set => (flight.parts, flight.set) = (flight.parts.with(Parts::SET), place),
                Kind::Add if flight.add == NONE => {
                    (flight.parts, flight.add) = (flight.parts.with(Parts::ADD), place);
                }
                Kind::Add => self.operations.merge(flight.add, place),
                Kind::Pull | Kind::Localize => flight.parts = flight.parts.with(Parts::PULL),
            }
            self.operations.append(&mut flight.operations, place);
        }
        if core::mem::take(wants_copy) {
            flight.parts = flight.parts.with(Parts::PULL);
        }
        if may_take && flight.parts.contains(Parts::PULL) {
            flight.parts = flight.parts.with(Parts::TAKE);
        }
        flight
    }

    /// Runs what waits on the row, in order.
    pub(super) fn run_queue(&mut self, slot: &mut Slot<'_>, active: u32, sink: &mut impl Sink) {
        let mut queue = core::mem::replace(&mut self.actives[active].queue, List::EMPTY);
        let key = self.table.key(self.actives[active].index);
        while let Some((place, item)) = self.operations.pop(&mut queue) {
            let Item { kind, .. } = item;
            let value = self.operations.value(place);
            match kind {
                Kind::Set => apply(slot.value, Op::Set(value)),
                Kind::Add => apply(slot.value, Op::Add(value)),
                Kind::Pull | Kind::Localize => {}
            }
            self.operations.free(place);
            let value = (kind == Kind::Pull).then_some(&*slot.value);
            self.finish(&item, key, value, sink);
        }
    }

    /// The access in flight in this lane was answered, or was run here.
    pub(super) fn complete(
        &mut self,
        (active, lane): (u32, u8),
        value: Option<&[f32]>,
        sink: &mut impl Sink,
    ) {
        let key = self.table.key(self.actives[active].index);
        let mut done = core::mem::replace(self.flight_mut(active, lane), NO_FLIGHT);
        self.open.close(done.number);
        while let Some((place, item)) = self.operations.pop(&mut done.operations) {
            self.operations.free(place);
            let value = if item.kind == Kind::Pull { value } else { None };
            self.finish(&item, key, value, sink);
        }
    }

    /// The localize is over: the row is here.
    pub(super) fn complete_localize(&mut self, active: u32, sink: &mut impl Sink) {
        let Active { index, localize, localizers, .. } = &mut self.actives[active];
        let key = self.table.key(*index);
        let number = core::mem::replace(localize, Number::NONE);
        let mut waiting = core::mem::replace(localizers, List::EMPTY);
        self.open.close(number);
        while let Some((place, item)) = self.operations.pop(&mut waiting) {
            self.operations.free(place);
            sink.done(item.call, key, None);
        }
    }

    /// A row of a later life cannot tell of this number: the access returns to its queue's head,
    /// the localize gets a new number.
    pub(super) fn take_stale(&mut self, index: u32, number: Number) -> bool {
        let active = self.place(index).active;
        if active == NONE {
            return false;
        }
        let mut is_ours = false;
        let lane = self.table.lane(number);
        if self.flight(active, lane).number == number {
            let back = core::mem::replace(self.flight_mut(active, lane), NO_FLIGHT);
            let Active { queue, wants_copy, .. } = &mut self.actives[active];
            self.operations.prepend(queue, back.operations);
            *wants_copy |= back.parts.contains(Parts::PULL);
            self.open.close(number);
            is_ours = true;
            self.launch(active);
        }
        if self.actives[active].localize == number {
            self.open.close(number);
            self.actives[active].localize = Number::NONE;
            self.open_localize(active);
            is_ours = true;
        }
        is_ours
    }
}

/// The place of this turn's localizes in the batch.
const OF_LOCALIZES: usize = IN_FLIGHT_MAX as usize;

/// Runs an operation on a row.
pub(super) fn apply(row: &mut [f32], op: Op<'_>) {
    match op {
        Op::Set(value) => row.copy_from_slice(value),
        Op::Add(value) => {
            for (element, term) in row.iter_mut().zip(value) {
                *element += term;
            }
        }
        Op::Pull => {}
    }
}
