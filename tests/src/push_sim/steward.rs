//! The controller: its real engine, what it has saved, and what a daemon around it does: words in,
//! time, state to disk, words out. A crash leaves what was on disk.

use weft_engine::push::{Command, Event};
use weft_engine::random::SplitMix64;
use weft_plan::engine::{
    Action, Config, Controller, Element, HostConfig, JobConfig, JobCounters, Mode, NodeHello,
    NodeId, Refusal, Reply, Saved, Telemetry, TransferRequest, Tuning, WorkerConfig,
    built_in_policies,
};
use weft_wire::{JobId, Nanos};

use super::scenario::{Control, Scenario};
use super::topology;
use crate::sim::coverage::Coverage;
use crate::sim::hash;

/// Who is told something by the controller.
#[derive(Clone, Debug)]
pub enum Told {
    /// A box.
    Box {
        /// Its place.
        node: usize,
        /// What.
        command: Command,
    },
    /// A worker.
    Worker {
        /// Its place among the workers.
        worker: usize,
        /// What.
        reply: Reply,
    },
}

/// The controller and its disk.
#[derive(Debug)]
pub struct Steward {
    config: Config,
    controller: Option<Controller>,
    born: Nanos,
    saved: Saved,
    saved_at: Nanos,
    /// By place: the stream that the controller takes words from.
    streams: Vec<Option<u64>>,
    boxes: Vec<Option<NodeId>>,
    workers_per_job: usize,
}

impl Steward {
    /// A controller that begins.
    #[must_use]
    pub fn new(scenario: &Scenario) -> Self {
        let nodes = scenario.boxes() + scenario.jobs * scenario.workers;
        let [seed, ..] = hash(&[scenario.seed, 61]).to_be_bytes();
        let mut steward = Self {
            config: config(scenario),
            controller: None,
            born: Nanos(0),
            saved: Saved::fresh(seed.into()),
            saved_at: Nanos(0),
            streams: vec![None; nodes],
            boxes: vec![None; scenario.boxes()],
            workers_per_job: scenario.workers,
        };
        if scenario.control == Control::Engine {
            steward.start(Nanos(0));
        }
        steward
    }

    /// Starts a controller that has died, with what is on disk.
    pub fn start(&mut self, now: Nanos) {
        let controller = Controller::new(self.config.clone(), &self.saved, built_in_policies());
        self.controller = Some(controller.expect("a good configuration"));
        self.born = now;
        self.saved_at = now;
    }

    /// Ends it. What was not saved is lost.
    pub fn stop(&mut self, coverage: &mut Coverage) {
        self.count(coverage);
        self.controller = None;
        self.streams.fill(None);
        self.boxes.fill(None);
    }

    /// True while it runs.
    #[must_use]
    pub const fn is_up(&self) -> bool {
        self.controller.is_some()
    }

    fn now_ns(&self, now: Nanos) -> u64 {
        now.since(self.born).0
    }

    /// True when words of that stream are to be taken.
    #[must_use]
    pub fn hears(&self, node: usize, stream: u64) -> bool {
        self.streams[node] == Some(stream)
    }

    /// A box's first word.
    ///
    /// # Errors
    /// What the controller does not like.
    pub fn box_hello(
        &mut self,
        now: Nanos,
        (node, stream): (usize, u64),
        hello: &NodeHello,
    ) -> Result<(), Refusal> {
        let now_ns = self.now_ns(now);
        let Some(controller) = &mut self.controller else { return Ok(()) };
        self.boxes[node] = Some(controller.handle_node(now_ns, hello)?);
        self.streams[node] = Some(stream);
        Ok(())
    }

    /// A worker's first word.
    ///
    /// # Errors
    /// What the controller does not like.
    pub fn worker_hello(
        &mut self,
        (node, stream): (usize, u64),
        (job, rank): (usize, usize),
        life: u64,
    ) -> Result<(), Refusal> {
        let Some(controller) = &mut self.controller else { return Ok(()) };
        controller.handle_worker(topology::job_id(job), topology::rank(rank), life, None)?;
        self.streams[node] = Some(stream);
        Ok(())
    }

    /// A stream has ended, as far as the controller can tell.
    pub fn gone(&mut self, now: Nanos, node: usize, stream: u64) {
        let now_ns = self.now_ns(now);
        if !self.hears(node, stream) {
            return;
        }
        self.streams[node] = None;
        let Some(controller) = &mut self.controller else { return };
        match node.checked_sub(self.boxes.len()) {
            None => {
                if let Some(id) = self.boxes[node] {
                    controller.handle_node_gone(now_ns, id);
                }
            }
            Some(worker) => {
                let (job, rank) = (worker / self.workers_per_job, worker % self.workers_per_job);
                controller.handle_worker_gone(topology::job_id(job), topology::rank(rank));
            }
        }
    }

