//! A process: its engine, the sessions of its application, what is on its disk.

use std::collections::BTreeMap;

use weft_engine::random::SplitMix64;
use weft_engine::role::keys::{Op, Outbox, OwnStore, Presence, Process, Sink, To};
use weft_wire::Nanos;
use weft_wire::keys::{Number, RowEpoch};

use super::Seen;
use super::history::{Event, Value};
use super::lanes::Timed;
use super::scenario::Scenario;
use crate::hash;

/// What an engine says.
#[derive(Debug, Default)]
pub struct Heard {
    pub(super) sent: Vec<(To, Vec<u8>)>,
    /// Calls that are done for a key; a pull has its value.
    pub done: Vec<(u64, Option<Vec<f32>>)>,
    /// Keys whose rows nobody has any more.
    pub lost: Vec<u64>,
}

impl Outbox for Heard {
    fn send(&mut self, to: To, datagram: &[u8]) {
        self.sent.push((to, datagram.to_vec()));
    }
}

impl Sink for Heard {
    fn done(&mut self, call: u64, _key: u64, value: Option<&[f32]>) {
        self.done.push((call, value.map(<[f32]>::to_vec)));
    }

    fn lost(&mut self, key: u64) {
        self.lost.push(key);
    }
}

/// One thread of the application.
#[derive(Debug)]
pub(super) struct Session {
    /// Its place among the sessions of all processes.
    pub(super) number: usize,
    random: SplitMix64,
    /// What it still calls.
    left: usize,
    /// Per call, in order: its key, what it was, and whether it is done.
    calls: Vec<(u64, Option<Event>, bool)>,
    /// Per call, the clock of its process, and when it was called and done.
    clocks: Vec<u32>,
    times: Vec<(u64, u64)>,
    next_at: u64,
}

/// A process.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) engine: Process<OwnStore>,
    pub(super) heard: Heard,
    pub(super) sessions: Vec<Session>,
    pub(super) is_crashed: bool,
    /// When the next clock begins, where clocks pass.
    pub(super) clock_at: u64,
    /// Per clock from the second, and per key, what the row had when it began.
    pub(super) rows_of_clocks: Vec<Vec<Vec<u32>>>,
    /// Cut off from everybody until this time.
    pub(super) cut_off_until: u64,
}

/// What is on the disk of all: a row for each key.
pub(super) type Checkpoint = BTreeMap<u64, (Vec<f32>, Vec<Number>)>;

impl Session {
    pub(super) fn new(scenario: &Scenario, number: usize) -> Self {
        let mut random = SplitMix64::new(hash(&[scenario.seed, 11, number as u64]));
        let next_at = random.next_u64() % 3_000_000;
        Self {
            number,
            random,
            left: scenario.operations,
            calls: Vec::new(),
            clocks: Vec::new(),
            times: Vec::new(),
            next_at,
        }
    }

    /// True when all that it called is done, and it calls nothing more.
    pub(super) fn is_done(&self) -> bool {
        self.left == 0 && self.calls.iter().all(|(.., is_done)| *is_done)
    }

    pub(super) fn describe(&self) -> String {
        let open = self.calls.iter().filter(|(.., is_done)| !is_done);
        let open: Vec<_> = open.map(|(key, event, _)| (key, event)).collect();
        format!("session {}: {} to call, open: {open:?}", self.number, self.left)
    }

    /// Its events on one key.
    pub(super) fn events(&self, key: u64) -> Vec<Event> {
        let calls = self.calls.iter().filter(|(of, ..)| *of == key);
        calls.filter_map(|(_, event, _)| event.clone()).collect()
    }

    /// As before, each with the clock in which it was called.
    pub(super) fn events_of_clocks(&self, key: u64) -> Vec<(u32, Event)> {
        let calls = self.calls.iter().zip(&self.clocks).filter(|((of, ..), _)| *of == key);
        calls.filter_map(|((_, event, _), clock)| event.clone().map(|e| (*clock, e))).collect()
    }

