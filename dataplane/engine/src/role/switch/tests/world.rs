//! Unmodified workers, an agent and a switch in virtual time.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use core::net::Ipv4Addr;

use weft_control::SumOrder;
use weft_kernel::{Kernels, crc32c_blank};
use weft_wire::frame::{Endpoint, Udp};
use weft_wire::header::{CRC_AT, ElementType, Flags, Header, Operation, Packet};
use weft_wire::hello::{Integrity, Overflow};
use weft_wire::{JobId, MacAddr, Nanos, Rank};

use super::super::{Agent, Entry, RowKey, Target, Write};
use super::fake::{BANKS, CPU, FakeSwitch};
use crate::random::SplitMix64;
use crate::role::Verdict;
use crate::role::aggregator::Aggregator;
use crate::role::worker::{ChunkMeta, Event, Payload, Worker, WorkerConfig};
use crate::table::{BoxConfig, JobConfig, MemberConfig, RowConfig, Table};

pub(super) const JOB: JobId = JobId(3);
pub(super) const ROW: u16 = 7;
pub(super) const KEY: RowKey = RowKey { job: JOB, row: ROW };
pub(super) const ELEMENTS: u16 = 4;
const HOP: Nanos = Nanos::from_micros(50);
/// A write takes this long.
const WRITE: Nanos = Nanos::from_millis(2);

pub(super) fn member(rank: usize) -> Endpoint {
    let last = u8::try_from(rank + 1).unwrap();
    let addr = (Ipv4Addr::new(10, 0, 0, last), 4000 + u16::from(last)).into();
    Endpoint { mac: MacAddr([2, 0, 0, 0, 1, last]), addr }
}

pub(super) fn boxy() -> Endpoint {
    Endpoint { mac: MacAddr([2, 0, 0, 0, 0, 9]), addr: "10.0.0.100:22341".parse().unwrap() }
}

pub(super) fn row(members: usize) -> RowConfig {
    let member = |rank| MemberConfig { addr: member(rank).addr, weight: 1, is_box: false };
    RowConfig {
        row: ROW,
        job: JOB,
        members: (0..members).map(member).collect(),
        element_type: ElementType::I32,
        operation: Operation::Sum,
        sum_order: SumOrder::Arrival,
        overflow: Overflow::Wrap,
        integrity: Integrity::Checksum16,
        elements: ELEMENTS,
        window: 4,
        chunks_max: 1000,
        exponent: Some(0),
        fan_in: u32::try_from(members).unwrap(),
        parent: None,
    }
}

pub(super) fn target() -> Target {
    let ip = |rank: u8| Ipv4Addr::new(10, 0, 0, rank + 1);
    Target {
        elements: ELEMENTS,
        banks: BANKS,
        rows: 16,
        scopes: 4,
        cpu_port: CPU,
        hosts: (0..8).map(|rank| (ip(rank), u16::from(rank))).collect(),
        cpu_quota: None,
    }
}

pub(super) fn config(rows: Vec<RowConfig>) -> BoxConfig {
    let job = JobConfig { job: JOB, slots_max: 64, rate_bytes_per_sec: None, burst_bytes: 0 };
    BoxConfig { local: boxy(), shards: 1, mtu: 1500, jobs: vec![job], rows, pushes: Vec::new() }
}

pub(super) fn agent(members: usize, seed: u64) -> Agent {
    let table = Table::new(config(vec![row(members)])).unwrap();
    Agent::new(Aggregator::new(&table, 0, seed, Kernels::detect()), target(), seed)
}

/// One member's vector; sums take the place of contributions.
pub(super) struct Data(pub(super) Vec<i32>);

impl Data {
    fn new(rank: usize, round: u64, chunks: usize) -> Self {
        let mut random = SplitMix64::new(round << 8 | rank as u64);
        Self((0..chunks * usize::from(ELEMENTS)).map(|_| random.next_u32().cast_signed()).collect())
    }
}

impl Payload for Data {
    fn write_chunk(&self, chunk: u32, out: &mut [u8]) -> ChunkMeta {
        let start = chunk as usize * usize::from(ELEMENTS);
        for (place, value) in out.chunks_exact_mut(4).zip(&self.0[start..]) {
            place.copy_from_slice(&value.to_be_bytes());
        }
        ChunkMeta::default()
    }

