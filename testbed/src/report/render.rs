//! Draws a report as text, and as a flat list of metrics for CSV. No I/O.

use std::fmt::Write as _;

use serde::Serialize;

use super::histogram::{Bin, Quantiles, bins};
use super::{Report, RunOutcome, push, surroundings};

/// The report for people.
#[must_use]
pub fn text(report: &Report) -> String {
    let mut out = String::new();
    outcome(&mut out, report);
    if let Some(quantiles) = &report.round_time_ns {
        let _ = writeln!(out, "\nround times, {} rounds: {}", quantiles.count, spread(quantiles));
        histogram(&mut out, &bins(&report.round_times_ns));
    }
    if let Some(updates) = &report.updates {
        push::text(&mut out, updates);
    }
    if !report.stragglers.is_empty() {
        let _ = writeln!(out, "\nstraggler lag behind the first worker of each round");
        let _ = writeln!(out, "{:>6}{:>12}{:>12}{:>12}{:>12}", "rank", "p50", "p99", "max", "last");
        for row in &report.stragglers {
            let lag = &row.lag_ns;
            let [p50, p99, max] = [lag.p50, lag.p99, lag.max].map(duration);
            let (rank, last) = (row.rank, row.rounds_last);
            let _ = writeln!(out, "{rank:>6}{p50:>12}{p99:>12}{max:>12}{last:>12}");
        }
    }
    let events = report.recorded.counts();
    if !events.is_empty() {
        let _ = writeln!(out, "\nevents");
        for (event, count) in events {
            let _ = writeln!(out, "{count:>8}  {event}");
        }
    }
    machine(&mut out, report);
    out
}

/// One value of a report.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Metric {
    /// Its name, as in JSON; quantiles and ranks are part of it.
    pub metric: String,
    /// Its value.
    pub value: String,
}

/// The report as rows of name and value.
#[must_use]
pub fn metrics(report: &Report) -> Vec<Metric> {
    let value = serde_json::to_value(report).unwrap_or_default();
    let mut rows = Vec::new();
    flatten("", &value, &mut rows);
    rows
}

fn flatten(name: &str, value: &serde_json::Value, rows: &mut Vec<Metric>) {
    let join = |key: &str| if name.is_empty() { key.to_owned() } else { format!("{name}.{key}") };
    match value {
        serde_json::Value::Object(map) => {
            map.iter().for_each(|(key, value)| flatten(&join(key), value, rows));
        }
        serde_json::Value::Array(list) => {
            let numbered = list.iter().enumerate();
            numbered.for_each(|(index, value)| flatten(&join(&index.to_string()), value, rows));
        }
        serde_json::Value::String(text) => {
            rows.push(Metric { metric: name.to_owned(), value: text.clone() });
        }
        other => rows.push(Metric { metric: name.to_owned(), value: other.to_string() }),
    }
}

fn outcome(out: &mut String, report: &Report) {
    let Some(outcome) = &report.outcome else {
        let _ = writeln!(out, "verdict   none: the run did not end");
        return;
    };
    let _ = writeln!(out, "verdict   {}", outcome.verdict.for_people());
    for reason in &outcome.reasons {
        let _ = writeln!(out, "          {reason}");
    }
    let io = if outcome.io == outcome.io_requested {
        outcome.io.clone()
    } else {
        format!("{} (asked for {})", outcome.io, outcome.io_requested)
    };
    let io = match outcome.worker_io.as_str() {
        "af_packet" => format!("{io}, workers over af_packet"),
        "udp_multicast" | "shm" => {
            match outcome.chunks_by_multicast.zip(outcome.chunks_aggregated) {
                Some((cast, all)) => {
                    format!("{io}, {cast} of {all} chunks of workers by multicast")
                }
                None => format!("{io}, workers over {}", outcome.worker_io),
            }
        }
        _ => io,
    };
    let mut rows = vec![
        ("name", report.name.clone()),
        ("io", io),
        (
            "rounds",
            match outcome.rounds_per_second {
                Some(rate) => format!("{}, {rate:.1} per second", outcome.rounds),
                None => outcome.rounds.to_string(),
            },
        ),
        (
            "accuracy",
            or(outcome.accuracy.map(|share| format!("{share:.4} on held-out images")), "unknown"),
        ),
        ("model", or(model(outcome), NOT_COMPARED)),
        (
            "sums",
            or(outcome.wrong_sums.map(|wrong| format!("{wrong} elements wrong")), NOT_COMPARED),
        ),
        ("chunks", or(chunks(outcome), UNKNOWN)),
        (
            "repeats",
            format!(
                "{} retransmissions, {} duplicates dropped",
                or(outcome.retransmissions.map(|count| count.to_string()), "unknown"),
                or(outcome.duplicates_dropped.map(|count| count.to_string()), "unknown")
            ),
        ),
        (
            "limit",
            match (&outcome.bottleneck, &outcome.bottleneck_evidence) {
                (Some(name), Some(evidence)) => format!("{name}: {evidence}"),
                _ => "unknown: the run did not come to its end".to_owned(),
            },
        ),
        ("seed", outcome.seed.to_string()),
    ];
    if let Some(outcome_of_push) = &outcome.push {
        rows.extend(push::rows(outcome, outcome_of_push));
    }
    for (name, value) in rows {
        let _ = writeln!(out, "{name:<10}{value}");
    }
    surroundings::text(out, &outcome.surroundings);
}

