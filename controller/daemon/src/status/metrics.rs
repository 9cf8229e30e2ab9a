//! Prometheus' text form. Names are a contract; bounded labels only: job, host, node, field,
//! reason, band.

use std::fmt::Write;

use weft_control::JobState;
use weft_control::figures::{BandFigures, DROP_OTHER, DropReason, QUEUES};
use weft_controller_engine::{HostStatus, JobStatus, NodeStatus};
use weft_process::metrics::{head, label as quoted};

use crate::core::Snapshot;

type Row<T, V> = (&'static str, &'static str, &'static str, fn(&T) -> V);

const JOBS: &[Row<JobStatus, f64>] = &[
    ("weft_updates_requested_total", "counter", "Updates asked for.", |j| {
        j.counters.requested as f64
    }),
    ("weft_updates_granted_total", "counter", "Updates granted.", |j| j.counters.granted as f64),
    ("weft_updates_aggregated_total", "counter", "Granted through an aggregator.", |j| {
        j.counters.aggregated as f64
    }),
    ("weft_updates_committed_total", "counter", "Updates in the model.", |j| {
        j.counters.committed as f64
    }),
    ("weft_updates_void_total", "counter", "Granted and not in the model.", |j| {
        j.counters.voided as f64
    }),
    ("weft_updates_dropped_total", "counter", "Dropped by a plan, or for their age.", |j| {
        j.counters.dropped as f64
    }),
    ("weft_updates_unreachable_total", "counter", "Dropped, for their boxes refused them.", |j| {
        j.counters.unreachable as f64
    }),
    ("weft_installs_refused_total", "counter", "Groups that a box refused.", |j| {
        j.counters.installs_refused as f64
    }),
    ("weft_updates_cancelled_total", "counter", "Taken back, or lost with their worker.", |j| {
        j.counters.cancelled as f64
    }),
    ("weft_updates_unknown_total", "counter", "Ended while no controller listened.", |j| {
        j.counters.unknown as f64
    }),
    ("weft_granted_bytes_total", "counter", "Bytes granted.", |j| j.counters.granted_bytes as f64),
    ("weft_grant_seconds_total", "counter", "Time from request to grant, summed.", |j| {
        j.counters.grant_sum_ns as f64 / 1e9
    }),
    ("weft_commit_seconds_total", "counter", "Time from request to commit, summed.", |j| {
        j.counters.commit_sum_ns as f64 / 1e9
    }),
    ("weft_replans_failure_total", "counter", "Plans made anew for a failure.", |j| {
        j.counters.replans_failure as f64
    }),
    (
        "weft_replans_words_total",
        "counter",
        "Plans made anew for a pause, a resume, an end.",
        |j| j.counters.replans_words as f64,
    ),
    ("weft_replans_bands_total", "counter", "Plans made anew for a change of bands.", |j| {
        j.counters.replans_bands as f64
    }),
    ("weft_replans_late_total", "counter", "Plans made anew for a late transfer.", |j| {
        j.counters.replans_late as f64
    }),
    ("weft_replans_bandwidth_total", "counter", "Plans made anew for a link's change.", |j| {
        j.counters.replans_bandwidth as f64
    }),
    ("weft_policy_failures_total", "counter", "Plans that the default policy made instead.", |j| {
        j.counters.policy_failures as f64
    }),
    ("weft_model_version", "gauge", "Updates in the model.", |j| j.version as f64),
    ("weft_next_order", "gauge", "The next order number.", |j| j.next_order as f64),
    ("weft_updates_pending", "gauge", "Asked for and not granted.", |j| j.pending as f64),
    ("weft_updates_in_flight", "gauge", "Granted and not decided.", |j| j.in_flight as f64),
    ("weft_delay_max", "gauge", "Largest delay of a commit, in versions.", |j| {
        j.counters.delay_max as f64
    }),
    ("weft_server_attached", "gauge", "1 while the server listens.", |j| {
        f64::from(j.is_server_attached)
    }),
    ("weft_divergence_bound", "gauge", "Bound of server minus replica; 0 without one.", |j| {
        j.replica.map_or(0.0, |replica| replica.divergence_bound)
    }),
    ("weft_divergence_held", "gauge", "1 while the bound is held, or no replica was meant.", |j| {
        f64::from(!j.is_replica_lost && j.replica.is_none_or(|replica| replica.is_held))
    }),
    ("weft_replica_fit", "gauge", "1 while a replica could take its server's place.", |j| {
        f64::from(j.replica.is_some_and(|replica| replica.is_fit))
    }),
    ("weft_promotions_total", "counter", "Servers replaced by their replica.", |j| {
        j.counters.promotions as f64
    }),
    ("weft_job_paused", "gauge", "1 while a job is paused or about to be.", |j| {
        f64::from(matches!(j.state, JobState::Pausing | JobState::Paused))
    }),
    ("weft_pauses_total", "counter", "Pauses that came to a standstill.", |j| {
        j.pauses.pauses as f64
    }),
    ("weft_standstill_max_seconds", "gauge", "Longest way from a pause to a standstill.", |j| {
        j.pauses.standstill_max_ns as f64 / 1e9
    }),
    ("weft_server_epoch", "gauge", "Servers that the job had before this one.", |j| {
        f64::from(j.epoch)
    }),
];

const HOSTS: &[Row<HostStatus, f64>] = &[
    ("weft_host_up_bytes_per_second", "gauge", "What a host can send.", |h| {
        h.up_bytes_per_sec as f64
    }),
    ("weft_host_down_bytes_per_second", "gauge", "What a host can receive.", |h| {
        h.down_bytes_per_sec as f64
    }),
    ("weft_host_confidence_ratio", "gauge", "How sure that is.", |h| h.confidence),
    ("weft_host_probe_up_bytes_total", "counter", "Probe trains over a host's uplink.", |h| {
        h.probe_up_bytes as f64
    }),
    ("weft_host_probe_down_bytes_total", "counter", "Probe trains over a host's downlink.", |h| {
        h.probe_down_bytes as f64
    }),
];

const NODES: &[Row<NodeStatus, f64>] = &[
    ("weft_node_attached", "gauge", "1 while the box has a stream.", |n| f64::from(n.is_attached)),
    ("weft_node_events_total", "counter", "Events taken from a box.", |n| n.events as f64),
    ("weft_node_commands_total", "counter", "Commands given to a box.", |n| n.commands as f64),
];

/// The figures as Prometheus reads them.
#[must_use]
pub fn write_metrics(snapshot: &Snapshot) -> String {
    let mut text = String::new();
    let status = &snapshot.status;
    rows(&mut text, JOBS, &status.jobs, "job", |job| &job.name);
    rows(&mut text, HOSTS, &status.hosts, "host", |host| &host.name);
    rows(&mut text, NODES, &status.nodes, "node", |node| &node.name);
    figures(&mut text, &status.nodes);
    let plain = [
        ("weft_plans_total", "counter", "Plans computed.", status.plans as f64),
        (
            "weft_trains_total",
            "counter",
            "Trains that links were estimated from.",
            status.trains as f64,
        ),
        ("weft_probes_total", "counter", "Probe trains over idle links.", status.probes as f64),
        (
            "weft_samples_refused_total",
            "counter",
            "Trains, transfers and counters that showed nothing.",
            status.samples_refused as f64,
        ),
        ("weft_plan_last_seconds", "gauge", "The last plan.", snapshot.plan_last_ns as f64 / 1e9),
        ("weft_plan_max_seconds", "gauge", "The longest plan.", snapshot.plan_max_ns as f64 / 1e9),
        ("weft_slow_peers_total", "counter", "Streams ended unread.", snapshot.slow_peers as f64),
        (
            "weft_save_failures_total",
            "counter",
            "Times that the state file could not be written.",
            snapshot.save_failures as f64,
        ),
        (
            "weft_connections_refused_total",
            "counter",
            "Connections without a certificate that is accepted.",
            snapshot.connections_refused as f64,
        ),
        (
            "weft_calls_refused_total",
            "counter",
            "Calls that the caller's role may not make.",
            snapshot.calls_refused as f64,
        ),
    ];
    for (name, kind, help, value) in plain {
        let _ = head(&mut text, name, kind, help);
        // Writing to a string does not fail.
        let _ = writeln!(text, "{name} {value}");
    }
    let _ =
        head(&mut text, "weft_messages_refused_total", "counter", "Messages refused, by field.");
    for (field, count) in &status.refused {
        let _ = writeln!(text, "weft_messages_refused_total{{field=\"{field}\"}} {count}");
    }
    text
}

/// What boxes have counted, of all reasons and of all queues.
fn figures(text: &mut String, nodes: &[NodeStatus]) {
    let lost: [Row<NodeStatus, f64>; 2] = [
        (
            "weft_node_rx_dropped_total",
            "counter",
            "Frames that a box's port had no room for.",
            |n| n.figures.rx_dropped as f64,
        ),
        ("weft_node_tx_dropped_total", "counter", "Frames that a box could not send.", |n| {
            n.figures.tx_dropped as f64
        }),
    ];
    rows(text, &lost, nodes, "node", |node| &node.name);
    let _ = head(text, "weft_node_drops_total", "counter", "Frames that a box refused.");
    for node in nodes {
        let drops = DropReason::ALL.iter().map(|(_, name)| *name).zip(node.figures.drops);
        for (reason, frames) in drops.chain([(DROP_OTHER, node.figures.drops_other)]) {
            let whose = quoted(&node.name);
            let _ = writeln!(
                text,
                "weft_node_drops_total{{node={whose},reason=\"{reason}\"}} {frames}"
            );
        }
    }
    let bands: [Row<BandFigures, f64>; 8] = [
        ("sent_total", "counter", "Frames of a band that left a box's port.", |b| b.sent as f64),
        ("sent_bytes_total", "counter", "Bytes of them.", |b| b.sent_bytes as f64),
        ("full_total", "counter", "Frames lost because their band's queue was full.", |b| {
            b.full as f64
        }),
        ("aged_total", "counter", "Frames sent before better bands for their age.", |b| {
            b.aged as f64
        }),
        ("wait_max_seconds", "gauge", "The longest that a frame waited.", |b| {
            b.wait_max_ns as f64 / 1e9
        }),
        ("waiting", "gauge", "Frames that wait.", |b| b.waiting as f64),
        ("waiting_bytes", "gauge", "Bytes that wait.", |b| b.waiting_bytes as f64),
        ("oldest_seconds", "gauge", "How long the oldest frame has waited.", |b| {
            b.oldest_ns as f64 / 1e9
        }),
    ];
    for (name, kind, help, value) in bands {
        let name = format!("weft_node_band_{name}");
        let _ = head(text, &name, kind, help);
        for node in nodes {
            let whose = quoted(&node.name);
            for (queue, band) in QUEUES.iter().zip(node.figures.bands.iter().flatten()) {
                let value = value(band);
                let _ = writeln!(text, "{name}{{node={whose},band=\"{queue}\"}} {value}");
            }
        }
    }
}

fn rows<T>(
    text: &mut String,
    rows: &[Row<T, f64>],
    of: &[T],
    label: &str,
    name_of: fn(&T) -> &String,
) {
    for (name, kind, help, value) in rows {
        let _ = head(text, name, kind, help);
        for one in of {
            let whose = quoted(name_of(one));
            let _ = writeln!(text, "{name}{{{label}={whose}}} {}", value(one));
        }
    }
}
