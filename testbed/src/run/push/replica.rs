//! Follows the replica behind the server: the true distance of their models at every moment at
//! which either changed, beside what the server believed. Pure.
//!
//! Models are the reference's, of which the server's and the replica's have been found, or are
//! about to be found, bit-identical at equal order numbers; so their distance is known without
//! asking the boxes for models while they work.

use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

use super::log::{BoxEvent, LogLine, LoggedDecision};
use crate::workload::push_reference::distance;

/// Server and replica at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DivergencePoint {
    /// When, by the monotonic clock.
    pub t_ns: u64,
    /// Order numbers that the server had decided.
    pub server_order: u64,
    /// Order numbers that the replica had applied.
    pub replica_order: u64,
    /// The true distance of their models.
    pub distance: f64,
    /// The bound of the distance to the replica as the server knew it, from the norms.
    pub bound: f64,
    /// Whether the server declared that the bound is held below `div_max`.
    pub is_held: bool,
}

/// What was found.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Followed {
    /// Every moment at which something changed.
    pub points: Vec<DivergencePoint>,
    /// Where the promise was broken.
    pub problems: Vec<String>,
}

/// What happened at one of the two, in the order of time.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Step {
    /// The server decided this order.
    Server(u64),
    /// The replica applied this order.
    Replica(u64),
    /// The server knows the replica to have applied all below this order.
    Known { order: u64, bound: f64, is_held: bool },
}

/// Walks along both logs while the proof computes one model after the other.
#[derive(Debug)]
pub(super) struct Follower {
    steps: VecDeque<(u64, Step)>,
    /// Models after the first `n` order numbers, from `oldest` on.
    models: VecDeque<Rc<[f32]>>,
    oldest: u64,
    server: u64,
    replica: u64,
    /// Orders that the server knew the replica to have applied, and whether the bound was held.
    known: (u64, bool),
    momentum: f64,
    /// Of each order: the norm of its sum, `None` for one that was not committed, and the norm of
    /// the momentum term afterwards.
    norms: Vec<(Option<f64>, f64)>,
    bounds: Vec<ReportedBound>,
    followed: Followed,
}

/// A bound that the server gave: for the distance to the replica as it knew it.
#[derive(Clone, Copy, Debug, PartialEq)]
struct ReportedBound {
    bound: f64,
    distance: f64,
    is_held: bool,
    server: u64,
}

impl Follower {
    /// Begins with both at the initial model.
    #[must_use]
    pub(super) fn new(
        momentum: f64,
        server: &[LogLine],
        replica: &[LogLine],
        initial: &[f32],
    ) -> Self {
        let mut norms = Vec::new();
        for line in server {
            if let BoxEvent::Decided { order, decision, norm, momentum_norm, .. } = line.event {
                let is_committed = decision == LoggedDecision::Committed;
                let before = norms.last().map_or(0.0, |(_, momentum_norm)| *momentum_norm);
                // Numbers that nobody installed end together, under the last of them.
                pad(&mut norms, order, (None, before));
                norms.push((is_committed.then_some(norm), momentum_norm));
            }
        }
        let of_server = server.iter().filter_map(|line| match line.event {
            BoxEvent::Decided { order, .. } => Some((line.t_ns, Step::Server(order))),
            BoxEvent::ReplicaAt { order, divergence_bound, is_held } => {
                Some((line.t_ns, Step::Known { order, bound: divergence_bound, is_held }))
            }
            _ => None,
        });
        let decided: HashMap<u64, u64> = server
            .iter()
            .filter_map(|line| match line.event {
                BoxEvent::Decided { order, .. } => Some((order, line.t_ns)),
                _ => None,
            })
            .collect();
        let of_replica = replica.iter().filter_map(|line| match line.event {
            BoxEvent::Decided { order, .. } => {
                // Each box stamps its lines a moment after the event.
                let at_server = decided.get(&order).copied().unwrap_or(0);
                let is_late = at_server.saturating_sub(line.t_ns) < STAMP_SKEW_NS;
                let t_ns = if is_late { line.t_ns.max(at_server) } else { line.t_ns };
                Some((t_ns, Step::Replica(order)))
            }
            _ => None,
        });
        let mut steps: Vec<_> = of_server.chain(of_replica).collect();
        // Stable: what one box wrote keeps its order, and the server's comes first.
        steps.sort_by_key(|(t_ns, _)| *t_ns);
        Self {
            steps: steps.into(),
            models: VecDeque::from([Rc::from(initial)]),
            oldest: 0,
            server: 0,
            replica: 0,
            known: (0, true),
            momentum,
            norms,
            bounds: Vec::new(),
            followed: Followed::default(),
        }
    }

