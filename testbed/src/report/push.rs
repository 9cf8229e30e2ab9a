//! What a run that pushes has to tell: its outcome, and what its tables say. No I/O.

use std::collections::BTreeMap;
use std::fmt::{Display, Write as _};

use serde::{Deserialize, Serialize};

use super::histogram::Quantiles;
use super::render::{UNKNOWN, duration};
use super::{RunFiles, RunOutcome};

/// The part of an outcome that belongs to a parameter server. Outside scripts read these names.
/// Figures without evidence are null.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct PushOutcome {
    /// `async`, `sync` or `partial`.
    pub mode: String,
    /// How transfers were planned; `direct` without a controller.
    pub policy: String,
    /// Plans that the policy failed to make, so that the default one made them.
    pub policy_failures: Option<u64>,
    /// Updates in the model.
    pub updates_committed: Option<u64>,
    /// Updates that were dropped.
    pub dropped: Option<u64>,
    /// Updates that were given up after they had been void too often.
    pub voided: Option<u64>,
    /// Mean time from handing an update over to its commit at the server.
    pub mean_commit_ns: Option<f64>,
    /// 99th percentile of the same.
    pub p99_commit_ns: Option<u64>,
    /// Largest delay of a committed update.
    pub delay_max: Option<u64>,
    /// Mean delay of the committed updates.
    pub delay_mean: Option<f64>,
    /// Latency that planning adds: mean from request to grant.
    pub planning_mean_ns: Option<u64>,
    /// Latency that gates add: mean from grant to the first chunk.
    pub gating_mean_ns: Option<u64>,
    /// Share of the server's downlink that frames used while some update was handed over and its
    /// outcome not known; null where the link is not shaped.
    pub downlink_utilisation: Option<f64>,
    /// How long that was.
    pub downlink_wanted_ns: Option<u64>,
    /// Transfers into the server: mean from the first PULL to the first chunk.
    pub transfer_wait_mean_ns: Option<u64>,
    /// Transfers into the server: mean time without a chunk before they began.
    pub transfer_idle_mean_ns: Option<u64>,
    /// Transfers into the server: mean of rate over ceiling; null without granted rates.
    pub transfer_ceiling_share: Option<f64>,
    /// Updates that went without the controller's word because it was silent.
    pub controller_fallbacks: Option<u64>,
    /// Chunks of which at least one transmission was made, once for each turn of their update.
    pub chunks_sent: Option<u64>,
    /// Of these, of updates that were dropped.
    pub chunks_dropped: Option<u64>,
    /// Of these, of updates that were void.
    pub chunks_voided: Option<u64>,
    /// Of these, of updates whose outcome is not known.
    pub chunks_undecided: Option<u64>,
    /// Whether direct, aggregated, dropped, voided and undecided chunks add up to those sent.
    pub chunks_accounted: Option<bool>,
    /// How the replica got its copies: `none`, `network`, `worker` or `chain`.
    pub replication: String,
    /// Whether the replica had the server's bits at equal order numbers; null without one.
    pub replica_identical: Option<bool>,
    /// Times that the replica took the server's place.
    #[serde(default)]
    pub promotions: u64,
    /// Whether there was a replica to the end; null when none was meant.
    pub replication_held: Option<bool>,
    /// Largest true distance of server and replica; null without one.
    pub divergence_max: Option<f64>,
    /// The bound of that distance; null when there is none.
    pub divergence_bound: Option<f64>,
    /// Bytes of Ethernet frames that the replica received.
    pub replica_bytes: Option<u64>,
    /// Bytes of Ethernet frames that the server sent and received.
    pub server_bytes: Option<u64>,
    /// Of these, sent: models, acknowledgements, and what it forwarded to the replica.
    pub server_sent_bytes: Option<u64>,
    /// From the first model to the first one whose held-out loss is at most `target_loss`, in
    /// seconds; null when there is no target or it was not reached.
    pub time_to_loss_s: Option<f64>,
    /// That loss.
    pub target_loss: Option<f64>,
    /// Held-out loss of the final model.
    pub final_loss: Option<f64>,
}

/// What the tables of a run that pushes say.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PushReport {
    /// From handing an update over until its outcome was known, of committed updates.
    pub commit_time_ns: Option<Quantiles>,
    /// How many committed updates had each delay.
    pub delays: BTreeMap<u64, u64>,
    /// How many groups of each size were committed.
    pub group_sizes: BTreeMap<u32, u64>,
    /// Updates of each outcome, by worker.
    pub outcomes: BTreeMap<u32, BTreeMap<String, u64>>,
}

impl PushReport {
    /// Reads the tables; `None` when nothing was pushed.
    #[must_use]
    pub fn new(files: &RunFiles) -> Option<Self> {
        if files.updates.is_empty() {
            return None;
        }
        let mut report = Self {
            commit_time_ns: None,
            delays: BTreeMap::new(),
            group_sizes: BTreeMap::new(),
            outcomes: BTreeMap::new(),
        };
        let mut times = Vec::new();
        for update in &files.updates {
            if let Some(delay) = update.delay {
                *report.delays.entry(delay).or_default() += 1;
                times.push(update.duration_ns);
            }
            let outcomes = report.outcomes.entry(update.rank).or_default();
            *outcomes.entry(update.outcome.clone()).or_default() += 1;
        }
        for commit in files.commits.iter().filter(|commit| commit.members > 0) {
            *report.group_sizes.entry(commit.members).or_default() += 1;
        }
        report.commit_time_ns = Quantiles::of(&times);
        Some(report)
    }
}

