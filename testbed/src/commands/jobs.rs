//! `weft jobs`: priority bands of jobs whose parameter servers share a host; widths of elastic
//! jobs.

use std::fmt::Write as _;

use anyhow::anyhow;
use clap::{Args, Subcommand, ValueEnum};
use serde::Serialize;
use weft_jobs::bands::{self, BandPolicy, Grouping};

use super::jobs_elastic::{self, DistanceArgs, FitArgs, Table3Args};
use super::jobs_lights::{self, LightsArgs};
use super::jobs_trace::{self, TraceArgs};
use super::jobs_widths::{self, WidthsArgs};
use super::{Exit, Format, Outcome, emit_csv, emit_json, emit_text};

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
    /// Fit speeds or a loss by non-negative least squares, and say what is left over
    Fit(FitArgs),
    /// Say how far the rules for widths are from the optimum, on small cases
    Optimum(DistanceArgs),
    /// Put Table 3 of the doubling paper beside what its settings give here
    ///
    /// Jobs alike on 64 GPUs, as fast at 1, 2, 4 and 8 GPUs as the paper says, 10 s for a restart.
    Table3(Table3Args),
    /// Say how wide elastic jobs run by the way in which their workers sum
    ///
    /// Jobs of 1,000, 500 and 250 iterations with 6.4 s of computing each, on 64 GPUs; then 100
    /// jobs of 1,000 that come 250 s apart. Ring, halving-doubling and binary blocks cost 30 us a
    /// message and an eighth of a nanosecond to add a byte; Weft costs what its bench measured.
    Widths(WidthsArgs),
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
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true)]
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
        JobsCommand::Trace(arguments) => jobs_trace::run(&arguments),
        JobsCommand::Fit(arguments) => jobs_elastic::run_fit(&arguments, format),
        JobsCommand::Optimum(arguments) => jobs_elastic::run_optimum(&arguments, format),
        JobsCommand::Table3(arguments) => jobs_elastic::run_table3(&arguments, format),
        JobsCommand::Widths(arguments) => jobs_widths::run(&arguments, format),
    }
}

/// Every job's band. Outside scripts read these names.
#[derive(Debug, Serialize)]
struct Bands {
    policy: String,
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
            emit_json(&Bands { policy: policy.to_string(), rotate: arguments.rotate, bands })?;
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
