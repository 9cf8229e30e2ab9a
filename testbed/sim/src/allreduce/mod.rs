//! Deterministic simulation: the real engines in virtual time, one seed at a time.
//!
//! A [`run`] is a function of its [`scenario::Scenario`]: an event queue by time, the boxes'
//! [`weft_engine::role::aggregator::Aggregator`]s and the members'
//! [`weft_engine::role::worker::Worker`]s, a wire that loses, repeats, reorders, delays and
//! damages frames, and an enemy who adds his own. It judges every sum against plain loops (I1,
//! I2), every hostile frame against the slots (I6, I7), how the run ends against what the
//! scenario allows (I9), and gives a hash of all frames with their times (I10).

pub mod data;
pub mod judge;
pub mod node;
pub mod scenario;
pub mod topology;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::IpAddr;

use weft_wire::Nanos;
use weft_wire::frame::Udp;

use crate::coverage::Coverage;
use crate::hash;
use crate::hostile::Enemy;
use crate::network::Network;
use crate::transcript::Fingerprint;
use node::{BoxNode, MemberNode};
use scenario::{Action, Kind, Scenario};

/// What came of a run.
#[derive(Debug)]
pub struct Report {
    /// Of all frames, events and messages, with their times.
    pub fingerprint: Fingerprint,
    /// What was provoked.
    pub coverage: Coverage,
    /// The members as they ended.
    pub members: Vec<MemberNode>,
    /// When the run ended.
    pub ended_at: Nanos,
    /// What the invariants say against it; empty is good.
    pub violations: Vec<String>,
}

/// Runs a scenario. `log` prints every frame.
#[must_use]
pub fn run(scenario: &Scenario, log: bool) -> Report {
    let mut world = World::new(scenario, log);
    world.run();
    world.finish()
}

/// What happens next at a node.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Next {
    Act(usize),
    Wake { node: usize },
    Arrive { node: usize, frame: Vec<u8>, hostile: bool },
    Flood { member: usize },
}

struct World<'a> {
    scenario: &'a Scenario,
    now: Nanos,
    boxes: Vec<BoxNode>,
    members: Vec<MemberNode>,
    /// Time and sequence number, then what.
    queue: BinaryHeap<Reverse<(Nanos, u64, Next)>>,
    sequence: u64,
    /// When each node wakes next; other wakes in the queue are out of date.
    wake_at: Vec<Nanos>,
    /// Times in a row that a node woke at the same instant.
    spins: Vec<u32>,
    /// Cues that wait for their number of sums.
    cues: Vec<usize>,
    network: Network,
    enemy: Enemy,
    coverage: Coverage,
    violations: Vec<String>,
    log: bool,
}

impl<'a> World<'a> {
    fn new(scenario: &'a Scenario, log: bool) -> Self {
        let boxes: Vec<_> =
            (0..scenario.boxes()).map(|index| BoxNode::new(scenario, index)).collect();
        let seats = topology::seats(scenario).into_iter().enumerate();
        let members: Vec<_> =
            seats.map(|(index, seat)| MemberNode::new(scenario, index, seat)).collect();
        let nodes = boxes.len() + members.len();
        let mut world = Self {
            scenario,
            now: Nanos(0),
            boxes,
            members,
            queue: BinaryHeap::new(),
            sequence: 0,
            wake_at: vec![Nanos::MAX; nodes],
            spins: vec![0; nodes],
            cues: (0..scenario.cues.len()).collect(),
            network: Network::new(scenario.seed, scenario.rates, log),
            enemy: Enemy::new(scenario),
            coverage: Coverage::of_one_seed(),
            violations: Vec::new(),
            log,
        };
        for index in 0..world.members.len() {
            // Members start within a millisecond of each other.
            let at = Nanos(hash(&[scenario.seed, 5, index as u64]) % 1_000_000);
            world.members[index].start(at);
            world.plan_wake(world.boxes.len() + index, at);
        }
        world
    }

    fn push(&mut self, at: Nanos, next: Next) {
        self.sequence += 1;
        self.queue.push(Reverse((at, self.sequence, next)));
    }

