//! Decides what several runs of one scenario say together: policies beside each other. No I/O.
//!
//! Each figure of a run is one sample; over seeds come its median and the 95 % interval of its mean
//! (Student's t). A policy's 99th percentile is that of the commit times of all its runs together.

use std::fmt::Write as _;

use serde::Serialize;

use super::histogram::Quantiles;
use super::render::duration;
use super::{RunFiles, Verdict};

/// One policy over all its runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PolicyRow {
    /// The policy.
    pub policy: String,
    /// Its runs.
    pub runs: u64,
    /// Those with verdict ok.
    pub runs_ok: u64,
    /// Mean time to commit of each run, in ns.
    pub mean_commit_ns: Spread,
    /// 99th percentile of the time to commit, over all updates of all runs, in ns.
    pub p99_commit_ns: u64,
    /// Updates in the model per second.
    pub commits_per_second: Spread,
    /// Mean delay of committed updates.
    pub delay_mean: Spread,
    /// Largest delay.
    pub delay_max: u64,
    /// Updates dropped, all runs together.
    pub dropped: u64,
    /// Updates given up as void, all runs together.
    pub voided: u64,
    /// Seconds to the target loss, of the runs that reached it.
    pub time_to_loss_s: Spread,
    /// Runs that did not reach it.
    pub runs_without_loss: u64,
    /// Held-out loss at the end.
    pub final_loss: Spread,
    /// Bytes that the server sent and received.
    pub server_bytes: Spread,
    /// The bottlenecks of its runs, the most frequent first.
    pub bottlenecks: Vec<String>,
    /// The evidence of the first run.
    pub bottleneck_evidence: String,
}

/// One figure over several runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Spread {
    /// How many runs have it.
    pub count: u64,
    /// The median.
    pub median: f64,
    /// The mean.
    pub mean: f64,
    /// Half of the mean's 95 % interval; absent for fewer than two runs.
    pub half_interval_95: Option<f64>,
}

impl Spread {
    /// Condenses samples.
    #[must_use]
    pub fn of(samples: &[f64]) -> Self {
        let count = samples.len();
        if count == 0 {
            return Self::default();
        }
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        let median = f64::midpoint(sorted[(count - 1) / 2], sorted[count / 2]);
        let mean = samples.iter().sum::<f64>() / count as f64;
        let half_interval_95 = (count > 1).then(|| {
            let squares = samples.iter().map(|sample| (sample - mean).powi(2)).sum::<f64>();
            let deviation = (squares / (count - 1) as f64).sqrt();
            let quantile = STUDENT_95.get(count - 2).copied().unwrap_or(1.96);
            quantile * deviation / (count as f64).sqrt()
        });
        Self { count: count as u64, median, mean, half_interval_95 }
    }
}

/// Condenses the runs of each policy, in the order in which the policies first come.
#[must_use]
pub fn compare(runs: &[(String, RunFiles)]) -> Vec<PolicyRow> {
    let mut policies: Vec<&str> = Vec::new();
    for (policy, _) in runs {
        if !policies.contains(&policy.as_str()) {
            policies.push(policy);
        }
    }
    policies
        .into_iter()
        .map(|policy| {
            let own: Vec<&RunFiles> =
                runs.iter().filter(|(name, _)| name == policy).map(|(_, files)| files).collect();
            row(policy, &own)
        })
        .collect()
}

