//! `weft compare` of a scenario with several jobs: under several policies of bands, in turns, and
//! one table.

use std::fs;
use std::path::Path;

use anyhow::Context as _;
use weft_process::say;
use weft_testbed::report::{BandsRow, JobsEnded, JobsRecord, bands_text, compare_bands};

use super::compare::{CompareArgs, one, seeds};
use super::{Exit, Failure, Format, Outcome, csv_text, emit_csv, emit_json, emit_text};

/// Runs every seed under every policy in `out`, which is not there yet.
pub(super) fn run(arguments: &CompareArgs, out: &Path, format: Format) -> Outcome {
    let seeds = seeds(&arguments.seeds)?;
    let default = POLICIES.map(str::to_owned);
    let policies = arguments.policies.as_deref().unwrap_or(&default);
    let mut runs: Vec<(String, JobsEnded)> = Vec::new();
    let mut is_degraded = false;
    for seed in &seeds {
        let mut refusal = None;
        for policy in policies {
            let directory = out.join(format!("{policy}-{seed}"));
            say!("weft: {policy}, seed {seed}");
            let ended = one(arguments, policy, *seed, &directory, &is_whole)?;
            let ended = ended.map_err(|broken| {
                let reason = format!("seed {seed}: {:#}", broken.error);
                say!("weft: {policy}: {reason}; the others go on");
                refusal = Some(broken);
                reason
            });
            is_degraded |= matches!(ended, Ok(true));
            let read = |_| read(&directory).map_err(|failure| format!("{:#}", failure.error));
            runs.push((policy.clone(), ended.and_then(read)));
        }
        // It is not one of the policies then.
        if runs.iter().all(|(_, ended)| ended.is_err())
            && let Some(refusal) = refusal
        {
            return Err(refusal);
        }
    }
    let rows = compare_bands(&runs);
    let json = serde_json::to_string_pretty(&rows).map_err(|error| Exit::Failed.because(error))?;
    for (name, text) in [(ROWS_JSON, json + "\n"), (ROWS_CSV, csv_text(&rows)?)] {
        let path = out.join(name);
        fs::write(&path, text)
            .with_context(|| format!("writing {}", path.display()))
            .map_err(|error| Exit::Failed.because(error))?;
    }
    show(&rows, format)?;
    let failed = rows.iter().any(|row| row.runs_ok < row.runs);
    Ok(match (failed, is_degraded) {
        (true, _) => Exit::Failed as u8,
        (false, true) => Exit::CannotRun as u8,
        (false, false) => 0,
    })
}

fn show(rows: &[BandsRow], format: Format) -> Result<(), Failure> {
    match format {
        Format::Text => emit_text(&bands_text(rows)),
        Format::Json => emit_json(&rows),
        Format::Csv => emit_csv(rows),
    }
}

/// Shows a comparison again, if the directory holds one; whether all its runs were ok.
pub(super) fn present(directory: &Path, format: Format) -> Result<Option<bool>, Failure> {
    let path = directory.join(ROWS_JSON);
    if !path.is_file() {
        return Ok(None);
    }
    let text = fs::read_to_string(&path)
        .with_context(|| format!("reading {}", path.display()))
        .map_err(|error| Exit::Usage.because(error))?;
    let rows: Vec<BandsRow> = serde_json::from_str(&text)
        .with_context(|| format!("{} is no comparison", path.display()))
        .map_err(|error| Exit::Usage.because(error))?;
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
