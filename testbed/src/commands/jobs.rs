//! `weft jobs`: priority bands of jobs whose parameter servers share a host, and made-up traces.

use std::fmt::Write as _;

use anyhow::anyhow;
use clap::{Args, Subcommand, ValueEnum};
use serde::Serialize;
use weft_jobs::bands::{self, BandPolicy, Grouping};
use weft_jobs::sim::rows;
use weft_jobs::trace::generate::{self, Recipe, Sizes};

use super::jobs_lights::{self, LightsArgs};
use super::{Exit, Format, Outcome, emit, emit_csv, emit_json, emit_text};

#[derive(Debug, Subcommand)]
pub(crate) enum JobsCommand {
    /// Say in which priority band each job's model updates travel
    ///
    /// Bands are 0 (first) to 6. Jobs are grouped by model, smaller models first; those of one
    /// model rotate.
    Bands(BandsArgs),
    /// Simulate bands on the published placements of 21 jobs, and say how far off it is
    ///
    /// One parameter, the work of a step, is fitted so that placement 8 takes as long as
    /// published under FIFO; the seven others, and all of One and RoundRobin, are predicted.
    Lights(LightsArgs),
    /// Make a trace up: Poisson arrivals, and sizes with a heavy tail
    ///
    /// CSV on standard output, as `weft cluster --trace` reads it. The same arguments give the same
    /// jobs.
    Trace(TraceArgs),
}

#[derive(Debug, Args)]
pub(crate) struct TraceArgs {
    /// What sizes are like: `mixed` has two kinds of width and of duration, as the synthetic traces
    /// for Tiresias' simulator; `heavy-tailed` has a Pareto law from a minute to three days.
    #[arg(long, value_enum, default_value_t = SizesName::HeavyTailed)]
    sizes: SizesName,
    /// How many jobs.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    jobs: u32,
    /// GPUs of the cluster that it is for; no job is wider.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..))]
    gpus: u32,
    /// GPU time that jobs ask for over what the cluster has while they come.
    #[arg(long, default_value_t = 1.0)]
    load: f64,
    /// Mean gap between two jobs in seconds, instead of a load; with `mixed` only, in whole
    /// seconds, and widths are not cut. 60 s and seed 7, 120 s and seed 1 give the two public ones.
    #[arg(long, value_name = "S", conflicts_with_all = ["load", "gpus"])]
    gap: Option<f64>,
    /// The seed.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
enum SizesName {
    Mixed,
    HeavyTailed,
}

#[derive(Debug, Args)]
pub(crate) struct BandsArgs {
    /// Who goes first: nobody, the same jobs all the time, or the jobs of a model in turns.
    #[arg(long, value_enum, default_value_t = BandPolicyName::RoundRobin)]
    policy: BandPolicyName,
    /// The model of each job, separated by commas. Their order by size is the published agent's;
    /// models that it does not know come last, by name.
    #[arg(long, value_name = "M1,M2,…", value_delimiter = ',', required = true)]
    models: Vec<String>,
    /// How often the jobs of each model have rotated; only `round-robin` does.
    #[arg(long, value_name = "N", default_value_t = 0)]
    rotate: u64,
    /// Group only jobs of one model that stand side by side, as the published agent does.
    #[arg(long)]
    compat: bool,
}

/// A policy of bands, as command lines have it.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum BandPolicyName {
    /// No bands.
    Fifo,
    /// Bands that stay.
    One,
    /// Bands that rotate.
    RoundRobin,
}

impl From<BandPolicyName> for BandPolicy {
    fn from(name: BandPolicyName) -> Self {
        match name {
            BandPolicyName::Fifo => Self::Fifo,
            BandPolicyName::One => Self::One,
            BandPolicyName::RoundRobin => Self::RoundRobin,
        }
    }
}

pub(crate) fn run(command: JobsCommand, format: Format) -> Outcome {
    match command {
        JobsCommand::Bands(arguments) => run_bands(&arguments, format),
        JobsCommand::Lights(arguments) => jobs_lights::run(&arguments, format),
        JobsCommand::Trace(arguments) => run_trace(&arguments),
    }
}

/// Every job's band. Outside scripts read these names.
#[derive(Debug, Serialize)]
struct Bands {
    policy: &'static str,
    rotate: u64,
    /// In the order of the jobs; null without bands.
    bands: Vec<Option<u8>>,
}

/// One job, as CSV.
#[derive(Debug, Serialize)]
struct Row<'a> {
    job: usize,
    model: &'a str,
    band: Option<u8>,
}

fn run_bands(arguments: &BandsArgs, format: Format) -> Outcome {
    let models: Vec<String> =
        arguments.models.iter().map(|model| model.trim().to_lowercase()).collect();
    if let Some(job) = models.iter().position(String::is_empty) {
        return Err(Exit::Usage.because(anyhow!("--models: job {job} (from 0) has no model")));
    }
    let policy = BandPolicy::from(arguments.policy);
    let grouping = if arguments.compat { Grouping::Neighbours } else { Grouping::Models };
    let names: Vec<&str> = models.iter().map(String::as_str).collect();
    let bands = match bands::bands(policy, &names, arguments.rotate, grouping) {
        Some(bands) => bands.into_iter().map(Some).collect(),
        None => vec![None; models.len()],
    };
    let rows = names.iter().zip(&bands).enumerate();
    let rows = rows.map(|(job, (model, band))| Row { job, model, band: *band });
    match format {
        Format::Json => {
            emit_json(&Bands { policy: policy.name(), rotate: arguments.rotate, bands })?;
        }
        Format::Csv => emit_csv(&rows.collect::<Vec<_>>())?,
        Format::Text => {
            let mut out = format!("{:>4}  {:>4}  model\n", "job", "band");
            for row in rows {
                let band = row.band.map_or_else(|| "-".to_owned(), |band| band.to_string());
                let _ = writeln!(out, "{:>4}  {band:>4}  {}", row.job, row.model);
            }
            emit_text(&out)?;
        }
    }
    Ok(0)
}

fn run_trace(arguments: &TraceArgs) -> Outcome {
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
