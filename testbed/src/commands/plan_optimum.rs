//! `weft plan optimum`.

use std::fmt::Write as _;

use clap::Args;
use serde::Serialize;
use weft_plan::optimum::{Distance, Row, measure};

use super::{Exit, Format, Outcome, emit_csv, emit_json, emit_text};

#[derive(Debug, Args)]
pub(crate) struct OptimumArgs {
    /// How many cases, of all kinds together; the same ones every time.
    #[arg(long, default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    cases: u64,
}

/// Over all cases, and of each kind. Outside scripts read these names.
#[derive(Debug, Serialize)]
struct Answer {
    #[serde(flatten)]
    all: Distance,
    rows: Vec<Row>,
}

/// A kind, as CSV.
#[derive(Debug, Serialize)]
struct Flat<'a> {
    name: &'a str,
    cases: u64,
    optimal: u64,
    mean_ratio: f64,
    p95_ratio: f64,
    max_ratio: f64,
}

pub(super) fn run(arguments: &OptimumArgs, format: Format) -> Outcome {
    let measured = measure(arguments.cases).map_err(|error| Exit::Failed.because(error))?;
    let answer = Answer { all: measured.0, rows: measured.1 };
    match format {
        Format::Text => emit_text(&text(&answer))?,
        Format::Json => emit_json(&answer)?,
        Format::Csv => emit_csv(&flat(&answer))?,
    }
    Ok(0)
}

fn flat(answer: &Answer) -> Vec<Flat<'_>> {
    let rows = answer.rows.iter().map(|row| (row.kind.name, &row.distance));
    let flat = |(name, at): (&'static str, &Distance)| Flat {
        name,
        cases: at.cases,
        optimal: at.optimal,
        mean_ratio: at.mean_ratio,
        p95_ratio: at.p95_ratio,
        max_ratio: at.max_ratio,
    };
    rows.chain([("all", &answer.all)]).map(flat).collect()
}

fn text(answer: &Answer) -> String {
    let mut out = format!(
        "{:<24} {:>7} {:>8} {:>8} {:>8} {:>8}\n",
        "kind of cases", "cases", "optimal", "mean", "95 %", "largest"
    );
    for row in flat(answer) {
        let _ = writeln!(
            out,
            "{:<24} {:>7} {:>8} {:>8.3} {:>8.3} {:>8.3}",
            row.name, row.cases, row.optimal, row.mean_ratio, row.p95_ratio, row.max_ratio
        );
    }
    out
}
