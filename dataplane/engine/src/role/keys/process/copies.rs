//! Intents and clocks: which rows come here because they are about to be used, and of which there
//! is a copy instead (SPEC#keys; PROTOCOL section 13, "Replicas").
//!
//! A process that means to use a key asks for the row and its value in one access, TAKE. Who holds
//! the row grants that unless it means to use the key as well; then the answer is a copy. So a row
//! is at one of those that mean to use it, and the others have copies.
//!
//! Invariants: a copy is the row as it was at its owner at a moment since the clock in which it was
//! asked for began, with all own operations since, and is read in that clock and `staleness` clocks
//! more, not beyond the intent; pulls that wait have it before any that is called later. Adds to a
//! row of which there may be a copy are summed here, and leave when the clock ends or with another
//! access to the key; they keep their place among the key's operations.

use core::cmp::Reverse;

use super::calls::apply;
use super::owner::Asked;
use super::queue::{Item, Kind, List};
use super::state::Core;
use super::{CallError, Op, Process, Sink};
use crate::role::keys::config::{KEPT_PER_KEY_MAX, Mode};
use crate::role::keys::pool::NONE;
use crate::role::keys::store::{Slot, Store};

/// An intent is acted on so many clocks before it begins.
const AHEAD: u32 = 1;

impl<S: Store> Process<S> {
    /// The application is about to use a key, from clock `from` until clock `to` begins. What
    /// follows leaves with [`Process::flush`]. In a table of [`Mode::Classic`] or
    /// [`Mode::ClassicFastLocal`], or with several accesses in flight, nothing does: an answer does
    /// not tell then which own operations it has.
    ///
    /// # Errors
    /// [`CallError`]; Full when too many intents wait for their time.
    pub fn intend(&mut self, key: u64, from: u32, to: u32) -> Result<(), CallError> {
        let index = self.core.check_call(key, &Op::Pull)?;
        let has_intents = self.core.mode.has_intents() && self.core.table.in_flight == 1;
        if to <= from || to <= self.core.clock || !has_intents {
            return Ok(());
        }
        if from > self.core.clock.saturating_add(AHEAD) {
            let planned = &mut self.core.planned;
            if planned.len() >= self.core.limits.intents_max as usize {
                return Err(CallError::Full);
            }
            planned.push(Reverse((from, index, to)));
            return Ok(());
        }
        self.begin_intent(index, to);
        Ok(())
    }

    /// The next clock of this process begins: adds that nobody waits for leave, intents whose time
    /// has come are acted on, copies that may be read no longer are asked for anew. What follows
    /// leaves with [`Process::flush`].
    pub fn advance_clock(&mut self) {
        let core = &mut self.core;
        core.clock = core.clock.saturating_add(1);
        let [earlier, present] = core.background;
        core.background = [earlier + present, 0];
        let clock = core.clock;
        while let Some(Reverse((from, index, to))) = self.core.planned.peek().copied() {
            if from > clock.saturating_add(AHEAD) {
                break;
            }
            self.core.planned.pop();
            if to > clock {
                self.begin_intent(index, to);
            }
        }
        let Self { store, core } = self;
        let mut position = 0;
        while let Some(index) = core.watched.get(position).copied() {
            if !core.has_copies(index) {
                core.places[index as usize].is_watched = false;
                core.watched.swap_remove(position);
                continue;
            }
            position += 1;
            let is_good = store.with(index, |slot| slot.is_readable(clock.saturating_add(1)));
            if !is_good {
                core.want_copy(index);
            }
        }
        core.launch_all();
    }

    fn begin_intent(&mut self, index: u32, to: u32) {
        let Self { store, core } = self;
        let place = &mut core.places[index as usize];
        place.until = place.until.max(to);
        core.watch(index);
        let clock = core.clock;
        if !store.with(index, |slot| slot.is_readable(clock.saturating_add(1))) {
            core.want_copy(index);
        }
    }

    /// The clock of this process, from 1.
    #[must_use]
    pub fn clock(&self) -> u32 {
        self.core.clock
    }

    /// Adds that nobody waits for and that are not at their rows yet: of earlier clocks, and of the
    /// present one.
    #[must_use]
    pub fn open_adds(&self) -> [u32; 2] {
        self.core.background
    }
}

impl Core {
    /// Whether there may be a copy of a row that is elsewhere.
    pub(super) fn has_copies(&self, index: u32) -> bool {
        self.mode.is_stale() || self.place(index).until > self.clock
    }

    /// Whether the row itself is wanted with the next access.
    pub(super) fn may_take(&self, index: u32) -> bool {
        self.mode == Mode::Relocation && self.place(index).until > self.clock
    }

