//! The queue, the network, the box and its lives.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::{Ipv4Addr, SocketAddr};

use weft_engine::random::{Seed, SplitMix64};
use weft_engine::role::keys::{
    Home, HomeConfig, Outbox, OwnStore, Presence, Process, ProcessConfig, TableConfig, To,
};
use weft_io::fault::corrupt;
use weft_wire::frame::UdpAddr;
use weft_wire::header::Packet;
use weft_wire::{JobId, Members, Nanos};

use super::node::{Checkpoint, FIRST_KEY, Heard, Node, Session};
use super::scenario::{Kind, Scenario};
use super::{Report, Seen, judge};
use crate::hash;

/// The box's place among the nodes.
const BOX: usize = usize::MAX;
const LATENCY_NS: u64 = 20_000;
const JITTER_NS: u64 = 10_000;
const REORDER_NS: u64 = 300_000;
const DELAY_NS: u64 = 60_000_000;
/// Longer than a network without mercy can hush up all beats of a process.
const DEATH_TIMEOUT: Nanos = Nanos::from_millis(400);
const BEAT: Nanos = Nanos::from_millis(10);
const CHECKPOINT_EVERY_NS: u64 = 7_000_000;
const PUT_OFF_NS: u64 = 2_000_000;
/// Nothing takes as long; what is open then is open for ever.
const END_NS: u64 = 60_000_000_000;

#[derive(Debug, Eq, PartialEq, Ord, PartialOrd)]
struct Arrival {
    at: u64,
    sequence: u64,
    from: usize,
    to: usize,
    datagram: Vec<u8>,
}

#[derive(Debug, Default)]
struct Said(Vec<(To, Vec<u8>)>);

impl Outbox for Said {
    fn send(&mut self, to: To, datagram: &[u8]) {
        self.0.push((to, datagram.to_vec()));
    }
}

/// A run.
#[derive(Debug)]
pub(super) struct World<'a> {
    scenario: &'a Scenario,
    log: bool,
    table: TableConfig,
    addrs: Vec<UdpAddr>,
    now: Nanos,
    random: SplitMix64,
    queue: BinaryHeap<Reverse<Arrival>>,
    sequence: u64,
    home: Home,
    home_lives: u64,
    nodes: Vec<Node>,
    restarts: Vec<u64>,
    death: Option<(u8, u64)>,
    checkpoint: Checkpoint,
    checkpoint_at: u64,
    fingerprint: u64,
    seen: Seen,
}

impl<'a> World<'a> {
    pub(super) fn new(scenario: &'a Scenario, log: bool) -> Self {
        let table = TableConfig {
            job: JobId(7),
            table: 3,
            row_len: u16::try_from(scenario.row_len()).expect("few sessions"),
            first_key: FIRST_KEY,
            key_count: scenario.keys,
            processes: scenario.processes,
            payload_max: 1472,
            in_flight: scenario.in_flight,
        };
        let addrs: Vec<_> = (0..scenario.processes).map(addr).collect();
        let home = new_home(scenario, &table, &addrs, 0, Nanos(0));
        let nodes = (0..scenario.processes).map(|me| new_node(scenario, &table, &addrs, me));
        let mut restarts = scenario.restarts.clone();
        restarts.sort_unstable_by_key(|at| Reverse(*at));
        Self {
            scenario,
            log,
            table,
            now: Nanos(0),
            random: SplitMix64::new(hash(&[scenario.seed, 1])),
            queue: BinaryHeap::new(),
            sequence: 0,
            home,
            home_lives: 0,
            nodes: nodes.collect(),
            restarts,
            death: scenario.death,
            checkpoint: Checkpoint::new(),
            checkpoint_at: CHECKPOINT_EVERY_NS,
            fingerprint: 0,
            seen: Seen::default(),
            addrs,
        }
    }

    pub(super) fn run(mut self) -> Report {
        while !self.is_over() {
            let at = self.next_at();
            if at >= END_NS {
                break;
            }
            self.now = Nanos(at.max(self.now.0));
            self.step();
        }
        let dead: Vec<_> = (0..self.nodes.len()).map(|process| self.is_dead(process)).collect();
        let violations = judge::violations(self.scenario, &mut self.nodes, &dead, &mut self.seen);
        for node in &self.nodes {
            let stats = node.engine.stats();
            self.seen.moves += stats.rows_taken;
            self.seen.stale += stats.stale;
            self.seen.full += stats.full + stats.numbers_full;
            self.seen.hops_exceeded += stats.hops_exceeded;
            self.seen.passed_on += stats.passed_on;
            self.seen.repeats += stats.repeats;
            self.seen.copies += stats.copies;
            self.seen.copied += stats.copied;
        }
        self.note_home();
        let (fingerprint, seen) = (self.fingerprint, self.seen);
        Report { fingerprint, ended_ns: self.now.0, seen, violations }
    }

    /// True for processes that nothing is asked of any more.
    fn is_dead(&self, process: usize) -> bool {
        let node = &self.nodes[process];
        node.is_crashed || node.engine.presence() == Presence::Lost
    }

