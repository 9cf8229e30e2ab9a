//! One step of a process under the key's lock: what it does with its own operations.

use super::message::{Access, Frame, Message, Number, PROCESS_COUNT, To, Value, ops_of};
use super::process::{Copy, Kind, Local, Op, Process};
use super::{Keys, Rules};

/// One step of process `me` at `key`.
pub(super) struct Turn<'a, const K: usize> {
    pub(super) model: &'a Keys<K>,
    pub(super) process: Process<K>,
    pub(super) me: u8,
    pub(super) key: u8,
    /// The number that this step has given already: a batch has one.
    pub(super) number: Number,
    /// What it sends.
    pub(super) sent: Vec<Message>,
    /// Ghost: in which life it restored the key, and to what.
    pub(super) restored: Option<(u8, Value)>,
}

impl<'a, const K: usize> Turn<'a, K> {
    pub(super) fn new(model: &'a Keys<K>, process: Process<K>, me: u8, key: u8) -> Self {
        let number = Number::NONE;
        Self { model, process, me, key, number, sent: Vec::new(), restored: None }
    }

    pub(super) fn local(&mut self) -> &mut Local {
        &mut self.process.keys[usize::from(self.key)]
    }

    pub(super) fn send(&mut self, frame: Frame) {
        self.sent.push(Message { key: self.key, frame });
    }

    pub(super) const fn rules(&self) -> Rules {
        self.model.rules
    }

    pub(super) fn floors(&mut self) -> &mut [Number; PROCESS_COUNT] {
        &mut self.process.floors[self.model.floor_index(self.key)]
    }

    /// The place of a number among the last ones of its process.
    pub(super) fn lane(&self, number: Number) -> usize {
        match self.rules() {
            Rules::OneLastNumber => 0,
            _ => self.model.lane(number),
        }
    }

    /// A number of a lane, or none when too many are open.
    pub(super) fn new_number(&mut self, lane: usize) -> Number {
        if self.number.is_some() && self.model.lane(self.number) == lane {
            return self.number;
        }
        let open = self.process.keys.iter().flat_map(|local| {
            local.flights.as_slice().iter().map(|flight| flight.number).chain([local.localize])
        });
        let mut open: Vec<Number> = open.filter(|number| number.is_some()).collect();
        open.sort_unstable();
        open.dedup();
        if open.len() >= self.model.open_count_max {
            let reused = self.rules() == Rules::OpenNumberReused;
            return if reused { open[0] } else { Number::NONE };
        }
        let life = self.local().life;
        let count = &mut self.process.count;
        let wraps = self.model.rules == Rules::NumbersWrap;
        loop {
            *count = if wraps && *count == WRAP_COUNT { 1 } else { *count + 1 };
            self.number = Number::new(life, *count);
            if self.model.lane(self.number) == lane {
                return self.number;
            }
        }
    }

    /// Takes an operation of the application, which was called when those of `after` were done.
    pub(super) fn call(&mut self, kind: Kind, after: u16) {
        self.local().ops.push(Op { kind, after, ..Op::default() });
        if self.local().row.epoch.is_some() {
            self.run_queue();
            return;
        }
        let place = self.local().ops.len() - 1;
        if kind == Kind::Pull && self.copy_is_good() {
            self.read_copy(place);
            return;
        }
        if let (Some(mut copy), Some((_, op))) = (self.local().copy, ops_of(self.me).nth(place)) {
            copy.value.run(kind, op);
            self.local().copy = Some(copy);
        }
        self.launch();
    }

    /// Whether a pull may have the copy: while the key is meant to be used, and within the bound.
    fn copy_is_good(&mut self) -> bool {
        let (rules, staleness) = (self.rules(), self.model.staleness);
        let Local { copy, clock, has_intent, .. } = *self.local();
        let is_meant = has_intent || rules == Rules::CopyOutlivesIntent;
        is_meant && copy.is_some_and(|copy| copy.clock + staleness >= clock)
    }

    fn read_copy(&mut self, place: usize) {
        let staleness = self.model.staleness;
        let local = self.local();
        let value = local.copy.unwrap_or_default().value;
        let owed = local.clock.checked_sub(staleness);
        let owed = owed.map_or(0, |clock| local.answered[usize::from(clock)]);
        let is_copy = local.has_intent;
        let op = &mut local.ops.as_mut_slice()[place];
        (op.answered, op.result, op.is_copy) = (local.life.max(1), value, is_copy);
        op.is_late = owed & !value.pushes() != 0;
    }

