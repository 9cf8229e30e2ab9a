//! `weft compare`: one scenario under several policies and seeds, in turns, and one table.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, anyhow};
use clap::Args;
use weft_testbed::report::{Line, RunFiles, compare, compare_text, loss_curve, losses};

use super::{Exit, Failure, Format, Outcome, emit, emit_csv, emit_json};

#[derive(Debug, Args)]
pub(crate) struct CompareArgs {
    /// The scenario (TOML), with a `push` section.
    scenario: PathBuf,
    /// The policies, separated by commas; `direct` does without a controller.
    #[arg(long, value_delimiter = ',', default_value = "mlfabric,fair,fifo")]
    policies: Vec<String>,
    /// The seeds: `3`, `1,2,5`, or `1..5`, which is 1 to 5.
    #[arg(long, default_value = "1")]
    seeds: String,
    /// Directory of the runs, which must not exist [default: out/compare-NAME-TIME].
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Further arguments for each `weft run`, after `--`.
    #[arg(last = true)]
    run_arguments: Vec<String>,
}

pub(crate) fn run(arguments: &CompareArgs, format: Format) -> Outcome {
    let seeds = seeds(&arguments.seeds)?;
    let stem = arguments.scenario.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let out = arguments
        .out
        .clone()
        .unwrap_or_else(|| super::run::default_directory(&format!("compare-{stem}")));
    if out.exists() {
        return Err(Exit::Usage.because(anyhow!("{} exists; pass another --out", out.display())));
    }
    let mut runs = Vec::new();
    // Policies take turns within a seed, so that what else the machine does hits all alike.
    for seed in &seeds {
        for policy in &arguments.policies {
            let directory = out.join(format!("{}-{seed}", file_name(policy)));
            eprintln!("weft: {policy}, seed {seed}");
            one(arguments, policy, *seed, &directory)?;
            let files = RunFiles::read(&directory).map_err(|error| Exit::Failed.because(error))?;
            runs.push((policy.clone(), files));
        }
    }
    let rows = compare(&runs);
    match format {
        Format::Text => emit(&compare_text(&rows))?,
        Format::Json => emit_json(&rows)?,
        Format::Csv => emit_csv(&flat(&rows))?,
    }
    draw(&out, &stem, &runs)?;
    let failed = rows.iter().any(|row| row.runs_ok < row.runs);
    Ok(if failed { Exit::Failed as u8 } else { 0 })
}

/// One run, in a process of its own: a lab may be entered once per process.
fn one(arguments: &CompareArgs, policy: &str, seed: u64, directory: &Path) -> Result<(), Failure> {
    let this = std::env::current_exe().map_err(|error| Exit::CannotRun.because(error))?;
    // Without a controller there is no policy.
    let how: &[&str] = if policy == DIRECT { &["--direct"] } else { &["--policy", policy] };
    let output = Command::new(this)
        .arg("run")
        .arg(&arguments.scenario)
        .args(how)
        .args(["--seed", &seed.to_string(), "--format", "json", "--out"])
        .arg(directory)
        .args(&arguments.run_arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .output()
        .context("starting weft run")
        .map_err(|error| Exit::CannotRun.because(error))?;
    match output.status.code() {
        // A run that failed has a verdict, which the table counts.
        Some(0 | 1) if directory.join("run.json").is_file() => Ok(()),
        Some(3) if directory.join("commits.csv").is_file() => Ok(()),
        Some(2) => Err(Exit::Usage.because(anyhow!("the run was refused; see above"))),
        Some(3) => Err(Exit::CannotRun.because(anyhow!("it cannot run here; see above"))),
        status => Err(Exit::Failed.because(anyhow!("the run ended with {status:?}; see above"))),
    }
}

fn draw(out: &Path, stem: &str, runs: &[(String, RunFiles)]) -> Result<(), Failure> {
    let lines: Vec<Line> = runs
        .iter()
        .map(|(policy, files)| Line { name: policy.clone(), points: loss_curve(files) })
        .collect();
    let svg = losses(&format!("Loss of {stem} by policy"), &lines)
        .map_err(|error| Exit::Failed.because(error))?;
    let path = out.join("compare.svg");
    fs::write(&path, svg)
        .with_context(|| format!("writing {}", path.display()))
        .map_err(|error| Exit::Failed.because(error))?;
    eprintln!("weft: loss against time in {}", path.display());
    Ok(())
}

/// A row of CSV.
#[derive(Debug, serde::Serialize)]
struct Flat<'a> {
    policy: &'a str,
    runs: u64,
    runs_ok: u64,
    mean_commit_median_ns: f64,
    mean_commit_mean_ns: f64,
    mean_commit_half_interval_95_ns: Option<f64>,
    p99_commit_ns: u64,
    commits_per_second_median: f64,
    delay_mean_median: f64,
    delay_max: u64,
    dropped: u64,
    voided: u64,
    time_to_loss_median_s: f64,
    time_to_loss_mean_s: f64,
    time_to_loss_half_interval_95_s: Option<f64>,
    runs_without_loss: u64,
    final_loss_median: f64,
    server_bytes_median: f64,
    bottleneck: String,
}

fn flat(rows: &[weft_testbed::report::PolicyRow]) -> Vec<Flat<'_>> {
    rows.iter()
        .map(|row| Flat {
            policy: &row.policy,
            runs: row.runs,
            runs_ok: row.runs_ok,
            mean_commit_median_ns: row.mean_commit_ns.median,
            mean_commit_mean_ns: row.mean_commit_ns.mean,
            mean_commit_half_interval_95_ns: row.mean_commit_ns.half_interval_95,
            p99_commit_ns: row.p99_commit_ns,
            commits_per_second_median: row.commits_per_second.median,
            delay_mean_median: row.delay_mean.median,
            delay_max: row.delay_max,
            dropped: row.dropped,
            voided: row.voided,
            time_to_loss_median_s: row.time_to_loss_s.median,
            time_to_loss_mean_s: row.time_to_loss_s.mean,
            time_to_loss_half_interval_95_s: row.time_to_loss_s.half_interval_95,
            runs_without_loss: row.runs_without_loss,
            final_loss_median: row.final_loss.median,
            server_bytes_median: row.server_bytes.median,
            bottleneck: row.bottlenecks.join("+"),
        })
        .collect()
}

/// Reads `3`, `1,2,5` or `1..5`.
fn seeds(text: &str) -> Result<Vec<u64>, Failure> {
    let bad = || Exit::Usage.because(anyhow!("--seeds {text}: expected 3, 1,2,5 or 1..5"));
    let number = |text: &str| text.trim().parse::<u64>().map_err(|_| bad());
    if let Some((first, last)) = text.split_once("..") {
        let (first, last) = (number(first)?, number(last.trim_start_matches('='))?);
        if first > last || last - first >= SEEDS_MAX {
            return Err(bad());
        }
        return Ok((first..=last).collect());
    }
    text.split(',').map(number).collect()
}

/// A policy's name as part of a path: `exec:./mine.py` has slashes.
fn file_name(policy: &str) -> String {
    policy.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect()
}

/// What stands for no controller among the policies.
const DIRECT: &str = "direct";
/// Seeds of one range.
const SEEDS_MAX: u64 = 1000;
