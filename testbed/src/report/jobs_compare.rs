//! Decides what runs of several jobs say of policies of bands: completion and barrier wait over the
//! jobs of each run, then their spread over the seeds, beside what the simulator says. No I/O.

use serde::{Deserialize, Serialize};

use super::Verdict;
use super::compare::Spread;
use super::jobs::{JobsOutcome, JobsRecord};
use super::table::table;

/// One policy. Outside scripts read these names; what no run has is null.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct BandsRow {
    /// The policy of bands.
    pub policy: String,
    /// Runs, and those of them that were right in every job.
    pub runs: u64,
    /// See above.
    pub runs_ok: u64,
    /// Mean completion time of a run's jobs: the mean over the runs,
    pub jct_mean_s: Option<f64>,
    /// and half of its 95 % interval.
    pub jct_half_interval_s: Option<f64>,
    /// That mean over that of the first policy.
    pub jct_ratio: Option<f64>,
    /// Largest over smallest completion time of a run's jobs, mean over the runs.
    pub jct_spread: Option<f64>,
    /// What the simulator says of the mean, mean over the seeds.
    pub predicted_jct_mean_s: Option<f64>,
    /// That over the first policy's.
    pub predicted_jct_ratio: Option<f64>,
    /// Mean wait at the barrier, over all gradients of a run: the mean over the runs,
    pub wait_mean_ms: Option<f64>,
    /// and half of its 95 % interval.
    pub wait_half_interval_ms: Option<f64>,
    /// The variance of the wait: the mean over the runs,
    pub wait_variance_ms2: Option<f64>,
    /// and half of its 95 % interval.
    pub wait_variance_half_interval_ms2: Option<f64>,
    /// 99 % waited at most so long, in the worst job: the mean over the runs.
    pub wait_p99_ms: Option<f64>,
    /// What the simulator says of the mean wait.
    pub predicted_wait_mean_ms: Option<f64>,
    /// Changes of bands, over all jobs of a run.
    pub band_changes: Option<f64>,
    /// Why a run was broken off; empty: none was.
    pub error: String,
}

/// A run of several jobs that is over, or why it was broken off.
pub type JobsEnded = Result<JobsRecord, String>;

/// Condenses the runs of each policy, in the order in which the policies first come.
#[must_use]
pub fn compare_bands(runs: &[(String, JobsEnded)]) -> Vec<BandsRow> {
    let mut policies: Vec<&str> = Vec::new();
    for (policy, _) in runs {
        if !policies.contains(&policy.as_str()) {
            policies.push(policy);
        }
    }
    let mut rows: Vec<BandsRow> = policies.into_iter().map(|policy| row(policy, runs)).collect();
    let first = rows.first().map(|row| (row.jct_mean_s, row.predicted_jct_mean_s));
    let Some((jct_s, predicted_s)) = first else { return rows };
    for row in &mut rows {
        row.jct_ratio = row.jct_mean_s.zip(jct_s).map(|(own, first)| own / first);
        let predicted = row.predicted_jct_mean_s.zip(predicted_s);
        row.predicted_jct_ratio = predicted.map(|(own, first)| own / first);
    }
    rows
}

