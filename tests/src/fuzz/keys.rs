//! A sequence of operations, read from the fuzzer's bytes, against a table of rows with its box and
//! three processes; and bodies of datagrams about keys.
//!
//! No operation may make any of them panic; a damaged datagram is refused by whoever gets it; while
//! no frame was forged, a row is at one process at most.

use std::collections::VecDeque;
use std::net::SocketAddr;

use weft_engine::drops::DropReason;
use weft_engine::random::Seed;
use weft_engine::role::keys::{
    Home, HomeConfig, Mode, Op, Outbox, OwnStore, Process, ProcessConfig, ProcessLimits, Sink,
    TableConfig, To,
};
use weft_engine::send::datagram::plain_header;
use weft_wire::frame::UdpAddr;
use weft_wire::header::{HEADER_LEN, Header, Packet};
use weft_wire::keys::{Frame, HEAD_LEN, What};
use weft_wire::{GroupId, JobId, Members, Nanos};

use crate::crc32c::crc32c;

/// Runs the operations that `data` spells, five bytes each.
pub fn key_frames(data: &[u8]) {
    let mode = [Mode::Relocation, Mode::StaleClient, Mode::StaleServer, Mode::Classic]
        [data.len() / OPERATION_LEN % 4];
    let mut rig = Rig::new(mode);
    for operation in data.chunks_exact(OPERATION_LEN) {
        rig.apply(operation);
        rig.check();
    }
}

/// The body of a datagram about keys: the first byte says of which kind.
pub fn key_body(data: &[u8]) {
    let Some((&first, body)) = data.split_first() else { return };
    let (what, _, kind, is_direct, outcome) = What::ALL[usize::from(first) % What::ALL.len()];
    let (_, flags, _) = what.header_fields();
    let group = GroupId::new(table().row(), 1);
    let blank = plain_header(kind, JobId(3), group, Members(1));
    let header = Header { flags, outcome, ..blank };
    assert_eq!(What::of(&header).map(|found| (found, is_direct)), Some((what, is_direct)));
    let Ok(frame) = Frame::parse(&header, body) else { return };
    let entries = usize::from(frame.head.entries);
    let found = match what {
        What::Access | What::Answer => frame.accesses().count(),
        What::Localize | What::Wait | What::Stale => frame.keys().count(),
        What::Row => frame.rows().map(|row| row.lasts().count()).map(|_| 1).sum(),
        What::Beat => 0,
        _ => frame.claims().count(),
    };
    assert_eq!(found, entries, "each entry is read once");
    assert!(body.len() >= HEAD_LEN + frame.floors().count() * 12);
}

const OPERATION_LEN: usize = 5;
const PROCESSES: u8 = 3;
const KEYS: u32 = 5;
const ROW_LEN: usize = 2;
const WIRE_MAX: usize = 64;

#[derive(Default)]
struct Said {
    sent: Vec<(To, Vec<u8>)>,
    lost: Vec<u64>,
}

impl Outbox for Said {
    fn send(&mut self, to: To, datagram: &[u8]) {
        self.sent.push((to, datagram.to_vec()));
    }
}

impl Sink for Said {
    fn done(&mut self, _call: u64, _key: u64, value: Option<&[f32]>) {
        assert!(value.is_none_or(|value| value.len() == ROW_LEN));
    }

    fn lost(&mut self, key: u64) {
        self.lost.push(key);
    }
}

/// From whom (none is the box), to whom, what.
type Passing = (Option<u8>, Option<u8>, Vec<u8>);

struct Rig {
    now: Nanos,
    home: Home,
    processes: Vec<Process<OwnStore>>,
    wire: VecDeque<Passing>,
    calls: u64,
    lives: u64,
    is_forged: bool,
}

impl Rig {
    fn new(mode: Mode) -> Self {
        let addrs: Vec<_> = (0..PROCESSES).map(|process| addr(Some(process))).collect();
        let limits = ProcessLimits {
            active_keys_max: 3,
            key_queue_max: 4,
            queued_max: 8,
            remote_max: 2,
            transfers_max: 2,
            open_numbers_max: 4,
            intents_max: 4,
        };
        let make = |me: u8| {
            let config = ProcessConfig {
                table: table(),
                me,
                home: addr(None),
                processes: &addrs,
                mode,
                has_cache: me > 0,
                staleness: 1,
                limits,
                resend_min: Nanos::from_millis(1),
                resend_max: Nanos::from_millis(8),
                beat: Nanos::from_millis(50),
            };
            let store = OwnStore::new(&table());
            Process::new(&config, store, 70 + u64::from(me), Nanos(0)).expect("a valid table")
        };
        let mut rig = Self {
            now: Nanos(0),
            home: home(1, Nanos(0)),
            processes: (0..PROCESSES).map(make).collect(),
            wire: VecDeque::new(),
            calls: 0,
            lives: 1,
            is_forged: false,
        };
        for _ in 0..20 {
            rig.pass(5);
            while rig.deliver(0) {}
        }
        assert_eq!(rig.home.life(), 1, "all have joined");
        rig
    }

