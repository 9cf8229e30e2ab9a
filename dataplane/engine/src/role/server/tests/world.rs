//! A server, a replica, an aggregator and workers, all real, on a network that loses, doubles,
//! reorders and corrupts by seed, in virtual time; a scripted controller; and a judge that knows
//! every update and computes the model by itself.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec;
use alloc::vec::Vec;
use core::net::SocketAddr;

use weft_control::{BoxIndex, Decision, Event, GroupDescriptor, Version};
use weft_wire::frame::Endpoint;
use weft_wire::{GroupId, JobId, MacAddr, Nanos};

use crate::random::SplitMix64;
use crate::role::aggregator::Aggregator;
use crate::role::replica::Replica;
use crate::role::server::{ModelView, Server};

mod controller;
mod disk;
mod judge;
mod network;
mod setup;
mod worker;

use controller::Request;
use judge::Ruling;
pub(super) use setup::{Faults, Setup};
use worker::{Stage, Worker};

pub(super) const JOB: JobId = JobId(5);
pub(super) const ELEMENTS: u16 = 8;
pub(super) const EXPONENT: i8 = -4;
pub(super) const FRAME_LEN: usize = 1514;
pub(super) const SERVER: u8 = 100;
pub(super) const REPLICA: u8 = 101;
pub(super) const AGGREGATOR: u8 = 50;
pub(super) const BOX: BoxIndex = BoxIndex(0);
pub(super) const REPLICA_BOX: BoxIndex = BoxIndex(1);

pub(super) fn addr(host: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, host], 22341))
}

pub(super) fn endpoint(host: u8) -> Endpoint {
    Endpoint { mac: MacAddr([2, 0, 0, 0, 0, host]), addr: addr(host) }
}

fn learnt(host: u8) -> Endpoint {
    Endpoint { mac: MacAddr::BROADCAST, addr: addr(host) }
}

pub(super) struct World {
    pub(super) setup: Setup,
    pub(super) now: Nanos,
    pub(super) server: Server,
    pub(super) replica: Option<Replica>,
    /// The replica, since it took over from the server, which is dead then.
    pub(super) successor: Option<Replica>,
    /// Order numbers below the first were decided by the old server; the next is the second.
    pub(super) resumed: Option<(u64, u64)>,
    pub(super) aggregator: Option<Aggregator>,
    pub(super) workers: Vec<Worker>,
    requests: VecDeque<Request>,
    /// The controller gathers requests until then.
    plan_at: Nanos,
    next_order: u64,
    next_group: u32,
    /// Updates by group and rank.
    pub(super) in_group: BTreeMap<(GroupId, u8), (u64, Version)>,
    pub(super) rulings: Vec<Ruling>,
    pub(super) replica_rulings: Vec<Ruling>,
    pub(super) bounds: Vec<(f64, bool)>,
    /// Order numbers of the groups that were installed.
    pub(super) orders: BTreeMap<GroupId, u64>,
    /// The groups that were installed, by order number.
    descriptors: BTreeMap<u64, GroupDescriptor>,
    /// Members of each group, in its order.
    pub(super) groups: BTreeMap<GroupId, Vec<u8>>,
    /// Updates that were sent again, and what they were first.
    origins: BTreeMap<(u8, u64), u64>,
    /// Outcomes as workers were told, by rank and number.
    pub(super) told: BTreeMap<(u8, u64), Decision>,
    /// The model as it was at each version.
    pub(super) history: BTreeMap<u64, Vec<f32>>,
    /// Records on their way to the disk: when they arrive, their position.
    pub(super) disk: VecDeque<(Nanos, u64, Vec<u8>)>,
    /// Records that did.
    pub(super) journal: Vec<u8>,
    pub(super) random: SplitMix64,
    flights: BTreeMap<(u64, u64), Vec<u8>>,
    serial: u64,
}

impl World {
    pub(super) fn new(setup: Setup, seed: u64) -> Self {
        Self {
            now: Nanos(0),
            server: setup.server(seed + 1),
            replica: Some(setup.replica(seed + 2)),
            successor: None,
            resumed: None,
            aggregator: Some(setup.aggregator(seed + 3)),
            workers: (0..setup.workers).map(|rank| Worker::new(&setup, rank, seed)).collect(),
            requests: VecDeque::new(),
            plan_at: Nanos::MAX,
            next_order: 0,
            next_group: 0,
            in_group: BTreeMap::new(),
            orders: BTreeMap::new(),
            descriptors: BTreeMap::new(),
            groups: BTreeMap::new(),
            origins: BTreeMap::new(),
            rulings: Vec::new(),
            replica_rulings: Vec::new(),
            bounds: Vec::new(),
            told: BTreeMap::new(),
            history: BTreeMap::new(),
            disk: VecDeque::new(),
            journal: Vec::new(),
            random: SplitMix64::new(seed),
            flights: BTreeMap::new(),
            serial: 0,
            setup,
        }
    }

