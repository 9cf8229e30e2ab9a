//! What must hold after every step, against plain loops that share nothing with the engines.
//!
//! | | judged |
//! | --- | --- |
//! | I1 | a committed update was offered, is committed once, and its worker is not told otherwise; a new server has all that workers know |
//! | I2 | the server's model is the plain sum of what was committed, bit for bit |
//! | I3 | order numbers are decided once, in sequence, each for the group that the controller gave it; a controller's orders rise, its group ids are new; the replica is the server at its order number |
//! | I4 | no member of a committed group was older than `tau_max` |
//! | I5 | the distance of the two models is within the bound that the server states |
//! | I6 | an aggregator's slots of a job hold members of that job's groups alone, within its quota |

mod succession;
mod truth;

use std::fmt;

use weft_control::{Decision, Event, GroupDescriptor, OrderNumber};
use weft_wire::rows::ROW_DIRECT;
use weft_wire::{GroupId, JobId, Members};

use truth::{PlannedGroup, Truth};

use super::node::BoxNode;
use super::scenario::Scenario;
use super::topology;
use crate::engine::Engine;

/// One attempt of one update: the worker, and the number under which it was offered.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Uid {
    /// Its job.
    pub job: usize,
    /// Its worker's rank.
    pub rank: usize,
    /// Unique over all lives of the worker.
    pub number: u64,
}

/// An update as its worker offered it.
#[derive(Clone)]
pub struct Offer {
    /// Which.
    pub uid: Uid,
    /// Version of the model that it was computed on.
    pub version: u64,
    /// Its elements, in units of 2^[`topology::EXPONENT`]; empty where somebody else judges models.
    pub values: Vec<i32>,
    /// Its norm.
    pub norm: f64,
    /// Its largest magnitude.
    pub max_abs: f64,
}

/// Norms follow from the values.
impl fmt::Debug for Offer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { uid, version, values, .. } = self;
        let mut fields = f.debug_struct("Offer");
        fields.field("uid", uid).field("version", version).field("values", values);
        fields.finish_non_exhaustive()
    }
}

/// The judge of one run.
#[derive(Debug)]
pub struct Judge {
    jobs: Vec<Truth>,
    /// What is wrong; the first few.
    pub violations: Vec<String>,
    /// Order numbers decided, over all jobs.
    pub decided: u64,
    /// Server or replica restarted: the replica may be behind what the server knows of it.
    replica_unsure: bool,
    /// Greatest true distance and least room below the bound, over all checks.
    pub distance_max: f64,
}

impl Judge {
    /// Of a run that has not begun.
    #[must_use]
    pub fn new(scenario: &Scenario) -> Self {
        Self {
            jobs: (0..scenario.jobs).map(|_| Truth::new(scenario)).collect(),
            violations: Vec::new(),
            decided: 0,
            replica_unsure: false,
            distance_max: 0.0,
        }
    }

    /// The controller gives a group its order number, or tells of it again.
    pub fn planned(&mut self, job: usize, descriptor: &GroupDescriptor) {
        let truth = &mut self.jobs[job];
        let GroupDescriptor { group, order, .. } = *descriptor;
        if let Some(known) = truth.groups.get(&group) {
            if known.order != Some(order) {
                let text = format!("job {job}: {group:?} at {order:?} was {:?}", known.order);
                self.violations.push(text);
            }
            return;
        }
        if !truth.orders.insert(order) {
            self.violations.push(format!("job {job}: {order:?} is given twice"));
        }
        let ranks = descriptor.members.iter().map(|member| member.rank.index()).collect();
        let mut known = PlannedGroup::new(Some(order), ranks);
        known.ungranted =
            descriptor.members.iter().map(|m| (m.rank.index(), m.version.0)).collect();
        truth.groups.insert(group, known);
    }

