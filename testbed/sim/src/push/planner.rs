//! A controller without a plan: puts whoever waits into groups at random, installs them at server,
//! replica and aggregator in this order, then grants (SPEC#push "Group").

use std::collections::BTreeMap;

use weft_control::{Command, Decision, Event, GroupDescriptor, GroupMember, OrderNumber, Version};
use weft_engine::random::SplitMix64;
use weft_engine::role::push::{Grant, Segment};
use weft_wire::{GroupId, JobId, Members, Nanos};

use super::judge::Offer;
use super::scenario::Scenario;
use super::topology;

/// A worker's request.
#[derive(Clone, Debug)]
pub struct Request {
    /// What it offers.
    pub offer: Offer,
    /// The worker's life.
    pub life: u64,
}

/// What the controller wants told.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "a few at a time, and moved once")]
pub enum Act {
    /// To a box.
    Command {
        /// Its place.
        node: usize,
        /// What.
        command: Command,
    },
    /// To a worker: send it so.
    Grant {
        /// Whose request.
        request: Request,
        /// How.
        grant: Grant,
    },
    /// To a worker: what became of it.
    Outcome {
        /// Whose request.
        request: Request,
        /// What.
        decision: Decision,
    },
}

#[derive(Clone, Debug)]
struct Plan {
    descriptor: GroupDescriptor,
    members: Vec<Request>,
    /// Where it is installed, in order, and how far that is.
    nodes: Vec<usize>,
    step: usize,
    since: Nanos,
    granted: bool,
}

/// The controller.
#[derive(Debug)]
pub struct Planner {
    random: SplitMix64,
    /// Requests, and when they may be planned.
    waiting: Vec<Vec<(Nanos, Request)>>,
    plans: BTreeMap<(usize, GroupId), Plan>,
    /// Both are stored: they survive a restart.
    next_orders: Vec<u64>,
    generation: u16,
    /// What is to be told.
    pub acts: Vec<Act>,
}

impl Planner {
    /// A controller that begins.
    #[must_use]
    pub fn new(scenario: &Scenario) -> Self {
        Self {
            random: SplitMix64::new(scenario.seed ^ 0xc0),
            waiting: vec![Vec::new(); scenario.jobs],
            plans: BTreeMap::new(),
            next_orders: vec![0; scenario.jobs],
            generation: 1,
            acts: Vec::new(),
        }
    }

    /// Forgets everything but what is stored.
    pub fn restart(&mut self) {
        self.waiting.iter_mut().for_each(Vec::clear);
        self.plans.clear();
    }

    /// The server began anew: it knows of no group that was open.
    pub fn server_lost(&mut self, scenario: &Scenario, now: Nanos) {
        for (key, plan) in std::mem::take(&mut self.plans) {
            let job = plan.descriptor.job;
            for node in plan.nodes.iter().filter(|node| **node != scenario.server()) {
                let command = Command::Remove { job, group: key.1 };
                self.acts.push(Act::Command { node: *node, command });
            }
            // Who was granted asks the server, and comes back when it knows nothing of it.
            if !plan.granted {
                let at = now.saturating_add(REFUSED_SPAN);
                self.waiting[key.0].extend(plan.members.into_iter().map(|member| (at, member)));
            }
        }
    }

    /// A worker asks to send.
    pub fn request(&mut self, request: Request) {
        // Asked before a restart and after it: one update belongs to one group.
        let uid = request.offer.uid;
        let waiting = self.waiting[uid.job].iter().map(|(_, known)| known);
        let planned = self.plans.values().flat_map(|plan| &plan.members);
        if waiting.chain(planned).all(|known| known.offer.uid != uid) {
            self.waiting[uid.job].push((Nanos(0), request));
        }
    }

    /// A worker began anew.
    pub fn lost(&mut self, scenario: &Scenario, job: usize, rank: usize) {
        self.waiting[job].retain(|(_, request)| request.offer.uid.rank != rank);
        if self.random.next_u64().is_multiple_of(2) {
            let job = topology::job_id(job);
            let rank = topology::rank(rank);
            let command = Command::CloseMember { job, group: None, rank };
            self.acts.push(Act::Command { node: scenario.server(), command });
        }
    }

    /// Plans what can be planned, and gives up what is not answered.
    pub fn tick(&mut self, scenario: &Scenario, now: Nanos) {
        let silent = |plan: &Plan| !plan.granted && now.since(plan.since) > ANSWER_MAX;
        let dead: Vec<_> =
            self.plans.iter().filter(|(_, plan)| silent(plan)).map(|(key, _)| *key).collect();
        for key in dead {
            self.cancel(now, key);
        }
        for job in 0..scenario.jobs {
            let is_due = |planner: &Self| planner.waiting[job].iter().any(|(at, _)| *at <= now);
            while is_due(self) && self.open(job) < OPEN_MAX {
                self.plan(scenario, now, job);
            }
        }
    }

    fn open(&self, job: usize) -> usize {
        self.plans.range((job, GroupId(0))..=(job, GroupId(u32::MAX))).count()
    }

