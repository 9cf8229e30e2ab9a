//! What a seed means for a push run: who is there, what they learn, what goes wrong when.

use weft_engine::random::SplitMix64;
use weft_io::fault::FaultRates;
use weft_wire::Nanos;

/// What a run is about.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    /// The network loses, repeats, reorders, delays and damages frames.
    Faults,
    /// And aggregators restart.
    Aggregators,
    /// And workers begin anew.
    Workers,
    /// And the replica restarts.
    Replica,
    /// And the server restarts from what it stored: weights, version, next order number.
    Server,
    /// And the controller forgets everything but its last order number and its last group.
    Controller,
    /// No controller: every update is a group of one.
    Direct,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 7] = [
        Self::Faults,
        Self::Aggregators,
        Self::Workers,
        Self::Replica,
        Self::Server,
        Self::Controller,
        Self::Direct,
    ];
}

/// Something that is done to a node.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Action {
    /// A box ends and comes back as a new life.
    RestartBox {
        /// Its place among the boxes.
        node: usize,
        /// How long it is away.
        pause: Nanos,
    },
    /// A worker ends and comes back as a new life.
    RestartWorker {
        /// Its place among the workers.
        worker: usize,
        /// How long it is away.
        pause: Nanos,
    },
    /// The controller restarts.
    RestartController,
}

/// An action, once so many updates are decided.
#[derive(Clone, Copy, Debug)]
pub struct Cue {
    /// Decisions, over all jobs.
    pub decided: u64,
    /// Time after that.
    pub delay: Nanos,
    /// What happens.
    pub action: Action,
}

/// A whole run.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The seed.
    pub seed: u64,
    /// What it is about.
    pub kind: Kind,
    /// Jobs that share all boxes.
    pub jobs: usize,
    /// Workers of each job.
    pub workers: usize,
    /// Aggregators.
    pub aggregators: usize,
    /// True when there is a replica.
    pub has_replica: bool,
    /// Chunks of each model.
    pub chunks: u32,
    /// Elements of a chunk.
    pub elements: u16,
    /// Fixed point, or f32.
    pub is_fixed: bool,
    /// Momentum: a power of two, so that small numbers stay exact.
    pub momentum: f32,
    /// Greatest delay.
    pub tau_max: u64,
    /// Bound of the distance to the replica.
    pub div_max: Option<f64>,
    /// Updates that each worker commits.
    pub updates: u32,
    /// Updates under way per worker.
    pub in_flight: usize,
    /// Bytes of an aggregator's quota, in updates.
    pub quota_updates: u32,
    /// The worker is told of a decision by the controller too.
    pub tells_outcomes: bool,
    /// Workers pull through an aggregator.
    pub relays: bool,
    /// What the network does.
    pub rates: FaultRates,
    /// What is done to nodes.
    pub cues: Vec<Cue>,
}

impl Scenario {
    /// The scenario of a seed.
    #[must_use]
    pub fn new(kind: Kind, seed: u64) -> Self {
        let mut random = SplitMix64::new(seed ^ (kind as u64) << 56);
        let mut below = |count: u64| random.next_u64() % count;
        let has_replica = kind == Kind::Replica || below(3) > 0;
        let jobs = 1 + usize::try_from(below(2)).expect("small");
        let workers = 2 + usize::try_from(below(4)).expect("small");
        let aggregators = 1 + usize::try_from(below(2)).expect("small");
        let rate = |value: u64| value as f64 / 100.0;
        let calm = below(5) == 0;
        let mut fault = |most: u64| if calm || below(3) == 0 { 0.0 } else { rate(below(most)) };
        let rates = FaultRates {
            loss: fault(26),
            duplicate: fault(20),
            reorder: fault(30),
            delay: fault(6),
            corrupt: fault(12),
        };
        let momentum = [0.0, 0.5, 0.5][usize::try_from(below(3)).expect("small")];
        let mut scenario = Self {
            seed,
            kind,
            jobs,
            workers,
            aggregators,
            has_replica,
            chunks: 3 + u32::try_from(below(6)).expect("small"),
            elements: [1, 4, 7][usize::try_from(below(3)).expect("small")],
            is_fixed: below(3) > 0,
            // What a server stores has no momentum term.
            momentum: if kind == Kind::Server { 0.0 } else { momentum },
            tau_max: [1, 4, 100][usize::try_from(below(3)).expect("small")].max(workers as u64 - 1),
            div_max: (has_replica && below(2) == 0).then_some(3.0),
            updates: 2 + u32::try_from(below(3)).expect("small"),
            in_flight: 1 + usize::try_from(below(2)).expect("small"),
            quota_updates: 1 + u32::try_from(below(4)).expect("small"),
            tells_outcomes: below(2) == 0,
            relays: below(2) == 0,
            rates,
            cues: Vec::new(),
        };
        scenario.plan_cues(&mut random);
        scenario
    }

    /// Boxes: aggregators, the server, the replica.
    #[must_use]
    pub fn boxes(&self) -> usize {
        self.aggregators + 1 + usize::from(self.has_replica)
    }

    /// The server's place among the boxes.
    #[must_use]
    pub fn server(&self) -> usize {
        self.aggregators
    }

    /// The replica's place among the boxes.
    #[must_use]
    pub fn replica(&self) -> Option<usize> {
        self.has_replica.then_some(self.aggregators + 1)
    }

    /// Parameters of each model: the last chunk is not full.
    #[must_use]
    pub fn dimension(&self) -> usize {
        (self.chunks as usize - 1) * usize::from(self.elements) + 1
    }

    fn plan_cues(&mut self, random: &mut SplitMix64) {
        let total = self.jobs as u64 * self.workers as u64 * u64::from(self.updates);
        let mut below = |count: u64| random.next_u64() % count.max(1);
        let count = 1 + below(3);
        for _ in 0..count {
            let micros = if below(2) == 0 { below(3_000) } else { below(200_000) };
            let pause = Nanos::from_micros(micros);
            let place = |count: usize, word: u64| usize::try_from(word).expect("small") % count;
            let action = match self.kind {
                Kind::Faults | Kind::Direct => return,
                Kind::Aggregators => {
                    Action::RestartBox { node: place(self.aggregators, below(64)), pause }
                }
                Kind::Server => Action::RestartBox { node: self.server(), pause },
                Kind::Replica => match self.replica() {
                    Some(node) => Action::RestartBox { node, pause },
                    None => return,
                },
                Kind::Workers => {
                    let worker = place(self.jobs * self.workers, below(64));
                    Action::RestartWorker { worker, pause }
                }
                Kind::Controller => Action::RestartController,
            };
            let delay = Nanos::from_micros(below(3_000));
            self.cues.push(Cue { decided: below(total), delay, action });
        }
    }
}
