//! A network of token buckets in virtual time, to try estimators on: trains pass their links packet
//! by packet among the cross traffic of others, and arrive with jitter.

#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "times and indices of a model are small and positive"
)]

use alloc::string::String;
use alloc::vec::Vec;

use super::super::train::{Arrival, Departure, Reading};
use super::super::{Bound, Context, Estimator, TrainSample};
use crate::case::{HostId, RackId};
use crate::net::estimate::probe::{ProbePlan, TrainOrder};
use crate::net::topology::{LinkId, Topology};

pub(super) const FRAME: u32 = 1514;
const START_NS: u64 = 1_000_000_000;

/// Numbers from a seed (splitmix64).
#[derive(Clone, Debug)]
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// One direction of a link.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bucket {
    pub(super) bytes_per_sec: f64,
    pub(super) burst_bytes: f64,
}

/// UDP of others from a host to another, which does not give way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flow {
    from: HostId,
    to: HostId,
    bytes_per_sec: f64,
}

/// A packet on its way: when it comes, and of which flow it is, or of the train.
type Passing = (f64, Option<Flow>);

impl Bucket {
    pub(super) fn mbit(mbit: f64) -> Self {
        let bytes_per_sec = mbit * 125e3;
        // As the lab has it: a millisecond and two frames.
        let burst_bytes = bytes_per_sec / 1e3 + 2.0 * f64::from(FRAME);
        Self { bytes_per_sec, burst_bytes }
    }

    /// When packets that come at `arrivals` (in order) leave.
    fn pass(&self, arrivals: &[Passing]) -> Vec<Passing> {
        let frame = f64::from(FRAME);
        let (mut tokens, mut at) = (self.burst_bytes, 0.0);
        let leave = |(arrived, flow): &Passing| {
            let now = f64::max(*arrived, at);
            tokens = (tokens + (now - at) * self.bytes_per_sec).min(self.burst_bytes);
            let wait = ((frame - tokens) / self.bytes_per_sec).max(0.0);
            tokens += wait * self.bytes_per_sec - frame;
            at = now + wait;
            (at, *flow)
        };
        arrivals.iter().map(leave).collect()
    }
}

impl Flow {
    /// Its packets from 20 ms before a train's first to 20 ms after its last.
    fn packets(self, train: &[f64], random: &mut Random) -> Vec<Passing> {
        let gap = f64::from(FRAME) / self.bytes_per_sec;
        let last = train.last().copied().unwrap_or(0.0) + 0.02;
        let mut at = train.first().copied().unwrap_or(0.0) - 0.02 - gap * random.unit();
        let mut packets = Vec::new();
        while at < last {
            packets.push((at, Some(self)));
            // Timers are late, and catch up.
            at += gap * (0.8 + 0.4 * random.unit());
        }
        packets
    }
}

/// What a train's ends note.
#[derive(Clone, Debug, Default)]
pub(super) struct Sent {
    pub(super) departures: Vec<Arrival>,
    pub(super) arrivals: Vec<Arrival>,
    pub(super) readings: Vec<Reading>,
}

/// Hosts, racks and their links, with an estimator and a probe plan at work.
#[derive(Debug)]
pub(super) struct Net {
    pub(super) links: Vec<Bucket>,
    cross: Vec<Flow>,
    pub(super) estimator: Estimator,
    pub(super) plan: ProbePlan,
    pub(super) random: Random,
    pub(super) jitter_ns: f64,
    pub(super) now_ns: u64,
    /// The share of the truth that a lower bound must reach.
    pub(super) at_least: f64,
    pub(super) trains: Vec<(u64, TrainOrder)>,
    totals: Vec<f64>,
    owns: Vec<f64>,
}