fn row(policy: &str, runs: &[&RunFiles]) -> PolicyRow {
    let outcomes: Vec<_> = runs.iter().filter_map(|run| run.record.outcome.as_ref()).collect();
    let pushes: Vec<_> = outcomes.iter().filter_map(|outcome| outcome.push.as_ref()).collect();
    let spread = |figure: &dyn Fn(&super::PushOutcome) -> Option<f64>| {
        Spread::of(&pushes.iter().filter_map(|push| figure(push)).collect::<Vec<_>>())
    };
    let times: Vec<u64> = runs
        .iter()
        .flat_map(|run| &run.updates)
        .filter(|update| update.committed_version.is_some())
        .map(|update| update.duration_ns)
        .collect();
    let rates: Vec<f64> = runs.iter().filter_map(|run| commits_per_second(run)).collect();
    let mut names: Vec<&str> = outcomes.iter().map(|outcome| &*outcome.bottleneck).collect();
    names.sort_unstable();
    let mut counted: Vec<(usize, &str)> =
        names.chunk_by(|a, b| a == b).map(|same| (same.len(), same[0])).collect();
    counted.sort_by_key(|(count, _)| std::cmp::Reverse(*count));
    PolicyRow {
        policy: policy.to_owned(),
        runs: runs.len() as u64,
        runs_ok: outcomes.iter().filter(|outcome| outcome.verdict == Verdict::Ok).count() as u64,
        mean_commit_ns: spread(&|push| Some(push.mean_commit_ns)),
        p99_commit_ns: Quantiles::of(&times).map_or(0, |quantiles| quantiles.p99),
        commits_per_second: Spread::of(&rates),
        delay_mean: spread(&|push| Some(push.delay_mean)),
        delay_max: pushes.iter().map(|push| push.delay_max).max().unwrap_or(0),
        dropped: pushes.iter().map(|push| push.dropped).sum(),
        voided: pushes.iter().map(|push| push.voided).sum(),
        time_to_loss_s: spread(&|push| push.time_to_loss_s),
        runs_without_loss: pushes.iter().filter(|push| push.time_to_loss_s.is_none()).count()
            as u64,
        final_loss: spread(&|push| Some(push.final_loss)),
        server_bytes: spread(&|push| Some(push.server_bytes as f64)),
        bottlenecks: counted.iter().map(|(_, name)| (*name).to_owned()).collect(),
        bottleneck_evidence: outcomes
            .first()
            .map(|outcome| outcome.bottleneck_evidence.clone())
            .unwrap_or_default(),
    }
}

fn commits_per_second(run: &RunFiles) -> Option<f64> {
    let (first, last) = (run.commits.first()?, run.commits.last()?);
    let span_s = last.t_ns.checked_sub(first.t_ns).filter(|span| *span > 0)? as f64 / 1e9;
    Some(last.version.saturating_sub(first.version) as f64 / span_s)
}

/// The table for people.
#[must_use]
pub fn compare_text(rows: &[PolicyRow]) -> String {
    let mut out = String::new();
    let head = [
        "policy",
        "runs",
        "commit, median",
        "95 % interval",
        "p99",
        "commits/s",
        "delay",
        "max",
        "dropped",
        "to loss, s",
        "95 % interval",
        "limit",
    ];
    let mut table: Vec<Vec<String>> = vec![head.iter().map(|word| (*word).to_owned()).collect()];
    for row in rows {
        let commit = &row.mean_commit_ns;
        let loss = &row.time_to_loss_s;
        let reached = if loss.count > 0 { format!("{:.2}", loss.median) } else { "-".to_owned() };
        table.push(vec![
            row.policy.clone(),
            format!("{}/{}", row.runs_ok, row.runs),
            duration(nanos(commit.median)),
            interval(commit, &|value| duration(nanos(value))),
            duration(row.p99_commit_ns),
            format!("{:.2}", row.commits_per_second.median),
            format!("{:.2}", row.delay_mean.median),
            row.delay_max.to_string(),
            row.dropped.to_string(),
            reached,
            interval(loss, &|value| format!("{value:.2}")),
            row.bottlenecks.join(", "),
        ]);
    }
    let widths: Vec<usize> = (0..head.len())
        .map(|column| table.iter().map(|row| row[column].len()).max().unwrap_or(0))
        .collect();
    for row in &table {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            let _ = write!(line, "{cell:<width$}  ");
        }
        let _ = writeln!(out, "{}", line.trim_end());
    }
    for row in rows {
        let _ = writeln!(out, "{}: {}", row.policy, row.bottleneck_evidence);
    }
    out
}

fn interval(spread: &Spread, show: &dyn Fn(f64) -> String) -> String {
    match spread.half_interval_95 {
        Some(half) => format!("{} .. {}", show(spread.mean - half), show(spread.mean + half)),
        None => "-".to_owned(),
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a time for people")]
fn nanos(value: f64) -> u64 {
    value.max(0.0) as u64
}

/// Student's t for 95 %, two-sided, for 1 degree of freedom and up.
const STUDENT_95: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
    2.052, 2.048, 2.045, 2.042,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_by_hand() {
        let spread = Spread::of(&[1.0, 2.0, 6.0]);
        assert_eq!((spread.count, spread.median, spread.mean), (3, 2.0, 3.0));
        // Deviation sqrt(7), over sqrt(3), times 4.303.
        let half = spread.half_interval_95.unwrap();
        assert!((half - 4.303 * (7.0_f64 / 3.0).sqrt()).abs() < 1e-9, "{half}");
        assert_eq!(Spread::of(&[5.0]).half_interval_95, None);
        assert_eq!(Spread::of(&[1.0, 4.0]).median, 2.5);
        assert_eq!(Spread::of(&[]).count, 0);
    }
}
