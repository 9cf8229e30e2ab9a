//! Rule 6: lives, cookies, epochs and generations, when boxes restart and old frames come late.
//!
//! A worker says HELLO with its life (a random number of the process), gets a cookie with the
//! WELCOME, and joins with it. When all ranks have joined, a group opens for exactly those lives.
//! A worker that restarts has a new life and new data; when its new life joins, the open group is
//! given up and the next generation forms. The aggregator may restart too: then epoch and cookies
//! are new and generations begin again. Workers whose run is over close; when all have, the next
//! lives form the next group. The model checks:
//!
//! - I1, I2: each sum that a worker accepts has one contribution of every rank, all made for the
//!   same formation as the worker's own, and all chunks of a formation come from the same lives;
//! - no group opens with a life that the aggregator knows to have ended: nobody would contribute;
//! - I9: from every state a state is reachable in which all ranks hold all sums of one group, of
//!   the last run.
//!
//! A group that a restart interrupts is given up here. That the survivors of an *aggregator's*
//! restart may go on with it is the matter of [`super::allreduce`].
//!
//! [`aggregator`] is the rule; this file is the world around it, and what a worker does.

pub mod aggregator;
pub mod message;

use std::fmt;

use crate::model::network::Network;
use crate::model::search::Model;
use aggregator::Aggregator;
use message::{Message, Sum};

/// The protocol as specified, or with one rule broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rules {
    /// PROTOCOL.md as it is.
    AsSpecified,
    /// A new life of a rank takes the old one's place in the open group.
    ReenterOpenGroup,
    /// A cookie tells the rank and the epoch, not the life.
    CookieWithoutLife,
    /// The epoch comes from a configuration file: a restarted aggregator looks like its former
    /// self.
    EpochFromConfiguration,
    /// Frames are matched to the row's index, not to its generation.
    GroupWithoutGeneration,
    /// A HELLO joins by itself; nothing shows that its sender still lives.
    HelloBinds,
    /// A life that has closed may join as long as no later life of its rank has.
    EndedLifeJoins,
}

/// Ranks that form groups: how many, their faults, their rules.
#[derive(Debug, Clone, Copy)]
pub struct Identity {
    /// Ranks of the job, 2 or 3.
    pub workers: u8,
    /// Chunks of a group.
    pub chunks: u8,
    /// Runs, one after the other: after each but the last all workers close.
    pub runs: u8,
    /// How often workers may restart, all together.
    pub worker_restart_count_max: u8,
    /// How often the aggregator may restart.
    pub aggregator_restart_count_max: u8,
    /// Whether the network may lose everything in flight; needed to judge progress.
    pub lossy: bool,
    /// The rules in force.
    pub rules: Rules,
}

/// One moment of an [`Identity`].
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    workers: Vec<Worker>,
    aggregator: Aggregator,
    network: Network<Message>,
    worker_restarts_left: u8,
    aggregator_restarts_left: u8,
    /// Ghost: the formation of which all ranks had all sums when the first of them closed.
    finished: Option<u8>,
    /// Ghost: whose data the accepted sums of each formation have.
    lives_of: Vec<(u8, Lives)>,
    /// Ghost: the first property that broke.
    broken: Option<Broken>,
}

/// The life of each rank.
pub(crate) type Lives = [u8; WORKER_COUNT_MAX];

/// Ranks that the model has room for.
pub(crate) const WORKER_COUNT_MAX: usize = 3;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Worker {
    life: u8,
    run: u8,
    /// The epoch of the newest cookie that it got; 0 for none.
    cookie_epoch: u8,
    /// False from the moment when it doubts its cookie until it gets a newer one.
    has_cookie: bool,
    group: Option<Membership>,
}

/// A worker's place in an open group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Membership {
    generation: u8,
    /// Ghost: which formation its data belongs to.
    formation: u8,
    /// The chunks whose sums it has, as a bitmap.
    had: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Broken {
    Mixed { worker: u8, chunk: u8, formation: u8, sum: Sum },
    Torn { worker: u8, chunk: u8, before: Lives, now: Lives },
    Ghost { worker: u8, life: u8 },
}

/// One step of an [`Identity`].
#[derive(Debug, Clone, Copy)]
pub enum Action {
    /// A message reaches the aggregator.
    AtAggregator(Message),
    /// A message reaches a worker.
    AtWorker(u8, Message),
    /// A worker doubts its cookie and says hello again.
    Doubt(u8),
    /// A worker loses its state and comes back with a new life.
    RestartWorker(u8),
    /// A worker has all sums of its run, closes, and begins the next one with a new life.
    Close(u8),
    /// The aggregator loses its state and comes back.
    RestartAggregator,
    /// The network loses everything in flight; the boxes send again what they still want.
    LoseAll,
}

impl Model for Identity {
    type State = State;
    type Action = Action;

