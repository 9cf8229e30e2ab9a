//! `weft bench gate`.

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::Args;
use weft_testbed::bench::gate::{self, Figures, GateError, GateRow};
use weft_testbed::bench::{Program, ScratchDir};

use super::{Exit, Failure, Format, Outcome, emit, emit_csv, emit_json};

#[derive(Debug, Args)]
pub(crate) struct GateArgs {
    /// The committed figures.
    #[arg(long, value_name = "FILE", default_value = "testbed/bench/instructions.toml")]
    figures: PathBuf,
}

pub(crate) fn run(arguments: &GateArgs, format: Format) -> Outcome {
    let figures = Figures::read(&arguments.figures).map_err(explain)?;
    let bench = Program::bench().map_err(|error| explain(error.into()))?;
    let directory = ScratchDir::new(None).map_err(|error| explain(error.into()))?;
    let rows = gate::run(&bench, &figures, directory.path()).map_err(explain)?;
    match format {
        Format::Text => emit(&text(&rows, &figures))?,
        Format::Json => emit_json(&rows)?,
        Format::Csv => emit_csv(&rows)?,
    }
    let within = rows.iter().all(|row| row.within);
    if !within {
        weft_process::say!(
            "weft: instructions per packet changed; if that is meant, commit the new figures in \
             {} with the reason",
            arguments.figures.display()
        );
    }
    Ok(if within { 0 } else { Exit::Failed as u8 })
}

fn explain(error: GateError) -> Failure {
    let exit = match error {
        GateError::Figures { .. } => Exit::Usage,
        GateError::NoValgrind | GateError::Isa { .. } => Exit::CannotRun,
        _ => Exit::Failed,
    };
    exit.because(error)
}

fn text(rows: &[GateRow], figures: &Figures) -> String {
    let mut out = format!(
        "# 256 x i32, 4 workers, windowed lease, {} arithmetic, tolerance {} %\n\
         {:<4} {:>14} {:>10} {:>8}  verdict\n",
        figures.isa,
        figures.tolerance * 100.0,
        "crc",
        "instr/packet",
        "committed",
        "change"
    );
    for row in rows {
        let _ = writeln!(
            out,
            "{:<4} {:>14.1} {:>10.1} {:>+7.2}%  {}",
            if row.crc { "on" } else { "off" },
            row.instructions_per_packet,
            row.committed,
            row.change * 100.0,
            if row.within { "ok" } else { "CHANGED" },
        );
    }
    out
}