    /// A worker will send an update for a group.
    pub fn joined(&mut self, scenario: &Scenario, group: GroupId, offer: Offer) {
        let Uid { job, rank, .. } = offer.uid;
        let truth = &mut self.jobs[job];
        if group.row() >= ROW_DIRECT {
            let mut known = PlannedGroup::new(None, vec![rank]);
            known.offers.push(offer);
            truth.groups.insert(group, known);
            return;
        }
        match truth.groups.get_mut(&group) {
            Some(known) if !known.ranks.contains(&rank) => {
                self.violations.push(format!("{:?} is no member of {group:?}", offer.uid));
            }
            Some(known) if known.offers.iter().any(|other| other.uid.rank == rank) => {
                self.violations.push(format!("{:?} is the rank's second in {group:?}", offer.uid));
            }
            Some(known) => {
                known.ungranted.remove(&rank);
                // Its grant may come after the decision.
                if known.is_old(scenario, rank, offer.version) {
                    truth.dropped.insert(offer.uid);
                }
                known.offers.push(offer);
            }
            None => self.violations.push(format!("nobody planned {group:?}")),
        }
    }

    /// The plan drops an update.
    pub fn plan_dropped(&mut self, uid: Uid) {
        self.jobs[uid.job].dropped.insert(uid);
    }

    /// Another controller plans.
    pub fn controller_restarted(&mut self) {
        self.jobs.iter_mut().for_each(|truth| truth.orders.clear());
    }

    /// The server or the replica restarted.
    pub fn replica_restarted(&mut self) {
        self.replica_unsure = true;
    }

    /// An event of the server.
    pub fn server_event(&mut self, scenario: &Scenario, job: JobId, event: &Event) {
        let Event::Decided { group, order, decision, members, norm, .. } = *event else { return };
        let place = topology::job_place(job);
        self.decided += 1;
        let truth = &mut self.jobs[place];
        // Numbers that no group has are one decision, at the last of them.
        let is_run = decision == Decision::Void && group == GroupId::default();
        if is_run {
            truth.next_order = truth.next_order.max(order.0);
        }
        if order != OrderNumber(truth.next_order) {
            let text = format!("job {place}: decided {order:?}, not {}", truth.next_order);
            self.violations.push(text);
            truth.next_order = order.0;
        }
        truth.next_order += 1;
        let given = truth.groups.get(&group).and_then(|known| known.order);
        if given.is_some_and(|given| given != order) {
            let text = format!("job {place}: {group:?} was given {given:?}, decided at {order:?}");
            self.violations.push(text);
        }
        if decision == Decision::Dropped {
            truth.note_old(scenario, group);
        }
        if let Decision::Committed(version) = decision {
            let problem = truth.commit(scenario, group, members, version.0, norm);
            if let Some(problem) = problem {
                self.violations.push(format!("job {place}, {order:?}, {group:?}: {problem}"));
            }
        }
        let kept = (truth.version, truth.w.clone(), truth.h.clone());
        truth.history.insert(truth.next_order, kept);
    }

    /// A worker was told what became of its update.
    pub fn told(&mut self, scenario: &Scenario, uid: Uid, decision: Decision) {
        let truth = &mut self.jobs[uid.job];
        let committed = truth.committed.get(&uid).copied();
        match (decision, committed) {
            (Decision::Committed(version), Some(at)) if version.0 == at => {
                truth.told.insert(uid);
            }
            (Decision::Committed(version), at) => self
                .violations
                .push(format!("{uid:?} is told that it made {version:?}; truly {at:?}")),
            (_, Some(at)) => {
                self.violations.push(format!("{uid:?} made version {at} and is told {decision:?}"));
            }
            (Decision::Dropped, None) => {
                let is_true =
                    truth.dropped.contains(&uid) || truth.take_ungranted(scenario, uid.rank);
                if is_true {
                    truth.refused.insert(uid);
                } else {
                    let text = format!("{uid:?} is told that it was dropped; it was not");
                    self.violations.push(text);
                }
            }
            (_, None) => {
                truth.refused.insert(uid);
            }
        }
    }

