//! Servers and replicas in a snapshot and in a report.

use std::fmt::{self, Write};

use serde::Serialize;
use weft_engine::role::replica::ReplicaJobStats;
use weft_engine::role::server::ServerJobStats;

use super::LaneSnapshot;
use super::metrics::{head, label};
use crate::config::{NodeConfig, ReplicaSection};

/// A job of a server or a replica at one moment.
#[derive(Clone, Copy, Debug)]
pub struct ModelSnapshot<S> {
    /// Its index on the wire.
    pub job: u16,
    /// Its counters.
    pub stats: S,
    /// Version of its model.
    pub version: u64,
    /// The order number that is next.
    pub next_order: u64,
}

/// A job of a server.
#[derive(Clone, Debug, Default, Serialize)]
#[expect(missing_docs, reason = "the counters are those of the engine's `ServerJobStats`")]
pub struct ServerReport {
    pub job: u16,
    pub name: String,
    pub version: u64,
    pub next_order: u64,
    pub groups_installed: u64,
    pub groups_refused: u64,
    pub announcements_refused: u64,
    pub groups_committed: u64,
    pub commits: u64,
    pub voids: u64,
    pub dropped: u64,
    /// Committed updates by delay, up to the greatest; the last possible place is 64 and more.
    pub delays: Vec<u64>,
    pub delay_max: u64,
    /// From install to commit, over committed groups.
    pub mean_commit_latency_us: f64,
    pub chunks_aggregated: u64,
    pub chunks_direct: u64,
    pub chunks_composed: u64,
    pub duplicates: u64,
    pub overlaps: u64,
    pub credits_sent: u64,
    pub credits_repeated: u64,
    pub window_reductions: u64,
    pub fallbacks: u64,
    pub members_closed: u64,
    pub model_chunks_sent: u64,
    pub model_stale: u64,
    pub decisions_repeated: u64,
    pub repairs: u64,
    pub replica_repair_bytes: u64,
    pub replica_lag: u64,
    pub replica_lag_max: u64,
    pub bound_waits: u64,
    pub bound_broken: u64,
    /// Absent while what the replica lacks is not known any more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub divergence_bound: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub divergence_bound_max: Option<f64>,
    pub acks_without_replica: u64,
    pub acks_lost: u64,
    pub events_lost: u64,
    pub chunk_bytes: u64,
    /// Of a server with a `state_dir`: records, their bytes, and breaths in which they found no
    /// room.
    pub journal_records: u64,
    pub journal_bytes: u64,
    pub journal_waits: u64,
}

/// A job of a replica.
#[derive(Clone, Debug, Default, Serialize)]
#[expect(missing_docs, reason = "the counters are those of the engine's `ReplicaJobStats`")]
pub struct ReplicaReport {
    pub job: u16,
    pub name: String,
    pub version: u64,
    pub next_order: u64,
    pub groups_applied: u64,
    pub commits: u64,
    pub voids: u64,
    pub chunks_copied: u64,
    pub chunks_repaired: u64,
    pub replica_repair_bytes: u64,
    pub copy_bytes: u64,
    pub duplicates: u64,
    pub copies_unusable: u64,
    pub questions_repeated: u64,
    pub snapshots: u64,
    pub snapshot_chunks: u64,
    pub lag: u64,
    pub lag_max: u64,
    /// 1 when it has taken over from its server: then `servers` has the job too.
    pub promotions: u64,
    pub events_lost: u64,
}

/// The jobs that are served here: those of the configuration, and those whose replica this was.
pub(super) fn servers(config: &NodeConfig, lanes: &[LaneSnapshot]) -> Vec<ServerReport> {
    let is_served = |section: &&ReplicaSection| {
        lanes.iter().flat_map(|lane| &lane.servers).any(|at| at.job == section.job)
    };
    let own = config.server.iter().map(|section| (section.job, section.display_name()));
    let promoted = config.replica.iter().filter(is_served);
    let promoted = promoted.map(|section| (section.job, section.display_name()));
    own.chain(promoted).map(|(job, name)| server(job, name, lanes)).collect()
}