    /// Takes the model after the server's decision of `order`, and follows both logs up to the
    /// decision after it.
    pub(super) fn server_decided(&mut self, order: u64, model: &[f32]) {
        let model = match self.models.back() {
            Some(last) if **last == *model => Rc::clone(last),
            _ => Rc::from(model),
        };
        let before = self.models.back().cloned();
        while let Some(before) = before.as_ref().filter(|_| self.next_model() <= order) {
            self.models.push_back(Rc::clone(before));
        }
        self.models.push_back(model);
        let mut begun = false;
        while let Some((t_ns, step)) = self.steps.front().copied() {
            if let Step::Server(next) = step {
                if begun || next > order {
                    break;
                }
                begun = true;
            }
            self.steps.pop_front();
            self.step(t_ns, step);
        }
    }

    /// After how many order numbers the next model is that comes.
    fn next_model(&self) -> u64 {
        self.oldest + self.models.len() as u64
    }

    /// Ends the walk. With `div_max`, the distance must have stayed below it while it was held.
    #[must_use]
    pub(super) fn finish(mut self, div_max: Option<f64>) -> Followed {
        while let Some((t_ns, step)) = self.steps.pop_front() {
            self.step(t_ns, step);
        }
        let problems = &mut self.followed.problems;
        for reported in &self.bounds {
            if reported.distance > reported.bound * (1.0 + TOLERANCE) + TOLERANCE {
                problems.push(format!(
                    "divergence: at order {} the distance was {:.6}, the server's bound {:.6}",
                    reported.server, reported.distance, reported.bound
                ));
            }
        }
        for point in &self.followed.points {
            if point.distance > point.bound * (1.0 + TOLERANCE) + TOLERANCE {
                problems.push(format!(
                    "divergence: at order {} the distance was {:.6}, the bound by norms {:.6}",
                    point.server_order, point.distance, point.bound
                ));
            }
        }
        if let Some(div_max) = div_max {
            for point in &self.followed.points {
                if point.is_held && point.distance > div_max * (1.0 + TOLERANCE) {
                    problems.push(format!(
                        "divergence: at order {} the distance was {:.6} while {div_max} was held",
                        point.server_order, point.distance
                    ));
                }
            }
        }
        self.followed
    }

    fn step(&mut self, t_ns: u64, step: Step) {
        match step {
            Step::Server(order) => self.server = order + 1,
            Step::Replica(order) => self.replica = self.replica.max(order + 1),
            Step::Known { order, bound, is_held } => {
                self.known = (order, is_held);
                // Each box stamps its lines a moment after the event: the server may be told, and
                // say so, before the replica's own line has its time.
                self.replica = self.replica.max(order);
                if let Some(distance) = self.distance(order) {
                    let server = self.server;
                    self.bounds.push(ReportedBound { bound, distance, is_held, server });
                }
            }
        }
        if let Some(distance) = self.distance(self.replica) {
            let (known, is_held) = self.known;
            let bound = self.bound(known);
            self.followed.points.push(DivergencePoint {
                t_ns,
                server_order: self.server,
                replica_order: self.replica,
                distance,
                bound,
                is_held,
            });
        } else {
            let (replica, server) = (self.replica, self.server);
            self.followed.problems.push(format!("replica: at {replica}, ahead of server {server}"));
        }
        while self.oldest < self.replica.min(self.known.0).min(self.server) {
            self.models.pop_front();
            self.oldest += 1;
        }
    }

    /// The bound of the distance of the server's model to the one after the first `order` order
    /// numbers (facts of MLfabric, "Divergence bound"): momentum * geo(k) * H + the sum over the k
    /// missing groups of geo(those not before it) * norm, geo(m) = 1 + momentum + ... (m terms).
    fn bound(&self, order: u64) -> f64 {
        let index = |order: u64| usize::try_from(order).unwrap_or(usize::MAX);
        let applied = order.checked_sub(1).and_then(|last| self.norms.get(index(last)));
        let momentum_norm = applied.map_or(0.0, |(_, momentum_norm)| *momentum_norm);
        let missing = self.norms.get(index(order)..index(self.server)).unwrap_or_default();
        let (mut geo, mut bound) = (0.0, 0.0);
        for norm in missing.iter().rev().filter_map(|(norm, _)| *norm) {
            geo = 1.0 + self.momentum * geo;
            bound += geo * norm;
        }
        bound + self.momentum * geo * momentum_norm
    }

