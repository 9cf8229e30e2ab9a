//! Table 3 of arXiv 1908.08082, beside what its stated settings give here.
//!
//! 64 GPUs, jobs alike, as fast at 1, 2, 4 and 8 GPUs as the table's own column without contention
//! says, a restart of 10 s. What the paper leaves open, as how the last jobs of a run count, is
//! taken the plain way: all jobs run to their ends and all count.

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::{Alike, OneSpeed, Spread, run};
use crate::cluster::Cluster;
use crate::job::NS_PER_S;
use crate::model::speed::Curve;
use crate::policy::{BUILT_IN, Widths};
use crate::sim::SimError;

/// A contention of the table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Column {
    /// Its name.
    pub name: &'static str,
    /// Its jobs.
    pub jobs: Alike,
    /// The most jobs at once, as published.
    pub published_jobs_max: u32,
}

/// A policy of the table.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Its name in the paper.
    pub published_name: &'static str,
    /// Its name here.
    pub policy: &'static str,
    /// Mean hours of a job in each column, as published.
    pub published_h: [f64; 3],
    /// The same here, over seeds.
    pub ours_h: [Spread; 3],
}

/// The whole table.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// One for each policy.
    pub rows: Vec<Row>,
    /// The most jobs at once in each column here, under doubling, over seeds.
    pub jobs_max: [u32; 3],
}

impl Table {
    /// Runs every policy in every column with seeds from 1 to `seeds`.
    ///
    /// # Errors
    /// [`SimError`] if a policy fails.
    pub fn run(seeds: u64) -> Result<Self, SimError> {
        let curve = Curve::new(HOURS_AT.map(|(gpus, hours)| (gpus, 1.0 / hours)));
        let widths: Arc<dyn Widths> = Arc::new(OneSpeed { speed: curve, gpus_max: 8 });
        let mut table = Self { rows: Vec::new(), jobs_max: [0; 3] };
        for (published_name, name, published_h) in PUBLISHED {
            let policy = BUILT_IN.find(name).expect("a policy of the registry");
            let mut ours_h = [Spread::default(); 3];
            for (at, column) in COLUMNS.iter().enumerate() {
                let mut hours = Vec::new();
                for seed in 1..=seeds.max(1) {
                    let jobs = column.jobs.generate(seed);
                    let cluster = Cluster::of_nodes(8, 8);
                    let ran = run(&policy, cluster, jobs, Arc::clone(&widths), RESTART_NS)?;
                    hours.push(ran.mean_jct_s / 3_600.0);
                    if name == "doubling" {
                        table.jobs_max[at] = table.jobs_max[at].max(ran.jobs_max);
                    }
                }
                ours_h[at] = Spread::of(&hours);
            }
            table.rows.push(Row { published_name, policy: name, published_h, ours_h });
        }
        Ok(table)
    }
}

/// Hours of a job by GPUs: the column without contention of the fixed widths.
const HOURS_AT: [(u32, f64); 4] = [(1, 6.37), (2, 3.78), (4, 2.21), (8, 1.40)];

const fn column(name: &'static str, gap_s: f64, jobs: u32, published_jobs_max: u32) -> Column {
    Column { name, jobs: Alike { jobs, gap_s, hours_on_one: 6.37 }, published_jobs_max }
}

/// The contentions, as published.
pub const COLUMNS: [Column; 3] = [
    column("extreme", 250.0, 206, 125),
    column("moderate", 500.0, 114, 59),
    column("none", 1_000.0, 44, 20),
];

/// The published table: name, ours, hours by column.
const PUBLISHED: [(&str, &str, [f64; 3]); 6] = [
    ("Precompute", "doubling", [7.63, 2.63, 1.40]),
    ("Exploratory", "doubling-explore", [20.42, 2.92, 1.47]),
    ("Eight", "fixed-8", [22.76, 6.20, 1.40]),
    ("Four", "fixed-4", [12.90, 3.50, 2.21]),
    ("Two", "fixed-2", [11.49, 4.58, 3.78]),
    ("One", "fixed-1", [10.10, 6.32, 6.37]),
];

const RESTART_NS: u64 = 10 * NS_PER_S;

#[cfg(test)]
mod tests;
