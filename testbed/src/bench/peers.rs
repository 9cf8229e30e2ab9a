//! OpenMPI's and Gloo's allreduce of f32 beside Weft's: the same star of namespaces, the same
//! vectors, in rounds that take turns.
//!
//! Each run is one size, so that CPU time and bytes belong to it. A size is measured whole before
//! the next, and its rows are given at once; a run that stands still is ended and is a failure of
//! its row alone. The lab's interfaces keep their
//! offloads: TCP crosses them in packets of up to 64 KiB, and so may Weft's runs. Every peer sums
//! each vector once before the timed sums; a sum has taken as long as it took the slowest rank. On
//! one host everybody is on loopback instead, and Weft's workers may share memory with the box.

mod rivals;
mod row;

use std::mem;
use std::path::Path;

use serde::{Deserialize, Serialize};
use weft_config::node::{Elements, JobSection, NodeConfig, RowSection};
use weft_wire::header::ElementType;
use weft_wire::hello::Integrity;

use super::lanes::Lanes;
use super::member::{MemberPlan, MemberResult};
use super::network::{BoxLink, Network};
use super::process::BenchError;
use super::usage::{Moment, Others};
use crate::run::{Io, WorkerIo, box_config};
pub use rivals::Rivals;
pub use row::Row;
use row::{Run, limit};

/// What to measure.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Rates of the workers' links in each direction; `None`: unshaped.
    pub rates_mbit: Vec<Option<u32>>,
    /// Largest IP packets of the links.
    pub mtus: Vec<u16>,
    /// Numbers of workers.
    pub workers: Vec<u8>,
    /// Lanes of Weft's box.
    pub lanes: Lanes,
    /// Bytes of the vectors.
    pub sizes: Vec<u64>,
    /// Runs of each peer, in turn.
    pub rounds: u32,
    /// Timed sums of each run; `None`: as many as take a moment.
    pub iterations: Option<u32>,
    /// Who is measured.
    pub peers: Vec<Peer>,
    /// Links of Weft's box where the workers' are shaped.
    pub box_links: Vec<BoxLink>,
    /// Everybody on this host's loopback, not in namespaces.
    pub one_host: bool,
}

/// Who sums, over what.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
pub enum Peer {
    /// Weft, datagram by datagram.
    Weft,
    /// Weft, with runs of frames as one message each.
    WeftOffload,
    /// The same, the sums by multicast.
    WeftMulticast,
    /// The same without Weft's CRC: what protects a chunk is the checksum of its datagram, which
    /// the kernel looks after, as it does for TCP's segments.
    WeftNoCrc,
    /// Weft, its workers and its box on packet sockets.
    WeftAfPacket,
    /// Weft, its workers and its box on one host, through memory.
    WeftShm,
    /// OpenMPI over TCP, its own choice of algorithm.
    OpenMpi,
    /// OpenMPI over TCP, the ring.
    OpenMpiRing,
    /// OpenMPI on one host, through memory.
    OpenMpiShm,
    /// Gloo over TCP.
    Gloo,
}

impl Peer {
    /// All of them, in the order of rows.
    pub const ALL: [Self; 10] = [
        Self::Weft,
        Self::WeftOffload,
        Self::WeftMulticast,
        Self::WeftNoCrc,
        Self::WeftAfPacket,
        Self::WeftShm,
        Self::OpenMpi,
        Self::OpenMpiRing,
        Self::OpenMpiShm,
        Self::Gloo,
    ];

    /// The words of columns `peer` and `io`.
    #[must_use]
    pub const fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Weft => ("weft", "udp"),
            Self::WeftOffload => ("weft", "udp_offload"),
            Self::WeftMulticast => ("weft", "udp_multicast"),
            Self::WeftNoCrc => ("weft", "udp_no_crc"),
            Self::WeftAfPacket => ("weft", "af_packet"),
            Self::WeftShm => ("weft", "shm"),
            Self::OpenMpi => ("openmpi", "tcp"),
            Self::OpenMpiRing => ("openmpi_ring", "tcp"),
            Self::OpenMpiShm => ("openmpi", "shm"),
            Self::Gloo => ("gloo", "tcp"),
        }
    }

    const fn is_weft(self) -> bool {
        !matches!(self, Self::OpenMpi | Self::OpenMpiRing | Self::OpenMpiShm | Self::Gloo)
    }

    /// What protects a chunk beside its datagram's checksum.
    const fn integrity(self) -> Integrity {
        if matches!(self, Self::WeftNoCrc) { Integrity::None } else { Integrity::Crc32c }
    }

    /// The box's port and the workers'.
    const fn ports(self) -> (Io, WorkerIo) {
        match self {
            Self::WeftMulticast | Self::WeftNoCrc => (Io::Udp, WorkerIo::UdpMulticast),
            Self::WeftAfPacket => (Io::AfPacket, WorkerIo::AfPacket),
            Self::WeftShm => (Io::Shm, WorkerIo::Shm),
            _ => (Io::Udp, WorkerIo::Udp),
        }
    }

    /// Whether it can be measured with everybody on one host, or with everybody apart.
    #[must_use]
    pub const fn is_for(self, one_host: bool) -> bool {
        match self {
            Self::WeftShm | Self::OpenMpiShm => one_host,
            Self::WeftMulticast
            | Self::WeftNoCrc
            | Self::WeftAfPacket
            | Self::OpenMpi
            | Self::OpenMpiRing => !one_host,
            Self::Weft | Self::WeftOffload | Self::Gloo => true,
        }
    }
}