fn server(job: u16, name: String, lanes: &[LaneSnapshot]) -> ServerReport {
    let named = ServerReport { job, name, ..Default::default() };
    let mut servers = lanes.iter().flat_map(|lane| &lane.servers);
    let Some(at) = servers.find(|at| at.job == job) else { return named };
    let stats = &at.stats;
    let seen = stats.delays.iter().rposition(|count| *count > 0).map_or(0, |last| last + 1);
    let finite = |bound: f64| bound.is_finite().then_some(bound);
    ServerReport {
        version: at.version,
        next_order: at.next_order,
        groups_installed: stats.groups_installed,
        groups_refused: stats.groups_refused,
        announcements_refused: stats.announcements_refused,
        groups_committed: stats.groups_committed,
        commits: stats.commits,
        voids: stats.voids,
        dropped: stats.dropped,
        delays: stats.delays[..seen].to_vec(),
        delay_max: stats.delay_max,
        mean_commit_latency_us: mean_us(stats.commit_latency_total_ns, stats.groups_committed),
        chunks_aggregated: stats.chunks_aggregated,
        chunks_direct: stats.chunks_direct,
        chunks_composed: stats.chunks_composed,
        duplicates: stats.duplicates,
        overlaps: stats.overlaps,
        credits_sent: stats.credits_sent,
        credits_repeated: stats.credits_repeated,
        window_reductions: stats.window_reductions,
        fallbacks: stats.fallbacks,
        members_closed: stats.members_closed,
        model_chunks_sent: stats.model_chunks_sent,
        model_stale: stats.model_stale,
        decisions_repeated: stats.decisions_repeated,
        repairs: stats.repairs,
        replica_repair_bytes: stats.replica_repair_bytes,
        replica_lag: stats.replica_lag,
        replica_lag_max: stats.replica_lag_max,
        bound_waits: stats.bound_waits,
        bound_broken: stats.bound_broken,
        divergence_bound: finite(stats.divergence_bound),
        divergence_bound_max: finite(stats.divergence_bound_max),
        acks_without_replica: stats.acks_without_replica,
        acks_lost: stats.acks_lost,
        events_lost: stats.events_lost,
        chunk_bytes: stats.chunk_bytes,
        journal_records: stats.journal_records,
        journal_bytes: stats.journal_bytes,
        journal_waits: stats.journal_waits,
        ..named
    }
}

pub(super) fn replica(section: &ReplicaSection, lanes: &[LaneSnapshot]) -> ReplicaReport {
    let named =
        ReplicaReport { job: section.job, name: section.display_name(), ..Default::default() };
    let mut replicas = lanes.iter().flat_map(|lane| &lane.replicas);
    let Some(at) = replicas.find(|at| at.job == section.job) else { return named };
    let stats = &at.stats;
    ReplicaReport {
        version: at.version,
        next_order: at.next_order,
        groups_applied: stats.groups_applied,
        commits: stats.commits,
        voids: stats.voids,
        chunks_copied: stats.chunks_copied,
        chunks_repaired: stats.chunks_repaired,
        replica_repair_bytes: stats.replica_repair_bytes,
        copy_bytes: stats.copy_bytes,
        duplicates: stats.duplicates,
        copies_unusable: stats.copies_unusable,
        questions_repeated: stats.questions_repeated,
        snapshots: stats.snapshots,
        snapshot_chunks: stats.snapshot_chunks,
        lag: stats.lag,
        lag_max: stats.lag_max,
        promotions: stats.promotions,
        events_lost: stats.events_lost,
        ..named
    }
}

#[expect(clippy::cast_precision_loss, reason = "microseconds for people")]
fn mean_us(total_ns: u64, count: u64) -> f64 {
    total_ns as f64 / 1000.0 / count.max(1) as f64
}

/// One server's snapshot type.
pub type ServerSnapshot = ModelSnapshot<ServerJobStats>;
/// One replica's snapshot type.
pub type ReplicaSnapshot = ModelSnapshot<ReplicaJobStats>;

