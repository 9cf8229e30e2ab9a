//! What happens when a row comes: from its giver, from a checkpoint, or back from a kept copy.
//!
//! In this sequence, under the key's lock: the own access in flight against the row's last numbers,
//! the localize, the own queue, what others queued, then the first localize that waits and is still
//! open; others are sent on.

use arrayvec::ArrayVec;
use weft_wire::keys::{At, Claim, Number, Parts, Row, RowEpoch, What, values};

use super::owner::{Asked, Change, Value};
use super::state::{Active, Core, Flight, Remote};
use super::{CallError, Sink};
use crate::role::keys::config::KEPT_PER_KEY_MAX;
use crate::role::keys::frames::{Kinship, To};
use crate::role::keys::pool::NONE;
use crate::role::keys::store::Slot;

/// What is said of one key in a claim: that it arrived, that it is here, copies.
pub(super) type ClaimOfKey = ArrayVec<Claim, { 2 + KEPT_PER_KEY_MAX }>;

impl Core {
    /// Takes the row that it waits for, and acknowledges any.
    pub(super) fn take_row(
        &mut self,
        slot: &mut Slot<'_>,
        index: u32,
        giver: u8,
        number: Number,
        row: &Row<'_>,
        sink: &mut impl Sink,
    ) {
        let active = self.place(index).active;
        let awaited = (active != NONE && number.is_some()).then(|| {
            let takes = |flight: &&Flight| flight.parts.contains(Parts::TAKE);
            let Active { localize, localize_left, .. } = &self.actives[active];
            let own = (*localize == number).then_some(*localize_left);
            own.or_else(|| self.flight_of(active, number).filter(takes).map(|flight| flight.left))
        });
        if let Some(left) = awaited.flatten().filter(|_| !slot.is_held()) {
            self.note_answer(left);
            slot.lasts.fill(Number::NONE);
            for (process, last) in row.lasts() {
                let process = u8::try_from(process).unwrap_or(u8::MAX);
                if let Some(place) = slot.lasts.get_mut(self.table.last_place(process, last)) {
                    *place = last;
                }
            }
            for (element, value) in slot.value.iter_mut().zip(values(row.value)) {
                *element = value;
            }
            self.stats.rows_taken += 1;
            self.install(slot, index, row.epoch, sink);
        }
        self.acknowledge(slot, index, giver, row.epoch, sink);
    }

    /// A row that was given has arrived.
    pub(super) fn take_row_ack(&mut self, index: u32, epoch: RowEpoch) -> bool {
        let left = self.forget_kept(index, epoch);
        if let Some(left) = left {
            self.note_answer(left);
        }
        left.is_some()
    }

    /// Says through the box that a row has arrived, and what is here of this key now.
    fn acknowledge(
        &mut self,
        slot: &Slot<'_>,
        index: u32,
        giver: u8,
        epoch: RowEpoch,
        sink: &mut impl Sink,
    ) {
        let mut claim = ClaimOfKey::new();
        claim.push(Claim { key: self.table.key(index), epoch, at: At::This });
        self.claim_of(*slot.epoch, index, &mut claim);
        // One count for all of this turn: they leave in one frame, or in several of which the first
        // counts.
        let number = self.claims.count_of_turn();
        let kinship = Kinship { peer: giver, ..Kinship::new(What::RowAck, self.me, number) };
        self.frames.put_claims(To::Home, kinship, &claim, sink);
    }

    /// Adds to `claim` what is here of a key: the row, if it has an epoch, and kept copies.
    pub(super) fn claim_of(&self, held: RowEpoch, index: u32, claim: &mut ClaimOfKey) {
        let key = self.table.key(index);
        if held.is_some() {
            claim.push(Claim { key, epoch: held, at: At::Here });
        }
        for (_, kept) in self.kept_of(index).take(KEPT_PER_KEY_MAX) {
            claim.push(Claim { key, epoch: kept.epoch, at: At::Process(kept.to.into()) });
        }
    }

    /// The row is here, with its value and last numbers in the slot.
    pub(super) fn install(
        &mut self,
        slot: &mut Slot<'_>,
        index: u32,
        epoch: RowEpoch,
        sink: &mut impl Sink,
    ) {
        (*slot.epoch, *slot.fresh) = (epoch, 0);
        sink.arrived(self.table.key(index), slot);
        let active = self.place(index).active;
        if active == NONE {
            return;
        }
        self.actives[active].wants_copy = false;
        for lane in 0..self.table.in_flight {
            let flight = *self.flight(active, lane);
            if !flight.number.is_some() {
                continue;
            }
            if self.last(slot, self.me, flight.number) < flight.number {
                let elements = |place: u32| match place {
                    NONE => Value::None,
                    place => Value::Elements(self.operations.value(place)),
                };
                let (set, add) = (elements(flight.set), elements(flight.add));
                Change { parts: flight.parts, set, add }.apply(slot.value);
                slot.lasts[self.table.last_place(self.me, flight.number)] = flight.number;
            }
            self.complete((active, lane), Some(&*slot.value), sink);
        }
        let localize = self.actives[active].localize;
        let last = &mut slot.lasts[self.table.last_place(self.me, localize)];
        *last = localize.max(*last);
        self.complete_localize(active, sink);
        self.run_queue(slot, active, sink);
        self.run_remote(slot, index, active, sink);
        self.pass_to_next(slot, index, active, sink);
        self.retire(active);
    }

