//! Workers against a fake box in virtual time.

mod connect;
mod fake_box;
mod handshake;
mod hearing;
mod hostile;
mod lane_steps;
mod overrun;
mod patience;
mod quick;
mod received_run;
mod resync;
mod rounds;
mod run;
mod shaped;
mod windows;

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::net::{Ipv4Addr, SocketAddr};

use weft_wire::frame::{Endpoint, Udp};
use weft_wire::header::{CRC_AT, ElementType, Flags, Header, Kind, Operation, Outcome, Packet};
use weft_wire::{ChunkIndex, JobId, MacAddr, Members, Nanos};

use super::*;
use crate::random::SplitMix64;
use fake_box::{FakeBox, ROW};

const JOB: JobId = JobId(5);
const DELAY: Nanos = Nanos::from_micros(50);
const SECOND: Nanos = Nanos::from_millis(1_000);

/// CRC32C, bit by bit.
fn crc32c(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for &byte in bytes {
        crc ^= u32::from(byte);
        for _ in 0..8 {
            crc = (crc >> 1) ^ (0x82f6_3b78 & (crc & 1).wrapping_neg());
        }
    }
    !crc
}

/// The same of a datagram, whose CRC field counts as 0.
fn crc32c_blank(datagram: &[u8]) -> u32 {
    let mut blank = datagram.to_vec();
    blank[CRC_AT..CRC_AT + 4].fill(0);
    crc32c(&blank)
}

#[test]
fn the_test_crc_is_crc32c() {
    assert_eq!(crc32c(b"123456789"), 0xe306_9283);
}

/// One member's vector, in place.
#[derive(Clone)]
struct Data {
    elements_per_chunk: usize,
    values: Vec<i32>,
    /// Chunks whose sum has arrived; none may arrive twice.
    done: Vec<bool>,
    flags: Flags,
    clamped: bool,
    /// Each chunk carries its own exponent.
    own_exponents: bool,
}

impl Data {
    fn new(rank: usize, round: usize, chunks: usize, elements_per_chunk: usize) -> Self {
        let values = (0..chunks * elements_per_chunk).map(|i| value(rank, round, i)).collect();
        Self {
            elements_per_chunk,
            values,
            done: vec![false; chunks],
            flags: Flags::NONE,
            clamped: false,
            own_exponents: false,
        }
    }

    fn exponent(&self, chunk: u32) -> i8 {
        if self.own_exponents { i8::try_from(chunk % 256).unwrap_or(-1) } else { 0 }
    }
}

impl Payload for Data {
    fn write_chunk(&self, chunk: u32, out: &mut [u8]) -> ChunkMeta {
        assert!(!self.done[chunk as usize], "a contribution after its sum");
        let start = chunk as usize * self.elements_per_chunk;
        for (place, value) in out.chunks_exact_mut(4).zip(&self.values[start..]) {
            place.copy_from_slice(&value.to_be_bytes());
        }
        ChunkMeta { exponent: self.exponent(chunk), clamped: self.clamped, ..ChunkMeta::default() }
    }

    fn read_chunk(&mut self, chunk: u32, exponent: i8, flags: Flags, sum: &[u8]) {
        if self.own_exponents {
            assert_eq!(exponent, self.exponent(chunk));
        }
        assert!(!self.done[chunk as usize], "a sum twice");
        self.done[chunk as usize] = true;
        self.flags = self.flags.union(flags);
        let start = chunk as usize * self.elements_per_chunk;
        for (value, bytes) in self.values[start..].iter_mut().zip(sum.chunks_exact(4)) {
            *value = i32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        }
    }

    /// Sums of both kinds: in their places, and with the worker.
    fn keeps_sum(&self, chunk: u32) -> bool {
        chunk.is_multiple_of(2)
    }

    fn write_sum(&self, chunk: u32, out: &mut [u8]) {
        assert!(self.done[chunk as usize] && self.keeps_sum(chunk), "no sum is in that place");
        let start = chunk as usize * self.elements_per_chunk;
        for (place, value) in out.chunks_exact_mut(4).zip(&self.values[start..]) {
            place.copy_from_slice(&value.to_be_bytes());
        }
    }
}

fn value(rank: usize, round: usize, index: usize) -> i32 {
    let word =
        SplitMix64::new((rank as u64) << 40 | (round as u64) << 32 | index as u64).next_u64();
    let [a, b, c, d, ..] = word.to_be_bytes();
    i32::from_be_bytes([a, b, c, d])
}

/// A frame on its way, as the fault hook sees it.
#[derive(Clone, Copy)]
struct Passing<'a> {
    now: Nanos,
    up: bool,
    rank: usize,
    /// On its way to all members at once.
    is_cast: bool,
    header: &'a Header,
}

