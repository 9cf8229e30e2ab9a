//! Pushers, a scripted server and a scripted aggregator on a network that loses, doubles, reorders
//! and corrupts by seed, in virtual time.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

use weft_control::{BoxIndex, Version};
use weft_wire::frame::{Datagram, Endpoint, Udp};
use weft_wire::{GroupId, MacAddr, Members, Nanos, Rank};

use super::fake::{ELEMENTS, EXPONENT, FakeBox, FakeServer, JOB, host_addr};
use crate::random::SplitMix64;
use crate::role::push::{Event, Grant, NewUpdate, Pusher, PusherConfig, Segment, Values};

/// How often each fault happens, in parts of 1024.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Faults {
    pub(super) loss: u64,
    pub(super) duplication: u64,
    pub(super) corruption: u64,
    pub(super) jitter_ns: u64,
}

impl Faults {
    pub(super) const HEAVY: Self =
        Self { loss: 150, duplication: 100, corruption: 50, jitter_ns: 3_000_000 };
}

pub(super) struct World {
    pub(super) now: Nanos,
    pub(super) workers: Vec<Pusher>,
    pub(super) server: FakeServer,
    pub(super) fake_box: FakeBox,
    pub(super) replica: FakeBox,
    pub(super) events: Vec<(usize, Event)>,
    pub(super) faults: Faults,
    random: SplitMix64,
    /// Frames on their way, by arrival and a serial number.
    flights: BTreeMap<(u64, u64), Vec<u8>>,
    serial: u64,
    pub(super) frames: u64,
}

pub(super) const LATENCY_NS: u64 = 100_000;

pub(super) fn config(rank: u8) -> PusherConfig {
    let local = Endpoint { mac: MacAddr([2, 0, 0, 0, 0, rank + 1]), addr: host_addr(rank + 1) };
    let server = Endpoint { mac: MacAddr::BROADCAST, addr: host_addr(FakeServer::HOST) };
    let mut config = PusherConfig::new(JOB, Rank::new(rank).unwrap(), local, server);
    config.probe_len = 32 + u16::try_from(usize::from(ELEMENTS) * 4).unwrap() + 300;
    config
}

impl World {
    pub(super) fn new(seed: u64, workers: u8, chunks: u32, faults: Faults) -> Self {
        let new = |rank: u8| {
            let mut worker =
                Pusher::new(config(rank), seed ^ (u64::from(rank) << 32), Nanos(0)).unwrap();
            let target = Endpoint { mac: MacAddr::BROADCAST, addr: host_addr(FakeBox::HOST) };
            worker.add_box(Nanos(0), BoxIndex(0), target, false).unwrap();
            let target = Endpoint { mac: MacAddr::BROADCAST, addr: host_addr(FakeBox::REPLICA) };
            worker.add_box(Nanos(0), BoxIndex(1), target, true).unwrap();
            worker
        };
        Self {
            now: Nanos(0),
            workers: (0..workers).map(new).collect(),
            server: FakeServer::new(workers, chunks, seed + 1),
            fake_box: FakeBox::new(FakeBox::HOST, workers, chunks, seed + 2),
            replica: FakeBox::new(FakeBox::REPLICA, workers, chunks, seed + 3),
            events: Vec::new(),
            faults,
            random: SplitMix64::new(seed),
            flights: BTreeMap::new(),
            serial: 0,
            frames: 0,
        }
    }

    /// A world whose workers are connected.
    pub(super) fn connected(seed: u64, workers: u8, chunks: u32, faults: Faults) -> Self {
        let mut world = Self::new(seed, workers, chunks, faults);
        world.run(|world| {
            let is_connected = |(_, event): &&(usize, Event)| *event == Event::Connected;
            world.events.iter().filter(is_connected).count() == world.workers.len()
        });
        world
    }

    fn chance(&mut self, per_1024: u64) -> bool {
        self.random.next_u64() % 1024 < per_1024
    }

    /// Puts a frame on the network.
    pub(super) fn post(&mut self, mut frame: Vec<u8>) {
        self.frames += 1;
        if self.chance(self.faults.loss) {
            return;
        }
        if self.chance(self.faults.corruption)
            && let Ok(udp) = Udp::parse(&frame)
        {
            let range = udp.payload_range();
            let at = range.start + usize::try_from(self.random.next_u64()).unwrap() % range.len();
            let end = (at + 3).min(range.end);
            let noise = self.random.next_u64().to_be_bytes();
            frame[at..end].iter_mut().zip(noise).for_each(|(byte, noise)| *byte ^= noise | 1);
        }
        let copies = 1 + u64::from(self.chance(self.faults.duplication));
        for _ in 0..copies {
            let jitter = match self.faults.jitter_ns {
                0 => 0,
                span => self.random.next_u64() % span,
            };
            self.serial += 1;
            self.flights.insert((self.now.0 + LATENCY_NS + jitter, self.serial), frame.clone());
        }
    }

