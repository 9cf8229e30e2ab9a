//! `weft cluster widths`: how wide elastic jobs run by the way in which their workers sum.

use std::path::PathBuf;

use anyhow::anyhow;
use clap::Args;
use serde::Serialize;
use weft_jobs::experiment::collectives::{Chosen, Question, Row as Widths, WIDTHS};
use weft_jobs::model::collective::in_network::{MEASURED, Measured};
use weft_testbed::report::table;

use super::cluster_elastic::{emit_rows, read};
use super::{Exit, Failure, Format, Outcome};

#[derive(Debug, Args)]
pub(crate) struct WidthsArgs {
    /// Rate of every worker's link, in Gb/s.
    #[arg(long, value_name = "GBIT", default_value_t = 10.0, allow_negative_numbers = true)]
    rate_gbit: f64,
    /// The model, in MB (1e6 bytes).
    #[arg(long, value_name = "MB", default_value_t = 100.0, allow_negative_numbers = true)]
    model_mb: f64,
    /// Lcores of the aggregator; n are taken to add n times as fast as one.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 8,
        value_parser = clap::value_parser!(u32).range(1..=1_024),
        allow_negative_numbers = true
    )]
    lcores: u32,
    /// Rows of Weft's bench instead of the committed ones: CSV of `weft bench allreduce` and of
    /// `weft bench aggregator`.
    #[arg(long, value_name = "FILE,…", value_delimiter = ',')]
    bench: Vec<PathBuf>,
    /// Runs of jobs that come and go, with seeds from 1 on.
    #[arg(
        long,
        default_value_t = 8,
        value_parser = clap::value_parser!(u64).range(1..=10_000),
        allow_negative_numbers = true
    )]
    seeds: u64,
}

/// What comes of a collective. Outside scripts read these names; widths are joined by `+`.
#[derive(Debug, Serialize)]
struct WidthsRow {
    collective: &'static str,
    iteration_1_s: f64,
    iteration_8_s: f64,
    iteration_9_s: f64,
    iteration_16_s: f64,
    iteration_17_s: f64,
    iteration_32_s: f64,
    iteration_64_s: f64,
    one_widths: String,
    one_total_s: f64,
    doubling_widths: String,
    doubling_total_s: f64,
    optimum_widths: String,
    optimum_total_s: f64,
    one_mean_jct_s: f64,
    doubling_mean_jct_s: f64,
    one_resizes_per_job: f64,
    doubling_resizes_per_job: f64,
}

impl From<&Widths> for WidthsRow {
    fn from(row: &Widths) -> Self {
        let joined = |chosen: &Chosen| {
            let widths: Vec<String> = chosen.widths.iter().map(u32::to_string).collect();
            widths.join("+")
        };
        const { assert!(WIDTHS.len() == 7) };
        Self {
            collective: row.collective,
            iteration_1_s: row.iteration_s[0],
            iteration_8_s: row.iteration_s[1],
            iteration_9_s: row.iteration_s[2],
            iteration_16_s: row.iteration_s[3],
            iteration_17_s: row.iteration_s[4],
            iteration_32_s: row.iteration_s[5],
            iteration_64_s: row.iteration_s[6],
            one_widths: joined(&row.one),
            one_total_s: row.one.total_s,
            doubling_widths: joined(&row.doubling),
            doubling_total_s: row.doubling.total_s,
            optimum_widths: joined(&row.optimum),
            optimum_total_s: row.optimum.total_s,
            one_mean_jct_s: row.mean_jct_s[0].mean,
            doubling_mean_jct_s: row.mean_jct_s[1].mean,
            one_resizes_per_job: row.resizes_per_job[0].mean,
            doubling_resizes_per_job: row.resizes_per_job[1].mean,
        }
    }
}

pub(super) fn run(arguments: &WidthsArgs, format: Format) -> Outcome {
    for (name, number) in [("rate-gbit", arguments.rate_gbit), ("model-mb", arguments.model_mb)] {
        if !(number > 0.0 && number <= 1e6) {
            let problem = anyhow!("--{name}: {number} is not above 0 and at most 1,000,000");
            return Err(Exit::Usage.because(problem));
        }
    }
    let measured = measured(&arguments.bench)?;
    let question = Question {
        rate_bits_per_s: arguments.rate_gbit * 1e9,
        model_bytes: arguments.model_mb * 1e6,
        lcores: arguments.lcores,
        measured,
        seeds: arguments.seeds,
    };
    let rows = question.ask().map_err(|error| Exit::Failed.because(error))?;
    let rows: Vec<WidthsRow> = rows.iter().map(WidthsRow::from).collect();
    emit_rows(format, &rows, |rows| {
        let head = ["collective", "T(8)", "T(9)", "T(64)", "rule", "widths", "seconds", "mean JCT"];
        let mut lines = vec![head.map(str::to_owned).to_vec()];
        for row in rows {
            let times = [row.iteration_8_s, row.iteration_9_s, row.iteration_64_s];
            let rules = [
                ("+1", &row.one_widths, row.one_total_s, Some(row.one_mean_jct_s)),
                (
                    "doubling",
                    &row.doubling_widths,
                    row.doubling_total_s,
                    Some(row.doubling_mean_jct_s),
                ),
                ("optimum", &row.optimum_widths, row.optimum_total_s, None),
            ];
            for (at, (rule, widths, total_s, jct_s)) in rules.into_iter().enumerate() {
                let mut cells =
                    vec![if at == 0 { row.collective.to_owned() } else { String::new() }];
                let time =
                    |seconds: f64| if at == 0 { format!("{seconds:.3}") } else { String::new() };
                cells.extend(times.map(time));
                cells.extend([rule.to_owned(), widths.clone(), format!("{total_s:.1}")]);
                cells.push(jct_s.map_or_else(|| "-".to_owned(), |jct_s| format!("{jct_s:.0} s")));
                lines.push(cells);
            }
        }
        format!(
            "T(w): seconds of an iteration with w workers; {} MB, {} Gb/s\nweft: latency {:.0} us, \
             {:.3} x the link's bound, a host moves {:.2} GB/s, an lcore adds {:.2} M chunks/s \
             ({} lcores)\n\n",
            arguments.model_mb,
            arguments.rate_gbit,
            measured.latency_s * 1e6,
            measured.stretch,
            measured.host_bytes_per_s / 1e9,
            measured.contributions_per_s / 1e6,
            arguments.lcores,
        ) + &table(&lines)
    })
}

/// Weft's constants from the bench's files; the committed ones without any.
fn measured(files: &[PathBuf]) -> Result<Measured, Failure> {
    let texts: Result<Vec<_>, Failure> =
        files.iter().map(|path| Ok((path.display().to_string(), read(path)?))).collect();
    let texts = texts?;
    let tables: Vec<_> = texts.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    let tables = if tables.is_empty() { &MEASURED[..] } else { &tables };
    Measured::from_bench(tables).map_err(|error| Exit::Usage.because(error))
}
