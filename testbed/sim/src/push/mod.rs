//! Deterministic simulation of a parameter server job: the real engines of workers, aggregators,
//! server and replica, and a controller, in virtual time, one seed at a time.
//!
//! A [`run`] is a function of its [`scenario::Scenario`]: an event queue by time, a wire that
//! loses, repeats, reorders, delays and damages frames, an enemy who adds his own, nodes that
//! restart. After every step the [`judge::Judge`] compares order, models, replica, delays, leases
//! and what workers are told with plain loops (I1 to I6), and what a forged frame leaves with what
//! there was (I7); that it ends is I9, and a hash of all frames with their times I10.
//!
//! A server may die for good: the judge then goes on with what its replica has.
//!
//! | who plans | where |
//! | --- | --- |
//! | the controller's engine, over streams that break, on links with rates | [`steward`], [`agent`], [`wires`], [`crate::links`], `control` |
//! | a script, with stranger plans | [`planner`], `script` |
//! | nobody | [`worker`] |

pub mod agent;
pub mod application;
mod control;
pub mod downlink;
mod faults;
pub mod fingerprint;
mod heir;
pub mod judge;
pub mod node;
pub mod planner;
pub mod rogue;
pub mod scenario;
mod script;
pub mod site;
pub mod steward;
pub mod topology;
pub mod wires;
pub mod worker;

use std::collections::BTreeMap;

use weft_wire::Nanos;
use weft_wire::frame::Udp;

use crate::coverage::Coverage;
use crate::hash;
use crate::hostile::Enemy;
use crate::links::{HostLink, Links};
use crate::network::Network;
use crate::transcript::Fingerprint;
use application::{Application, Seeded};
use downlink::Downlink;
use judge::Judge;
use node::BoxNode;
use planner::Planner;
use rogue::Rogue;
use scenario::{Control, Scenario};
use steward::Steward;
use wires::Wires;
use worker::{Said, WorkerNode};

/// What came of a run.
#[derive(Debug)]
pub struct Report {
    /// Of all frames, events and messages, with their times.
    pub fingerprint: Fingerprint,
    /// What was provoked.
    pub coverage: Coverage,
    /// Version and weights of each job's model.
    pub models: Vec<(u64, Vec<u32>)>,
    /// Events that happened.
    pub events: u64,
    /// When the run ended.
    pub ended_at: Nanos,
    /// What the server's downlink did, at each decision.
    pub downlink: Vec<Downlink>,
    /// What the invariants say against it; empty is good.
    pub violations: Vec<String>,
}

/// Runs a scenario whose workers compute what its seed says. `log` prints every frame.
#[must_use]
pub fn run(scenario: &Scenario, log: bool) -> Report {
    run_for(scenario, &mut Seeded(scenario), log)
}

/// Runs a scenario for an application.
#[must_use]
pub fn run_for(scenario: &Scenario, app: &mut dyn Application, log: bool) -> Report {
    let mut world = World::new(scenario, app, log);
    world.run();
    world.finish()
}

#[derive(Debug)]
enum Next {
    Act(usize),
    Wake { node: usize },
    Arrive { node: usize, frame: Vec<u8>, is_forged: bool },
    Announce { frame: Vec<u8> },
    Script(Box<script::Word>),
    Control(Box<control::Word>),
}

struct World<'a> {
    scenario: &'a Scenario,
    app: &'a mut dyn Application,
    now: Nanos,
    boxes: Vec<BoxNode>,
    workers: Vec<WorkerNode>,
    /// One of the two plans.
    planner: Planner,
    steward: Steward,
    steward_at: Nanos,
    wires: Wires,
    links: Links,
    enemy: Enemy,
    rogue: Rogue,
    judge: Judge,
    downlink: Downlink,
    downlinks: Vec<Downlink>,
    /// By time and sequence number.
    queue: BTreeMap<(Nanos, u64), Next>,
    sequence: u64,
    /// Taken off the queue.
    events: u64,
    wake_at: Vec<Nanos>,
    spins: Vec<u32>,
    cues: Vec<usize>,
    network: Network,
    coverage: Coverage,
    log: bool,
}

