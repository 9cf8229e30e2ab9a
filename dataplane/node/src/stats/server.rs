//! Servers and replicas in a snapshot and in a report.

use std::fmt::{self, Write};
use std::time::Duration;

use serde::Serialize;
use weft_config::node::{NodeConfig, ReplicaSection};
use weft_engine::role::replica::ReplicaJobStats;
use weft_engine::role::server::ServerJobStats;
use weft_process::metrics::{head, label};

use super::figures::Figures;
use super::{LaneSnapshot, figures};

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
pub struct ServerReport {
    /// Its index on the wire.
    pub job: u16,
    /// Its name.
    pub name: String,
    /// Version of its model.
    pub version: u64,
    /// The order number that is next.
    pub next_order: u64,
    /// What the engine counts.
    #[serde(flatten)]
    pub figures: Figures,
    /// Committed updates by delay, up to the greatest; the last possible place is 64 and more.
    pub delays: Vec<u64>,
    /// From install to commit, over all committed groups.
    #[serde(skip)]
    pub commit_latency_total_ns: u64,
    /// From install to commit, over committed groups.
    pub mean_commit_latency_us: f64,
    /// Bound of the distance to the replica; absent while what the replica lacks is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub divergence_bound: Option<f64>,
    /// Greatest bound so far; absent once it was not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub divergence_bound_max: Option<f64>,
}

/// A job of a replica.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ReplicaReport {
    /// Its index on the wire.
    pub job: u16,
    /// Its name.
    pub name: String,
    /// Version of its model.
    pub version: u64,
    /// The order number that is next.
    pub next_order: u64,
    /// What the engine counts. With a promotion the job is in `servers` too.
    #[serde(flatten)]
    pub figures: Figures,
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
    let at = lanes.iter().flat_map(|lane| &lane.servers).find(|at| at.job == job);
    let figures = Figures::sum(ServerJobStats::FIGURES, at.iter().map(|at| &at.stats));
    let named = ServerReport { job, name, figures, ..ServerReport::default() };
    let Some(at) = at else { return named };
    let stats = &at.stats;
    let seen = stats.delays.iter().rposition(|count| *count > 0).map_or(0, |last| last + 1);
    let finite = |bound: f64| bound.is_finite().then_some(bound);
    ServerReport {
        version: at.version,
        next_order: at.next_order,
        delays: stats.delays[..seen].to_vec(),
        commit_latency_total_ns: stats.commit_latency_total_ns,
        mean_commit_latency_us: mean_us(stats.commit_latency_total_ns, stats.groups_committed),
        divergence_bound: finite(stats.divergence_bound),
        divergence_bound_max: finite(stats.divergence_bound_max),
        ..named
    }
}

pub(super) fn replica(section: &ReplicaSection, lanes: &[LaneSnapshot]) -> ReplicaReport {
    let at = lanes.iter().flat_map(|lane| &lane.replicas).find(|at| at.job == section.job);
    ReplicaReport {
        job: section.job,
        name: section.display_name(),
        version: at.map_or(0, |at| at.version),
        next_order: at.map_or(0, |at| at.next_order),
        figures: Figures::sum(ReplicaJobStats::FIGURES, at.iter().map(|at| &at.stats)),
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

pub(super) fn write_text(
    out: &mut String,
    servers: &[ServerReport],
    replicas: &[ReplicaReport],
) -> fmt::Result {
    for server in servers {
        let ServerReport { job, name, version, mean_commit_latency_us, .. } = server;
        let bound = server.divergence_bound;
        let bound = bound.map_or_else(|| "unknown".to_owned(), |bound| format!("{bound:.6}"));
        writeln!(out, "  server of job {job} ({name}): version: {version}")?;
        writeln!(
            out,
            "    commit latency mean: {mean_commit_latency_us:.1} us  divergence bound: {bound}"
        )?;
        figures::write_text(out, &server.figures)?;
    }
    for ReplicaReport { job, name, version, figures, .. } in replicas {
        writeln!(out, "  replica of job {job} ({name}): version: {version}")?;
        figures::write_text(out, figures)?;
    }
    Ok(())
}

pub(super) fn write_metrics(
    out: &mut String,
    servers: &[ServerReport],
    replicas: &[ReplicaReport],
) -> fmt::Result {
    let labels = |name: &str| format!("{{job={}}}", label(name));
    let of_servers: Vec<_> = servers.iter().map(|s| (labels(&s.name), &s.figures)).collect();
    let of_replicas: Vec<_> = replicas.iter().map(|r| (labels(&r.name), &r.figures)).collect();
    figures::write_metrics(out, "server", &of_servers)?;
    figures::write_metrics(out, "replica", &of_replicas)?;
    let versions = [
        ("weft_server_version", servers.iter().map(|s| (&s.name, s.version)).collect()),
        ("weft_replica_version", replicas.iter().map(|r| (&r.name, r.version)).collect()),
    ];
    for (name, jobs) in versions {
        let jobs: Vec<(&String, u64)> = jobs;
        if !jobs.is_empty() {
            head(out, name, "gauge", "Version of the model")?;
        }
        for (job, version) in jobs {
            writeln!(out, "{name}{} {version}", labels(job))?;
        }
    }
    if servers.is_empty() {
        return Ok(());
    }
    for (name, kind, help, value) in REALS {
        head(out, name, kind, help)?;
        for server in servers {
            let value = value(server);
            let value = if value.is_infinite() { "+Inf".to_owned() } else { value.to_string() };
            writeln!(out, "{name}{} {value}", labels(&server.name))?;
        }
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

/// A metric that is no whole number: name, kind, help, value.
type Real = (&'static str, &'static str, &'static str, fn(&ServerReport) -> f64);

const REALS: [Real; 3] = [
    (
        "weft_server_commit_latency_seconds_total",
        "counter",
        "From install to commit, over committed groups",
        |server| Duration::from_nanos(server.commit_latency_total_ns).as_secs_f64(),
    ),
    ("weft_server_divergence_bound", "gauge", "Bound of the distance to the replica", |server| {
        server.divergence_bound.unwrap_or(f64::INFINITY)
    }),
    ("weft_server_divergence_bound_max", "gauge", "Greatest bound so far", |server| {
        server.divergence_bound_max.unwrap_or(f64::INFINITY)
    }),
];
