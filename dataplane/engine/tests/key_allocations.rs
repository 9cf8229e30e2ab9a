//! Zero allocations of the box and the processes of a table after their start, counted: accesses,
//! moves, repeats, and a life that begins anew.

use std::net::SocketAddr;

use crate::counting::counted;
use weft_engine::random::Seed;
use weft_engine::role::keys::{
    Home, HomeConfig, Mode, Op, Outbox, OwnStore, Process, ProcessConfig, ProcessLimits, Sink,
    TableConfig, To,
};
use weft_wire::frame::UdpAddr;
use weft_wire::{JobId, Nanos};

const PROCESSES: u8 = 3;
const KEYS: u64 = 24;
const PAYLOAD_MAX: usize = 1472;

/// A datagram on its way: its octets and how many count, from whom, and to whom. `None` is the box.
type Passing = ([u8; PAYLOAD_MAX], usize, Option<u8>, Option<u8>);

/// Datagrams on their way, in memory that was taken before.
struct Wire {
    passing: Vec<Passing>,
    from: Option<u8>,
    done: u64,
}

impl Outbox for Wire {
    fn send(&mut self, to: To, datagram: &[u8]) {
        let mut octets = [0; PAYLOAD_MAX];
        octets[..datagram.len()].copy_from_slice(datagram);
        let to = match to {
            To::Home => None,
            To::Process(process) => Some(process),
        };
        assert!(self.passing.len() < self.passing.capacity(), "the test's own memory is enough");
        self.passing.push((octets, datagram.len(), self.from, to));
    }
}

impl Sink for Wire {
    fn done(&mut self, _call: u64, _key: u64, _value: Option<&[f32]>) {
        self.done += 1;
    }

    fn lost(&mut self, _key: u64) {}
}

struct World {
    home: Home,
    processes: Vec<Process<OwnStore>>,
    wire: Wire,
    now: Nanos,
}

fn addr(process: Option<u8>) -> UdpAddr {
    SocketAddr::from(([10, 0, 0, process.map_or(100, |process| process + 1)], 7_000)).into()
}

impl World {
    fn new() -> Self {
        let table = TableConfig {
            job: JobId(1),
            table: 0,
            row_len: 8,
            first_key: 0,
            key_count: 24,
            processes: PROCESSES,
            payload_max: 1472,
            in_flight: 1,
        };
        let addrs: Vec<_> = (0..PROCESSES).map(|process| addr(Some(process))).collect();
        let death_timeout = Nanos::from_millis(300);
        let home = HomeConfig { table, processes: &addrs, death_timeout };
        let home = Home::new(&home, &Seed::from(3), Nanos(0)).expect("a good table");
        let limits = ProcessLimits {
            active_keys_max: 32,
            key_queue_max: 8,
            queued_max: 128,
            remote_max: 32,
            transfers_max: 32,
            open_numbers_max: 64,
            intents_max: 64,
        };
        let make = |me| {
            let config = ProcessConfig {
                table,
                me,
                home: addr(None),
                processes: &addrs,
                mode: Mode::default(),
                has_cache: false,
                staleness: 1,
                limits,
                resend_min: Nanos::from_millis(1),
                resend_max: Nanos::from_millis(8),
                beat: Nanos::from_millis(20),
            };
            let life = 5 + u64::from(me);
            Process::new(&config, OwnStore::new(&table), life, Nanos(0)).expect("a good table")
        };
        let processes = (0..PROCESSES).map(make).collect();
        let wire = Wire { passing: Vec::with_capacity(512), from: None, done: 0 };
        Self { home, processes, wire, now: Nanos(0) }
    }

    /// A millisecond passes; one datagram in `loss` is lost.
    fn pass(&mut self, living: u8, loss: usize) {
        self.now = Nanos(self.now.0 + 1_000_000);
        let Self { home, processes, wire, now } = self;
        home.poll(*now);
        for process in 0..living {
            wire.from = Some(process);
            processes[usize::from(process)].poll(*now, wire);
        }
        let mut count = 0;
        while let Some((octets, len, from, to)) = wire.passing.pop() {
            count += 1;
            if count % loss == 0 {
                continue;
            }
            wire.from = to;
            match to {
                None => {
                    let _refused = home.handle_datagram(*now, addr(from), &octets[..len], wire);
                }
                Some(to) if to < living => {
                    let process = &mut processes[usize::from(to)];
                    let _refused = process.handle_datagram(*now, addr(from), &octets[..len], wire);
                }
                Some(_) => {}
            }
        }
    }

    /// Every living process calls something on every key.
    fn call(&mut self, living: u8, round: u64) {
        let value = [1.0; 8];
        for process in 0..living {
            let engine = &mut self.processes[usize::from(process)];
            self.wire.from = Some(process);
            for key in 0..KEYS {
                let op = match (key + round) % 4 {
                    0 => Op::Set(&value),
                    1 => Op::Add(&value),
                    _ => Op::Pull,
                };
                // What is refused because it is full may not allocate either.
                let _full = engine.call(key, op, round, &mut self.wire);
                if (key + round + u64::from(process)).is_multiple_of(5) {
                    let _full = engine.localize(key, round, &mut self.wire);
                }
            }
            engine.flush(self.now, &mut self.wire);
        }
    }
}

#[test]
fn nothing_allocates_after_the_start() {
    let mut world = World::new();
    for _ in 0..100 {
        world.pass(PROCESSES, usize::MAX);
    }
    assert_eq!(world.home.life(), 1);
    let mut allocations = 0;
    counted(&mut allocations, || {
        for round in 0..200 {
            let living = if round < 100 { PROCESSES } else { PROCESSES - 1 };
            world.call(living, round);
            for _ in 0..10 {
                world.pass(living, 17);
            }
        }
    });
    let moves: u64 = world.processes.iter().map(|process| process.stats().rows_taken).sum();
    assert_eq!(world.home.life(), 2, "one has died");
    assert!(moves > 100 && world.wire.done > 5_000, "{moves} moves, {} done", world.wire.done);
    assert_eq!(allocations, 0);
}
