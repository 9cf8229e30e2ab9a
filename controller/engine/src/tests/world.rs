//! Boxes, workers and links in virtual time. Transfers run at the ceiling that they were granted,
//! so a link that carries more than its rate is the controller's fault.

use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;

use siphasher::sip::SipHasher13;
use weft_control::{
    AckMode, BoxIndex, Decision, GroupDescriptor, Mode, OrderNumber, Role, Version,
};
use weft_wire::Rank;
use weft_wire::header::ElementType;

use super::*;

mod flows;
mod server;
mod talk;
mod training;
mod trains;

use flows::{Flow, Moving};
use server::Server;
pub(super) use training::{Record, Training};

/// Time that a message takes.
pub(super) const MESSAGE_NS: u64 = 50_000;

pub(super) fn rate(megabits: u64) -> u64 {
    megabits * 125_000
}

pub(super) fn host(name: &str, up: u64, down: u64) -> HostConfig {
    HostConfig {
        name: name.into(),
        up_bytes_per_sec: Some(rate(up)),
        down_bytes_per_sec: Some(rate(down)),
        rack: None,
        slots: None,
    }
}

pub(super) fn node(name: &str, host: &str) -> NodeConfig {
    NodeConfig { name: name.into(), host: host.into(), address: String::new() }
}

/// Workers w0.. and a server s0; rates in Mb/s.
pub(super) fn network(workers: usize, worker_up: u64, server_down: u64) -> Config {
    let mut config = Config::default();
    for i in 0..workers {
        config.hosts.push(host(&format!("w{i}"), worker_up, 1000));
    }
    config.hosts.push(host("s0", 1000, server_down));
    config
}

/// An update of about 0.43 MB.
pub(super) fn job(workers: usize) -> JobConfig {
    JobConfig {
        name: "digits".into(),
        index: 0,
        dimension: 100_000,
        element: ElementType::I32,
        elements_per_chunk: None,
        workers: (0..workers).map(|i| WorkerConfig::Host(format!("w{i}"))).collect(),
        server: "s0".into(),
        aggregators: Vec::new(),
        ack: AckMode::Commit,
        replica: None,
        tau_max: None,
        momentum: 0.9,
        div_max: None,
        mode: Mode::Async,
        partial_count: None,
        policy: None,
        weight: 1.0,
        options: weft_plan::case::Options::default(),
    }
}

/// A worker that asks again when its update has ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Worker {
    pub(super) compute_ns: u64,
}

#[derive(Clone, Debug)]
enum Event {
    Act(Box<Action>),
    Report(String, JobId, weft_control::Event),
    Arrived(Moving, u64),
    Train(String, Box<Train>),
    Ask(u16, u8),
    Computed(u16, u8),
    Told(u16, u8, Option<u64>),
    CaughtUp(Moving, u64),
}