    fn is_over(&self) -> bool {
        let all_done =
            (0..self.nodes.len()).filter(|process| !self.is_dead(*process)).all(|process| {
                let node = &self.nodes[process];
                node.engine.is_idle() && node.sessions.iter().all(Session::is_done)
            });
        // A dead process may have the rows still: its box must have buried it.
        let living = self.home.living();
        let buried = (0..self.nodes.len())
            .all(|process| self.is_dead(process) != living.contains(Members(1 << process)));
        let calm = self.restarts.is_empty() && self.death.is_none();
        all_done && calm && buried && self.home.is_settled()
    }

    fn next_at(&self) -> u64 {
        let mut at = self.queue.peek().map_or(u64::MAX, |Reverse(arrival)| arrival.at);
        at = at.min(self.home.poll_timeout().0).min(self.checkpoint_at);
        at = at.min(self.restarts.last().copied().unwrap_or(u64::MAX));
        at = at.min(self.death.map_or(u64::MAX, |(_, at)| at));
        for node in self.nodes.iter().filter(|node| !node.is_crashed) {
            at = at.min(node.engine.poll_timeout().0).min(node.next_call_at(self.scenario));
        }
        at
    }

    fn step(&mut self) {
        let now = self.now;
        self.put_off_disasters();
        if self.restarts.pop_if(|at| *at <= now.0).is_some() {
            self.restart_home();
        }
        if let Some((process, _)) = self.death.take_if(|(_, at)| *at <= now.0) {
            self.strike(usize::from(process));
        }
        if self.checkpoint_at <= now.0 {
            self.checkpoint_at = now.0 + CHECKPOINT_EVERY_NS;
            for node in self.nodes.iter_mut().filter(|node| !node.is_crashed) {
                node.write_checkpoint(self.scenario, &mut self.checkpoint);
            }
        }
        self.home.poll(now);
        for process in 0..self.nodes.len() {
            let node = &mut self.nodes[process];
            if node.is_crashed {
                continue;
            }
            if node.engine.poll_timeout() <= now {
                node.engine.poll(now, &mut node.heard);
            }
            if node.next_call_at(self.scenario) <= now.0 {
                let clock = node.engine.clock();
                node.call(now, self.scenario, &mut self.seen);
                if node.engine.clock() > clock {
                    self.note_rows(process);
                }
            }
            self.settle(process);
        }
        // What comes soon comes together, where it comes in bursts.
        let until = now.0 + self.scenario.burst_ns;
        while self.queue.peek().is_some_and(|Reverse(arrival)| arrival.at <= until) {
            let Some(Reverse(arrival)) = self.queue.pop() else { break };
            self.arrive(&arrival);
            if until == now.0 {
                self.flush();
            }
        }
        self.flush();
    }

    /// Notes what the rows have at the moment in which a clock of a process begins.
    fn note_rows(&mut self, process: usize) {
        let mut rows = Vec::new();
        for key in FIRST_KEY..FIRST_KEY + u64::from(self.scenario.keys) {
            let mut newest = None;
            for node in self.nodes.iter_mut().filter(|node| !node.is_crashed) {
                newest = newest.max(node.row(key));
            }
            rows.push(newest.map(|(_, adds)| adds).unwrap_or_default());
        }
        self.nodes[process].rows_of_clocks.push(rows);
    }

    /// Ends the turns of all.
    fn flush(&mut self) {
        let mut said = Said::default();
        self.home.flush(&mut said);
        for (to, datagram) in said.0 {
            self.send(BOX, to, datagram);
        }
        for process in 0..self.nodes.len() {
            let node = &mut self.nodes[process];
            if !node.is_crashed {
                node.engine.flush(self.now, &mut node.heard);
                self.settle(process);
            }
        }
    }

    /// Nothing is struck before all have joined for the first time: a job that never began waits
    /// for whoever is missing.
    fn put_off_disasters(&mut self) {
        if self.nodes.iter().all(|node| node.engine.life() > 0) {
            return;
        }
        let later = self.now.0 + PUT_OFF_NS;
        let times = self.restarts.iter_mut().chain(self.death.as_mut().map(|(_, at)| at));
        times.for_each(|at| *at = later.max(*at));
    }

    fn restart_home(&mut self) {
        self.seen.restarts += 1;
        self.home_lives += 1;
        self.note_home();
        let lives = self.home_lives;
        self.home = new_home(self.scenario, &self.table, &self.addrs, lives, self.now);
        if self.log {
            println!("{:>12} the box restarts", self.now.0);
        }
    }

    fn note_home(&mut self) {
        let stats = self.home.stats();
        self.seen.waits += stats.waits;
        self.seen.restored += stats.restored;
        self.seen.taken_back += stats.taken_back;
    }

    /// A process is killed, or cut off for longer than anybody waits.
    fn strike(&mut self, process: usize) {
        if self.scenario.kind == Kind::CutOff {
            self.seen.cut_off += 1;
            self.nodes[process].cut_off_until = self.now.0 + 3 * DEATH_TIMEOUT.0;
        } else {
            self.seen.killed += 1;
            self.nodes[process].is_crashed = true;
        }
        if self.log {
            println!("{:>12} process {process} is struck", self.now.0);
        }
    }

