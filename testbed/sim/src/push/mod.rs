//! Deterministic simulation of a parameter server job: the real engines of workers, aggregators,
//! server and replica, and a controller, in virtual time, one seed at a time.
//!
//! A [`run`] is a function of its [`scenario::Scenario`], on the simulator of [`crate::world`].
//! What the workers compute, and who watches, is an [`application::Application`]: a seed's small
//! numbers, or a training on a [`site::Site`], whose nodes have the configurations that users
//! give. After every step the [`judge::Judge`] compares order, models, replica, delays, leases
//! and what workers are told with plain loops (I1 to I6), and what a forged frame leaves with what
//! there was (I7); that it ends is I9, and a hash of all frames with their times I10.
//!
//! A server may die for good: the judge then goes on with what its replica has.
//!
//! | who plans | where |
//! | --- | --- |
//! | the controller's engine, over streams that break, on links with rates | [`controller`], [`agent`], [`wires`], [`crate::links`], `control` |
//! | a script, with stranger plans | [`planner`], `script` |
//! | nobody | [`worker`] |

pub mod agent;
pub mod application;
mod control;
pub mod controller;
pub mod downlink;
mod faults;
pub mod fingerprint;
pub mod judge;
pub mod node;
pub mod planner;
pub mod rogue;
pub mod scenario;
mod script;
pub mod site;
mod succession;
pub mod topology;
pub mod wires;
pub mod worker;

use std::net::SocketAddr;

use weft_wire::Nanos;

use crate::coverage::Coverage;
use crate::hash;
use crate::hostile::Enemy;
use crate::links::{HostLink, Links};
use crate::network::Network;
use crate::transcript::Fingerprint;
use crate::world::{Core, LIMIT, Next, Presence, VIOLATIONS_MAX, World};
use application::{Application, Seeded};
use controller::ControllerNode;
use downlink::Downlink;
use judge::Judge;
use node::BoxNode;
use planner::Planner;
use rogue::Rogue;
use scenario::{Action, Control, Scenario};
use wires::Wires;
use worker::{WorkerNode, WorkerOutput};

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
    let mut world = Push::new(scenario, app, log);
    world.cue();
    world.run();
    world.finish()
}

/// What happens besides frames and timers.
#[derive(Debug)]
enum Message {
    /// An announcement of nobody's arrives at the server.
    Announce {
        frame: Vec<u8>,
    },
    Script(Box<script::Message>),
    Control(Box<control::Message>),
}

struct Push<'a> {
    core: Core<Action, Message>,
    scenario: &'a Scenario,
    app: &'a mut dyn Application,
    boxes: Vec<BoxNode>,
    workers: Vec<WorkerNode>,
    /// One of the two plans.
    planner: Planner,
    controller: ControllerNode,
    controller_at: Nanos,
    wires: Wires,
    rogue: Rogue,
    judge: Judge,
    downlink: Downlink,
    downlinks: Vec<Downlink>,
}