    /// The application says that it is about to use the key.
    pub(super) fn begin_intent(&mut self) {
        self.local().has_intent = true;
        self.want_copy();
    }

    pub(super) fn end_intent(&mut self) {
        let rules = self.rules();
        let local = self.local();
        (local.has_intent, local.wants_copy) = (false, false);
        if rules != Rules::CopyOutlivesIntent {
            local.copy = None;
        }
    }

    /// A clock begins, when these pushes are answered: a copy that would be too old in the next one
    /// is made new.
    pub(super) fn begin_clock(&mut self, answered: u16) {
        let staleness = self.model.staleness;
        let local = self.local();
        local.clock += 1;
        local.answered[usize::from(local.clock)] = answered;
        let is_old = local.copy.is_none_or(|copy| copy.clock + staleness <= local.clock);
        if local.has_intent && is_old {
            self.want_copy();
        }
    }

    fn want_copy(&mut self) {
        if !self.local().row.epoch.is_some() {
            self.local().wants_copy = true;
            self.launch();
        }
    }

    /// The copy is what the answer brings, with the own operations that are not in it. Pulls that
    /// wait have it before any that is called later.
    fn renew_copy(&mut self, value: Value, done: Access) {
        let (me, rules) = (self.me, self.rules());
        let local = self.local();
        if !local.has_intent {
            return;
        }
        let clock = if rules == Rules::CopyOfArrival { local.clock } else { local.sent_at };
        let mut copy = Copy { value, clock };
        local.copy = Some(copy);
        for (index, op) in ops_of(me).take(self.local().ops.len()) {
            let item = self.local().ops.as_slice()[index];
            if item.answered > 0 || done.contains(index) {
                continue;
            }
            if item.kind != Kind::Pull && rules != Rules::CopyWithoutOwn {
                copy.value.run(item.kind, op);
                self.local().copy = Some(copy);
            }
            let may_wait_no_longer = rules != Rules::CopyPastPulls && self.copy_is_good();
            if item.kind == Kind::Pull && may_wait_no_longer {
                self.read_copy(index);
            }
        }
    }

    /// Takes a localize of the application.
    pub(super) fn localize(&mut self) {
        if !self.local().row.epoch.is_some() && !self.local().localize.is_some() {
            self.open_localize();
        }
    }

    /// What found no number tries again.
    pub(super) fn try_again(&mut self) {
        if self.local().wants_localize {
            self.open_localize();
        }
        self.launch();
    }

    /// Asks for the row, in the first lane; without a number it is asked for later.
    pub(super) fn open_localize(&mut self) {
        let number = self.new_number(0);
        (self.local().localize, self.local().wants_localize) = (number, !number.is_some());
        if !number.is_some() {
            return;
        }
        let to = To::Box { life: self.local().life, repeat: false };
        self.send(Frame::Localize { to, from: self.me, number });
    }

    /// Sends the next access of each lane that has none in flight, if the row is not on its way.
    pub(super) fn launch(&mut self) {
        let Local { flights, localize, .. } = *self.local();
        if localize.is_some() {
            return;
        }
        if self.rules() == Rules::TwoInFlight {
            while self.local().flights.len() < 2 && self.launch_one(0) {}
            return;
        }
        for lane in 0..usize::from(self.model.in_flight) {
            if !flights.iter().any(|flight| self.model.lane(flight.number) == lane) {
                self.launch_one(lane);
            }
        }
    }

    pub(super) fn launch_one(&mut self, lane: usize) -> bool {
        let local = *self.local();
        let mut access = self.next_access();
        let wants_copy = local.wants_copy && local.has_intent;
        if local.row.epoch.is_some() || access == Access::default() && !wants_copy {
            return false;
        }
        access.take = local.has_intent;
        access.number = self.new_number(lane);
        if !access.number.is_some() {
            return false;
        }
        (self.local().wants_copy, self.local().sent_at) = (false, local.clock);
        self.local().flights.push(access);
        let to = To::Box { life: local.life, repeat: false };
        let low = self.process.low(self.model, self.key);
        self.send(Frame::Access { to, from: self.me, access, low });
        if self.model.caches {
            let from = self.me;
            for other in (0..).take(PROCESS_COUNT).filter(|&other| other != from) {
                self.send(Frame::Access { to: To::Process(other), from, access, low });
            }
        }
        true
    }