    /// Distance of the server's model to the one after the first `order` order numbers.
    fn distance(&self, order: u64) -> Option<f64> {
        let at = |order: u64| {
            let index = usize::try_from(order.checked_sub(self.oldest)?).ok()?;
            self.models.get(index)
        };
        if order > self.server {
            return None;
        }
        let (server, replica) = (at(self.server)?, at(order)?);
        Some(if Rc::ptr_eq(server, replica) { 0.0 } else { distance(server, replica) })
    }
}

/// Fills a list of what order numbers did up to `order`.
fn pad<T: Clone>(list: &mut Vec<T>, order: u64, with: T) {
    let len = usize::try_from(order).unwrap_or(list.len());
    if len > list.len() {
        list.resize(len, with);
    }
}

/// How much later than the event a box may stamp its line, on a busy machine.
const STAMP_SKEW_NS: u64 = 50_000_000;
/// The bound is computed in double precision over single-precision models.
const TOLERANCE: f64 = 1e-5;

#[cfg(test)]
mod tests {
    use super::*;

    fn decided(t_ns: u64, order: u64, norm: f64) -> LogLine {
        LogLine::committed(t_ns, order, order + 1, norm)
    }

    fn replica_at(t_ns: u64, order: u64, bound: f64) -> LogLine {
        let event = BoxEvent::ReplicaAt { order, divergence_bound: bound, is_held: true };
        LogLine { t_ns, rx_bytes: 0, event }
    }

    fn follow(bound: f64) -> Followed {
        // The server decides 0 at 10 and 1 at 20; the replica applies 0 at 30 and 1 at 50.
        let server = [decided(10, 0, 3.0), decided(20, 1, 2.5), replica_at(40, 1, bound)];
        let replica = [decided(30, 0, 3.0), decided(50, 1, 2.5)];
        let mut follower = Follower::new(0.5, &server, &replica, &[0.0]);
        follower.server_decided(0, &[3.0]);
        follower.server_decided(1, &[7.0]);
        follower.finish(Some(5.0))
    }

    #[test]
    fn distances_are_those_of_the_models_at_each_moment() {
        let followed = follow(4.0);
        let seen: Vec<_> =
            followed.points.iter().map(|point| (point.t_ns, point.distance)).collect();
        assert_eq!(seen, [(10, 3.0), (20, 7.0), (30, 4.0), (40, 4.0), (50, 0.0)]);
        // 3; then 2.5 + 1.5 * 3; the server learns at 40 that order 0 is there: 2.5 + 0.5 * 3.
        let bounds: Vec<f64> = followed.points.iter().map(|point| point.bound).collect();
        assert_eq!(bounds, [3.0, 7.0, 7.0, 4.0, 4.0]);
        // 7 exceeds 5 while it was held.
        assert_eq!(followed.problems.len(), 1, "{:?}", followed.problems);
    }

    #[test]
    fn a_bound_below_the_truth_is_a_problem() {
        let followed = follow(3.5);
        assert_eq!(followed.problems.len(), 2, "{:?}", followed.problems);
        assert!(followed.problems[0].contains("the server's bound 3.5"), "{:?}", followed.problems);
    }

    #[test]
    fn numbers_that_end_together_move_both_at_once() {
        let hole = |t_ns| {
            let mut line = decided(t_ns, 4, 0.0);
            if let BoxEvent::Decided { group, decision, members, version, .. } = &mut line.event {
                (*group, *decision, *members, *version) = (0, LoggedDecision::Void, 0, 1);
            }
            line
        };
        let server = [decided(10, 0, 3.0), hole(20), decided(30, 5, 2.5)];
        let replica = [decided(11, 0, 3.0), hole(40), decided(50, 5, 2.5)];
        let mut follower = Follower::new(0.5, &server, &replica, &[0.0]);
        follower.server_decided(0, &[3.0]);
        follower.server_decided(4, &[3.0]);
        follower.server_decided(5, &[7.0]);
        let followed = follower.finish(None);
        let seen: Vec<_> =
            followed.points.iter().map(|point| (point.t_ns, point.distance)).collect();
        assert_eq!(seen, [(10, 3.0), (11, 0.0), (20, 0.0), (30, 4.0), (40, 4.0), (50, 0.0)]);
        assert_eq!(followed.problems, Vec::<String>::new());
    }

    #[test]
    fn a_replica_ahead_of_its_server_is_a_problem() {
        let mut follower =
            Follower::new(0.0, &[decided(60_000_000, 0, 1.0)], &[decided(10, 0, 1.0)], &[0.0]);
        follower.server_decided(0, &[1.0]);
        assert!(follower.finish(None).problems[0].contains("ahead of"), "it is");
    }
}
