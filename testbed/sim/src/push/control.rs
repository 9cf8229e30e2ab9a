//! The words between the controller's engine and the nodes, and the streams that carry them.

use weft_control::{Command, DropReason, Event, Train};
use weft_controller_engine::{NodeHello, Reply, Telemetry, TransferRequest};
use weft_wire::{JobId, Nanos};

use super::controller::{Asked, Outgoing};
use super::judge::Uid;
use super::scenario::Scenario;
use super::wires::Way;
use super::worker::{Heard, WorkerNode, WorkerOutput};
use super::{Message as AnyMessage, Push, topology};
use crate::hash;
use crate::world::{Next, World as _};

/// What arrives, or is due.
#[derive(Debug)]
pub(super) enum Message {
    /// A node dials.
    Dial { node: usize },
    /// To the controller.
    Up { node: usize, stream: u64, up: Up },
    /// To a node.
    Down { node: usize, stream: u64, down: Down },
    /// The controller notices that a stream has ended.
    Gone { node: usize, stream: u64 },
    /// The controller has something to do.
    Due,
    /// The controller is back.
    Start,
    /// A box counts.
    Count { node: usize },
}

#[derive(Debug)]
pub(super) enum Up {
    BoxHello(NodeHello),
    WorkerHello { life: u64 },
    Event(JobId, Event),
    Train(Box<Train>),
    Telemetry(Telemetry),
    Asked(Asked),
}

#[derive(Debug)]
pub(super) enum Down {
    Command(Command),
    Heard(Heard),
}