pub(super) struct World {
    pub(super) controller: Controller,
    pub(super) now_ns: u64,
    jobs: Vec<JobConfig>,
    capacity: BTreeMap<String, u64>,
    host_of: BTreeMap<String, String>,
    queue: BTreeMap<(u64, u64), Event>,
    /// How long policies take that are other programs, and what they will have answered then.
    pub(super) answer_ns: u64,
    answers: Vec<(u64, Answer)>,
    count: u64,
    flows: BTreeMap<Moving, Flow>,
    servers: BTreeMap<u16, Server>,
    nodes: BTreeMap<String, NodeId>,
    names: BTreeMap<NodeId, String>,
    /// Boxes that say nothing and do nothing.
    pub(super) dead: BTreeSet<String>,
    /// Boxes that refuse every group.
    pub(super) refusing: BTreeSet<String>,
    installed: BTreeSet<(String, GroupId)>,
    update_ids: BTreeMap<(u16, u8), u64>,
    loops: BTreeMap<u16, Worker>,
    runs: BTreeMap<u16, training::Run>,
    ended: BTreeSet<(u16, u8, u64)>,
    granted: BTreeSet<(u16, u8, u64)>,
    orders: BTreeMap<u16, BTreeSet<u64>>,
    /// What links can really do, bytes per second, by name (`w0.up`, `r0.up`): transfers begin with
    /// trains that show it, where it says so of a link of the path.
    pub(super) truth: BTreeMap<String, u64>,
    /// Racks of hosts.
    pub(super) rack_of: BTreeMap<String, String>,
    /// Factor on the real rate of a host's links.
    pub(super) slow: BTreeMap<String, f64>,
    pub(super) load_max: f64,
    /// What the fullest link carried then.
    pub(super) fullest: String,
    pub(super) releases: u64,
    pub(super) grants: Vec<Grant>,
    grant_jobs: Vec<(u16, Rank)>,
    pub(super) drops: Vec<weft_control::DropReason>,
    pub(super) delivered: Vec<(u64, Decision)>,
    pub(super) first_grant_ns: Option<u64>,
    pub(super) bytes_into_server: u64,
    pub(super) commands: Vec<(String, Command)>,
    pub(super) notices: Vec<Notice>,
    /// What jobs do, as whoever waits was told, and when.
    pub(super) states: Vec<(u64, weft_control::JobState, Option<u64>)>,
    /// Pauses that came to nothing: why.
    pub(super) unpaused: Vec<String>,
    /// Of every event with its time; see [`super::fingerprints`].
    pub(super) transcript: SipHasher13,
}

impl World {
    pub(super) fn new(config: Config, jobs: Vec<JobConfig>) -> Self {
        Self::with_saved(config, jobs, &Saved::fresh(7))
    }

    pub(super) fn with_saved(mut config: Config, jobs: Vec<JobConfig>, saved: &Saved) -> Self {
        config.jobs = jobs.clone();
        let capacity = config.hosts.iter().flat_map(|host| {
            [
                (format!("{}.up", host.name), host.up_bytes_per_sec.unwrap()),
                (format!("{}.down", host.name), host.down_bytes_per_sec.unwrap()),
            ]
        });
        let mut host_of: BTreeMap<String, String> =
            config.hosts.iter().map(|host| (host.name.clone(), host.name.clone())).collect();
        host_of.extend(config.nodes.iter().map(|node| (node.name.clone(), node.host.clone())));
        let servers = jobs.iter().map(|job| (job.index, Server::default())).collect();
        Self {
            capacity: capacity.collect(),
            host_of,
            controller: Controller::new(config, saved, policies()).unwrap(),
            now_ns: 0,
            jobs,
            queue: BTreeMap::new(),
            answer_ns: 0,
            answers: Vec::new(),
            count: 0,
            flows: BTreeMap::new(),
            servers,
            nodes: BTreeMap::new(),
            names: BTreeMap::new(),
            dead: BTreeSet::new(),
            refusing: BTreeSet::new(),
            installed: BTreeSet::new(),
            update_ids: BTreeMap::new(),
            loops: BTreeMap::new(),
            runs: BTreeMap::new(),
            ended: BTreeSet::new(),
            granted: BTreeSet::new(),
            orders: BTreeMap::new(),
            truth: BTreeMap::new(),
            rack_of: BTreeMap::new(),
            slow: BTreeMap::new(),
            load_max: 0.0,
            fullest: String::new(),
            releases: 0,
            grants: Vec::new(),
            grant_jobs: Vec::new(),
            drops: Vec::new(),
            delivered: Vec::new(),
            first_grant_ns: None,
            bytes_into_server: 0,
            commands: Vec::new(),
            notices: Vec::new(),
            states: Vec::new(),
            unpaused: Vec::new(),
            transcript: SipHasher13::new(),
        }
    }

    /// A controller that knows nothing takes over from this one's boxes and workers.
    pub(super) fn restart_controller(&mut self, mut config: Config, saved: &Saved) {
        config.jobs.clone_from(&self.jobs);
        self.controller = Controller::new(config, saved, policies()).unwrap();
        self.queue.retain(|_, event| !matches!(event, Event::Act(_) | Event::Report(..)));
        self.update_ids.values_mut().for_each(|id| *id += 100);
        self.attach_all();
    }

