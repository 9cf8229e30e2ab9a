//! A network of token buckets in virtual time, to try estimators on: trains pass their links packet
//! by packet among the cross traffic of others, and arrive with jitter.

#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "times and indices of a model are small and positive"
)]

use super::super::train::{Arrival, Reading};
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
    /// UDP of others, which does not give way.
    pub(super) cross_bytes_per_sec: f64,
}

impl Bucket {
    pub(super) fn mbit(mbit: f64) -> Self {
        let bytes_per_sec = mbit * 125e3;
        // As the lab has it: a millisecond and two frames.
        let burst_bytes = bytes_per_sec / 1e3 + 2.0 * f64::from(FRAME);
        Self { bytes_per_sec, burst_bytes, cross_bytes_per_sec: 0.0 }
    }

    /// When packets that come at `arrivals` (in order) leave.
    fn pass(&self, arrivals: &[(f64, bool)]) -> Vec<(f64, bool)> {
        let frame = f64::from(FRAME);
        let (mut tokens, mut at) = (self.burst_bytes, 0.0);
        let leave = |(arrived, own): &(f64, bool)| {
            let now = f64::max(*arrived, at);
            tokens = (tokens + (now - at) * self.bytes_per_sec).min(self.burst_bytes);
            let wait = ((frame - tokens) / self.bytes_per_sec).max(0.0);
            tokens += wait * self.bytes_per_sec - frame;
            at = now + wait;
            (at, *own)
        };
        arrivals.iter().map(leave).collect()
    }

    /// Own packets and all others' from 20 ms before the first to 20 ms after the last.
    fn among_others(&self, own: &[f64], random: &mut Random) -> Vec<(f64, bool)> {
        let mut all: Vec<(f64, bool)> = own.iter().map(|at| (*at, true)).collect();
        if self.cross_bytes_per_sec > 0.0 {
            let gap = f64::from(FRAME) / self.cross_bytes_per_sec;
            let last = own.last().copied().unwrap_or(0.0) + 0.02;
            let mut at = own.first().copied().unwrap_or(0.0) - 0.02 - gap * random.unit();
            while at < last {
                all.push((at, false));
                // Timers are late, and catch up.
                at += gap * (0.8 + 0.4 * random.unit());
            }
            all.sort_by(|a, b| a.0.total_cmp(&b.0));
        }
        all
    }
}

/// Hosts, racks and their links, with an estimator and a probe plan at work.
#[derive(Debug)]
pub(super) struct Net {
    pub(super) links: Vec<Bucket>,
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

    /// Lets `seconds` pass, with probes and counters.
    pub(super) fn run(&mut self, seconds: f64) {
        let steps = (seconds * 1e3).round() as u64;
        for step in 0..steps {
            self.now_ns += 1_000_000;
            for (total, link) in self.totals.iter_mut().zip(&self.links) {
                *total += link.cross_bytes_per_sec / 1e3;
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
        let (arrivals, readings) = self.send(order.from, order.to, order.packets);
        let span = arrivals[arrivals.len() - 1].at_ns - arrivals[0].at_ns;
        let sample = TrainSample::reduce(&arrivals, &readings);
        let judged = sample.and_then(|sample| {
            let pair = (order.from, order.to);
            self.estimator.handle_train(self.now_ns, pair, &sample, Context::Probe)
        });
        let rate = sample.ok().map(|sample| sample.rate_bytes_per_sec);
        self.plan.handle_outcome(&self.estimator, order.id, span, rate, judged).unwrap();
    }

    /// A train as its receiver sees it.
    pub(super) fn send(
        &mut self,
        from: HostId,
        to: HostId,
        packets: u32,
    ) -> (Vec<Arrival>, Vec<Reading>) {
        let path = self.estimator.topology().path(from, to);
        let start = self.now_ns as f64 / 1e9;
        let mut own: Vec<f64> =
            (0..packets).map(|index| start + f64::from(index) * 1.5e-6).collect();
        let mut passed = Vec::new();
        for link in path.links() {
            let bucket = self.links[link.index()];
            passed = bucket.pass(&bucket.among_others(&own, &mut self.random));
            own = passed.iter().filter(|(_, own)| *own).map(|(at, _)| *at).collect();
        }
        let mut total = 0;
        let mut arrivals = Vec::new();
        let mut readings = Vec::new();
        let mut latest = 0;
        for (at, own) in passed {
            let jitter = self.jitter_ns * self.random.unit();
            latest = latest.max((at * 1e9 + jitter) as u64);
            total += u64::from(FRAME);
            if own {
                arrivals.push(Arrival { at_ns: latest, len_bytes: FRAME });
                readings.push(Reading { at_ns: latest + 5_000, total_bytes: total });
            }
        }
        (arrivals, readings)
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
            // A link that nothing could fill may have had its background beside what it showed, and
            // the other end's.
            let bucket = self.links[index];
            let free = bucket.bytes_per_sec - bucket.cross_bytes_per_sec;
            let at_least = estimate.is_some_and(|estimate| estimate.bound == Bound::AtLeast);
            let least = truth * self.at_least - bucket.cross_bytes_per_sec * 2.0;
            let (low, room) = if at_least { (least, free) } else { (truth, 0.0) };
            (found / found.clamp(low, truth.max(room)) - 1.0).abs()
        });
        errors.fold(0.0, f64::max)
    }

    /// What is free on a host's link, as far as a peer can show it.
    pub(super) fn truth(&self, link: LinkId) -> f64 {
        let topology = self.estimator.topology();
        let hosts = topology.host_count() as u32;
        let own = HostId(link.0 / 2);
        let up = link.0.is_multiple_of(2);
        let shown = (0..hosts).map(HostId).filter(|host| *host != own).map(|host| {
            let path = if up { topology.path(own, host) } else { topology.path(host, own) };
            let others = path.links().iter().filter(|other| **other != link);
            others.map(|l| self.links[l.index()].bytes_per_sec).fold(f64::MAX, f64::min)
        });
        let bucket = self.links[link.index()];
        shown.fold(0.0, f64::max).min(bucket.bytes_per_sec - bucket.cross_bytes_per_sec)
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