    /// As before, each with when it was called and done.
    pub(super) fn timed_events(&self, key: u64) -> Vec<Timed> {
        let calls = self.calls.iter().zip(&self.times).filter(|((of, ..), _)| *of == key);
        let timed = calls.filter_map(|((_, event, _), (called_at, done_at))| {
            let (called_at, done_at) = (*called_at, *done_at);
            event.clone().map(|event| Timed { event, called_at, done_at })
        });
        timed.collect()
    }

    fn below(&mut self, count: u64) -> u64 {
        self.random.next_u64() % count
    }
}

impl Node {
    /// When a session calls something.
    pub(super) fn next_call_at(&self, scenario: &Scenario) -> u64 {
        if self.is_crashed || self.engine.presence() == Presence::Lost {
            return u64::MAX;
        }
        let can_call = self.sessions.iter().filter(|session| {
            let open = session.calls.iter().filter(|(.., is_done)| !is_done).count();
            session.left > 0 && open < scenario.open_max
        });
        let next_at = can_call.map(|session| session.next_at).min().unwrap_or(u64::MAX);
        let is_done = self.sessions.iter().all(Session::is_done);
        let has_clock = scenario.is_managed && !(is_done && self.engine.open_adds() == [0, 0]);
        if has_clock { next_at.min(self.clock_at) } else { next_at }
    }

    /// What this process has of a row: its epoch and adds, also while the row is on its way.
    pub(super) fn row(&mut self, key: u64) -> Option<(RowEpoch, Vec<u32>)> {
        let held = self
            .engine
            .with_row(key, |slot| slot.is_held().then(|| (*slot.epoch, read(slot.value).adds)));
        let mut row = held.expect("a key of the table");
        if row.is_none() {
            self.engine.with_kept(key, |epoch, value, _| row = Some((epoch, read(value).adds)));
        }
        row
    }

    /// Sessions whose time has come call what they want.
    pub(super) fn call(&mut self, now: Nanos, scenario: &Scenario, seen: &mut Seen) {
        for place in 0..self.sessions.len() {
            let session = &self.sessions[place];
            let open = session.calls.iter().filter(|(.., is_done)| !is_done).count();
            if session.left == 0 || open >= scenario.open_max || session.next_at > now.0 {
                continue;
            }
            // One key, or several in one call.
            let session = &mut self.sessions[place];
            let count = if session.below(4) == 0 { 1 + session.below(4) } else { 1 };
            let kind = choose(scenario, session);
            if scenario.is_managed && self.sessions[place].below(4) == 0 {
                self.intend(place, scenario, seen);
            }
            for _ in 0..count {
                self.call_one(now, place, kind, scenario, seen);
            }
            let session = &mut self.sessions[place];
            session.next_at = now.0 + session.below(600_000);
        }
        if scenario.is_managed && self.clock_at <= now.0 {
            // Last, so that nothing is called between it and the note of what rows have then.
            self.engine.advance_clock();
            seen.clocks += 1;
            let session = &mut self.sessions[0];
            self.clock_at = now.0 + 500_000 + session.below(3_000_000);
        }
        self.engine.flush(now, &mut self.heard);
        self.settle(now, &mut Checkpoint::new());
    }

    fn intend(&mut self, place: usize, scenario: &Scenario, seen: &mut Seen) {
        let clock = self.engine.clock();
        let session = &mut self.sessions[place];
        let key = FIRST_KEY + session.below(scenario.keys.into());
        let [wait, span] = [3, 5].map(|count| u32::try_from(session.below(count)).unwrap_or(0));
        let from = clock + wait;
        // As with a call: too much may wait.
        seen.intents += u64::from(self.engine.intend(key, from, from + 1 + span).is_ok());
    }