    fn arrive(&mut self, arrival: &Arrival) {
        let Arrival { from, to, datagram, .. } = arrival;
        self.seen.frames += 1;
        self.fingerprint = hash(&[self.fingerprint, self.now.0, digest(datagram)]);
        if self.log {
            let packet = Packet::new_unchecked(&datagram[..]);
            println!("{:>12} {} -> {}: {packet}", self.now.0, name(*from), name(*to));
        }
        let source = if *from == BOX { home_addr() } else { self.addrs[*from] };
        if *to == BOX {
            let mut said = Said::default();
            let _ = self.home.take_datagram(self.now, source, datagram, &mut said);
            for (to, datagram) in said.0 {
                self.send(BOX, to, datagram);
            }
            return;
        }
        let node = &mut self.nodes[*to];
        if !node.is_crashed {
            let _ = node.engine.take_datagram(self.now, source, datagram, &mut node.heard);
            self.settle(*to);
        }
    }

    fn settle(&mut self, process: usize) {
        let node = &mut self.nodes[process];
        node.settle(self.now, &mut self.checkpoint);
        for (to, datagram) in std::mem::take(&mut node.heard.sent) {
            self.send(process, to, datagram);
        }
    }

    fn send(&mut self, from: usize, to: To, datagram: Vec<u8>) {
        let to = match to {
            To::Home => BOX,
            To::Process(process) => usize::from(process),
        };
        let is_cut = |node: usize| node != BOX && self.nodes[node].cut_off_until > self.now.0;
        if is_cut(from) || is_cut(to) {
            return;
        }
        let rates = self.scenario.rates;
        if self.chance(rates.loss) {
            return;
        }
        let copies = 1 + usize::from(self.chance(rates.duplicate));
        for _ in 0..copies {
            let mut span = LATENCY_NS + self.random.next_u64() % JITTER_NS;
            if self.chance(rates.reorder) {
                span += self.random.next_u64() % REORDER_NS;
            }
            if self.chance(rates.delay) {
                let word = self.random.next_u64();
                span += (word >> 20) % (DELAY_NS >> (word % 10));
            }
            let mut datagram = datagram.clone();
            if self.chance(rates.corrupt) {
                corrupt(&mut datagram, self.random.next_u64());
            }
            self.sequence += 1;
            let (at, sequence) = (self.now.0 + span, self.sequence);
            self.queue.push(Reverse(Arrival { at, sequence, from, to, datagram }));
        }
    }

    fn chance(&mut self, rate: f64) -> bool {
        #[expect(clippy::cast_precision_loss, reason = "32 bits fit")]
        let uniform = (self.random.next_u64() >> 32) as f64 / 4_294_967_296.0;
        uniform < rate
    }
}

fn new_home(
    scenario: &Scenario,
    table: &TableConfig,
    addrs: &[UdpAddr],
    life: u64,
    now: Nanos,
) -> Home {
    let config = HomeConfig { table: *table, processes: addrs, death_timeout: DEATH_TIMEOUT };
    let seed = Seed::from(hash(&[scenario.seed, 2, life]));
    Home::new(&config, &seed, now).expect("a good table")
}

fn new_node(scenario: &Scenario, table: &TableConfig, addrs: &[UdpAddr], me: u8) -> Node {
    let config = ProcessConfig {
        table: *table,
        me,
        home: home_addr(),
        processes: addrs,
        mode: scenario.mode,
        has_cache: scenario.has_cache,
        staleness: scenario.staleness,
        limits: scenario.limits,
        resend_min: Nanos::from_millis(1),
        resend_max: Nanos::from_millis(16),
        beat: BEAT,
    };
    let life = hash(&[scenario.seed, 3, me.into()]);
    let store = OwnStore::new(table);
    let engine = Process::new(&config, store, life, Nanos(0)).expect("a good table");
    let first = usize::from(me) * scenario.sessions;
    let numbers = first..first + scenario.sessions;
    let sessions = numbers.map(|number| Session::new(scenario, number)).collect();
    let (clock_at, rows_of_clocks) = (0, Vec::new());
    let heard = Heard::default();
    Node { engine, heard, sessions, is_crashed: false, clock_at, rows_of_clocks, cut_off_until: 0 }
}

fn addr(process: u8) -> UdpAddr {
    SocketAddr::from((Ipv4Addr::new(10, 0, 0, process + 1), 7_000)).into()
}

fn home_addr() -> UdpAddr {
    SocketAddr::from((Ipv4Addr::new(10, 0, 1, 1), 7_000)).into()
}

fn name(node: usize) -> String {
    if node == BOX { "box".to_owned() } else { format!("p{node}") }
}

fn digest(datagram: &[u8]) -> u64 {
    let words = datagram
        .chunks(8)
        .map(|chunk| chunk.iter().fold(0, |word, byte| word << 8 | u64::from(*byte)));
    words.fold(datagram.len() as u64, |hash, word| {
        SplitMix64::new(hash ^ word.rotate_left(7)).next_u64()
    })
}