    fn plan(&mut self, scenario: &Scenario, now: Nanos, job: usize) {
        let mut below = |count: usize| {
            usize::try_from(self.random.next_u64() % 1024).expect("small") % count.max(1)
        };
        let most = 1 + below(scenario.workers);
        let mut members: Vec<Request> = Vec::new();
        self.waiting[job].retain(|(at, request)| {
            let rank = request.offer.uid.rank;
            let is_new = members.iter().all(|member| member.offer.uid.rank != rank);
            let takes = *at <= now && members.len() < most && is_new;
            if takes {
                members.push(request.clone());
            }
            !takes
        });
        let is_direct = members.len() == 1 && below(2) == 0;
        let via = (!is_direct).then(|| below(scenario.aggregators));
        let replicate = scenario.has_replica && below(4) > 0;
        self.generation = self.generation.wrapping_add(1);
        let group = GroupId::new(self.generation % 7, self.generation);
        let descriptor = GroupDescriptor {
            job: topology::job_id(job),
            group,
            order: OrderNumber(self.next_orders[job]),
            members: members
                .iter()
                .map(|request| GroupMember {
                    rank: topology::rank(request.offer.uid.rank),
                    version: Version(request.offer.version),
                })
                .collect(),
            chunks: scenario.chunks,
            element_type: topology::element_type(scenario),
            elements: scenario.elements,
            exponent: topology::EXPONENT,
            via: via.map(topology::box_index),
            replicate,
            rate_bytes_per_sec: None,
            after: None,
            train_chunks: TRAIN_CHUNKS,
            lateness_ns: 1_000_000_000,
        };
        self.next_orders[job] += 1;
        let mut nodes = vec![scenario.server()];
        nodes.extend(scenario.replica());
        nodes.extend(via);
        let command = Command::Install(descriptor.clone());
        self.acts.push(Act::Command { node: nodes[0], command });
        let plan = Plan { descriptor, members, nodes, step: 0, since: now, granted: false };
        self.plans.insert((job, group), plan);
    }

    /// Takes a group back that was not granted; its members wait again.
    fn cancel(&mut self, now: Nanos, key: (usize, GroupId)) {
        let Some(plan) = self.plans.remove(&key) else { return };
        let job = plan.descriptor.job;
        for node in plan.nodes {
            let command = Command::Remove { job, group: key.1 };
            self.acts.push(Act::Command { node, command });
        }
        let at = now.saturating_add(REFUSED_SPAN);
        self.waiting[key.0].extend(plan.members.into_iter().map(|request| (at, request)));
    }

    /// What a box reports.
    pub fn event(
        &mut self,
        scenario: &Scenario,
        now: Nanos,
        node: usize,
        job: JobId,
        event: &Event,
    ) {
        let place = topology::job_place(job);
        match *event {
            Event::Installed { group } => self.installed(now, node, (place, group)),
            Event::Refused { group, .. } if Some(node) == scenario.replica() => {
                // It repairs what it has no descriptor of.
                self.installed(now, node, (place, group));
            }
            Event::Refused { group, .. } => {
                let key = (place, group);
                if self.plans.get(&key).is_some_and(|plan| !plan.granted) {
                    self.cancel(now, key);
                }
            }
            Event::Decided { group, decision, members, .. } if node == scenario.server() => {
                self.decided(scenario, (place, group), decision, members);
            }
            _ => {}
        }
    }

    fn installed(&mut self, now: Nanos, node: usize, key: (usize, GroupId)) {
        let Some(plan) = self.plans.get_mut(&key) else { return };
        if plan.granted || plan.nodes.get(plan.step) != Some(&node) {
            return;
        }
        plan.step += 1;
        plan.since = now;
        if let Some(node) = plan.nodes.get(plan.step) {
            let command = Command::Install(plan.descriptor.clone());
            self.acts.push(Act::Command { node: *node, command });
            return;
        }
        plan.granted = true;
        let count = u32::try_from(plan.members.len()).expect("at most 64");
        for request in &plan.members {
            let segment = Segment { is_open: true, rate_bytes_per_sec: 0 };
            let grant = Grant {
                group: key.1,
                via: plan.descriptor.via,
                exponent: plan.descriptor.exponent,
                member_count: count,
                segments: [segment].into_iter().collect(),
                replicate: plan.descriptor.replicate,
                train_chunks: TRAIN_CHUNKS,
            };
            self.acts.push(Act::Grant { request: request.clone(), grant });
        }
    }

    fn decided(
        &mut self,
        scenario: &Scenario,
        key: (usize, GroupId),
        decision: Decision,
        members: Members,
    ) {
        let Some(plan) = self.plans.remove(&key) else { return };
        let job = plan.descriptor.job;
        for node in plan.nodes.iter().filter(|node| **node < scenario.aggregators) {
            let command = Command::Remove { job, group: key.1 };
            self.acts.push(Act::Command { node: *node, command });
        }
        for request in plan.members {
            if !plan.granted && decision == Decision::Dropped {
                // It grows no younger by waiting.
                self.acts.push(Act::Outcome { request, decision });
                continue;
            }
            if !plan.granted {
                self.waiting[key.0].push((Nanos(0), request));
                continue;
            }
            let is_in = members.contains(topology::rank(request.offer.uid.rank).bit());
            let decision = match decision {
                Decision::Committed(version) if is_in => Decision::Committed(version),
                // Who was too old only the server's own word tells.
                Decision::Dropped => continue,
                _ => Decision::Void,
            };
            if scenario.tells_outcomes {
                self.acts.push(Act::Outcome { request, decision });
            }
        }
    }
}

/// How long a box may leave an installation unanswered.
const ANSWER_MAX: Nanos = Nanos::from_millis(20);
/// How long a refused group's members wait.
const REFUSED_SPAN: Nanos = Nanos::from_millis(15);
/// Groups of a job that are open at a time: fewer than rows are used.
const OPEN_MAX: usize = 6;

/// Transfers begin with a train, as a controller has them do.
const TRAIN_CHUNKS: u16 = 8;
