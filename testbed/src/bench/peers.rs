//! OpenMPI's and Gloo's allreduce of f32 beside Weft's: the same star of namespaces, the same
//! vectors, in rounds that take turns.
//!
//! Each run is one size, so that CPU time and bytes belong to it. The lab's interfaces keep their
//! offloads: TCP crosses them in packets of up to 64 KiB, and so may Weft's runs. Every peer sums
//! each vector once before the timed sums; a sum has taken as long as it took the slowest rank. On
//! one host everybody is on loopback instead, and Weft's workers may share memory with the box.

mod rivals;
mod row;

use std::path::Path;

use serde::{Deserialize, Serialize};
use weft_config::node::{Elements, JobSection, NodeConfig, RowSection};
use weft_wire::header::ElementType;
use weft_wire::hello::Integrity;

use super::lanes::Lanes;
use super::member::{MemberPlan, MemberResult};
use super::network::Network;
use super::process::BenchError;
use crate::run::{Io, WorkerIo, box_config};
pub use rivals::Rivals;
pub use row::Row;
use row::Run;

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
    /// Gloo over TCP.
    Gloo,
}

impl Peer {
    /// All of them, in the order of rows.
    pub const ALL: [Self; 9] = [
        Self::Weft,
        Self::WeftOffload,
        Self::WeftMulticast,
        Self::WeftNoCrc,
        Self::WeftAfPacket,
        Self::WeftShm,
        Self::OpenMpi,
        Self::OpenMpiRing,
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
            Self::Gloo => ("gloo", "tcp"),
        }
    }

    const fn is_weft(self) -> bool {
        !matches!(self, Self::OpenMpi | Self::OpenMpiRing | Self::Gloo)
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
            Self::WeftShm => one_host,
            Self::WeftMulticast
            | Self::WeftNoCrc
            | Self::WeftAfPacket
            | Self::OpenMpi
            | Self::OpenMpiRing => !one_host,
            Self::Weft | Self::WeftOffload | Self::Gloo => true,
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
    let can_run = |peer: &Peer| peer.is_for(place.one_host) && rivals.can_run(*peer);
    let peers: Vec<Peer> = settings.peers.iter().copied().filter(can_run).collect();
    let networks = Networks::of(place, &peers)?;
    let cases: Vec<(u64, Peer)> =
        settings.sizes.iter().flat_map(|bytes| peers.iter().map(|peer| (*bytes, *peer))).collect();
    let mut runs = vec![Vec::new(); cases.len()];
    for _ in 0..settings.rounds {
        for ((bytes, peer), runs) in cases.iter().zip(&mut runs) {
            if runs.iter().any(|run: &Run| run.failure.is_some()) {
                continue;
            }
            let iterations = settings.iterations.unwrap_or_else(|| moment(*bytes));
            let network = networks.of_peer(*peer);
            let members = if peer.is_weft() {
                weft(network, place, *peer, *bytes, iterations, directory)
            } else {
                rivals.run(network, place, *peer, *bytes / 4, iterations)
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

/// The hosts of a place: those that have their addresses from the kernel, and, where somebody needs
/// it, a lab whose box has its own.
struct Networks {
    kernel: Network,
    raw: Option<Network>,
}

impl Networks {
    fn of(place: Place, peers: &[Peer]) -> Result<Self, BenchError> {
        if place.one_host {
            return Ok(Self { kernel: Network::loopback(), raw: None });
        }
        let Place { workers, rate_mbit, mtu, .. } = place;
        let lab = |io| Network::lab(io, workers, rate_mbit, mtu, true);
        let has_raw = peers.contains(&Peer::WeftAfPacket);
        let raw = has_raw.then(|| lab(Io::AfPacket)).transpose()?;
        Ok(Self { kernel: lab(Io::Udp)?, raw })
    }

    fn of_peer(&self, peer: Peer) -> &Network {
        self.raw.as_ref().filter(|_| peer == Peer::WeftAfPacket).unwrap_or(&self.kernel)
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
    peer: Peer,
    bytes: u64,
    iterations: u32,
    directory: &Path,
) -> Result<Vec<MemberResult>, BenchError> {
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

#[cfg(test)]
mod tests;
