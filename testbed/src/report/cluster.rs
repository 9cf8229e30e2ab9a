//! Decides what simulations of a cluster under several policies say together. No I/O.
//!
//! A case is a trace, a load and a seed; every policy has had every case. Figures of cases are
//! samples: over them come a median and the 95 % interval of the mean (Student's t). Policies are
//! compared case by case with the first one: a difference is the time of one over the other's in
//! the same case, less 1, so that long cases weigh no more than short ones.

use serde::Serialize;

use super::Spread;

/// What one policy came to in one case.
#[derive(Clone, Debug, PartialEq)]
pub struct ClusterSample {
    /// The trace's name.
    pub trace: String,
    /// GPU time asked for over what the cluster has.
    pub load: f64,
    /// The seed of arrivals.
    pub seed: u64,
    /// The policy.
    pub policy: String,
    /// Mean completion time, in seconds.
    pub avg_jct_s: f64,
    /// 95 % of the jobs took no longer, in seconds.
    pub p95_jct_s: f64,
    /// The last end, in seconds.
    pub makespan_s: f64,
    /// GPU time that was asked for over what there was until then.
    pub utilisation: f64,
    /// Stops of all jobs.
    pub preemptions: u64,
}

/// One policy over all seeds of a trace and a load, or over all cases. Outside scripts read these
/// names.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ClusterRow {
    /// The trace; `all` in the rows over all cases.
    pub trace: String,
    /// The load; null in the rows over all cases.
    pub load: Option<f64>,
    /// The policy.
    pub policy: String,
    /// Cases.
    pub cases: u64,
    /// Median of the mean completion times.
    pub avg_jct_median_s: f64,
    /// Their mean.
    pub avg_jct_mean_s: f64,
    /// Half of that mean's 95 % interval; null for a single case.
    pub avg_jct_half_interval_95_s: Option<f64>,
    /// Median of the 95th percentiles.
    pub p95_jct_median_s: f64,
    /// Median of the utilisations.
    pub utilisation_median: f64,
    /// Median of the makespans.
    pub makespan_median_s: f64,
    /// Median of the counts of stops.
    pub preemptions_median: f64,
    /// Mean over the cases of the mean completion time over the first policy's, less 1.
    pub difference_mean: f64,
    /// Half of that mean's 95 % interval; null for a single case.
    pub difference_half_interval_95: Option<f64>,
    /// Cases in which it was faster than the first policy.
    pub faster: u64,
}

/// The rows of every trace and load, in the order in which they first come, then those over all.
#[must_use]
pub fn cluster_rows(samples: &[ClusterSample]) -> Vec<ClusterRow> {
    let mut policies: Vec<&str> = Vec::new();
    let mut settings: Vec<(&str, f64)> = Vec::new();
    for sample in samples {
        if !policies.contains(&sample.policy.as_str()) {
            policies.push(&sample.policy);
        }
        if !settings.contains(&(&sample.trace, sample.load)) {
            settings.push((&sample.trace, sample.load));
        }
    }
    let Some(first) = policies.first() else { return Vec::new() };
    let mut rows = Vec::new();
    for (trace, load) in settings {
        let of: Vec<_> = samples.iter().filter(|s| s.trace == trace && s.load == load).collect();
        let row = |policy: &&str| row((trace, Some(load)), (first, policy), &of);
        rows.extend(policies.iter().map(row));
    }
    let all: Vec<_> = samples.iter().collect();
    rows.extend(policies.iter().map(|policy| row(("all", None), (first, policy), &all)));
    rows
}

fn row(
    (trace, load): (&str, Option<f64>),
    (first, policy): (&str, &str),
    samples: &[&ClusterSample],
) -> ClusterRow {
    let of = |policy: &str| -> Vec<&ClusterSample> {
        samples.iter().copied().filter(|sample| sample.policy == policy).collect()
    };
    let own = of(policy);
    let spread = |figure: &dyn Fn(&ClusterSample) -> f64| {
        Spread::of(&own.iter().map(|sample| figure(sample)).collect::<Vec<_>>())
    };
    let case = |sample: &ClusterSample| (sample.trace.clone(), sample.load.to_bits(), sample.seed);
    let differences: Vec<f64> = of(first)
        .iter()
        .filter_map(|base| {
            let same = own.iter().find(|sample| case(sample) == case(base))?;
            Some(same.avg_jct_s / base.avg_jct_s - 1.0)
        })
        .collect();
    let difference = Spread::of(&differences);
    let avg_jct_s = spread(&|sample| sample.avg_jct_s);
    ClusterRow {
        trace: trace.to_owned(),
        load,
        policy: policy.to_owned(),
        cases: avg_jct_s.count,
        avg_jct_median_s: avg_jct_s.median,
        avg_jct_mean_s: avg_jct_s.mean,
        avg_jct_half_interval_95_s: avg_jct_s.half_interval_95,
        p95_jct_median_s: spread(&|sample| sample.p95_jct_s).median,
        utilisation_median: spread(&|sample| sample.utilisation).median,
        makespan_median_s: spread(&|sample| sample.makespan_s).median,
        preemptions_median: spread(&|sample| sample.preemptions as f64).median,
        difference_mean: difference.mean,
        difference_half_interval_95: difference.half_interval_95,
        faster: differences.iter().filter(|difference| **difference < 0.0).count() as u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(policy: &str, load: f64, seed: u64, avg_jct_s: f64) -> ClusterSample {
        ClusterSample {
            trace: "t".to_owned(),
            load,
            seed,
            policy: policy.to_owned(),
            avg_jct_s,
            p95_jct_s: 2.0 * avg_jct_s,
            makespan_s: 100.0,
            utilisation: 0.5,
            preemptions: seed,
        }
    }

    #[test]
    fn differences_are_taken_case_by_case() {
        let samples = [
            sample("fifo", 0.5, 1, 100.0),
            sample("las", 0.5, 1, 50.0),
            sample("fifo", 0.5, 2, 1_000.0),
            sample("las", 0.5, 2, 700.0),
            sample("fifo", 1.0, 1, 10.0),
            sample("las", 1.0, 1, 11.0),
        ];
        let rows = cluster_rows(&samples);
        let find = |load: Option<f64>, policy: &str| {
            rows.iter().find(|row| row.load == load && row.policy == policy).unwrap()
        };
        let half = find(Some(0.5), "las");
        assert_eq!((half.cases, half.faster, half.avg_jct_median_s), (2, 2, 375.0));
        // -0.5 and -0.3: the means of times would say -0.32.
        assert!((half.difference_mean + 0.4).abs() < 1e-12);
        // 12.706 x 0.1414 / sqrt(2).
        assert!((half.difference_half_interval_95.unwrap() - 1.2706).abs() < 1e-9);
        assert_eq!(find(Some(1.0), "las").difference_half_interval_95, None);
        let all = find(None, "las");
        assert_eq!((all.trace.as_str(), all.cases, all.faster), ("all", 3, 2));
        assert!((all.difference_mean - (-0.5 - 0.3 + 0.1) / 3.0).abs() < 1e-12);
        assert_eq!(find(None, "fifo").difference_mean, 0.0);
        assert_eq!(cluster_rows(&[]), []);
    }
}
