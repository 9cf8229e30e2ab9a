//! How a controller begins: configuration and saved state become boxes and jobs; jobs that are
//! registered later go the same way.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::string::String;
use alloc::vec::Vec;

use weft_config::controller::{Config, JobConfig, NodeConfig};
use weft_wire::{JobId, Rank};

use weft_plan::case::HostId;

use super::accounts::Accounts;
use super::bands::Bands;
use super::check::{self, ConfigError};
use super::counters::Counters;
use super::flights::Flights;
use super::holdings::Kept;
use super::job::{
    FirstAsked, Job, JobCounters, Numbers, Pause, Promotion, ReplicaProgress, Round, Worker,
};
use super::links::Links;
use super::message::NodeId;
use super::node::Node;
use super::probes::Probes;
use super::rows::Rows;
use super::saved::{SCHEMA, Saved, SavedJob};
use super::{Controller, PolicySource};

impl Controller {
    /// Begins with nothing granted. Jobs wait until their servers attach and tell where they are.
    ///
    /// # Errors
    /// The first field of the configuration that makes no sense.
    pub fn new(
        mut config: Config,
        saved: &Saved,
        policies: PolicySource,
    ) -> Result<Self, ConfigError> {
        check::network(&mut config)?;
        let links = Links::new(&config);
        let host = |node: &NodeConfig| links.host(&node.host).unwrap_or(HostId(0));
        let nodes = config.nodes.iter().map(|node| Node::new(node, host(node)));
        let jobs = core::mem::take(&mut config.jobs);
        let reduces = core::mem::take(&mut config.reduces);
        let mut controller = Self {
            flights: Flights::new(config.hosts.len()),
            counters: Counters::new(config.hosts.len()),
            probes: Probes::new(&config, &links),
            nodes: nodes.collect(),
            links,
            policies,
            accounts: Accounts::default(),
            bands: Bands::new(config.bands),
            jobs: BTreeMap::new(),
            reduces: BTreeMap::new(),
            groups: BTreeMap::new(),
            rows: Rows::new(saved.generation_ceiling),
            registered: Vec::new(),
            tickets: 0,
            replan: None,
            acknowledged: VecDeque::new(),
            holdings: BTreeSet::new(),
            kept: Kept::default(),
            actions: VecDeque::new(),
            questions: VecDeque::new(),
            asked: 0,
            plans: 0,
            refusals: BTreeMap::new(),
            is_saved: false,
            leases_at_ns: 0,
            is_promotion_unsaved: false,
            is_steering_unsaved: false,
            saved_ceiling: saved.generation_ceiling,
            saved_jobs: saved.registered.len(),
            config,
        };
        for (i, job) in jobs.into_iter().enumerate() {
            controller.add_job(&format!("job[{i}]."), job, saved)?;
        }
        for (i, job) in reduces.into_iter().enumerate() {
            let known = saved.reduces.get(&job.name);
            controller.add_reduce(&format!("reduce[{i}]."), job, known)?;
        }
        let nodes = &controller.nodes;
        controller.kept = Kept::restored(&saved.held, |name| {
            let position = nodes.iter().position(|node| node.name() == name)?;
            u16::try_from(position).ok().map(NodeId)
        });
        for job in &saved.registered {
            // One that the configuration has meanwhile, or no longer has room for, is forgotten.
            if controller.add_job("", job.clone(), saved).is_ok() {
                controller.registered.push(job.clone());
            }
        }
        Ok(controller)
    }

    /// Adds a job at run time; it is remembered in the saved state.
    ///
    /// # Errors
    /// The first field that makes no sense.
    pub fn register_job(&mut self, now_ns: u64, job: JobConfig) -> Result<JobId, ConfigError> {
        let id = self.add_job("", job.clone(), &Saved::default())?;
        self.registered.push(job);
        self.is_saved = false;
        // Boxes of it may have attached already.
        for index in (0..self.nodes.len()).filter_map(|index| u16::try_from(index).ok()) {
            let node = NodeId(index);
            let state =
                self.accounts.get(node, id).filter(|_| self.nodes[node.index()].is_attached());
            let Some(state) = state.cloned() else { continue };
            // One that is something else there than the job says is as if it were not there.
            let checked = self.check_role(node, &state);
            if self.checked(checked).is_ok() {
                self.take_role(now_ns, node, &state, true);
            }
        }
        Ok(id)
    }