impl Net {
    /// `links` as [`LinkId`] counts them: each host's up and down, then each rack's.
    pub(super) fn new(racks: Vec<Option<u32>>, links: &[f64], together: bool, seed: u64) -> Self {
        let hosts = racks.len();
        let topology =
            Topology::from_racks(racks.into_iter().map(|rack| rack.map(RackId)).collect());
        assert_eq!(topology.link_count(), links.len());
        let concurrent = if together { hosts } else { 1 };
        Self {
            links: links.iter().map(|mbit| Bucket::mbit(*mbit)).collect(),
            cross: Vec::new(),
            plan: ProbePlan::new(&topology, concurrent, FRAME),
            estimator: Estimator::new(topology),
            random: Random(seed),
            jitter_ns: 20_000.0,
            now_ns: START_NS,
            at_least: 1.0,
            trains: Vec::new(),
            totals: vec![0.0; links.len()],
            owns: vec![0.0; links.len()],
        }
    }

    /// Lets others send from a host to another, which are not in different racks.
    pub(super) fn cross(&mut self, from: u32, to: u32, mbit: f64) {
        let (from, to) = (HostId(from), HostId(to));
        assert_eq!(self.estimator.topology().path(from, to).links().len(), 2);
        self.cross.push(Flow { from, to, bytes_per_sec: mbit * 125e3 });
    }

    /// What others put on a link.
    fn taken(&self, link: LinkId) -> f64 {
        let topology = self.estimator.topology();
        let crosses = |flow: &&Flow| topology.path(flow.from, flow.to).links().contains(&link);
        self.cross.iter().filter(crosses).map(|flow| flow.bytes_per_sec).sum()
    }

    /// What is free on a link.
    fn free(&self, link: LinkId) -> f64 {
        self.links[link.index()].bytes_per_sec - self.taken(link)
    }

    /// Lets `seconds` pass, with probes and counters.
    pub(super) fn run(&mut self, seconds: f64) {
        let steps = (seconds * 1e3).round() as u64;
        for step in 0..steps {
            self.now_ns += 1_000_000;
            for index in 0..self.totals.len() {
                self.totals[index] += self.taken(LinkId(index as u32)) / 1e3;
            }
            if step % 100 == 0 {
                for index in 0..self.estimator.topology().host_count() * 2 {
                    // Whole frames, as counters have it.
                    let frame = f64::from(FRAME);
                    let total = ((self.totals[index] / frame).floor() * frame) as u64;
                    let link = LinkId(index as u32);
                    let own = self.owns[index] as u64;
                    self.estimator
                        .handle_counters(self.now_ns, link, total, own.min(total))
                        .unwrap();
                }
            }
            let mut orders = Vec::new();
            // Once the counters have told what others do.
            if self.now_ns < START_NS + 150_000_000 {
                continue;
            }
            while let Some(order) = self.plan.poll_train(self.now_ns, &self.estimator, |_| true) {
                orders.push(order);
            }
            for order in orders {
                self.train(order);
            }
        }
    }

    fn train(&mut self, order: TrainOrder) {
        self.trains.push((self.now_ns, order));
        let path = self.estimator.topology().path(order.from, order.to);
        for link in path.links() {
            let bytes = f64::from(order.packets) * f64::from(FRAME);
            self.totals[link.index()] += bytes;
            self.owns[link.index()] += bytes;
        }
        let Sent { departures, arrivals, readings } =
            self.send(order.from, order.to, order.packets);
        let span = arrivals[arrivals.len() - 1].at_ns - arrivals[0].at_ns;
        let departure = Departure::reduce(&departures);
        let sample = TrainSample::reduce(&arrivals, &readings)
            .map(|sample| TrainSample { departure, ..sample });
        let judged = sample.and_then(|sample| {
            let pair = (order.from, order.to);
            self.estimator.handle_train(self.now_ns, pair, &sample, Context::Probe)
        });
        let rate = sample.ok().map(|sample| sample.rate_bytes_per_sec);
        self.plan.handle_outcome(&self.estimator, order.id, span, rate, judged).unwrap();
    }

