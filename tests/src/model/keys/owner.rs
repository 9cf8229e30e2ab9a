//! One step of a process under the key's lock: what it does with what others ask for, and with the
//! row when it comes and goes.
//!
//! It holds the row and serves, or waits for it and queues, or passes on what comes to the one it
//! gave the row to.

use super::Rules;
use super::list::List;
use super::message::{Access, Epoch, Frame, Kept, Number, PROCESS_COUNT, Row, To};
use super::process::Local;
use super::turn::Turn;

impl<const K: usize> Turn<'_, K> {
    /// Forgets the last numbers below what `from` still has open.
    pub(super) fn learn_low(&mut self, from: u8, low: Number) {
        let floors = self.floors();
        let floor = &mut floors[usize::from(from)];
        *floor = low.max(*floor);
        self.prune();
    }

    pub(super) fn prune(&mut self) {
        let directory = self.model.floor_index(self.key);
        for key in 0..K {
            if self.model.floor_index(u8::try_from(key).expect("few keys")) != directory {
                continue;
            }
            let floors = self.process.floors[directory];
            for (last, floor) in self.process.keys[key].row.last.iter_mut().zip(floors) {
                for last in last.iter_mut().filter(|last| **last < floor) {
                    *last = Number::NONE;
                }
            }
        }
    }

    pub(super) fn on_access(&mut self, from: u8, access: Access, low: Number) {
        if self.is_fenced(from) {
            return;
        }
        self.learn_low(from, low);
        let local = *self.local();
        if local.row.epoch.is_some() {
            if access.take && self.may_take(from, access.number) {
                self.give(from, access.number);
            } else {
                self.serve(from, access);
            }
        } else if self.rules() == Rules::KeptCopyServes
            && !local.kept.is_empty()
            && access.sets | access.adds == 0
        {
            self.answer(from, access.number, local.kept.as_slice()[local.kept.len() - 1].row);
        } else if local.localize.is_some() {
            self.queue_access(from, access);
        } else {
            let to = self.onward();
            self.send(Frame::Access { to, from, access, low });
        }
    }

    /// Whether the row itself may go to one who intends to use it: the holder does not, and the
    /// access is new here.
    fn may_take(&mut self, from: u8, number: Number) -> bool {
        let floor = self.floors()[usize::from(from)];
        let Local { row, kept, has_intent, .. } = *self.local();
        let is_new = number > row.last[usize::from(from)][self.lane(number)] && number >= floor;
        let has_room = kept.len() < self.model.kept_count_max;
        !has_intent
            && is_new
            && !self.refuses_life(number, row.epoch)
            && has_room
            && from != self.me
    }

    /// Queues the access of another process until the row is here: its newest.
    pub(super) fn queue_access(&mut self, from: u8, access: Access) {
        if from == self.me || access.number < self.floors()[usize::from(from)] {
            return;
        }
        let mut remote: Vec<(u8, Access)> = self.local().remote.iter().copied().collect();
        let lane = self.lane(access.number);
        let is_of_lane = |(process, queued): &&mut (u8, Access)| {
            *process == from && self.lane(queued.number) == lane
        };
        let is_full = remote.len() >= self.model.remote_count_max;
        match remote.iter_mut().find(is_of_lane) {
            Some((_, queued)) if queued.number < access.number => *queued = access,
            Some(_) => return,
            None if is_full && self.rules() == Rules::FullIsEntered => {
                let number = access.number;
                remote.push((from, Access { number, ..Access::default() }));
            }
            None if is_full => return,
            None => remote.push((from, access)),
        }
        remote.sort_unstable();
        self.local().remote = List::default();
        for item in remote {
            self.local().remote.push(item);
        }
    }

    /// Where a process that neither holds the row nor waits for it sends what asks for it: to whom
    /// it gave the row, while it keeps a copy; else to the box.
    pub(super) fn onward(&mut self) -> To {
        let Local { life, kept, .. } = *self.local();
        match kept.as_slice().last() {
            Some(kept) if !self.is_fenced(kept.to) => To::Process(kept.to),
            _ => To::Box { life, repeat: true },
        }
    }

    /// Runs an access of another process on the row.
    pub(super) fn serve(&mut self, from: u8, access: Access) {
        let place = usize::from(from);
        let floor = self.floors()[place];
        let row = self.local().row;
        let number = access.number;
        let lane = self.lane(number);
        if number < floor || number < row.last[place][lane] {
            return;
        }
        let is_new = number > row.last[place][lane];
        if (is_new || self.rules() == Rules::StaleBeforeLast)
            && self.refuses_life(number, row.epoch)
        {
            self.send(Frame::Stale { to: from, number });
            return;
        }
        let is_refusal_free = self.rules() == Rules::RefusalNotEntered;
        if is_new {
            let row = &mut self.local().row;
            access.apply(from, &mut row.value);
            if !(access.take && access.sets | access.adds == 0 && is_refusal_free) {
                row.last[place][lane] = number;
            }
        }
        let row = self.local().row;
        self.answer(from, number, row);
    }

    pub(super) fn answer(&mut self, to: u8, number: Number, Row { value, lineage, .. }: Row) {
        self.send(Frame::Answer { to, from: self.me, number, value, lineage });
    }

    /// A row that was restored in a later life cannot know whether it has this number.
    pub(super) fn refuses_life(&self, number: Number, epoch: Epoch) -> bool {
        number.life() < epoch.birth() && self.rules() != Rules::RestoredTakesAll
    }

    pub(super) fn on_localize(&mut self, from: u8, number: Number) {
        if self.is_fenced(from) {
            return;
        }
        let local = *self.local();
        if local.row.epoch.is_some() {
            if self.is_open_localize(from, number) {
                self.give(from, number);
            }
        } else if local.localize.is_some() {
            self.note(from, number);
        } else {
            let to = self.onward();
            self.send(Frame::Localize { to, from, number });
        }
    }

    /// Whether the row may go to `from` for this localize; answers STALE if it cannot be known.
    pub(super) fn is_open_localize(&mut self, from: u8, number: Number) -> bool {
        let row = self.local().row;
        let place = usize::from(from);
        if from == self.me {
            return false;
        }
        if self.rules() == Rules::LocalizeWithoutNumber {
            return true;
        }
        if number <= row.last[place][self.lane(number)] || number < self.floors()[place] {
            return false;
        }
        let is_stale = self.refuses_life(number, row.epoch);
        if is_stale {
            self.send(Frame::Stale { to: from, number });
        }
        !is_stale
    }

    pub(super) fn note(&mut self, from: u8, number: Number) {
        if from == self.me || number < self.floors()[usize::from(from)] {
            return;
        }
        let noted = &mut self.local().noted;
        match noted.as_mut_slice().iter_mut().find(|(process, _)| *process == from) {
            Some((_, known)) => *known = number.max(*known),
            None => noted.push((from, number)),
        }
    }

    /// Sends the row away and keeps a copy that serves nothing.
    pub(super) fn give(&mut self, to: u8, localize: Number) {
        let rules = self.rules();
        let mut floors = *self.floors();
        let me = self.me;
        if self.local().kept.len() >= self.model.kept_count_max {
            return;
        }
        let local = self.local();
        let mut row = local.row;
        row.epoch = row.epoch.moved();
        match rules {
            Rules::DedupLeftBehind => row.last = Default::default(),
            Rules::FloorsLeftBehind => floors = Default::default(),
            _ => {}
        }
        let kept = Kept { to, localize, row, floors };
        local.row = Row::default();
        if rules == Rules::FreedAtSending {
            self.send(Frame::Row { from: me, kept });
        } else {
            local.kept.push(kept);
        }
    }

    /// Takes the row that it waits for, and acknowledges any.
    pub(super) fn on_row(&mut self, from: u8, kept: Kept) {
        if self.is_fenced(from) {
            return;
        }
        let localize = self.local().localize;
        let any_number = self.rules() == Rules::LocalizeWithoutNumber;
        let takes = |flight: &Access| flight.take && flight.number == kept.localize;
        let is_taken =
            self.local().flights.iter().any(takes) && self.rules() != Rules::TakeForgotten;
        if is_taken || localize.is_some() && (localize == kept.localize || any_number) {
            self.install(kept.row, kept.floors);
        }
        self.acknowledge(from, kept.row.epoch);
    }

    pub(super) fn acknowledge(&mut self, giver: u8, epoch: Epoch) {
        if self.rules() == Rules::AckPastBox {
            self.send(Frame::Ack { to: giver, epoch });
            return;
        }
        self.local().renew_claim();
        let Local { life, claim, .. } = *self.local();
        self.send(Frame::AckAtBox { life, from: self.me, giver, epoch, claim });
    }

    pub(super) fn on_restore(&mut self, life: u8, checkpoint: Row) {
        let is_again = self.rules() == Rules::RestoredAgain;
        let local = self.local();
        if local.life != life || local.restored == life && !is_again {
            return;
        }
        local.restored = life;
        self.restored = Some((life, checkpoint.value));
        let row = Row { epoch: Epoch::born(life), lineage: life, ..checkpoint };
        self.install(row, Default::default());
    }

    pub(super) fn on_take_back(&mut self, life: u8, epoch: Epoch) {
        let Local { kept, life: joined, .. } = *self.local();
        let copy = kept.iter().find(|kept| kept.row.epoch == epoch);
        let Some(copy) = copy.filter(|_| joined == life) else {
            return;
        };
        let mut row = copy.row;
        // What the dead process took after it had the row is lost, and may come again as a late
        // copy.
        row.epoch = match self.rules() {
            Rules::TakenBackTakesAll => row.epoch.moved(),
            _ => Epoch::born(life),
        };
        row.lineage = life;
        self.local().kept.retain(|kept| kept.row.epoch != epoch);
        self.restored = Some((life, row.value));
        self.install(row, copy.floors);
    }

    /// The row is here: its own access in flight, its localize, its queue, what others queued, and
    /// the first localize that waits, in this order.
    pub(super) fn install(&mut self, row: Row, floors: [Number; PROCESS_COUNT]) {
        let place = usize::from(self.me);
        for (mine, theirs) in self.floors().iter_mut().zip(floors) {
            *mine = theirs.max(*mine);
        }
        self.local().row = row;
        (self.local().copy, self.local().wants_copy) = (None, false);
        self.prune();
        if self.rules() == Rules::QueueBeforeFlight {
            self.run_queue();
        }
        let flights = self.local().flights;
        for flight in flights.iter() {
            let (me, lane) = (self.me, self.lane(flight.number));
            let row = &mut self.local().row;
            if row.last[place][lane] < flight.number {
                flight.apply(me, &mut row.value);
                row.last[place][lane] = flight.number;
            }
            let (value, lineage) = (row.value, row.lineage);
            self.complete(*flight, value, lineage);
        }
        let lane = self.lane(self.process.keys[usize::from(self.key)].localize);
        let local = self.local();
        local.row.last[place][lane] = local.row.last[place][lane].max(local.localize);
        (local.localize, local.wants_localize) = (Number::NONE, false);
        self.run_queue();
        let Local { remote, noted, .. } = *self.local();
        self.local().remote = List::default();
        self.local().noted = List::default();
        for &(from, access) in remote.iter() {
            self.serve(from, access);
        }
        self.pass_to_next(&noted);
    }

    /// Gives the row to the first of `noted` that still waits for it, and sends the others on.
    pub(super) fn pass_to_next(&mut self, noted: &List<(u8, Number), { PROCESS_COUNT - 1 }>) {
        for &(from, number) in noted.iter() {
            if self.local().row.epoch.is_some() {
                if !self.is_open_localize(from, number) {
                    continue;
                }
                if self.rules() == Rules::NotedIsForgotten {
                    let lane = self.lane(number);
                    self.local().row.last[usize::from(from)][lane] = number;
                    continue;
                }
                self.give(from, number);
            } else {
                let to = self.onward();
                self.send(Frame::Localize { to, from, number });
            }
        }
    }
}