/// Gloo's algorithms.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Algorithm {
    /// Its own default.
    #[default]
    Ring,
    /// Groups of two, or as the number of ranks divides.
    Bcube,
    /// Halves of the vector, then doubles.
    HalvingDoubling,
}

impl Algorithm {
    const ALL: [Self; 3] = [Self::Ring, Self::Bcube, Self::HalvingDoubling];

    /// The word of column `algorithm`.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Ring => "ring",
            Self::Bcube => "bcube",
            Self::HalvingDoubling => "halving_doubling",
        }
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
    /// Lanes of Weft's box.
    pub lanes: u16,
    /// Everybody on loopback.
    pub one_host: bool,
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
                lanes: settings.lanes.beside(workers),
                one_host: settings.one_host,
            }));
        }
    }
    places
}

/// One run of a peer: size, link and algorithm.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Case {
    bytes: u64,
    peer: Peer,
    /// The box's link; of a peer without a box that of the lab that it is measured in.
    box_link: Option<BoxLink>,
    /// Gloo's.
    algorithm: Option<Algorithm>,
}

/// The cases of a size at a place, in the order of rows. A peer without a box is measured in the
/// first lab alone; the cases of Gloo's algorithms, of which one row comes, are neighbours.
fn cases(place: Place, bytes: u64, peers: &[Peer], box_links: &[BoxLink]) -> Vec<Case> {
    let links: Vec<Option<BoxLink>> = match place.rate_mbit {
        _ if place.one_host => vec![None],
        None => vec![Some(BoxLink::Unshaped)],
        Some(_) => box_links.iter().copied().map(Some).collect(),
    };
    let mut cases = Vec::new();
    for &peer in peers {
        let links = if peer.is_weft() { &links[..] } else { &links[..links.len().min(1)] };
        let algorithms = match peer {
            Peer::Gloo => Algorithm::ALL.map(Some).to_vec(),
            _ => vec![None],
        };
        for &box_link in links {
            let case = |algorithm: &_| Case { bytes, peer, box_link, algorithm: *algorithm };
            cases.extend(algorithms.iter().map(case));
        }
    }
    cases
}

/// Measures all sizes and peers at a place, size by size, in rounds. `each` is given a row as soon
/// as it is final.
///
/// # Errors
/// [`BenchError`] where this machine lacks something, or on a signal, after the rows of what was
/// measured until then; and those of `each`. A peer that fails is a row with a failure.
pub fn run<E: From<BenchError>>(
    settings: &Settings,
    place: Place,
    rivals: &Rivals,
    directory: &Path,
    mut each: impl FnMut(&Row) -> Result<(), E>,
) -> Result<(), E> {
    let can_run = |peer: &Peer| peer.is_for(place.one_host) && rivals.build_of(*peer).is_some();
    let peers: Vec<Peer> = settings.peers.iter().copied().filter(can_run).collect();
    let of_size = |bytes| cases(place, bytes, &peers, &settings.box_links);
    let networks = Networks::of(place, &of_size(0))?;
    for &bytes in &settings.sizes {
        let cases = of_size(bytes);
        let mut runs = vec![Vec::new(); cases.len()];
        let ended = take_turns(&cases, settings.rounds, &mut runs, |case| {
            let iterations = settings.iterations.unwrap_or_else(|| moment(bytes));
            let network = networks.of_case(case);
            if case.peer.is_weft() {
                weft(network, place, case, iterations, directory)
            } else {
                rivals.run(network, place, case, iterations)
            }
        });
        for row in rows(place, &cases, &runs, |peer| rivals.build_of(peer)) {
            each(&row)?;
        }
        ended?;
    }
    Ok(())
}