    /// Runs until `done`, and fails when that takes more than 100 s of virtual time.
    pub(super) fn run(&mut self, done: impl Fn(&Self) -> bool) {
        self.run_for(100_000_000_000, &done);
        assert!(done(self), "not done at {:?}: {:?}", self.now, self.events);
    }

    pub(super) fn run_for(&mut self, span_ns: u64, done: impl Fn(&Self) -> bool) {
        let end = Nanos(self.now.0 + span_ns);
        let mut ticked_at = Nanos(0);
        while !done(self) && self.now < end {
            self.poll_workers();
            let mut out = Vec::new();
            if self.now >= ticked_at {
                self.server.tick(self.now, &mut self.fake_box, &mut out);
                ticked_at = Nanos(self.now.0 + 500_000);
            }
            out.into_iter().for_each(|frame| self.post(frame));
            let arrival = self.flights.keys().next().map_or(Nanos::MAX, |(at, _)| Nanos(*at));
            let timeouts = self.workers.iter().map(Pusher::poll_timeout).min().unwrap();
            let next = arrival.min(timeouts).min(ticked_at);
            self.now = self.now.max(next);
            while let Some((&(at, serial), _)) = self.flights.first_key_value() {
                if at > self.now.0 {
                    break;
                }
                let frame = self.flights.remove(&(at, serial)).unwrap();
                self.deliver(frame);
            }
        }
    }

    fn deliver(&mut self, mut frame: Vec<u8>) {
        let Ok(udp) = Datagram::find(&frame) else { return };
        let to = frame[udp.payload_start() - 8 - 1];
        let mut out = Vec::new();
        match to {
            FakeServer::HOST => self.server.handle(self.now, frame, &mut out),
            FakeBox::HOST => self.fake_box.handle(self.now, frame, &mut out),
            FakeBox::REPLICA => self.replica.handle(self.now, frame, &mut out),
            worker => {
                let _ = self.workers[usize::from(worker) - 1].handle_frame(self.now, &mut frame);
            }
        }
        out.into_iter().for_each(|frame| self.post(frame));
    }

    pub(super) fn poll_workers(&mut self) {
        let mut buffer = vec![0; 2048];
        for index in 0..self.workers.len() {
            if self.now >= self.workers[index].poll_timeout() {
                self.workers[index].handle_timeout(self.now);
            }
            while let Some(len) = self.workers[index].poll_transmit(self.now, &mut buffer) {
                self.post(buffer[..len].to_vec());
            }
            while let Some(event) = self.workers[index].poll_event() {
                self.events.push((index, event));
            }
        }
    }

    /// Hands an update of a worker over.
    pub(super) fn begin(&mut self, worker: usize, number: u64, values: Vec<i32>) {
        let new = NewUpdate { number, version: Version(number), values: Values::Integers(values) };
        self.workers[worker].begin_update(new).unwrap();
    }

    /// Installs a group of these workers' updates and grants it to all of them.
    pub(super) fn grant(
        &mut self,
        group: GroupId,
        members: &[(usize, u64)],
        via: bool,
        grant: Grant,
    ) {
        let mask = members.iter().fold(Members::EMPTY, |mask, (worker, _)| {
            mask.union(Rank::new(u8::try_from(*worker).unwrap()).unwrap().bit())
        });
        let fallback = Nanos(self.now.0 + 2_000_000_000);
        self.server.install(group, mask, via, fallback);
        if via {
            self.fake_box.install(group);
        }
        for (worker, number) in members {
            self.workers[*worker].handle_grant(self.now, *number, &grant).unwrap();
        }
    }

    /// How a worker's update was decided, if it was.
    pub(super) fn decision(&self, worker: usize, number: u64) -> Option<weft_control::Decision> {
        self.events.iter().find_map(|(at, event)| match event {
            Event::Decided { number: decided, decision } if (*at, *decided) == (worker, number) => {
                Some(*decision)
            }
            _ => None,
        })
    }
}

/// A grant for this group with one segment.
pub(super) fn grant(group: GroupId, via: bool, members: u32, is_open: bool, rate: u64) -> Grant {
    Grant {
        group,
        via: via.then_some(BoxIndex(0)),
        exponent: EXPONENT,
        member_count: members,
        segments: [Segment { is_open, rate_bytes_per_sec: rate }].into_iter().collect(),
        replicate: false,
        train_chunks: 0,
    }
}
