//! What must hold after every step, against plain loops that share nothing with the engines.
//!
//! | | judged |
//! | --- | --- |
//! | I1 | a committed update was offered, is committed once, and its worker is not told otherwise |
//! | I2 | the server's model is the plain sum of what was committed, bit for bit |
//! | I3 | order numbers are decided once, in sequence; the replica is the server at its order number |
//! | I4 | no member of a committed group was older than `tau_max` |
//! | I5 | the distance of the two models is within the bound that the server states |

use std::collections::{BTreeMap, BTreeSet};

use weft_engine::push::{Decision, Event, OrderNumber};
use weft_wire::{GroupId, JobId, Members};

use super::node::{BoxNode, Engine};
use super::scenario::{Kind, Scenario};
use super::topology;

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
#[derive(Clone, Debug)]
pub struct Offer {
    /// Which.
    pub uid: Uid,
    /// Version of the model that it was computed on.
    pub version: u64,
    /// Its elements, in units of 2^[`topology::EXPONENT`].
    pub values: Vec<i32>,
}

#[derive(Debug)]
struct Truth {
    version: u64,
    next_order: u64,
    w: Vec<f32>,
    h: Vec<f32>,
    /// Version, weights and momentum term by order number that is next.
    history: BTreeMap<u64, (u64, Vec<f32>, Vec<f32>)>,
    committed: BTreeMap<Uid, u64>,
    refused: BTreeSet<Uid>,
    /// Offers by group, in the group's order.
    groups: BTreeMap<GroupId, Vec<Offer>>,
}

/// The judge of one run.
#[derive(Debug)]
pub struct Judge {
    jobs: Vec<Truth>,
    /// What is wrong; the first few.
    pub violations: Vec<String>,
    /// Order numbers decided, over all jobs.
    pub decided: u64,
    /// The server has restarted and forgotten what it acknowledged.
    is_forgetful: bool,
    /// Told otherwise by a server that forgot.
    pub forgotten: u64,
    /// The replica restarted and may be behind what the server knows of it.
    replica_unsure: bool,
    /// Greatest true distance and least room below the bound, over all checks.
    pub distance_max: f64,
}

impl Judge {
    /// Of a run that has not begun.
    #[must_use]
    pub fn new(scenario: &Scenario) -> Self {
        let len = scenario.dimension();
        let truth = || Truth {
            version: 0,
            next_order: 0,
            w: vec![0.0; len],
            h: vec![0.0; len],
            history: BTreeMap::from([(0, (0, vec![0.0; len], vec![0.0; len]))]),
            committed: BTreeMap::new(),
            refused: BTreeSet::new(),
            groups: BTreeMap::new(),
        };
        Self {
            jobs: (0..scenario.jobs).map(|_| truth()).collect(),
            violations: Vec::new(),
            decided: 0,
            is_forgetful: false,
            forgotten: 0,
            replica_unsure: false,
            distance_max: 0.0,
        }
    }

    /// Takes note of who is in a group.
    pub fn group(&mut self, job: usize, group: GroupId, offers: Vec<Offer>) {
        self.jobs[job].groups.entry(group).or_insert(offers);
    }

    /// The updates of a worker whose group is known.
    #[must_use]
    pub fn direct_groups(&self, job: usize, rank: usize) -> BTreeSet<Uid> {
        let offers = self.jobs[job].groups.values().flatten();
        offers.map(|offer| offer.uid).filter(|uid| uid.rank == rank).collect()
    }

    /// The server restarted.
    pub fn server_restarted(&mut self) {
        self.is_forgetful = true;
    }

    /// The replica restarted.
    pub fn replica_restarted(&mut self) {
        self.replica_unsure = true;
    }