    fn call_one(
        &mut self,
        now: Nanos,
        place: usize,
        kind: usize,
        scenario: &Scenario,
        seen: &mut Seen,
    ) {
        let session = &mut self.sessions[place];
        let key = FIRST_KEY + session.below(scenario.keys.into());
        let call = (place as u64) << 32 | session.calls.len() as u64;
        let number = u32::try_from(session.number * 10_000 + session.calls.len() + 1);
        let number = number.expect("few sessions");
        let mut value = vec![0.0; scenario.row_len()];
        let (event, op) = match kind {
            0 => {
                value[scenario.session_count()] = f32_of(number);
                (Some(Event::Set(number)), Op::Set(&value[..]))
            }
            1 => {
                value[session.number] = 1.0;
                (Some(Event::Add), Op::Add(&value[..]))
            }
            _ => (Some(Event::Pull(None)), Op::Pull),
        };
        let event = if kind == 3 { None } else { event };
        session.calls.push((key, event, false));
        session.clocks.push(self.engine.clock());
        session.times.push((now.0, u64::MAX));
        let result = match kind {
            3 => self.engine.localize(key, call, &mut self.heard),
            _ => self.engine.call(key, op, call, &mut self.heard),
        };
        if result.is_ok() {
            seen.calls[kind] += 1;
            let session = &mut self.sessions[place];
            session.left = session.left.saturating_sub(1);
        } else {
            // Too much waits: called again later.
            self.sessions[place].calls.pop();
            self.sessions[place].clocks.pop();
            self.sessions[place].times.pop();
        }
    }

    /// Takes note of what is done, and restores what is lost.
    pub(super) fn settle(&mut self, now: Nanos, checkpoint: &mut Checkpoint) {
        while !self.heard.done.is_empty() || !self.heard.lost.is_empty() {
            for (call, value) in std::mem::take(&mut self.heard.done) {
                let session = usize::try_from(call >> 32).expect("few sessions");
                let place = usize::try_from(call & 0xffff_ffff).expect("few calls");
                self.sessions[session].times[place].1 = now.0;
                let (_, event, is_done) = &mut self.sessions[session].calls[place];
                assert!(!*is_done, "session {session}: call {place} is done twice");
                *is_done = true;
                if let Some(Event::Pull(result)) = event {
                    *result = Some(read(&value.expect("a pull has a value")));
                }
            }
            for key in std::mem::take(&mut self.heard.lost) {
                let (value, lasts) = checkpoint.get(&key).cloned().unwrap_or_else(|| {
                    let row_len = self.engine.table().row_len;
                    (vec![0.0; row_len.into()], Vec::new())
                });
                let restored = self.engine.restore(now, key, &value, &lasts, &mut self.heard);
                restored.expect("it was asked for");
            }
        }
    }

    /// Writes the rows that are here to the disk.
    pub(super) fn write_checkpoint(&mut self, scenario: &Scenario, checkpoint: &mut Checkpoint) {
        for key in FIRST_KEY..FIRST_KEY + u64::from(scenario.keys) {
            let row = self.engine.with_row(key, |slot| {
                slot.is_held().then(|| (slot.value.to_vec(), slot.lasts.to_vec()))
            });
            if let Some(row) = row.expect("a key of the table") {
                checkpoint.insert(key, row);
            }
        }
    }
}

/// 0 set, 1 add, 2 pull, 3 localize.
fn choose(scenario: &Scenario, session: &mut Session) -> usize {
    if session.below(scenario.localize_every) == 0 {
        return 3;
    }
    match session.below(10) {
        0 if scenario.kind == super::scenario::Kind::Sets => 0,
        0..=5 => 1,
        _ => 2,
    }
}

/// A row as a history has it.
pub(super) fn read(value: &[f32]) -> Value {
    let mut counts: Vec<u32> = value.iter().map(|element| count_of(*element)).collect();
    let set = counts.pop().expect("a row has elements");
    Value { set, adds: counts }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "counts are small integers"
)]
fn count_of(element: f32) -> u32 {
    element as u32
}

#[expect(clippy::cast_precision_loss, reason = "below 2^24")]
fn f32_of(number: u32) -> f32 {
    assert!(number < 1 << 24, "exact as f32");
    number as f32
}

/// The first key of the table: not 0, so that places and keys differ.
pub(super) const FIRST_KEY: u64 = 1_000;
