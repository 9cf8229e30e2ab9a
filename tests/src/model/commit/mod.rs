//! Rule 4: one group of a push, its server's dedup, staging and atomic commit.
//!
//! Workers send each chunk through the aggregator and, at any time, direct as well: that is what
//! they do when the sum is late, when the aggregator is gone, and when the server asks for what it
//! misses. A worker may die once. The aggregator may lose its slots once, and then takes late
//! contributions for new ones, which is worse than what its epochs allow. The server may close the
//! group without one member, dead or merely slow, and judges the group VOID if after that another
//! member dies. The model checks:
//!
//! - I1: a decided group is in the model with each remaining member's update whole and once, in
//!   every chunk alike, or not at all; a worker is told COMMITTED only if its update is in;
//! - I9: from every state a state is reachable in which every living worker was told.
//!
//! Contributions with tags and slots with banks are the matter of [`super::allreduce`]; order and
//! credits (rule 5) are not modelled. [`server`] is the rule; this file is the world around it.

pub mod server;

use std::fmt;

use crate::model::network::Network;
use crate::model::search::Model;
use server::{Outcome, Parts, Server};

/// The protocol as specified, or with one rule broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rules {
    /// PROTOCOL.md as it is.
    AsSpecified,
    /// What is a subset of the staged members is a duplicate; everything else is added.
    DedupBySubsetAlone,
    /// One frame per source and chunk is added: the group's sum, and each direct sender's (whose
    /// transfer is a group of its own).
    DedupByGroupAndChunk,
    /// Each chunk enters the model when it is complete.
    CommitEachChunk,
    /// A close changes the mask, and leaves what is staged as it is.
    CloseKeepsStaged,
    /// The server forgets a group with its decision.
    ForgetDecided,
}

/// One group of a push: its size, its faults, its rules.
#[derive(Debug, Clone, Copy)]
pub struct Commit {
    /// Members of the group, at most 4.
    pub members: u8,
    /// Chunks of each update.
    pub chunks: u8,
    /// Whether one worker may die and one be closed out.
    pub death: bool,
    /// Whether the network may lose everything in flight; needed to judge progress.
    pub lossy: bool,
    /// The rules in force.
    pub rules: Rules,
}

/// One moment of a [`Commit`].
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    workers: Vec<Worker>,
    aggregator: Aggregator,
    server: Server,
    network: Network<Message>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Worker {
    is_alive: bool,
    /// What it was told about its update: is it in the model?
    told: Option<bool>,
}

/// A whole lease: one slot per chunk, as the bitmap of contributors.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Aggregator {
    members: u8,
    slots: Vec<u8>,
    may_restart: bool,
}

/// A message of the push model; `members` are bitmaps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "the fields are the words of the protocol")]
pub enum Message {
    /// To the aggregator: one worker's chunk.
    Contribution { worker: u8, chunk: u8 },
    /// To the server: one worker's chunk, not through the aggregator.
    Direct { worker: u8, chunk: u8 },
    /// To the server: the aggregator's sum of these members' chunks.
    Sum { chunk: u8, members: u8 },
    /// To the aggregator: the members after a close.
    Mask { members: u8 },
    /// To all workers: the server's decision.
    Decision(Outcome),
}

/// One step of a [`Commit`].
#[derive(Debug, Clone, Copy)]
pub enum Action {
    /// A message reaches the aggregator, the server or all workers in reach.
    Arrives(Message),
    /// A message reaches a worker.
    AtWorker(u8, Message),
    /// A worker dies.
    Die(u8),
    /// The server closes the group without a member.
    Close(u8),
    /// The server judges the group VOID.
    Void,
    /// The aggregator loses its slots.
    Restart,
    /// The network loses everything in flight; the boxes send again what they still want.
    LoseAll,
}

impl Model for Commit {
    type State = State;
    type Action = Action;

    fn initial(&self) -> State {
        let chunks = usize::from(self.chunks);
        let mut state = State {
            workers: vec![Worker { is_alive: true, told: None }; usize::from(self.members)],
            aggregator: Aggregator {
                members: self.all_members(),
                slots: vec![0; chunks],
                may_restart: true,
            },
            server: Server::new(self.all_members(), chunks),
            network: Network::empty(),
        };
        self.send_all(&mut state);
        state
    }

    fn steps(&self, state: &State, steps: &mut Vec<(Action, State)>) {
        let mut offer = |action: Action, change: &dyn Fn(&mut State)| {
            let mut next = state.clone();
            change(&mut next);
            self.send_all(&mut next);
            if next != *state {
                steps.push((action, next));
            }
        };
        for message in state.network.in_flight() {
            if let Message::Decision(outcome) = message {
                for (worker, _) in (0..).zip(&state.workers) {
                    let action = Action::AtWorker(worker, message);
                    offer(action, &|next| next.workers[usize::from(worker)].learn(worker, outcome));
                }
            } else {
                offer(Action::Arrives(message), &|next| self.arrive(next, message));
            }
        }
        let nobody_died = state.workers.iter().all(|worker| worker.is_alive);
        for worker in (0..self.members).filter(|_| self.death) {
            if nobody_died {
                offer(Action::Die(worker), &|next| {
                    next.workers[usize::from(worker)].is_alive = false;
                });
            }
            offer(Action::Close(worker), &|next| {
                if next.server.close(self.rules, worker) {
                    next.network.send(Message::Mask { members: next.server.members });
                }
            });
        }
        if !nobody_died {
            offer(Action::Void, &|next| {
                let is_alive = |worker: u8| next.workers[usize::from(worker)].is_alive;
                let remaining = (0..self.members).filter(|w| next.server.members >> w & 1 == 1);
                if remaining.into_iter().any(|worker| !is_alive(worker)) && next.server.void() {
                    next.network.send(Message::Decision(Outcome::Void));
                }
            });
        }
        if state.aggregator.may_restart {
            offer(Action::Restart, &|next| {
                next.aggregator.slots.fill(0);
                next.aggregator.members = self.all_members();
                next.aggregator.may_restart = false;
            });
        }
        if self.lossy {
            offer(Action::LoseAll, &|next| next.network.lose_all());
        }
    }