fn row(policy: &str, runs: &[(String, JobsEnded)]) -> BandsRow {
    let own: Vec<&JobsEnded> =
        runs.iter().filter(|(of, _)| of == policy).map(|(_, ended)| ended).collect();
    let outcomes: Vec<&JobsOutcome> =
        own.iter().filter_map(|ended| ended.as_ref().ok()?.outcome.as_ref()).collect();
    let over = |of: &dyn Fn(&JobsOutcome) -> Option<f64>| -> Option<Spread> {
        let samples: Vec<f64> = outcomes.iter().filter_map(|outcome| of(outcome)).collect();
        (!samples.is_empty()).then(|| Spread::of(&samples))
    };
    let jct = over(&|outcome| mean(outcome.jobs.iter().map(|job| job.jct_s)));
    let wait = over(&|outcome| Some(waits(outcome)?.0));
    let variance = over(&|outcome| Some(waits(outcome)?.1));
    let mean_of = |spread: Option<Spread>| spread.map(|spread| spread.mean);
    let half = |spread: Option<Spread>| spread.and_then(|spread| spread.half_interval_95);
    BandsRow {
        policy: policy.to_owned(),
        runs: own.len() as u64,
        runs_ok: outcomes.iter().filter(|outcome| outcome.verdict == Verdict::Ok).count() as u64,
        jct_mean_s: mean_of(jct),
        jct_half_interval_s: half(jct),
        jct_spread: mean_of(over(&|outcome| {
            let times = || outcome.jobs.iter().map(|job| job.jct_s);
            let least = times().min_by(f64::total_cmp).filter(|least| *least > 0.0)?;
            Some(times().max_by(f64::total_cmp)? / least)
        })),
        predicted_jct_mean_s: mean_of(over(&|outcome| {
            mean(outcome.jobs.iter().filter_map(|job| job.predicted_jct_s))
        })),
        wait_mean_ms: mean_of(wait),
        wait_half_interval_ms: half(wait),
        wait_variance_ms2: mean_of(variance),
        wait_variance_half_interval_ms2: half(variance),
        wait_p99_ms: mean_of(over(&|outcome| {
            outcome.jobs.iter().filter_map(|job| job.barrier_wait_p99_ms).max_by(f64::total_cmp)
        })),
        predicted_wait_mean_ms: mean_of(over(&|outcome| {
            mean(outcome.jobs.iter().filter_map(|job| job.predicted_barrier_wait_mean_ms))
        })),
        band_changes: mean_of(over(&|outcome| {
            Some(outcome.jobs.iter().map(|job| job.band_changes as f64).sum())
        })),
        error: own.iter().find_map(|ended| ended.as_ref().err().cloned()).unwrap_or_default(),
        ..BandsRow::default()
    }
}

/// Mean and variance of the waits of all gradients of a run: the variance within the jobs, and that
/// of their means.
fn waits(outcome: &JobsOutcome) -> Option<(f64, f64)> {
    let weight = |job: &super::JobRow| job.barrier_waits as f64;
    let all: f64 = outcome.jobs.iter().map(weight).sum();
    if all <= 0.0 {
        return None;
    }
    let of = |value: &dyn Fn(&super::JobRow) -> f64| {
        outcome.jobs.iter().map(|job| weight(job) * value(job)).sum::<f64>() / all
    };
    let (own_mean, own_variance) = (
        |job: &super::JobRow| job.barrier_wait_mean_ms.unwrap_or(0.0),
        |job: &super::JobRow| job.barrier_wait_variance_ms2.unwrap_or(0.0),
    );
    let mean = of(&own_mean);
    let square = of(&|job| own_variance(job) + own_mean(job).powi(2));
    Some((mean, square - mean * mean))
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (count, sum) = values.fold((0_u32, 0.0), |(count, sum), value| (count + 1, sum + value));
    (count > 0).then(|| sum / f64::from(count))
}

