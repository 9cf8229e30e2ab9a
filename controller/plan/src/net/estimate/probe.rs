//! Decides which host sends a packet train to which, when, and how long it is.
//!
//! Invariants: a host that is not idle neither sends nor receives a probe; every link stays within
//! its [`ProbeBudget`]; two trains never share a host's link, nor a rack's as long as another pair
//! would do. With one train at a time none share anything.
//!
//! The link of which least is known for longest goes first, and is paired with the fastest link
//! that it can be tried against, for only then does it show its own rate; among equally fast ones
//! with that which has most to spare, so that partners change.
//!
//! A suspicion names all links of a path. Two trains look into it at once, for which each link
//! keeps a reserve: one that keeps the receiver, from another sender (of the same rack, if the path
//! leaves it), and one that keeps the sender (within its rack). Links that changed send a train the
//! other way, for a cable seldom changes in one direction only.
//!
//! A train lasts [`TRAIN_NS`] of the path's time. As long as that rate is unknown the length
//! doubles from [`FIRST_PACKETS`], so that no link is flooded by a guess.

mod partners;

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use super::budget::{BUCKET_NS, ProbeBudget};
use super::train::PACKETS_MAX;
use super::{Estimator, Refusal, Verdict};
use crate::case::HostId;
use crate::net::topology::{LinkId, Topology};
use partners::expected;

/// A train to be sent now.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct TrainOrder {
    /// Names the train.
    pub id: u32,
    /// The sender.
    pub from: HostId,
    /// The receiver.
    pub to: HostId,
    /// Full-sized packets.
    pub packets: u32,
}

