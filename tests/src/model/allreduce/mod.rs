//! Rules 1 to 3: one group of an allreduce on a windowed lease, with restarts of the aggregator.
//!
//! Slot = chunk mod window, step = chunk / window, bank = step mod 2. The model checks:
//!
//! - I1, I2: a sum that a worker accepts for chunk c has every worker's c exactly once, and
//!   nothing else;
//! - I2 for floats: all workers accept the same *computation* of c. Each completed slot counts as
//!   a new computation, because another arrival order may give other bits;
//! - I2: such contributions are to the same elements of the same vector, whatever vectors each
//!   worker has;
//! - I9: from every state a state is reachable in which every worker has left the group.
//!
//! What the model leaves out, because it changes no state that others see: HAVE and STALE (a
//! worker resends whatever it lacks an answer for), timers (a step may happen at any time), and
//! HELLO (a worker learns of a new epoch at any time after it began).
//!
//! Vectors of unequal length end each worker by MISMATCH or LEFT, or by its linger when these ended
//! another. A box that restarts in between is left to timeouts, which are none of the model.
//!
//! [`aggregator`] and [`worker`] are the rules; this file is the world around them.

pub mod aggregator;
pub mod message;
pub mod worker;

use std::fmt;

use crate::model::network::Network;
use crate::model::search::Model;
use aggregator::Aggregator;
use message::{ELEMENTS, Layout, Length, Message, chunks_of};
use worker::Worker;

/// The protocol as specified, or with one rule broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rules {
    /// PROTOCOL.md as it is.
    AsSpecified,
    /// A slot knows who contributed, not to what: duplicates are told by the bitmap alone.
    BitmapWithoutTag,
    /// A bank may be claimed by any foreign tag, whatever the other bank holds.
    ClaimWithoutSuccessor,
    /// After a restart nobody hands over, and a worker never resends what it holds the sum of.
    RestartWithoutHandOver,
    /// After a restart nobody hands over, and workers resend what they hold the sum of.
    RestartSumsAgain,
    /// The new epoch opens when the first member has joined.
    OpenBeforeAllJoined,
    /// Workers take answers of any epoch.
    AnswersOfAnyEpoch,
    /// Contributions agree in their counts; where a vector ends is not compared.
    CountWithoutLast,
    /// Contributions agree in where a vector ends; counts are not compared.
    LastWithoutCount,
    /// The worker that differs from a slot's first contribution gets MISMATCH, and the slot goes
    /// on.
    TellOddOneAlone,
    /// A vector's sum is returned although one before it is not there.
    CallsEndOutOfOrder,
    /// A worker that waits for a hand-over gets LEFT when the holder closes.
    CloseBeforeHandOver,
    /// The aggregator sends no LEFT.
    CloseIsSilent,
    /// A worker leaves, and drops the sums of its last window, as soon as it has all sums.
    LeaveWithoutClose,
}

/// One group of an allreduce: its size, its faults, its rules.
#[derive(Debug, Clone, Copy)]
pub struct Allreduce {
    /// Workers, slots and steps per slot.
    pub layout: Layout,
    /// How often the aggregator may restart.
    pub restart_count_max: u8,
    /// Whether the network may lose everything in flight; needed to judge progress.
    pub lossy: bool,
    /// The rules in force.
    pub rules: Rules,
    /// Elements of each worker's vectors; none: all have every chunk of the layout, and whole.
    pub vectors: &'static [&'static [u8]],
}

/// One moment of an [`Allreduce`].
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    pub(crate) workers: Vec<Worker>,
    pub(crate) aggregator: Aggregator,
    pub(crate) network: Network<Message>,
    /// Ghost: how often a slot was completed for each chunk.
    pub(crate) computations: Vec<u8>,
    /// Ghost: the first property that broke.
    pub(crate) broken: Option<Broken>,
}

/// A property that did not hold when a worker accepted a sum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Broken {
    WrongSum { worker: u8, chunk: u8, sum: message::Sum },
    OtherBits { worker: u8, other: u8, chunk: u8 },
    OtherPart { worker: u8, other: u8, chunk: u8 },
    ToldWrongly { worker: u8, chunk: u8 },
}

