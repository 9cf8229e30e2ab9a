//! Statistics: what a lane's counters were at one moment, and the report that lanes add up to.
//!
//! Everything that the node prints or serves comes from a [`Report`], so text, JSON and metrics
//! cannot disagree. Nothing is counted here.

mod bands;
mod figures;
pub mod metrics;
mod push;
mod report;
mod server;
mod shm;
mod tables;
mod text;

use std::net::SocketAddr;

use weft_engine::drops::DropCounters;
use weft_engine::role::aggregator::{Aggregator, JobStats, Phase, Stats};
use weft_engine::role::replica::Replica;
use weft_engine::role::server::Server;
use weft_engine::slot::counter::Lag;
use weft_io::bands::{BandCounts, QUEUES};
use weft_io::fault::FaultCounts;
use weft_io::record::RecordCounts;
use weft_io::shm::ShmCounts;
use weft_io::trace::TraceCounts;
use weft_io::{Port, PortInfo, PortStats};
use weft_lane::{Keyed, LaneEngine, LanePort, LaneStats, RoleLane, SteerStats};
use weft_wire::{JobId, Members};

use crate::host::{Host, HostStats};

pub use bands::BandReport;
pub use figures::Figures;
pub use push::{PushReport, PushSnapshot};
pub use report::{JobReport, LaneReport, MemberReport, PortReport, Rates, Report, RowReport};
pub use server::{ModelSnapshot, ReplicaReport, ReplicaSnapshot, ServerReport, ServerSnapshot};
pub use tables::{TableReport, TableSnapshot};
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
    /// The port's reason, if any, why frames may not pass.
    pub complaint: Option<String>,
    /// Breaths and transmit losses.
    pub breaths: LaneStats,
    /// Hand-overs between lanes.
    pub steer: SteerStats,
    /// Faults of received and of sent frames.
    pub faults: Option<[FaultCounts; 2]>,
    /// What its capture holds.
    pub trace: Option<TraceCounts>,
    /// What became of the frames of each band, if its port has queues for them; with lane 0 also
    /// where the node applies bands to the host's link.
    pub bands: Option<[BandCounts; QUEUES]>,
    /// How often those on the host's link were installed again.
    pub band_repairs: Option<u64>,
    /// What the node's recording holds, over all lanes.
    pub record: Option<RecordCounts>,
    /// What memory shared with workers has seen, where the lane's port has it.
    pub shm: Option<ShmCounts>,
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
    /// The jobs that are served.
    pub servers: Vec<ServerSnapshot>,
    /// The jobs that are followed.
    pub replicas: Vec<ReplicaSnapshot>,
    /// The tables that the lane is the home of.
    pub tables: Vec<TableSnapshot>,
}

/// An engine that can say where it stands.
pub trait EngineSnapshot {
    /// Fills in the engine's part of a snapshot.
    fn describe(&self, snapshot: &mut LaneSnapshot);

    /// The frames that it refused. Allocates nothing.
    fn drops(&self) -> DropCounters;
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
    /// The members by rank.
    pub members: Vec<MemberSnapshot>,
}

/// A member of a lease at one moment.
#[derive(Clone, Copy, Debug)]
pub struct MemberSnapshot {
    /// Its address in the lane.
    pub addr: SocketAddr,
    /// How late its contributions come.
    pub lag: Lag,
}

impl LaneSnapshot {
    /// Copies a lane's counters.
    pub fn take<P: Port, E: LaneEngine + EngineSnapshot>(
        index: usize,
        lane: &RoleLane<LanePort<P>, E>,
        host: &Host,
    ) -> Self {
        let port = lane.port();
        let mut snapshot = Self {
            lane: index,
            info: port.info(),
            port: port.stats(),
            complaint: port.port().inner().complaint(),
            breaths: lane.stats(),
            steer: port.port().steer_counts(),
            faults: port.port().inner().fault_counts(),
            trace: port.port().inner().trace_counts(),
            bands: port.port().inner().band_counts(),
            band_repairs: None,
            record: port.record_counts(),
            shm: None,
            host: host.stats(),
            engine: Stats::default(),
            jobs: Vec::new(),
            leases: Vec::new(),
            pushes: Vec::new(),
            servers: Vec::new(),
            replicas: Vec::new(),
            tables: Vec::new(),
        };
        lane.engine().describe(&mut snapshot);
        snapshot
    }
}

impl EngineSnapshot for Aggregator {
    fn describe(&self, snapshot: &mut LaneSnapshot) {
        let lease = |lease: weft_engine::role::aggregator::LeaseReport<'_>| LeaseSnapshot {
            row: lease.row().row,
            job: lease.row().job,
            phase: lease.phase(),
            epoch: lease.epoch().0,
            present: lease.present(),
            members: lease
                .members()
                .map(|member| MemberSnapshot { addr: member.addr, lag: member.lag })
                .collect(),
        };
        snapshot.engine = self.stats().clone();
        snapshot.jobs = self.jobs().map(|(id, stats)| (id, *stats)).collect();
        snapshot.leases = self.leases().map(lease).collect();
        snapshot.pushes = self.gather().reports().map(|push| PushSnapshot::take(&push)).collect();
    }

    fn drops(&self) -> DropCounters {
        self.stats().drops.clone()
    }
}

impl EngineSnapshot for Keyed<Aggregator> {
    fn describe(&self, snapshot: &mut LaneSnapshot) {
        self.engine().describe(snapshot);
        snapshot.engine.drops = self.drops();
        snapshot.tables = self.homes().iter().map(TableSnapshot::take).collect();
    }

    fn drops(&self) -> DropCounters {
        let mut drops = self.engine().drops();
        for (reason, count) in self.homes().drops().iter() {
            drops.count_many(reason, count);
        }
        drops
    }
}

impl EngineSnapshot for Server {
    fn describe(&self, snapshot: &mut LaneSnapshot) {
        snapshot.engine.frames = self.stats().frames;
        snapshot.engine.drops = self.drops();
        let jobs = self.jobs().filter_map(|(job, stats)| {
            let view = self.model(job)?;
            let (version, next_order) = (view.version.0, view.next_order.0);
            Some(ModelSnapshot { job: job.0, stats: *stats, version, next_order })
        });
        snapshot.servers = jobs.collect();
    }

    fn drops(&self) -> DropCounters {
        self.stats().drops.clone()
    }
}

impl EngineSnapshot for Replica {
    fn describe(&self, snapshot: &mut LaneSnapshot) {
        snapshot.engine.frames = self.stats().frames;
        snapshot.engine.drops = self.drops();
        let jobs = self.jobs().filter_map(|(job, stats)| {
            let view = self.model(job)?;
            let (version, next_order) = (view.version.0, view.next_order.0);
            Some(ModelSnapshot { job: job.0, stats: *stats, version, next_order })
        });
        snapshot.replicas = jobs.collect();
        let served = self.served().filter_map(|(job, _, stats)| {
            let view = self.model(job)?;
            let (version, next_order) = (view.version.0, view.next_order.0);
            Some(ModelSnapshot { job: job.0, stats: *stats, version, next_order })
        });
        snapshot.servers = served.collect();
    }

    fn drops(&self) -> DropCounters {
        self.stats().drops.clone()
    }
}
