//! Experiments on elastic jobs whose results docs/cluster.md shows; each is one command.
//!
//! Pure: the same seeds give the same figures.

use alloc::sync::Arc;
use alloc::vec::Vec;

use weft_plan::float::ln;
use weft_plan::sample::Numbers;

use crate::cluster::Cluster;
use crate::job::{Job, NS_PER_S};
use crate::model::speed::Speed;
use crate::policy::{AnyPolicy, Jobs, Setting, Widths};
use crate::sim::setup::Setup;
use crate::sim::speed::Costs;
use crate::sim::{self, Observer, Row, SimError, Usage};
use crate::text::ns_of;

pub mod collectives;
pub mod distance;
pub mod table3;

/// Jobs that are all alike, and come by a Poisson process.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Alike {
    /// How many.
    pub jobs: u32,
    /// Mean seconds between two.
    pub gap_s: f64,
    /// What each takes on one GPU.
    pub hours_on_one: f64,
}

impl Alike {
    /// The jobs of a seed. They ask for one GPU.
    #[must_use]
    pub fn generate(&self, seed: u64) -> Vec<Job> {
        let mut numbers = Numbers::new(seed);
        let mut now_s = 0.0;
        let job = |index: u32| {
            now_s -= ln(numbers.unit()) * self.gap_s;
            Job {
                name: format!("{index}").into(),
                gpus: 1,
                submit_ns: ns_of(now_s),
                duration_ns: ns_of(self.hours_on_one * 3_600.0),
                model: "alike".into(),
                iterations: 0,
                global_batch: 0,
            }
        };
        (0..self.jobs).map(job).collect()
    }
}

/// One speed for all jobs, of which what they take on one GPU is 1.
#[derive(Debug)]
struct OneSpeed<S> {
    speed: S,
    gpus_max: u32,
}

impl<S: Speed + core::fmt::Debug + Send + Sync> Widths for OneSpeed<S> {
    fn speedup(&self, _: &Job, gpus: u32) -> f64 {
        self.speed.iterations_per_s(gpus) / self.speed.iterations_per_s(1)
    }

    fn gpus_max(&self, _: &Job) -> u32 {
        self.gpus_max
    }
}

/// What a run came to.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Run {
    mean_jct_s: f64,
    /// The most jobs that waited or ran at once.
    jobs_max: u32,
    resizes_per_job: f64,
}

#[derive(Debug, Default)]
struct Totals {
    jct_s: f64,
    ended: u32,
    jobs_max: u32,
    resizes: u32,
}

impl Observer for Totals {
    fn ended(&mut self, row: Row<'_>) {
        self.jct_s += row.jct_ns() as f64 / NS_PER_S as f64;
        self.ended += 1;
        self.resizes += row.resizes;
    }

    fn usage(&mut self, _: u64, usage: Usage) {
        self.jobs_max = self.jobs_max.max(usage.running + usage.waiting);
    }
}

/// Runs jobs on counted GPUs; a change of width, and going on after a stop, takes `restart_ns`.
fn run(
    policy: &AnyPolicy<Jobs>,
    cluster: Cluster,
    jobs: Vec<Job>,
    widths: Arc<dyn Widths>,
    restart_ns: u64,
) -> Result<Run, SimError> {
    let mut setting = Setting::new(cluster);
    setting.widths = widths;
    setting.knobs.restart_ns = restart_ns;
    let mut setup = Setup::new(policy.clone(), setting);
    setup.costs = Costs { preemption_ns: restart_ns, restart_ns };
    let mut totals = Totals::default();
    sim::run(setup.parts()?, jobs, &mut totals)?;
    let ended = f64::from(totals.ended.max(1));
    Ok(Run {
        mean_jct_s: totals.jct_s / ended,
        jobs_max: totals.jobs_max,
        resizes_per_job: f64::from(totals.resizes) / ended,
    })
}

/// A mean over seeds, and its range.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spread {
    /// The mean.
    pub mean: f64,
    /// The least.
    pub min: f64,
    /// The most.
    pub max: f64,
}

impl Spread {
    fn of(numbers: &[f64]) -> Self {
        Self {
            mean: numbers.iter().sum::<f64>() / numbers.len() as f64,
            min: numbers.iter().copied().fold(f64::INFINITY, f64::min),
            max: numbers.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        }
    }
}