impl<'a> World<'a> {
    fn new(scenario: &'a Scenario, app: &'a mut dyn Application, log: bool) -> Self {
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
        let links = match (&scenario.site, scenario.control) {
            (Some(site), _) => Links::new(&site.links, &site.racks),
            (None, Control::Engine) => {
                let rates = steward::host_rates(scenario).into_iter();
                let link =
                    |rates: [u64; 2]| HostLink { rates: rates.map(Some), ..HostLink::default() };
                Links::new(&rates.map(link).collect::<Vec<_>>(), &[])
            }
            (None, Control::Script | Control::Nobody) => Links::default(),
        };
        let network = Network::new(scenario.seed, scenario.rates, log);
        let mut world = Self {
            scenario,
            app,
            now: Nanos(0),
            boxes,
            workers,
            planner: Planner::new(scenario),
            steward: Steward::new(scenario),
            steward_at: Nanos::MAX,
            wires: Wires::new(scenario.seed, nodes),
            links,
            enemy: Enemy::of_push(hash(&[scenario.seed, 666]), scenario.hostile),
            rogue: Rogue::new(scenario),
            judge: Judge::new(scenario),
            downlink: Downlink::default(),
            downlinks: Vec::new(),
            queue: BTreeMap::new(),
            sequence: 0,
            events: 0,
            wake_at: vec![Nanos::MAX; nodes],
            spins: vec![0; nodes],
            cues: (0..scenario.cues.len()).collect(),
            network: if scenario.site.is_some() { network.in_order() } else { network },
            coverage: Coverage::of_one_seed(),
            log,
        };
        (0..nodes).for_each(|node| world.settle(node));
        match scenario.control {
            Control::Nobody => {}
            Control::Script => world.push(Nanos(0), Next::Script(Box::new(script::Word::Plan))),
            Control::Engine => world.begin_control(),
        }
        world
    }

    fn push(&mut self, at: Nanos, next: Next) {
        self.sequence += 1;
        self.queue.insert((at, self.sequence), next);
    }

