//! What a peer's runs at a place come to: medians, totals, and the least time that links allow.
//! Decides only.

use serde::Serialize;

use super::{Peer, Place};
use crate::bench::member::MemberResult;
use crate::bench::statistics::median;

/// A row; times are medians over the sums of all rounds. A peer that failed has no figures.
#[derive(Clone, Debug, Default, Serialize)]
#[expect(missing_docs, reason = "the columns are explained in `weft bench allreduce --help`")]
pub struct Row {
    pub peer: &'static str,
    pub io: &'static str,
    pub rate_mbit: Option<u32>,
    pub mtu: u16,
    pub bytes: u64,
    pub workers: u8,
    pub time_us: Option<f64>,
    pub time_min_us: Option<f64>,
    pub time_max_us: Option<f64>,
    pub sums: u64,
    pub cpu_s: Option<f64>,
    pub cpu_box_s: Option<f64>,
    pub wire_bytes: Option<u64>,
    pub wrong: Option<u64>,
    pub bound_us: Option<f64>,
    pub ratio_to_bound: Option<f64>,
    pub elements: Option<u64>,
    pub retransmissions: Option<u64>,
    pub chunks_by_multicast: Option<u64>,
    pub failure: Option<String>,
    pub lanes: Option<u16>,
}

impl Row {
    /// True when it was measured and no element of any sum was wrong.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.wrong == Some(0) && self.failure.is_none()
    }

    pub(super) fn new(place: Place, bytes: u64, peer: Peer, runs: &[Run]) -> Self {
        let failure = runs.iter().find_map(|run| run.failure.clone());
        let row = Self::of(place, bytes, peer, runs);
        let Some(failure) = failure else { return row };
        Self {
            failure: Some(failure),
            peer: row.peer,
            io: row.io,
            rate_mbit: row.rate_mbit,
            mtu: row.mtu,
            bytes,
            workers: row.workers,
            lanes: row.lanes,
            ..Self::default()
        }
    }

    fn of(place: Place, bytes: u64, peer: Peer, runs: &[Run]) -> Self {
        let times: Vec<f64> = runs.iter().flat_map(Run::times_us).collect();
        let sums = times.len() as u64;
        let members = || runs.iter().flat_map(|run| &run.members);
        let total = |of: fn(&MemberResult) -> u64| members().map(of).sum::<u64>();
        let per_sum = |total: u64| total as f64 / sums.max(1) as f64;
        let (time_us, elements) = (median(&times), members().map(|member| member.elements).max());
        let elements = elements.filter(|elements| *elements > 0);
        let bound_us = place.rate_mbit.map(|rate| bound_us(place, bytes, elements, rate));
        let box_ns = per_sum(total(|member| member.aggregator_cpu_ns));
        let (name, io) = peer.words();
        Self {
            peer: name,
            io,
            rate_mbit: place.rate_mbit,
            mtu: place.mtu,
            bytes,
            workers: place.workers,
            time_us: Some(time_us),
            time_min_us: times.iter().copied().reduce(f64::min),
            time_max_us: times.iter().copied().reduce(f64::max),
            sums,
            cpu_s: Some((per_sum(total(|member| member.cpu_ns)) + box_ns) / 1e9),
            cpu_box_s: peer.is_weft().then_some(box_ns / 1e9),
            wire_bytes: Some(total(|member| member.wire_bytes) / sums.max(1)),
            wrong: Some(total(|member| member.wrong)),
            bound_us,
            ratio_to_bound: bound_us.map(|bound| time_us / bound),
            elements,
            retransmissions: peer.is_weft().then(|| total(|member| member.retransmissions)),
            chunks_by_multicast: peer.is_weft().then(|| total(|it| it.chunks_by_multicast)),
            failure: None,
            lanes: peer.is_weft().then_some(place.lanes),
        }
    }
}

/// One run of a peer.
#[derive(Clone, Debug, Default)]
pub(super) struct Run {
    pub(super) members: Vec<MemberResult>,
    pub(super) failure: Option<String>,
}

impl Run {
    /// A sum has taken as long as it took the last rank.
    fn times_us(&self) -> impl Iterator<Item = f64> {
        let turns = self.members.iter().map(|member| member.times_ns.len()).max().unwrap_or(0);
        let slowest = |turn: usize| {
            self.members.iter().filter_map(move |member| member.times_ns.get(turn)).max()
        };
        (0..turns).filter_map(slowest).map(|ns| *ns as f64 / 1e3)
    }
}

/// The least time that a link of `rate_mbit` needs. Weft's members send the vector once and receive
/// the sum meanwhile, in chunks of `elements`; without a box in the network nobody can send less
/// than 2 (n - 1) / n of it, here in full TCP segments.
pub(super) fn bound_us(place: Place, bytes: u64, elements: Option<u64>, rate_mbit: u32) -> f64 {
    let (chunk, headers, share) = match elements {
        Some(elements) => (4 * elements, WEFT_HEADERS_BYTES, 1.0),
        None => {
            let workers = f64::from(place.workers);
            let segment = u64::from(place.mtu) - TCP_IP_BYTES;
            (segment, TCP_HEADERS_BYTES, 2.0 * (workers - 1.0) / workers)
        }
    };
    let wire = match elements {
        // A chunk is always sent whole.
        Some(_) => (bytes.div_ceil(chunk) * (chunk + headers)) as f64,
        None => bytes as f64 * (1.0 + headers as f64 / chunk as f64),
    };
    wire * share * 8.0 / f64::from(rate_mbit)
}

/// Ethernet, IPv4, UDP and Weft headers: what a link's queueing discipline counts besides.
const WEFT_HEADERS_BYTES: u64 = 74;
/// IPv4 and TCP headers, time stamps included.
const TCP_IP_BYTES: u64 = 52;
/// The same with Ethernet's.
const TCP_HEADERS_BYTES: u64 = 66;
