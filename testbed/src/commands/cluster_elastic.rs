//! `weft cluster fit`, `optimum` and `table3`: what elastic jobs are predicted from, how far rules
//! are from the best, and a published table.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use clap::Args;
use serde::Serialize;
use weft_jobs::experiment::distance;
use weft_jobs::experiment::table3::{COLUMNS, Table as Table3};
use weft_jobs::model::loss::{LossCurve, Weighting};
use weft_jobs::model::speed::{Batch, SpeedModel};
use weft_jobs::model::throughputs::Throughputs;
use weft_jobs::text::{Table, TextError};
use weft_plan::optimum::Distance;
use weft_testbed::report::table;

use super::{Exit, Failure, Format, Outcome, emit_csv, emit_json, emit_text};

#[derive(Debug, Args)]
pub(crate) struct FitArgs {
    #[command(flatten)]
    of: FitOf,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct FitOf {
    /// Fit speeds: a table with the columns model, global_batch_size, gpus, iterations_per_s.
    #[arg(long, value_name = "FILE")]
    throughputs: Option<PathBuf>,
    /// Fit a loss: a table with the columns step, loss.
    #[arg(long, value_name = "FILE")]
    losses: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct DistanceArgs {
    /// How many cases; the same ones every time.
    #[arg(
        long,
        default_value_t = 500,
        value_parser = clap::value_parser!(u64).range(1..=1_000_000),
        allow_negative_numbers = true
    )]
    cases: u64,
}

#[derive(Debug, Args)]
pub(crate) struct Table3Args {
    /// Runs of each policy in each column, with seeds from 1 on.
    #[arg(
        long,
        default_value_t = 8,
        value_parser = clap::value_parser!(u64).range(1..=10_000),
        allow_negative_numbers = true
    )]
    seeds: u64,
}

pub(super) fn read(path: &Path) -> Result<String, Failure> {
    let text = fs::read_to_string(path).with_context(|| format!("reading {}", path.display()));
    text.map_err(|error| Exit::Usage.because(error))
}

/// Writes rows in any format.
pub(super) fn emit_rows<T: Serialize>(
    format: Format,
    rows: &[T],
    text: impl FnOnce(&[T]) -> String,
) -> Outcome {
    match format {
        Format::Text => emit_text(&text(rows))?,
        Format::Json => emit_json(&rows)?,
        Format::Csv => emit_csv(rows)?,
    }
    Ok(0)
}

/// A fitted speed. Outside scripts read these names.
#[derive(Debug, Serialize)]
struct SpeedRow {
    model: String,
    global_batch_size: u32,
    points: usize,
    /// Seconds of an iteration of one worker that shrink with the workers.
    shared_s: f64,
    /// Seconds for each worker beyond the first.
    per_worker_s: f64,
    /// Seconds of moving the model once.
    transfer_s: f64,
    /// Seconds that stay.
    constant_s: f64,
    residual_rms_s: f64,
    /// The largest predicted time over the measured one, less 1, by size.
    worst_residual: f64,
}

/// A fitted loss. Outside scripts read these names.
#[derive(Debug, Serialize)]
struct LossRow {
    points: usize,
    b0: f64,
    b1: f64,
    b2: f64,
    residual_rms: f64,
    /// The first step from which on the loss falls by less than 0.05 in 10 steps.
    converges_at: f64,
}

pub(super) fn run_fit(arguments: &FitArgs, format: Format) -> Outcome {
    if let Some(path) = &arguments.of.throughputs {
        return fit_speeds(path, format);
    }
    let path = arguments.of.losses.as_deref().unwrap_or_else(|| Path::new(""));
    let (name, text) = (path.display().to_string(), read(path)?);
    let samples = losses(&name, &text)?;
    let curve = LossCurve::fit(&samples, Weighting::Equal);
    let curve = curve.map_err(|error| Exit::Failed.because(anyhow!("{name}: {error}")))?;
    let row = LossRow {
        points: samples.len(),
        b0: curve.b0,
        b1: curve.b1,
        b2: curve.b2,
        residual_rms: curve.residual_rms,
        converges_at: curve.converges_at(10.0, 0.05),
    };
    emit_rows(format, &[row], |rows| {
        let row = &rows[0];
        format!(
            "loss = 1 / ({:.6} step + {:.6}) + {:.6}, fitted to {} points\nroot of the mean squared \
             residual: {:.6}\nfrom step {:.0} on it falls by less than 0.05 in 10 steps\n",
            row.b0, row.b1, row.b2, row.points, row.residual_rms, row.converges_at
        )
    })
}

fn losses(name: &str, text: &str) -> Result<Vec<(f64, f64)>, Failure> {
    let read = || -> Result<Vec<_>, TextError> {
        let table = Table::new(name, text)?;
        let [step, loss] = [table.column("step")?, table.column("loss")?];
        let rows = table.rows().map(|row| row.and_then(|r| Ok((r.number(step)?, r.number(loss)?))));
        rows.collect()
    };
    read().map_err(|error| Exit::Usage.because(error))
}

