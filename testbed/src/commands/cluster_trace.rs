//! `weft cluster trace`: made-up traces.

use std::fmt::Write as _;

use anyhow::anyhow;
use clap::{Args, ValueEnum};
use weft_jobs::sim::rows;
use weft_jobs::trace::generate::{self, Recipe, Sizes};

use super::{Exit, Outcome, emit};

#[derive(Debug, Args)]
pub(crate) struct TraceArgs {
    /// What sizes are like: `mixed` has two kinds of width and of duration, as the synthetic traces
    /// for Tiresias' simulator; `heavy-tailed` has a Pareto law from a minute to three days.
    #[arg(long, value_enum, default_value_t = SizesName::HeavyTailed)]
    sizes: SizesName,
    /// How many jobs.
    #[arg(
        long,
        value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..),
        allow_negative_numbers = true
    )]
    jobs: u32,
    /// GPUs of the cluster that it is for; no job is wider.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 64,
        value_parser = clap::value_parser!(u32).range(1..),
        allow_negative_numbers = true
    )]
    gpus: u32,
    /// GPU time that jobs ask for over what the cluster has while they come.
    #[arg(long, default_value_t = 1.0, allow_negative_numbers = true)]
    load: f64,
    /// Mean gap between two jobs in seconds, instead of a load; with `mixed` only, in whole
    /// seconds, and widths are not cut. 60 s and seed 7, 120 s and seed 1 give the two public ones.
    #[arg(
        long,
        value_name = "S",
        conflicts_with_all = ["load", "gpus"],
        allow_negative_numbers = true
    )]
    gap: Option<f64>,
    /// The seed.
    #[arg(long, default_value_t = 1, allow_negative_numbers = true)]
    seed: u64,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
enum SizesName {
    Mixed,
    HeavyTailed,
}

pub(super) fn run(arguments: &TraceArgs) -> Outcome {
    let above_zero = |option: &str, value: f64| {
        let is_usable = value > 0.0 && value.is_finite();
        let error = || Exit::Usage.because(anyhow!("{option}: {value} is not above 0"));
        is_usable.then_some(value).ok_or_else(error)
    };
    let sizes = match arguments.sizes {
        SizesName::Mixed => Sizes::Mixed,
        SizesName::HeavyTailed => Sizes::HeavyTailed,
    };
    let TraceArgs { jobs, gpus, seed, .. } = *arguments;
    let jobs = match arguments.gap {
        Some(_) if sizes != Sizes::Mixed => {
            return Err(Exit::Usage.because(anyhow!("--gap: only with --sizes mixed; else --load")));
        }
        Some(gap_s) => generate::mixed(jobs, above_zero("--gap", gap_s)?, seed),
        None => {
            let load = above_zero("--load", arguments.load)?;
            Recipe { jobs, gpus, load, sizes }.generate(seed)
        }
    };
    let mut out = String::from("job_id,num_gpu,submit_time,iterations,model_name,duration\n");
    for job in &jobs {
        let (submit_s, duration_s) = (rows::seconds(job.submit_ns), rows::seconds(job.duration_ns));
        let (name, gpus, model) = (&job.name, job.gpus, &job.model);
        let _ = writeln!(out, "{name},{gpus},{submit_s},{},{model},{duration_s}", job.iterations);
    }
    emit(&out)?;
    Ok(0)
}