    fn read_chunk(&mut self, chunk: u32, _: i8, _: Flags, sum: &[u8]) {
        let start = chunk as usize * usize::from(ELEMENTS);
        for (place, bytes) in self.0[start..].iter_mut().zip(sum.chunks_exact(4)) {
            *place = i32::from_be_bytes(bytes.try_into().unwrap());
        }
    }
}

/// Where a frame is lost.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Hop {
    /// Into the switch at this port.
    Up(u16),
    /// Out of it.
    Down(u16),
}

/// What is on its way.
enum Passing {
    /// To the switch, in at this port.
    Up(u16, Vec<u8>),
    /// From the switch, out at this port.
    Down(u16, Vec<u8>),
    Write(u64, Write),
}

pub(super) struct World {
    pub(super) now: Nanos,
    pub(super) agent: Agent,
    pub(super) switch: FakeSwitch,
    pub(super) workers: Vec<Worker>,
    pub(super) data: Vec<Data>,
    pub(super) events: Vec<Vec<Event>>,
    /// True for a frame that is lost: its header, where it has one, and whether it goes up.
    pub(super) loses: fn(&mut SplitMix64, Option<&Header>, Hop) -> bool,
    random: SplitMix64,
    passing: BTreeMap<(Nanos, u64), Passing>,
    sequence: u64,
    round: u64,
}

impl World {
    pub(super) fn new(members: usize) -> Self {
        let mut world = Self {
            now: Nanos::from_millis(1),
            agent: agent(members, 11),
            switch: FakeSwitch::new(),
            workers: Vec::new(),
            data: Vec::new(),
            events: vec![Vec::new(); members],
            loses: |_, _, _| false,
            random: SplitMix64::new(5),
            passing: BTreeMap::new(),
            sequence: 0,
            round: 0,
        };
        for rank in 0..members {
            world.workers.push(world.worker(rank, 77 + rank as u64));
            world.data.push(Data(Vec::new()));
        }
        world
    }

    pub(super) fn worker(&self, rank: usize, seed: u64) -> Worker {
        let target = Endpoint { mac: MacAddr::BROADCAST, ..boxy() };
        let number = Rank::new(u8::try_from(rank).unwrap()).unwrap();
        let mut config = WorkerConfig::new(JOB, ROW, number, member(rank), target);
        config.probe_len = 512;
        Worker::new(config, crc32c_blank::<CRC_AT>, seed, self.now).unwrap()
    }

    /// The switch ends and begins anew, and so does the box before it.
    pub(super) fn restart_switch(&mut self, seed: u64) {
        let members = self.workers.len();
        self.switch = FakeSwitch::new();
        self.passing.retain(|_, passing| !matches!(passing, Passing::Write(..)));
        self.agent = agent(members, seed);
    }

    fn post(&mut self, after: Nanos, passing: Passing) {
        self.sequence += 1;
        self.passing.insert((self.now.saturating_add(after), self.sequence), passing);
    }

    fn lost(&mut self, frame: &[u8], hop: Hop) -> bool {
        let udp = Udp::parse(frame).ok();
        let header = udp.and_then(|udp| {
            Header::parse(&Packet::new_checked(&frame[udp.payload_range()]).ok()?).ok()
        });
        (self.loses)(&mut self.random, header.as_ref(), hop)
    }

