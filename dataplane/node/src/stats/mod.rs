//! Statistics: what a lane's counters were at one moment, and the report that lanes add up to.
//!
//! Everything that the node prints or serves comes from a [`Report`], so text, JSON and metrics
//! cannot disagree. Nothing is counted here.

pub mod metrics;
mod push;
mod report;
mod text;

use weft_engine::role::aggregator::{JobStats, Phase, Stats};
use weft_engine::slot::counter::Lag;
use weft_io::fault::FaultCounts;
use weft_io::{AggregatorLane, LaneStats, PortInfo, PortStats};
use weft_wire::{JobId, Members};

use crate::host::{Host, HostStats};
use crate::steered::{LanePort, SteerStats};

pub use push::{PushReport, PushSnapshot};
pub use report::{
    FaultReport, JobReport, LaneReport, MemberReport, PortReport, Rates, Report, RowReport,
    SteeringReport,
};
pub use text::write_text;

/// A lane's counters at one moment.
#[derive(Clone, Debug)]
pub struct LaneSnapshot {
    /// Its number.
    pub lane: usize,
    /// What its port is.
    pub info: PortInfo,
    /// Counters of its port.
    pub port: PortStats,
    /// Breaths and transmit losses.
    pub breaths: LaneStats,
    /// Hand-overs between lanes.
    pub steer: SteerStats,
    /// Faults of received and of sent frames.
    pub faults: Option<[FaultCounts; 2]>,
    /// The host side.
    pub host: HostStats,
    /// The engine's counters.
    pub engine: Stats,
    /// The jobs' counters, by index on the wire.
    pub jobs: Vec<(u16, JobStats)>,
    /// The leases.
    pub leases: Vec<LeaseSnapshot>,
    /// The push jobs.
    pub pushes: Vec<PushSnapshot>,
}

/// A lease at one moment.
#[derive(Clone, Debug)]
pub struct LeaseSnapshot {
    /// The row.
    pub row: u16,
    /// The job that owns it.
    pub job: JobId,
    /// Where its formation stands.
    pub phase: Phase,
    /// The present epoch.
    pub epoch: u32,
    /// Members that have joined and not closed.
    pub present: Members,
    /// How late each member's contributions come.
    pub lags: Vec<Lag>,
}

impl LaneSnapshot {
    /// Copies a lane's counters.
    pub fn take<P: LanePort>(index: usize, lane: &AggregatorLane<P>, host: &Host) -> Self {
        let engine = lane.engine();
        let lease = |lease: weft_engine::role::aggregator::LeaseReport<'_>| LeaseSnapshot {
            row: lease.row().row,
            job: lease.row().job,
            phase: lease.phase(),
            epoch: lease.epoch().0,
            present: lease.present(),
            lags: lease.members().map(|member| member.lag).collect(),
        };
        Self {
            lane: index,
            info: lane.port().info(),
            port: lane.port().stats(),
            breaths: lane.stats(),
            steer: lane.port().steer_stats(),
            faults: lane.port().fault_counts(),
            host: host.stats(),
            engine: engine.stats().clone(),
            jobs: engine.jobs().map(|(id, stats)| (id, *stats)).collect(),
            leases: engine.leases().map(lease).collect(),
            pushes: engine.gather().reports().map(|push| PushSnapshot::take(&push)).collect(),
        }
    }
}