    fn initial(&self) -> State {
        let mut state = State {
            workers: vec![Worker::new(1, 1); usize::from(self.workers)],
            aggregator: Aggregator::new(usize::from(self.chunks)),
            network: Network::empty(),
            worker_restarts_left: self.worker_restart_count_max,
            aggregator_restarts_left: self.aggregator_restart_count_max,
            finished: None,
            lives_of: Vec::new(),
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
                offer(Action::AtAggregator(message), &|next| {
                    next.aggregator.handle(self, message, &mut next.network);
                    let ghost = next.aggregator.ghost();
                    next.broken = ghost.map(|(worker, life)| Broken::Ghost { worker, life });
                });
                continue;
            }
            for worker in 0..self.workers {
                offer(Action::AtWorker(worker, message), &|next| {
                    self.at_worker(next, worker, message);
                });
            }
        }
        for worker in 0..self.workers {
            if state.worker_restarts_left > 0 {
                offer(Action::RestartWorker(worker), &|next| {
                    // It goes on with the run that the others are in.
                    let run = next.workers.iter().map(|worker| worker.run).max().unwrap_or(1);
                    let this = &mut next.workers[usize::from(worker)];
                    *this = Worker::new(this.life + 1, run);
                    next.worker_restarts_left -= 1;
                });
            }
            if self.may_close(state, worker) {
                offer(Action::Close(worker), &|next| {
                    let this = &mut next.workers[usize::from(worker)];
                    let (life, epoch) = (this.life, this.cookie_epoch);
                    if let Some(Membership { generation, formation, .. }) = this.group {
                        next.network.send(Message::Close { worker, life, epoch, generation });
                        next.finished = Some(formation);
                    }
                    *this = Worker::new(this.life + 1, this.run + 1);
                });
            }
            let epoch = state.aggregator.epoch;
            let this = &state.workers[usize::from(worker)];
            if this.cookie_epoch < epoch && !self.is_closing(state, worker) {
                offer(Action::Doubt(worker), &|next| {
                    let this = &mut next.workers[usize::from(worker)];
                    this.has_cookie = false;
                    this.group = None;
                });
            }
        }
        if state.aggregator_restarts_left > 0 {
            offer(Action::RestartAggregator, &|next| {
                next.aggregator.restart(self.rules);
                next.aggregator_restarts_left -= 1;
            });
        }
        if self.lossy {
            offer(Action::LoseAll, &|next| next.network.lose_all());
        }
    }

    fn broken_property(&self, state: &State) -> Option<String> {
        let ranks = usize::from(self.workers);
        Some(match state.broken? {
            Broken::Mixed { worker, chunk, formation, sum } => {
                let parts = sum[..ranks].iter().enumerate().map(|(rank, data)| match data {
                    Some(data) => format!("w{rank}'s of formation {}", data.formation),
                    None => format!("nothing of w{rank}"),
                });
                let parts: Vec<String> = parts.collect();
                format!(
                    "w{worker} in formation {formation} accepts for c{chunk} a sum with {}",
                    parts.join(" and ")
                )
            }
            Broken::Torn { worker, chunk, before, now } => format!(
                "torn update: w{worker} accepts c{chunk} from the lives {:?}, another chunk of the \
                 same group came from {:?}",
                &now[..ranks],
                &before[..ranks]
            ),
            Broken::Ghost { worker, life } => {
                format!("a group opens with w{worker}'s life {life}, which has closed")
            }
        })
    }

    fn is_done(&self, state: &State) -> bool {
        let all_end = state.workers.iter().all(|worker| worker.run == self.runs);
        all_end && self.all_have(state, self.formation_done(&state.workers[0]))
    }

    fn describe(&self, state: &State) -> String {
        let wants = state.workers.iter().enumerate().map(|(rank, worker)| {
            let what = match (worker.has_cookie, worker.group) {
                (false, _) => "for a cookie".to_owned(),
                (true, None) => "for a group".to_owned(),
                (true, Some(group)) if group.had.count_ones() == u32::from(self.chunks) => {
                    "for the others to end the group with it".to_owned()
                }
                (true, Some(group)) => format!("for sums of generation {}", group.generation),
            };
            format!("w{rank} (life {}) {what}", worker.life)
        });
        wants.collect::<Vec<_>>().join(", ")
    }
}

impl Identity {
    /// The formation of which the worker has all sums.
    fn formation_done(&self, worker: &Worker) -> Option<u8> {
        let all = (1 << self.chunks) - 1;
        worker.group.filter(|group| group.had == all).map(|group| group.formation)
    }

    fn all_have(&self, state: &State, formation: Option<u8>) -> bool {
        let has = |worker| self.formation_done(worker) == formation;
        formation.is_some() && state.workers.iter().all(has)
    }