    /// A train as its sender and its receiver see it.
    pub(super) fn send(&mut self, from: HostId, to: HostId, packets: u32) -> Sent {
        let path = self.estimator.topology().path(from, to);
        let start = self.now_ns as f64 / 1e9;
        let train: Vec<f64> = (0..packets).map(|index| start + f64::from(index) * 1.5e-6).collect();
        let mut passing: Vec<Passing> = train.iter().map(|at| (*at, None)).collect();
        let mut departed = Vec::new();
        for (hop, link) in path.links().iter().enumerate() {
            let is_last = hop + 1 == path.links().len();
            // What came with the train leaves it where its ways part, and others join.
            passing.retain(|(_, flow)| flow.is_none_or(|flow| !is_last || flow.to == to));
            for flow in &self.cross {
                let joins = if is_last {
                    flow.to == to && flow.from != from
                } else {
                    hop == 0 && flow.from == from
                };
                if joins {
                    passing.extend(flow.packets(&train, &mut self.random));
                }
            }
            passing.sort_by(|a, b| a.0.total_cmp(&b.0));
            passing = self.links[link.index()].pass(&passing);
            if hop == 0 {
                let own = passing.iter().filter(|(_, flow)| flow.is_none());
                departed = own.map(|(at, _)| *at).collect();
            }
        }
        let departures = self.stamped(&departed);
        let all: Vec<f64> = passing.iter().map(|(at, _)| *at).collect();
        let mut sent = Sent { departures, ..Sent::default() };
        let mut total = 0;
        for ((_, flow), stamp) in passing.iter().zip(self.stamped(&all)) {
            total += u64::from(FRAME);
            if flow.is_none() {
                sent.arrivals.push(stamp);
                sent.readings.push(Reading { at_ns: stamp.at_ns + 5_000, total_bytes: total });
            }
        }
        sent
    }

    /// Moments as a kernel notes them: in order, each a little late.
    fn stamped(&mut self, moments: &[f64]) -> Vec<Arrival> {
        let mut latest = 0;
        let stamp = |at: &f64| {
            latest = latest.max((at * 1e9 + self.jitter_ns * self.random.unit()) as u64);
            Arrival { at_ns: latest, len_bytes: FRAME }
        };
        moments.iter().map(stamp).collect()
    }

    /// The largest relative error over the hosts' links: of what is available, against what a path
    /// through the link can have.
    pub(super) fn worst_error(&self) -> f64 {
        let hosts = self.estimator.topology().host_count();
        let errors = (0..hosts * 2).map(|index| {
            let link = LinkId(index as u32);
            let estimate = self.estimator.estimate(self.now_ns, link);
            let found = estimate.map_or(0.0, |estimate| estimate.available_bytes_per_sec);
            let truth = self.truth(link);
            // What others have taken meanwhile may show that a link carries more than any path can.
            let at_least = estimate.is_some_and(|estimate| estimate.bound == Bound::AtLeast);
            let (low, room) =
                if at_least { (truth * self.at_least, self.free(link)) } else { (truth, 0.0) };
            (found / found.clamp(low, truth.max(room)) - 1.0).abs()
        });
        errors.fold(0.0, f64::max)
    }

    /// The most that a path through a host's link has free.
    pub(super) fn truth(&self, link: LinkId) -> f64 {
        let topology = self.estimator.topology();
        let hosts = topology.host_count() as u32;
        let own = HostId(link.0 / 2);
        let up = link.0.is_multiple_of(2);
        let shown = (0..hosts).map(HostId).filter(|host| *host != own).map(|host| {
            let path = if up { topology.path(own, host) } else { topology.path(host, own) };
            path.links().iter().map(|link| self.free(*link)).fold(f64::MAX, f64::min)
        });
        shown.fold(0.0, f64::max)
    }

    /// Estimate and truth of each host's link, for messages.
    pub(super) fn show(&self) -> String {
        let hosts = self.estimator.topology().host_count() as u32;
        let link = |link| (self.estimate_mbit(link), self.truth(LinkId(link)) / 125e3);
        let text = |(found, truth)| format!("{found:.1}/{truth:.1} ");
        (0..hosts * 2).map(|index| text(link(index))).collect()
    }

    pub(super) fn estimate_mbit(&self, link: u32) -> f64 {
        let estimate = self.estimator.estimate(self.now_ns, LinkId(link));
        estimate.map_or(0.0, |estimate| estimate.available_bytes_per_sec / 125e3)
    }
}