    fn run(&mut self) {
        self.cue();
        while let Some(((at, _), next)) = self.queue.pop_first() {
            let is_wanted = self.workers.iter().any(|worker| !worker.entries.is_empty());
            let (carried_bytes, _) = self.links.carried(self.scenario.server());
            self.downlink.go_on(at, is_wanted, carried_bytes);
            self.now = at;
            self.events += 1;
            if at > LIMIT && self.scenario.site.is_none() {
                let waiting: Vec<_> = self
                    .workers
                    .iter()
                    .filter(|worker| !worker.is_done())
                    .map(|worker| (worker.job, worker.rank, worker.entries.len()))
                    .collect();
                let text = format!("not over after {LIMIT:?}: {waiting:?}");
                self.judge.violations.push(text);
                return;
            }
            self.step(next);
            if self.scenario.site.is_none() {
                self.judge.models(self.scenario, &self.boxes);
            }
            while let Some(action) = self.app.poll_action(self.now) {
                self.act(action);
            }
            if self.is_over() || self.judge.violations.len() > 8 || self.app.is_over(self.now) {
                return;
            }
        }
        self.judge.violations.push("nothing happens any more".to_owned());
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
            Next::Arrive { node, frame, is_forged: false } => self.arrive(node, &frame),
            Next::Arrive { node, frame, is_forged: true } => self.endure(node, &frame),
            Next::Announce { frame } => {
                if self.rogue.is_planned(&frame) {
                    self.coverage.fault("announced");
                    self.endure(self.scenario.server(), &frame);
                }
            }
            Next::Script(word) => self.script(*word),
            Next::Control(word) => self.control(*word),
        }
    }

    fn is_away(&self, node: usize) -> bool {
        let down_until = match node.checked_sub(self.boxes.len()) {
            None => self.boxes[node].down_until,
            Some(index) => self.workers[index].down_until,
        };
        self.now < down_until
    }

    fn arrive(&mut self, node: usize, frame: &[u8]) {
        if !self.is_away(node) {
            self.network.arrive(self.now, node, frame, false);
            self.coverage.frames += 1;
            self.take_frame(node, frame);
            self.poll(node);
        }
    }

    fn take_frame(&mut self, node: usize, frame: &[u8]) {
        let now = self.now;
        match node.checked_sub(self.boxes.len()) {
            None => {
                if self.scenario.has_trains() {
                    self.boxes[node].note_arrival(now);
                }
                let out = self.boxes[node].handle(now, frame);
                self.send_all(node, out);
            }
            Some(index) => {
                let _ = self.workers[index].pusher.handle_frame(now, &mut frame.to_vec());
            }
        }
    }

    /// A forged frame comes: it may be answered, and changes nothing.
    fn endure(&mut self, node: usize, frame: &[u8]) {
        if self.is_away(node) {
            return;
        }
        self.network.arrive(self.now, node, frame, true);
        self.coverage.fault("forged");
        let before = self.fingerprint(node);
        self.take_frame(node, frame);
        if self.fingerprint(node) != before {
            let at = self.now;
            self.judge.violations.push(format!("at {at:?} a forged frame changed node {node}"));
        }
        self.poll(node);
    }

    fn fingerprint(&self, node: usize) -> u64 {
        match node.checked_sub(self.boxes.len()) {
            None => fingerprint::of_box(self.scenario, &self.boxes[node].engine),
            Some(index) => fingerprint::of_worker(&self.workers[index].pusher),
        }
    }

    fn poll(&mut self, node: usize) {
        let now = self.now;
        let Some(index) = node.checked_sub(self.boxes.len()) else {
            if now >= self.boxes[node].down_until {
                let out = self.boxes[node].poll(now);
                self.send_all(node, out);
                self.take_events(node);
                if self.scenario.site.is_none() {
                    self.judge.leases(self.scenario, &self.boxes[node].engine);
                }
            }
            return self.settle(node);
        };
        if now >= self.workers[index].down_until {
            let (out, said) = self.workers[index].poll(self.scenario, now, self.app);
            self.send_all(node, out);
            said.into_iter().for_each(|said| self.hear(index, said));
        }
        self.settle(node);
    }

    fn take_events(&mut self, node: usize) {
        while let Some((job, event)) = self.boxes[node].event() {
            self.network.transcript().note_event(self.now, node, &(job, &event));
            if self.log {
                println!("{:>12} node {node}: job {}: {event:?}", self.now.0, job.0);
            }
            let (rx_bytes, _) = self.links.carried(node);
            self.app.box_event(self.now, node, rx_bytes, (job, &event));
            if node >= self.scenario.server() {
                self.judge.box_event(self.scenario, node, job, &event);
                let new = self.judge.decided - self.downlinks.len() as u64;
                self.downlinks.extend((0..new).map(|_| self.downlink));
                self.cue();
            }
            match self.scenario.control {
                Control::Nobody => {}
                Control::Script => {
                    self.planner.event(self.scenario, self.now, node, job, &event);
                }
                Control::Engine => self.boxes[node].agent.note_event(job, event),
            }
        }
        match self.scenario.control {
            Control::Nobody => {}
            Control::Script => self.carry_out(),
            Control::Engine => self.report(node),
        }
    }

    fn hear(&mut self, index: usize, said: Said) {
        self.network.transcript().note_event(self.now, self.boxes.len() + index, &said);
        if self.log {
            println!("{:>12} worker {index}: {said:?}", self.now.0);
        }
        self.app.said(self.now, self.workers[index].standing(), &said);
        match said {
            Said::Told(uid, decision) => self.judge.told(uid, decision),
            Said::Shown(version, weights) => {
                self.judge.shown(self.workers[index].job, version, &weights);
            }
            Said::Joined(group, offer) => self.judge.joined(self.scenario, group, offer),
            Said::Failed(what) => self.judge.violations.push(format!("worker {index}: {what}")),
            said if self.scenario.control == Control::Engine => self.ask(index, said),
            Said::Request(offer) => self.ask_script(index, offer),
            Said::Cancel(_) | Said::Pulled(_) => {}
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
            let (sender, target) = (self.host_of(from), self.host_of(to));
            let through = self.links.pass(self.now, sender, target, frame.len());
            if let Some((delay, frame)) = self.enemy.answer(&frame, to < self.boxes.len()) {
                let at = through.saturating_add(delay);
                self.push(at, Next::Arrive { node: to, frame, is_forged: true });
            }
            if from >= self.boxes.len()
                && to == self.scenario.server()
                && self.scenario.site.is_none()
                && let Some((delay, frame)) = self.rogue.answer(self.scenario, &frame)
            {
                self.push(through.saturating_add(delay), Next::Announce { frame });
            }
            let link = from * nodes + to;
            for passing in self.network.send(through, link, frame, &mut self.coverage) {
                let next = Next::Arrive { node: to, frame: passing.frame, is_forged: false };
                self.push(passing.at, next);
            }
        }
    }

    /// The host of a node: boxes have their own, workers of a rank share one.
    fn host_of(&self, node: usize) -> usize {
        let boxes = self.boxes.len();
        node.checked_sub(boxes).map_or(node, |worker| boxes + worker % self.scenario.workers)
    }

    /// Plans a node's next wake, and notices one that never sleeps.
    fn settle(&mut self, node: usize) {
        let timeout = match node.checked_sub(self.boxes.len()) {
            None => self.boxes[node].timeout(),
            Some(index) => self.workers[index].timeout(self.scenario),
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
        self.app.end(self.now, &self.boxes, &self.workers, &self.links);
        self.judge.models(self.scenario, &self.boxes);
        for index in 0..self.boxes.len() {
            self.boxes[index].count(&mut self.coverage);
        }
        for index in 0..self.workers.len() {
            self.workers[index].count(&mut self.coverage);
        }
        self.steward.count(&mut self.coverage);
        self.coverage.add("judge", "decided", self.judge.decided);
        Report {
            fingerprint: self.network.transcript().fingerprint(),
            coverage: self.coverage,
            models: self.judge.digest(),
            events: self.events,
            ended_at: self.now,
            downlink: self.downlinks,
            violations: self.judge.violations,
        }
    }
}

/// A run that takes longer has failed.
const LIMIT: Nanos = Nanos::from_millis(300_000);
const SPINS_MAX: u32 = 1_000;