    /// A box reports.
    ///
    /// # Errors
    /// What the controller does not like.
    pub fn event(
        &mut self,
        now: Nanos,
        node: usize,
        (job, event): (JobId, &Event),
    ) -> Result<(), Refusal> {
        let now_ns = self.now_ns(now);
        match (&mut self.controller, self.boxes[node]) {
            (Some(controller), Some(id)) => controller.handle_event(now_ns, id, job, event),
            _ => Ok(()),
        }
    }

    /// A box's counters.
    ///
    /// # Errors
    /// What the controller does not like.
    pub fn telemetry(
        &mut self,
        now: Nanos,
        node: usize,
        telemetry: &Telemetry,
    ) -> Result<(), Refusal> {
        let now_ns = self.now_ns(now);
        match (&mut self.controller, self.boxes[node]) {
            (Some(controller), Some(id)) => controller.handle_telemetry(now_ns, id, telemetry),
            _ => Ok(()),
        }
    }

    /// A worker asks, or takes back.
    ///
    /// # Errors
    /// What the controller does not like.
    pub fn asked(
        &mut self,
        now: Nanos,
        (job, rank): (usize, usize),
        asked: &Asked,
    ) -> Result<(), Refusal> {
        let now_ns = self.now_ns(now);
        let (job, rank) = (topology::job_id(job), topology::rank(rank));
        let Some(controller) = &mut self.controller else { return Ok(()) };
        match asked {
            Asked::Transfer(request) => controller.handle_request(now_ns, job, rank, request),
            Asked::Cancel(id) => controller.handle_cancel(job, rank, *id),
            Asked::Pulled { bytes, duration_ns } => {
                controller.handle_pull_sample(now_ns, job, rank, (*bytes, *duration_ns))
            }
        }
    }

    /// Lets it do what is due, saves what must be saved, and takes what it wants told.
    pub fn advance(&mut self, now: Nanos) -> Vec<Told> {
        let now_ns = self.now_ns(now);
        let Some(controller) = &mut self.controller else { return Vec::new() };
        controller.handle_timeout(now_ns);
        if controller.is_save_urgent() || now.since(self.saved_at) >= SAVE_EVERY {
            self.saved_at = now;
            if let Some(saved) = controller.poll_saved() {
                self.saved = saved;
            }
        }
        let mut told = Vec::new();
        while let Some(action) = controller.poll_action() {
            let (boxes, workers) = (&self.boxes, self.workers_per_job);
            let word = match action {
                Action::Command { node, command } => {
                    let place = boxes.iter().position(|known| *known == Some(node));
                    Told::Box { node: place.expect("only boxes that attached"), command }
                }
                Action::Reply { job, rank, reply } => Told::Worker {
                    worker: topology::job_place(job) * workers + rank.index(),
                    reply,
                },
                // People are told; there are none here.
                Action::Notice { .. } | Action::Probe { .. } => continue,
            };
            told.push(word);
        }
        told
    }

    /// When [`Steward::advance`] is due. Never at once: an engine that wants what it cannot have
    /// does not spin.
    #[must_use]
    pub fn timeout(&self, now: Nanos) -> Nanos {
        let due_ns = self.controller.as_ref().and_then(Controller::poll_timeout);
        let due = due_ns.map_or(Nanos::MAX, |due_ns| self.born.saturating_add(Nanos(due_ns)));
        due.max(now.saturating_add(IDLE_MIN))
    }

    /// Adds its counters, when it stops.
    pub fn count(&self, coverage: &mut Coverage) {
        let Some(controller) = &self.controller else { return };
        let status = controller.status(0);
        coverage.add("controller", "plans", status.plans);
        for (field, count) in &status.refused {
            coverage.add("refusal", field, *count);
        }
        for job in &status.jobs {
            let JobCounters {
                requested,
                granted,
                aggregated,
                committed,
                voided,
                dropped,
                cancelled,
                unknown,
                replans_failure,
                replans_late,
                replans_bandwidth,
                policy_failures,
                ..
            } = job.counters;
            let counts = [
                ("requested", requested),
                ("granted", granted),
                ("aggregated", aggregated),
                ("committed", committed),
                ("voided", voided),
                ("dropped", dropped),
                ("cancelled", cancelled),
                ("unknown", unknown),
                ("replans_failure", replans_failure),
                ("replans_late", replans_late),
                ("replans_bandwidth", replans_bandwidth),
                ("policy_failures", policy_failures),
            ];
            counts.iter().for_each(|(name, count)| coverage.add("controller", name, *count));
        }
    }
}

