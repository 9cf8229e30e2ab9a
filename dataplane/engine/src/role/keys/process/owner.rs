//! What others get here: an answer or the row, if it is here; a place in the queue, if it is on its
//! way here; else a way on.

use weft_wire::keys::{Access, Number, Parts, RowEpoch, What, emit, values};

use super::Sink;
use super::state::{Core, Kept, Left, Remote};
use crate::role::keys::config::{HOPS_MAX, KEPT_PER_KEY_MAX};
use crate::role::keys::frames::{Kinship, To};
use crate::role::keys::pool::NONE;
use crate::role::keys::store::Slot;

/// Whose frame it is, and what its head says.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    pub(super) from: u8,
    pub(super) number: Number,
    pub(super) low: u64,
    pub(super) hops: u8,
}

/// What an access sets and adds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Change<'a> {
    pub(super) parts: Parts,
    pub(super) set: Value<'a>,
    pub(super) add: Value<'a>,
}

/// A value as it came, or as it waited.
#[derive(Clone, Copy, Debug)]
pub(super) enum Value<'a> {
    None,
    Octets(&'a [u8]),
    Elements(&'a [f32]),
}

impl<'a> Change<'a> {
    pub(super) fn of(access: &Access<'a>) -> Self {
        let value = |octets: Option<&'a [u8]>| octets.map_or(Value::None, Value::Octets);
        Self { parts: access.parts, set: value(access.set), add: value(access.value) }
    }

    pub(super) fn apply(&self, row: &mut [f32]) {
        self.set.each(row, |element, value| *element = value);
        self.add.each(row, |element, value| *element += value);
    }
}

impl Value<'_> {
    fn each(&self, row: &mut [f32], change: impl Fn(&mut f32, f32)) {
        match self {
            Self::None => {}
            Self::Octets(octets) => {
                let elements = row.iter_mut().zip(values(octets));
                elements.for_each(|(element, value)| change(element, value));
            }
            Self::Elements(elements) => {
                let elements = row.iter_mut().zip(*elements);
                elements.for_each(|(element, value)| change(element, *value));
            }
        }
    }
}

impl Core {
    /// Nothing of `from` is open below this any more.
    pub(super) fn learn_low(&mut self, from: u8, low: u64) {
        let floor = &mut self.floors[usize::from(from)];
        *floor = Number(low).max(*floor);
    }

    /// The last number of `process`, in the lane of `number`, that a row was applied for. What is
    /// below the floor is forgotten.
    pub(super) fn last(&self, slot: &Slot<'_>, process: u8, number: Number) -> Number {
        let last = slot.lasts[self.table.last_place(process, number)];
        if last < self.floors[usize::from(process)] { Number::NONE } else { last }
    }

    pub(super) fn take_access(
        &mut self,
        slot: &mut Slot<'_>,
        index: u32,
        asked: &Asked,
        access: &Access<'_>,
        sink: &mut impl Sink,
    ) {
        let active = self.place(index).active;
        if slot.is_held() && access.parts.contains(Parts::TAKE) && self.grants(slot, index, asked) {
            self.give(slot, index, asked, sink);
        } else if slot.is_held() {
            self.serve(slot, index, asked.from, asked.number, &Change::of(access), sink);
        } else if active != NONE && self.actives[active].localize.is_some() {
            if !self.queue_access(active, asked, access) {
                self.stats.full += 1;
                self.tell_to_wait(index, asked, sink);
            }
        } else if let Some((to, kinship)) = self.onward(index, What::Access, asked) {
            self.frames.put_octets(to, kinship, access.octets, sink);
        } else {
            self.tell_to_wait(index, asked, sink);
        }
    }

    /// Queues the access of another process until the row is here: its newest. False when there is
    /// no room.
    fn queue_access(&mut self, active: u32, asked: &Asked, access: &Access<'_>) -> bool {
        let Asked { from, number, .. } = *asked;
        if from == self.me || number < self.floors[usize::from(from)] {
            return true;
        }
        let mut place = *self.remote(active, from, number);
        if place == NONE {
            let Some(new) = self.remotes.take(Remote { number: Number::NONE, parts: Parts::NONE })
            else {
                return false;
            };
            place = new;
            *self.remote(active, from, number) = place;
        }
        if self.remotes[place].number < number {
            self.remotes[place] = Remote { number, parts: access.parts };
            let row_len = usize::from(self.table.row_len);
            let (set, add) = self.remote_values[place as usize * 2 * row_len..][..2 * row_len]
                .split_at_mut(row_len);
            let change = Change::of(access);
            change.set.each(set, |element, value| *element = value);
            change.add.each(add, |element, value| *element = value);
        }
        true
    }

    /// Where a process that neither holds the row nor waits for it sends what asks for it: to whom
    /// it gave the row, while it keeps a copy; else to the box. `None`: it went round too often.
    fn onward(&mut self, index: u32, what: What, asked: &Asked) -> Option<(To, Kinship)> {
        if asked.hops >= HOPS_MAX {
            self.stats.hops_exceeded += 1;
            return None;
        }
        self.stats.passed_on += 1;
        let newest = self.kept_of(index).next();
        let to = match newest {
            Some((_, kept)) if self.is_living(kept.to) => To::Process(kept.to),
            _ => To::Home,
        };
        let kinship = Kinship {
            repeat: to == To::Home,
            hops: asked.hops + 1,
            low: asked.low,
            ..Kinship::new(what, asked.from, asked.number)
        };
        Some((to, kinship))
    }

