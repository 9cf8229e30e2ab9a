//! Decides whom to pair for a train that is to try a link.

use alloc::vec::Vec;

use super::{FAST_ENOUGH, FIRST_SAMPLES, Flight, ProbePlan};
use crate::case::{HostId, RackId};
use crate::net::estimate::Estimator;
use crate::net::topology::{LinkId, Topology};

impl ProbePlan {
    /// Pairs that would try `link`, the most telling one first.
    pub(super) fn partners(
        &self,
        now_ns: u64,
        estimator: &Estimator,
        link: LinkId,
    ) -> Vec<(HostId, HostId)> {
        let topology = estimator.topology();
        let (own, upwards) = (HostId(link.0 / 2), link.0.is_multiple_of(2));
        if self.is_busy(topology, link) {
            return Vec::new();
        }
        if own.index() >= topology.host_count() {
            return self.rack_pairs(topology, link);
        }
        let hosts = u32::try_from(topology.host_count()).unwrap_or(0);
        let known = |link| estimator.estimate(now_ns, link);
        let first = self.links[link.index()].samples < FIRST_SAMPLES;
        let wanted = known(link).map(|estimate| estimate.capacity_bytes_per_sec);
        let wanted = wanted.unwrap_or(f64::INFINITY);
        let mut found: Vec<_> = (0..hosts)
            .map(HostId)
            .filter(|host| *host != own)
            .map(|host| if upwards { (own, host) } else { (host, own) })
            .filter(|(from, to)| {
                !topology.path(*from, *to).links().iter().any(|l| self.is_busy(topology, *l))
            })
            .map(|(from, to)| {
                let far = if upwards { topology.down(to) } else { topology.up(from) };
                // A link with traffic of others on it hides one of equal rate.
                let rate = known(far).map_or(f64::INFINITY, |far| far.available_bytes_per_sec);
                let tried = self.paths.get(&(from, to)).map_or(0, |path| path.tried_ns);
                // The next host first: so first trains go round, and each tries two new links.
                let distance = (to.0 + hosts - from.0) % hosts;
                // Partners that are fast enough are all the same, and so at first are those of
                // which nothing is known. Faster ones would show if the link became faster. Two
                // links that slower partners have held back would each take the other for slow, so
                // whoever is near enough is tried once.
                let enough = if tried == 0 && !first && rate >= wanted * NEAR {
                    3
                } else if (tried == 0 && first) || rate >= wanted * CLEARLY_FASTER {
                    2
                } else {
                    i32::from(rate >= wanted * FAST_ENOUGH)
                };
                let spare_us = self.links[far.index()].budget.available_ns(now_ns) / 1e3;
                #[expect(clippy::cast_possible_truncation, reason = "at most a bucket")]
                let spare_us = -(spare_us as i64);
                let order = if first { (0, tried, distance) } else { (spare_us, tried, distance) };
                (enough, rate, order, (from, to))
            })
            .collect();
        found.sort_by(|a, b| {
            let faster =
                if a.0 > 0 && b.0 > 0 { core::cmp::Ordering::Equal } else { b.1.total_cmp(&a.1) };
            b.0.cmp(&a.0).then(faster).then(a.2.cmp(&b.2))
        });
        found.into_iter().map(|(_, _, _, pair)| pair).collect()
    }

    /// Pairs whose path crosses a rack's link, for each host inside that with which it has been
    /// tried least lately.
    fn rack_pairs(&self, topology: &Topology, link: LinkId) -> Vec<(HostId, HostId)> {
        let hosts = u32::try_from(topology.host_count()).unwrap_or(0);
        let rack = Some(RackId(link.0 / 2 - hosts));
        let upwards = link.0.is_multiple_of(2);
        let tried = |pair: &(HostId, HostId)| self.paths.get(pair).map_or(0, |path| path.tried_ns);
        let inside = (0..hosts).map(HostId).filter(|host| topology.rack(*host) == rack);
        let pair = |own: HostId| {
            let outside = (0..hosts).map(HostId).filter(|host| topology.rack(*host) != rack);
            let pairs = outside.map(|far| if upwards { (own, far) } else { (far, own) });
            pairs.filter(|(from, to)| !self.shares(topology, *from, *to)).min_by_key(tried)
        };
        let mut pairs: Vec<_> = inside.filter_map(pair).collect();
        pairs.sort_by_key(|pair| (tried(pair), *pair));
        pairs
    }

    /// Whether a train on this path would meet another one.
    pub(super) fn shares(&self, topology: &Topology, from: HostId, to: HostId) -> bool {
        topology.path(from, to).links().iter().any(|link| self.is_busy(topology, *link))
    }

    pub(super) fn is_busy(&self, topology: &Topology, link: LinkId) -> bool {
        let crosses = |flight: &Flight| {
            topology.path(flight.order.from, flight.order.to).links().contains(&link)
        };
        // Racks with several hosts have to share when all probe at once.
        let host_link = link.index() < topology.host_count() * 2;
        (host_link || self.concurrent_max == 1) && self.flying.iter().any(crosses)
    }
}

/// What the slowest link of a path is thought to carry, one link left out; 0 if one is not known.
pub(super) fn expected(
    now_ns: u64,
    estimator: &Estimator,
    (from, to): (HostId, HostId),
    except: Option<LinkId>,
) -> f64 {
    let path = estimator.topology().path(from, to);
    let rates = path.links().iter().filter(|link| Some(**link) != except).map(|link| {
        estimator.estimate(now_ns, *link).map_or(0.0, |known| known.capacity_bytes_per_sec)
    });
    rates.fold(f64::INFINITY, f64::min)
}

/// A partner of this much of the wanted rate may have more than it has shown.
const NEAR: f64 = 0.7;
/// A partner this much faster leaves no doubt which of the two links was seen.
const CLEARLY_FASTER: f64 = 1.06;
