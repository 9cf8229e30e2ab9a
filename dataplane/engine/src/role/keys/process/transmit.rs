//! What leaves when, and what leaves again: accesses and localizes until they are answered, rows
//! until they are acknowledged, with pauses that double. The first pause is the timeout of RFC
//! 6298, of the round trips of what left once: of a step's rows on a narrow link the last has to
//! queue for the time that all of them take.

use weft_wire::Nanos;
use weft_wire::keys::{ACCESS_LEN, ELEMENT_LEN, Number, What, emit};

use super::state::{Active, Core, Flight, NO_BATCH};
use super::{Presence, Sink};
use crate::role::keys::frames::{Kinship, Outbox, To};
use crate::role::keys::pool::NONE;

impl Core {
    /// Sends what this turn has marked, and ends it.
    pub(super) fn flush(&mut self, now: Nanos, sink: &mut impl Sink) {
        let is_present = self.presence() == Presence::Present;
        let low = self.open.low(self.life);
        let mut position = 0;
        while let Some(active) = self.unsent.get(position) {
            position += 1;
            if is_present && self.actives[active].index != NONE {
                let at = self.put_active(active, (now, low), false, sink);
                self.timers.set(active as usize, at);
            }
        }
        self.unsent.clear();
        let mut position = 0;
        while let Some(kept) = self.unsent_kept.get(position) {
            position += 1;
            if is_present && self.kept[kept].index != NONE {
                self.put_kept(kept, false, sink);
                self.kept[kept].left.note(now);
                let pause = self.kept[kept].pause;
                self.kept_timers.set(kept as usize, now.saturating_add(pause));
            }
        }
        self.unsent_kept.clear();
        self.batch = NO_BATCH;
        self.claims.end_turn();
        if is_present {
            self.frames.flush_all(sink);
        } else {
            self.frames.clear();
        }
    }

    /// When something is due.
    pub(super) fn poll_timeout(&self) -> Nanos {
        let first = self.session.timeout();
        if self.presence() != Presence::Present {
            return first;
        }
        let timers = [self.timers.earliest(), self.kept_timers.earliest()];
        let others = [self.beat_at, self.claims.timeout()];
        timers.into_iter().chain(others).fold(first, Nanos::min)
    }

    /// Sends what is due again.
    pub(super) fn poll(&mut self, now: Nanos, sink: &mut impl Sink) {
        self.shake_hands(now, sink);
        if self.presence() != Presence::Present {
            return;
        }
        if now >= self.beat_at {
            self.send_beat(now, sink);
        }
        let low = self.open.low(self.life);
        while let Some(active) = self.timers.due(now) {
            self.repeat(now, active, low, sink);
        }
        while let Some(kept) = self.kept_timers.due(now) {
            let place = u32::try_from(kept).unwrap_or(NONE);
            self.stats.repeats += 1;
            self.put_kept(place, true, sink);
            self.kept[place].left.note(now);
            self.rtt.back_off(self.kept[place].doublings);
            let pause = &mut self.kept[place].pause;
            *pause = doubled(*pause, self.resend.1);
            let at = now.saturating_add(*pause);
            self.kept_timers.set(kept, at);
        }
    }

    /// The pause of this key is over.
    fn repeat(&mut self, now: Nanos, active: usize, low: Number, sink: &mut impl Sink) {
        let place = u32::try_from(active).unwrap_or(NONE);
        let Active { localize, localizers, .. } = &self.actives[place];
        let has_flight = self.flights(place).iter().any(|flight| flight.number.is_some());
        let is_open = has_flight || localize.is_some();
        let waits_for_number = !localize.is_some() && !localizers.is_empty();
        let pause = self.actives[place].pause;
        self.actives[place].pause = doubled(pause, self.resend.1);
        let mut at = now.saturating_add(self.actives[place].pause);
        if is_open {
            self.stats.repeats += 1;
            self.rtt.back_off(self.actives[place].doublings);
            at = self.put_active(place, (now, low), true, sink);
        }
        if waits_for_number {
            self.open_localize(place);
        }
        self.launch(place);
        self.timers.set(active, at);
    }

    /// Puts what is open of a key into frames: what leaves again goes to the box. Returns when the
    /// first of it is due again.
    fn put_active(
        &mut self,
        active: u32,
        (now, low): (Nanos, Number),
        repeat: bool,
        sink: &mut impl Sink,
    ) -> Nanos {
        let Active { index, localize, pause, .. } = self.actives[active];
        let key = self.table.key(index);
        let next_at = now.saturating_add(pause);
        let mut first_at = next_at;
        for lane in 0..self.table.in_flight {
            let flight = *self.flight(active, lane);
            // Beside others it leaves when it is new, and when it is due itself.
            let is_alone = self.table.in_flight == 1;
            if flight.number.is_some() && (is_alone || flight.due_at <= now) {
                self.put_access(active, &flight, low, repeat, sink);
                let flight = self.flight_mut(active, lane);
                flight.due_at = next_at;
                flight.left.note(now);
            } else if flight.number.is_some() {
                first_at = first_at.min(flight.due_at);
            }
        }
        if localize.is_some() {
            let wish = Kinship::new(What::Localize, self.me, localize);
            let wish = Kinship { repeat, low: low.0, ..wish };
            self.frames.put_key(To::Home, wish, key, sink);
            self.actives[active].localize_left.note(now);
        }
        first_at
    }

    fn put_access(
        &mut self,
        active: u32,
        flight: &Flight,
        low: Number,
        repeat: bool,
        sink: &mut impl Sink,
    ) {
        let index = self.actives[active].index;
        let key = self.table.key(index);
        let access = Kinship::new(What::Access, self.me, flight.number);
        let access = Kinship { repeat, low: low.0, ..access };
        let way = if repeat { To::Home } else { self.first_way(index) };
        let Self { frames, operations, .. } = self;
        let value = |place: u32| (place != NONE).then(|| operations.value(place));
        let (set, add) = (value(flight.set), value(flight.add));
        let elements = [set, add].iter().flatten().map(|value| value.len()).sum::<usize>();
        let len = ACCESS_LEN + elements * ELEMENT_LEN;
        frames.put(way, access, len, sink, |room| emit::access(room, key, flight.parts, set, add));
    }

    /// Tells the box that this process is there.
    fn send_beat(&mut self, now: Nanos, out: &mut impl Outbox) {
        let low = self.open.low(self.life).0;
        let beat = Kinship { low, ..Kinship::new(What::Beat, self.me, Number::NONE) };
        self.frames.send_lone(To::Home, &beat, self.cookie_up, out);
        self.beat_at = now.saturating_add(self.beat);
    }
}

/// The next pause of a series.
fn doubled(pause: Nanos, max: Nanos) -> Nanos {
    Nanos(pause.0.saturating_mul(2)).min(max)
}