    fn tell_to_wait(&mut self, index: u32, asked: &Asked, sink: &mut impl Sink) {
        if asked.from != self.me {
            let wait = Kinship::new(What::Wait, asked.from, asked.number);
            let key = self.table.key(index);
            self.frames.put_key(To::Process(asked.from), wait, key, sink);
        }
    }

    /// Runs an access of another process on the row.
    pub(super) fn serve(
        &mut self,
        slot: &mut Slot<'_>,
        index: u32,
        from: u8,
        number: Number,
        change: &Change<'_>,
        sink: &mut impl Sink,
    ) {
        let last = self.last(slot, from, number);
        let is_own = from == self.me && self.mode.is_fast();
        if is_own || number < self.floors[usize::from(from)] || number < last {
            return;
        }
        let key = self.table.key(index);
        if number > last {
            if number.life() < slot.epoch.birth() {
                return self.tell_stale(key, from, number, sink);
            }
            change.apply(slot.value);
            slot.lasts[self.table.last_place(from, number)] = number;
            self.stats.served += 1;
        }
        let value = change.parts.contains(Parts::PULL).then_some(&*slot.value);
        let answer = Kinship::new(What::Answer, from, number);
        self.frames.put_answer(To::Process(from), answer, key, value, sink);
    }

    fn tell_stale(&mut self, key: u64, to: u8, number: Number, sink: &mut impl Sink) {
        let stale = Kinship::new(What::Stale, to, number);
        self.frames.put_key(To::Process(to), stale, key, sink);
    }

    pub(super) fn take_localize(
        &mut self,
        slot: &mut Slot<'_>,
        index: u32,
        asked: &Asked,
        sink: &mut impl Sink,
    ) {
        let active = self.place(index).active;
        if slot.is_held() {
            if self.is_open_localize(slot, index, asked.from, asked.number, sink) {
                self.give(slot, index, asked, sink);
            }
        } else if active != NONE && self.actives[active].localize.is_some() {
            self.note(active, asked.from, asked.number);
        } else {
            self.pass_localize_on(index, asked, sink);
        }
    }

    pub(super) fn pass_localize_on(&mut self, index: u32, asked: &Asked, sink: &mut impl Sink) {
        match self.onward(index, What::Localize, asked) {
            Some((to, kinship)) => {
                let key = self.table.key(index);
                self.frames.put_key(to, kinship, key, sink);
            }
            None => self.tell_to_wait(index, asked, sink),
        }
    }

    /// Whether the row may go to `from` for this localize; answers STALE if it cannot be known.
    pub(super) fn is_open_localize(
        &mut self,
        slot: &Slot<'_>,
        index: u32,
        from: u8,
        number: Number,
        sink: &mut impl Sink,
    ) -> bool {
        let floor = self.floors[usize::from(from)];
        if from == self.me || number <= self.last(slot, from, number) || number < floor {
            return false;
        }
        let is_stale = number.life() < slot.epoch.birth();
        if is_stale {
            self.tell_stale(self.table.key(index), from, number, sink);
        }
        !is_stale
    }

    fn note(&mut self, active: u32, from: u8, number: Number) {
        if from != self.me && number >= self.floors[usize::from(from)] {
            let noted = self.noted(active, from);
            *noted = number.max(*noted);
        }
    }

    /// Gives the row away and keeps a copy that serves nothing.
    pub(super) fn give(
        &mut self,
        slot: &mut Slot<'_>,
        index: u32,
        asked: &Asked,
        sink: &mut impl Sink,
    ) {
        let (to, localize) = (asked.from, asked.number);
        let epoch = slot.epoch.moved();
        let next = self.place(index).kept;
        let (pause, doublings) = (self.rtt.rto(), self.rtt.doublings());
        let left = Left::No;
        let kept = Kept { index, to, localize, epoch, pause, left, doublings, next };
        let has_room = self.kept_of(index).count() < KEPT_PER_KEY_MAX;
        let Some(place) = has_room.then(|| self.kept.take(kept)).flatten() else {
            self.stats.full += 1;
            return self.tell_to_wait(index, asked, sink);
        };
        for (at, last) in slot.lasts.iter().enumerate() {
            let floor = self.floors[at / usize::from(self.table.in_flight)];
            let last = if *last < floor { Number::NONE } else { *last };
            self.kept_row(place).1[at] = last;
        }
        self.kept_row(place).0.copy_from_slice(slot.value);
        (*slot.epoch, *slot.fresh) = (RowEpoch::NONE, 0);
        self.learn_owner(index, to);
        self.places[index as usize].kept = place;
        self.unsent_kept.mark(place);
        self.stats.rows_given += 1;
    }

    /// Puts a kept copy into a frame to its taker.
    pub(super) fn put_kept(&mut self, place: u32, is_repeat: bool, sink: &mut impl Sink) {
        let Kept { index, to, localize, epoch, .. } = self.kept[place];
        if !self.is_living(to) {
            return;
        }
        let key = self.table.key(index);
        let kinship =
            Kinship { repeat: is_repeat, peer: to, ..Kinship::new(What::Row, self.me, localize) };
        let lanes = self.table.in_flight;
        let (frames, floors, value, lasts) = self.kept_parts(place);
        let len = emit::row_len(lasts, value.len());
        frames.put_row(To::Process(to), kinship, floors, len, sink, |room| {
            emit::row(room, key, epoch, (lasts, lanes), value)
        });
    }
}
