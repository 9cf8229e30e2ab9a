//! What a peer's runs at a place come to: medians, totals, and the least time that links allow.
//! Decides only.

use std::time::Duration;

use serde::Serialize;

use super::{Algorithm, Case, Place, WARM_UP};
use crate::bench::member::MemberResult;
use crate::bench::network::BoxLink;
use crate::bench::statistics::median;
use crate::bench::usage::Others;

/// A row; times are medians over the sums of all rounds. A peer that failed has no figures.
#[derive(Clone, Debug, Default, Serialize)]
#[expect(missing_docs, reason = "the columns are explained in `weft bench allreduce --help`")]
pub struct Row {
    pub peer: &'static str,
    pub io: &'static str,
    pub rate_mbit: Option<u32>,
    pub mtu: u16,
    pub box_link: Option<BoxLink>,
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
    pub algorithm: Option<Algorithm>,
    pub disturbed: Option<bool>,
    pub peer_build: String,
}

impl Row {
    /// True when it was measured and no element of any sum was wrong.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.wrong == Some(0) && self.failure.is_none()
    }

    /// Valid rows come before others, then the faster.
    pub(super) fn is_better_than(&self, other: &Self) -> bool {
        let rank = |row: &Self| (!row.is_valid(), row.time_us.unwrap_or(f64::INFINITY));
        rank(self) < rank(other)
    }

    pub(super) fn new(place: Place, case: Case, runs: &[Run], peer_build: &str) -> Self {
        let failure = runs.iter().find_map(|run| run.failure.clone());
        let row = Self::of(place, case, runs, peer_build);
        let Some(failure) = failure else { return row };
        Self {
            failure: Some(failure),
            peer: row.peer,
            io: row.io,
            rate_mbit: row.rate_mbit,
            mtu: row.mtu,
            box_link: row.box_link,
            bytes: row.bytes,
            workers: row.workers,
            lanes: row.lanes,
            algorithm: row.algorithm,
            disturbed: row.disturbed,
            peer_build: row.peer_build,
            ..Self::default()
        }
    }

    fn of(place: Place, case: Case, runs: &[Run], peer_build: &str) -> Self {
        let Case { bytes, peer, box_link, algorithm } = case;
        let times: Vec<f64> = runs.iter().flat_map(Run::times_us).collect();
        let sums = times.len() as u64;
        let members = || runs.iter().flat_map(|run| &run.members);
        let total = |of: fn(&MemberResult) -> u64| members().map(of).sum::<u64>();
        let per_sum = |total: u64| total as f64 / sums.max(1) as f64;
        let (time_us, elements) = (median(&times), members().map(|member| member.elements).max());
        let elements = elements.filter(|elements| *elements > 0);
        let bound_us = place.rate_mbit.map(|rate| bound_us(place, case, elements, rate));
        let box_ns = per_sum(total(|member| member.aggregator_cpu_ns));
        let (name, io) = peer.words();
        Self {
            peer: name,
            io,
            rate_mbit: place.rate_mbit,
            mtu: place.mtu,
            box_link,
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
            algorithm,
            disturbed: runs
                .iter()
                .fold(Others::default(), |sum, run| sum.and(run.others))
                .disturb(),
            peer_build: peer_build.to_owned(),
        }
    }
}

/// One run of a peer.
#[derive(Clone, Debug, Default)]
pub(super) struct Run {
    pub(super) members: Vec<MemberResult>,
    pub(super) failure: Option<String>,
    pub(super) others: Others,
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

/// The least time that links of `rate_mbit` need. Weft's members send the vector once and receive
/// the sum meanwhile, in chunks of `elements`; over a box's link of the same rate go the vectors of
/// all n, and as many sums. Without a box in the network each rank sends at least 2 (n - 1) / n of
/// the vector, here in full TCP segments.
pub(super) fn bound_us(place: Place, case: Case, elements: Option<u64>, rate_mbit: u32) -> f64 {
    let workers = f64::from(place.workers);
    let (wire, share) = match elements {
        Some(elements) => {
            let chunk = 4 * elements;
            // A chunk is always sent whole.
            let wire = case.bytes.div_ceil(chunk) * (chunk + WEFT_HEADERS_BYTES);
            (wire as f64, if case.box_link == Some(BoxLink::Same) { workers } else { 1.0 })
        }
        None => {
            let segment = f64::from(place.mtu) - TCP_IP_BYTES;
            let wire = case.bytes as f64 * (1.0 + TCP_HEADERS_BYTES / segment);
            (wire, 2.0 * (workers - 1.0) / workers)
        }
    };
    wire * share * 8.0 / f64::from(rate_mbit)
}

/// The longest time of one run, its start included: a longer run stands still.
pub(super) fn limit(place: Place, case: Case, iterations: u32) -> Duration {
    let rate_mbit = place.rate_mbit.unwrap_or(UNSHAPED_MBIT);
    let elements = case.peer.is_weft().then_some(CHUNK_ELEMENTS);
    let sum_us = bound_us(place, case, elements, rate_mbit);
    let sums = f64::from(WARM_UP) + f64::from(iterations);
    STANDSTILL_MIN + Duration::from_secs_f64(BOUNDS * sums * sum_us / 1e6)
}

/// No run is given up earlier.
const STANDSTILL_MIN: Duration = Duration::from_secs(60);
/// Bounds of the links that each sum may take besides.
const BOUNDS: f64 = 10.0;
/// The rate assumed of links that have none.
const UNSHAPED_MBIT: u32 = 1000;
/// A chunk of Weft's before it is known.
const CHUNK_ELEMENTS: u64 = 256;
/// Ethernet, IPv4, UDP and Weft headers: what a link's queueing discipline counts besides.
const WEFT_HEADERS_BYTES: u64 = 74;
/// IPv4 and TCP headers, time stamps included.
const TCP_IP_BYTES: f64 = 52.0;
/// The same with Ethernet's.
const TCP_HEADERS_BYTES: f64 = 66.0;
