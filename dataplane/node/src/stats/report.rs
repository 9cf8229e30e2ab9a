//! The report: lanes added up, with names, in the shape of the JSON output.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::Serialize;
use weft_config::node::NodeConfig;
use weft_engine::drops::DropReason;
use weft_engine::figures::Figure;
use weft_engine::role::aggregator::{JobStats, Phase};
use weft_engine::slot::counter::{Lag, Transition};
use weft_io::PortStats;
use weft_io::fault::FaultCounts;
use weft_io::record::RecordCounts;
use weft_io::trace::TraceCounts;
use weft_lane::{LaneStats, SteerStats};
use weft_wire::Rank;

use super::figures::{Figures, table};
use super::shm::SHM;
use super::{
    BandReport, LaneSnapshot, LeaseSnapshot, MemberSnapshot, PushReport, ReplicaReport,
    ServerReport, TableReport, bands, push, server, tables,
};
use crate::host::HostStats;

/// Everything that a node knows about itself at one moment.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// `node.name`.
    pub node: String,
    /// Version of `weft-node`.
    pub version: &'static str,
    /// Commit that it was built from.
    pub commit: &'static str,
    /// Seconds since the start.
    pub uptime_s: f64,
    /// The port.
    pub port: PortReport,
    /// Rates since the last report; absent in the final one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rates: Option<Rates>,
    /// Hand-overs between lanes.
    pub steering: Figures,
    /// Faults that the node's own wrapper made; absent without `[faults]`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub faults: Option<Figures>,
    /// The capture; absent without `[trace]`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace: Option<Figures>,
    /// The bands of the port or of the host's link; absent without `[bands]`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub bands: Vec<BandReport>,
    /// How those of the host's link were kept; absent without `[bands]` with `by = "host"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_bands: Option<Figures>,
    /// The tables that the node is the home of.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tables: Vec<TableReport>,
    /// The recording; absent without `[record]`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recording: Option<Figures>,
    /// Memory shared with workers of this host; absent without `port.shm`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shm: Option<Figures>,
    /// The host side of the port.
    pub host: Figures,
    /// The lanes.
    pub lanes: Vec<LaneReport>,
    /// The jobs.
    pub jobs: Vec<JobReport>,
    /// Frames refused, by reason; every reason is there.
    pub drops: BTreeMap<&'static str, u64>,
    /// What slots went through; every transition is there.
    pub transitions: BTreeMap<&'static str, u64>,
    /// Leases opened.
    pub formations: u64,
    /// Sessions ended because a member began a new life.
    pub sessions_broken: u64,
    /// The rows, with their members.
    pub rows: Vec<RowReport>,
    /// The push jobs.
    pub pushes: Vec<PushReport>,
    /// The jobs that are served.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub servers: Vec<ServerReport>,
    /// The jobs that are followed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub replicas: Vec<ReplicaReport>,
}

/// The port's identity and counters, named as in DPDK.
#[derive(Clone, Debug, Default, Serialize)]
pub struct PortReport {
    /// Its name.
    pub name: String,
    /// What drives it.
    pub driver: String,
    /// Its Ethernet address.
    pub mac: String,
    /// Its MTU.
    pub mtu: usize,
    /// Its counters.
    #[serde(flatten)]
    pub figures: Figures,
}

/// Rates over a period.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Rates {
    /// Frames received per second.
    pub rx_pps: u64,
    /// Bits received per second.
    pub rx_bps: u64,
    /// Frames sent per second.
    pub tx_pps: u64,
    /// Bits sent per second.
    pub tx_bps: u64,
}

/// A lane.
#[derive(Clone, Debug, Serialize)]
pub struct LaneReport {
    /// Its number.
    pub lane: usize,
    /// Frames that its engine handled.
    pub frames: u64,
    /// Its counters.
    #[serde(flatten)]
    pub figures: Figures,
}

/// A job.
#[derive(Clone, Debug, Default, Serialize)]
pub struct JobReport {
    /// Its index on the wire.
    pub id: u16,
    /// Its name.
    pub name: String,
    /// What the engine counts, over all lanes.
    #[serde(flatten)]
    pub figures: Figures,
}

/// A row.
#[derive(Clone, Debug, Serialize)]
pub struct RowReport {
    /// Row index on the wire.
    pub row: u16,
    /// Id of the job.
    pub job: u16,
    /// `forming`, `awaiting_root` or `open`, by lane.
    pub phases: Vec<&'static str>,
    /// Present epoch, by lane.
    pub epochs: Vec<u32>,
    /// The members by rank.
    pub members: Vec<MemberReport>,
}