/// Rows of the report for people.
pub(super) fn rows(outcome: &RunOutcome, push: &PushOutcome) -> Vec<(&'static str, String)> {
    let is_all = push.chunks_accounted == Some(true);
    let accounted = if is_all { "which is all" } else { "WHICH IS NOT ALL" };
    let failures = match push.policy_failures {
        Some(0) => String::new(),
        Some(failures) => format!(", which FAILED {failures} TIMES"),
        None => ", with an unknown number of failures".to_owned(),
    };
    let mode = format!("{}, policy {}{failures}", push.mode, push.policy);
    let mut rows = vec![
        ("mode", mode),
        (
            "updates",
            format!(
                "{} committed, {} dropped, {} void",
                or_unknown(push.updates_committed),
                or_unknown(push.dropped),
                or_unknown(push.voided)
            ),
        ),
        (
            "commit",
            format!(
                "mean {}, p99 {}",
                time(push.mean_commit_ns.map(nanos)),
                time(push.p99_commit_ns)
            ),
        ),
        (
            "delay",
            format!(
                "mean {}, largest {}",
                or_unknown(push.delay_mean.map(|mean| format!("{mean:.2}"))),
                or_unknown(push.delay_max)
            ),
        ),
        (
            "latency",
            format!(
                "planning {}, gating {} per update; {} without the controller",
                time(push.planning_mean_ns),
                time(push.gating_mean_ns),
                or_unknown(push.controller_fallbacks)
            ),
        ),
        ("downlink", downlink(push)),
        (
            "turns",
            match outcome.chunks_direct.zip(outcome.chunks_aggregated) {
                Some((direct, aggregated)) => format!(
                    "{} chunks sent = {direct} direct + {aggregated} aggregated + {} dropped + {} \
                     void + {} undecided, {accounted}",
                    or_unknown(push.chunks_sent),
                    or_unknown(push.chunks_dropped),
                    or_unknown(push.chunks_voided),
                    or_unknown(push.chunks_undecided)
                ),
                None => UNKNOWN.to_owned(),
            },
        ),
        ("loss", loss(push, outcome.rounds)),
        (
            "server",
            format!(
                "{} bytes, of which {} sent",
                or_unknown(push.server_bytes),
                or_unknown(push.server_sent_bytes)
            ),
        ),
    ];
    if let Some(identical) = push.replica_identical {
        let mut text = format!(
            "{} to the server, {} bytes by {} replication",
            if identical { "identical" } else { "NOT IDENTICAL" },
            or_unknown(push.replica_bytes),
            push.replication
        );
        if let Some(distance) = push.divergence_max {
            let _ = write!(text, "; distance at most {distance:.4}");
        }
        if let Some(bound) = push.divergence_bound {
            let _ = write!(text, " of {bound}");
        }
        if push.promotions > 0 {
            text.push_str(
                "; it took the server's place, and REPLICATION WAS NOT HELD from then on",
            );
        }
        rows.push(("replica", text));
    }
    rows
}

fn or_unknown<T: Display>(figure: Option<T>) -> String {
    figure.map_or_else(|| "?".to_owned(), |figure| figure.to_string())
}

fn time(ns: Option<u64>) -> String {
    or_unknown(ns.map(duration))
}

fn downlink(push: &PushOutcome) -> String {
    let percent =
        |share: Option<f64>| or_unknown(share.map(|share| format!("{:.1}", share * 100.0)));
    format!(
        "{} % of the server's while it was wanted ({}); a transfer: {} to its first chunk, {} idle \
         before it, {} % of its ceiling",
        percent(push.downlink_utilisation),
        time(push.downlink_wanted_ns),
        time(push.transfer_wait_mean_ns),
        time(push.transfer_idle_mean_ns),
        percent(push.transfer_ceiling_share)
    )
}

fn loss(push: &PushOutcome, rounds: u64) -> String {
    let last = or_unknown(push.final_loss.map(|loss| format!("{loss:.4}"))) + " at the end";
    match (push.target_loss, push.time_to_loss_s) {
        (Some(target), Some(time)) => format!("{last}; {target} after {time:.2} s"),
        (Some(target), None) => {
            format!("{last}; {target} was not reached in the run's {rounds} rounds")
        }
        (None, _) => last,
    }
}

/// The tables for people.
pub(super) fn text(out: &mut String, report: &PushReport) {
    let _ = writeln!(out, "\ndelays of committed updates");
    bars(out, &report.delays);
    let _ = writeln!(out, "\nupdates of each committed group");
    bars(out, &report.group_sizes);
    let names = ["committed", "dropped", "void", "unknown"];
    let _ = writeln!(
        out,
        "\n{:>6}{:>12}{:>12}{:>12}{:>12}",
        "rank", names[0], names[1], names[2], names[3]
    );
    for (rank, outcomes) in &report.outcomes {
        let of = |name: &str| outcomes.get(name).copied().unwrap_or(0);
        let [a, b, c, d] = names.map(of);
        let _ = writeln!(out, "{rank:>6}{a:>12}{b:>12}{c:>12}{d:>12}");
    }
}

fn bars<K: Display>(out: &mut String, counts: &BTreeMap<K, u64>) {
    let highest = counts.values().copied().max().unwrap_or(0).max(1);
    for (value, count) in counts {
        let length = usize::try_from(count * BAR_WIDTH / highest).unwrap_or(0).max(1);
        let _ = writeln!(out, "{value:>12} {count:>7}  {}", "#".repeat(length));
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a mean of times")]
fn nanos(value: f64) -> u64 {
    value.max(0.0) as u64
}

const BAR_WIDTH: u64 = 50;
