//! The words between the scripted controller and the nodes: reliable, and late.

use weft_control::{Command, Decision};
use weft_engine::role::push::Grant;
use weft_wire::Nanos;

use super::judge::Offer;
use super::planner::{Act, Request};
use super::{Message as AnyMessage, Push, topology};
use crate::hash;
use crate::world::{Next, World as _};

/// What arrives.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "boxed, one at a time")]
pub(super) enum Message {
    Command { node: usize, command: Command },
    Grant { request: Request, grant: Grant },
    Outcome { request: Request, decision: Decision },
    Request { request: Request },
    Plan,
}

impl Push<'_> {
    pub(super) fn say(&mut self, at: Nanos, message: Message) {
        self.core.push(at, Next::Message(AnyMessage::Script(Box::new(message))));
    }

    fn later(&self, salt: u64) -> Nanos {
        let span = 30_000 + hash(&[self.scenario.seed, 7, salt, self.core.sequence]) % 400_000;
        self.core.now.saturating_add(Nanos(span))
    }

    pub(super) fn script(&mut self, message: Message) {
        match message {
            Message::Command { node, command } => {
                if self.core.log {
                    println!("{:>12} node {node}: {command:?}", self.core.now.0);
                }
                if !self.is_away(node) {
                    self.boxes[node].command(self.core.now, command);
                    self.rouse(node);
                }
            }
            Message::Request { request } => self.planner.request(request),
            Message::Grant { request, grant } => {
                if let Some(index) = self.present(&request) {
                    let mut said = Vec::new();
                    let number = request.offer.uid.number;
                    self.workers[index].grant(self.core.now, number, &grant, &mut said);
                    said.into_iter().for_each(|said| self.listen(index, said));
                    self.rouse(self.boxes.len() + index);
                }
            }
            Message::Outcome { request, decision } => {
                if let Some(index) = self.present(&request) {
                    self.workers[index].outcome(request.offer.uid.number, decision);
                    self.rouse(self.boxes.len() + index);
                }
            }
            Message::Plan => {
                self.planner.tick(self.scenario, self.core.now);
                self.carry_out();
                self.say(self.core.now.saturating_add(PLAN_EVERY), Message::Plan);
            }
        }
    }

    /// The worker that asked, if it is the same life still.
    fn present(&self, request: &Request) -> Option<usize> {
        let uid = request.offer.uid;
        let index = uid.job * self.scenario.workers + uid.rank;
        let worker = &self.workers[index];
        (worker.life == request.life && self.core.now >= worker.down_until).then_some(index)
    }

    pub(super) fn ask_script(&mut self, index: usize, offer: Offer) {
        let request = Request { offer, life: self.workers[index].life };
        let at = self.later(1);
        self.say(at, Message::Request { request });
    }

    /// Carries the controller's words to the nodes.
    pub(super) fn carry_out(&mut self) {
        for act in std::mem::take(&mut self.planner.acts) {
            match act {
                Act::Command { node, command } => {
                    if let (Command::Install(group), true) =
                        (&command, node == self.scenario.server())
                    {
                        self.judge.planned(topology::job_place(group.job), group);
                    }
                    // One connection per node keeps its words in order.
                    let at = self.core.now.saturating_add(COMMAND_SPAN);
                    self.say(at, Message::Command { node, command });
                }
                Act::Grant { request, grant } => {
                    let at = self.later(2);
                    self.say(at, Message::Grant { request, grant });
                }
                Act::Outcome { request, decision } => {
                    if decision == Decision::Dropped {
                        self.judge.plan_dropped(request.offer.uid);
                    }
                    let at = self.later(3);
                    self.say(at, Message::Outcome { request, decision });
                }
            }
        }
    }

    /// The controller forgets; who was not granted asks again.
    pub(super) fn restart_script(&mut self) {
        self.planner.restart();
        for index in 0..self.workers.len() {
            let entries = &self.workers[index].entries;
            let waiting = entries.iter().filter(|entry| !entry.is_granted);
            let waiting: Vec<Offer> = waiting.map(|entry| entry.offer.clone()).collect();
            waiting.into_iter().for_each(|offer| self.ask_script(index, offer));
        }
    }
}

const PLAN_EVERY: Nanos = Nanos::from_micros(700);
const COMMAND_SPAN: Nanos = Nanos::from_micros(150);
