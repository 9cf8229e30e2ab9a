//! The report: lanes added up, with names, in the shape of the JSON output.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;
use weft_engine::drops::DropReason;
use weft_engine::role::aggregator::{JobStats, Phase};
use weft_engine::slot::counter::{Lag, Transition};
use weft_io::PortStats;
use weft_io::fault::FaultCounts;
use weft_wire::Rank;

use super::{LaneSnapshot, PushReport, ReplicaReport, ServerReport, push, server};
use crate::config::NodeConfig;
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
    pub steering: SteeringReport,
    /// Faults that the node's own wrapper made; absent without `[faults]`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub faults: Option<FaultReport>,
    /// The capture; absent without `[trace]`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace: Option<TraceReport>,
    /// The host side of the port.
    pub host: HostStats,
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
#[expect(missing_docs, reason = "the counters are those of `weft_io::PortStats`")]
pub struct PortReport {
    pub name: String,
    pub driver: String,
    pub mac: String,
    pub mtu: usize,
    pub rx_packets: u64,
    pub rx_bytes: u64,
    pub rx_missed: u64,
    pub rx_errors: u64,
    pub rx_nombuf: u64,
    pub tx_packets: u64,
    pub tx_bytes: u64,
    pub tx_errors: u64,
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

/// Hand-overs between lanes.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct SteeringReport {
    /// Frames that lane 0 handed to another lane.
    pub handed_over: u64,
    /// Frames lost because a lane's ring was full.
    pub ring_full: u64,
}

/// Faults in both directions together.
#[derive(Clone, Copy, Debug, Default, Serialize)]
#[expect(missing_docs, reason = "the counters are those of `weft_io::fault::FaultCounts`")]
pub struct FaultReport {
    pub judged: u64,
    pub lost: u64,
    pub duplicated: u64,
    pub reordered: u64,
    pub delayed: u64,
    pub corrupted: u64,
    pub link_full: u64,
}

/// A capture.
#[derive(Clone, Copy, Debug, Default, Serialize)]
#[expect(missing_docs, reason = "the counters are those of `weft_io::trace::TraceCounts`")]
pub struct TraceReport {
    pub frames: u64,
    pub bytes: u64,
    pub cut: u64,
    pub errors: u64,
}

/// A lane.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct LaneReport {
    /// Its number.
    pub lane: usize,
    /// Frames that its engine handled.
    pub frames: u64,
    /// Breaths that found at least one frame.
    pub busy_breaths: u64,
    /// Breaths that found none.
    pub idle_breaths: u64,
    /// Frames freed because the transmit ring was full.
    pub tx_dropped: u64,
    /// Frames not made because the pool was empty.
    pub tx_nombuf: u64,
}

