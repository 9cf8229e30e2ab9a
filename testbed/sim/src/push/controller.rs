//! The controller: its real engine, what it has saved, and what a daemon around it does: words in,
//! time, state to disk, words out. A crash leaves what was on disk.

use std::net::SocketAddr;

use weft_control::{Command, Event, Train};
use weft_controller_engine::{
    Action, Answer, Config, Controller, JobCounters, NodeHello, NodeId, Notice, Refusal, Reply,
    Saved, Telemetry, TransferRequest,
};
use weft_wire::{JobId, Nanos};

use super::scenario::{Control, Scenario};
use super::site::Policies;
use super::topology;
use crate::coverage::Coverage;
use crate::hash;

mod config;

pub(crate) use config::config;
pub use config::{box_name, host_rates};

/// Who is told something by the controller.
#[derive(Clone, Debug)]
pub enum Outgoing {
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
    /// People are.
    People {
        /// Of this job.
        job: JobId,
        /// What.
        notice: Notice,
    },
}

/// The controller and its disk.
#[derive(Debug)]
pub struct ControllerNode {
    config: Config,
    policies: Policies,
    answer_delay: Nanos,
    /// Answers of policies that are other programs, and when each arrives.
    answers: Vec<(Nanos, Answer)>,
    controller: Option<Controller>,
    born: Nanos,
    saved: Saved,
    saved_at: Nanos,
    /// By place: the stream that the controller takes words from.
    streams: Vec<Option<u64>>,
    boxes: Vec<Option<NodeId>>,
    workers_per_job: usize,
}

impl ControllerNode {
    /// A controller that begins.
    #[must_use]
    pub fn new(scenario: &Scenario) -> Self {
        let nodes = scenario.boxes() + scenario.jobs * scenario.workers;
        let site = scenario.site.as_ref();
        let [seed, ..] = hash(&[scenario.seed, 61]).to_be_bytes();
        let mut controller = Self {
            config: config(scenario),
            answer_delay: site.map_or(Nanos(0), |site| site.answer_delay),
            answers: Vec::new(),
            policies: site.map_or_else(Policies::default, |site| site.policies.clone()),
            controller: None,
            born: Nanos(0),
            saved: Saved::fresh(seed.into()),
            saved_at: Nanos(0),
            streams: vec![None; nodes],
            boxes: vec![None; scenario.boxes()],
            workers_per_job: scenario.workers,
        };
        if scenario.control == Control::Engine {
            controller.start(Nanos(0));
        }
        controller
    }

    /// Starts a controller that has died, with what is on disk.
    pub fn start(&mut self, now: Nanos) {
        let policies = self.policies.source();
        let controller = Controller::new(self.config.clone(), &self.saved, policies);
        self.controller = Some(controller.expect("a good configuration"));
        self.born = now;
        self.saved_at = now;
    }

    /// Ends it. What was not saved is lost.
    pub fn stop(&mut self, coverage: &mut Coverage) {
        self.count(coverage);
        self.controller = None;
        self.answers.clear();
        self.streams.fill(None);
        self.boxes.fill(None);
    }

    /// When its present life began.
    #[must_use]
    pub const fn born(&self) -> Nanos {
        self.born
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

    /// Where a job's server is, and its epoch: a welcome says it.
    #[must_use]
    pub fn server_of(&self, job: usize) -> Option<(SocketAddr, u32)> {
        let (controller, id) = (self.controller.as_ref()?, topology::job_id(job));
        let server = &controller.job(id)?.server;
        Some((controller.address(server).parse().ok()?, controller.server_epoch(id).0))
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

    /// A box reports the train that a transfer began with.
    ///
    /// # Errors
    /// What the controller does not like.
    pub fn train(&mut self, now: Nanos, node: usize, train: &Train) -> Result<(), Refusal> {
        let now_ns = self.now_ns(now);
        match (&mut self.controller, self.boxes[node]) {
            (Some(controller), Some(id)) => controller.handle_train(now_ns, id, train),
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
            Asked::Cancel(id) => controller.handle_cancel(now_ns, job, rank, *id),
            Asked::Pulled { bytes, duration_ns } => {
                controller.handle_pull_sample(now_ns, job, rank, (*bytes, *duration_ns))
            }
        }
    }

    /// Lets it do what is due, saves what must be saved, and takes what it wants told.
    pub fn advance(&mut self, now: Nanos) -> Vec<Outgoing> {
        let now_ns = self.now_ns(now);
        let Some(controller) = &mut self.controller else { return Vec::new() };
        loop {
            for (_, answer) in self.answers.extract_if(.., |(at, _)| *at <= now) {
                controller.handle_answer(now_ns, answer);
            }
            controller.handle_timeout(now_ns);
            let at = now.saturating_add(self.answer_delay);
            let asked = core::iter::from_fn(|| controller.poll_question());
            self.answers.extend(asked.map(|question| (at, question.answer())));
            if self.answers.iter().all(|(at, _)| *at > now) {
                break;
            }
        }
        if controller.is_save_urgent() || now.since(self.saved_at) >= SAVE_EVERY {
            self.saved_at = now;
            if let Some(saved) = controller.poll_saved() {
                self.saved = saved;
            }
        }
        let mut told = Vec::new();
        while let Some(action) = controller.poll_action() {
            let (boxes, workers) = (&self.boxes, self.workers_per_job);
            let message = match action {
                Action::Command { node, command } => {
                    let place = boxes.iter().position(|known| *known == Some(node));
                    Outgoing::Box { node: place.expect("only boxes that attached"), command }
                }
                Action::Reply { job, rank, reply } => Outgoing::Worker {
                    worker: topology::job_place(job) * workers + rank.index(),
                    reply,
                },
                Action::Notice { job, notice } => Outgoing::People { job, notice },
                Action::Probe { .. }
                | Action::Held { .. }
                | Action::State { .. }
                | Action::Rounds { .. }
                | Action::Resized { .. }
                | Action::Settled { .. }
                | Action::Unpaused { .. } => continue,
            };
            told.push(message);
        }
        told
    }

    /// When [`ControllerNode::advance`] is due. Never at once: an engine that wants what it cannot
    /// have does not spin.
    #[must_use]
    pub fn timeout(&self, now: Nanos) -> Nanos {
        let due_ns = self.controller.as_ref().and_then(Controller::poll_timeout);
        let due = due_ns.map_or(Nanos::MAX, |due_ns| self.born.saturating_add(Nanos(due_ns)));
        let answer = self.answers.iter().map(|(at, _)| *at).min().unwrap_or(Nanos::MAX);
        due.min(answer).max(now.saturating_add(IDLE_MIN))
    }

    /// True when the job's server has said that it had met its replica and not left it, which is
    /// saved at once.
    #[must_use]
    pub fn is_replica_confirmed(&self, job: JobId) -> bool {
        let known = self.config.jobs.iter().find(|known| known.index == job.0);
        let saved = known.and_then(|known| self.saved.jobs.get(&known.name));
        saved.is_some_and(|saved| saved.is_replica_confirmed)
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

const IDLE_MIN: Nanos = Nanos::from_micros(200);
const SAVE_EVERY: Nanos = Nanos::from_millis(1_000);