/// Plans the probes of a network.
#[derive(Clone, Debug)]
pub struct ProbePlan {
    links: Vec<LinkState>,
    paths: BTreeMap<(HostId, HostId), PathState>,
    flying: Vec<Flight>,
    inquiries: VecDeque<Inquiry>,
    /// Trains that were too short and are to be sent again, longer.
    retries: VecDeque<(HostId, HostId)>,
    concurrent_max: usize,
    frame_bytes: u32,
    next_id: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct LinkState {
    budget: ProbeBudget,
    /// When a train last tried what it can.
    tried_ns: u64,
    samples: u32,
    /// Bytes of the first trains and what they were taken to cost, until the rate is known.
    first_bytes: f64,
    first_cost_ns: f64,
    /// Its other direction has changed: it may use its reserve.
    hurried: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct PathState {
    packets: u32,
    tried_ns: u64,
}

/// A train that a suspicion or a change asks for.
#[derive(Clone, Copy, Debug)]
struct Inquiry {
    /// The path in question.
    from: HostId,
    to: HostId,
    /// Which end stays; none when the other way is to be tried.
    keep: Option<End>,
    packets: u32,
    /// What it carried.
    seen_bytes_per_sec: f64,
    /// The larger of that and what it was thought to carry: another partner must not be slower.
    needed_bytes_per_sec: f64,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum End {
    Sender,
    Receiver,
}

#[derive(Clone, Copy, Debug)]
struct Flight {
    order: TrainOrder,
    sent_ns: u64,
    cost_ns: [f64; 4],
    expected_bytes_per_sec: f64,
}

impl ProbePlan {
    /// Plans for the links of `topology`, at most `concurrent_max` trains at a time, of frames of
    /// `frame_bytes`, Ethernet header included.
    #[must_use]
    pub fn new(topology: &Topology, concurrent_max: usize, frame_bytes: u32) -> Self {
        Self {
            links: vec![LinkState::default(); topology.link_count()],
            paths: BTreeMap::new(),
            flying: Vec::new(),
            inquiries: VecDeque::new(),
            retries: VecDeque::new(),
            concurrent_max: concurrent_max.max(1),
            frame_bytes: frame_bytes.max(1),
            next_id: 1,
        }
    }

    /// The next train, if one is due and can be afforded. `idle` says whether a host has no
    /// transfer of its own.
    pub fn poll_train(
        &mut self,
        now_ns: u64,
        estimator: &Estimator,
        idle: impl Fn(HostId) -> bool,
    ) -> Option<TrainOrder> {
        self.poll_train_over(now_ns, estimator, |(from, to)| idle(from) && idle(to), |_| true)
    }

    /// As [`ProbePlan::poll_train`], with `may` for what paths are free, and only for links that
    /// are `due`, except where a sample leaves a question.
    pub fn poll_train_over(
        &mut self,
        now_ns: u64,
        estimator: &Estimator,
        may: impl Fn((HostId, HostId)) -> bool,
        is_due: impl Fn(LinkId) -> bool,
    ) -> Option<TrainOrder> {
        self.flying.retain(|flight| now_ns.saturating_sub(flight.sent_ns) < FLIGHT_NS_MAX);
        if self.flying.len() >= self.concurrent_max {
            return None;
        }
        if let Some(order) = self.poll_inquiry(now_ns, estimator, &may) {
            return Some(order);
        }
        if let Some((from, to)) = self.retries.pop_front()
            && may((from, to))
            && !self.shares(estimator.topology(), from, to)
            && let Some(order) = self.order(now_ns, estimator, (from, to), 0.0)
        {
            return Some(order);
        }
        let topology = estimator.topology();
        let hosts = u32::try_from(topology.host_count()).unwrap_or(0);
        let links = hosts * 2 + topology.rack_count() * 2;
        let mut due: Vec<LinkId> = (0..links).map(LinkId).filter(|link| is_due(*link)).collect();
        due.sort_by_key(|link| (self.links[link.index()].tried_ns, link.0));
        due.into_iter().find_map(|link| {
            let partners = self.partners(now_ns, estimator, link);
            partners.into_iter().find_map(|(from, to)| {
                let reserve = self.reserve(now_ns, estimator.topology(), link);
                may((from, to))
                    .then(|| self.order(now_ns, estimator, (from, to), reserve))
                    .flatten()
            })
        })
    }

    /// What became of a train: the rate that it showed, if any, the estimator's judgement of it,
    /// and how long the whole train took at the receiver.
    ///
    /// # Errors
    /// When no such train is under way.
    pub fn handle_outcome(
        &mut self,
        estimator: &Estimator,
        id: u32,
        span_ns: u64,
        rate_bytes_per_sec: Option<f64>,
        judged: Result<Verdict, Refusal>,
    ) -> Result<(), Refusal> {
        let position = self.flying.iter().position(|flight| flight.order.id == id);
        let flight = self.flying.swap_remove(position.ok_or(Refusal::NoPath)?);
        let TrainOrder { from, to, packets, .. } = flight.order;
        let path = estimator.topology().path(from, to);
        let bytes = f64::from(packets) * f64::from(self.frame_bytes);
        let rate_bytes_per_sec = rate_bytes_per_sec.filter(|rate| *rate > 0.0);
        for (link, guessed) in path.links().iter().zip(flight.cost_ns) {
            let state = &mut self.links[link.index()];
            // All the time that the train took may be the link's own.
            let cost = if guessed == 0.0 { span_ns as f64 } else { guessed };
            let cost = rate_bytes_per_sec.map_or(cost, |rate| cost.min(bytes * 1e9 / rate));
            if state.samples >= FIRST_SAMPLES {
                state.budget.settle(guessed, cost)?;
            } else {
                // Until it is seen to be faster: then the first trains cost it less.
                state.first_bytes += bytes;
                let known = estimator.estimate(flight.sent_ns, *link);
                let real = known.map_or(f64::INFINITY, |estimate| {
                    state.first_bytes * 1e9 / estimate.capacity_bytes_per_sec
                });
                let real = real.min(state.first_cost_ns + cost);
                state.budget.settle(state.first_cost_ns + guessed, real)?;
                state.first_cost_ns = real;
            }
            state.samples += u32::from(judged.is_ok());
        }
        if matches!(judged, Err(Refusal::Short | Refusal::Uneven))
            && self.retries.len() < INQUIRIES_MAX
        {
            self.retries.push_back((from, to));
        }
        let state = self.paths.entry((from, to)).or_default();
        let ideal = packets as f64 * TRAIN_NS / (span_ns.max(1) as f64);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped")]
        let ideal = ideal.clamp(f64::from(PACKETS_MIN), f64::from(PACKETS_MAX)) as u32;
        state.packets = ideal.clamp(packets / 2, packets * 2).clamp(PACKETS_MIN, PACKETS_MAX);
        let packets = state.packets;
        let seen_bytes_per_sec = rate_bytes_per_sec.unwrap_or(0.0);
        let needed_bytes_per_sec = flight.expected_bytes_per_sec.max(seen_bytes_per_sec);
        let asked: &[_] = match judged {
            Ok(Verdict::Suspect) => &[Some(End::Receiver), Some(End::Sender)],
            Ok(Verdict::Changed) => &[None],
            _ => &[],
        };
        for keep in asked {
            if self.inquiries.len() < INQUIRIES_MAX {
                let keep = *keep;
                let inquiry =
                    Inquiry { from, to, keep, packets, seen_bytes_per_sec, needed_bytes_per_sec };
                self.inquiries.push_back(inquiry);
            }
        }
        Ok(())
    }

    /// The next inquiry that can be made. One that cannot be afforded is dropped: routine goes on.
    fn poll_inquiry(
        &mut self,
        now_ns: u64,
        estimator: &Estimator,
        may: &impl Fn((HostId, HostId)) -> bool,
    ) -> Option<TrainOrder> {
        for _ in 0..self.inquiries.len() {
            let inquiry = self.inquiries.pop_front()?;
            let Inquiry { from, to, keep, packets, .. } = inquiry;
            let Some(keep) = keep else {
                self.hurry(estimator.topology(), from, to);
                continue;
            };
            let topology = estimator.topology();
            let link = if keep == End::Sender { topology.up(from) } else { topology.down(to) };
            if self.is_busy(topology, link) {
                self.inquiries.push_back(inquiry);
                continue;
            }
            let partners = self.partners(now_ns, estimator, link);
            let suits = |pair: &&(HostId, HostId)| {
                **pair != (from, to)
                    && may(**pair)
                    && expected(now_ns, estimator, **pair, Some(link))
                        >= inquiry.needed_bytes_per_sec * FAST_ENOUGH
            };
            let same_rack = |pair: &&(HostId, HostId)| {
                let (new, old) = if keep == End::Sender { (pair.1, from) } else { (pair.0, from) };
                topology.rack(new) == topology.rack(old)
            };
            let pair = partners.iter().filter(suits).find(same_rack);
            let pair = pair.or_else(|| partners.iter().find(suits)).copied();
            let pair = pair.or_else(|| may((from, to)).then_some((from, to)));
            let Some(pair) = pair.filter(|pair| !self.shares(topology, pair.0, pair.1)) else {
                continue;
            };
            let seen = inquiry.seen_bytes_per_sec;
            let order = self.order_of(now_ns, estimator, pair, packets, seen, 0.0);
            if order.is_some() {
                return order;
            }
        }
        None
    }

    /// Puts the other directions of two hosts' links first in the routine.
    fn hurry(&mut self, topology: &Topology, from: HostId, to: HostId) {
        for link in [topology.down(from), topology.up(to)] {
            let state = &mut self.links[link.index()];
            state.tried_ns = 0;
            state.hurried = true;
        }
    }

    /// Routine leaves enough for two trains that look into a suspicion; a first impression may
    /// take them.
    fn reserve(&self, now_ns: u64, topology: &Topology, link: LinkId) -> f64 {
        let state = &self.links[link.index()];
        // A rack's link waits until two hosts can afford it at once, which pairs inside the rack,
        // whose turns alternate, might never leave it.
        let at_rack = link.index() >= topology.host_count() * 2;
        let overdue = at_rack && now_ns.saturating_sub(state.tried_ns) > RACK_OVERDUE_NS;
        let first = state.samples < FIRST_SAMPLES;
        if first || state.hurried || overdue { 0.0 } else { RESERVE_NS }
    }

    /// Books the train on every link of its path; `None` when one cannot afford it.
    fn order(
        &mut self,
        now_ns: u64,
        estimator: &Estimator,
        pair: (HostId, HostId),
        reserve_ns: f64,
    ) -> Option<TrainOrder> {
        let packets = self.length(now_ns, estimator, pair);
        self.order_of(now_ns, estimator, pair, packets, 0.0, reserve_ns)
    }

    fn order_of(
        &mut self,
        now_ns: u64,
        estimator: &Estimator,
        (from, to): (HostId, HostId),
        packets: u32,
        seen_bytes_per_sec: f64,
        reserve_ns: f64,
    ) -> Option<TrainOrder> {
        let path = estimator.topology().path(from, to);
        let bytes = f64::from(packets) * f64::from(self.frame_bytes);
        let mut cost_ns = [0.0; 4];
        for (link, cost) in path.links().iter().zip(&mut cost_ns) {
            let rate = estimator.estimate(now_ns, *link).map(|e| e.capacity_bytes_per_sec);
            *cost = rate.map_or(0.0, |rate| bytes * 1e9 / rate.max(seen_bytes_per_sec));
            let mut budget = self.links[link.index()].budget;
            if !budget.take(now_ns, *cost, reserve_ns) {
                return None;
            }
        }
        for (link, cost) in path.links().iter().zip(cost_ns) {
            let others = expected(now_ns, estimator, (from, to), Some(*link));
            let own = estimator.estimate(now_ns, *link).map_or(0.0, |e| e.capacity_bytes_per_sec);
            let state = &mut self.links[link.index()];
            state.budget.take(now_ns, cost, reserve_ns);
            // A train that something else holds back tells nothing of this link.
            if others >= own * FAST_ENOUGH {
                state.tried_ns = now_ns;
                state.hurried = false;
            }
        }
        let known = self.paths.entry((from, to)).or_default();
        known.tried_ns = now_ns;
        let order = TrainOrder { id: self.next_id, from, to, packets };
        self.next_id = self.next_id.wrapping_add(1).max(1);
        let expected_bytes_per_sec = expected(now_ns, estimator, (from, to), None);
        self.flying.push(Flight { order, sent_ns: now_ns, cost_ns, expected_bytes_per_sec });
        Some(order)
    }

    /// What the path's last train suggests, else what its links' estimates do, else the least.
    fn length(&self, now_ns: u64, estimator: &Estimator, pair: (HostId, HostId)) -> u32 {
        if let Some(path) = self.paths.get(&pair).filter(|path| path.packets > 0) {
            return path.packets;
        }
        let path = estimator.topology().path(pair.0, pair.1);
        let rates = path.links().iter().map(|link| {
            let known = self.links[link.index()].samples > 0;
            let estimate = estimator.estimate(now_ns, *link).filter(|_| known);
            estimate.map(|estimate| estimate.capacity_bytes_per_sec)
        });
        let slowest = rates
            .collect::<Option<Vec<f64>>>()
            .and_then(|rates| rates.into_iter().reduce(f64::min));
        slowest.map_or(FIRST_PACKETS, |rate| {
            let packets = rate * TRAIN_NS / 1e9 / f64::from(self.frame_bytes);
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped")]
            let packets = packets.clamp(f64::from(PACKETS_MIN), f64::from(PACKETS_MAX)) as u32;
            packets
        })
    }
}

/// How long a train takes at the slowest link of its path.
pub const TRAIN_NS: f64 = 3e6;
/// Length of the first train on a path of which nothing is known.
pub const FIRST_PACKETS: u32 = PACKETS_MIN;
const PACKETS_MIN: u32 = 12;
const RESERVE_NS: f64 = BUCKET_NS / 3.0;
/// Samples of a link that are worth its reserve.
const FIRST_SAMPLES: u32 = 4;
/// A partner this much of the wanted rate shows nearly all of it.
const FAST_ENOUGH: f64 = 0.95;
/// A train that has not been reported by then is lost.
pub const FLIGHT_NS_MAX: u64 = 500_000_000;
const RACK_OVERDUE_NS: u64 = 600_000_000;
const INQUIRIES_MAX: usize = 64;