impl Push<'_> {
    fn at(&mut self, at: Nanos, message: Message) {
        self.core.push(at, Next::Message(AnyMessage::Control(Box::new(message))));
    }

    /// Every node dials when it begins.
    pub(super) fn begin_control(&mut self) {
        for node in 0..self.boxes.len() + self.workers.len() {
            let at = match node.checked_sub(self.boxes.len()) {
                None => Nanos(hash(&[self.scenario.seed, 8, node as u64]) % 1_000_000),
                Some(index) => self.workers[index].down_until,
            };
            self.dial(node, at);
        }
        for node in 0..self.boxes.len() {
            self.boxes[node].engine.note_controller(self.core.now, false);
            self.at(COUNT_EVERY, Message::Count { node });
        }
    }

    pub(super) fn dial(&mut self, node: usize, at: Nanos) {
        self.at(at, Message::Dial { node });
    }

    pub(super) fn control(&mut self, message: Message) {
        match message {
            Message::Dial { node } => self.connect(node),
            Message::Up { node, stream, up } => {
                if self.wires.is_current(node, stream) {
                    self.core.network.transcript().note_event(self.core.now, node, &up);
                    if self.core.log {
                        println!("{:>12} node {node} to controller: {up:?}", self.core.now.0);
                    }
                    self.tell_controller(node, stream, up);
                    self.advance();
                }
            }
            Message::Down { node, stream, down } => {
                if self.wires.is_current(node, stream) && !self.is_away(node) {
                    self.core.network.transcript().note_event(self.core.now, node, &down);
                    if self.core.log {
                        println!("{:>12} controller to node {node}: {down:?}", self.core.now.0);
                    }
                    self.tell_node(node, down);
                }
            }
            Message::Gone { node, stream } => {
                self.controller.gone(self.core.now, node, stream);
                self.advance();
            }
            Message::Due => {
                if self.controller_at == self.core.now {
                    self.controller_at = Nanos::MAX;
                    self.advance();
                }
            }
            Message::Start => {
                self.controller.start(self.core.now);
                self.advance();
            }
            Message::Count { node } => {
                self.count(node);
                self.at(self.core.now.saturating_add(COUNT_EVERY), Message::Count { node });
            }
        }
    }

    /// Opens a stream, which begins with a hello; or dials again.
    fn connect(&mut self, node: usize) {
        if self.wires.is_up(node) || self.is_dead(node) {
            return;
        }
        if self.is_away(node) || !self.controller.is_up() {
            let wait = REDIAL.0 / 2 + hash(&[self.scenario.seed, 9, self.core.sequence]) % REDIAL.0;
            return self.dial(node, self.core.now.saturating_add(Nanos(wait)));
        }
        self.wires.open(node);
        match node.checked_sub(self.boxes.len()) {
            None => {
                self.boxes[node].engine.note_controller(self.core.now, true);
                let hello = self.boxes[node].agent.hello();
                self.up(node, Up::BoxHello(hello));
                self.report(node);
            }
            Some(index) => self.up(node, Up::WorkerHello { life: self.workers[index].life }),
        }
    }

    fn up(&mut self, node: usize, up: Up) {
        if let Some((stream, at)) = self.wires.send(self.core.now, node, Way::Up) {
            self.at(at, Message::Up { node, stream, up });
        }
    }

    fn down(&mut self, node: usize, down: Down) {
        if let Some((stream, at)) = self.wires.send(self.core.now, node, Way::Down) {
            self.at(at, Message::Down { node, stream, down });
        }
    }

    /// Sends what a box has to tell, if it has a stream.
    pub(super) fn report(&mut self, node: usize) {
        // Before what may end their groups.
        while self.scenario.has_trains()
            && self.wires.is_up(node)
            && let Some(train) = self.boxes[node].engine.train()
        {
            self.up(node, Up::Train(Box::new(train)));
        }
        while self.wires.is_up(node)
            && let Some((job, event)) = self.boxes[node].agent.told()
        {
            self.up(node, Up::Event(job, event));
        }
    }

    /// What a worker says to the controller.
    pub(super) fn ask(&mut self, index: usize, said: WorkerOutput) {
        let asked = match said {
            WorkerOutput::Request(offer) => Asked::Transfer(TransferRequest {
                update_id: offer.uid.number,
                size_bytes: 0,
                version: weft_control::Version(offer.version),
                norm: offer.norm,
                max_abs: offer.max_abs,
            }),
            WorkerOutput::Cancel(number) => Asked::Cancel(number),
            WorkerOutput::Pulled(duration_ns) => {
                Asked::Pulled { bytes: model_bytes(self.scenario), duration_ns }
            }
            WorkerOutput::Told(..)
            | WorkerOutput::Shown(..)
            | WorkerOutput::Joined(..)
            | WorkerOutput::Failed(_) => return,
        };
        self.up(self.boxes.len() + index, Up::Asked(asked));
    }

    fn tell_controller(&mut self, node: usize, stream: u64, up: Up) {
        let now = self.core.now;
        let is_hello = matches!(up, Up::BoxHello(_) | Up::WorkerHello { .. });
        if !is_hello && !self.controller.hears(node, stream) {
            return;
        }
        let worker = node.checked_sub(self.boxes.len()).map(|index| &self.workers[index]);
        let whose = worker.map_or((0, 0), |worker| (worker.job, worker.rank));
        let taken = match up {
            Up::BoxHello(hello) => self.controller.box_hello(now, (node, stream), &hello),
            // As the daemon does: a worker is not welcomed before it can be told where its server
            // is.
            Up::WorkerHello { life }
                if self.scenario.has_heir() && self.controller.server_of(whose.0).is_none() =>
            {
                let up = Up::WorkerHello { life };
                self.at(now.saturating_add(REDIAL), Message::Up { node, stream, up });
                Ok(())
            }
            Up::WorkerHello { life } => {
                let taken = self.controller.worker_hello((node, stream), whose, life);
                let server = self.controller.server_of(whose.0);
                self.down(node, Down::Heard(Heard::Welcome(server)));
                taken
            }
            Up::Event(job, event) => self.controller.event(now, node, (job, &event)),
            Up::Train(train) => self.controller.train(now, node, &train),
            Up::Telemetry(telemetry) => self.controller.telemetry(now, node, &telemetry),
            Up::Asked(asked) => {
                let refused = self.controller.asked(now, whose, &asked);
                // Which a worker lives with; the run counts them.
                if let (Err(_), Asked::Transfer(request)) = (refused, asked) {
                    self.down(node, Down::Heard(Heard::Refused(request.update_id)));
                }
                Ok(())
            }
        };
        if let Err(refusal) = taken
            && !self.is_former(node)
        {
            self.judge.violations.push(format!("the controller refuses node {node}: {refusal}"));
        }
    }

    fn tell_node(&mut self, node: usize, down: Down) {
        match down {
            Down::Command(command) => {
                if node == self.scenario.server() {
                    self.rogue.note_command(&command);
                }
                self.app.box_command(node, &command);
                self.boxes[node].command(self.core.now, command);
            }
            Down::Heard(heard) => {
                let index = node - self.boxes.len();
                if let Heard::Reply(Reply::Drop { update_id, .. }) = heard {
                    let WorkerNode { job, rank, .. } = self.workers[index];
                    self.judge.plan_dropped(Uid { job, rank, number: update_id });
                }
                let said = self.workers[index].hear(self.scenario, self.core.now, heard, self.app);
                said.into_iter().for_each(|said| self.listen(index, said));
            }
        }
        self.rouse(node);
    }

    /// Lets the controller do what is due, and carries its words.
    fn advance(&mut self) {
        for told in self.controller.advance(self.core.now) {
            self.tell(told);
        }
        let due = self.controller.timeout(self.core.now);
        if due < self.controller_at {
            self.controller_at = due;
            self.at(due, Message::Due);
        }
    }

    fn tell(&mut self, told: Outgoing) {
        match told {
            Outgoing::Box { node, command } => {
                if let Command::Install(group) = &command {
                    self.app.planned(self.core.now, group);
                    self.judge.planned(topology::job_place(group.job), group);
                }
                self.down(node, Down::Command(command));
            }
            Outgoing::People { job, notice } => self.note_succession(job, &notice),
            Outgoing::Worker { worker, reply } => {
                if let Reply::Drop { reason, .. } = &reply {
                    self.core.coverage.add("plan drop", name_of(reason), 1);
                }
                self.down(self.boxes.len() + worker, Down::Heard(Heard::Reply(reply)));
            }
        }
    }

    /// Breaks a node's stream; false when there was none.
    pub(super) fn cut(&mut self, node: usize) -> bool {
        let Some(stream) = self.wires.cut(node) else { return false };
        let span = hash(&[self.scenario.seed, 10, node as u64, stream]) % NOTICED_NS_MAX;
        self.at(self.core.now.saturating_add(Nanos(span)), Message::Gone { node, stream });
        if let Some(known) = self.boxes.get_mut(node) {
            known.engine.note_controller(self.core.now, false);
            if node == self.scenario.server() {
                self.rogue.note_gone();
            }
        }
        if let Some(index) = node.checked_sub(self.boxes.len()) {
            let said =
                self.workers[index].hear(self.scenario, self.core.now, Heard::Lost, self.app);
            said.into_iter().for_each(|said| self.listen(index, said));
            self.settle(node);
        }
        true
    }

    /// The controller dies, and every stream with it.
    pub(super) fn crash_controller(&mut self, pause: Nanos) {
        if !self.controller.is_up() {
            return;
        }
        self.controller.stop(&mut self.core.coverage);
        self.judge.controller_restarted();
        for node in 0..self.boxes.len() + self.workers.len() {
            if self.cut(node) {
                self.dial(node, self.core.now.saturating_add(REDIAL));
            }
        }
        self.at(self.core.now.saturating_add(pause), Message::Start);
    }

    /// A box's counters.
    fn count(&mut self, node: usize) {
        if self.is_away(node) {
            return;
        }
        let (rx_bytes, tx_bytes) = self.core.links.carried(node);
        let telemetry = Telemetry {
            at_ns: self.core.now.0,
            rx_bytes,
            tx_bytes,
            nic_rx_bytes: Some(rx_bytes),
            nic_tx_bytes: Some(tx_bytes),
        };
        self.up(node, Up::Telemetry(telemetry));
    }
}

fn model_bytes(scenario: &Scenario) -> u64 {
    u64::from(scenario.chunks) * u64::from(scenario.elements) * 4
}

fn name_of(reason: &DropReason) -> &'static str {
    let ours = DropReason::ALL.iter().find(|(known, _)| known == reason);
    ours.map_or("other", |(_, name)| name)
}

/// How often boxes tell their counters.
const COUNT_EVERY: Nanos = Nanos::from_millis(25);
/// A node dials again after about this.
const REDIAL: Nanos = Nanos::from_millis(8);
/// A stream's end is noticed within this.
const NOTICED_NS_MAX: u64 = 4_000_000;
