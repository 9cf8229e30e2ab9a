//! Deterministic simulation of a parameter server job: the real engines of workers, aggregators,
//! server and replica, and a controller, in virtual time, one seed at a time.
//!
//! A [`run`] is a function of its [`scenario::Scenario`]: an event queue by time, a wire that loses,
//! repeats, reorders, delays and damages frames, nodes that restart. After every step the
//! [`judge::Judge`] compares order, models, replica, delays and what workers are told with plain
//! loops (I1 to I6); that it ends is I9, and a hash of all frames with their times I10.

pub mod judge;
pub mod node;
pub mod planner;
pub mod scenario;
pub mod topology;
pub mod worker;

use std::collections::BTreeMap;

use weft_engine::push::{Command, Decision, ROW_DIRECT};
use weft_engine::role::push::Grant;
use weft_wire::Nanos;
use weft_wire::frame::Udp;
use weft_wire::header::{Kind as FrameKind, Packet};

use crate::sim::coverage::Coverage;
use crate::sim::hash;
use crate::sim::network::Network;
use judge::Judge;
use node::BoxNode;
use planner::{Act, Planner, Request};
use scenario::{Action, Kind, Scenario};
use worker::{Said, WorkerNode};

/// What came of a run.
#[derive(Debug)]
pub struct Report {
    /// Hash of every frame that arrived anywhere, and when.
    pub transcript: u64,
    /// What was provoked.
    pub coverage: Coverage,
    /// Version and weights of each job's model.
    pub models: Vec<(u64, Vec<u32>)>,
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

#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "one at a time")]
enum Next {
    Act(usize),
    Wake { node: usize },
    Arrive { node: usize, frame: Vec<u8> },
    Command { node: usize, command: Command },
    Grant { request: Request, grant: Grant },
    Outcome { request: Request, decision: Decision },
    Request { request: Request },
    Plan,
}

struct World<'a> {
    scenario: &'a Scenario,
    now: Nanos,
    boxes: Vec<BoxNode>,
    workers: Vec<WorkerNode>,
    planner: Planner,
    judge: Judge,
    /// By time and sequence number.
    queue: BTreeMap<(Nanos, u64), Next>,
    sequence: u64,
    wake_at: Vec<Nanos>,
    spins: Vec<u32>,
    cues: Vec<usize>,
    network: Network,
    coverage: Coverage,
    log: bool,
}

impl<'a> World<'a> {
    fn new(scenario: &'a Scenario, log: bool) -> Self {
        let boxes: Vec<_> =
            (0..scenario.boxes()).map(|node| BoxNode::new(scenario, node)).collect();
        let mut workers = Vec::new();
        for job in 0..scenario.jobs {
            for rank in 0..scenario.workers {
                let at = hash(&[scenario.seed, 5, job as u64, rank as u64]) % 1_000_000;
                workers.push(WorkerNode::new(scenario, job, rank, Nanos(at)));
            }
        }
        let nodes = boxes.len() + workers.len();
        let mut world = Self {
            scenario,
            now: Nanos(0),
            boxes,
            workers,
            planner: Planner::new(scenario),
            judge: Judge::new(scenario),
            queue: BTreeMap::new(),
            sequence: 0,
            wake_at: vec![Nanos::MAX; nodes],
            spins: vec![0; nodes],
            cues: (0..scenario.cues.len()).collect(),
            network: Network::new(scenario.seed, scenario.rates, log),
            coverage: Coverage::of_one_seed(),
            log,
        };
        (0..nodes).for_each(|node| world.settle(node));
        if scenario.kind != Kind::Direct {
            world.push(Nanos(0), Next::Plan);
        }
        world
    }

    fn push(&mut self, at: Nanos, next: Next) {
        self.sequence += 1;
        self.queue.insert((at, self.sequence), next);
    }

    /// Reliable words between controller and nodes take this long.
    fn later(&self, salt: u64) -> Nanos {
        let span = 30_000 + hash(&[self.scenario.seed, 7, salt, self.sequence]) % 400_000;
        self.now.saturating_add(Nanos(span))
    }

    fn run(&mut self) {
        self.cue();
        while let Some(((at, _), next)) = self.queue.pop_first() {
            self.now = at;
            if at > LIMIT {
                let waiting: Vec<_> = self
                    .workers
                    .iter()
                    .filter(|worker| !worker.is_done(self.scenario))
                    .map(|worker| (worker.job, worker.rank, worker.offers.len()))
                    .collect();
                let text = format!("not over after {LIMIT:?}: {waiting:?}");
                self.judge.violations.push(text);
                return;
            }
            self.step(next);
            self.judge.models(self.scenario, &self.boxes);
            if self.is_over() || self.judge.violations.len() > 8 {
                return;
            }
        }
        self.judge.violations.push("nothing happens any more".to_owned());
    }

