//! `weft report DIR`.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use clap::Args;
use weft_testbed::report::{
    COLUMNS, Report, RunFiles, Verdict, metrics, pictures, round_times_svg, text,
};

use super::{
    Exit, Failure, Format, Outcome, compare, compare_jobs, emit_csv, emit_json, emit_text,
    run_factorisation, run_jobs, run_resize,
};
use weft_process::say;

#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    /// The run's directory, or that of a comparison.
    #[arg(required_unless_present = "columns")]
    directory: Option<PathBuf>,
    /// Write the histogram here [default: round_times.svg in the run's directory], the picture of
    /// a comparison [default: compare.svg] or of resizes [default: pauses.svg].
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    svg: Option<PathBuf>,
    /// Explain the columns of a run directory's files instead.
    #[arg(long, conflicts_with_all = ["directory", "svg"], help_heading = "Output")]
    columns: bool,
}

pub(crate) fn run(arguments: &ReportArgs, format: Format) -> Outcome {
    let directory = match &arguments.directory {
        Some(directory) if !arguments.columns => directory,
        _ => return columns(format),
    };
    if let Some(ok) = compare::present(directory, arguments.svg.as_deref(), format)? {
        return Ok(if ok { 0 } else { Exit::Failed as u8 });
    }
    if let Some(ok) = run_resize::present(directory, arguments.svg.as_deref(), format)? {
        return Ok(if ok { 0 } else { Exit::Failed as u8 });
    }
    let without_histogram =
        [compare_jobs::present, run_jobs::present, run_factorisation::present as Present];
    for present in without_histogram {
        let Some(ok) = present(directory, format)? else { continue };
        if arguments.svg.is_some() {
            let problem = "a run of several jobs has its pictures in its directory and in those of \
                           its jobs, and a factorisation has none";
            return Err(Exit::Usage.because(anyhow!("--svg is for a run of one job: {problem}")));
        }
        return Ok(if ok { 0 } else { Exit::Failed as u8 });
    }
    let report = present(directory, arguments.svg.as_deref(), format)?;
    let ok = report.outcome.is_some_and(|outcome| outcome.verdict == Verdict::Ok);
    Ok(if ok { 0 } else { Exit::Failed as u8 })
}

/// Prints the report of a directory; `None` if it is of another kind, true if all was well.
type Present = fn(&Path, Format) -> Result<Option<bool>, Failure>;

/// Prints the report of a run directory, from its files alone, and draws its histogram.
pub(crate) fn present(
    directory: &Path,
    svg: Option<&Path>,
    format: Format,
) -> Result<Report, Failure> {
    let files = RunFiles::read(directory).map_err(|error| Exit::Usage.because(error))?;
    let report = Report::new(&files);
    match format {
        Format::Text => emit_text(&text(&report))?,
        Format::Json => emit_json(&report)?,
        Format::Csv => emit_csv(&metrics(&report))?,
    }
    draw(directory, svg, &files)?;
    Ok(report)
}

/// Draws the histogram of a run, and what other pictures there are of it.
pub(super) fn draw(directory: &Path, svg: Option<&Path>, files: &RunFiles) -> Result<(), Failure> {
    let times_ns: Vec<u64> = files.rounds.iter().map(|row| row.duration_ns).collect();
    let picture = round_times_svg(&files.record.title(), &times_ns)
        .map_err(|error| Exit::Failed.because(error))?;
    if let Some(picture) = picture {
        let path = svg.map_or_else(|| directory.join("round_times.svg"), Path::to_owned);
        fs::write(&path, picture)
            .with_context(|| format!("writing {}", path.display()))
            .map_err(|error| Exit::Failed.because(error))?;
        say!("weft: histogram in {}", path.display());
    } else if svg.is_some() {
        return Err(Exit::Failed.because(anyhow!("no rounds were recorded, so no histogram")));
    }
    let drawn = pictures(files).map_err(|error| Exit::Failed.because(error))?;
    for picture in &drawn {
        let path = directory.join(picture.file);
        fs::write(&path, &picture.svg)
            .with_context(|| format!("writing {}", path.display()))
            .map_err(|error| Exit::Failed.because(error))?;
    }
    if !drawn.is_empty() {
        let names: Vec<&str> = drawn.iter().map(|picture| picture.file).collect();
        say!("weft: {} in {}", names.join(", "), directory.display());
    }
    Ok(())
}

fn columns(format: Format) -> Outcome {
    match format {
        Format::Text => {
            let line = |c: &weft_testbed::report::Column| {
                format!("{:<14} {:<18} {}\n", c.file, c.column, c.meaning)
            };
            emit_text(&COLUMNS.iter().map(line).collect::<String>())?;
        }
        Format::Json => emit_json(&COLUMNS)?,
        Format::Csv => emit_csv(COLUMNS)?,
    }
    Ok(0)
}