/// The table for people.
#[must_use]
pub fn bands_text(rows: &[BandsRow]) -> String {
    let head = [
        "policy",
        "runs",
        "jct, mean",
        "ratio",
        "simulated",
        "ratio",
        "slowest/fastest",
        "wait, mean",
        "simulated",
        "wait, variance",
        "p99",
        "bands changed",
    ];
    let shown = |value: Option<f64>, digits: usize, unit: &str| {
        value.map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$}{unit}"))
    };
    let within = |value: Option<f64>, half: Option<f64>, digits: usize, unit: &str| {
        let half = half.map(|half| format!(" ± {half:.digits$}")).unwrap_or_default();
        value.map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$}{half}{unit}"))
    };
    let cells = |row: &BandsRow| {
        vec![
            row.policy.clone(),
            format!("{}/{}", row.runs_ok, row.runs),
            within(row.jct_mean_s, row.jct_half_interval_s, 2, " s"),
            shown(row.jct_ratio, 2, ""),
            shown(row.predicted_jct_mean_s, 2, " s"),
            shown(row.predicted_jct_ratio, 2, ""),
            shown(row.jct_spread, 2, ""),
            within(row.wait_mean_ms, row.wait_half_interval_ms, 1, " ms"),
            shown(row.predicted_wait_mean_ms, 1, " ms"),
            within(row.wait_variance_ms2, row.wait_variance_half_interval_ms2, 0, " ms2"),
            shown(row.wait_p99_ms, 1, " ms"),
            shown(row.band_changes, 1, ""),
        ]
    };
    let head = head.map(str::to_owned).to_vec();
    let lines: Vec<Vec<String>> = [head].into_iter().chain(rows.iter().map(cells)).collect();
    let mut out = table(&lines);
    for row in rows.iter().filter(|row| !row.error.is_empty()) {
        out += &format!("{}: broken off: {}\n", row.policy, row.error);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{JobRow, Machine};

    fn record(jobs: &[(f64, f64, f64)], verdict: Verdict) -> JobsEnded {
        let row = |(jct_s, wait_ms, variance): &(f64, f64, f64)| JobRow {
            jct_s: *jct_s,
            predicted_jct_s: Some(2.0 * jct_s),
            barrier_wait_mean_ms: Some(*wait_ms),
            barrier_wait_variance_ms2: Some(*variance),
            barrier_waits: 10,
            ..JobRow::default()
        };
        let jobs = jobs.iter().map(row).collect();
        let outcome = JobsOutcome { verdict, reasons: vec![], policy: None, jobs, words: vec![] };
        Ok(JobsRecord {
            name: String::new(),
            weft_version: String::new(),
            commit: String::new(),
            started_unix_s: 0,
            arguments: vec![],
            seed: 1,
            configuration: serde_json::Value::Null,
            machine: Machine::default(),
            outcome: Some(outcome),
        })
    }

    #[test]
    fn policies_are_held_against_the_first() {
        let runs = [
            ("fifo".to_owned(), record(&[(4.0, 1.0, 0.0), (4.0, 3.0, 0.0)], Verdict::Ok)),
            ("one".to_owned(), record(&[(2.0, 1.0, 5.0), (4.0, 1.0, 7.0)], Verdict::Ok)),
            ("fifo".to_owned(), record(&[(6.0, 2.0, 0.0), (6.0, 2.0, 0.0)], Verdict::Failed)),
            ("one".to_owned(), Err("it was broken off".to_owned())),
        ];
        let rows = compare_bands(&runs);
        let [fifo, one] = rows.as_slice() else { panic!("{rows:?}") };
        assert_eq!((fifo.policy.as_str(), fifo.runs, fifo.runs_ok), ("fifo", 2, 1));
        assert_eq!((fifo.jct_mean_s, fifo.jct_ratio), (Some(5.0), Some(1.0)));
        assert_eq!((one.jct_mean_s, one.jct_ratio), (Some(3.0), Some(0.6)));
        assert_eq!((one.jct_spread, one.predicted_jct_ratio), (Some(2.0), Some(0.6)));
        assert_eq!((one.runs, one.error.as_str()), (2, "it was broken off"));
        // Jobs that wait 1 and 3 on average vary by 1, whatever they vary within.
        assert_eq!((fifo.wait_mean_ms, fifo.wait_variance_ms2), (Some(2.0), Some(0.5)));
        assert_eq!((one.wait_mean_ms, one.wait_variance_ms2), (Some(1.0), Some(6.0)));
        assert!(fifo.jct_half_interval_s.is_some_and(|half| half > 1.0));
        let text = bands_text(&rows);
        assert!(text.contains("one: broken off: it was broken off"), "{text}");
    }
}
