//! Servers and replicas in a snapshot and in a report.

use std::fmt::{self, Write};

use serde::Serialize;
use weft_engine::role::replica::{Replica, ReplicaJobStats};
use weft_engine::role::server::{Server, ServerJobStats};
use weft_wire::JobId;

use super::metrics::{head, label};

/// A job of a server or a replica: its counters by name.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ModelReport {
    /// The job's index on the wire.
    pub job: u16,
    /// Its name.
    pub name: String,
    /// `server` or `replica`.
    pub role: &'static str,
    /// Version of the model.
    pub version: u64,
    /// The order number that is decided, or applied, next.
    pub next_order: u64,
    /// The counters.
    pub counters: Vec<(&'static str, u64)>,
    /// Present bound of the distance to the replica, and the greatest so far.
    pub divergence_bound: [f64; 2],
}

impl ModelReport {
    pub(super) fn of_server(server: &Server, job: JobId, stats: &ServerJobStats) -> Self {
        let view = server.model(job);
        Self {
            job: job.0,
            role: "server",
            version: view.map_or(0, |view| view.version.0),
            next_order: view.map_or(0, |view| view.next_order.0),
            counters: vec![
                ("groups_installed", stats.groups_installed),
                ("groups_refused", stats.groups_refused),
                ("groups_committed", stats.groups_committed),
                ("commits", stats.commits),
                ("voids", stats.voids),
                ("dropped", stats.dropped),
                ("delay_max", stats.delay_max),
                ("commit_latency_total_ns", stats.commit_latency_total_ns),
                ("chunks_aggregated", stats.chunks_aggregated),
                ("chunks_direct", stats.chunks_direct),
                ("duplicates", stats.duplicates),
                ("overlaps", stats.overlaps),
                ("chunks_composed", stats.chunks_composed),
                ("credits_sent", stats.credits_sent),
                ("credits_repeated", stats.credits_repeated),
                ("window_reductions", stats.window_reductions),
                ("fallbacks", stats.fallbacks),
                ("members_closed", stats.members_closed),
                ("model_chunks_sent", stats.model_chunks_sent),
                ("model_stale", stats.model_stale),
                ("decisions_repeated", stats.decisions_repeated),
                ("repairs", stats.repairs),
                ("replica_repair_bytes", stats.replica_repair_bytes),
                ("bound_waits", stats.bound_waits),
                ("bound_broken", stats.bound_broken),
                ("replica_lag", stats.replica_lag),
                ("replica_lag_max", stats.replica_lag_max),
                ("acks_without_replica", stats.acks_without_replica),
                ("acks_lost", stats.acks_lost),
                ("events_lost", stats.events_lost),
                ("chunk_bytes", stats.chunk_bytes),
            ],
            divergence_bound: [stats.divergence_bound, stats.divergence_bound_max]
                .map(|bound| bound.min(f64::MAX)),
            ..Self::default()
        }
    }

    pub(super) fn of_replica(replica: &Replica, job: JobId, stats: &ReplicaJobStats) -> Self {
        let view = replica.model(job);
        Self {
            job: job.0,
            role: "replica",
            version: view.map_or(0, |view| view.version.0),
            next_order: view.map_or(0, |view| view.next_order.0),
            counters: vec![
                ("groups_applied", stats.groups_applied),
                ("commits", stats.commits),
                ("voids", stats.voids),
                ("chunks_copied", stats.chunks_copied),
                ("chunks_repaired", stats.chunks_repaired),
                ("replica_repair_bytes", stats.replica_repair_bytes),
                ("copy_bytes", stats.copy_bytes),
                ("duplicates", stats.duplicates),
                ("copies_unusable", stats.copies_unusable),
                ("questions_repeated", stats.questions_repeated),
                ("snapshots", stats.snapshots),
                ("snapshot_chunks", stats.snapshot_chunks),
                ("lag", stats.lag),
                ("lag_max", stats.lag_max),
                ("events_lost", stats.events_lost),
            ],
            ..Self::default()
        }
    }
}

pub(super) fn write_text(out: &mut String, models: &[ModelReport]) -> fmt::Result {
    for model in models {
        writeln!(
            out,
            "  {} {} ({}): version: {}  next order: {}",
            model.role, model.job, model.name, model.version, model.next_order
        )?;
        let seen = model.counters.iter().filter(|(_, count)| *count > 0);
        let seen: Vec<_> =
            seen.map(|(name, count)| format!("{}: {count}", name.replace('_', " "))).collect();
        writeln!(out, "    {}", if seen.is_empty() { "none".to_owned() } else { seen.join("  ") })?;
    }
    Ok(())
}

pub(super) fn write_metrics(out: &mut String, models: &[ModelReport]) -> fmt::Result {
    for model in models {
        let job = label(&model.name);
        for (counter, value) in &model.counters {
            let name = format!("weft_{}_{counter}", model.role);
            head(out, &name, "gauge", "Figures of a job's model, as they stand")?;
            writeln!(out, "{name}{{job={job}}} {value}")?;
        }
        let name = format!("weft_{}_version", model.role);
        head(out, &name, "gauge", "Version of the model")?;
        writeln!(out, "{name}{{job={job}}} {}", model.version)?;
        if model.role == "server" {
            let name = "weft_server_divergence_bound";
            head(out, name, "gauge", "Bound of the distance to the replica")?;
            writeln!(out, "{name}{{job={job}}} {}", model.divergence_bound[0])?;
        }
    }
    Ok(())
}