    /// Merges the head of the queue into one access: `set? add* pull*`.
    pub(super) fn next_access(&mut self) -> Access {
        let local = *self.local();
        let mut access = Access::default();
        for (index, op) in local.ops.iter().enumerate() {
            if op.answered > 0 || local.flights.iter().any(|flight| flight.contains(index)) {
                continue;
            }
            let fits = match op.kind {
                Kind::Set => access == Access::default(),
                Kind::Push => access.pulls == 0,
                Kind::Pull => true,
            };
            if !fits {
                break;
            }
            match op.kind {
                Kind::Set => access.sets |= 1 << index,
                Kind::Push => access.adds |= 1 << index,
                Kind::Pull => access.pulls |= 1 << index,
            }
            if self.rules() == Rules::TwoInFlight {
                break;
            }
        }
        access
    }

    /// Runs what is queued here on the row, in order.
    pub(super) fn run_queue(&mut self) {
        let me = self.me;
        let local = self.local();
        let flights = local.flights;
        for (index, op) in ops_of(me).take(local.ops.len()) {
            let item = &mut local.ops.as_mut_slice()[index];
            if item.answered > 0 || flights.iter().any(|flight| flight.contains(index)) {
                continue;
            }
            match item.kind {
                Kind::Set => local.row.value = Value::set(op),
                Kind::Push => local.row.value.add(op),
                Kind::Pull => item.result = local.row.value,
            }
            item.answered = local.row.lineage;
        }
    }

    /// An access was answered, or was run here.
    pub(super) fn complete(&mut self, access: Access, value: Value, lineage: u8) {
        let local = self.local();
        for (index, op) in local.ops.as_mut_slice().iter_mut().enumerate() {
            if access.contains(index) {
                op.answered = lineage;
                op.result = if op.kind == Kind::Pull { value } else { Value::default() };
            }
        }
        local.flights.retain(|flight| flight.number != access.number);
    }

    /// Takes a frame that came to this process.
    pub(super) fn arrive(&mut self, frame: Frame) {
        match frame {
            Frame::Access { from, access, low, .. } => self.on_access(from, access, low),
            Frame::Localize { from, number, .. } => self.on_localize(from, number),
            Frame::Answer { from, number, value, lineage, .. } => {
                self.on_answer(from, number, value, lineage);
            }
            Frame::Stale { number, .. } => self.on_stale(number),
            Frame::Row { from, kept } => self.on_row(from, kept),
            Frame::Ack { epoch, .. } | Frame::Void { epoch, .. } => {
                self.local().kept.retain(|kept| kept.row.epoch != epoch);
            }
            Frame::Restore { life, row, .. } => self.on_restore(life, row),
            Frame::TakeBack { life, epoch, .. } => self.on_take_back(life, epoch),
            Frame::Low { from, low, .. } => self.learn_low(from, low),
            Frame::AckAtBox { .. } | Frame::Claim { .. } => {}
        }
    }

    pub(super) fn is_fenced(&mut self, from: u8) -> bool {
        self.rules() != Rules::NotFenced && self.local().living >> from & 1 == 0
    }

    pub(super) fn on_answer(&mut self, from: u8, number: Number, value: Value, lineage: u8) {
        if self.rules() == Rules::AnswerIsWhole {
            let key = self.key;
            for other in (0..).take(K).filter(|other| *other != key) {
                self.key = other;
                self.take_answer(from, number, value, lineage);
            }
            self.key = key;
        }
        self.take_answer(from, number, value, lineage);
    }

    fn take_answer(&mut self, from: u8, number: Number, value: Value, lineage: u8) {
        let flights = self.local().flights;
        let flight = flights.iter().find(|flight| flight.number == number);
        if let Some(&flight) = flight.filter(|_| !self.is_fenced(from)) {
            if flight.take {
                self.renew_copy(value, flight);
            }
            self.complete(flight, value, lineage);
            self.launch();
        }
    }

    /// The access returns to the head of the queue; the localize gets a new number.
    pub(super) fn on_stale(&mut self, number: Number) {
        let flights = self.local().flights;
        if let Some(flight) = flights.iter().find(|flight| flight.number == number) {
            self.local().wants_copy |= flight.take;
            self.local().flights.retain(|flight| flight.number != number);
            if self.rules() == Rules::RenumberAboveLocalize {
                self.launch_one(0);
            }
            self.launch();
        }
        if self.local().localize == number {
            self.open_localize();
        }
    }
}

/// Numbers of a process before they begin anew, in a wrong variant.
const WRAP_COUNT: u8 = 2;
