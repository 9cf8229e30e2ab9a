//! A server, a replica, an aggregator and workers, all real, on a network that loses, doubles,
//! reorders and corrupts by seed, in virtual time; a scripted controller; and a judge that knows
//! every update and computes the model by itself.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec;
use alloc::vec::Vec;
use core::net::SocketAddr;

use arrayvec::ArrayVec;
use weft_kernel::Kernels;
use weft_wire::frame::{Datagram, Endpoint, Udp};
use weft_wire::header::ElementType;
use weft_wire::hello::{Integrity, Overflow};
use weft_wire::{GroupId, JobId, MacAddr, Nanos, Rank};

use crate::push::{
    BoxIndex, Command, Decision, Event, GroupDescriptor, GroupMember, OrderNumber, ROW_DIRECT,
    ServerEpoch, Version,
};
use crate::random::SplitMix64;
use crate::role::aggregator::{Aggregator, Verdict};
use crate::role::gather::{Gather, PushConfig};
use crate::role::model::Replay;
use crate::role::model::journal::{JournalHeader, Records};
use crate::role::push::{self, Grant, NewUpdate, Pusher, PusherConfig, Segment, Values};
use crate::role::replica::{Replica, ReplicaJobConfig};
use crate::role::server::{ModelConfig, ModelState, ModelView, Server, ServerJobConfig};
use crate::table::{BoxConfig, Table};

pub(super) const JOB: JobId = JobId(5);
pub(super) const ELEMENTS: u16 = 8;
pub(super) const EXPONENT: i8 = -4;
pub(super) const FRAME_LEN: usize = 1514;
pub(super) const SERVER: u8 = 100;
pub(super) const REPLICA: u8 = 101;
pub(super) const AGGREGATOR: u8 = 50;
pub(super) const BOX: BoxIndex = BoxIndex(0);
pub(super) const REPLICA_BOX: BoxIndex = BoxIndex(1);
const LATENCY_NS: u64 = 100_000;
const DISK_NS_MAX: u64 = 4_000_000;
/// How long the controller waits for further requests.
const GATHER_NS: u64 = 15_000_000;

pub(super) fn addr(host: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, host], 22341))
}

pub(super) fn endpoint(host: u8) -> Endpoint {
    Endpoint { mac: MacAddr([2, 0, 0, 0, 0, host]), addr: addr(host) }
}

fn learnt(host: u8) -> Endpoint {
    Endpoint { mac: MacAddr::BROADCAST, addr: addr(host) }
}

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
        Self { loss: 120, duplication: 100, corruption: 40, jitter_ns: 2_000_000 };
}

/// What a world is made of.
#[derive(Clone, Debug)]
pub(super) struct Setup {
    pub(super) workers: u8,
    pub(super) updates: u64,
    pub(super) dimension: usize,
    pub(super) faults: Faults,
    pub(super) has_controller: bool,
    pub(super) group_max: usize,
    pub(super) element_type: ElementType,
    /// Numbers whose sums depend on the order of addition: the judge compares bits only.
    pub(super) is_inexact: bool,
    pub(super) tau_max: u64,
    /// What the test changes about the job.
    pub(super) adjust: fn(&mut ServerJobConfig),
}

impl Setup {
    pub(super) fn new(workers: u8) -> Self {
        Self {
            workers,
            updates: 6,
            dimension: 37,
            faults: Faults::default(),
            has_controller: true,
            group_max: usize::from(workers),
            element_type: ElementType::I32,
            is_inexact: false,
            tau_max: 1000,
            adjust: |_| {},
        }
    }

    pub(super) fn model(&self) -> ModelConfig {
        ModelConfig {
            elements: ELEMENTS,
            exponent: EXPONENT,
            momentum: 0.5,
            ..ModelConfig::new(JOB, self.dimension)
        }
    }