/// What the network does to a frame.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Fate {
    Pass,
    Drop,
    Corrupt,
    Duplicate,
    Delay(Nanos),
}

type Hook = Box<dyn FnMut(Passing<'_>) -> Fate>;

struct Sim {
    now: Nanos,
    fake: FakeBox,
    workers: Vec<Worker>,
    data: Vec<Data>,
    events: Vec<Vec<Event>>,
    /// Frames under way by arrival and sequence number: up, rank, octets.
    wire: BTreeMap<(Nanos, u64), (bool, usize, Vec<u8>)>,
    sequence: u64,
    hook: Hook,
    /// All that workers sent, and when.
    sent: Vec<(Nanos, usize, Vec<u8>)>,
    /// Frames of them that came in runs.
    in_runs: usize,
    /// Frames that a run is asked for.
    run_max: usize,
    /// Runs are asked for in one piece.
    joins: bool,
    /// Ranks that do not run before this time.
    asleep_until: Vec<Nanos>,
    round: usize,
}

/// Cuts what follows the first frame of a run, `len` bytes long, into frames of their own.
fn cut(run: &[u8], len: usize, frames: &mut [&mut [u8]]) {
    let start = Udp::parse(&run[..len]).unwrap().payload_start;
    let datagrams = run[len..].chunks(len - start);
    for (frame, datagram) in frames.iter_mut().zip(datagrams) {
        frame[..start].copy_from_slice(&run[..start]);
        frame[start..len].copy_from_slice(datagram);
    }
}

fn member(rank: usize) -> Endpoint {
    let last = u8::try_from(rank).unwrap();
    Endpoint {
        mac: MacAddr([2, 0, 0, 0, 1, last]),
        addr: SocketAddr::from((Ipv4Addr::new(10, 0, 1, last), 4000 + 100 * u16::from(last))),
    }
}

fn boxy() -> Endpoint {
    Endpoint {
        mac: MacAddr([2, 0, 0, 0, 0, 9]),
        addr: SocketAddr::from((Ipv4Addr::new(10, 0, 0, 9), 0x5745)),
    }
}

fn config(rank: usize) -> WorkerConfig {
    let target = Endpoint { mac: MacAddr::BROADCAST, ..boxy() };
    let rank_on_wire = FakeBox::rank(rank);
    let mut config = WorkerConfig::new(JOB, ROW, rank_on_wire, member(rank), target);
    config.probe_len = 512;
    config.member_timeout_ns = Nanos::from_millis(3_000).0;
    config.connect_timeout_ns = Nanos::from_millis(2_000).0;
    config
}

impl Sim {
    fn new(member_count: usize, window: u16, shards: u16) -> Self {
        Self::with_addresses(member_count, window, shards, |endpoint| endpoint)
    }

    fn with_addresses(
        member_count: usize,
        window: u16,
        shards: u16,
        map: fn(Endpoint) -> Endpoint,
    ) -> Self {
        let members: Vec<Endpoint> = (0..member_count).map(member).map(map).collect();
        let fake = FakeBox::new(map(boxy()), members, window, shards);
        let mut sim = Self {
            now: Nanos::from_millis(1),
            fake,
            workers: Vec::new(),
            data: Vec::new(),
            events: vec![Vec::new(); member_count],
            wire: BTreeMap::new(),
            sequence: 0,
            hook: Box::new(|_| Fate::Pass),
            sent: Vec::new(),
            in_runs: 0,
            run_max: 0,
            joins: false,
            asleep_until: vec![Nanos(0); member_count],
            round: 0,
        };
        for rank in 0..member_count {
            let mut config = config(rank);
            (config.local, config.target) = (map(config.local), map(config.target));
            sim.add_worker(config);
        }
        sim
    }

    fn add_worker(&mut self, config: WorkerConfig) {
        let seed = 77 + self.workers.len() as u64;
        self.workers.push(Worker::new(config, crc32c_blank, seed, self.now).unwrap());
        self.data.push(Data::new(0, 0, 0, 1));
    }

    /// Puts worker `rank` back to its start, with another configuration.
    fn replace(&mut self, rank: usize, config: WorkerConfig, seed: u64) {
        self.workers[rank] = Worker::new(config, crc32c_blank, seed, self.now).unwrap();
    }

    fn post(&mut self, up: bool, rank: usize, frame: Vec<u8>) {
        let udp = Udp::parse(&frame).unwrap();
        let header =
            Header::parse(&Packet::new_unchecked(&frame[udp.payload_range()])).expect("valid");
        let is_cast = udp.target.ip().is_multicast();
        let fate = (self.hook)(Passing { now: self.now, up, rank, is_cast, header: &header });
        let arrive = |sim: &mut Self, frame: Vec<u8>, delay: Nanos| {
            sim.sequence += 1;
            let at = sim.now.saturating_add(DELAY).saturating_add(delay);
            sim.wire.insert((at, sim.sequence), (up, rank, frame));
        };
        match fate {
            Fate::Pass => arrive(self, frame, Nanos(0)),
            Fate::Drop => {}
            Fate::Delay(delay) => arrive(self, frame, delay),
            Fate::Duplicate => {
                arrive(self, frame.clone(), Nanos::from_micros(30));
                arrive(self, frame, Nanos(0));
            }
            Fate::Corrupt => {
                // The box's own checks are not under test: corrupt frames going up are lost.
                let mut frame = frame;
                let from_end = usize::try_from(self.sequence % 12).unwrap();
                let at = frame.len() - 1 - from_end;
                frame[at] ^= 0x15;
                if !up {
                    arrive(self, frame, Nanos(0));
                }
            }
        }
    }

    /// Lets every worker do what is due, and the frames that have arrived be taken.
    fn step(&mut self) {
        while let Some(entry) = self.wire.first_entry() {
            if entry.key().0 > self.now {
                break;
            }
            let (up, rank, mut frame) = entry.remove();
            if up {
                for (rank, reply) in self.fake.handle(&mut frame) {
                    self.post(false, rank, reply);
                }
            } else {
                let before = frame.clone();
                let _ = self.workers[rank].handle_frame(self.now, &mut frame, &mut self.data[rank]);
                assert_eq!(before, frame, "a frame is left as it was");
            }
        }
        for rank in 0..self.workers.len() {
            if self.asleep_until[rank] > self.now {
                continue;
            }
            if self.workers[rank].poll_timeout() <= self.now {
                self.workers[rank].handle_timeout(self.now);
            }
            self.transmit(rank);
            while let Some(event) = self.workers[rank].poll_event() {
                self.events[rank].push(event);
            }
        }
    }

    /// Has a worker write all that it has to send.
    fn transmit(&mut self, rank: usize) {
        let mut frame = vec![0; 1 << 16];
        let mut others = vec![vec![0; 4096]; self.run_max];
        let (now, mut written, mut in_runs) = (self.now, Vec::new(), 0);
        let (worker, data) = (&mut self.workers[rank], &self.data[rank]);
        while let Some(len) = worker.poll_transmit(now, data, &mut frame) {
            written.push(frame[..len].to_vec());
            let mut buffers: Vec<&mut [u8]> = others.iter_mut().map(Vec::as_mut_slice).collect();
            let count_max = worker.run_len_max();
            let (count, len) = if self.joins {
                let count = worker.poll_joined_run(now, data, &mut frame, self.run_max);
                cut(&frame, len, &mut buffers[..count]);
                (count, len)
            } else {
                worker.poll_run(now, data, &mut buffers)
            };
            assert!(count <= count_max, "{count} of at most {count_max}");
            in_runs += count;
            written.extend(others[..count].iter().map(|other| other[..len].to_vec()));
        }
        let len_max = worker.frame_len_max();
        self.in_runs += in_runs;
        for frame in written {
            assert!(frame.len() <= len_max);
            self.sent.push((now, rank, frame.clone()));
            self.post(true, rank, frame);
        }
    }

    /// Runs until `done` or until `limit` has passed; true when done.
    fn run(&mut self, limit: Nanos, mut done: impl FnMut(&Self) -> bool) -> bool {
        let end = self.now.saturating_add(limit);
        loop {
            self.step();
            if done(self) {
                return true;
            }
            let frames = self.wire.keys().next().map_or(Nanos::MAX, |key| key.0);
            let workers = self.workers.iter().zip(&self.asleep_until);
            let timers = workers.map(|(worker, &asleep)| worker.poll_timeout().max(asleep));
            let next = timers.min().unwrap_or(Nanos::MAX).min(frames);
            if next > end {
                self.now = end;
                return false;
            }
            assert!(next > self.now || frames <= self.now, "a worker asks again for the same time");
            self.now = next.max(self.now);
        }
    }

    fn connect(&mut self) {
        let all = self.run(Nanos::from_millis(3_000), |sim| {
            sim.events.iter().all(|events| events.contains(&Event::Opened))
        });
        assert!(all, "not all opened: {:?}", self.events);
    }

    fn begin(&mut self, rank: usize, chunks: usize) {
        let elements = usize::from(self.fake.elements);
        self.data[rank] = Data::new(rank, self.round, chunks, elements);
        self.workers[rank].begin_round(self.now, u32::try_from(chunks).unwrap()).unwrap();
    }

    fn begin_all(&mut self, chunks: usize) {
        self.round += 1;
        for events in &mut self.events {
            events.clear();
        }
        for rank in 0..self.workers.len() {
            self.begin(rank, chunks);
        }
    }

    fn completed(&self, rank: usize) -> bool {
        self.events[rank].contains(&Event::RoundComplete)
    }

    fn finish_round(&mut self, limit: Nanos) {
        let count = self.workers.len();
        let all = self.run(limit, |sim| (0..count).all(|rank| sim.completed(rank)));
        assert!(all, "not all completed: {}", self.describe());
        self.check_sums();
        self.check_memory();
    }

    /// Runs two members into the middle of their first window of 4 over two lanes; returns the
    /// header of a sum that the first one waits for.
    fn await_sum(&mut self) -> Header {
        self.connect();
        self.begin_all(4);
        self.asleep_until[1] = Nanos::MAX;
        let sent = |sim: &Self| sim.workers[0].stats().chunks_sent == 4;
        assert!(self.run(Nanos::from_millis(1), sent));
        let lease = self.fake.lanes[0].open.as_ref().unwrap();
        Header {
            kind: Kind::Answer,
            flags: Flags::NONE,
            outcome: Outcome::None,
            job: JOB,
            cookie: lease.cookies[0].1,
            group: lease.group,
            chunk: ChunkIndex(2),
            element_type: ElementType::I32,
            operation: Operation::Sum,
            exponent: self.fake.exponent.unwrap_or(7),
            count: 4,
            members: Members(3),
        }
    }

    fn describe(&self) -> String {
        let mut text = format!("{:?}\n", self.events);
        for (rank, worker) in self.workers.iter().enumerate() {
            text += &format!("rank {rank}: {:?} {:?}\n", worker.state, worker.stats());
            for lane in &worker.lanes {
                let held = lane.steps.as_ref().map(steps::Steps::held_range);
                text += &format!(
                    "  lane {}: {:?} held {held:?}\n",
                    lane.index,
                    lane.session.standing()
                );
            }
        }
        text += &self.fake.describe();
        text
    }

    fn check_sums(&self) {
        for index in 0..self.data[0].values.len() {
            if self.fake.stamps && index % usize::from(self.fake.elements) == 3 {
                let stamp = self.data[0].values[index];
                let same = self.data.iter().all(|data| data.values[index] == stamp);
                assert!(same, "sums of different formations for element {index}");
                continue;
            }
            let sum = (0..self.workers.len())
                .fold(0i32, |sum, rank| sum.wrapping_add(value(rank, self.round, index)));
            for data in &self.data {
                assert_eq!(data.values[index], sum, "element {index} of round {}", self.round);
            }
        }
    }

    fn close_all(&mut self) {
        for worker in &mut self.workers {
            worker.close(self.now);
        }
    }

    /// No queue has outgrown what was taken when its lane opened.
    fn check_memory(&self) {
        for worker in &self.workers {
            for steps in worker.lanes.iter().filter_map(|lane| lane.steps.as_ref()) {
                assert_eq!(steps.queue_capacity(), Some(2 * usize::from(self.fake.window)));
            }
            assert!(worker.events.capacity() <= EVENTS_MAX);
        }
    }

    /// Leaves the time limits to the test.
    fn be_patient(&mut self) {
        for worker in &mut self.workers {
            worker.shared.config.member_timeout_ns = Nanos::from_millis(60_000).0;
            worker.shared.config.close_linger_ns = Nanos::from_millis(60_000).0;
        }
    }

    fn total(&self, counter: impl Fn(&WorkerStats) -> u64) -> u64 {
        self.workers.iter().map(|worker| counter(worker.stats())).sum()
    }
}

/// A hook that meets frames with faults of these odds in a thousand.
fn faults(seed: u64, drop: u64, duplicate: u64, delay: u64, corrupt: u64) -> Hook {
    let mut random = SplitMix64::new(seed);
    Box::new(move |_| {
        let dice = random.next_u64() % 1000;
        let extra = Nanos(random.next_u64() % Nanos::from_millis(2).0);
        match dice {
            d if d < drop => Fate::Drop,
            d if d < drop + duplicate => Fate::Duplicate,
            d if d < drop + duplicate + delay => Fate::Delay(extra),
            d if d < drop + duplicate + delay + corrupt => Fate::Corrupt,
            _ => Fate::Pass,
        }
    })
}