impl ServerReport {
    fn counters(&self) -> [(&'static str, u64); 28] {
        [
            ("groups_installed", self.groups_installed),
            ("groups_refused", self.groups_refused),
            ("groups_committed", self.groups_committed),
            ("commits", self.commits),
            ("voids", self.voids),
            ("dropped", self.dropped),
            ("chunks_aggregated", self.chunks_aggregated),
            ("chunks_direct", self.chunks_direct),
            ("chunks_composed", self.chunks_composed),
            ("duplicates", self.duplicates),
            ("overlaps", self.overlaps),
            ("credits_sent", self.credits_sent),
            ("credits_repeated", self.credits_repeated),
            ("window_reductions", self.window_reductions),
            ("fallbacks", self.fallbacks),
            ("members_closed", self.members_closed),
            ("model_chunks_sent", self.model_chunks_sent),
            ("model_stale", self.model_stale),
            ("decisions_repeated", self.decisions_repeated),
            ("repairs", self.repairs),
            ("replica_repair_bytes", self.replica_repair_bytes),
            ("bound_waits", self.bound_waits),
            ("bound_broken", self.bound_broken),
            ("acks_lost", self.acks_lost),
            ("chunk_bytes", self.chunk_bytes),
            ("journal_records", self.journal_records),
            ("journal_bytes", self.journal_bytes),
            ("journal_waits", self.journal_waits),
        ]
    }

    #[expect(clippy::cast_precision_loss, reason = "Prometheus has doubles only")]
    fn gauges(&self) -> [(&'static str, f64); 6] {
        [
            ("version", self.version as f64),
            ("delay_max", self.delay_max as f64),
            ("mean_commit_latency_us", self.mean_commit_latency_us),
            ("replica_lag", self.replica_lag as f64),
            ("divergence_bound", self.divergence_bound.unwrap_or(f64::INFINITY)),
            ("divergence_bound_max", self.divergence_bound_max.unwrap_or(f64::INFINITY)),
        ]
    }
}

impl ReplicaReport {
    fn counters(&self) -> [(&'static str, u64); 13] {
        [
            ("groups_applied", self.groups_applied),
            ("commits", self.commits),
            ("voids", self.voids),
            ("chunks_copied", self.chunks_copied),
            ("chunks_repaired", self.chunks_repaired),
            ("replica_repair_bytes", self.replica_repair_bytes),
            ("copy_bytes", self.copy_bytes),
            ("duplicates", self.duplicates),
            ("copies_unusable", self.copies_unusable),
            ("questions_repeated", self.questions_repeated),
            ("snapshots", self.snapshots),
            ("snapshot_chunks", self.snapshot_chunks),
            ("promotions", self.promotions),
        ]
    }

    #[expect(clippy::cast_precision_loss, reason = "Prometheus has doubles only")]
    fn gauges(&self) -> [(&'static str, f64); 3] {
        [
            ("version", self.version as f64),
            ("lag", self.lag as f64),
            ("lag_max", self.lag_max as f64),
        ]
    }
}

pub(super) fn write_text(
    out: &mut String,
    servers: &[ServerReport],
    replicas: &[ReplicaReport],
) -> fmt::Result {
    for server in servers {
        writeln!(
            out,
            "  server of job {} ({}): version: {}  commits: {}  voids: {}  dropped: {}",
            server.job, server.name, server.version, server.commits, server.voids, server.dropped
        )?;
        writeln!(
            out,
            "    groups: {}  chunks aggregated: {}  direct: {}  duplicates: {}  fallbacks: {}",
            server.groups_committed,
            server.chunks_aggregated,
            server.chunks_direct,
            server.duplicates,
            server.fallbacks
        )?;
        writeln!(
            out,
            "    delay max: {}  commit latency mean: {:.1} us  credits: {}  repeated: {}",
            server.delay_max,
            server.mean_commit_latency_us,
            server.credits_sent,
            server.credits_repeated
        )?;
        let bound = server.divergence_bound;
        let bound = bound.map_or_else(|| "unknown".to_owned(), |bound| format!("{bound:.6}"));
        writeln!(
            out,
            "    replica lag: {}  divergence bound: {bound}  repairs: {}  repair bytes: {}",
            server.replica_lag, server.repairs, server.replica_repair_bytes
        )?;
    }
    for replica in replicas {
        writeln!(
            out,
            "  replica of job {} ({}): version: {}  commits: {}  lag: {}  snapshots: {}",
            replica.job,
            replica.name,
            replica.version,
            replica.commits,
            replica.lag,
            replica.snapshots
        )?;
        writeln!(
            out,
            "    chunks copied: {}  repaired: {}  repair bytes: {}  copy bytes: {}",
            replica.chunks_copied,
            replica.chunks_repaired,
            replica.replica_repair_bytes,
            replica.copy_bytes
        )?;
    }
    Ok(())
}

pub(super) fn write_metrics(
    out: &mut String,
    servers: &[ServerReport],
    replicas: &[ReplicaReport],
) -> fmt::Result {
    let of_servers: Vec<_> = servers
        .iter()
        .map(|s| (s.name.as_str(), s.counters().to_vec(), s.gauges().to_vec()))
        .collect();
    let of_replicas: Vec<_> = replicas
        .iter()
        .map(|r| (r.name.as_str(), r.counters().to_vec(), r.gauges().to_vec()))
        .collect();
    write_family(out, "server", &of_servers)?;
    write_family(out, "replica", &of_replicas)?;
    if servers.is_empty() {
        return Ok(());
    }
    head(out, "weft_server_delay_total", "counter", "Committed updates by delay")?;
    for server in servers {
        for (delay, count) in server.delays.iter().enumerate() {
            let job = label(&server.name);
            writeln!(out, "weft_server_delay_total{{job={job},delay=\"{delay}\"}} {count}")?;
        }
    }
    Ok(())
}

/// A job's name, counters and gauges.
type Family<'a> = (&'a str, Vec<(&'static str, u64)>, Vec<(&'static str, f64)>);

fn write_family(out: &mut String, role: &str, jobs: &[Family<'_>]) -> fmt::Result {
    let Some((_, counters, gauges)) = jobs.first() else { return Ok(()) };
    for (index, (counter, _)) in counters.iter().enumerate() {
        let name = format!("weft_{role}_{counter}_total");
        head(out, &name, "counter", "Counters of a job with a parameter server")?;
        for (job, counters, _) in jobs {
            writeln!(out, "{name}{{job={}}} {}", label(job), counters[index].1)?;
        }
    }
    for (index, (gauge, _)) in gauges.iter().enumerate() {
        let name = format!("weft_{role}_{gauge}");
        head(out, &name, "gauge", "State of a job with a parameter server")?;
        for (job, _, gauges) in jobs {
            let value = gauges[index].1;
            let value = if value.is_infinite() { "+Inf".to_owned() } else { value.to_string() };
            writeln!(out, "{name}{{job={}}} {value}", label(job))?;
        }
    }
    Ok(())
}