impl<'a> Push<'a> {
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
        let network = Network::new(scenario.seed, scenario.rates, log);
        let network = if scenario.site.is_some() { network.in_order() } else { network };
        let enemy = Enemy::of_push(hash(&[scenario.seed, 666]), scenario.hostile);
        let mut core = Core::new(nodes, &scenario.cues, network, enemy);
        core.links = links(scenario);
        let mut world = Self {
            core,
            scenario,
            app,
            boxes,
            workers,
            planner: Planner::new(scenario),
            controller: ControllerNode::new(scenario),
            controller_at: Nanos::MAX,
            wires: Wires::new(scenario.seed, nodes),
            rogue: Rogue::new(scenario),
            judge: Judge::new(scenario),
            downlink: Downlink::default(),
            downlinks: Vec::new(),
        };
        (0..nodes).for_each(|node| world.settle(node));
        match scenario.control {
            Control::Nobody => {}
            Control::Script => world.say(Nanos(0), script::Message::Plan),
            Control::Engine => world.begin_control(),
        }
        world
    }

    fn is_away(&self, node: usize) -> bool {
        self.presence(node) != Presence::Here
    }

    fn take_events(&mut self, node: usize) {
        while let Some((job, event)) = self.boxes[node].engine.event() {
            self.core.network.transcript().note_event(self.core.now, node, &(job, &event));
            if self.core.log {
                println!("{:>12} node {node}: job {}: {event:?}", self.core.now.0, job.0);
            }
            let (rx_bytes, _) = self.core.links.carried(node);
            self.app.box_event(self.core.now, node, rx_bytes, (job, &event));
            if node >= self.scenario.server() {
                self.judge.box_event(self.scenario, node, job, &event);
                let new = self.judge.decided - self.downlinks.len() as u64;
                self.downlinks.extend((0..new).map(|_| self.downlink));
                self.cue();
            }
            match self.scenario.control {
                Control::Nobody => {}
                Control::Script => {
                    self.planner.event(self.scenario, self.core.now, node, job, &event);
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

    fn listen(&mut self, index: usize, said: WorkerOutput) {
        self.core.network.transcript().note_event(self.core.now, self.boxes.len() + index, &said);
        if self.core.log {
            println!("{:>12} worker {index}: {said:?}", self.core.now.0);
        }
        self.app.said(self.core.now, self.workers[index].standing(), &said);
        match said {
            WorkerOutput::Told(uid, decision) => {
                self.judge.told(self.scenario, uid, decision);
            }
            WorkerOutput::Shown(version, weights) => {
                self.judge.shown(self.workers[index].job, version, &weights);
            }
            WorkerOutput::Joined(group, offer) => self.judge.joined(self.scenario, group, offer),
            WorkerOutput::Failed(what) => {
                self.judge.violations.push(format!("worker {index}: {what}"))
            }
            said if self.scenario.control == Control::Engine => self.ask(index, said),
            WorkerOutput::Request(offer) => self.ask_script(index, offer),
            WorkerOutput::Cancel(_) | WorkerOutput::Pulled(_) => {}
        }
    }

    fn finish(mut self) -> Report {
        self.app.end(self.core.now, &self.boxes, &self.workers, &self.core.links);
        self.judge.models(self.scenario, &self.boxes);
        for index in 0..self.boxes.len() {
            self.boxes[index].count(&mut self.core.coverage);
        }
        for index in 0..self.workers.len() {
            self.workers[index].count(&mut self.core.coverage);
        }
        self.controller.count(&mut self.core.coverage);
        self.core.coverage.add("judge", "decided", self.judge.decided);
        Report {
            fingerprint: self.core.network.transcript().fingerprint(),
            coverage: self.core.coverage,
            models: self.judge.digest(),
            events: self.core.events,
            ended_at: self.core.now,
            downlink: self.downlinks,
            violations: [self.core.violations, self.judge.violations].concat(),
        }
    }
}

impl World for Push<'_> {
    type Action = Action;
    type Message = Message;
    const SPINS_MAX: u32 = 1_000;

    fn core(&self) -> &Core<Action, Message> {
        &self.core
    }

    fn core_mut(&mut self) -> &mut Core<Action, Message> {
        &mut self.core
    }

    fn boxes(&self) -> usize {
        self.boxes.len()
    }

    fn limit(&self) -> Nanos {
        // An application knows when it has waited for too long.
        if self.scenario.site.is_some() { Nanos::MAX } else { LIMIT }
    }

    fn node_at(&self, addr: SocketAddr) -> Option<usize> {
        topology::node_at(self.scenario, addr)
    }

    /// Boxes have their own, workers of a rank share one.
    fn host_of(&self, node: usize) -> usize {
        let boxes = self.boxes.len();
        node.checked_sub(boxes).map_or(node, |worker| boxes + worker % self.scenario.workers)
    }

    fn presence(&self, node: usize) -> Presence {
        let down_until = match node.checked_sub(self.boxes.len()) {
            None => self.boxes[node].down_until,
            Some(index) => self.workers[index].down_until,
        };
        if self.core.now < down_until { Presence::Gone } else { Presence::Here }
    }

    fn timeout(&self, node: usize) -> Nanos {
        match node.checked_sub(self.boxes.len()) {
            None => self.boxes[node].timeout(),
            Some(index) => self.workers[index].timeout(self.scenario),
        }
    }

    fn handle(&mut self, node: usize, frame: &[u8]) {
        let now = self.core.now;
        match node.checked_sub(self.boxes.len()) {
            None => {
                if self.scenario.has_trains() {
                    self.boxes[node].engine.note_arrival(now);
                }
                let out = self.boxes[node].engine.handle(now, frame);
                self.send_all(node, out);
            }
            Some(index) => {
                let _ = self.workers[index].pusher.handle_frame(now, &mut frame.to_vec());
            }
        }
    }

    fn poll(&mut self, node: usize) {
        let now = self.core.now;
        let Some(index) = node.checked_sub(self.boxes.len()) else {
            let out = self.boxes[node].engine.poll(now);
            self.send_all(node, out);
            self.take_events(node);
            if self.scenario.site.is_none() {
                self.judge.leases(self.scenario, &self.boxes[node].engine);
            }
            return;
        };
        let (out, said) = self.workers[index].poll(self.scenario, now, self.app);
        self.send_all(node, out);
        said.into_iter().for_each(|said| self.listen(index, said));
    }

    fn state(&self, node: usize, _: &[u8]) -> u64 {
        match node.checked_sub(self.boxes.len()) {
            None => fingerprint::of_box(self.scenario, &self.boxes[node].engine),
            Some(index) => fingerprint::of_worker(&self.workers[index].pusher),
        }
    }

    /// Boxes lose nothing of each other's, where the network is not a seed's.
    fn is_faulty(&self, from: usize, to: usize) -> bool {
        self.scenario.site.is_none() || from.max(to) >= self.boxes.len()
    }

    fn overhear(&mut self, from: usize, to: usize, through: Nanos, frame: &[u8]) {
        if from >= self.boxes.len()
            && to == self.scenario.server()
            && self.scenario.site.is_none()
            && let Some((delay, frame)) = self.rogue.answer(self.scenario, frame)
        {
            let message = Message::Announce { frame };
            self.core.push(through.saturating_add(delay), Next::Message(message));
        }
    }

    fn act(&mut self, action: Action) {
        self.do_to_nodes(action);
    }

    fn hear(&mut self, message: Message) {
        match message {
            Message::Announce { frame } => {
                if self.rogue.is_planned(&frame) {
                    self.core.coverage.fault("announced");
                    self.arrive(self.scenario.server(), frame, true);
                }
            }
            Message::Script(message) => self.script(*message),
            Message::Control(message) => self.control(*message),
        }
    }

    fn pass(&mut self, at: Nanos) {
        let is_wanted = self.workers.iter().any(|worker| !worker.entries.is_empty());
        let (carried_bytes, _) = self.core.links.carried(self.scenario.server());
        self.downlink.go_on(at, is_wanted, carried_bytes);
    }

    fn judge(&mut self) {
        if self.scenario.site.is_none() {
            self.judge.models(self.scenario, &self.boxes);
        }
        while let Some(action) = self.app.poll_action(self.core.now) {
            self.act(action);
        }
    }

    fn is_over(&mut self) -> bool {
        let is_through = |job: usize, is_done: bool| is_done || self.judge.is_stranded(job);
        let mut workers = self.workers.iter();
        workers.all(|worker| is_through(worker.job, worker.is_done()))
            && self.judge.is_followed(self.scenario, &self.boxes)
            || self.judge.violations.len() > VIOLATIONS_MAX
            || self.app.is_over(self.core.now)
    }

    fn waiting(&self) -> String {
        let waiting: Vec<_> = self
            .workers
            .iter()
            .filter(|worker| !worker.is_done())
            .map(|worker| (worker.job, worker.rank, worker.entries.len()))
            .collect();
        format!("{waiting:?}")
    }
}

fn links(scenario: &Scenario) -> Links {
    match (&scenario.site, scenario.control) {
        (Some(site), _) => Links::new(&site.links, &site.racks),
        (None, Control::Engine) => {
            let rates = controller::host_rates(scenario).into_iter();
            let link = |rates: [u64; 2]| HostLink { rates: rates.map(Some), ..HostLink::default() };
            Links::new(&rates.map(link).collect::<Vec<_>>(), &[])
        }
        (None, Control::Script | Control::Nobody) => Links::default(),
    }
}