    fn add_job(
        &mut self,
        at: &str,
        mut job: JobConfig,
        saved: &Saved,
    ) -> Result<JobId, ConfigError> {
        check::job(at, &job, &self.config)?;
        let id = JobId(job.index);
        if let Some(other) = self.jobs.get(&id) {
            let problem = format!("{} is job `{}` already", job.index, other.config.name);
            return Err(ConfigError::taken(format!("{at}index"), problem));
        }
        if let Some(other) = self.reduces.get(&id) {
            let problem = format!("{} is allreduce job `{}` already", job.index, other.config.name);
            return Err(ConfigError::taken(format!("{at}index"), problem));
        }
        if self.reduce_by_name(&job.name).is_some()
            || self.jobs.values().any(|other| other.config.name == job.name)
        {
            let problem = format!("`{}` is given twice; names are unique", job.name);
            return Err(ConfigError::taken(format!("{at}name"), problem));
        }
        if self.jobs.len() >= JOBS_MAX {
            return Err(ConfigError::new(format!("{at}index"), "there are too many jobs"));
        }
        let name = job.policy.as_deref().unwrap_or(&self.config.tuning.policy);
        let policy = (self.policies)(name)
            .map_err(|problem| ConfigError::new(format!("{at}policy"), problem))?;
        let node = |name: &String| {
            let position = self.nodes.iter().position(|node| node.name() == name);
            let position = position.and_then(|i| u16::try_from(i).ok());
            NodeId(position.unwrap_or_default())
        };
        let empty = SavedJob::default();
        let known = saved.jobs.get(&job.name);
        let is_untouched = known.is_none_or(|known| known.is_untouched);
        let known = known.unwrap_or(&empty);
        let is_replica = |name: &&String| job.replica.as_ref() == Some(*name);
        let successor = known.server.as_ref().filter(is_replica);
        let promotion = Promotion::restored(known, successor.map(|_| node(&job.server)));
        if let Some(successor) = successor {
            job.server.clone_from(successor);
            (job.replica, job.div_max) = (None, None);
        }
        let server = node(&job.server);
        let workers = job.workers.iter().zip(0u8..).map(|(worker, rank)| {
            let host = self.links.host(worker.host()).unwrap_or(HostId(0));
            Worker::new(host, known.dropped_before.contains(&rank))
        });
        let entry = Job {
            id,
            policy,
            server,
            aggregators: job.aggregators.iter().map(node).collect(),
            replica: job.replica.as_ref().map(node),
            workers: workers.collect(),
            pending: BTreeMap::new(),
            planned: VecDeque::new(),
            unplanned_since_ns: None,
            asked: None,
            open: BTreeMap::new(),
            numbers: Numbers::default(),
            version: 0,
            momentum_norm: 0.0,
            is_known: false,
            is_untouched,
            learnt_from: None,
            is_server_away: false,
            lost: None,
            is_over: false,
            replica_progress: ReplicaProgress::default(),
            promotion,
            round: Round::default(),
            recent: known.recent.chars().map(|decision| decision == 'x').collect(),
            virtual_bytes: 0.0,
            refusing: None,
            told_rate_bytes_per_sec: 0,
            pause: Pause::restored(known.paused),
            counters: JobCounters::default(),
            first_asked: FirstAsked::default(),
            config: job,
        };
        self.jobs.insert(id, entry);
        self.bands.add_job(id);
        Ok(id)
    }

    /// The state to be saved, when it has changed since the last call. It is to be on disk before
    /// the actions polled after it are carried out.
    pub fn poll_saved(&mut self) -> Option<Saved> {
        if self.is_saved && self.saved_ceiling == self.rows.ceiling() {
            return None;
        }
        self.is_saved = true;
        self.is_promotion_unsaved = false;
        self.is_steering_unsaved = false;
        self.saved_ceiling = self.rows.ceiling();
        self.saved_jobs = self.registered.len();
        let jobs = self.jobs.values().map(|job| {
            let recent = job.recent.iter().map(|is_drop| if *is_drop { 'x' } else { '.' });
            let dropped =
                (0u8..).zip(&job.workers).filter(|(_, worker)| worker.is_dropped_before());
            let mut saved = SavedJob {
                recent: recent.collect(),
                dropped_before: dropped.map(|(rank, _)| rank).collect(),
                paused: job.pause.by(),
                is_untouched: job.is_untouched,
                ..SavedJob::default()
            };
            job.promotion.save(&job.config.server, &mut saved);
            (job.config.name.clone(), saved)
        });
        Some(Saved {
            schema: SCHEMA,
            generation_ceiling: self.saved_ceiling,
            jobs: jobs.collect(),
            reduces: (self.reduces.values())
                .map(|job| (job.config.name.clone(), job.save()))
                .collect(),
            registered: self.registered.clone(),
            held: self.kept.save(|node| self.node_name(node).into()),
        })
    }

    /// Whether the state is to be on disk before anything else happens: ids would come twice after
    /// a crash, a job would be forgotten, or a server that was replaced, or a job's pause, or that
    /// it was granted anything.
    /// Otherwise once in a while is enough.
    #[must_use]
    pub const fn is_save_urgent(&self) -> bool {
        self.saved_ceiling != self.rows.ceiling()
            || self.saved_jobs != self.registered.len()
            || self.is_promotion_unsaved
            || self.is_steering_unsaved
    }

    /// A job's configuration.
    #[must_use]
    pub fn job(&self, job: JobId) -> Option<&JobConfig> {
        self.jobs.get(&job).map(|job| &job.config)
    }

    /// The job of that name.
    #[must_use]
    pub fn job_by_name(&self, name: &str) -> Option<JobId> {
        self.jobs.values().find(|job| job.config.name == name).map(|job| job.id)
    }

    /// A box's name.
    #[must_use]
    pub fn node_name(&self, node: NodeId) -> &str {
        self.nodes.get(node.index()).map_or("?", Node::name)
    }

    /// "address:port" of a box's data port; empty while it is not known.
    #[must_use]
    pub fn address(&self, node: &str) -> &str {
        self.nodes.iter().find(|known| known.name() == node).map_or("", Node::address)
    }

    /// Whether that worker's stream is here.
    #[must_use]
    pub fn is_worker_attached(&self, job: JobId, rank: Rank) -> bool {
        let worker = self.jobs.get(&job).and_then(|job| job.workers.get(rank.index()));
        worker.is_some_and(Worker::is_attached)
    }
}

/// Jobs of one controller.
const JOBS_MAX: usize = 256;
