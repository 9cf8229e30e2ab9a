//! Processes of a table, and its home, on hosts where frames and waking up take time: how long work
//! over a table takes, in virtual time. Nothing is lost here, and nobody dies.
//!
//! A host's port has a thread: what wakes it (a frame, a call, a timer) waits [`Costs::wake`], then
//! it takes up to 32 frames, has the engine take them and sends what follows. Each frame takes
//! [`Costs::frame`] at its sender and at its receiver, and between them what the links of
//! [`Links`] make of it. Worker threads are those of an [`Application`]; each has a core of its
//! own, as the port's thread has.
//!
//! Invariant: the same application, costs and links give the same run.

mod host;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::{Ipv4Addr, SocketAddr};

use weft_engine::random::Seed;
use weft_engine::role::keys::{
    Home, HomeConfig, HomeStats, OwnStore, Process, ProcessConfig, TableError, To,
};
use weft_wire::Nanos;
use weft_wire::frame::{ETHERNET_LEN, IPV4_LEN, UDP_LEN, UdpAddr};

use self::host::{Engine, Host, Turn};
pub use super::node::Heard;
use crate::hash;
use crate::links::{HostLink, Links};
use crate::transcript::{Fingerprint, Transcript};

/// Frames that a host takes at once: what a DPDK device gives.
const TURN_FRAMES_MAX: usize = 32;

/// What things take at a host.
#[derive(Clone, Copy, Debug)]
pub struct Costs {
    /// A frame, where it is sent and where it is received.
    pub frame: Nanos,
    /// Until a thread that sleeps runs again.
    pub wake: Nanos,
}

/// What a thread sees when it runs: its process's engine, and what that has said.
#[derive(Debug)]
pub struct Site<'a> {
    /// Which process.
    pub place: usize,
    /// The time.
    pub now: Nanos,
    /// The engine.
    pub process: &'a mut Process<OwnStore>,
    /// What the engine says.
    pub heard: &'a mut Heard,
    /// Bytes that the host has received and sent.
    pub carried: (u64, u64),
    /// Threads that run next: when, of which process, which one.
    pub next: &'a mut Vec<(Nanos, usize, usize)>,
}

/// What works over the table.
pub trait Application {
    /// A thread of a process runs. True if it has called something that leaves with the port.
    fn run(&mut self, thread: usize, site: &mut Site<'_>) -> bool;

    /// The port of a process has had a turn. True as before.
    fn turned(&mut self, site: &mut Site<'_>) -> bool;

    /// All is done, or nothing more can be.
    fn is_over(&self) -> bool;
}

/// How a run ended.
#[derive(Debug)]
pub struct Ended {
    /// When.
    pub at: Nanos,
    /// What happened: turns, arrivals, threads that ran.
    pub events: u64,
    /// Of all frames that arrived.
    pub fingerprint: Fingerprint,
    /// What the home counted.
    pub home: HomeStats,
    /// The processes.
    pub processes: Vec<Process<OwnStore>>,
}

/// A run to be.
#[derive(Debug)]
pub struct Setup<'a> {
    /// What the processes are told, by number.
    pub processes: &'a [ProcessConfig<'a>],
    /// When the home declares a process dead.
    pub death_timeout: Nanos,
    /// The link of each process's host, and of the home's last.
    pub links: &'a [HostLink],
    /// What things take.
    pub costs: Costs,
    /// For lives and cookies.
    pub seed: u64,
}

/// Runs an application until it is over, or until [`END`].
///
/// # Errors
/// A table that cannot be.
pub fn run(setup: &Setup<'_>, application: &mut impl Application) -> Result<Ended, TableError> {
    let mut world = World::new(setup)?;
    while !application.is_over() {
        let Some(Reverse(event)) = world.queue.pop() else { break };
        if event.at >= END {
            break;
        }
        world.now = event.at;
        world.events += 1;
        world.happen(event.what, application);
    }
    let mut processes = Vec::new();
    let mut home = HomeStats::default();
    for host in world.hosts {
        match host.engine {
            Engine::Process(process) => processes.push(*process),
            Engine::Home(engine) => home = engine.stats().clone(),
        }
    }
    let (at, events) = (world.now, world.events);
    let fingerprint = world.transcript.fingerprint();
    Ok(Ended { at, events, fingerprint, home, processes })
}

#[derive(Debug, Eq, Ord, PartialEq, PartialOrd)]
struct Event {
    at: Nanos,
    sequence: u64,
    what: What,
}

#[derive(Debug, Eq, Ord, PartialEq, PartialOrd)]
enum What {
    /// The port's thread looks what has come.
    Begin(usize),
    /// It has taken so many frames off its port.
    Turn(usize, usize),
    /// A timer of the engine, if it is still the next.
    Timer(usize),
    /// A frame is at its receiver, from a host.
    Arrive(usize, usize, Vec<u8>),
    /// A thread of a process runs.
    Thread(usize, usize),
}

struct World {
    now: Nanos,
    queue: BinaryHeap<Reverse<Event>>,
    sequence: u64,
    events: u64,
    hosts: Vec<Host>,
    addrs: Vec<UdpAddr>,
    links: Links,
    costs: Costs,
    transcript: Transcript,
}

