//! `weft compare` of a scenario with several jobs: under several policies of bands, in turns, and
//! one table and one picture.

use std::fs;
use std::path::Path;

use anyhow::Context as _;
use weft_testbed::report::{BandsRow, JobsRecord, bands_svg, bands_text, compare_bands};

use super::compare::{CompareArgs, read_rows, run_all, verdict, write};
use super::{Exit, Failure, Format, Outcome, emit_csv, emit_json, emit_text};

/// Runs every seed under every policy in `out`, which is not there yet.
pub(super) fn run(arguments: &CompareArgs, name: &str, out: &Path, format: Format) -> Outcome {
    let default = POLICIES.map(str::to_owned);
    let policies = arguments.policies.as_deref().unwrap_or(&default);
    let read = |directory: &Path| read(directory).map_err(|failure| format!("{:#}", failure.error));
    let (runs, is_degraded) = run_all(arguments, policies, out, &is_whole, &read)?;
    let rows = compare_bands(&runs);
    write(out, [ROWS_JSON, ROWS_CSV], &rows)?;
    draw(&out.join(PICTURE), name, &rows)?;
    show(&rows, format)?;
    Ok(verdict(rows.iter().any(|row| row.runs_ok < row.runs), is_degraded))
}

fn show(rows: &[BandsRow], format: Format) -> Result<(), Failure> {
    match format {
        Format::Text => emit_text(&bands_text(rows)),
        Format::Json => emit_json(&rows),
        Format::Csv => emit_csv(rows),
    }
}

fn draw(path: &Path, name: &str, rows: &[BandsRow]) -> Result<(), Failure> {
    let svg = bands_svg(&format!("Policies of bands: {name}"), rows)
        .map_err(|error| Exit::Failed.because(error))?;
    fs::write(path, svg)
        .with_context(|| format!("writing {}", path.display()))
        .map_err(|error| Exit::Failed.because(error))
}

/// Shows a comparison again, if the directory holds one; whether all its runs were ok.
pub(super) fn present(directory: &Path, format: Format) -> Result<Option<bool>, Failure> {
    let Some(rows) = read_rows::<BandsRow>(&directory.join(ROWS_JSON))? else { return Ok(None) };
    show(&rows, format)?;
    Ok(Some(rows.iter().all(|row| row.runs_ok == row.runs)))
}

fn is_whole(directory: &Path) -> bool {
    read(directory).is_ok_and(|record| record.outcome.is_some())
}

fn read(directory: &Path) -> Result<JobsRecord, Failure> {
    super::run_jobs::read_record(directory)
}

const POLICIES: [&str; 3] = ["fifo", "one", "round-robin"];
/// The rows, beside the runs.
const ROWS_JSON: &str = "bands.json";
const ROWS_CSV: &str = "bands.csv";
const PICTURE: &str = "bands.svg";