    /// A worker closes when all ranks hold all sums: how long one waits for the others that lack
    /// some is the matter of a timer, `close_linger`.
    fn may_close(&self, state: &State, worker: u8) -> bool {
        let this = &state.workers[usize::from(worker)];
        let is_over = self.all_have(state, self.formation_done(this));
        this.run < self.runs && (is_over || self.is_closing(state, worker))
    }

    /// A worker whose run others have closed does so next, and takes part in no other group.
    fn is_closing(&self, state: &State, worker: u8) -> bool {
        let done = self.formation_done(&state.workers[usize::from(worker)]);
        done.is_some() && done == state.finished
    }

    /// Lets every worker send whatever its state allows; see [`crate::model::network`] for why.
    fn send_all(&self, state: &mut State) {
        for worker in 0..self.workers {
            if self.is_closing(state, worker) {
                continue;
            }
            let this = &state.workers[usize::from(worker)];
            let (life, epoch) = (this.life, this.cookie_epoch);
            if !this.has_cookie {
                state.network.send(Message::Hello { worker, life });
                continue;
            }
            let missing = |group: Membership| {
                (0..self.chunks).filter(move |chunk| group.had >> chunk & 1 == 0)
            };
            let Some(group) = this.group.filter(|&group| missing(group).count() > 0) else {
                state.network.send(Message::Join { worker, life, epoch });
                continue;
            };
            let Membership { generation, formation, .. } = group;
            for chunk in missing(group) {
                state.network.send(Message::Contribution {
                    worker,
                    life,
                    epoch,
                    generation,
                    chunk,
                    formation,
                });
            }
        }
    }

    /// Lets `message` arrive at `worker`.
    fn at_worker(&self, state: &mut State, worker: u8, message: Message) {
        if self.is_closing(state, worker) {
            return;
        }
        let this = &mut state.workers[usize::from(worker)];
        let life_fits = |life: u8| life == this.life || self.rules == Rules::CookieWithoutLife;
        let generation_fits = |generation: u8, group: Membership| {
            generation == group.generation || self.rules == Rules::GroupWithoutGeneration
        };
        match message {
            Message::Welcome { worker: to, life, epoch }
                if to == worker && life_fits(life) && epoch > this.cookie_epoch =>
            {
                this.cookie_epoch = epoch;
                this.has_cookie = true;
                this.group = None;
            }
            Message::Opened { worker: to, life, epoch, generation, formation } if to == worker => {
                let is_newer = this.group.is_none_or(|group| generation > group.generation);
                if this.has_cookie && epoch == this.cookie_epoch && life_fits(life) && is_newer {
                    this.group = Some(Membership { generation, formation, had: 0 });
                }
            }
            Message::Answer { epoch, generation, chunk, sum } => {
                let Some(group) = this.group else { return };
                let is_awaited = group.had >> chunk & 1 == 0;
                if epoch == this.cookie_epoch && generation_fits(generation, group) && is_awaited {
                    self.accept(state, worker, chunk, sum);
                }
            }
            Message::GivenUp { epoch, generation } => {
                let is_mine = this.group.is_some_and(|group| group.generation == generation);
                if epoch == this.cookie_epoch && is_mine {
                    this.group = None;
                }
            }
            _ => {}
        }
    }

    /// Takes a sum, and checks I1 and I2 on it.
    fn accept(&self, state: &mut State, worker: u8, chunk: u8, sum: Sum) {
        let Some(group) = &mut state.workers[usize::from(worker)].group else { return };
        group.had |= 1 << chunk;
        let formation = group.formation;
        let members = &sum[..usize::from(self.workers)];
        if members.iter().any(|data| data.is_none_or(|data| data.formation != formation)) {
            state.broken = Some(Broken::Mixed { worker, chunk, formation, sum });
            return;
        }
        let now = sum.map(|data| data.map_or(0, |data| data.life));
        match state.lives_of.iter().find(|(of, _)| *of == formation) {
            Some(&(_, before)) if before != now => {
                state.broken = Some(Broken::Torn { worker, chunk, before, now });
            }
            Some(_) => {}
            None => {
                state.lives_of.push((formation, now));
                state.lives_of.sort_unstable();
            }
        }
    }
}

impl Worker {
    const fn new(life: u8, run: u8) -> Self {
        Self { life, run, cookie_epoch: 0, has_cookie: false, group: None }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtAggregator(message) => write!(f, "aggregator gets {message}"),
            Self::AtWorker(worker, message) => write!(f, "w{worker} gets {message}"),
            Self::Doubt(worker) => write!(f, "w{worker} doubts its cookie"),
            Self::RestartWorker(worker) => write!(f, "w{worker} restarts with a new life"),
            Self::RestartAggregator => write!(f, "the aggregator restarts"),
            Self::Close(worker) => write!(f, "w{worker} closes and begins its next run"),
            Self::LoseAll => write!(f, "everything in flight is lost"),
        }
    }
}
