//! `weft bench forged`.

use clap::Args;
use weft_testbed::bench::forged::{self, Row, Settings};
use weft_testbed::bench::{BenchError, Program, ScratchDir};

use super::{Exit, Failure, Format, Outcome, emit, emit_csv, emit_json};

#[derive(Debug, Args)]
pub(crate) struct ForgedArgs {
    /// Bytes per second of the job's token bucket: less than a lane carries.
    #[arg(long, default_value_t = 1_000_000_000, value_parser = clap::value_parser!(u64).range(1_000_000..))]
    rate: u64,
    /// Members of the group.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..=64))]
    workers: u8,
    /// Pairs of measurements: one without the forger, one with.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Seconds of each measurement.
    #[arg(long, default_value_t = 0.5, value_parser = seconds)]
    seconds: f64,
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if seconds > 0.0 && seconds <= 60.0 => Ok(seconds),
        _ => Err("seconds, more than 0 and at most 60".to_owned()),
    }
}

pub(crate) fn run(arguments: &ForgedArgs, format: Format) -> Outcome {
    let bench = Program::bench().map_err(explain)?;
    let directory = ScratchDir::new(None).map_err(explain)?;
    let settings = Settings {
        rate_bytes_per_sec: arguments.rate,
        workers: arguments.workers,
        seconds: arguments.seconds,
        rounds: arguments.rounds,
    };
    let row = forged::run(&bench, &settings, directory.path()).map_err(explain)?;
    match format {
        Format::Text => emit(&text(&row))?,
        Format::Json => emit_json(&[&row])?,
        Format::Csv => emit_csv(&[&row])?,
    }
    if let (Some(why), Format::Json | Format::Csv) = (row.invalid, format) {
        weft_process::say!("weft: INVALID: {why}");
    }
    Ok(if row.is_valid() { 0 } else { Exit::Failed as u8 })
}

fn explain(error: BenchError) -> Failure {
    let exit = match error {
        BenchError::Process { .. } | BenchError::System { .. } => Exit::Failed,
        _ => Exit::CannotRun,
    };
    exit.because(error)
}

fn text(row: &Row) -> String {
    format!(
        "{:>8} {:>7} {:>12} {:>12} {:>13} {:>7}  verdict\n\
         {:>8.0} {:>7} {:>12.3} {:>12.3} {:>13.2} {:>6.2}%  {}\n",
        "MB/s",
        "workers",
        "alone M/s",
        "forged M/s",
        "forger's M/s",
        "cost",
        row.rate_bytes_per_sec as f64 / 1e6,
        row.workers,
        row.alone_per_second / 1e6,
        row.forged_at_per_second / 1e6,
        row.forged_frames_per_second / 1e6,
        100.0 * row.cost,
        row.invalid.map_or_else(|| "ok".to_owned(), |why| format!("INVALID: {why}")),
    )
}

/// What the columns mean.
pub(crate) const COLUMNS: &str = "\
Columns (JSON and CSV name them in full; rates are medians over the rounds):
  rate_bytes_per_sec        the job's token bucket
  alone_per_second          contributions that entered a sum, at 98 % of the quota
  forged_at_per_second      the same while a forger fills the rest of the lane's time
  forged_frames_per_second  the forger's frames, from every member's address in turn
  cost                      1 - forged_at_per_second / alone_per_second; valid between -0.05 and
                            0.05: beyond, either the forger cost the job, or the run without it was
                            disturbed
  invalid                   why this is no valid measurement (null, or nothing between commas: it
                            is one)";