/// A member of a row: the straggler report.
#[derive(Clone, Debug, Serialize)]
pub struct MemberReport {
    /// Its rank.
    pub rank: usize,
    /// Its address.
    pub addr: String,
    /// In every lane, it has joined and not closed.
    pub present: bool,
    /// Contributions that entered a sum.
    pub contributions: u64,
    /// Mean lag behind the first contribution of a chunk, in microseconds.
    pub lag_mean_us: f64,
    /// Largest lag, in microseconds.
    pub lag_max_us: f64,
}

impl Report {
    /// Adds up lanes.
    #[must_use]
    pub fn new(config: &NodeConfig, uptime_s: f64, lanes: &[LaneSnapshot]) -> Self {
        let drops = DropReason::ALL.iter().map(|(reason, name)| {
            (*name, lanes.iter().map(|lane| lane.engine.drops.of(*reason)).sum())
        });
        let transitions = Transition::ALL.iter().map(|(transition, name)| {
            (*name, lanes.iter().map(|lane| lane.engine.transitions.of(*transition)).sum())
        });
        Self {
            node: config.node.name.clone(),
            version: env!("CARGO_PKG_VERSION"),
            commit: env!("WEFT_COMMIT"),
            uptime_s,
            port: port(lanes),
            rates: None,
            steering: Figures::sum(STEERING, lanes.iter().map(|lane| &lane.steer)),
            faults: lanes.iter().any(|lane| lane.faults.is_some()).then(|| {
                Figures::sum(FAULTS, lanes.iter().filter_map(|lane| lane.faults.as_ref()).flatten())
            }),
            // One lane has the port that is captured.
            shm: lanes
                .iter()
                .any(|lane| lane.shm.is_some())
                .then(|| Figures::sum(SHM, lanes.iter().filter_map(|lane| lane.shm.as_ref()))),
            trace: lanes
                .iter()
                .any(|lane| lane.trace.is_some())
                .then(|| Figures::sum(TRACE, lanes.iter().filter_map(|lane| lane.trace.as_ref()))),
            bands: bands::reports(lanes),
            host_bands: bands::of_host(lanes),
            tables: tables::reports(lanes),
            // Each lane counts what all of them have.
            recording: lanes
                .first()
                .and_then(|lane| lane.record.as_ref())
                .map(|counts| Figures::sum(RECORDING, std::iter::once(counts))),
            host: Figures::sum(HOST, lanes.iter().map(|lane| &lane.host)),
            lanes: lanes.iter().map(lane).collect(),
            jobs: jobs(config, lanes),
            drops: drops.collect(),
            transitions: transitions.collect(),
            formations: lanes.iter().map(|lane| lane.engine.formations).sum(),
            sessions_broken: lanes.iter().map(|lane| lane.engine.sessions_broken).sum(),
            rows: rows(lanes),
            pushes: push::reports(config, lanes),
            servers: server::servers(config, lanes),
            replicas: config.replica.iter().map(|job| server::replica(job, lanes)).collect(),
        }
    }

    /// Fills in the rates since `earlier`.
    #[must_use]
    pub fn with_rates_since(mut self, earlier: &PortReport, period: Duration) -> Self {
        let per = |name: &str, scale: u128| {
            let count = self.port.figures.of(name).saturating_sub(earlier.figures.of(name));
            let rate = u128::from(count) * scale * 1_000_000 / period.as_micros().max(1);
            u64::try_from(rate).unwrap_or(u64::MAX)
        };
        self.rates = Some(Rates {
            rx_pps: per("rx_packets", 1),
            rx_bps: per("rx_bytes", 8),
            tx_pps: per("tx_packets", 1),
            tx_bps: per("tx_bytes", 8),
        });
        self
    }

    /// The report as one line of JSON.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("a report has string keys and finite numbers")
    }
}

fn port(lanes: &[LaneSnapshot]) -> PortReport {
    let info = lanes.first().map(|lane| lane.info.clone()).unwrap_or_default();
    PortReport {
        name: info.name,
        driver: info.driver,
        mac: info.mac.to_string(),
        mtu: info.mtu,
        figures: Figures::sum(PORT, lanes.iter().map(|lane| &lane.port)),
    }
}

fn lane(lane: &LaneSnapshot) -> LaneReport {
    let figures = Figures::sum(LANE, std::iter::once(&lane.breaths));
    LaneReport { lane: lane.lane, frames: lane.engine.frames, figures }
}