fn fit_speeds(path: &Path, format: Format) -> Outcome {
    let (name, text) = (path.display().to_string(), read(path)?);
    let throughputs = Throughputs::read(&name, &text);
    let throughputs = throughputs.map_err(|error| Exit::Usage.because(error))?;
    let mut rows = Vec::new();
    for (model, batch, curve) in throughputs.curves() {
        // The batch and the bytes only scale two coefficients.
        let fit = SpeedModel::fit(curve.points(), Batch::Global(1.0), 1.0);
        let fit = fit.map_err(|error| {
            Exit::Failed.because(anyhow!("{name}: {model} with a batch of {batch}: {error}"))
        })?;
        let worst =
            fit.relative_residuals.iter().copied().reduce(|worst, residual| {
                if residual.abs() > worst.abs() { residual } else { worst }
            });
        let [shared_s, per_worker_s, transfer_s, constant_s] = fit.theta;
        rows.push(SpeedRow {
            model: model.to_owned(),
            global_batch_size: batch,
            points: curve.points().len(),
            shared_s,
            per_worker_s,
            transfer_s,
            constant_s,
            residual_rms_s: fit.residual_rms_s,
            worst_residual: worst.unwrap_or(0.0),
        });
    }
    emit_rows(format, &rows, |rows| {
        let head = ["model, batch", "shared", "worker", "transfer", "constant", "rms", "worst"];
        let cells = rows.iter().map(|row| {
            let seconds = [
                row.shared_s,
                row.per_worker_s,
                row.transfer_s,
                row.constant_s,
                row.residual_rms_s,
            ];
            let mut cells = vec![format!("{} {}", row.model, row.global_batch_size)];
            cells.extend(seconds.map(|seconds| format!("{seconds:.5}")));
            cells.push(format!("{:+.1}%", 100.0 * row.worst_residual));
            cells
        });
        let mut lines = vec![head.map(str::to_owned).to_vec()];
        lines.extend(cells);
        let unit = "seconds of an iteration: shared / workers + worker x (workers - 1) + transfer x \
                    (workers - 1) / workers + constant\n\n";
        unit.to_owned() + &table(&lines)
    })
}

/// The distance of a rule. Outside scripts read these names.
#[derive(Debug, Serialize)]
struct DistanceRow {
    collective: &'static str,
    rule: &'static str,
    cases: u64,
    optimal: u64,
    mean_ratio: f64,
    p95_ratio: f64,
    max_ratio: f64,
}

pub(super) fn run_optimum(arguments: &DistanceArgs, format: Format) -> Outcome {
    let row = |row: distance::Row| {
        let Distance { cases, optimal, mean_ratio, p95_ratio, max_ratio } = row.distance;
        let (collective, rule) = (row.collective, row.rule);
        DistanceRow { collective, rule, cases, optimal, mean_ratio, p95_ratio, max_ratio }
    };
    let rows: Vec<_> = distance::measure(arguments.cases).into_iter().map(row).collect();
    emit_rows(format, &rows, |rows| {
        let head = ["collective", "rule", "cases", "optimal", "mean", "95 %", "largest"];
        let mut lines = vec![head.map(str::to_owned).to_vec()];
        lines.extend(rows.iter().map(|row| {
            let mut cells = vec![row.collective.to_owned(), row.rule.to_owned()];
            cells.extend([row.cases, row.optimal].map(|count| count.to_string()));
            let ratios = [row.mean_ratio, row.p95_ratio, row.max_ratio];
            cells.extend(ratios.map(|ratio| format!("{ratio:.3}")));
            cells
        }));
        table(&lines)
    })
}

/// A cell of Table 3. Outside scripts read these names.
#[derive(Debug, Serialize)]
struct Table3Row {
    policy: &'static str,
    published_name: &'static str,
    contention: &'static str,
    published_h: f64,
    mean_h: f64,
    min_h: f64,
    max_h: f64,
    /// Mean over published, less 1.
    off: f64,
}

pub(super) fn run_table3(arguments: &Table3Args, format: Format) -> Outcome {
    let found = Table3::run(arguments.seeds).map_err(|error| Exit::Failed.because(error))?;
    let cells = found.rows.iter().flat_map(|row| {
        COLUMNS.iter().enumerate().map(|(at, column)| Table3Row {
            policy: row.policy,
            published_name: row.published_name,
            contention: column.name,
            published_h: row.published_h[at],
            mean_h: row.ours_h[at].mean,
            min_h: row.ours_h[at].min,
            max_h: row.ours_h[at].max,
            off: row.ours_h[at].mean / row.published_h[at] - 1.0,
        })
    });
    let cells: Vec<_> = cells.collect();
    emit_rows(format, &cells, |cells| {
        let head = ["in the paper", "policy", "contention", "paper", "ours", "range", "off"];
        let mut lines = vec![head.map(str::to_owned).to_vec()];
        lines.extend(cells.iter().map(|cell| {
            vec![
                cell.published_name.to_owned(),
                cell.policy.to_owned(),
                cell.contention.to_owned(),
                format!("{:.2} h", cell.published_h),
                format!("{:.2} h", cell.mean_h),
                format!("{:.2} to {:.2}", cell.min_h, cell.max_h),
                format!("{:+.0}%", 100.0 * cell.off),
            ]
        }));
        let mut out = table(&lines);
        for (column, ours) in COLUMNS.iter().zip(found.jobs_max) {
            let published = column.published_jobs_max;
            out += &format!("\n{}: at most {ours} jobs at once; paper {published}", column.name);
        }
        out + "\n"
    })
}