/// A job.
#[derive(Clone, Debug, Default, Serialize)]
#[expect(missing_docs, reason = "the counters are those of the engine's `JobStats`")]
pub struct JobReport {
    pub id: u16,
    pub name: String,
    pub contributions_added: u64,
    pub chunks_completed: u64,
    pub answers_sent: u64,
    pub answers_repeated: u64,
    pub duplicates: u64,
    pub contributions_clamped: u64,
    pub contributions_marked: u64,
    pub hand_overs: u64,
    pub bytes_accepted: u64,
    pub over_quota: u64,
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
            steering: SteeringReport {
                handed_over: lanes.iter().map(|lane| lane.steer.handed_over).sum(),
                ring_full: lanes.iter().map(|lane| lane.steer.ring_full).sum(),
            },
            faults: faults(lanes),
            // One lane has the port that is captured.
            trace: lanes.iter().find_map(|lane| lane.trace).map(|counts| TraceReport {
                frames: counts.frames,
                bytes: counts.bytes,
                cut: counts.cut,
                errors: counts.errors,
            }),
            host: HostStats {
                frames: lanes.iter().map(|lane| lane.host.frames).sum(),
                answered: lanes.iter().map(|lane| lane.host.answered).sum(),
                over_rate: lanes.iter().map(|lane| lane.host.over_rate).sum(),
            },
            lanes: lanes.iter().map(lane).collect(),
            jobs: config.job.iter().map(|job| job_report(job, lanes)).collect(),
            drops: drops.collect(),
            transitions: transitions.collect(),
            formations: lanes.iter().map(|lane| lane.engine.formations).sum(),
            sessions_broken: lanes.iter().map(|lane| lane.engine.sessions_broken).sum(),
            rows: (0..config.row.len()).map(|index| row(config, index, lanes)).collect(),
            pushes: config.push.iter().map(|section| push::report(section, lanes)).collect(),
            servers: server::servers(config, lanes),
            replicas: config.replica.iter().map(|job| server::replica(job, lanes)).collect(),
        }
    }

    /// Fills in the rates since `earlier`.
    #[must_use]
    pub fn with_rates_since(mut self, earlier: &PortReport, period: Duration) -> Self {
        let per_second = |now: u64, then: u64, scale: u128| {
            let micros = period.as_micros().max(1);
            let rate = u128::from(now.saturating_sub(then)) * scale * 1_000_000 / micros;
            u64::try_from(rate).unwrap_or(u64::MAX)
        };
        let port = &self.port;
        self.rates = Some(Rates {
            rx_pps: per_second(port.rx_packets, earlier.rx_packets, 1),
            rx_bps: per_second(port.rx_bytes, earlier.rx_bytes, 8),
            tx_pps: per_second(port.tx_packets, earlier.tx_packets, 1),
            tx_bps: per_second(port.tx_bytes, earlier.tx_bytes, 8),
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
    let sum = |field: fn(&PortStats) -> u64| lanes.iter().map(|lane| field(&lane.port)).sum();
    let info = lanes.first().map(|lane| lane.info.clone()).unwrap_or_default();
    PortReport {
        name: info.name,
        driver: info.driver,
        mac: info.mac.to_string(),
        mtu: info.mtu,
        rx_packets: sum(|stats| stats.rx_packets),
        rx_bytes: sum(|stats| stats.rx_bytes),
        rx_missed: sum(|stats| stats.rx_missed),
        rx_errors: sum(|stats| stats.rx_errors),
        rx_nombuf: sum(|stats| stats.rx_nombuf),
        tx_packets: sum(|stats| stats.tx_packets),
        tx_bytes: sum(|stats| stats.tx_bytes),
        tx_errors: sum(|stats| stats.tx_errors),
    }
}

fn faults(lanes: &[LaneSnapshot]) -> Option<FaultReport> {
    let counts: Vec<FaultCounts> = lanes.iter().filter_map(|lane| lane.faults).flatten().collect();
    let sum = |field: fn(&FaultCounts) -> u64| counts.iter().map(field).sum();
    (!counts.is_empty()).then(|| FaultReport {
        judged: sum(|counts| counts.judged),
        lost: sum(|counts| counts.lost),
        duplicated: sum(|counts| counts.duplicated),
        reordered: sum(|counts| counts.reordered),
        delayed: sum(|counts| counts.delayed),
        corrupted: sum(|counts| counts.corrupted),
        link_full: sum(|counts| counts.link_full),
    })
}

fn lane(lane: &LaneSnapshot) -> LaneReport {
    LaneReport {
        lane: lane.lane,
        frames: lane.engine.frames,
        busy_breaths: lane.breaths.busy_breaths,
        idle_breaths: lane.breaths.idle_breaths,
        tx_dropped: lane.breaths.tx_dropped,
        tx_nombuf: lane.breaths.tx_nombuf,
    }
}

fn job_report(job: &crate::config::JobSection, lanes: &[LaneSnapshot]) -> JobReport {
    let sum = |field: fn(&JobStats) -> u64| {
        let stats = lanes.iter().flat_map(|lane| &lane.jobs).filter(|(id, _)| *id == job.id);
        stats.map(|(_, stats)| field(stats)).sum()
    };
    JobReport {
        id: job.id,
        name: job.display_name(),
        contributions_added: sum(|stats| stats.contributions_added),
        chunks_completed: sum(|stats| stats.chunks_completed),
        answers_sent: sum(|stats| stats.answers_sent),
        answers_repeated: sum(|stats| stats.answers_repeated),
        duplicates: sum(|stats| stats.duplicates),
        contributions_clamped: sum(|stats| stats.contributions_clamped),
        contributions_marked: sum(|stats| stats.contributions_marked),
        hand_overs: sum(|stats| stats.hand_overs),
        bytes_accepted: sum(|stats| stats.bytes_accepted),
        over_quota: sum(|stats| stats.over_quota),
    }
}

/// Row `index` of the configuration; a lane's leases are in the order of the rows.
fn row(config: &NodeConfig, index: usize, lanes: &[LaneSnapshot]) -> RowReport {
    let leases = || lanes.iter().map(move |lane| &lane.leases[index]);
    let member = |(rank, member): (usize, &crate::config::MemberSection)| {
        let bit = u8::try_from(rank).ok().and_then(Rank::new).map(Rank::bit);
        let mut lag = Lag::default();
        for lane in leases().map(|lease| lease.lags[rank]) {
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
    let section = &config.row[index];
    RowReport {
        row: section.row,
        job: section.job,
        phases: leases().map(|lease| phase_name(lease.phase)).collect(),
        epochs: leases().map(|lease| lease.epoch).collect(),
        members: section.members.iter().enumerate().map(member).collect(),
    }
}

const fn phase_name(phase: Phase) -> &'static str {
    match phase {
        Phase::Forming => "forming",
        Phase::AwaitingRoot => "awaiting_root",
        Phase::Open => "open",
    }
}

#[expect(clippy::cast_precision_loss, reason = "microseconds for people")]
fn micros(nanos: u64) -> f64 {
    nanos as f64 / 1000.0
}