    fn is_over(&self) -> bool {
        self.workers.iter().all(|worker| worker.is_done(self.scenario))
            && self.judge.is_followed(self.scenario, &self.boxes)
    }

    fn step(&mut self, next: Next) {
        match next {
            Next::Act(cue) => self.act(self.scenario.cues[cue].action),
            Next::Wake { node } => {
                if self.wake_at[node] == self.now {
                    self.wake_at[node] = Nanos::MAX;
                    self.poll(node);
                }
            }
            Next::Arrive { node, frame } => self.arrive(node, &frame),
            Next::Command { node, command } => {
                if self.log {
                    println!("{:>12} node {node}: {command:?}", self.now.0);
                }
                if self.now >= self.boxes[node].down_until {
                    self.boxes[node].command(self.now, command);
                    self.poll(node);
                }
            }
            Next::Request { request } => self.planner.request(request),
            Next::Grant { request, grant } => {
                if let Some(index) = self.present(&request) {
                    self.workers[index].grant(self.now, request.offer.uid.number, &grant);
                    self.poll(self.boxes.len() + index);
                }
            }
            Next::Outcome { request, decision } => {
                if let Some(index) = self.present(&request) {
                    self.workers[index].outcome(request.offer.uid.number, decision);
                    self.poll(self.boxes.len() + index);
                }
            }
            Next::Plan => {
                self.planner.tick(self.scenario, self.now);
                self.carry_out();
                self.push(self.now.saturating_add(PLAN_EVERY), Next::Plan);
            }
        }
    }

    /// The worker that asked, if it is the same life still.
    fn present(&self, request: &Request) -> Option<usize> {
        let uid = request.offer.uid;
        let index = uid.job * self.scenario.workers + uid.rank;
        let worker = &self.workers[index];
        (worker.life == request.life && self.now >= worker.down_until).then_some(index)
    }

    fn arrive(&mut self, node: usize, frame: &[u8]) {
        let now = self.now;
        let Some(index) = node.checked_sub(self.boxes.len()) else {
            if now >= self.boxes[node].down_until {
                self.network.arrive(now, node, frame, false);
                self.coverage.frames += 1;
                let out = self.boxes[node].handle(now, frame);
                self.send_all(node, out);
                self.poll(node);
            }
            return;
        };
        if now >= self.workers[index].down_until {
            self.network.arrive(now, node, frame, false);
            self.coverage.frames += 1;
            let _ = self.workers[index].pusher.handle_frame(now, &mut frame.to_vec());
            self.poll(node);
        }
    }

    fn poll(&mut self, node: usize) {
        let now = self.now;
        let Some(index) = node.checked_sub(self.boxes.len()) else {
            if now >= self.boxes[node].down_until {
                let out = self.boxes[node].poll(now);
                self.send_all(node, out);
                self.take_events(node);
            }
            return self.settle(node);
        };
        if now >= self.workers[index].down_until {
            let (out, said) = self.workers[index].poll(self.scenario, now);
            self.note_direct(index, &out);
            self.send_all(node, out);
            said.into_iter().for_each(|said| self.hear(index, said));
        }
        self.settle(node);
    }

    fn take_events(&mut self, node: usize) {
        while let Some((job, event)) = self.boxes[node].event() {
            if self.log {
                println!("{:>12} node {node}: job {}: {event:?}", self.now.0, job.0);
            }
            if node == self.scenario.server() {
                self.judge.server_event(self.scenario, job, &event);
                self.cue();
            }
            self.planner.event(self.scenario, self.now, node, job, &event);
        }
        self.carry_out();
    }

    fn hear(&mut self, index: usize, said: Said) {
        let life = self.workers[index].life;
        if self.log {
            println!("{:>12} worker {index}: {said:?}", self.now.0);
        }
        match said {
            Said::Request(offer) => {
                let at = self.later(1);
                self.push(at, Next::Request { request: Request { offer, life } });
            }
            Said::Told(uid, decision) => self.judge.told(uid, decision),
            Said::Failed(what) => self.judge.violations.push(format!("worker {index}: {what}")),
        }
    }

    /// Carries the controller's words to the nodes.
    fn carry_out(&mut self) {
        for act in std::mem::take(&mut self.planner.acts) {
            // One connection per node keeps its words in order.
            let at = self.now.saturating_add(COMMAND_SPAN);
            match act {
                Act::Group { job, group, offers } => self.judge.group(job, group, offers),
                Act::Command { node, command } => self.push(at, Next::Command { node, command }),
                Act::Grant { request, grant } => {
                    let at = self.later(2);
                    self.push(at, Next::Grant { request, grant });
                }
                Act::Outcome { request, decision } => {
                    let at = self.later(3);
                    self.push(at, Next::Outcome { request, decision });
                }
            }
        }
    }