/// A figure, or why there is none.
fn or(figure: Option<String>, instead: &str) -> String {
    figure.unwrap_or_else(|| instead.to_owned())
}

fn model(outcome: &RunOutcome) -> Option<String> {
    let same = if outcome.model_identical? { "identical to" } else { "DIFFERS from" };
    Some(format!("{} {same} the reference", outcome.model_sha256.as_deref()?))
}

fn chunks(outcome: &RunOutcome) -> Option<String> {
    let (aggregated, direct) = outcome.chunks_aggregated.zip(outcome.chunks_direct)?;
    let share = 100.0 * outcome.aggregated_share().unwrap_or(0.0);
    Some(format!("{aggregated} aggregated ({share:.2} %), {direct} direct"))
}

fn histogram(out: &mut String, bins: &[Bin]) {
    let highest = bins.iter().map(|bin| bin.count).max().unwrap_or(0).max(1);
    for bin in bins {
        let length = usize::try_from(bin.count * BAR_WIDTH / highest).unwrap_or(0);
        // A bin that holds anything shows it.
        let bar = "#".repeat(length.max(usize::from(bin.count > 0)));
        let sign = if bin.high.is_some() { " " } else { "+" };
        let line = format!("{:>12}{sign} {:>7}  {bar}", duration(bin.low), bin.count);
        let _ = writeln!(out, "{}", line.trim_end());
    }
}

fn machine(out: &mut String, report: &Report) {
    let machine = &report.machine;
    let dpdk = machine.dpdk.as_deref().unwrap_or("none");
    let nics = if machine.nics.is_empty() { "none".to_owned() } else { machine.nics.join(", ") };
    let [one, five, fifteen] = machine.load_average;
    let _ = writeln!(
        out,
        "\n{} x {}, Linux {}, DPDK {dpdk}, NIC {nics}, load {one:.2} {five:.2} {fifteen:.2}",
        machine.cpus, machine.cpu, machine.kernel
    );
    let _ = writeln!(out, "weft {} commit {}", report.weft_version, report.commit);
    let _ = writeln!(out, "{}", report.arguments.join(" "));
}

fn spread(quantiles: &Quantiles) -> String {
    let [p50, p90, p99, max] =
        [quantiles.p50, quantiles.p90, quantiles.p99, quantiles.max].map(duration);
    format!("p50 {p50}, p90 {p90}, p99 {p99}, max {max}")
}

/// A time with its unit and at most four digits that matter.
#[must_use]
pub fn duration(ns: u64) -> String {
    let (scale, unit) = match ns {
        0..1_000 => return format!("{ns} ns"),
        1_000..1_000_000 => (1e3, "us"),
        1_000_000..1_000_000_000 => (1e6, "ms"),
        _ => (1e9, "s"),
    };
    let value = ns as f64 / scale;
    let digits = if value < 10.0 {
        3
    } else if value < 100.0 {
        2
    } else {
        1
    };
    format!("{value:.digits$} {unit}")
}

const BAR_WIDTH: u64 = 50;
/// Of what a run that failed did not come to.
const NOT_COMPARED: &str = "not compared";
pub(super) const UNKNOWN: &str = "unknown: no worker came to its end";
