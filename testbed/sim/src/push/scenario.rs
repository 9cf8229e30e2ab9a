//! What a seed means for a push run: who is there, who plans, what they learn, what goes wrong
//! when.

use std::sync::Arc;

use weft_engine::random::SplitMix64;
use weft_io::fault::FaultRates;
use weft_wire::Nanos;

use super::site::{Rack, Site};
use crate::hash;
use crate::world::Cue;

/// What a run is about.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Kind {
    /// The network loses, repeats, reorders, delays and damages frames.
    Faults,
    /// And aggregators restart.
    Aggregators,
    /// And workers begin anew.
    Workers,
    /// And the replica restarts.
    Replica,
    /// And the server restarts with what it kept.
    Server,
    /// And the controller forgets everything but its last order number and its last group.
    Controller,
    /// No controller: every update is a group of one.
    Direct,
    /// And the server dies for good, or is cut off from its controller; its replica takes over.
    Promotion,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 8] = [
        Self::Faults,
        Self::Aggregators,
        Self::Workers,
        Self::Replica,
        Self::Server,
        Self::Controller,
        Self::Direct,
        Self::Promotion,
    ];
}

/// Who plans.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Control {
    /// Nobody: workers go to the server.
    Nobody,
    /// [`super::planner`]: groups at random, stranger than any plan.
    Script,
    /// The controller's engine, over streams that break, on links with rates.
    Engine,
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
    /// A box ends, and does not come back.
    KillBox {
        /// Its place among the boxes.
        node: usize,
    },
    /// The link of a host gets other rates.
    SetRates {
        /// The host: boxes first, then workers' by rank.
        host: usize,
        /// From it and to it, bytes per second.
        rates: [Option<u64>; 2],
    },
    /// The controller restarts.
    RestartController {
        /// How long it is away.
        pause: Nanos,
    },
    /// The stream between the controller and a node breaks.
    Break {
        /// The node: boxes first, then workers.
        node: usize,
        /// When the node dials again.
        pause: Nanos,
    },
}

/// A whole run.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The seed.
    pub seed: u64,
    /// What it is about.
    pub kind: Kind,
    /// Who plans.
    pub control: Control,
    /// Share of the frames to which an enemy adds one of his own.
    pub hostile: f64,
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
    pub cues: Vec<Cue<Action>>,
    /// None for nodes and links that a seed makes up, with small numbers.
    pub site: Option<Arc<Site>>,
}

impl Scenario {
    /// The scenario of a seed.
    #[must_use]
    pub fn new(kind: Kind, seed: u64) -> Self {
        let mut random = SplitMix64::new(seed ^ (kind as u64) << 56);
        let mut below = |count: u64| random.next_u64() % count;
        let has_replica = matches!(kind, Kind::Replica | Kind::Promotion) || below(3) > 0;
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
        let control = match kind {
            Kind::Direct => Control::Nobody,
            Kind::Promotion => Control::Engine,
            _ if seed.is_multiple_of(SCRIPTED_EVERY) => Control::Script,
            _ => Control::Engine,
        };
        let mut scenario = Self {
            seed,
            kind,
            control,
            hostile: [0.0, 0.02, 0.1][usize::try_from(seed / 3 % 3).expect("small")],
            jobs,
            workers,
            aggregators,
            has_replica,
            chunks: 3 + u32::try_from(below(6)).expect("small"),
            elements: [1, 4, 7][usize::try_from(below(3)).expect("small")],
            is_fixed: below(3) > 0,
            momentum,
            tau_max: [1, 4, 100][usize::try_from(below(3)).expect("small")].max(workers as u64 - 1),
            div_max: (has_replica && below(2) == 0).then_some(3.0),
            updates: 2 + u32::try_from(below(3)).expect("small"),
            in_flight: 1 + usize::try_from(below(2)).expect("small"),
            quota_updates: 1 + u32::try_from(below(4)).expect("small"),
            tells_outcomes: below(2) == 0,
            relays: below(2) == 0,
            rates,
            cues: Vec::new(),
            site: None,
        };
        scenario.plan_cues(&mut random);
        if control == Control::Engine {
            // A plan drops what will be too old; with every bound tight it would do nothing else.
            scenario.tau_max *= [1, 2, 8][usize::try_from(seed % 7 % 3).expect("small")];
            scenario.plan_breaks(&mut SplitMix64::new(hash(&[seed, kind as u64, 78])));
            scenario.plan_lives(&mut SplitMix64::new(hash(&[seed, kind as u64, 79])));
        }
        scenario
    }

    /// Workers that push updates of 408 KB straight to their server, one after another, as
    /// `testbed/scenarios/busy_server.toml` has it; frames are lost with this probability.
    #[must_use]
    pub fn busy_server(rack: Rack, workers: usize, updates: u32, loss: f64) -> Self {
        let elements = 2_048.min((rack.mtu - 60) / 4);
        let mut scenario = Self {
            seed: 1,
            kind: Kind::Faults,
            control: Control::Engine,
            hostile: 0.0,
            jobs: 1,
            workers,
            aggregators: 0,
            has_replica: false,
            chunks: 102_090_u32.div_ceil(u32::from(elements)),
            elements,
            is_fixed: true,
            momentum: 0.0,
            tau_max: 2 * workers as u64,
            div_max: None,
            updates,
            in_flight: 1,
            quota_updates: 0,
            tells_outcomes: false,
            relays: false,
            rates: FaultRates { loss, ..FaultRates::NONE },
            cues: Vec::new(),
            site: None,
        };
        scenario.site = Some(Arc::new(rack.site(&scenario)));
        scenario
    }

