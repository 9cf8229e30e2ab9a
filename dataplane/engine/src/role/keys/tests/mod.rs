//! Three processes and their box on a network that does what a test says: what no random run shows
//! as clearly. What faults do is in `testbed/sim/src/keys`.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::{Ipv4Addr, SocketAddr};

use weft_wire::frame::UdpAddr;
use weft_wire::header::{Header, Packet};
use weft_wire::keys::{Frame, Number, RowEpoch, What};
use weft_wire::{JobId, Nanos};

use super::*;
use crate::random::Seed;

mod copies;
mod hostile;
mod lanes;
mod modes;
mod repeats;
mod rules;

pub(super) const FIRST_KEY: u64 = 100;
const PROCESSES: u8 = 3;
const DEATH: Nanos = Nanos::from_millis(500);

/// What engines say.
#[derive(Debug, Default)]
pub(super) struct Said {
    pub(super) sent: Vec<(To, Vec<u8>)>,
    pub(super) done: Vec<(u64, u64, Option<Vec<f32>>)>,
    pub(super) lost: Vec<u64>,
}

impl Outbox for Said {
    fn send(&mut self, to: To, datagram: &[u8]) {
        self.sent.push((to, datagram.to_vec()));
    }
}

impl Sink for Said {
    fn done(&mut self, call: u64, key: u64, value: Option<&[f32]>) {
        self.done.push((call, key, value.map(<[f32]>::to_vec)));
    }

    fn lost(&mut self, key: u64) {
        self.lost.push(key);
    }
}

/// A datagram on its way: from `None`, the box, or a process.
#[derive(Clone, Debug)]
pub(super) struct Passing {
    pub(super) from: Option<u8>,
    pub(super) to: Option<u8>,
    pub(super) octets: Vec<u8>,
}

impl Passing {
    pub(super) fn what(&self) -> Option<What> {
        What::of(&Header::parse(&Packet::new_unchecked(&self.octets[..])).ok()?)
    }

    pub(super) fn number(&self) -> Number {
        let header = Header::parse(&Packet::new_unchecked(&self.octets[..])).unwrap();
        Frame::parse(&header, &self.octets[32..]).unwrap().head.number
    }
}

/// All of them.
pub(super) struct Rig {
    pub(super) now: Nanos,
    pub(super) home: Home,
    pub(super) processes: Vec<Process<OwnStore>>,
    pub(super) said: Vec<Said>,
    pub(super) wire: VecDeque<Passing>,
    /// The processes that are gone, as a bitmap.
    pub(super) gone: u8,
    /// Frames that never arrive.
    pub(super) lost: Option<What>,
    /// All that has arrived at the box.
    pub(super) at_box: Vec<Passing>,
}

pub(super) fn addr(process: Option<u8>) -> UdpAddr {
    let host = process.map_or(100, |process| process + 1);
    SocketAddr::from((Ipv4Addr::new(10, 0, 0, host), 7_000)).into()
}

pub(super) fn table() -> TableConfig {
    TableConfig {
        job: JobId(9),
        table: 1,
        row_len: 2,
        first_key: FIRST_KEY,
        key_count: 40,
        processes: PROCESSES,
        payload_max: 1472,
        in_flight: 1,
    }
}

fn home(table: TableConfig, seed: u64, now: Nanos) -> Home {
    let addrs: Vec<_> = (0..PROCESSES).map(|process| addr(Some(process))).collect();
    let config = HomeConfig { table, processes: &addrs, death_timeout: DEATH };
    Home::new(&config, &Seed::from(seed), now).unwrap()
}

impl Rig {
    /// All have joined, and process 0 has the first third of the keys.
    pub(super) fn new() -> Self {
        Self::with(Mode::Relocation, false)
    }

    pub(super) fn with(mode: Mode, has_cache: bool) -> Self {
        Self::of(table(), mode, has_cache)
    }

    pub(super) fn of(table: TableConfig, mode: Mode, has_cache: bool) -> Self {
        let rig = Self::begun(|_| table, mode, has_cache);
        assert_eq!(rig.home.life(), 1);
        rig
    }

    /// Each process with a table of its own, after time to join.
    pub(super) fn begun(table: impl Fn(u8) -> TableConfig, mode: Mode, has_cache: bool) -> Self {
        let limits = ProcessLimits {
            active_keys_max: 8,
            key_queue_max: 8,
            queued_max: 16,
            remote_max: 4,
            transfers_max: 4,
            open_numbers_max: 16,
            intents_max: 64,
        };
        let addrs: Vec<_> = (0..PROCESSES).map(|process| addr(Some(process))).collect();
        let make = |me| {
            let config = ProcessConfig {
                table: table(me),
                me,
                home: addr(None),
                processes: &addrs,
                mode,
                has_cache,
                staleness: 1,
                limits,
                resend_min: Nanos::from_millis(1),
                resend_max: Nanos::from_millis(8),
                beat: Nanos::from_millis(50),
            };
            let life = 77 + u64::from(me);
            Process::new(&config, OwnStore::new(&config.table), life, Nanos(0)).unwrap()
        };
        let mut rig = Self {
            now: Nanos(0),
            home: home(table(0), 1, Nanos(0)),
            processes: (0..PROCESSES).map(make).collect(),
            said: (0..PROCESSES).map(|_| Said::default()).collect(),
            wire: VecDeque::new(),
            gone: 0,
            lost: None,
            at_box: Vec::new(),
        };
        rig.run_for(Nanos::from_millis(100));
        rig
    }