/// One step of an [`Allreduce`].
#[derive(Debug, Clone, Copy)]
pub enum Action {
    /// A message reaches the aggregator.
    AtAggregator(Message),
    /// A message reaches a worker.
    AtWorker(u8, Message),
    /// A worker learns that the aggregator lives in a new epoch, and asks to join.
    NoticeEpoch(u8),
    /// The aggregator loses its state and comes back in a new epoch.
    Restart,
    /// The network loses everything in flight; the boxes send again what they still want.
    LoseAll,
}

impl Model for Allreduce {
    type State = State;
    type Action = Action;

    fn initial(&self) -> State {
        let mut state = State {
            workers: (0..self.layout.workers).map(|rank| Worker::new(self.chunks(rank))).collect(),
            aggregator: Aggregator::new(self.layout),
            network: Network::empty(),
            computations: vec![0; usize::from(self.layout.chunks())],
            broken: None,
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
            if message.goes_up() {
                offer(Action::AtAggregator(message), &|next| self.at_aggregator(next, message));
                continue;
            }
            for worker in 0..self.layout.workers {
                offer(Action::AtWorker(worker, message), &|next| {
                    self.at_worker(next, worker, message);
                });
            }
        }
        for worker in 0..self.layout.workers {
            offer(Action::NoticeEpoch(worker), &|next| {
                let epoch = next.aggregator.epoch;
                next.workers[usize::from(worker)].notice_epoch(epoch);
            });
        }
        if state.aggregator.epoch <= self.restart_count_max {
            offer(Action::Restart, &|next| next.aggregator.restart());
        }
        if self.lossy {
            offer(Action::LoseAll, &|next| next.network.lose_all());
        }
    }

    fn broken_property(&self, state: &State) -> Option<String> {
        Some(match state.broken? {
            Broken::WrongSum { worker, chunk, sum } => {
                format!("w{worker} accepts {} as the sum of c{chunk}", sum.parts.text(self.layout))
            }
            Broken::OtherBits { worker, other, chunk } => {
                format!("w{worker} and w{other} hold different computations of c{chunk}")
            }
            Broken::OtherPart { worker, other, chunk } => {
                format!("w{worker} returns a sum of c{chunk}, which is another part of w{other}'s")
            }
            Broken::ToldWrongly { worker, chunk } => {
                format!("w{worker} is told that c{chunk} has no sum, and all vectors are alike")
            }
        })
    }

    fn is_done(&self, state: &State) -> bool {
        let was_told = state.workers.iter().any(|worker| worker.was_told);
        let ends = |worker: &Worker| worker.has_left || worker.was_told;
        state.workers.iter().all(|worker| ends(worker) || was_told && worker.has_all())
    }

    fn describe(&self, state: &State) -> String {
        let waiting =
            state.workers.iter().enumerate().filter(|(_, it)| !it.has_left && !it.was_told);
        let texts: Vec<String> = waiting
            .map(|(rank, worker)| format!("w{rank} {}", worker.wants(self.layout)))
            .collect();
        texts.join(", ")
    }
}

impl Allreduce {
    /// Chunks that a worker has something for.
    fn chunks(&self, worker: u8) -> u8 {
        let vectors = self.vectors.get(usize::from(worker));
        match vectors {
            Some(vectors) => {
                u8::try_from(chunks_of(vectors).len()).expect("a model has few chunks")
            }
            None => self.layout.chunks(),
        }
    }

    /// The part of its vectors that a worker's chunk is; none beyond them.
    fn part(&self, worker: u8, chunk: u8) -> Option<(usize, u8, Length)> {
        match self.vectors.get(usize::from(worker)) {
            Some(vectors) => chunks_of(vectors).get(usize::from(chunk)).copied(),
            None => Some((0, chunk, Length { count: ELEMENTS, last: false })),
        }
    }

    /// Lets every worker send whatever its state allows; see [`crate::model::network`] for why.
    fn send_all(&self, state: &mut State) {
        for (rank, worker) in (0..).zip(&state.workers) {
            worker.send(self, rank, &mut state.network);
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtAggregator(message) => write!(f, "aggregator gets {message}"),
            Self::AtWorker(worker, message) => write!(f, "w{worker} gets {message}"),
            Self::NoticeEpoch(worker) => write!(f, "w{worker} notices the new epoch"),
            Self::Restart => write!(f, "the aggregator restarts"),
            Self::LoseAll => write!(f, "everything in flight is lost"),
        }
    }
}