    /// Whether a row that is here goes to one who takes it: this process does not mean to use it,
    /// and the access is new here.
    pub(super) fn grants(&self, slot: &Slot<'_>, index: u32, asked: &Asked) -> bool {
        let Asked { from, number, .. } = *asked;
        let is_new = number > self.last(slot, from, number)
            && number >= self.floors[usize::from(from)]
            && number.life() >= slot.epoch.birth();
        let has_room = self.kept.free_count() > 0 && self.kept_of(index).count() < KEPT_PER_KEY_MAX;
        let may_go = self.mode == Mode::Relocation && self.place(index).until <= self.clock;
        may_go && is_new && has_room && from != self.me
    }

    /// Runs an operation without waiting for anybody, if that can be.
    pub(super) fn use_copy(
        &mut self,
        slot: &mut Slot<'_>,
        index: u32,
        op: Op<'_>,
        call: u64,
        sink: &mut impl Sink,
    ) -> Result<bool, CallError> {
        let key = self.table.key(index);
        match op {
            Op::Pull if slot.is_readable(self.clock) => {
                self.stats.copied += 1;
                sink.done(call, key, Some(&*slot.value));
                return Ok(true);
            }
            Op::Pull if self.mode == Mode::StaleServer => self.watch(index),
            Op::Pull => {}
            Op::Add(value) => {
                self.add_later(index, value)?;
                self.stats.copied += 1;
                apply_to_copy(slot, op);
                sink.done(call, key, None);
                return Ok(true);
            }
            Op::Set(_) => apply_to_copy(slot, op),
        }
        Ok(false)
    }

    /// Sums an add up with others that leave later.
    fn add_later(&mut self, index: u32, value: &[f32]) -> Result<(), CallError> {
        let clock = self.clock;
        let has_room = self.place(index).active != NONE || self.actives.free_count() > 0;
        let is_more = has_room.then(|| self.activate(index)).flatten().and_then(|active| {
            let queue = &mut self.actives[active].queue;
            let is_short = queue.len() < self.limits.key_queue_max;
            is_short.then(|| self.operations.push_background(queue, clock, value)).flatten()
        });
        match is_more {
            Some(is_more) => self.background[1] += u32::from(is_more),
            None => {
                self.launch_all();
                return Err(CallError::Full);
            }
        }
        Ok(())
    }

    /// Has accesses leave for all that waits.
    fn launch_all(&mut self) {
        for active in 0..u32::from(self.limits.active_keys_max) {
            if self.actives[active].index != NONE {
                self.launch(active);
                self.retire(active);
            }
        }
    }

    fn watch(&mut self, index: u32) {
        let place = &mut self.places[index as usize];
        if !core::mem::replace(&mut place.is_watched, true) {
            self.watched.push(index);
        }
    }

    /// Asks for a copy, or the row; when too much is asked for, the next pull does.
    fn want_copy(&mut self, index: u32) {
        if let Some(active) = self.activate(index) {
            self.actives[active].wants_copy = !self.actives[active].localize.is_some();
            self.launch(active);
            self.retire(active);
        }
    }

    /// An answer has brought the row's value, asked for in clock `clock`.
    pub(super) fn renew_copy(
        &mut self,
        slot: &mut Slot<'_>,
        active: u32,
        clock: u32,
        value: &[f32],
        sink: &mut impl Sink,
    ) {
        if slot.is_held() {
            return;
        }
        let index = self.actives[active].index;
        let key = self.table.key(index);
        let last = match self.mode.is_stale() {
            true => u32::MAX,
            false => self.place(index).until.saturating_sub(1),
        };
        slot.value.copy_from_slice(value);
        *slot.fresh = clock.saturating_add(self.staleness).min(last);
        self.stats.copies += 1;
        let mut queue = core::mem::replace(&mut self.actives[active].queue, List::EMPTY);
        let mut left = List::EMPTY;
        while let Some((place, item)) = self.operations.pop(&mut queue) {
            match item.kind {
                Kind::Set => apply(slot.value, Op::Set(self.operations.value(place))),
                Kind::Add => apply(slot.value, Op::Add(self.operations.value(place))),
                Kind::Pull if slot.is_readable(self.clock) => {
                    self.operations.free(place);
                    self.finish(&item, key, Some(&*slot.value), sink);
                    continue;
                }
                Kind::Pull | Kind::Localize => {}
            }
            self.operations.append(&mut left, place);
        }
        self.actives[active].queue = left;
    }

    /// An operation is over.
    pub(super) fn finish(
        &mut self,
        item: &Item,
        key: u64,
        value: Option<&[f32]>,
        sink: &mut impl Sink,
    ) {
        if item.is_background {
            self.background[usize::from(item.call == u64::from(self.clock))] -= 1;
        } else {
            sink.done(item.call, key, value);
        }
    }
}

/// Runs an own operation on the copy, if there is one.
fn apply_to_copy(slot: &mut Slot<'_>, op: Op<'_>) {
    if *slot.fresh > 0 {
        apply(slot.value, op);
    }
}