    /// The state that a box tells.
    pub(super) fn hello(&self, name: &str, life: u64) -> NodeHello {
        let mut roles = Vec::new();
        for job in &self.jobs {
            let server = &self.servers[&job.index];
            let open = |group: &GroupDescriptor| OpenGroup {
                group: group.group,
                order: group.order,
                members: group.mask(),
            };
            let open_groups: Vec<OpenGroup> = (server.groups.values())
                .filter(|group| self.installed.contains(&(name.to_owned(), group.group)))
                .map(open)
                .collect();
            let box_index = |index: usize| BoxIndex(u8::try_from(index).unwrap());
            let aggregator = job.aggregators.iter().position(|aggregator| aggregator == name);
            let (role, box_index) = if job.server == name {
                (Role::Server, BoxIndex(0))
            } else if job.replica.as_deref() == Some(name) {
                (Role::Replica, box_index(job.aggregators.len()))
            } else if let Some(index) = aggregator {
                (Role::Aggregator, box_index(index))
            } else {
                continue;
            };
            roles.push(RoleState {
                next_order: OrderNumber(server.next_order),
                version: Version(server.version),
                open_groups,
                ..RoleState::new(JobId(job.index), role, box_index, format!("{name}:22341"))
            });
        }
        NodeHello { name: name.to_owned(), life, roles, holdings: Vec::new(), bands: None }
    }

    pub(super) fn attach(&mut self, name: &str, life: u64) {
        let hello = self.hello(name, life);
        let id = self.controller.handle_node(self.now_ns, &hello).unwrap();
        self.nodes.insert(name.to_owned(), id);
        self.names.insert(id, name.to_owned());
        self.settle();
    }

    pub(super) fn detach(&mut self, name: &str) {
        self.controller.handle_node_gone(self.now_ns, self.nodes[name]);
        self.settle();
    }

    pub(super) fn attach_all(&mut self) {
        for job in self.jobs.clone() {
            let boxes = job.aggregators.iter().chain(&job.replica).chain([&job.server]);
            for name in boxes.cloned().collect::<Vec<_>>() {
                self.attach(&name, 1);
            }
            for rank in 0..job.workers.len() as u8 {
                let rank = Rank::new(rank).unwrap();
                self.controller.handle_worker(JobId(job.index), rank, 1, None).unwrap();
            }
        }
    }

    pub(super) fn version(&self, job: u16) -> Version {
        Version(self.servers[&job].version)
    }

    pub(super) fn status(&self, job: usize) -> JobStatus {
        self.controller.status(self.now_ns).jobs[job].clone()
    }

    pub(super) fn ask(&mut self, job: u16, rank: u8) {
        let id = self.update_ids.entry((job, rank)).or_default();
        *id += 1;
        let update_id = *id;
        let version = self.version(job);
        let request =
            TransferRequest { update_id, size_bytes: 0, version, norm: 1.0, max_abs: 1.0 };
        self.ask_with(job, rank, &request).unwrap();
    }

    /// A worker takes back what it asked for last.
    pub(super) fn take_back(&mut self, job: u16, rank: u8) {
        let update_id = self.update_ids[&(job, rank)];
        let rank = Rank::new(rank).unwrap();
        self.controller.handle_cancel(self.now_ns, JobId(job), rank, update_id).unwrap();
        self.settle();
    }

    pub(super) fn ask_with(
        &mut self,
        job: u16,
        rank: u8,
        request: &TransferRequest,
    ) -> Result<(), Refusal> {
        let rank = Rank::new(rank).unwrap();
        let outcome = self.controller.handle_request(self.now_ns, JobId(job), rank, request);
        self.settle();
        outcome
    }

    pub(super) fn loop_workers(&mut self, job: u16, worker: Worker) {
        self.loops.insert(job, worker);
        for rank in 0..self.jobs[usize::from(job)].workers.len() as u8 {
            self.push(self.now_ns, Event::Ask(job, rank));
        }
    }