    /// Serves what others queued.
    fn run_remote(&mut self, slot: &mut Slot<'_>, index: u32, active: u32, sink: &mut impl Sink) {
        let row_len = usize::from(self.table.row_len);
        for waiting in 0..self.table.lasts_per_row() {
            let place = core::mem::replace(&mut self.remotes_of(active)[waiting], NONE);
            if place == NONE {
                continue;
            }
            let from = waiting / usize::from(self.table.in_flight);
            let from = u8::try_from(from).unwrap_or(u8::MAX);
            let Remote { number, parts } = self.remotes[place];
            // Lent out while it is served.
            let all = core::mem::take(&mut self.remote_values);
            let (set, add) = all[place as usize * 2 * row_len..][..2 * row_len].split_at(row_len);
            let of = |part: Parts, elements| {
                if parts.contains(part) { Value::Elements(elements) } else { Value::None }
            };
            let (set, add) = (of(Parts::SET, set), of(Parts::ADD, add));
            self.serve(slot, index, from, number, &Change { parts, set, add }, sink);
            self.remote_values = all;
            self.remotes.give_back(place);
        }
    }

    /// Gives the row to the first that waits for it, the next process after this one before others,
    /// and sends the others on.
    fn pass_to_next(&mut self, slot: &mut Slot<'_>, index: u32, active: u32, sink: &mut impl Sink) {
        let count = self.table.processes;
        for step in 1..count {
            let from = (u16::from(self.me) + u16::from(step)) % u16::from(count);
            let from = u8::try_from(from).unwrap_or(0);
            let number = core::mem::take(self.noted(active, from));
            if !number.is_some() {
                continue;
            }
            let asked = Asked { from, number, low: self.floors[usize::from(from)].0, hops: 0 };
            if !slot.is_held() {
                self.pass_localize_on(index, &asked, sink);
            } else if self.is_open_localize(slot, index, from, number, sink) {
                self.give(slot, index, &asked, sink);
            }
        }
    }

    /// The box says that nobody has the row: the application is asked for it, once a life.
    pub(super) fn take_loss(&mut self, slot: &Slot<'_>, index: u32, sink: &mut impl Sink) -> bool {
        let life = self.life;
        let place = &mut self.places[index as usize];
        if slot.is_held() || place.restored == life || place.lost == life {
            return false;
        }
        place.lost = life;
        sink.lost(self.table.key(index));
        true
    }

    /// The application restores a row.
    pub(super) fn restore(
        &mut self,
        slot: &mut Slot<'_>,
        index: u32,
        value: &[f32],
        lasts: &[Number],
        sink: &mut impl Sink,
    ) -> Result<(), CallError> {
        let life = self.life;
        let place = &mut self.places[index as usize];
        if place.lost != life || place.restored == life || slot.is_held() {
            return Err(CallError::NotLost(self.table.key(index)));
        }
        place.restored = life;
        slot.value.copy_from_slice(value);
        slot.lasts.fill(Number::NONE);
        for (place, last) in slot.lasts.iter_mut().zip(lasts) {
            *place = *last;
        }
        self.stats.restored += 1;
        self.install(slot, index, RowEpoch::born(life), sink);
        Ok(())
    }

    /// The box says that a copy which went to a dead process is the row now.
    pub(super) fn take_back(
        &mut self,
        slot: &mut Slot<'_>,
        index: u32,
        epoch: RowEpoch,
        sink: &mut impl Sink,
    ) -> bool {
        let kept = self.kept_of(index).find(|(_, kept)| kept.epoch == epoch);
        let Some((place, kept)) = kept else { return false };
        if self.is_living(kept.to) || slot.is_held() {
            return false;
        }
        let (value, lasts) = self.kept_row(place);
        slot.value.copy_from_slice(value);
        slot.lasts.copy_from_slice(lasts);
        self.forget_kept(index, epoch);
        self.stats.restored += 1;
        // What the dead process took after it had the row is lost, and may come again as a late
        // copy: the row is born anew.
        self.install(slot, index, RowEpoch::born(self.life), sink);
        true
    }
}