    fn broken_property(&self, state: &State) -> Option<String> {
        let server = &state.server;
        for (chunk, parts) in server.model.iter().enumerate() {
            if let Some(worker) = (0..self.members).find(|&worker| parts.count(worker) > 1) {
                return Some(format!("c{chunk} of w{worker}'s update is in the model twice"));
            }
        }
        let committed = match server.outcome? {
            Outcome::Committed { members } => members,
            Outcome::Void => 0,
        };
        for (chunk, &parts) in server.model.iter().enumerate() {
            if parts != Parts::of(committed) {
                return Some(format!(
                    "torn update: the group is decided with members {committed:#b}, \
                     but c{chunk} of the model has {}",
                    parts.text(self.members)
                ));
            }
        }
        for (worker, told) in state.workers.iter().map(|worker| worker.told).enumerate() {
            if told.is_some_and(|is_in| is_in != (committed >> worker & 1 == 1)) {
                return Some(format!("w{worker} was told the wrong outcome"));
            }
        }
        None
    }

    fn is_done(&self, state: &State) -> bool {
        state.workers.iter().all(|worker| worker.told.is_some() || !worker.is_alive)
    }

    fn describe(&self, state: &State) -> String {
        let waiting = (0..).zip(&state.workers);
        let waiting = waiting.filter(|(_, worker)| worker.told.is_none() && worker.is_alive);
        let waiting: Vec<String> = waiting.map(|(rank, _): (u8, _)| format!("w{rank}")).collect();
        format!("{} for a decision", waiting.join(" and "))
    }
}

impl Commit {
    const fn all_members(&self) -> u8 {
        (1 << self.members) - 1
    }

    /// Lets every living worker that was told nothing send all its chunks, both ways.
    fn send_all(&self, state: &mut State) {
        for (worker, _) in (0..).zip(&state.workers).filter(|(_, worker)| worker.waits()) {
            for chunk in 0..self.chunks {
                state.network.send(Message::Contribution { worker, chunk });
                state.network.send(Message::Direct { worker, chunk });
            }
        }
    }

    fn arrive(&self, state: &mut State, message: Message) {
        match message {
            Message::Contribution { worker, chunk } => {
                let aggregator = &mut state.aggregator;
                if aggregator.members >> worker & 1 == 1 {
                    aggregator.slots[usize::from(chunk)] |= 1 << worker;
                    aggregator.send_if_full(chunk, &mut state.network);
                }
            }
            Message::Mask { members } => {
                state.aggregator.members = members;
                for chunk in 0..self.chunks {
                    state.aggregator.send_if_full(chunk, &mut state.network);
                }
            }
            Message::Direct { worker, chunk } => {
                let source = server::Source::Worker(worker);
                self.at_server(state, chunk, 1 << worker, source);
            }
            Message::Sum { chunk, members } => {
                self.at_server(state, chunk, members, server::Source::Aggregator);
            }
            Message::Decision(_) => {}
        }
    }

    /// The server takes the frame; once it has decided, every frame is answered with the decision.
    fn at_server(&self, state: &mut State, chunk: u8, members: u8, source: server::Source) {
        state.server.take(self.rules, chunk, members, source);
        if let Some(outcome) = state.server.outcome {
            state.network.send(Message::Decision(outcome));
        }
    }
}

impl Aggregator {
    /// A full slot sends its sum, when it fills up and on every repeat.
    fn send_if_full(&self, chunk: u8, network: &mut Network<Message>) {
        let members = self.slots[usize::from(chunk)];
        if members == self.members {
            network.send(Message::Sum { chunk, members });
        }
    }
}

impl Worker {
    const fn waits(self) -> bool {
        self.is_alive && self.told.is_none()
    }

    /// Keeps the update until the server has decided about it.
    fn learn(&mut self, worker: u8, outcome: Outcome) {
        if self.waits() {
            self.told = Some(match outcome {
                Outcome::Committed { members } => members >> worker & 1 == 1,
                Outcome::Void => false,
            });
        }
    }
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Contribution { worker, chunk } => {
                write!(f, "aggregator gets contribution w{worker}:c{chunk}")
            }
            Self::Direct { worker, chunk } => write!(f, "server gets w{worker}:c{chunk} direct"),
            Self::Sum { chunk, members } => {
                write!(f, "server gets the sum of c{chunk} of members {members:#b}")
            }
            Self::Mask { members } => write!(f, "aggregator gets the new mask {members:#b}"),
            Self::Decision(Outcome::Committed { members }) => {
                write!(f, "COMMITTED with members {members:#b}")
            }
            Self::Decision(Outcome::Void) => write!(f, "VOID"),
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Arrives(message) => write!(f, "{message}"),
            Self::AtWorker(worker, message) => write!(f, "w{worker} gets {message}"),
            Self::Die(worker) => write!(f, "w{worker} dies"),
            Self::Close(worker) => write!(f, "the server closes the group without w{worker}"),
            Self::Void => write!(f, "the server judges the group VOID"),
            Self::Restart => write!(f, "the aggregator loses its slots"),
            Self::LoseAll => write!(f, "everything in flight is lost"),
        }
    }
}