    fn plan_wake(&mut self, node: usize, at: Nanos) {
        if at != Nanos::MAX && self.wake_at[node] != at {
            self.wake_at[node] = at;
            self.push(at, Next::Wake { node });
        } else {
            self.wake_at[node] = at;
        }
    }

    fn run(&mut self) {
        self.cue();
        while let Some(Reverse((at, _, next))) = self.queue.pop() {
            self.now = at;
            if at > LIMIT {
                let waiting = self.members.iter().filter(|member| !member.is_done()).count();
                self.violations.push(format!("{waiting} members still run after {LIMIT:?}"));
                return;
            }
            match next {
                Next::Act(cue) => self.act(self.scenario.cues[cue].action),
                Next::Wake { node } => self.wake(node),
                Next::Arrive { node, frame, hostile } => self.arrive(node, frame, hostile),
                Next::Flood { member } => self.flood(member),
            }
            if self.is_over() {
                return;
            }
        }
        self.violations.push("nothing happens any more and members wait".to_owned());
    }

    /// True when every member has ended that the scenario wants an end of.
    fn is_over(&self) -> bool {
        let greedy = self.scenario.kind == Kind::Greedy;
        let mut counted = self.members.iter().filter(|member| !greedy || member.seat.job > 0);
        if !counted.all(|member| member.is_done() && member.timeout() == Nanos::MAX) {
            return false;
        }
        // No cue will start a member again.
        let starts = |cue: &usize| matches!(self.scenario.cues[*cue].action, Action::Start { .. });
        let queued = self.queue.iter().any(|Reverse((_, _, next))| match next {
            Next::Act(cue) => starts(cue),
            _ => false,
        });
        !queued
    }

    /// Plans the actions whose number of sums has been reached.
    fn cue(&mut self) {
        let sums: u32 = self.members.iter().map(|member| member.data.sum_count).sum();
        let (due, waiting) =
            self.cues.iter().partition(|cue| self.scenario.cues[**cue].sums <= sums);
        self.cues = waiting;
        let due: Vec<usize> = due;
        for cue in due {
            let at = self.now.saturating_add(self.scenario.cues[cue].delay);
            self.push(at, Next::Act(cue));
        }
    }

    fn act(&mut self, action: Action) {
        if self.log {
            println!("{:>12} {action:?}", self.now.0);
        }
        match action {
            Action::RestartBox { index, pause } => {
                self.coverage.fault(if index == 0 { "restart_root" } else { "restart_leaf" });
                let until = self.now.saturating_add(pause);
                self.boxes[index].restart(until, &mut self.coverage);
                self.plan_wake(index, until);
            }
            Action::Kill { member } => {
                self.coverage.fault("kill");
                self.members[member].kill(self.now, &mut self.coverage);
            }
            Action::Start { member } => {
                self.coverage.fault("return");
                self.members[member].start(self.now);
                self.plan_wake(self.boxes.len() + member, self.now);
            }
            Action::Pause { member, span } => {
                self.coverage.fault("pause");
                self.members.iter_mut().for_each(MemberNode::note_retransmissions);
                self.members[member].paused_until = self.now.saturating_add(span);
            }
            Action::Flood { member } => {
                self.coverage.fault("flood");
                self.push(self.now, Next::Flood { member });
            }
        }
    }

    fn wake(&mut self, node: usize) {
        if self.wake_at[node] != self.now {
            return;
        }
        self.wake_at[node] = Nanos::MAX;
        let Some(index) = node.checked_sub(self.boxes.len()) else {
            if self.now >= self.boxes[node].down_until {
                let out = self.boxes[node].poll(self.now);
                self.send_all(node, out);
            }
            return self.settle(node);
        };
        if let Some(later) = self.paused(index) {
            return self.plan_wake(node, later);
        }
        self.poll_member(index);
    }

    fn paused(&self, member: usize) -> Option<Nanos> {
        let until = self.members[member].paused_until;
        (self.now < until).then_some(until)
    }

    fn poll_member(&mut self, index: usize) {
        let node = self.boxes.len() + index;
        let transcript = self.network.transcript();
        let out = self.members[index].poll(self.now, &mut self.coverage, transcript);
        self.send_all(node, out);
        self.cue();
        self.settle(node);
    }