    /// The box loses all that it knows.
    pub(super) fn restart_home(&mut self) {
        self.home = home(*self.home.table(), self.now.0, self.now);
    }

    pub(super) fn process(&mut self, process: u8) -> (&mut Process<OwnStore>, &mut Said) {
        let place = usize::from(process);
        (&mut self.processes[place], &mut self.said[place])
    }

    /// Calls and sends; what leaves is on the wire.
    pub(super) fn call(&mut self, process: u8, key: u64, op: Op<'_>, call: u64) {
        let now = self.now;
        let (engine, said) = self.process(process);
        engine.call(key, op, call, said).unwrap();
        engine.flush(now, said);
        self.collect(process);
    }

    pub(super) fn localize(&mut self, process: u8, key: u64, call: u64) {
        let now = self.now;
        let (engine, said) = self.process(process);
        engine.localize(key, call, said).unwrap();
        engine.flush(now, said);
        self.collect(process);
    }

    pub(super) fn intend(&mut self, process: u8, key: u64, from: u32, to: u32) {
        self.change(process, |engine| engine.intend(key, from, to).unwrap());
    }

    pub(super) fn advance_clock(&mut self, process: u8) {
        self.change(process, Process::advance_clock);
    }

    fn change(&mut self, process: u8, step: impl FnOnce(&mut Process<OwnStore>)) {
        let now = self.now;
        let (engine, said) = self.process(process);
        step(engine);
        engine.flush(now, said);
        self.collect(process);
    }

    /// Puts on the wire what a process has sent.
    fn collect(&mut self, process: u8) {
        for (to, octets) in core::mem::take(&mut self.said[usize::from(process)].sent) {
            self.wire.push_back(Passing { from: Some(process), to: place(to), octets });
        }
    }

    /// Lets a datagram arrive.
    pub(super) fn arrive(&mut self, passing: &Passing) -> Result<(), crate::drops::DropReason> {
        let Passing { from, to, octets } = passing;
        let now = self.now;
        let source = addr(*from);
        let Some(to) = *to else {
            self.at_box.push(passing.clone());
            let mut said = Said::default();
            let result = self.home.handle_datagram(now, source, octets, &mut said);
            for (to, octets) in said.sent {
                self.wire.push_back(Passing { from: None, to: place(to), octets });
            }
            return result;
        };
        if self.gone >> to & 1 == 1 {
            return Ok(());
        }
        let (engine, said) = self.process(to);
        let result = engine.handle_datagram(now, source, octets, said);
        self.collect(to);
        result
    }

    /// Takes the first datagram off the wire that `is_meant`.
    pub(super) fn take(&mut self, is_meant: impl Fn(&Passing) -> bool) -> Passing {
        let place = self.wire.iter().position(is_meant).expect("it is on the wire");
        self.wire.remove(place).expect("it is there")
    }

    /// Lets all arrive that is on the wire, and what follows from it at this moment.
    pub(super) fn deliver(&mut self) {
        while let Some(passing) = self.wire.pop_front() {
            if self.lost.is_some() && passing.what() == self.lost {
                continue;
            }
            let _ = self.arrive(&passing);
        }
    }

    /// Lets time pass without a fault.
    pub(super) fn run_for(&mut self, span: Nanos) {
        let end = self.now.saturating_add(span);
        loop {
            self.deliver();
            let timeouts = (0..PROCESSES)
                .filter(|process| self.gone >> process & 1 == 0)
                .map(|process| self.processes[usize::from(process)].poll_timeout());
            let next = timeouts.chain([self.home.poll_timeout()]).min().unwrap_or(Nanos::MAX);
            if next > end {
                break;
            }
            self.now = self.now.max(next);
            let now = self.now;
            self.home.poll(now);
            for process in 0..PROCESSES {
                if self.gone >> process & 1 == 0 {
                    let (engine, said) = self.process(process);
                    engine.poll(now, said);
                    self.collect(process);
                }
            }
        }
        self.now = end;
    }

    /// The value of a row, and who has it.
    pub(super) fn row(&mut self, key: u64) -> (u8, RowEpoch, Vec<f32>) {
        let mut rows = (0..PROCESSES).filter(|process| self.gone >> process & 1 == 0);
        let mut found = Vec::new();
        for process in &mut rows {
            let engine = &mut self.processes[usize::from(process)];
            let row = engine.with_row(key, |slot| (*slot.epoch, slot.value.to_vec())).unwrap();
            if row.0.is_some() {
                found.push((process, row.0, row.1));
            }
        }
        assert_eq!(found.len(), 1, "{found:?}");
        found.remove(0)
    }

    /// The end of a call at a process, if it has come.
    pub(super) fn done(&self, process: u8, call: u64) -> Option<&Option<Vec<f32>>> {
        let done = self.said[usize::from(process)].done.iter().find(|done| done.0 == call);
        done.map(|(.., value)| value)
    }
}

fn place(to: To) -> Option<u8> {
    match to {
        To::Home => None,
        To::Process(process) => Some(process),
    }
}