    /// Runs until `done`; fails when that takes more than 100 s of virtual time.
    pub(super) fn run(&mut self, done: impl Fn(&Self) -> bool) {
        self.run_for(100_000_000_000, &done);
        assert!(done(self), "not done: {}", self.describe());
    }

    pub(super) fn describe(&self) -> alloc::string::String {
        let stages: Vec<_> = self.workers.iter().map(|w| (w.stage, w.done)).collect();
        let server = self.model();
        let replica = self.replica.as_ref().map(|r| r.model(JOB).unwrap().next_order);
        alloc::format!(
            "at {:?} workers {stages:?} server {:?} {:?} replica {replica:?} {:?} requests {:?}",
            self.now,
            server.version,
            server.next_order,
            self.server.jobs().next(),
            self.requests,
        )
    }

    pub(super) fn run_for(&mut self, span_ns: u64, done: impl Fn(&Self) -> bool) {
        let end = Nanos(self.now.0 + span_ns);
        let mut idle = 0;
        while !done(self) && self.now < end {
            self.poll_all();
            self.plan();
            let arrival = self.flights.keys().next().map_or(Nanos::MAX, |(at, _)| Nanos(*at));
            let next = arrival.min(self.timeout());
            idle = if next <= self.now { idle + 1 } else { 0 };
            assert!(idle < 100_000, "the clock stands still: {}", self.describe());
            self.now = self.now.max(next).min(end);
            while let Some((&(at, serial), _)) = self.flights.first_key_value() {
                if at > self.now.0 {
                    break;
                }
                let frame = self.flights.remove(&(at, serial)).unwrap();
                self.deliver(frame);
            }
        }
    }

    fn timeout(&self) -> Nanos {
        let workers = self.workers.iter().map(|w| w.pusher.poll_timeout()).min().unwrap();
        let replica = self.replica.as_ref().map_or(Nanos::MAX, Replica::poll_timeout);
        let server = self
            .successor
            .as_ref()
            .map_or_else(|| self.server.poll_timeout(), Replica::poll_timeout);
        let aggregator = self.aggregator.as_ref().map_or(Nanos::MAX, Aggregator::poll_timeout);
        let disk = self.disk.front().map_or(Nanos::MAX, |(due, _, _)| *due);
        let boxes = server.min(replica).min(aggregator);
        workers.min(boxes).min(self.plan_at).min(disk)
    }

    fn poll_all(&mut self) {
        let mut frames = Vec::new();
        let mut buffer = vec![0; FRAME_LEN];
        let now = self.now;
        while let Some(len) = match &mut self.successor {
            Some(successor) => successor.poll_transmit(now, &mut buffer),
            None => self.server.poll_transmit(now, &mut buffer),
        } {
            frames.push(buffer[..len].to_vec());
        }
        // A version that is lost in a crash comes again with other weights; nobody may have had it.
        self.note_model();
        if let Some(replica) = &mut self.replica {
            while let Some(len) = replica.poll_transmit(now, &mut buffer) {
                frames.push(buffer[..len].to_vec());
            }
        }
        if let Some(aggregator) = &mut self.aggregator {
            while let Some(len) = aggregator.poll_transmit(now, &mut buffer) {
                frames.push(buffer[..len].to_vec());
            }
            while aggregator.gather_mut().poll_event().is_some() {}
        }
        for rank in 0..self.setup.workers {
            self.poll_worker(rank);
            let pusher = &mut self.workers[usize::from(rank)].pusher;
            pusher.handle_timeout(now);
            while let Some(len) = pusher.poll_transmit(now, &mut buffer) {
                frames.push(buffer[..len].to_vec());
            }
        }
        self.poll_disk();
        self.poll_events();
        frames.into_iter().for_each(|frame| self.post(frame));
    }

    /// The model of the server, whichever that is.
    pub(super) fn model(&self) -> ModelView<'_> {
        let successor = self.successor.as_ref().map(|successor| successor.model(JOB).unwrap());
        successor.unwrap_or_else(|| self.server.model(JOB).unwrap())
    }

    fn poll_server(&mut self) -> Option<Event> {
        let event = match &mut self.successor {
            Some(successor) => successor.poll_event(),
            None => self.server.poll_event(),
        };
        event.map(|(_, event)| event)
    }

    pub(super) fn all_done_but(&self, rank: usize) -> bool {
        let others = self.workers.iter().enumerate().filter(|(index, _)| *index != rank);
        others.into_iter().all(|(_, worker)| worker.stage == Stage::Done)
    }

    pub(super) fn all_done(&self) -> bool {
        self.workers.iter().all(|worker| worker.stage == Stage::Done)
    }

    pub(super) fn replica_is_level(&self) -> bool {
        let server = self.model();
        self.replica
            .as_ref()
            .is_none_or(|replica| replica.model(JOB).unwrap().next_order == server.next_order)
    }
}