    /// An event of the server.
    pub fn server_event(&mut self, scenario: &Scenario, job: JobId, event: &Event) {
        let Event::Decided { group, order, decision, members, norm, .. } = *event else { return };
        let place = topology::job_place(job);
        self.decided += 1;
        let truth = &mut self.jobs[place];
        if order != OrderNumber(truth.next_order) {
            let text = format!("job {place}: decided {order:?}, not {}", truth.next_order);
            self.violations.push(text);
            truth.next_order = order.0;
        }
        truth.next_order += 1;
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
    pub fn told(&mut self, uid: Uid, decision: Decision) {
        let truth = &mut self.jobs[uid.job];
        let committed = truth.committed.get(&uid).copied();
        match (decision, committed) {
            (Decision::Committed(version), Some(at)) if version.0 == at => {}
            (Decision::Committed(version), at) => self
                .violations
                .push(format!("{uid:?} is told that it made {version:?}; truly {at:?}")),
            (_, Some(_)) if self.is_forgetful => self.forgotten += 1,
            (_, Some(at)) => {
                self.violations.push(format!("{uid:?} made version {at} and is told {decision:?}"));
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
            let view = server.model(job).expect("the job is served");
            let knows_momentum = scenario.kind != Kind::Server;
            let is_same = view.version.0 == truth.version
                && view.next_order.0 == truth.next_order
                && view.weights == truth.w
                && (!knows_momentum || view.momentum == truth.h);
            if !is_same {
                self.violations.push(format!(
                    "job {place}: the server is at {:?}, {:?}, not {}, {}, or its model is wrong",
                    view.version, view.next_order, truth.version, truth.next_order
                ));
            }
            let Some(replica) = replica else { continue };
            let copy = replica.model(job).expect("the job is followed");
            let right = match truth.history.get(&copy.next_order.0) {
                Some((version, w, h)) => {
                    copy.version.0 == *version
                        && copy.weights == w
                        && (!knows_momentum || copy.momentum == h)
                }
                None => false,
            };
            if !right {
                self.violations.push(format!(
                    "job {place}: the replica at {:?}, {:?} is not what the server was",
                    copy.version, copy.next_order
                ));
            }
            if self.replica_unsure || self.is_forgetful {
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

    /// True when the replica is where the server is.
    #[must_use]
    pub fn is_followed(&self, scenario: &Scenario, boxes: &[BoxNode]) -> bool {
        let Some(node) = scenario.replica() else { return true };
        let Engine::Replica(replica) = &boxes[node].engine else { return true };
        self.jobs.iter().enumerate().all(|(place, truth)| {
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

impl Truth {
    /// Applies a committed group by plain loops; what is wrong with the commit, if something is.
    fn commit(
        &mut self,
        scenario: &Scenario,
        group: GroupId,
        members: Members,
        version: u64,
        norm: f64,
    ) -> Option<String> {
        let Some(offers) = self.groups.get(&group).cloned() else {
            return Some("nobody offered it".to_owned());
        };
        let is_in = |offer: &&Offer| members.contains(topology::rank(offer.uid.rank).bit());
        let entered: Vec<Offer> = offers.iter().filter(is_in).cloned().collect();
        let mut problem = None;
        if entered.len() != members.len() || entered.is_empty() {
            problem = Some(format!("members {members} were not offered"));
        }
        for (position, offer) in (0..).zip(&entered) {
            let delay = (self.version + position).checked_sub(offer.version);
            if delay.is_none_or(|delay| delay > scenario.tau_max) {
                problem = Some(format!("{:?} has the delay {delay:?}", offer.uid));
            }
            if self.refused.contains(&offer.uid) {
                problem = Some(format!("{:?} was told that it never would be", offer.uid));
            }
            if self.committed.insert(offer.uid, version).is_some() {
                problem = Some(format!("{:?} is committed twice", offer.uid));
            }
        }
        let unit = f32::from(topology::EXPONENT).exp2();
        let mut squares = 0.0_f64;
        for (element, (w, h)) in self.w.iter_mut().zip(&mut self.h).enumerate() {
            let sum: i32 = entered.iter().map(|offer| offer.values[element]).sum();
            #[expect(clippy::cast_precision_loss, reason = "small numbers")]
            let scaled = sum as f32 * unit;
            squares += f64::from(scaled) * f64::from(scaled);
            let kept = scenario.momentum * *h;
            *h = kept + scaled;
            *w += *h;
        }
        if (norm - squares.sqrt()).abs() > 1e-6 * squares.sqrt() + 1e-9 {
            problem = Some(format!("norm {norm}, not {}", squares.sqrt()));
        }
        self.version += entered.len() as u64;
        if version != self.version {
            problem = Some(format!("version {version}, not {}", self.version));
        }
        problem
    }
}