    fn apply(&mut self, operation: &[u8]) {
        let &[code, process, key, value, extra] = operation else { return };
        let process = process % PROCESSES;
        let key = FIRST_KEY + u64::from(u32::from(key) % (KEYS + 1));
        let row = [f32::from(value); ROW_LEN];
        self.calls += 1;
        let call = self.calls;
        match code % 14 {
            0 => self.at(process, |engine, said| engine.call(key, Op::Pull, call, said)),
            1 => self.at(process, |engine, said| engine.call(key, Op::Add(&row), call, said)),
            2 => self.at(process, |engine, said| engine.call(key, Op::Set(&row), call, said)),
            3 => self.at(process, |engine, said| engine.localize(key, call, said)),
            4 => self.at(process, |engine, _| {
                let from = engine.clock() + u32::from(value % 3);
                engine.intend(key, from, from + u32::from(extra % 4))
            }),
            5 => self.at(process, |engine, _| engine.advance_clock()),
            6 | 7 => _ = self.deliver(usize::from(extra)),
            8 => _ = self.wire.pop_front(),
            9 => {
                if let Some(passing) = self.wire.get(usize::from(extra) % WIRE_MAX).cloned() {
                    self.wire.push_back(passing);
                }
            }
            10 => self.pass(u64::from(value)),
            11 => {
                if let Some((from, to, mut octets)) = self.wire.pop_front() {
                    let place = usize::from(extra) % octets.len();
                    octets[place] ^= value | 1;
                    let taken = self.arrive((from, to, octets));
                    assert!(taken.is_err(), "a damaged datagram was taken");
                }
            }
            12 => self.forge(extra, value),
            _ => {
                self.lives += 1;
                self.home = home(self.lives, self.now);
            }
        }
        self.wire.truncate(WIRE_MAX);
    }

    /// A whole datagram of one who may say such things, with another byte.
    fn forge(&mut self, at: u8, value: u8) {
        let Some((from, to, mut octets)) = self.wire.pop_front() else { return };
        let place = HEADER_LEN + usize::from(at) % (octets.len() - HEADER_LEN);
        octets[place] ^= value | 1;
        Packet::new_unchecked(&mut octets[..]).seal(crc32c);
        self.is_forged = true;
        let _ = self.arrive((from, to, octets));
    }

    fn at<R>(&mut self, process: u8, work: impl FnOnce(&mut Process<OwnStore>, &mut Said) -> R) {
        let mut said = Said::default();
        let engine = &mut self.processes[usize::from(process)];
        // What is refused has not happened.
        let _ = work(engine, &mut said);
        engine.flush(self.now, &mut said);
        for key in core::mem::take(&mut said.lost) {
            // May have come meanwhile.
            let _ = engine.restore(self.now, key, &[0.0; ROW_LEN], &[], &mut said);
        }
        self.collect(Some(process), said);
    }

    fn collect(&mut self, from: Option<u8>, said: Said) {
        for (to, octets) in said.sent {
            let to = match to {
                To::Home => None,
                To::Process(process) => Some(process),
            };
            self.wire.push_back((from, to, octets));
        }
    }

    fn deliver(&mut self, place: usize) -> bool {
        let place = place % self.wire.len().max(1);
        let Some(passing) = self.wire.remove(place) else { return false };
        let _ = self.arrive(passing);
        true
    }

    fn arrive(&mut self, (from, to, octets): Passing) -> Result<(), DropReason> {
        let (now, source) = (self.now, addr(from));
        let Some(to) = to else {
            let mut said = Said::default();
            let taken = self.home.handle_datagram(now, source, &octets, &mut said);
            self.collect(None, said);
            return taken;
        };
        let mut taken = Ok(());
        self.at(to, |engine, said| taken = engine.handle_datagram(now, source, &octets, said));
        taken
    }

    fn pass(&mut self, span_ms: u64) {
        self.now = Nanos(self.now.0 + span_ms * 1_000_000);
        let now = self.now;
        self.home.poll(now);
        let mut said = Said::default();
        self.home.flush(&mut said);
        self.collect(None, said);
        for process in 0..PROCESSES {
            self.at(process, |engine, said| engine.poll(now, said));
        }
    }

    /// A frame that somebody forged may move a row where nobody is.
    fn check(&mut self) {
        if self.is_forged {
            return;
        }
        // A process that is cut off learns later that it is dead.
        let living = self.home.living();
        for key in FIRST_KEY..FIRST_KEY + u64::from(KEYS) {
            let mut holders = 0;
            for (process, engine) in (0_u32..).zip(&mut self.processes) {
                let is_held = engine.with_row(key, |slot| slot.is_held()).expect("a key");
                let is_living = living.0 >> process & 1 == 1;
                holders += u32::from(is_held && is_living);
            }
            assert!(holders < 2, "{holders} hold {key}");
        }
    }
}

const FIRST_KEY: u64 = 9;

fn table() -> TableConfig {
    TableConfig {
        job: JobId(3),
        table: 0,
        row_len: u16::try_from(ROW_LEN).expect("short rows"),
        first_key: FIRST_KEY,
        key_count: KEYS,
        processes: PROCESSES,
        payload_max: 1472,
        in_flight: 1,
    }
}

fn home(seed: u64, now: Nanos) -> Home {
    let addrs: Vec<_> = (0..PROCESSES).map(|process| addr(Some(process))).collect();
    let death_timeout = Nanos::from_millis(500);
    let config = HomeConfig { table: table(), processes: &addrs, death_timeout };
    Home::new(&config, &Seed::from(seed), now).expect("a valid table")
}

fn addr(process: Option<u8>) -> UdpAddr {
    let host = process.map_or(100, |process| process + 1);
    SocketAddr::from(([10, 0, 0, host], 7_000)).into()
}
