//! Decides what several runs of one scenario say together: policies beside each other. No I/O.
//!
//! Each figure of a run is one sample; over seeds come its median and the 95 % interval of its mean
//! (Student's t). A policy's 99th percentile is that of the commit times of all its runs together.

use serde::{Deserialize, Serialize};

use super::histogram::Quantiles;
use super::{RunFiles, Verdict};

/// One policy over all its runs, as JSON and CSV have it. Outside scripts read these names. What no
/// run has is null.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct CompareRow {
    /// The policy.
    pub policy: String,
    /// Its runs, those that were broken off among them.
    pub runs: u64,
    /// Those with verdict ok.
    pub runs_ok: u64,
    /// Median over the runs of the mean time from handing an update over to its commit.
    pub mean_commit_ns: Option<f64>,
    /// The mean over the runs of the same.
    pub mean_commit_mean_ns: Option<f64>,
    /// Half of that mean's 95 % interval.
    pub mean_commit_half_interval_95_ns: Option<f64>,
    /// 99th percentile of the time to commit, over all updates of all runs.
    pub p99_ns: Option<u64>,
    /// Median of the updates in the model per second.
    pub commits_per_second: Option<f64>,
    /// Median of the mean delays of committed updates.
    pub delay_mean: Option<f64>,
    /// Largest delay.
    pub delay_max: u64,
    /// Updates dropped, all runs together.
    pub dropped: u64,
    /// Updates given up as void, all runs together.
    pub voided: u64,
    /// Plans that the policy failed to make, so that the default one made them, all runs together.
    pub policy_failures: u64,
    /// The held-out loss that is the target.
    pub target_loss: Option<f64>,
    /// Median of the seconds to the target loss; this and what follows of it is null unless every
    /// run reached it.
    pub time_to_loss_s: Option<f64>,
    /// The least of the runs.
    pub time_to_loss_min_s: Option<f64>,
    /// The most of the runs.
    pub time_to_loss_max_s: Option<f64>,
    /// The mean over the runs.
    pub time_to_loss_mean_s: Option<f64>,
    /// Half of that mean's 95 % interval.
    pub time_to_loss_half_interval_95_s: Option<f64>,
    /// Runs that did not reach it, those that were broken off among them.
    pub runs_without_loss: u64,
    /// Median of the held-out loss at the end.
    pub final_loss: Option<f64>,
    /// Median of the bytes that the server sent and received.
    pub server_bytes: Option<f64>,
    /// The bottlenecks of its runs, the most frequent first, joined by `+`.
    pub bottleneck: String,
    /// The evidence of the first run that has one.
    pub bottleneck_evidence: String,
    /// Why runs were broken off, joined by `; `; empty if none was.
    pub error: String,
}

impl From<&PolicyRow> for CompareRow {
    fn from(row: &PolicyRow) -> Self {
        let median = |spread: &Spread| (spread.count > 0).then_some(spread.median);
        let mean = |spread: &Spread| (spread.count > 0).then_some(spread.mean);
        // The runs that were fast enough are not all runs.
        let to_loss = Some(&row.time_to_loss_s).filter(|_| row.runs_without_loss == 0);
        Self {
            policy: row.policy.clone(),
            runs: row.runs,
            runs_ok: row.runs_ok,
            mean_commit_ns: median(&row.mean_commit_ns),
            mean_commit_mean_ns: mean(&row.mean_commit_ns),
            mean_commit_half_interval_95_ns: row.mean_commit_ns.half_interval_95,
            p99_ns: row.p99_commit_ns,
            commits_per_second: median(&row.commits_per_second),
            delay_mean: median(&row.delay_mean),
            delay_max: row.delay_max,
            dropped: row.dropped,
            voided: row.voided,
            policy_failures: row.policy_failures,
            target_loss: row.target_loss,
            time_to_loss_s: to_loss.and_then(median),
            time_to_loss_min_s: to_loss.and_then(|spread| spread.range).map(|range| range[0]),
            time_to_loss_max_s: to_loss.and_then(|spread| spread.range).map(|range| range[1]),
            time_to_loss_mean_s: to_loss.and_then(mean),
            time_to_loss_half_interval_95_s: to_loss.and_then(|spread| spread.half_interval_95),
            runs_without_loss: row.runs_without_loss,
            final_loss: median(&row.final_loss),
            server_bytes: median(&row.server_bytes),
            bottleneck: row.bottlenecks.join("+"),
            bottleneck_evidence: row.bottleneck_evidence.clone(),
            error: row.errors.join("; "),
        }
    }
}