    pub(super) fn job(&self) -> ServerJobConfig {
        let workers = (1..=self.workers).map(addr).collect();
        let mut job = ServerJobConfig {
            boxes: vec![Some(addr(AGGREGATOR)), Some(addr(REPLICA))],
            replica: Some(REPLICA_BOX),
            tau_max: self.tau_max,
            staging_bytes_max: 1 << 20,
            log_bytes_max: 1 << 20,
            ..ServerJobConfig::new(self.model(), workers)
        };
        (self.adjust)(&mut job);
        job
    }

    fn replica_job(&self) -> ReplicaJobConfig {
        let job = self.job();
        let workers = job.workers.clone();
        ReplicaJobConfig {
            boxes: vec![Some(addr(AGGREGATOR))],
            staging_bytes_max: 1 << 20,
            tau_max: job.tau_max,
            ..ReplicaJobConfig::new(job.model, REPLICA_BOX, learnt(SERVER), workers)
        }
    }

    pub(super) fn server(&self, seed: u64) -> Server {
        Server::new(endpoint(SERVER), 1500, &[self.job()], seed, Kernels::detect()).unwrap()
    }

    pub(super) fn replica(&self, seed: u64) -> Replica {
        let job = self.replica_job();
        Replica::new(endpoint(REPLICA), 1500, &[job], seed, Kernels::detect()).unwrap()
    }

    pub(super) fn aggregator(&self, seed: u64) -> Aggregator {
        let push = PushConfig {
            job: JOB,
            box_index: BOX,
            workers: (1..=self.workers).map(addr).collect(),
            server: learnt(SERVER),
            replica: Some(learnt(REPLICA)),
            quota_bytes: 1 << 20,
            pull_cache_bytes: 1 << 16,
            chunks: self.model().chunks(),
            elements: ELEMENTS,
            element_type: self.element_type,
            overflow: Overflow::Wrap,
            integrity: Integrity::Crc32c,
            exponent: Some(EXPONENT),
            rate_bytes_per_sec: None,
            burst_bytes: 1 << 20,
        };
        let table = BoxConfig {
            local: endpoint(AGGREGATOR),
            shards: 1,
            mtu: 1500,
            jobs: Vec::new(),
            rows: Vec::new(),
        };
        let (table, kernels) = (Table::new(table).unwrap(), Kernels::detect());
        let local = endpoint(AGGREGATOR);
        let gather = Gather::new(local, 1500, &[push], seed, Nanos(0), kernels).unwrap();
        Aggregator::new(&table, 0, seed + 1, kernels).with_pushes(gather)
    }

    pub(super) fn pusher(&self, rank: u8, seed: u64) -> Pusher {
        let own = Rank::new(rank).unwrap();
        let mut config = PusherConfig::new(JOB, own, endpoint(rank + 1), learnt(SERVER));
        config.element_type = self.element_type;
        config.updates_max = 2;
        let mut pusher = Pusher::new(config, seed, Nanos(0)).unwrap();
        pusher.add_box(Nanos(0), BOX, learnt(AGGREGATOR), false).unwrap();
        pusher.add_box(Nanos(0), REPLICA_BOX, learnt(REPLICA), true).unwrap();
        pusher
    }
}

/// A worker and what it is about.
pub(super) struct Worker {
    pub(super) pusher: Pusher,
    stage: Stage,
    /// Numbers of updates are used once.
    next_number: u64,
    pub(super) done: u64,
    version: Version,
    /// Updates sent without a controller, whose group the judge does not know yet.
    sent_direct: VecDeque<(u64, Version)>,
    seed: u64,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Stage {
    Connecting,
    Pulling,
    Pushing(u64),
    Done,
}

/// What a granted update is in.
#[derive(Clone, Copy, Debug)]
struct Request {
    rank: u8,
    number: u64,
    version: Version,
}

/// A decision of the server.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ruling {
    pub(super) group: GroupId,
    pub(super) order: u64,
    pub(super) decision: Decision,
    pub(super) members: u64,
}