    /// The models after a step.
    pub fn models(&mut self, scenario: &Scenario, boxes: &[BoxNode]) {
        let Engine::Server(server) = &boxes[scenario.server()].engine else { return };
        let replica = scenario.replica().and_then(|node| match &boxes[node].engine {
            Engine::Replica(replica) => Some(replica),
            _ => None,
        });
        for (place, truth) in self.jobs.iter().enumerate() {
            let job = topology::job_id(place);
            let view = match replica.filter(|_| truth.is_succeeded) {
                Some(successor) => successor.model(job).expect("the job is served"),
                None => server.model(job).expect("the job is served"),
            };
            let is_same = view.version.0 == truth.version
                && view.next_order.0 == truth.next_order
                && (truth.is_blind || view.weights == truth.w && view.momentum == truth.h);
            if !is_same {
                self.violations.push(format!(
                    "job {place}: the server is at {:?}, {:?}, not {}, {}, or its model is wrong",
                    view.version, view.next_order, truth.version, truth.next_order
                ));
            }
            let Some(replica) = replica.filter(|_| !truth.is_succeeded) else { continue };
            let copy = replica.model(job).expect("the job is followed");
            let right = match truth.history.get(&copy.next_order.0) {
                Some((version, w, h)) => {
                    let is_same = || copy.weights == w && copy.momentum == h;
                    copy.version.0 == *version && (truth.is_blind || is_same())
                }
                None => false,
            };
            if !right {
                self.violations.push(format!(
                    "job {place}: the replica at {:?}, {:?} is not what the server was",
                    copy.version, copy.next_order
                ));
            }
            if self.replica_unsure {
                continue;
            }
            let distance = replica.distance(job, view.weights).unwrap_or(f64::INFINITY);
            self.distance_max = self.distance_max.max(distance);
            let stats = server.jobs().find(|(id, _)| *id == job).map(|(_, stats)| stats);
            let bound = stats.map_or(0.0, |stats| stats.divergence_bound);
            if distance > bound * (1.0 + 1e-6) + 1e-6 {
                self.violations.push(format!("job {place}: distance {distance}, bound {bound}"));
            }
            let is_held = stats.is_some_and(|stats| stats.bound_broken == 0);
            if let Some(div_max) = scenario.div_max.filter(|_| is_held)
                && distance > div_max * (1.0 + 1e-6)
            {
                self.violations.push(format!("job {place}: distance {distance} over {div_max}"));
            }
        }
    }

    /// An aggregator's leases after a step.
    pub fn leases(&mut self, scenario: &Scenario, engine: &Engine) {
        let Engine::Aggregator(aggregator) = engine else { return };
        for report in aggregator.gather().reports() {
            let place = topology::job_place(report.id());
            for (group, mask) in report.groups() {
                let known = self.jobs[place].groups.get(&group);
                let planned = known.map_or(Members::EMPTY, |known| known.mask);
                let held = (0..scenario.chunks).filter_map(|chunk| report.slot(group, chunk));
                let held = held.fold(mask, |all, (_, members)| all.union(members));
                if !planned.contains(held) {
                    let text = format!("job {place}: {group:?} of {planned} holds {held}");
                    self.violations.push(text);
                }
            }
            let (used, quota) = (report.slots_in_use(), report.slots());
            let own = report.groups_open() * scenario.chunks as usize;
            if used > quota || used != own {
                let text = format!("job {place}: {used} of {quota} slots, {own} of its groups");
                self.violations.push(text);
            }
        }
    }

    /// True when the replica is where the server is.
    #[must_use]
    pub fn is_followed(&self, scenario: &Scenario, boxes: &[BoxNode]) -> bool {
        let Some(node) = scenario.replica() else { return true };
        let Engine::Replica(replica) = &boxes[node].engine else { return true };
        self.jobs.iter().enumerate().all(|(place, truth)| {
            if truth.is_succeeded || truth.is_stranded {
                return true;
            }
            let view = replica.model(topology::job_id(place));
            view.is_some_and(|view| view.next_order.0 == truth.next_order)
        })
    }

    /// Hash of all models, for the comparison of runs.
    #[must_use]
    pub fn digest(&self) -> Vec<(u64, Vec<u32>)> {
        let bits = |truth: &Truth| truth.w.iter().map(|w| w.to_bits()).collect();
        self.jobs.iter().map(|truth| (truth.version, bits(truth))).collect()
    }
}
