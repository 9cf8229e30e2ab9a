//! A server's downlink under plans: one transfer follows the other without a gap (DESIGN section 7;
//! PROTOCOL section 5, "early enough to cover the round trip"). A real server and real workers in
//! virtual time, on a link that has a rate and a length.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

use arrayvec::ArrayVec;
use weft_control::{Command, GroupDescriptor, GroupMember, OrderNumber, Version};
use weft_kernel::Kernels;
use weft_wire::frame::Endpoint;
use weft_wire::header::{ElementType, Flags, Header, Kind};
use weft_wire::{GroupId, MacAddr, Nanos, Rank};

use super::super::{Server, ServerJobConfig};
use super::rig::parse;
use super::world::{FRAME_LEN, JOB, SERVER, addr, endpoint};
use crate::role::Verdict;
use crate::role::model::ModelConfig;
use crate::role::push::{Grant, NewUpdate, Pusher, PusherConfig, Segment, Values};

/// 1 Gb/s, 250 us each way, 400 chunks of 1 KiB: an update takes seven round trips.
const RATE_BYTES_PER_SEC: u64 = 125_000_000;
const ONE_WAY_NS: u64 = 250_000;
const CHUNKS: usize = 400;
const WORKERS: u8 = 4;
const GROUPS: u16 = 8;
/// A chunk of 256 elements in its Ethernet frame.
const CHUNK_FRAME_LEN: u64 = 14 + 20 + 8 + 32 + 1024;

/// Something that was seen on the server's link: when, of which group.
#[derive(Clone, Copy, Debug)]
struct Seen {
    from_ns: u64,
    to_ns: u64,
    group: GroupId,
}

struct Line {
    now: Nanos,
    server: Server,
    workers: Vec<Pusher>,
    /// The server's downlink carries one frame after the other.
    down_free_ns: u64,
    chunks: Vec<Seen>,
    pulls: Vec<Seen>,
    lost: Vec<((GroupId, u32), u64)>,
    repeats: Vec<((GroupId, u32), u64)>,
    flights: BTreeMap<(u64, u64), (u8, Vec<u8>)>,
    serial: u64,
    /// Of all contributions, one in so many is lost; 0: none.
    lost_of: u64,
}

impl Line {
    fn new(lost_of: u64) -> Self {
        let model = ModelConfig::new(JOB, CHUNKS * 256);
        let workers = (1..=WORKERS).map(addr).collect();
        let job = ServerJobConfig { tau_max: 100, ..ServerJobConfig::new(model, workers) };
        let server = Server::new(endpoint(SERVER), 1500, &[job], 7, Kernels::detect()).unwrap();
        let mut line = Self {
            now: Nanos(0),
            server,
            workers: (0..WORKERS).map(pusher).collect(),
            down_free_ns: 0,
            chunks: Vec::new(),
            pulls: Vec::new(),
            lost: Vec::new(),
            repeats: Vec::new(),
            flights: BTreeMap::new(),
            serial: 0,
            lost_of,
        };
        line.run(|line| line.workers.iter().all(|worker| worker.terms().is_some()));
        line
    }

    /// A controller's part: every update has its place behind the one before.
    fn plan(&mut self) {
        for index in 0..GROUPS {
            let rank = Rank::new(u8::try_from(index).unwrap() % WORKERS).unwrap();
            let id = GroupId::new(index, 0);
            let member = GroupMember { rank, version: Version(0) };
            let descriptor = GroupDescriptor {
                job: JOB,
                group: id,
                order: OrderNumber(index.into()),
                members: vec![member],
                chunks: u32::try_from(CHUNKS).unwrap(),
                element_type: ElementType::I32,
                elements: 256,
                exponent: -20,
                via: None,
                replicate: false,
                rate_bytes_per_sec: Some(RATE_BYTES_PER_SEC),
                after: index.checked_sub(1).map(|before| GroupId::new(before, 0)),
                lateness_ns: 1_000_000_000,
                train_chunks: 0,
            };
            self.server.handle_command(self.now, Command::Install(descriptor));
            let number = u64::from(index);
            let values = Values::Integers(vec![1; CHUNKS * 256]);
            let segment = Segment { is_open: true, rate_bytes_per_sec: RATE_BYTES_PER_SEC };
            let grant = Grant {
                group: id,
                via: None,
                exponent: -20,
                member_count: 1,
                segments: ArrayVec::from_iter([segment]),
                replicate: false,
                train_chunks: 0,
            };
            let worker = &mut self.workers[rank.index()];
            worker.begin_update(NewUpdate { number, version: Version(0), values }).unwrap();
            worker.handle_grant(self.now, number, &grant).unwrap();
        }
    }

    fn run(&mut self, done: impl Fn(&Self) -> bool) {
        while !done(self) {
            self.poll();
            let arrival = self.flights.keys().next().map_or(u64::MAX, |(at, _)| *at);
            let due = self.workers.iter().map(Pusher::poll_timeout).min().unwrap();
            let next = due.min(self.server.poll_timeout()).0.min(arrival);
            self.now = Nanos(self.now.0.max(next));
            assert!(self.now.0 < 10_000_000_000, "not done after 10 s");
            while let Some(entry) = self.flights.first_entry()
                && entry.key().0 <= self.now.0
            {
                let (host, frame) = entry.remove();
                self.deliver(host, frame);
            }
        }
    }