pub(super) struct World {
    pub(super) setup: Setup,
    pub(super) now: Nanos,
    pub(super) server: Server,
    pub(super) replica: Option<Replica>,
    /// The replica, since it took over from the server, which is dead then.
    pub(super) heir: Option<Replica>,
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
        let worker = |rank: u8| Worker {
            pusher: setup.pusher(rank, seed ^ (u64::from(rank) << 32) ^ 0xabcd),
            stage: Stage::Connecting,
            next_number: 0,
            done: 0,
            version: Version(0),
            sent_direct: VecDeque::new(),
            seed: u64::from(rank) << 40,
        };
        Self {
            now: Nanos(0),
            server: setup.server(seed + 1),
            replica: Some(setup.replica(seed + 2)),
            heir: None,
            resumed: None,
            aggregator: Some(setup.aggregator(seed + 3)),
            workers: (0..setup.workers).map(worker).collect(),
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

    fn chance(&mut self, per_1024: u64) -> bool {
        self.random.next_u64() % 1024 < per_1024
    }

    pub(super) fn post(&mut self, mut frame: Vec<u8>) {
        let faults = self.setup.faults;
        if self.chance(faults.loss) {
            return;
        }
        if self.chance(faults.corruption)
            && let Ok(udp) = Udp::parse(&frame)
        {
            let range = udp.payload_range();
            let at = usize::try_from(self.random.next_u64() % range.len() as u64).unwrap();
            frame[range.start + at] ^= 1 << (self.random.next_u64() % 8);
        }
        for _ in 0..1 + u64::from(self.chance(faults.duplication)) {
            let jitter = match faults.jitter_ns {
                0 => 0,
                span => self.random.next_u64() % span,
            };
            self.serial += 1;
            self.flights.insert((self.now.0 + LATENCY_NS + jitter, self.serial), frame.clone());
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
        let server =
            self.heir.as_ref().map_or_else(|| self.server.poll_timeout(), Replica::poll_timeout);
        let aggregator = self.aggregator.as_ref().map_or(Nanos::MAX, Aggregator::poll_timeout);
        let disk = self.disk.front().map_or(Nanos::MAX, |(due, _, _)| *due);
        let boxes = server.min(replica).min(aggregator);
        workers.min(boxes).min(self.plan_at).min(disk)
    }

    fn deliver(&mut self, mut frame: Vec<u8>) {
        let Ok(udp) = Datagram::find(&frame) else { return };
        let host = frame[udp.payload_start() - 9];
        let len = frame.len();
        frame.resize(FRAME_LEN.max(len), 0);
        let now = self.now;
        let verdict = match host {
            SERVER if self.heir.is_some() => return,
            SERVER => self.server.handle_frame(now, &mut frame, len),
            REPLICA => match self.heir.as_mut().or(self.replica.as_mut()) {
                Some(replica) => replica.handle_frame(now, &mut frame, len),
                None => return,
            },
            AGGREGATOR => match &mut self.aggregator {
                Some(aggregator) => aggregator.handle_frame(now, &mut frame, len),
                None => return,
            },
            rank => {
                if let Some(worker) = self.workers.get_mut(usize::from(rank.wrapping_sub(1))) {
                    let _ = worker.pusher.handle_frame(now, &mut frame[..len]);
                }
                return;
            }
        };
        match verdict {
            Verdict::Send { len } => self.post(frame[..len].to_vec()),
            Verdict::Fan { len, push } => {
                let gather = self.aggregator.as_ref().unwrap().gather();
                let frame = frame[..len].to_vec();
                let mut copies = vec![frame.clone()];
                for peer in gather.copies(push, &frame) {
                    let mut copy = frame.clone();
                    let head_len = gather.copy_header_len(push);
                    if gather.address_copy(push, peer, &mut copy[..head_len], len) {
                        copies.push(copy);
                    }
                }
                copies.into_iter().for_each(|copy| self.post(copy));
            }
            Verdict::Drop(_) | Verdict::Hold | Verdict::Host => {}
            Verdict::Multicast { .. } => panic!("no allreduce here"),
        }
    }

    fn poll_all(&mut self) {
        let mut frames = Vec::new();
        let mut buffer = vec![0; FRAME_LEN];
        let now = self.now;
        while let Some(len) = match &mut self.heir {
            Some(heir) => heir.poll_transmit(now, &mut buffer),
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

    /// The disk of a durable server: records take their time, in their order.
    fn poll_disk(&mut self) {
        if self.heir.is_some() {
            return;
        }
        let mut record = Vec::with_capacity(FRAME_LEN);
        while let Some((_, position)) = self.server.poll_journal(&mut record) {
            let latency_ns = 1 + self.random.next_u64() % DISK_NS_MAX;
            let due = self.now.saturating_add(Nanos(latency_ns));
            let due = self.disk.back().map_or(due, |(last, _, _)| due.max(*last));
            self.disk.push_back((due, position, record.clone()));
        }
        while self.disk.front().is_some_and(|(due, _, _)| *due <= self.now) {
            let (_, position, record) = self.disk.pop_front().unwrap();
            self.journal.extend(record);
            self.server.handle_durable(JOB, position);
        }
    }

    /// The server dies. Of what was on its way to the disk the first `kept` records arrived; nobody
    /// was told. It begins anew from there, and the judge learns what that is.
    pub(super) fn crash_server(&mut self, seed: u64, kept: usize) {
        self.poll_events();
        let on_the_way = core::mem::take(&mut self.disk);
        for (_, _, record) in on_the_way.into_iter().take(kept) {
            self.journal.extend(record);
        }
        let told = self.rulings.len() as u64;
        let (state, events) = self.replayed();
        assert!(state.next_order.0 >= told, "what was told is gone");
        for event in events {
            let order = match event {
                Event::Decided { order, .. } => order.0,
                _ => unreachable!("a replay decides"),
            };
            if order >= told {
                self.take_event(event);
            }
        }
        self.resume_server(seed, &state);
    }

    /// What the journal says, and what it decided.
    pub(super) fn replayed(&self) -> (ModelState, Vec<Event>) {
        let model = self.setup.model();
        let workers = usize::from(self.setup.workers);
        let empty = self.setup.server(0).state(JOB).unwrap();
        let mut replay = Replay::new(&model, workers, &empty, Kernels::detect()).unwrap();
        let mut bytes = Vec::new();
        JournalHeader::new(&model, workers).begin_journal(&mut bytes);
        bytes.extend(&self.journal);
        let (_, mut records) = Records::new(&bytes).unwrap();
        let mut events = Vec::new();
        while let Some(record) = records.next_record().unwrap() {
            events.extend(replay.apply(&record).unwrap());
        }
        (replay.state(), events)
    }

    fn poll_events(&mut self) {
        while let Some(event) = self.poll_server() {
            self.take_event(event);
        }
        let Some(replica) = &mut self.replica else { return };
        while let Some((_, event)) = replica.poll_event() {
            if let Event::Decided { group, order, decision, members, .. } = event {
                let members = members.0;
                self.replica_rulings.push(Ruling { group, order: order.0, decision, members });
            }
        }
    }

    fn take_event(&mut self, event: Event) {
        match event {
            Event::Decided { group, order, decision, members, .. } => {
                let members = members.0;
                if let Some(rank) = group.row().checked_sub(ROW_DIRECT) {
                    // A worker has one update under way.
                    let worker = &mut self.workers[usize::from(rank)];
                    let rank = u8::try_from(rank).unwrap();
                    let sent = worker.sent_direct.pop_front().unwrap();
                    self.in_group.insert((group, rank), sent);
                    self.groups.insert(group, vec![rank]);
                }
                self.rulings.push(Ruling { group, order: order.0, decision, members });
                self.note_model();
            }
            Event::ReplicaAt { divergence_bound, is_held, .. } => {
                self.bounds.push((divergence_bound, is_held));
            }
            _ => {}
        }
    }

    /// The values of an update: known to the judge from rank and number alone.
    pub(super) fn values(&self, rank: u8, number: u64) -> Vec<i32> {
        let mut random = SplitMix64::new(self.workers[usize::from(rank)].seed ^ number);
        let value = |_| i32::try_from(random.next_u64() % 200).unwrap() - 100;
        (0..self.setup.dimension).map(value).collect()
    }

    fn poll_worker(&mut self, rank: u8) {
        let now = self.now;
        let place = usize::from(rank);
        while let Some(event) = self.workers[place].pusher.poll_event() {
            match event {
                push::Event::Connected => self.pull(rank),
                push::Event::Pulled { version } => {
                    let dimension = self.setup.dimension;
                    let pulled = self.workers[place].pusher.model()[..dimension].to_vec();
                    let initial = vec![0.0; dimension];
                    let known = self.history.get(&version.0).unwrap_or(&initial);
                    assert_eq!(&pulled, known, "version {version:?} as pulled by {rank}");
                    self.workers[place].version = version;
                    self.begin(rank);
                }
                push::Event::Decided { number, decision } => {
                    self.told.insert((rank, number), decision);
                    let worker = &mut self.workers[place];
                    if decision == Decision::Void {
                        let fresh = worker.next_number;
                        worker.next_number += 1;
                        worker.pusher.renew(number, fresh).unwrap();
                        // The same values go under the fresh number.
                        let version = worker.version;
                        worker.stage = Stage::Pushing(fresh);
                        self.renamed(rank, number, fresh);
                        self.send(rank, fresh, version);
                    } else {
                        worker.pusher.finish(number);
                        worker.done += 1;
                        self.pull(rank);
                    }
                }
                push::Event::Failed(fault) => panic!("worker {rank} at {now:?}: {fault}"),
                _ => {}
            }
        }
    }

    /// A renewed update keeps its values: the judge must find them.
    fn renamed(&mut self, rank: u8, old: u64, fresh: u64) {
        let origin = self.origin(rank, old);
        self.origins.insert((rank, fresh), origin);
    }

    /// The number under which an update was first sent.
    pub(super) fn origin(&self, rank: u8, number: u64) -> u64 {
        self.origins.get(&(rank, number)).copied().unwrap_or(number)
    }

    fn pull(&mut self, rank: u8) {
        let worker = &mut self.workers[usize::from(rank)];
        if worker.done >= self.setup.updates {
            worker.stage = Stage::Done;
            return;
        }
        worker.stage = Stage::Pulling;
        let dimension = self.setup.dimension;
        worker.pusher.begin_pull(self.now, dimension, None, None).unwrap();
    }

    fn begin(&mut self, rank: u8) {
        let place = usize::from(rank);
        let number = self.workers[place].next_number;
        self.workers[place].next_number += 1;
        let integers = self.values(rank, number);
        let values = match self.setup.element_type {
            ElementType::F32 => {
                let unit = if self.setup.is_inexact { 0.1 } else { 1.0 };
                let real = |v: &i32| f32::from(i16::try_from(*v).unwrap()) * unit;
                Values::Reals(integers.iter().map(real).collect())
            }
            _ => Values::Integers(integers),
        };
        let version = self.workers[place].version;
        self.workers[place].stage = Stage::Pushing(number);
        let update = NewUpdate { number, version, values };
        self.workers[place].pusher.begin_update(update).unwrap();
        self.send(rank, number, version);
    }

    fn send(&mut self, rank: u8, number: u64, version: Version) {
        if self.setup.has_controller {
            self.requests.push_back(Request { rank, number, version });
            self.plan_at = self.plan_at.min(self.now.saturating_add(Nanos(GATHER_NS)));
        } else {
            let worker = &mut self.workers[usize::from(rank)];
            worker.pusher.send_direct(self.now, number).unwrap();
            worker.sent_direct.push_back((number, version));
        }
    }

    /// The controller: groups of what is requested, in the order of the requests.
    fn plan(&mut self) {
        if self.now < self.plan_at {
            return;
        }
        self.plan_at = Nanos::MAX;
        while !self.requests.is_empty() {
            let most = if self.aggregator.is_some() { self.setup.group_max as u64 } else { 1 };
            let size = 1 + self.random.next_u64() % most;
            let mut taken = BTreeSet::new();
            let mut group: Vec<Request> = Vec::new();
            while group.len() < usize::try_from(size).unwrap()
                && let Some(request) = self.requests.front().copied()
                && taken.insert(request.rank)
            {
                self.requests.pop_front();
                group.push(request);
            }
            self.install(&group);
        }
    }

    fn install(&mut self, requests: &[Request]) {
        let row = u16::try_from(self.next_group % 64).unwrap();
        let id = GroupId::new(row, u16::try_from(self.next_group / 64).unwrap());
        self.next_group += 1;
        let alone = requests.len() == 1 && self.random.next_u64().is_multiple_of(2);
        let via = (!alone && self.aggregator.is_some()).then_some(BOX);
        let member = |request: &Request| GroupMember {
            rank: Rank::new(request.rank).unwrap(),
            version: request.version,
        };
        let descriptor = GroupDescriptor {
            job: JOB,
            group: id,
            order: OrderNumber(self.next_order),
            members: requests.iter().map(member).collect(),
            chunks: self.setup.model().chunks(),
            element_type: self.setup.element_type,
            elements: ELEMENTS,
            exponent: EXPONENT,
            via,
            replicate: true,
            rate_bytes_per_sec: None,
            after: None,
            train_chunks: 8,
            lateness_ns: 3_000_000_000,
        };
        self.orders.insert(id, self.next_order);
        self.descriptors.insert(self.next_order, descriptor.clone());
        self.next_order += 1;
        let now = self.now;
        let install = Command::Install(descriptor.clone());
        match &mut self.heir {
            Some(heir) => heir.handle_command(now, install),
            None => self.server.handle_command(now, install),
        }
        let event = self.poll_server().expect("a command is answered");
        // What is queued before the answer is the judge's too.
        let mut event = event;
        while !matches!(event, Event::Installed { .. } | Event::Refused { .. }) {
            if let Event::Decided { group, order, decision, members, .. } = event {
                let members = members.0;
                self.rulings.push(Ruling { group, order: order.0, decision, members });
            }
            event = self.poll_server().expect("a command is answered");
        }
        assert!(matches!(event, Event::Installed { .. }), "{event:?}");
        if let Some(replica) = &mut self.replica {
            replica.handle_command(now, Command::Install(descriptor.clone()));
        }
        if let (Some(aggregator), Some(_)) = (&mut self.aggregator, via) {
            aggregator.gather_mut().handle_command(&Command::Install(descriptor));
        }
        self.groups.insert(id, requests.iter().map(|request| request.rank).collect());
        let segment = Segment { is_open: true, rate_bytes_per_sec: 0 };
        for request in requests {
            let grant = Grant {
                group: id,
                via,
                exponent: EXPONENT,
                member_count: u32::try_from(requests.len()).unwrap(),
                segments: ArrayVec::from_iter([segment]),
                replicate: true,
                train_chunks: 8,
            };
            self.in_group.insert((id, request.rank), (request.number, request.version));
            let worker = &mut self.workers[usize::from(request.rank)];
            worker.pusher.handle_grant(now, request.number, &grant).unwrap();
        }
    }

    /// The model of the server, whichever that is.
    pub(super) fn model(&self) -> ModelView<'_> {
        let heir = self.heir.as_ref().map(|heir| heir.model(JOB).unwrap());
        heir.unwrap_or_else(|| self.server.model(JOB).unwrap())
    }

    fn note_model(&mut self) {
        let view = self.model();
        let (version, weights) = (view.version.0, view.weights.to_vec());
        self.history.insert(version, weights);
    }

    fn poll_server(&mut self) -> Option<Event> {
        let event = match &mut self.heir {
            Some(heir) => heir.poll_event(),
            None => self.server.poll_event(),
        };
        event.map(|(_, event)| event)
    }

    /// The server is dead for good, and the replica takes over: the judge forgets what only the
    /// server knew. What of it was told is found at the end.
    pub(super) fn promote(&mut self) {
        self.poll_events();
        let order = self.next_order + 100;
        let (epoch, applied_min) = (ServerEpoch(1), OrderNumber(0));
        let mut heir = self.replica.take().unwrap();
        let promote = Command::Promote { job: JOB, epoch, order: OrderNumber(order), applied_min };
        heir.handle_command(self.now, promote.clone());
        let mut last = None;
        while let Some((_, event)) = heir.poll_event() {
            last = Some(event);
        }
        let Some(Event::Promoted { applied, version, .. }) = last else { panic!("{last:?}") };
        assert_eq!(heir.model(JOB).unwrap().next_order, OrderNumber(order));
        // The answer may be lost: it is given again.
        heir.handle_command(self.now, promote);
        assert_eq!(heir.poll_event(), last.map(|event| (JOB, event)));
        for ruling in self.rulings.split_off(usize::try_from(applied.0).unwrap()) {
            if let Some(rank) = ruling.group.row().checked_sub(ROW_DIRECT) {
                // Its worker will announce it again.
                let sent = self.in_group[&(ruling.group, u8::try_from(rank).unwrap())];
                self.workers[usize::from(rank)].sent_direct.push_front(sent);
            }
        }
        self.resumed = Some((applied.0, order));
        self.history.retain(|known, _| *known <= version.0);
        self.descriptors.clear();
        self.next_order = order;
        self.heir = Some(heir);
        self.disk.clear();
        if let Some(aggregator) = &mut self.aggregator {
            let server = addr(REPLICA);
            aggregator.gather_mut().handle_command(&Command::MoveServer { job: JOB, server });
        }
        for worker in &mut self.workers {
            worker.pusher.move_server(self.now, learnt(REPLICA)).unwrap();
        }
    }

    /// A worker is gone, and comes back never.
    pub(super) fn kill_worker(&mut self, rank: u8) {
        let mute = self.setup.pusher(rank, 1);
        let worker = &mut self.workers[usize::from(rank)];
        worker.pusher = mute;
        worker.pusher.close(self.now);
        worker.stage = Stage::Done;
        self.requests.retain(|request| request.rank != rank);
    }

    /// A worker begins a new life, with what is left of its updates.
    pub(super) fn restart_worker(&mut self, rank: u8, seed: u64) {
        let pusher = self.setup.pusher(rank, seed);
        let worker = &mut self.workers[usize::from(rank)];
        worker.pusher = pusher;
        worker.stage = Stage::Connecting;
        worker.sent_direct.clear();
        self.requests.retain(|request| request.rank != rank);
    }

    /// The server loses everything. So does the judge.
    pub(super) fn restart_server(&mut self, seed: u64) {
        self.server = self.setup.server(seed);
        self.rulings.clear();
        self.replica_rulings.clear();
        self.history.clear();
        self.told.clear();
    }

    /// The server begins anew with what it kept. It knows no open group yet.
    pub(super) fn resume_server(&mut self, seed: u64, state: &ModelState) {
        self.server = self.setup.server(seed);
        self.server.restore(JOB, state).unwrap();
    }

    /// The controller gives the server the groups again that it has not decided.
    pub(super) fn install_open(&mut self) {
        let next = self.server.model(JOB).unwrap().next_order.0;
        let open: Vec<GroupDescriptor> =
            self.descriptors.range(next..).map(|(_, open)| open.clone()).collect();
        for descriptor in open {
            self.server.handle_command(self.now, Command::Install(descriptor));
        }
        self.poll_events();
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