/// What a worker says to the controller.
#[derive(Clone, Debug)]
pub enum Asked {
    /// May I send this?
    Transfer(TransferRequest),
    /// I will not send it.
    Cancel(u64),
    /// A model has arrived.
    Pulled {
        /// Its size.
        bytes: u64,
        /// How long it took.
        duration_ns: u64,
    },
}

/// The name of a box.
#[must_use]
pub fn box_name(scenario: &Scenario, node: usize) -> String {
    match node {
        node if node == scenario.server() => "s0".to_owned(),
        node if Some(node) == scenario.replica() => "r0".to_owned(),
        node => format!("a{node}"),
    }
}

/// Rates up and down of every host: the boxes, then a host for each rank, which the workers of all
/// jobs share. None where nobody plans by rates.
#[must_use]
pub fn host_rates(scenario: &Scenario) -> Vec<[u64; 2]> {
    let mut random = SplitMix64::new(hash(&[scenario.seed, 62]));
    let mut rate = || RATE_MIN + random.next_u64() % RATE_SPAN;
    let hosts = scenario.boxes() + scenario.workers;
    let mut rates: Vec<[u64; 2]> = (0..hosts).map(|_| [rate(), rate()]).collect();
    if scenario.seed.is_multiple_of(2) {
        // A server's link that gains by sums.
        rates[scenario.server()][1] = RATE_MIN;
    }
    rates
}

fn config(scenario: &Scenario) -> Config {
    let mut random = SplitMix64::new(hash(&[scenario.seed, 63]));
    let mut below = |count: u64| random.next_u64() % count;
    let knows_rates = below(3) > 0;
    let names = (0..scenario.boxes()).map(|node| box_name(scenario, node));
    let names = names.chain((0..scenario.workers).map(|rank| format!("w{rank}")));
    let hosts = names.zip(host_rates(scenario)).map(|(name, [up, down])| HostConfig {
        name,
        up_bytes_per_sec: knows_rates.then_some(up),
        down_bytes_per_sec: knows_rates.then_some(down),
        rack: None,
    });
    let policy = POLICIES[usize::try_from(below(POLICIES.len() as u64)).expect("small")];
    let tuning = Tuning {
        policy: policy.to_owned(),
        gather_window_us: 1_000 + below(4_000),
        batch_max: [2, 128][usize::try_from(below(2)).expect("small")],
        grant_lead_us: below(6_000),
        node_timeout_ms: 10 + below(100),
        install_timeout_ms: 10 + below(60),
        age_limit_ms: 20 + below(100),
        turn_updates: [1, 16][usize::try_from(below(2)).expect("small")],
        updates_per_worker_max: [2, 8][usize::try_from(below(2)).expect("small")],
        void_ms_min: 100 + below(1_000),
        initial_bytes_per_sec: 1_000_000,
        ..Tuning::default()
    };
    let weight = [1.0, 3.0][usize::try_from(below(2)).expect("small")];
    let jobs = (0..scenario.jobs).map(|job| JobConfig {
        name: format!("j{job}"),
        index: topology::job_id(job).0,
        dimension: scenario.dimension() as u64,
        element: if scenario.is_fixed { Element::I32 } else { Element::F32 },
        elements_per_chunk: Some(scenario.elements),
        workers: (0..scenario.workers).map(|rank| WorkerConfig::Host(format!("w{rank}"))).collect(),
        server: "s0".to_owned(),
        aggregators: (0..scenario.aggregators).map(|node| format!("a{node}")).collect(),
        // Nobody is promoted here: a dead server comes back.
        ack: weft_plan::engine::Ack::Commit,
        replica: scenario.replica().map(|_| "r0".to_owned()),
        tau_max: Some(scenario.tau_max),
        momentum: scenario.momentum.into(),
        div_max: scenario.div_max,
        mode: Mode::Async,
        partial_count: None,
        policy: None,
        weight: if job == 0 { weight } else { 1.0 },
        options: weft_plan::case::Options::default(),
    });
    Config { tuning, hosts: hosts.collect(), jobs: jobs.collect(), ..Config::default() }
}

/// Planners whose plans any job can follow; the default more often.
const POLICIES: &[&str] =
    &["mlfabric", "mlfabric", "mlfabric", "fifo", "fair", "newest-first", "tree"];
/// Least rate of a link, and how much more it may have: an update takes a fraction of a millisecond
/// to a few.
const RATE_MIN: u64 = 200_000;
const RATE_SPAN: u64 = 3_000_000;
const IDLE_MIN: Nanos = Nanos::from_micros(200);
const SAVE_EVERY: Nanos = Nanos::from_millis(1_000);