    fn poll(&mut self) {
        let mut buffer = vec![0; FRAME_LEN];
        while let Some(len) = self.server.poll_transmit(self.now, &mut buffer) {
            self.post_to_worker(&buffer[..len]);
        }
        while self.server.poll_event().is_some() {}
        for index in 0..self.workers.len() {
            self.workers[index].handle_timeout(self.now);
            while let Some(len) = self.workers[index].poll_transmit(self.now, &mut buffer) {
                self.post_to_server(&buffer[..len]);
            }
            while self.workers[index].poll_event().is_some() {}
        }
    }

    fn post_to_worker(&mut self, frame: &[u8]) {
        let (host, header) = heard(frame);
        if header.kind == Kind::Pull && !header.flags.contains(Flags::RETRANSMIT) {
            self.pulls.push(Seen { from_ns: self.now.0, to_ns: self.now.0, group: header.group });
        }
        self.serial += 1;
        let at = (self.now.0 + ONE_WAY_NS, self.serial);
        self.flights.insert(at, (host, frame.to_vec()));
    }

    fn post_to_server(&mut self, frame: &[u8]) {
        let (host, header) = heard(frame);
        let from_ns = self.now.0.max(self.down_free_ns);
        let to_ns = from_ns + frame.len() as u64 * 1_000_000_000 / RATE_BYTES_PER_SEC;
        self.down_free_ns = to_ns;
        self.serial += 1;
        if header.kind == Kind::Contrib && !header.flags.contains(Flags::RETRANSMIT) {
            self.chunks.push(Seen { from_ns, to_ns, group: header.group });
            if self.lost_of > 0 && (self.chunks.len() as u64).is_multiple_of(self.lost_of) {
                self.lost.push(((header.group, header.chunk.0), self.now.0));
                return;
            }
        } else if header.kind == Kind::Contrib {
            self.repeats.push(((header.group, header.chunk.0), self.now.0));
        }
        self.flights.insert((to_ns + ONE_WAY_NS, self.serial), (host, frame.to_vec()));
    }

    fn deliver(&mut self, host: u8, mut frame: Vec<u8>) {
        let len = frame.len();
        frame.resize(FRAME_LEN, 0);
        if host == SERVER {
            if let Verdict::Send { len } = self.server.handle_frame(self.now, &mut frame, len) {
                self.post_to_worker(&frame[..len]);
            }
        } else {
            let worker = &mut self.workers[usize::from(host - 1)];
            let _ = worker.handle_frame(self.now, &mut frame[..len]);
        }
    }

    /// Runs all transfers; gives the share of the time from the first chunk to the last in which
    /// the link carried chunks.
    fn utilisation(&mut self) -> f64 {
        self.plan();
        self.run(|line| line.server.model(JOB).unwrap().next_order.0 == u64::from(GROUPS));
        let busy_ns: u64 = self.chunks.iter().map(|chunk| chunk.to_ns - chunk.from_ns).sum();
        let span_ns = self.chunks.last().unwrap().to_ns - self.chunks[0].from_ns;
        busy_ns as f64 / span_ns as f64
    }
}

/// Whom a frame is for, and its header.
fn heard(frame: &[u8]) -> (u8, Header) {
    let (udp, header) = parse(frame);
    (frame[udp.payload_start() - 9], header)
}

fn pusher(rank: u8) -> Pusher {
    let own = Rank::new(rank).unwrap();
    let server = Endpoint { mac: MacAddr::BROADCAST, addr: addr(SERVER) };
    let config = PusherConfig::new(JOB, own, endpoint(rank + 1), server);
    Pusher::new(config, u64::from(rank) + 1, Nanos(0)).unwrap()
}

#[test]
fn planned_transfers_follow_each_other_without_a_gap() {
    let mut line = Line::new(0);
    let utilisation = line.utilisation();
    let mut gaps: Vec<u64> =
        line.chunks.windows(2).map(|pair| pair[1].from_ns - pair[0].to_ns).collect();
    gaps.sort_unstable();
    let longest = gaps[gaps.len() - 1];
    // The first sender's window opens over a few round trips; after that nothing may be lost.
    assert!(utilisation >= 0.97, "the link was used {utilisation:.3}, longest gap {longest} ns");
}

#[test]
fn credits_keep_their_order_and_their_ceiling() {
    let mut line = Line::new(0);
    line.utilisation();
    assert!(line.pulls.is_sorted_by_key(|pull| pull.group), "a later group was called first");
    // Two milliseconds of a thread's lateness, and what each of the transfers begins with.
    let most = |span_ns: u64| RATE_BYTES_PER_SEC as f64 * (span_ns as f64 / 1e9) + BURSTS_MAX;
    for (first, start) in line.pulls.iter().enumerate() {
        for (last, end) in line.pulls.iter().enumerate().skip(first) {
            let called = (last - first) as u64 * CHUNK_FRAME_LEN;
            assert!(called as f64 <= most(end.from_ns - start.from_ns), "{first} to {last}");
        }
    }
}

#[test]
fn a_lost_chunk_is_called_again_within_a_few_round_trips() {
    let mut line = Line::new(211);
    line.utilisation();
    assert!(line.lost.len() > 10, "{} chunks were lost", line.lost.len());
    for (chunk, lost_ns) in &line.lost {
        let repeats = line.repeats.iter().filter(|(repeated, _)| repeated == chunk);
        let again_ns = repeats.map(|(_, at_ns)| *at_ns).min().expect("it was sent again");
        // Its timeout would be twenty milliseconds.
        assert!(again_ns - lost_ns < 8 * ONE_WAY_NS, "{chunk:?} after {}", again_ns - lost_ns);
    }
}

/// Bytes that the buckets may hold.
const BURSTS_MAX: f64 = 250_000.0 + 8.0 * 16_384.0;
