//! Statistics: what a lane's counters were at one moment, and the report that lanes add up to.
//!
//! Everything that the node prints or serves comes from a [`Report`], so text, JSON and metrics
//! cannot disagree. Nothing is counted here.

pub mod metrics;
mod model;
mod push;
mod report;
mod text;

use weft_engine::role::aggregator::{Aggregator, JobStats, Phase, Stats};
use weft_engine::role::replica::Replica;
use weft_engine::role::server::Server;
use weft_engine::slot::counter::Lag;
use weft_io::fault::FaultCounts;
use weft_io::{LaneEngine, LaneStats, PortInfo, PortStats, RoleLane};
use weft_wire::{JobId, Members};

use crate::host::{Host, HostStats};
use crate::steered::{LanePort, SteerStats};

pub use model::ModelReport;
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
    /// The jobs whose model is here.
    pub models: Vec<ModelReport>,
}

/// An engine whose counters can be read.
pub trait Counted: LaneEngine {
    /// Copies them.
    fn count(&self, snapshot: &mut LaneSnapshot);
}

impl Counted for Aggregator {
    fn count(&self, snapshot: &mut LaneSnapshot) {
        let lease = |lease: weft_engine::role::aggregator::LeaseReport<'_>| LeaseSnapshot {
            row: lease.row().row,
            job: lease.row().job,
            phase: lease.phase(),
            epoch: lease.epoch().0,
            present: lease.present(),
            lags: lease.members().map(|member| member.lag).collect(),
        };
        snapshot.engine = self.stats().clone();
        snapshot.jobs = self.jobs().map(|(id, stats)| (id, *stats)).collect();
        snapshot.leases = self.leases().map(lease).collect();
        snapshot.pushes = self.gather().reports().map(|push| PushSnapshot::take(&push)).collect();
    }
}

impl Counted for Server {
    fn count(&self, snapshot: &mut LaneSnapshot) {
        snapshot.engine.frames = self.stats().frames;
        snapshot.engine.drops = self.stats().drops.clone();
        let report = |(job, stats)| ModelReport::of_server(self, job, stats);
        snapshot.models = self.jobs().map(report).collect();
    }
}

impl Counted for Replica {
    fn count(&self, snapshot: &mut LaneSnapshot) {
        snapshot.engine.frames = self.stats().frames;
        snapshot.engine.drops = self.stats().drops.clone();
        let report = |(job, stats)| ModelReport::of_replica(self, job, stats);
        snapshot.models = self.jobs().map(report).collect();
    }
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
    pub fn take<P: LanePort, E: Counted>(index: usize, lane: &RoleLane<P, E>, host: &Host) -> Self {
        let mut snapshot = Self {
            lane: index,
            info: lane.port().info(),
            port: lane.port().stats(),
            breaths: lane.stats(),
            steer: lane.port().steer_stats(),
            faults: lane.port().fault_counts(),
            host: host.stats(),
            engine: Stats::default(),
            jobs: Vec::new(),
            leases: Vec::new(),
            pushes: Vec::new(),
            models: Vec::new(),
        };
        lane.engine().count(&mut snapshot);
        snapshot
    }
}