    /// Plans a node's next wake, and notices one that never sleeps.
    fn settle(&mut self, node: usize) {
        let timeout = match node.checked_sub(self.boxes.len()) {
            None => self.boxes[node].timeout().max(self.boxes[node].down_until),
            Some(index) => self.members[index].timeout(),
        };
        if timeout <= self.now {
            self.spins[node] += 1;
            if self.spins[node] > SPINS_MAX {
                self.violations.push(format!("node {node} is due at {timeout:?} for ever"));
                return self.plan_wake(node, self.now.saturating_add(Nanos::from_millis(1)));
            }
        } else {
            self.spins[node] = 0;
        }
        self.plan_wake(node, timeout.max(self.now));
    }

    fn arrive(&mut self, node: usize, mut frame: Vec<u8>, hostile: bool) {
        if let Some(index) = node.checked_sub(self.boxes.len()) {
            if let Some(later) = self.paused(index) {
                return self.push(later, Next::Arrive { node, frame, hostile });
            }
            self.network.arrive(self.now, node, &frame, hostile);
            self.coverage.frames += 1;
            let before = frame.clone();
            self.members[index].handle(self.now, &mut frame);
            if frame != before {
                self.violations.push("a worker did not put a frame's octets back".to_owned());
            }
            return self.poll_member(index);
        }
        if self.now < self.boxes[node].down_until {
            return;
        }
        self.network.arrive(self.now, node, &frame, hostile);
        self.coverage.frames += 1;
        let before = hostile.then(|| self.boxes[node].snapshot(&frame));
        let out = self.boxes[node].handle(self.now, &frame);
        if before.is_some_and(|before| before != self.boxes[node].snapshot(&frame)) {
            let at = self.now;
            self.violations.push(format!("a hostile frame changed a slot of box {node} at {at:?}"));
        }
        self.send_all(node, out);
        self.settle(node);
    }

    fn send_all(&mut self, node: usize, out: Vec<Vec<u8>>) {
        for frame in out {
            let udp = Udp::parse(&frame).expect("the engines send whole datagrams");
            let Some(target) = self.node_at(udp.target.ip()) else {
                self.violations.push(format!("node {node} sends to {}", udp.target));
                continue;
            };
            let link = node * self.wake_at.len() + target;
            if let Some((delay, bad)) = self.enemy.answer(&frame, target < self.boxes.len()) {
                self.coverage.fault("hostile");
                let at = self.now.saturating_add(delay);
                self.push(at, Next::Arrive { node: target, frame: bad, hostile: true });
            }
            for passing in self.network.send(self.now, link, frame, &mut self.coverage) {
                let next = Next::Arrive { node: target, frame: passing.frame, hostile: false };
                self.push(passing.at, next);
            }
        }
    }

    fn flood(&mut self, member: usize) {
        let target = self.members[member].seat.box_index;
        if let Some(frame) = self.enemy.flood() {
            self.push(self.now, Next::Arrive { node: target, frame, hostile: false });
        }
        let at = self.now.saturating_add(FLOOD_INTERVAL);
        self.push(at, Next::Flood { member });
    }

    fn node_at(&self, ip: IpAddr) -> Option<usize> {
        let boxes = (0..self.boxes.len()).map(topology::box_endpoint);
        let members = (0..self.members.len()).map(topology::member_endpoint);
        boxes.chain(members).position(|endpoint| endpoint.addr.ip() == ip)
    }

    fn finish(mut self) -> Report {
        self.boxes.iter().for_each(|node| node.retire(&mut self.coverage));
        for member in &mut self.members {
            member.retire(&mut self.coverage);
        }
        let mut report = Report {
            fingerprint: self.network.transcript().fingerprint(),
            coverage: self.coverage,
            members: self.members,
            ended_at: self.now,
            violations: self.violations,
        };
        let verdict = judge::judge(self.scenario, &report);
        report.violations.extend(verdict);
        report
    }
}

/// Every run ends before this (I9).
const LIMIT: Nanos = Nanos::from_millis(300_000);
/// Times in a row that a node may be due at one instant.
const SPINS_MAX: u32 = 8;
/// Pause between the frames of a flood.
const FLOOD_INTERVAL: Nanos = Nanos::from_micros(20);