/// One policy over all its runs.
#[derive(Clone, Debug, PartialEq)]
pub struct PolicyRow {
    /// The policy.
    pub policy: String,
    /// Its runs, those that were broken off among them.
    pub runs: u64,
    /// Those with verdict ok.
    pub runs_ok: u64,
    /// Mean time to commit of each run, in ns.
    pub mean_commit_ns: Spread,
    /// 99th percentile of the time to commit, over all updates of all runs, in ns.
    pub p99_commit_ns: Option<u64>,
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
    /// Plans that the policy failed to make, all runs together.
    pub policy_failures: u64,
    /// The held-out loss that is the target.
    pub target_loss: Option<f64>,
    /// Seconds to the target loss, of the runs that reached it.
    pub time_to_loss_s: Spread,
    /// Runs that did not reach it, those that were broken off among them.
    pub runs_without_loss: u64,
    /// Held-out loss at the end.
    pub final_loss: Spread,
    /// Bytes that the server sent and received.
    pub server_bytes: Spread,
    /// The bottlenecks of its runs, the most frequent first.
    pub bottlenecks: Vec<String>,
    /// The evidence of the first run that has one.
    pub bottleneck_evidence: String,
    /// Why runs were broken off.
    pub errors: Vec<String>,
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
    /// The least and the most; absent without runs.
    pub range: Option<[f64; 2]>,
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
        let range = Some([sorted[0], sorted[count - 1]]);
        Self { count: count as u64, median, mean, range, half_interval_95 }
    }
}

/// A run that is over: its files, or why it was broken off.
pub type Ended = Result<RunFiles, String>;

/// Condenses the runs of each policy, in the order in which the policies first come.
#[must_use]
pub fn compare(runs: &[(String, Ended)]) -> Vec<PolicyRow> {
    let mut policies: Vec<&str> = Vec::new();
    for (policy, _) in runs {
        if !policies.contains(&policy.as_str()) {
            policies.push(policy);
        }
    }
    policies
        .into_iter()
        .map(|policy| {
            let own = || runs.iter().filter(|(name, _)| name == policy).map(|(_, ended)| ended);
            let files: Vec<&RunFiles> = own().filter_map(|ended| ended.as_ref().ok()).collect();
            let errors = own().filter_map(|ended| ended.as_ref().err().cloned()).collect();
            row(policy, &files, errors)
        })
        .collect()
}

fn row(policy: &str, runs: &[&RunFiles], errors: Vec<String>) -> PolicyRow {
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
    let mut names: Vec<&str> =
        outcomes.iter().filter_map(|outcome| outcome.bottleneck.as_deref()).collect();
    names.sort_unstable();
    let mut counted: Vec<(usize, &str)> =
        names.chunk_by(|a, b| a == b).map(|same| (same.len(), same[0])).collect();
    counted.sort_by_key(|(count, _)| std::cmp::Reverse(*count));
    let time_to_loss_s = spread(&|push| push.time_to_loss_s);
    PolicyRow {
        policy: policy.to_owned(),
        runs: (runs.len() + errors.len()) as u64,
        runs_ok: outcomes.iter().filter(|outcome| outcome.verdict == Verdict::Ok).count() as u64,
        mean_commit_ns: spread(&|push| push.mean_commit_ns),
        p99_commit_ns: Quantiles::of(&times).map(|quantiles| quantiles.p99),
        commits_per_second: Spread::of(&rates),
        delay_mean: spread(&|push| push.delay_mean),
        delay_max: pushes.iter().filter_map(|push| push.delay_max).max().unwrap_or(0),
        dropped: pushes.iter().filter_map(|push| push.dropped).sum(),
        voided: pushes.iter().filter_map(|push| push.voided).sum(),
        policy_failures: pushes.iter().filter_map(|push| push.policy_failures).sum(),
        target_loss: pushes.iter().find_map(|push| push.target_loss),
        time_to_loss_s,
        runs_without_loss: (runs.len() + errors.len()) as u64 - time_to_loss_s.count,
        final_loss: spread(&|push| push.final_loss),
        server_bytes: spread(&|push| push.server_bytes.map(|bytes| bytes as f64)),
        bottlenecks: counted.iter().map(|(_, name)| (*name).to_owned()).collect(),
        bottleneck_evidence: outcomes
            .iter()
            .find_map(|outcome| outcome.bottleneck_evidence.clone())
            .unwrap_or_default(),
        errors,
    }
}

fn commits_per_second(run: &RunFiles) -> Option<f64> {
    let (first, last) = (run.commits.first()?, run.commits.last()?);
    let span_s = last.t_ns.checked_sub(first.t_ns).filter(|span| *span > 0)? as f64 / 1e9;
    Some(last.version.saturating_sub(first.version) as f64 / span_s)
}

/// Student's t for 95 %, two-sided, for 1 degree of freedom and up.
const STUDENT_95: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
    2.052, 2.048, 2.045, 2.042,
];

#[cfg(test)]
mod tests;
