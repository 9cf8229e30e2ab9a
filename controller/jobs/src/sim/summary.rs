//! A run in a few figures.

use alloc::vec::Vec;

use super::Row;
use crate::cluster::Cluster;
use crate::job::NS_PER_S;

/// Takes in rows, and says what they come to. 8 bytes for each job.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    jct_ns: Vec<u64>,
    work_gpu_ns: u128,
    last_end_ns: u64,
    preemptions: u64,
    resizes: u64,
    overhead_ns: u64,
}

/// What they come to. Times in seconds, percentiles by nearest rank.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Summary {
    /// Jobs that ended.
    pub jobs: usize,
    /// Mean completion time.
    pub avg_jct_s: f64,
    /// Half the jobs took no longer: the mean of the middle two where the number is even.
    pub median_jct_s: f64,
    /// 95 % of the jobs took no longer.
    pub p95_jct_s: f64,
    /// The last end.
    pub makespan_s: f64,
    /// GPUs x duration of all jobs over GPUs x makespan.
    pub utilisation: f64,
    /// Stops of all jobs.
    pub preemptions: u64,
    /// Changes of width of all jobs.
    pub resizes: u64,
    /// What all starts took.
    pub restart_s: f64,
}

impl Figures {
    /// Takes in a row.
    pub fn add(&mut self, row: &Row<'_>) {
        self.jct_ns.push(row.jct_ns());
        self.work_gpu_ns += u128::from(row.job.gpus) * u128::from(row.job.duration_ns);
        self.last_end_ns = self.last_end_ns.max(row.end_ns);
        self.preemptions += u64::from(row.preemptions);
        self.resizes += u64::from(row.resizes);
        self.overhead_ns = self.overhead_ns.saturating_add(row.overhead_ns);
    }

    /// What they come to.
    #[must_use]
    pub fn summary(mut self, cluster: &Cluster) -> Summary {
        let jobs = self.jct_ns.len();
        if jobs == 0 {
            return Summary::default();
        }
        self.jct_ns.sort_unstable();
        let s = |time_ns: u64| time_ns as f64 / NS_PER_S as f64;
        let sum_ns: u128 = self.jct_ns.iter().map(|jct_ns| u128::from(*jct_ns)).sum();
        let middle = [self.jct_ns[(jobs - 1) / 2], self.jct_ns[jobs / 2]];
        let gpu_ns = u128::from(cluster.gpus()) * u128::from(self.last_end_ns);
        Summary {
            jobs,
            avg_jct_s: sum_ns as f64 / jobs as f64 / NS_PER_S as f64,
            median_jct_s: (s(middle[0]) + s(middle[1])) / 2.0,
            p95_jct_s: s(self.jct_ns[(jobs * 95).div_ceil(100) - 1]),
            makespan_s: s(self.last_end_ns),
            utilisation: self.work_gpu_ns as f64 / gpu_ns as f64,
            preemptions: self.preemptions,
            resizes: self.resizes,
            restart_s: s(self.overhead_ns),
        }
    }
}
