//! `weft cluster bands`: priority bands of jobs whose parameter servers share a host.

use std::fmt::Write as _;

use anyhow::anyhow;
use clap::{Args, ValueEnum};
use serde::Serialize;
use weft_jobs::bands::{self, BandPolicy, Grouping};

use super::{Exit, Format, Outcome, emit_csv, emit_json, emit_text};

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

pub(super) fn run(arguments: &BandsArgs, format: Format) -> Outcome {
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
