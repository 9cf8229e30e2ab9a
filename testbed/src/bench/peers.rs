//! OpenMPI's and Gloo's allreduce of f32 beside Weft's: the same star of namespaces, the same
//! vectors, in rounds that take turns.
//!
//! Each run is one size, so that CPU time and bytes belong to it. All use kernel sockets, and the
//! lab's interfaces keep their offloads: TCP crosses them in packets of up to 64 KiB, and so may
//! Weft's runs. Every peer sums each vector once before the timed sums; a sum has taken as long as
//! it took the slowest rank.

mod rivals;

use std::path::Path;

use serde::{Deserialize, Serialize};
use weft_config::node::{Elements, JobSection, NodeConfig, RowSection};
use weft_wire::header::ElementType;

use super::member::{MemberPlan, MemberResult};
use super::network::Network;
use super::process::BenchError;
use super::statistics::median;
use crate::run::{Io, WorkerIo, box_config};
pub use rivals::Rivals;

/// What to measure.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Rates of the workers' links in each direction; `None`: unshaped.
    pub rates_mbit: Vec<Option<u32>>,
    /// Largest IP packets of the links.
    pub mtus: Vec<u16>,
    /// Numbers of workers.
    pub workers: Vec<u8>,
    /// Bytes of the vectors.
    pub sizes: Vec<u64>,
    /// Runs of each peer, in turn.
    pub rounds: u32,
    /// Timed sums of each run; `None`: as many as take a moment.
    pub iterations: Option<u32>,
    /// Who is measured.
    pub peers: Vec<Peer>,
}

/// Who sums, over what.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
pub enum Peer {
    /// Weft, datagram by datagram.
    Weft,
    /// Weft, with runs of frames as one message each.
    WeftOffload,
    /// OpenMPI over TCP, its own choice of algorithm.
    OpenMpi,
    /// OpenMPI over TCP, the ring.
    OpenMpiRing,
    /// Gloo over TCP.
    Gloo,
}

impl Peer {
    /// All of them, in the order of rows.
    pub const ALL: [Self; 5] =
        [Self::Weft, Self::WeftOffload, Self::OpenMpi, Self::OpenMpiRing, Self::Gloo];

    /// The words of columns `peer` and `io`.
    #[must_use]
    pub const fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Weft => ("weft", "udp"),
            Self::WeftOffload => ("weft", "udp_offload"),
            Self::OpenMpi => ("openmpi", "tcp"),
            Self::OpenMpiRing => ("openmpi_ring", "tcp"),
            Self::Gloo => ("gloo", "tcp"),
        }
    }

    const fn is_weft(self) -> bool {
        matches!(self, Self::Weft | Self::WeftOffload)
    }
}

/// A network and a number of workers, of which every size and peer is measured.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Place {
    /// Rate of the workers' links.
    pub rate_mbit: Option<u32>,
    /// Largest IP packet.
    pub mtu: u16,
    /// Workers.
    pub workers: u8,
}

/// A row; times are medians over the sums of all rounds.
#[derive(Clone, Debug, Default, Serialize)]
#[expect(missing_docs, reason = "the columns are explained in `weft bench allreduce --help`")]
pub struct Row {
    pub peer: &'static str,
    pub io: &'static str,
    pub rate_mbit: Option<u32>,
    pub mtu: u16,
    pub bytes: u64,
    pub workers: u8,
    pub time_us: f64,
    pub time_min_us: f64,
    pub time_max_us: f64,
    pub sums: u64,
    pub cpu_s: f64,
    pub cpu_box_s: Option<f64>,
    pub wire_bytes: u64,
    pub wrong: u64,
    pub bound_us: Option<f64>,
    pub ratio_to_bound: Option<f64>,
    pub elements: Option<u64>,
    pub retransmissions: Option<u64>,
    pub failure: Option<String>,
}