    /// MTU of every link: Ethernet's for seeds.
    #[must_use]
    pub fn mtu(&self) -> u16 {
        self.site.as_ref().map_or(1_500, |site| site.mtu)
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

    /// True when workers are told only of what the replica has, which may then take over.
    #[must_use]
    pub fn has_heir(&self) -> bool {
        self.kind == Kind::Promotion
    }

    /// True when the controller hears of the trains that transfers begin with.
    #[must_use]
    pub fn has_trains(&self) -> bool {
        self.site.as_ref().is_some_and(|site| site.has_trains)
    }

    /// How long the controller may be away before updates go to the server.
    #[must_use]
    pub fn silence(&self) -> Nanos {
        self.site.as_ref().map_or(SILENCE, |site| site.silence)
    }

    /// How long it may leave a request.
    #[must_use]
    pub fn patience(&self) -> Nanos {
        self.site.as_ref().map_or(PATIENCE, |site| site.patience)
    }

    /// Parameters of each model: the last chunk is not full.
    #[must_use]
    pub fn dimension(&self) -> usize {
        if let Some(site) = &self.site {
            return site.server.config.model.dimension;
        }
        (self.chunks as usize - 1) * usize::from(self.elements) + 1
    }

    fn plan_cues(&mut self, random: &mut SplitMix64) {
        let total = self.jobs as u64 * self.workers as u64 * u64::from(self.updates);
        let mut below = |count: u64| random.next_u64() % count.max(1);
        let count = 1 + below(3);
        for number in 0..count {
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
                Kind::Controller => Action::RestartController { pause },
                Kind::Promotion if number == 0 => match below(3) {
                    // It goes on among its workers, until it hears what it is not any more.
                    0 => Action::Break { node: self.server(), pause: pause.max(CUT_OFF) },
                    _ => Action::KillBox { node: self.server() },
                },
                Kind::Promotion => match below(3) {
                    0 => Action::RestartController { pause },
                    1 => Action::RestartBox { node: place(self.aggregators, below(64)), pause },
                    _ => {
                        let worker = place(self.jobs * self.workers, below(64));
                        Action::RestartWorker { worker, pause }
                    }
                },
            };
            let delay = Nanos::from_micros(below(3_000));
            self.cues.push(Cue { after: below(total).max(self.first_cue()), delay, action });
        }
    }

    /// Streams to the controller that break, a few in most runs.
    fn plan_breaks(&mut self, random: &mut SplitMix64) {
        let total = self.jobs as u64 * self.workers as u64 * u64::from(self.updates);
        let nodes = (self.boxes() + self.jobs * self.workers) as u64;
        let mut below = |count: u64| random.next_u64() % count.max(1);
        for _ in 0..below(4) {
            let node = usize::try_from(below(nodes)).expect("small");
            let micros = if below(2) == 0 { below(3_000) } else { below(BREAK_MICROS_MAX) };
            let action = Action::Break { node, pause: Nanos::from_micros(micros) };
            let delay = Nanos::from_micros(below(3_000));
            self.cues.push(Cue { after: below(total), delay, action });
        }
    }

    /// In one promotion of four the new server is another life than the one that workers' first
    /// outcomes waited for.
    fn plan_lives(&mut self, random: &mut SplitMix64) {
        let total = self.jobs as u64 * self.workers as u64 * u64::from(self.updates);
        let mut below = |count: u64| random.next_u64() % count.max(1);
        let replica = self.replica().filter(|_| self.has_heir() && below(4) == 0);
        if let Some(node) = replica {
            let pause = Nanos::from_micros(below(20_000));
            let delay = Nanos::from_micros(below(20_000));
            let action = Action::RestartBox { node, pause };
            self.cues.push(Cue { after: below(total), delay, action });
        }
    }

    /// Decisions before anything happens. A server that dies before its replica ever met it leaves
    /// nothing to go on with.
    const fn first_cue(&self) -> u64 {
        matches!(self.kind, Kind::Promotion) as u64
    }
}

/// [`Scenario::silence`] of a seed.
pub(super) const SILENCE: Nanos = Nanos::from_millis(60);
/// [`Scenario::patience`] of a seed.
pub(super) const PATIENCE: Nanos = Nanos::from_millis(2_000);
/// One seed in so many is planned by the script.
const SCRIPTED_EVERY: u64 = 5;
/// A server that says nothing for so long is taken for dead.
const CUT_OFF: Nanos = Nanos::from_millis(1_500);
/// Longest break of a stream.
const BREAK_MICROS_MAX: u64 = 200_000;