impl World {
    fn new(setup: &Setup<'_>) -> Result<Self, TableError> {
        let mut hosts = Vec::new();
        for (number, config) in setup.processes.iter().enumerate() {
            let life = hash(&[setup.seed, 3, number as u64]).max(1);
            let store = OwnStore::new(&config.table);
            let process = Process::new(config, store, life, Nanos(0))?;
            hosts.push(Host::new(Engine::Process(Box::new(process))));
        }
        let first = setup.processes.first().ok_or(TableError::Processes(0))?;
        let config = HomeConfig {
            table: first.table,
            processes: first.processes,
            death_timeout: setup.death_timeout,
        };
        let home = Home::new(&config, &Seed::from(hash(&[setup.seed, 2])), Nanos(0))?;
        hosts.push(Host::new(Engine::Home(Box::new(home))));
        let mut addrs = first.processes.to_vec();
        addrs.push(first.home);
        let mut world = Self {
            now: Nanos(0),
            queue: BinaryHeap::new(),
            sequence: 0,
            events: 0,
            addrs,
            links: Links::new(setup.links, &[]),
            costs: setup.costs,
            transcript: Transcript::default(),
            hosts,
        };
        for host in 0..world.hosts.len() {
            world.ring(host);
        }
        Ok(world)
    }

    fn at(&mut self, at: Nanos, what: What) {
        self.sequence += 1;
        let sequence = self.sequence;
        self.queue.push(Reverse(Event { at: at.max(self.now), sequence, what }));
    }

    fn happen(&mut self, what: What, application: &mut impl Application) {
        match what {
            What::Begin(host) => {
                let count = self.hosts[host].inbox.len().min(TURN_FRAMES_MAX);
                self.hosts[host].turn = Turn::Working { is_rung: false };
                let span = self.costs.frame.0 * count as u64;
                self.at(self.now.saturating_add(Nanos(span)), What::Turn(host, count));
            }
            What::Turn(host, count) => self.turn(host, count, application),
            What::Timer(host) => {
                if self.hosts[host].timer == Some(self.now) {
                    self.hosts[host].timer = None;
                    self.ring(host);
                }
            }
            What::Arrive(to, from, datagram) => {
                self.transcript.note_frame(self.now, to, &datagram);
                self.hosts[to].inbox.push_back((from, datagram));
                self.ring(to);
            }
            What::Thread(host, thread) => {
                self.work(host, |application, site| application.run(thread, site), application);
            }
        }
    }

    /// Something waits for the port's thread.
    fn ring(&mut self, host: usize) {
        let Host { turn, free_at, .. } = &mut self.hosts[host];
        match turn {
            Turn::Due => {}
            Turn::Working { is_rung } => *is_rung = true,
            Turn::Asleep => {
                *turn = Turn::Due;
                // Who still sends does not sleep.
                let wakes_at = self.now.saturating_add(self.costs.wake);
                let at = if *free_at > self.now { *free_at } else { wakes_at };
                self.at(at, What::Begin(host));
            }
        }
    }

    /// The engine takes what has come and what was called, and what follows leaves.
    fn turn(&mut self, host: usize, count: usize, application: &mut impl Application) {
        let now = self.now;
        let mut sent = self.hosts[host].turn(now, count, &self.addrs);
        let home = self.hosts.len() - 1;
        let mut leaves_at = now;
        for (to, datagram) in sent.drain(..) {
            leaves_at = leaves_at.saturating_add(self.costs.frame);
            let to = match to {
                To::Home => home,
                To::Process(process) => usize::from(process),
            };
            let len_bytes = datagram.len() + ETHERNET_LEN + IPV4_LEN + UDP_LEN;
            // What a host sends to itself passes no link.
            let at = match to == host {
                true => leaves_at,
                false => self.links.pass(leaves_at, host, to, len_bytes),
            };
            self.at(at, What::Arrive(to, host, datagram));
        }
        let Host { turn, inbox, free_at, .. } = &mut self.hosts[host];
        let is_rung = matches!(turn, Turn::Working { is_rung: true }) || !inbox.is_empty();
        (*turn, *free_at) = (Turn::Asleep, leaves_at);
        if is_rung {
            *turn = Turn::Due;
            self.at(leaves_at, What::Begin(host));
        }
        self.work(host, Application::turned, application);
    }

    /// Has the application do something at a process, and sees to what follows.
    fn work<A: Application>(
        &mut self,
        host: usize,
        work: impl FnOnce(&mut A, &mut Site<'_>) -> bool,
        application: &mut A,
    ) {
        let (now, carried) = (self.now, self.links.carried(host));
        let mut next = Vec::new();
        let Host { engine, heard, .. } = &mut self.hosts[host];
        let mut has_called = false;
        if let Engine::Process(process) = engine {
            let mut site = Site { place: host, now, process, heard, carried, next: &mut next };
            has_called = work(application, &mut site);
        }
        if has_called {
            self.ring(host);
        }
        for (at, host, thread) in next {
            self.at(at, What::Thread(host, thread));
        }
        let due = self.hosts[host].engine.poll_timeout();
        if due < self.hosts[host].timer.unwrap_or(END) {
            let due = due.max(now);
            self.hosts[host].timer = Some(due);
            self.at(due, What::Timer(host));
        }
    }
}

/// An address for each process, and the home's.
#[must_use]
pub fn addrs(processes: u8) -> (Vec<UdpAddr>, UdpAddr) {
    let addr =
        |third, last| UdpAddr::from(SocketAddr::from((Ipv4Addr::new(10, 0, third, last), 7)));
    ((0..processes).map(|process| addr(0, process + 1)).collect(), addr(1, 1))
}

/// Nothing takes as long: a run that is not over then never is.
pub const END: Nanos = Nanos(86_400_000_000_000);
