//! Boxes, workers and links in virtual time. Transfers run at the ceiling that they were granted,
//! so a link that carries more than its rate is the controller's fault.

use std::collections::{BTreeMap, BTreeSet};

use weft_engine::push::{BoxIndex, Decision, GroupDescriptor, OrderNumber, Version};
use weft_wire::{Members, Rank};

use super::*;

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
        element: Element::I32,
        elements_per_chunk: None,
        workers: (0..workers).map(|i| WorkerConfig::Host(format!("w{i}"))).collect(),
        server: "s0".into(),
        aggregators: Vec::new(),
        replica: None,
        tau_max: None,
        momentum: 0.9,
        div_max: None,
        mode: Mode::Async,
        partial_count: None,
        policy: None,
        weight: 1.0,
        options: crate::case::Options::default(),
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
    Report(String, JobId, weft_engine::push::Event),
    Arrived(TransferKey, u64),
    Ask(u16, u8),
}

#[derive(Clone, Debug)]
struct Flow {
    links: [String; 2],
    left: f64,
    rate: u64,
    since_ns: u64,
    version: u64,
    rates: Vec<(bool, u64)>,
    job: u16,
    /// Into a server: its place in the order.
    order: Option<u64>,
}

#[derive(Clone, Debug, Default)]
struct Server {
    version: u64,
    next_order: u64,
    groups: BTreeMap<u64, GroupDescriptor>,
    started: BTreeSet<GroupId>,
    staged: BTreeSet<GroupId>,
    removed: BTreeSet<GroupId>,
    granted: BTreeMap<GroupId, usize>,
    gathered: BTreeMap<GroupId, BTreeSet<Rank>>,
}