impl Row {
    /// True when it was measured and no element of any sum was wrong.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.wrong == 0 && self.failure.is_none()
    }

    fn new(place: Place, bytes: u64, peer: Peer, runs: &[Run]) -> Self {
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
            time_us,
            time_min_us: times.iter().copied().fold(f64::INFINITY, f64::min),
            time_max_us: times.iter().copied().fold(0.0, f64::max),
            sums,
            cpu_s: (per_sum(total(|member| member.cpu_ns)) + box_ns) / 1e9,
            cpu_box_s: peer.is_weft().then_some(box_ns / 1e9),
            wire_bytes: total(|member| member.wire_bytes) / sums.max(1),
            wrong: total(|member| member.wrong),
            bound_us,
            ratio_to_bound: bound_us.map(|bound| time_us / bound),
            elements,
            retransmissions: peer.is_weft().then(|| total(|member| member.retransmissions)),
            failure: runs.iter().find_map(|run| run.failure.clone()),
        }
    }
}

/// One run of a peer.
#[derive(Clone, Debug, Default)]
struct Run {
    members: Vec<MemberResult>,
    failure: Option<String>,
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
fn bound_us(place: Place, bytes: u64, elements: Option<u64>, rate_mbit: u32) -> f64 {
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

/// The places of `settings`, in the order of rows.
#[must_use]
pub fn places(settings: &Settings) -> Vec<Place> {
    let mut places = Vec::new();
    for &rate_mbit in &settings.rates_mbit {
        for &mtu in &settings.mtus {
            places.extend(settings.workers.iter().map(|&workers| Place {
                rate_mbit,
                mtu,
                workers,
            }));
        }
    }
    places
}

/// Measures all sizes and peers at a place, in rounds.
///
/// # Errors
/// [`BenchError`] where this machine lacks something, or on a signal. A peer that fails is a row
/// with a failure.
pub fn run(
    settings: &Settings,
    place: Place,
    rivals: &Rivals,
    directory: &Path,
) -> Result<Vec<Row>, BenchError> {
    let network = Network::lab(Io::Udp, place.workers, place.rate_mbit, place.mtu, true)?;
    let peers: Vec<Peer> =
        settings.peers.iter().copied().filter(|peer| rivals.can_run(*peer)).collect();
    let cases: Vec<(u64, Peer)> =
        settings.sizes.iter().flat_map(|bytes| peers.iter().map(|peer| (*bytes, *peer))).collect();
    let mut runs = vec![Vec::new(); cases.len()];
    for _ in 0..settings.rounds {
        for ((bytes, peer), runs) in cases.iter().zip(&mut runs) {
            if runs.iter().any(|run: &Run| run.failure.is_some()) {
                continue;
            }
            let iterations = settings.iterations.unwrap_or_else(|| moment(*bytes));
            let members = if peer.is_weft() {
                weft(&network, place, *peer, *bytes, iterations, directory)
            } else {
                rivals.run(&network, place, *peer, *bytes / 4, iterations)
            };
            runs.push(match members {
                Ok(members) => Run { members, failure: None },
                Err(error @ BenchError::Process { .. }) => {
                    Run { members: Vec::new(), failure: Some(error.to_string()) }
                }
                Err(error) => return Err(error),
            });
        }
    }
    let rows = cases.iter().zip(&runs);
    Ok(rows.map(|((bytes, peer), runs)| Row::new(place, *bytes, *peer, runs)).collect())
}

/// Sums of one run, so that none takes long.
fn moment(bytes: u64) -> u32 {
    match bytes {
        0..=0x1_0000 => 20,
        0x1_0001..=0x40_0000 => 5,
        _ => 1,
    }
}

fn weft(
    network: &Network,
    place: Place,
    peer: Peer,
    bytes: u64,
    iterations: u32,
    directory: &Path,
) -> Result<Vec<MemberResult>, BenchError> {
    let offload = peer == Peer::WeftOffload;
    let plan = |rank| MemberPlan {
        rank,
        workers: place.workers,
        local: network.local(rank),
        aggregator: network.aggregator(),
        element_type: ElementType::F32,
        sizes: vec![bytes],
        warm_up: WARM_UP,
        iterations,
        mtu: place.mtu,
        offload,
        io: WorkerIo::Udp,
        aggregator_pid: None,
    };
    let plans: Vec<MemberPlan> = (0..place.workers).map(plan).collect();
    let members = plans.iter().map(|plan| plan.local.into()).collect();
    let row = RowSection {
        element_type: ElementType::F32,
        elements: Elements::Auto,
        window: window(place.mtu),
        ..RowSection::new(0, 0, members)
    };
    let mtu = u32::from(place.mtu);
    let mut config = box_config("a0", Io::Udp, network.aggregator(), mtu, "");
    config.port.offload = offload;
    let config = NodeConfig { job: vec![JobSection::new(0)], row: vec![row], ..config };
    let results = network.run(&config, &plans, directory)?;
    Ok(results.into_iter().flatten().collect())
}

/// Slots for about as many bytes of chunks as take a link's time while the others answer.
fn window(mtu: u16) -> u16 {
    let slots = WINDOW_BYTES / u32::from(mtu);
    let slots = u16::try_from(slots).unwrap_or(u16::MAX).clamp(WINDOW_MIN, WINDOW_MAX);
    1 << slots.ilog2()
}

const WARM_UP: u32 = 1;
const WINDOW_BYTES: u32 = 1 << 19;
const WINDOW_MIN: u16 = 16;
const WINDOW_MAX: u16 = 512;
/// Ethernet, IPv4, UDP and Weft headers: what a link's queueing discipline counts besides.
const WEFT_HEADERS_BYTES: u64 = 74;
/// IPv4 and TCP headers, time stamps included.
const TCP_IP_BYTES: u64 = 52;
/// The same with Ethernet's.
const TCP_HEADERS_BYTES: u64 = 66;

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: Place = Place { rate_mbit: Some(1000), mtu: 1500, workers: 4 };

    fn member(times_ns: &[u64], cpu_ns: u64) -> MemberResult {
        let times_ns = times_ns.to_vec();
        MemberResult { times_ns, cpu_ns, wire_bytes: 600, wrong: 1, ..MemberResult::default() }
    }

    #[test]
    fn a_row_is_the_median_of_the_slowest_ranks_and_the_cpu_of_all() {
        let run = Run {
            members: vec![member(&[1_000_000, 9_000_000], 2_000_000), member(&[3_000_000, 1], 0)],
            failure: None,
        };
        let other = Run { members: vec![member(&[5_000_000], 4_000_000)], failure: None };
        let row = Row::new(PLACE, 4 << 20, Peer::Gloo, &[run, other]);
        assert_eq!((row.peer, row.io, row.sums, row.wrong), ("gloo", "tcp", 3, 3));
        assert!((row.time_us - 5000.0).abs() < 1e-6, "of 3, 9 and 5 ms");
        assert!((row.cpu_s - 0.002).abs() < 1e-9, "6 ms over three sums");
        assert_eq!(row.wire_bytes, 600);
        assert!(!row.is_valid());
    }

    #[test]
    fn a_vector_of_the_box_crosses_a_link_once_and_a_rings_three_halves_of_it() {
        let weft = bound_us(PLACE, 4 << 20, Some(256), 1000);
        assert!((weft - 4096.0 * 1098.0 * 8.0 / 1000.0).abs() < 1e-6);
        let ring = bound_us(PLACE, 4 << 20, None, 1000);
        let expected = 1.5 * (4 << 20) as f64 * (1.0 + 66.0 / 1448.0) * 8.0 / 1000.0;
        assert!((ring - expected).abs() < 1e-6);
        let padded = bound_us(PLACE, 4, Some(256), 1000);
        assert!((padded - 1098.0 * 8.0 / 1000.0).abs() < 1e-9, "a chunk is sent whole");
    }

    #[test]
    fn a_peer_that_failed_is_a_row_that_says_so() {
        let run = Run { members: Vec::new(), failure: Some("w2 ended early".to_owned()) };
        let row = Row::new(PLACE, 4096, Peer::Weft, &[run]);
        assert!(!row.is_valid());
        let json = serde_json::to_value(&row).unwrap();
        for key in [
            "peer",
            "io",
            "rate_mbit",
            "bytes",
            "workers",
            "time_us",
            "cpu_s",
            "wire_bytes",
            "wrong",
            "bound_us",
        ] {
            assert!(json.get(key).is_some(), "{key}");
        }
    }
}