    /// The group of a direct update is the worker's choice; its first question tells it.
    fn note_direct(&mut self, index: usize, frames: &[Vec<u8>]) {
        if self.scenario.kind != Kind::Direct {
            return;
        }
        let worker = &self.workers[index];
        for frame in frames {
            let Ok(udp) = Udp::parse(frame) else { continue };
            let packet = Packet::new_unchecked(&frame[udp.payload_range()]);
            let group = packet.group();
            let row = usize::from(group.row().wrapping_sub(ROW_DIRECT));
            if packet.kind() != Some(FrameKind::Status) || row != worker.rank {
                continue;
            }
            let known = self.judge.direct_groups(worker.job, worker.rank);
            let fresh = worker.offers.iter().find(|(offer, _)| !known.contains(&offer.uid));
            if let Some((offer, _)) = fresh {
                self.judge.group(worker.job, group, vec![offer.clone()]);
            }
        }
    }

    fn cue(&mut self) {
        let decided = self.judge.decided;
        let (due, waiting): (Vec<usize>, Vec<usize>) =
            self.cues.iter().partition(|cue| self.scenario.cues[**cue].decided <= decided);
        self.cues = waiting;
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
            Action::RestartBox { node, pause } => {
                let until = self.now.saturating_add(pause);
                if node == self.scenario.server() {
                    self.coverage.fault("restart_server");
                    self.judge.server_restarted();
                    self.planner.server_lost(self.scenario, self.now);
                    self.carry_out();
                } else if Some(node) == self.scenario.replica() {
                    self.coverage.fault("restart_replica");
                    self.judge.replica_restarted();
                } else {
                    self.coverage.fault("restart_aggregator");
                }
                self.boxes[node].restart(self.scenario, until, &mut self.coverage);
                self.settle(node);
            }
            Action::RestartWorker { worker, pause } => {
                self.coverage.fault("restart_worker");
                let until = self.now.saturating_add(pause);
                let (job, rank) = (self.workers[worker].job, self.workers[worker].rank);
                self.workers[worker].restart(self.scenario, until, &mut self.coverage);
                self.planner.lost(self.scenario, job, rank);
                self.carry_out();
                self.settle(self.boxes.len() + worker);
            }
            Action::RestartController => {
                self.coverage.fault("restart_controller");
                self.planner.restart();
                // Who was not granted asks again.
                for index in 0..self.workers.len() {
                    let worker = &self.workers[index];
                    let waiting = worker.offers.iter().filter(|(_, granted)| !granted);
                    let waiting: Vec<_> = waiting.map(|(offer, _)| offer.clone()).collect();
                    waiting.into_iter().for_each(|offer| self.hear(index, Said::Request(offer)));
                }
            }
        }
    }

    fn send_all(&mut self, from: usize, frames: Vec<Vec<u8>>) {
        let nodes = self.boxes.len() + self.workers.len();
        for frame in frames {
            let target = Udp::parse(&frame).expect("the engines send whole datagrams").target;
            let Some(to) = topology::node_at(self.scenario, target) else {
                let text = format!("node {from} sends to {target}, which is nobody's");
                self.judge.violations.push(text);
                continue;
            };
            let link = from * nodes + to;
            for passing in self.network.send(self.now, link, frame, &mut self.coverage) {
                self.push(passing.at, Next::Arrive { node: to, frame: passing.frame });
            }
        }
    }

    /// Plans a node's next wake, and notices one that never sleeps.
    fn settle(&mut self, node: usize) {
        let timeout = match node.checked_sub(self.boxes.len()) {
            None => self.boxes[node].timeout(),
            Some(index) => self.workers[index].timeout(),
        };
        if timeout <= self.now {
            self.spins[node] += 1;
            if self.spins[node] > SPINS_MAX {
                let text = format!("node {node} is due at {timeout:?} for ever");
                self.judge.violations.push(text);
            }
        } else {
            self.spins[node] = 0;
        }
        let at = timeout.max(self.now);
        if timeout != Nanos::MAX && self.wake_at[node] != at {
            self.push(at, Next::Wake { node });
        }
        self.wake_at[node] = if timeout == Nanos::MAX { timeout } else { at };
    }

    fn finish(mut self) -> Report {
        for index in 0..self.boxes.len() {
            self.boxes[index].count(&mut self.coverage);
        }
        for index in 0..self.workers.len() {
            self.workers[index].count(&mut self.coverage);
        }
        self.coverage.add("judge", "decided", self.judge.decided);
        self.coverage.add("judge", "forgotten", self.judge.forgotten);
        Report {
            transcript: self.network.transcript(),
            coverage: self.coverage,
            models: self.judge.digest(),
            ended_at: self.now,
            violations: self.judge.violations,
        }
    }
}

/// A run that takes longer has failed.
const LIMIT: Nanos = Nanos::from_millis(300_000);
const PLAN_EVERY: Nanos = Nanos::from_micros(700);
const COMMAND_SPAN: Nanos = Nanos::from_micros(150);
const SPINS_MAX: u32 = 1_000;