pub(super) struct World {
    pub(super) controller: Controller,
    pub(super) now_ns: u64,
    jobs: Vec<JobConfig>,
    capacity: BTreeMap<String, u64>,
    host_of: BTreeMap<String, String>,
    queue: BTreeMap<(u64, u64), Event>,
    count: u64,
    flows: BTreeMap<TransferKey, Flow>,
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
    ended: BTreeSet<(u16, u8, u64)>,
    granted: BTreeSet<(u16, u8, u64)>,
    orders: BTreeMap<u16, u64>,
    /// Factor on the real rate of a host's links.
    pub(super) slow: BTreeMap<String, f64>,
    pub(super) load_max: f64,
    pub(super) releases: u64,
    pub(super) grants: Vec<Grant>,
    grant_jobs: Vec<(u16, Rank)>,
    pub(super) drops: Vec<crate::plan::DropReason>,
    pub(super) delivered: Vec<(u64, Outcome)>,
    pub(super) first_grant_ns: Option<u64>,
    pub(super) bytes_into_server: u64,
    pub(super) commands: Vec<(String, Command)>,
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
            controller: Controller::new(config, saved, built_in_policies()).unwrap(),
            now_ns: 0,
            jobs,
            queue: BTreeMap::new(),
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
            ended: BTreeSet::new(),
            granted: BTreeSet::new(),
            orders: BTreeMap::new(),
            slow: BTreeMap::new(),
            load_max: 0.0,
            releases: 0,
            grants: Vec::new(),
            grant_jobs: Vec::new(),
            drops: Vec::new(),
            delivered: Vec::new(),
            first_grant_ns: None,
            bytes_into_server: 0,
            commands: Vec::new(),
        }
    }

    /// A controller that knows nothing takes over from this one's boxes and workers.
    pub(super) fn restart_controller(&mut self, mut config: Config, saved: &Saved) {
        config.jobs.clone_from(&self.jobs);
        self.controller = Controller::new(config, saved, built_in_policies()).unwrap();
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
                job: JobId(job.index),
                role,
                box_index,
                address: format!("{name}:22341"),
                next_order: OrderNumber(server.next_order),
                version: Version(server.version),
                momentum_norm: 0.0,
                open_groups,
            });
        }
        NodeHello { name: name.to_owned(), life, roles }
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

    pub(super) fn report(&mut self, node: &str, job: u16, event: weft_engine::push::Event) {
        if !self.dead.contains(node) {
            self.push(self.now_ns + MESSAGE_NS, Event::Report(node.into(), JobId(job), event));
        }
    }

    /// Lets the controller act until it has nothing to do now.
    pub(super) fn settle(&mut self) {
        for turn in 0.. {
            assert!(turn < 1000, "the controller does not come to rest: {:?}", self.controller);
            self.controller.handle_timeout(self.now_ns);
            let mut acted = false;
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
            let next_ns = event_ns.into_iter().chain(timer_ns).min();
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
        match event {
            Event::Act(action) => match *action {
                Action::Command { node, command } => self.obey(node, command),
                Action::Reply { job, rank, reply } => self.hear(job, rank, reply),
            },
            Event::Report(name, job, event) => {
                if let Some(node) = self.nodes.get(&name).copied() {
                    self.controller.handle_event(self.now_ns, node, job, &event).unwrap();
                }
            }
            Event::Arrived(key, version) => self.arrived(key, version),
            Event::Ask(job, rank) => self.ask(job, rank),
        }
    }

    fn obey(&mut self, node: NodeId, command: Command) {
        use weft_engine::push::Event as Report;
        let name = self.names[&node].clone();
        self.commands.push((name.clone(), command.clone()));
        if self.dead.contains(&name) {
            return;
        }
        match command {
            Command::Install(group) => {
                let (id, job) = (group.group, group.job.0);
                if self.refusing.contains(&name) {
                    let error = weft_engine::push::InstallError::Full;
                    self.report(&name, job, Report::Refused { group: id, error });
                    return;
                }
                let is_again = !self.installed.insert((name.clone(), id));
                let server = self.servers.get_mut(&job).unwrap();
                if self.jobs[usize::from(job)].server == name && !is_again {
                    let last = self.orders.insert(job, group.order.0);
                    assert!(last.is_none_or(|last| last < group.order.0), "orders went back");
                    assert!(group.order.0 >= server.next_order, "an order number came again");
                    server.groups.insert(group.order.0, group);
                }
                self.report(&name, job, Report::Installed { group: id });
                self.start_sums(job);
            }
            Command::Remove { job, group } => {
                self.installed.remove(&(name.clone(), group));
                let server = self.servers.get_mut(&job.0).unwrap();
                if self.jobs[usize::from(job.0)].server == name {
                    server.removed.insert(group);
                }
                self.decide(job.0);
            }
            Command::CloseMember { job, rank, .. } => {
                if self.jobs[usize::from(job.0)].server == name {
                    self.lose(job.0, rank);
                }
            }
            Command::SetRate { .. } => {}
        }
    }

    /// Groups that wait for this member are VOID.
    pub(super) fn lose(&mut self, job: u16, rank: Rank) {
        let server = self.servers.get_mut(&job).unwrap();
        let of_it = server.groups.values().filter(|group| group.mask().contains(rank.bit()));
        let groups: Vec<GroupId> =
            of_it.map(|group| group.group).filter(|id| !server.staged.contains(id)).collect();
        server.removed.extend(groups);
        self.decide(job);
    }

    fn hear(&mut self, job: JobId, rank: Rank, reply: Reply) {
        let rank_number = rank.index() as u8;
        match reply {
            Reply::Grant(grant) => {
                let key = (job.0, rank_number, grant.update_id);
                assert!(self.granted.insert(key), "granted twice");
                assert!(!self.ended.contains(&key), "granted after its end");
                self.first_grant_ns.get_or_insert(self.now_ns);
                self.check_installed(job.0, &grant);
                let server = self.servers.get_mut(&job.0).unwrap();
                *server.granted.entry(grant.group).or_default() += 1;
                if let Some(via) = grant.via {
                    let config = &self.jobs[usize::from(job.0)];
                    let to = config.aggregators[usize::from(via.0)].clone();
                    let from = config.workers[rank.index()].host().to_owned();
                    let rates = grant.segments.iter();
                    let rates =
                        rates.map(|s| (s.gate == Gate::Open, s.rate_bytes_per_sec)).collect();
                    let key = TransferKey::Member(grant.group, rank);
                    self.fly(key, (&from, &to), (job.0, None), rates);
                }
                self.grants.push(grant);
                self.grant_jobs.push((job.0, rank));
                self.start_sums(job.0);
            }
            Reply::Release { update_id, segment } => {
                self.releases += 1;
                let of_job = self.grants.iter().zip(&self.grant_jobs);
                let grant = of_job.filter(|(_, of)| **of == (job.0, rank)).map(|(grant, _)| grant);
                let grant = { grant }.find(|grant| {
                    grant.update_id == update_id
                        && grant.via.is_some()
                        && self.flows.contains_key(&TransferKey::Member(grant.group, rank))
                });
                if let Some(grant) = grant {
                    let key = TransferKey::Member(grant.group, rank);
                    self.flows.get_mut(&key).unwrap().rates[segment as usize].0 = true;
                    self.set_rate(key);
                }
            }
            Reply::Drop { update_id, reason } => {
                let key = (job.0, rank_number, update_id);
                assert!(!self.granted.contains(&key), "dropped after its grant");
                assert!(self.ended.insert(key), "ended twice");
                self.drops.push(reason);
                self.again(job.0, rank_number);
            }
            Reply::Delivered { update_id, outcome } => {
                let key = (job.0, rank_number, update_id);
                assert!(self.granted.contains(&key), "ended without a grant");
                assert!(self.ended.insert(key), "ended twice");
                self.delivered.push((update_id, outcome));
                self.again(job.0, rank_number);
            }
        }
    }

    fn again(&mut self, job: u16, rank: u8) {
        if let Some(worker) = self.loops.get(&job) {
            self.push(self.now_ns + worker.compute_ns + MESSAGE_NS, Event::Ask(job, rank));
        }
    }

    fn check_installed(&self, job: u16, grant: &Grant) {
        let config = &self.jobs[usize::from(job)];
        let aggregator = grant.via.map(|via| &config.aggregators[usize::from(via.0)]);
        for name in [Some(&config.server), aggregator].into_iter().flatten() {
            let is_installed = self.installed.contains(&(name.clone(), grant.group));
            assert!(is_installed, "{name} does not know the group of a grant");
        }
    }

    /// Starts what may go into the server: groups in order, when granted, gathered, and when the
    /// one that they come after is staged.
    fn start_sums(&mut self, job: u16) {
        let config = self.jobs[usize::from(job)].clone();
        let server = self.servers.get_mut(&job).unwrap();
        let mut starts = Vec::new();
        for group in server.groups.values() {
            let id = group.group;
            if server.started.contains(&id) || server.removed.contains(&id) {
                continue;
            }
            let is_open = group.after.is_none_or(|after| {
                server.staged.contains(&after)
                    || server.removed.contains(&after)
                    || server.groups.values().all(|other| other.group != after)
            });
            let granted = server.granted.get(&id).copied().unwrap_or(0) == group.members.len();
            let gathered = group.via.is_none()
                || server.gathered.get(&id).is_some_and(|ranks| ranks.len() == group.members.len());
            if is_open && granted && gathered {
                starts.push(group.clone());
            }
        }
        for group in starts {
            self.servers.get_mut(&job).unwrap().started.insert(group.group);
            let from = match group.via {
                Some(via) => self.host_of[&config.aggregators[usize::from(via.0)]].clone(),
                None => config.workers[group.members[0].rank.index()].host().to_owned(),
            };
            let to = self.host_of[&config.server].clone();
            let rates = vec![(true, group.rate_bytes_per_sec.unwrap())];
            let order = Some(group.order.0);
            self.fly(TransferKey::Sum(group.group), (&from, &to), (job, order), rates);
        }
    }

    fn fly(
        &mut self,
        key: TransferKey,
        path: (&str, &str),
        (job, order): (u16, Option<u64>),
        rates: Vec<(bool, u64)>,
    ) {
        let links = [format!("{}.up", path.0), format!("{}.down", path.1)];
        let left = self.jobs[usize::from(job)].update_bytes() as f64;
        let flow =
            Flow { links, left, rate: 0, since_ns: self.now_ns, version: 0, rates, job, order };
        self.flows.insert(key, flow);
        self.set_rate(key);
        self.conduct(job);
    }

    /// Gives a server's link to its transfers in order.
    fn conduct(&mut self, job: u16) {
        let of_it = self.flows.iter().filter(|(_, flow)| flow.job == job);
        let mut keys: Vec<_> = of_it.filter_map(|(key, flow)| Some((flow.order?, *key))).collect();
        keys.sort_unstable();
        for (_, key) in keys {
            self.set_rate(key);
        }
    }

    fn set_rate(&mut self, key: TransferKey) {
        let now_ns = self.now_ns;
        let flow = self.flows.get_mut(&key).unwrap();
        flow.left -= flow.rate as f64 * (now_ns - flow.since_ns) as f64 / 1e9;
        flow.since_ns = now_ns;
        let open = flow.rates.iter().rev().find(|(is_open, _)| *is_open);
        let granted = open.map_or(0, |(_, rate)| *rate);
        let host = flow.links[0].trim_end_matches(".up");
        let slow = self.slow.get(host).copied().unwrap_or(1.0);
        // A server pulls what its link takes, in order; what the first cannot use goes to the next.
        flow.rate = (granted as f64 * slow) as u64;
        if let Some(order) = flow.order {
            let link = flow.links[1].clone();
            let job = flow.job;
            let before = self.flows.values().filter(|other| {
                other.job == job && other.links[1] == link && other.order.is_some_and(|o| o < order)
            });
            let taken: u64 = before.map(|other| other.rate).sum();
            let left = self.capacity[&link].saturating_sub(taken);
            let flow = self.flows.get_mut(&key).unwrap();
            flow.rate = flow.rate.min(left);
        }
        let flow = self.flows.get_mut(&key).unwrap();
        flow.version += 1;
        if flow.rate > 0 {
            let need_ns = (flow.left.max(0.0) * 1e9 / flow.rate as f64).ceil() as u64;
            let version = flow.version;
            self.push(now_ns + need_ns, Event::Arrived(key, version));
        }
        // A worker's own uplink carries nobody else's transfers, and cannot carry too much.
        let links = self.flows.values().flat_map(|flow| flow.links.clone());
        let is_shared = |link: &String| !(link.starts_with('w') && link.ends_with(".up"));
        let links: BTreeSet<String> = links.filter(is_shared).collect();
        for link in links {
            let on_it = self.flows.values().filter(|flow| flow.links.contains(&link));
            let load =
                on_it.map(|flow| flow.rate).sum::<u64>() as f64 / self.capacity[&link] as f64;
            self.load_max = self.load_max.max(load);
        }
    }

    fn arrived(&mut self, key: TransferKey, version: u64) {
        use weft_engine::push::Event as Report;
        if self.flows.get(&key).is_none_or(|flow| flow.version != version) {
            return;
        }
        self.flows.remove(&key);
        let id = key.group();
        let of_it = |server: &Server| server.groups.values().find(|g| g.group == id).cloned();
        let Some(group) = self.servers.values().find_map(of_it) else { return };
        let job = group.job.0;
        let config = self.jobs[usize::from(job)].clone();
        match key {
            TransferKey::Member(_, rank) => {
                let server = self.servers.get_mut(&job).unwrap();
                server.gathered.entry(id).or_default().insert(rank);
                let via = &config.aggregators[usize::from(group.via.unwrap().0)];
                self.report(via, job, Report::Gathered { group: id, rank });
                self.start_sums(job);
            }
            TransferKey::Sum(_) => {
                self.bytes_into_server += config.update_bytes();
                self.servers.get_mut(&job).unwrap().staged.insert(id);
                self.report(&config.server, job, Report::Staged { group: id });
                self.conduct(job);
                self.decide(job);
                self.start_sums(job);
            }
            TransferKey::Copy(_) => {}
        }
    }

    /// Decides order numbers in sequence.
    fn decide(&mut self, job: u16) {
        use weft_engine::push::Event as Report;
        let config = self.jobs[usize::from(job)].clone();
        loop {
            let server = self.servers.get_mut(&job).unwrap();
            let Some(group) = server.groups.get(&server.next_order).cloned() else { break };
            let id = group.group;
            let is_void = server.removed.contains(&id);
            if !server.staged.contains(&id) && !is_void {
                break;
            }
            server.groups.remove(&server.next_order);
            server.next_order += 1;
            let too_old = group.members.iter().zip(server.version..).any(|(member, before)| {
                before.saturating_sub(member.version.0) > config.delay_max()
            });
            let decision = if is_void {
                Decision::Void
            } else if too_old && config.mode == Mode::Async {
                Decision::Dropped
            } else {
                server.version += group.members.len() as u64;
                Decision::Committed(Version(server.version))
            };
            let order = group.order;
            let members = if matches!(decision, Decision::Committed(_)) {
                group.mask()
            } else {
                Members::EMPTY
            };
            let report = Report::Decided {
                group: id,
                order,
                decision,
                members,
                norm: 1.0,
                momentum_norm: 1.0,
            };
            self.flows.retain(|key, _| key.group() != id);
            self.report(&config.server, job, report);
        }
    }
}