/// The jobs of the file, and those that came at run time.
fn jobs(config: &NodeConfig, lanes: &[LaneSnapshot]) -> Vec<JobReport> {
    let of_file = config.job.iter().map(|job| (job.id, job.display_name()));
    let is_late = |id: &u16| config.job.iter().all(|job| job.id != *id);
    let held = lanes.iter().flat_map(|lane| lane.jobs.iter().map(|(id, _)| *id));
    let late: BTreeSet<u16> = held.filter(is_late).collect();
    let all = of_file.chain(late.into_iter().map(|id| (id, format!("job{id}"))));
    all.map(|(id, name)| {
        let stats = lanes.iter().flat_map(|lane| &lane.jobs).filter(|(job, _)| *job == id);
        let figures = Figures::sum(JobStats::FIGURES, stats.map(|(_, stats)| stats));
        JobReport { id, name, figures }
    })
    .collect()
}

/// The rows that the first lane has, where the others have them too: leases come and go.
fn rows(lanes: &[LaneSnapshot]) -> Vec<RowReport> {
    let of_first = lanes.iter().take(1).flat_map(|lane| &lane.leases);
    of_first.map(|lease| row(lease, lanes)).collect()
}

fn row(first: &LeaseSnapshot, lanes: &[LaneSnapshot]) -> RowReport {
    let same = |lease: &&LeaseSnapshot| lease.row == first.row && lease.job == first.job;
    let leases = || lanes.iter().filter_map(|lane| lane.leases.iter().find(same));
    let member = |(rank, member): (usize, &MemberSnapshot)| {
        let bit = u8::try_from(rank).ok().and_then(Rank::new).map(Rank::bit);
        let mut lag = Lag::default();
        for lane in leases().filter_map(|lease| Some(lease.members.get(rank)?.lag)) {
            lag.count += lane.count;
            lag.total = lag.total.saturating_add(lane.total);
            lag.max = lag.max.max(lane.max);
        }
        MemberReport {
            rank,
            addr: member.addr.to_string(),
            present: leases().all(|lease| bit.is_some_and(|bit| lease.present.contains(bit))),
            contributions: lag.count,
            lag_mean_us: micros(lag.total.0) / micros(lag.count.max(1) * 1000),
            lag_max_us: micros(lag.max.0),
        }
    };
    RowReport {
        row: first.row,
        job: first.job.0,
        phases: leases().map(|lease| phase_name(lease.phase)).collect(),
        epochs: leases().map(|lease| lease.epoch).collect(),
        members: first.members.iter().enumerate().map(member).collect(),
    }
}

const fn phase_name(phase: Phase) -> &'static str {
    match phase {
        Phase::Forming => "forming",
        Phase::AwaitingRoot => "awaiting_root",
        Phase::AwaitingSwitch => "awaiting_switch",
        Phase::Open => "open",
    }
}

#[expect(clippy::cast_precision_loss, reason = "microseconds for people")]
fn micros(nanos: u64) -> f64 {
    nanos as f64 / 1000.0
}

const PORT: &[Figure<PortStats>] = table![PortStats:
    rx_packets "Frames received",
    rx_bytes "Bytes received",
    rx_missed "Frames lost because the receive ring or socket buffer was full",
    rx_errors "Frames that the port refused",
    rx_nombuf "Frames lost because the pool had no buffer",
    tx_packets "Frames sent",
    tx_bytes "Bytes sent",
    tx_errors "Frames that the driver or the kernel failed to send",
    tx_runs_refused "Runs of frames that the kernel refused to cut",
];

const LANE: &[Figure<LaneStats>] = table![LaneStats:
    busy_breaths "Breaths that found at least one frame",
    idle_breaths "Breaths that found none",
    tx_dropped "Frames freed because the transmit ring was full",
    tx_nombuf "Frames not made because the pool was empty",
];

const STEERING: &[Figure<SteerStats>] = table![SteerStats:
    handed_over "Frames that lane 0 handed to another lane",
    ring_full "Frames lost because a lane's ring was full",
];

const FAULTS: &[Figure<FaultCounts>] = table![FaultCounts:
    judged "Frames that faults decided about",
    lost "Frames lost on purpose",
    duplicated "Frames doubled on purpose",
    reordered "Frames held back behind later ones",
    delayed "Frames delayed",
    corrupted "Frames damaged",
    link_full "Frames lost because the long link was full",
];

const TRACE: &[Figure<TraceCounts>] = table![TraceCounts:
    frames "Frames in the capture",
    bytes "Bytes of the capture",
    cut "Frames for which the capture had no room any more",
    errors "Frames that could not be written",
];

const RECORDING: &[Figure<RecordCounts>] = table![RecordCounts:
    frames "Frames in the recording",
    bytes "Bytes of the recording",
    ended "Recordings that ended before their node: full, or the disk failed or was too slow",
];

const HOST: &[Figure<HostStats>] = table![HostStats:
    frames "Frames that were not Weft's",
    answered "Frames that the host side answered",
    over_rate "Frames that the host side left unseen because too many came",
];