    fn arrive(&mut self, passing: Passing) {
        match passing {
            Passing::Up(port, frame) => {
                for (port, frame) in self.switch.handle(port, &frame) {
                    if !self.lost(&frame, Hop::Down(port)) {
                        self.post(HOP, Passing::Down(port, frame));
                    }
                }
            }
            Passing::Down(CPU, frame) => {
                let mut buffer = vec![0; 1514];
                buffer[..frame.len()].copy_from_slice(&frame);
                match self.agent.handle_frame(self.now, &mut buffer, frame.len()) {
                    Verdict::Send { len } => {
                        self.post(HOP, Passing::Up(CPU, buffer[..len].to_vec()))
                    }
                    Verdict::Multicast { .. } | Verdict::Fan { .. } => panic!("one at a time"),
                    Verdict::Drop(_) | Verdict::Hold | Verdict::Host => {}
                }
            }
            Passing::Down(port, mut frame) => {
                let rank = usize::from(port);
                let is_own = frame[..6] == member(rank).mac.0 || frame[0] & 1 == 1;
                if is_own && let Some(worker) = self.workers.get_mut(rank) {
                    let _ = worker.handle_frame(self.now, &mut frame, &mut self.data[rank]);
                }
            }
            Passing::Write(number, write) => {
                let result = self.switch.write(write);
                self.agent.handle_written(number, result);
            }
        }
    }

    pub(super) fn step(&mut self) {
        while let Some(entry) = self.passing.first_entry()
            && entry.key().0 <= self.now
        {
            let passing = entry.remove();
            self.arrive(passing);
        }
        let mut frame = vec![0; 2048];
        while let Some(len) = self.agent.poll_transmit(self.now, &mut frame) {
            self.post(HOP, Passing::Up(CPU, frame[..len].to_vec()));
        }
        while let Some((number, write)) = self.agent.poll_write() {
            self.post(WRITE, Passing::Write(number, write));
        }
        for rank in 0..self.workers.len() {
            if self.workers[rank].poll_timeout() <= self.now {
                self.workers[rank].handle_timeout(self.now);
            }
            while let Some(len) =
                self.workers[rank].poll_transmit(self.now, &self.data[rank], &mut frame)
            {
                let port = u16::try_from(rank).unwrap();
                if !self.lost(&frame[..len], Hop::Up(port)) {
                    self.post(HOP, Passing::Up(port, frame[..len].to_vec()));
                }
            }
            while let Some(event) = self.workers[rank].poll_event() {
                self.events[rank].push(event);
            }
        }
    }

    /// Runs until `done`; fails when that takes more than 20 s.
    pub(super) fn run(&mut self, what: &str, mut done: impl FnMut(&Self) -> bool) {
        let end = self.now.saturating_add(Nanos::from_millis(20_000));
        loop {
            self.step();
            if done(self) {
                return;
            }
            assert!(self.now < end, "{what}: {:?}", self.events);
            let passing = self.passing.keys().next().map_or(Nanos::MAX, |key| key.0);
            let workers = self.workers.iter().map(Worker::poll_timeout).min();
            let timers = workers.unwrap_or(Nanos::MAX).min(self.agent.poll_timeout());
            let next = passing.min(timers);
            self.now = next.max(Nanos(self.now.0 + 1)).min(end);
        }
    }

    pub(super) fn connect(&mut self) {
        let opened =
            |world: &Self| world.events.iter().all(|events| events.contains(&Event::Opened));
        self.run("connecting", opened);
    }

    pub(super) fn begin(&mut self, chunks: usize) {
        self.round += 1;
        self.events.iter_mut().for_each(Vec::clear);
        for rank in 0..self.workers.len() {
            self.data[rank] = Data::new(rank, self.round, chunks);
            let chunks = u32::try_from(chunks).unwrap();
            self.workers[rank].begin_round(self.now, chunks).unwrap();
        }
    }

    /// Waits for the round's end and compares every sum.
    pub(super) fn finish(&mut self, chunks: usize) {
        let complete =
            |world: &Self| world.events.iter().all(|events| events.contains(&Event::RoundComplete));
        self.run("a round", complete);
        let mut sum = vec![0i32; chunks * usize::from(ELEMENTS)];
        for rank in 0..self.workers.len() {
            for (sum, value) in sum.iter_mut().zip(Data::new(rank, self.round, chunks).0) {
                *sum = sum.wrapping_add(value);
            }
        }
        for (rank, data) in self.data.iter().enumerate() {
            assert_eq!(data.0, sum, "rank {rank}");
        }
    }

    /// Frames of these rows are in the switch.
    pub(super) fn rows(&self) -> usize {
        let is_row = |entry: &&Entry| matches!(entry, Entry::Windowed { .. } | Entry::Whole { .. });
        self.switch.entries.values().filter(is_row).count()
    }
}