    fn push(&mut self, at_ns: u64, event: Event) {
        self.count += 1;
        self.queue.insert((at_ns, self.count), event);
    }

    pub(super) fn report(&mut self, node: &str, job: u16, event: weft_control::Event) {
        if !self.dead.contains(node) {
            self.push(self.now_ns + MESSAGE_NS, Event::Report(node.into(), JobId(job), event));
        }
    }

    /// Lets the controller act until it has nothing to do now.
    pub(super) fn settle(&mut self) {
        for turn in 0.. {
            assert!(turn < 1000, "the controller does not come to rest: {:?}", self.controller);
            let now_ns = self.now_ns;
            for (_, answer) in self.answers.extract_if(.., |(at_ns, _)| *at_ns <= now_ns) {
                self.controller.handle_answer(now_ns, answer);
            }
            self.controller.handle_timeout(now_ns);
            let mut acted = false;
            while let Some(question) = self.controller.poll_question() {
                acted = true;
                self.answers.push((now_ns.saturating_add(self.answer_ns), question.answer()));
            }
            while let Some(action) = self.controller.poll_action() {
                acted = true;
                self.push(self.now_ns + MESSAGE_NS, Event::Act(Box::new(action)));
            }
            if !acted && self.controller.poll_timeout().is_none_or(|due_ns| due_ns > self.now_ns) {
                break;
            }
        }
    }

    pub(super) fn run_for(&mut self, span_ns: u64) {
        let end_ns = self.now_ns + span_ns;
        let mut steps = 0u64;
        loop {
            steps += 1;
            assert!(steps < 5_000_000, "the simulation does not end");
            let event_ns = self.queue.first_key_value().map(|((at_ns, _), _)| *at_ns);
            let timer_ns = self.controller.poll_timeout().map(|due_ns| due_ns.max(self.now_ns));
            let answer_ns = self.answers.iter().map(|(at_ns, _)| *at_ns);
            let next_ns = event_ns.into_iter().chain(timer_ns).chain(answer_ns).min();
            let Some(next_ns) = next_ns.filter(|next_ns| *next_ns <= end_ns) else { break };
            self.now_ns = next_ns;
            while let Some(entry) = self.queue.first_entry() {
                if entry.key().0 > self.now_ns {
                    break;
                }
                let event = entry.remove();
                self.handle(event);
            }
            self.settle();
        }
        self.now_ns = end_ns;
    }

    fn handle(&mut self, event: Event) {
        fingerprints::note(&mut self.transcript, self.now_ns, &event);
        match event {
            Event::Act(action) => match *action {
                Action::Command { node, command } => self.obey(node, command),
                Action::Reply { job, rank, reply } => self.hear(job, rank, reply),
                Action::Notice { notice, .. } => self.notices.push(notice),
                Action::State { state, after_ns, .. } => {
                    self.states.push((self.now_ns, state, after_ns))
                }
                Action::Probe { .. }
                | Action::Held { .. }
                | Action::Rounds { .. }
                | Action::Resized { .. }
                | Action::Settled { .. } => {}
                Action::Unpaused { problem, .. } => self.unpaused.push(problem),
            },
            Event::Report(name, job, event) => {
                if let Some(node) = self.nodes.get(&name).copied() {
                    self.controller.handle_event(self.now_ns, node, job, &event).unwrap();
                }
            }
            Event::Arrived(key, version) => self.arrived(key, version),
            Event::Train(name, train) => {
                let node = self.nodes[&name];
                self.controller.handle_train(self.now_ns, node, &train).unwrap();
            }
            Event::Ask(job, rank) => self.ask(job, rank),
            Event::CaughtUp(key, version) => self.caught_up(key, version),
            Event::Computed(job, rank) => self.computed(job, rank),
            Event::Told(job, rank, committed) => self.told(job, rank, committed),
        }
    }
}