/// Runs all cases, round by round; one that has failed takes no more turns.
fn take_turns(
    cases: &[Case],
    rounds: u32,
    runs: &mut [Vec<Run>],
    mut measure: impl FnMut(Case) -> Result<Vec<MemberResult>, BenchError>,
) -> Result<(), BenchError> {
    for _ in 0..rounds {
        for (case, runs) in cases.iter().zip(runs.iter_mut()) {
            if runs.iter().any(|run: &Run| run.failure.is_some()) {
                continue;
            }
            let before = Moment::now();
            let (members, failure) = match measure(*case) {
                Ok(members) => (members, None),
                Err(error @ BenchError::Process { .. }) => (Vec::new(), Some(error.to_string())),
                Err(error) => return Err(error),
            };
            let others = Others::between(&before, &Moment::now());
            runs.push(Run { members, failure, others });
        }
    }
    Ok(())
}

/// The rows of what has run: of neighbours that differ in their algorithm alone, the best.
fn rows<'b>(
    place: Place,
    cases: &[Case],
    runs: &[Vec<Run>],
    build_of: impl Fn(Peer) -> Option<&'b str>,
) -> Vec<Row> {
    let mut rows: Vec<(Case, Row)> = Vec::new();
    for (of, runs) in cases.iter().zip(runs).filter(|(_, runs)| !runs.is_empty()) {
        let case = Case { algorithm: None, ..*of };
        let mut row = Row::new(place, *of, runs, build_of(case.peer).unwrap_or_default());
        match rows.last_mut().filter(|(last, _)| *last == case) {
            Some((_, best)) => {
                if row.is_better_than(best) {
                    mem::swap(&mut row, best);
                }
                if let (Some(algorithm), Some(failure)) = (row.algorithm, row.failure) {
                    let (peer, algorithm) = (row.peer, algorithm.word());
                    weft_process::say!("weft: {peer}'s {algorithm}: FAILED: {failure}");
                }
            }
            None => rows.push((case, row)),
        }
    }
    rows.into_iter().map(|(_, row)| row).collect()
}

/// The networks of a place, one for each link of the box: hosts with addresses of the kernel, and,
/// for peers on packet sockets, a lab whose box has an address of its own.
struct Networks(Vec<(NetworkKey, Network)>);

/// The box's link, and whether the box has an address of its own.
type NetworkKey = (Option<BoxLink>, bool);

impl Networks {
    fn of(place: Place, cases: &[Case]) -> Result<Self, BenchError> {
        let mut networks = Self(Vec::new());
        let Place { workers, rate_mbit, mtu, .. } = place;
        for key in cases.iter().map(Self::key) {
            if networks.0.iter().any(|(built, _)| *built == key) {
                continue;
            }
            let io = if key.1 { Io::AfPacket } else { Io::Udp };
            let network = match key.0 {
                Some(box_link) => Network::lab(io, workers, rate_mbit, box_link, mtu, true)?,
                None => Network::loopback(),
            };
            networks.0.push((key, network));
        }
        Ok(networks)
    }

    fn key(case: &Case) -> NetworkKey {
        (case.box_link, case.peer == Peer::WeftAfPacket)
    }

    fn of_case(&self, case: Case) -> &Network {
        let found = self.0.iter().find(|(key, _)| *key == Self::key(&case));
        &found.expect("there is a network for every case").1
    }
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
    case: Case,
    iterations: u32,
    directory: &Path,
) -> Result<Vec<MemberResult>, BenchError> {
    let Case { peer, bytes, .. } = case;
    let offload = peer != Peer::Weft;
    let (box_io, worker_io) = peer.ports();
    let plan = |rank| MemberPlan {
        rank,
        workers: place.workers,
        local: network.local(rank, place.lanes),
        aggregator: network.aggregator(),
        element_type: ElementType::F32,
        sizes: vec![bytes],
        warm_up: WARM_UP,
        iterations,
        lanes: place.lanes,
        mtu: place.mtu,
        offload,
        io: worker_io,
        aggregator_pid: None,
    };
    let plans: Vec<MemberPlan> = (0..place.workers).map(plan).collect();
    let members = plans.iter().map(|plan| plan.local.into()).collect();
    let row = RowSection {
        element_type: ElementType::F32,
        elements: Elements::Auto,
        integrity: peer.integrity(),
        window: (window(place.mtu) / place.lanes).max(WINDOW_MIN),
        ..RowSection::new(0, 0, members)
    };
    let mtu = u32::from(place.mtu);
    let mut config = box_config("a0", box_io, network.aggregator(), mtu, &network.interface());
    config.lcores.shards = place.lanes;
    config.port.offload = offload;
    config.port.multicast = worker_io.multicast();
    let config = NodeConfig { job: vec![JobSection::new(0)], row: vec![row], ..config };
    let results = network.run(&config, &plans, directory, limit(place, case, iterations))?;
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

#[cfg(test)]
mod tests;
