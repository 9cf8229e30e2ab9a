//! `weft compare`: one scenario under several policies and seeds, in turns, and one table.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;
use std::{fs, io};

use anyhow::{Context as _, anyhow};
use clap::Args;
use serde::Serialize;
use serde::de::DeserializeOwned;
use weft_testbed::report::{
    CompareRow, Ended, LossCurves, RunFiles, compare, compare_text, loss_curve, losses_svg,
};

use super::run_args::read;
use super::{
    Exit, Failure, Format, Outcome, compare_jobs, csv_text, emit_csv, emit_json, emit_text, input,
    lab, plan,
};
use weft_process::say;
use weft_testbed::interrupt;

#[derive(Debug, Args)]
pub(crate) struct CompareArgs {
    /// The scenario (TOML), with a `push` section or with several jobs.
    #[arg(value_parser = input())]
    scenario: PathBuf,
    /// The policies, separated by commas; `direct` does without a controller. Of several jobs they
    /// are policies of bands [default: mlfabric,fair,fifo; of several jobs fifo,one,round-robin].
    #[arg(long, value_delimiter = ',')]
    pub(super) policies: Option<Vec<String>>,
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
    let (_, has_several) = read(&arguments.scenario)?;
    seeds(&arguments.seeds)?;
    let default = POLICIES.map(str::to_owned);
    let policies = arguments.policies.as_deref().unwrap_or(&default);
    // All of them before the first run: the last one may come hours later.
    for policy in policies.iter().filter(|policy| *policy != DIRECT && !has_several) {
        plan::check_policy("--policies", policy)?;
    }
    let stem = arguments.scenario.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let out = arguments
        .out
        .clone()
        .unwrap_or_else(|| super::run::default_directory(&format!("compare-{stem}")));
    if out.exists() {
        return Err(Exit::Usage.because(anyhow!("{} exists; pass another --out", out.display())));
    }
    if has_several {
        return compare_jobs::run(arguments, &stem, &out, format);
    }
    let read = |directory: &Path| RunFiles::read(directory).map_err(|error| error.to_string());
    let (runs, is_degraded) = run_all(arguments, policies, &out, &is_whole, &read)?;
    let rows: Vec<CompareRow> = compare(&runs).iter().map(CompareRow::from).collect();
    write(&out, [ROWS_JSON, ROWS_CSV], &rows)?;
    show(&rows, format)?;
    draw(&out.join(PICTURE), &stem, &runs, &rows)?;
    Ok(verdict(rows.iter().any(|row| row.runs_ok < row.runs), is_degraded))
}

/// What a comparison ends with.
pub(super) fn verdict(failed: bool, is_degraded: bool) -> u8 {
    match (failed, is_degraded) {
        (true, _) => Exit::Failed as u8,
        (false, true) => Exit::CannotRun as u8,
        (false, false) => 0,
    }
}

/// What is left of each run, or why it was broken off, by policy.
pub(super) type Runs<T> = Vec<(String, Result<T, String>)>;

/// Runs every seed under every policy, each in a folder of `out`; what `read` finds of each, and
/// whether any was degraded.
///
/// # Errors
/// A run could not be started, or the first seed's were all refused.
pub(super) fn run_all<T>(
    arguments: &CompareArgs,
    policies: &[String],
    out: &Path,
    is_whole: &dyn Fn(&Path) -> bool,
    read: &dyn Fn(&Path) -> Result<T, String>,
) -> Result<(Runs<T>, bool), Failure> {
    let mut runs: Runs<T> = Vec::new();
    let mut is_degraded = false;
    // Policies take turns within a seed, so that what else the machine does hits all alike.
    for seed in &seeds(&arguments.seeds)? {
        let mut refusal = None;
        for policy in policies {
            let directory = out.join(format!("{}-{seed}", file_name(policy)));
            say!("weft: {policy}, seed {seed}");
            let ended = one(arguments, policy, *seed, &directory, is_whole)?;
            let ended = ended.map_err(|broken| {
                let reason = format!("seed {seed}: {:#}", broken.error);
                say!("weft: {policy}: {reason}; the others go on");
                refusal = Some(broken);
                reason
            });
            is_degraded |= matches!(ended, Ok(true));
            runs.push((policy.clone(), ended.and_then(|_| read(&directory))));
        }
        // It is not one of the policies then.
        if runs.iter().all(|(_, ended)| ended.is_err())
            && let Some(refusal) = refusal
        {
            return Err(refusal);
        }
    }
    Ok((runs, is_degraded))
}

fn show(rows: &[CompareRow], format: Format) -> Result<(), Failure> {
    match format {
        Format::Text => emit_text(&compare_text(rows)),
        Format::Json => emit_json(&rows),
        Format::Csv => emit_csv(rows),
    }
}

/// Shows a comparison again, if the directory holds one, and draws its picture from its runs;
/// whether all of them were ok.
pub(super) fn present(
    directory: &Path,
    svg: Option<&Path>,
    format: Format,
) -> Result<Option<bool>, Failure> {
    let Some(rows) = read_rows::<CompareRow>(&directory.join(ROWS_JSON))? else {
        return Ok(None);
    };
    show(&rows, format)?;
    let runs = kept_runs(directory, &rows)?;
    let name = runs.iter().find_map(|(_, ended)| Some(ended.as_ref().ok()?.record.scenario()));
    match name {
        Some(name) => {
            let path = svg.map_or_else(|| directory.join(PICTURE), Path::to_owned);
            draw(&path, name, &runs, &rows)?;
        }
        None if svg.is_some() => {
            return Err(Exit::Failed.because(anyhow!("its runs are gone, so no picture")));
        }
        None => {}
    }
    Ok(Some(rows.iter().all(|row| row.runs_ok == row.runs)))
}

/// The rows of a comparison, if there is one.
pub(super) fn read_rows<R: DeserializeOwned>(path: &Path) -> Result<Option<Vec<R>>, Failure> {
    if !path.is_file() {
        return Ok(None);
    }
    let text = fs::read_to_string(path)
        .with_context(|| format!("reading {}", path.display()))
        .map_err(|error| Exit::Usage.because(error))?;
    serde_json::from_str(&text)
        .with_context(|| format!("{} is no comparison", path.display()))
        .map_err(|error| Exit::Usage.because(error))
        .map(Some)
}

/// The runs of a comparison that are still beside its rows, in the order of their names.
fn kept_runs(out: &Path, rows: &[CompareRow]) -> Result<Vec<(String, Ended)>, Failure> {
    let reading = |error| {
        let error = anyhow::Error::new(error).context(format!("reading {}", out.display()));
        Exit::Usage.because(error)
    };
    let entries = fs::read_dir(out).map_err(reading)?;
    let mut names = entries
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect::<io::Result<Vec<String>>>()
        .map_err(reading)?;
    names.sort();
    let run = |name: &String| {
        let (of, _seed) = name.rsplit_once('-')?;
        let row = rows.iter().find(|row| file_name(&row.policy) == of)?;
        let files = RunFiles::read(&out.join(name)).map_err(|error| error.to_string());
        Some((row.policy.clone(), files))
    };
    Ok(names.iter().filter_map(run).collect())
}

/// Keeps the rows beside the runs, as JSON and as CSV.
pub(super) fn write<R: Serialize>(
    out: &Path,
    [as_json, as_csv]: [&str; 2],
    rows: &[R],
) -> Result<(), Failure> {
    let json = serde_json::to_string_pretty(rows).map_err(|error| Exit::Failed.because(error))?;
    for (name, text) in [(as_json, json + "\n"), (as_csv, csv_text(rows)?)] {
        let path = out.join(name);
        // Where no run came so far as to make it.
        fs::create_dir_all(out)
            .and_then(|()| fs::write(&path, text))
            .with_context(|| format!("writing {}", path.display()))
            .map_err(|error| Exit::Failed.because(error))?;
    }
    Ok(())
}

/// One run, in a process of its own: a lab may be entered once per process. Whether it was
/// degraded, or why it was broken off.
///
/// # Errors
/// It could not be started.
fn one(
    arguments: &CompareArgs,
    policy: &str,
    seed: u64,
    directory: &Path,
    is_whole: &dyn Fn(&Path) -> bool,
) -> Result<Result<bool, Failure>, Failure> {
    lab::listen()?;
    let this = std::env::current_exe().map_err(|error| Exit::CannotRun.because(error))?;
    // Without a controller there is no policy.
    let how: &[&str] = if policy == DIRECT { &["--direct"] } else { &["--policy", policy] };
    let child = Command::new(this)
        .arg("run")
        .arg(&arguments.scenario)
        .args(how)
        .args(["--seed", &seed.to_string(), "--format", "json", "--out"])
        .arg(directory)
        .args(&arguments.run_arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::inherit())
        .spawn()
        .context("starting weft run")
        .map_err(|error| Exit::CannotRun.because(error))?;
    let status = attend(child)?;
    let is_whole = is_whole(directory);
    Ok(match status.code() {
        Some(0) => Ok(false),
        // A run that failed has a verdict, which the table counts.
        Some(1) if is_whole => Ok(false),
        Some(3) if is_whole => Ok(true),
        Some(2) => Err(Exit::Usage.because(anyhow!("the run was refused; see above"))),
        Some(3) => Err(Exit::CannotRun.because(anyhow!("it cannot run here; see above"))),
        _ => Err(Exit::Failed.because(anyhow!("the run ended with {status}; see above"))),
    })
}

fn is_whole(directory: &Path) -> bool {
    directory.join("commits.csv").is_file()
}

/// Waits for a run; a signal is passed on to it, and its end waited for.
fn attend(mut child: Child) -> Result<ExitStatus, Failure> {
    let mut is_told = false;
    loop {
        if let Some(status) = child.try_wait().map_err(|error| Exit::Failed.because(error))? {
            return if interrupt::is_raised() {
                Err(Exit::Interrupted.because(anyhow!("the runs that ended are kept")))
            } else {
                Ok(status)
            };
        }
        if interrupt::is_raised() && !is_told {
            is_told = true;
            lab::terminate(&child);
        }
        thread::sleep(CHILD_POLL);
    }
}

fn draw(
    path: &Path,
    name: &str,
    runs: &[(String, Ended)],
    rows: &[CompareRow],
) -> Result<(), Failure> {
    let kind = |row: &CompareRow| {
        let own = runs.iter().filter(|(policy, _)| *policy == row.policy);
        LossCurves {
            name: row.policy.clone(),
            runs: own.filter_map(|(_, ended)| ended.as_ref().ok()).map(loss_curve).collect(),
            reached_s: row.time_to_loss_s,
        }
    };
    let kinds: Vec<LossCurves> = rows.iter().map(kind).collect();
    let target = rows.iter().find_map(|row| row.target_loss);
    let svg =
        losses_svg(&format!("Loss of the model over time, by policy: {name}"), target, &kinds)
            .map_err(|error| Exit::Failed.because(error))?;
    fs::write(path, svg)
        .with_context(|| format!("writing {}", path.display()))
        .map_err(|error| Exit::Failed.because(error))?;
    say!("weft: loss against time in {}", path.display());
    Ok(())
}

/// Reads `3`, `1,2,5` or `1..5`.
pub(super) fn seeds(text: &str) -> Result<Vec<u64>, Failure> {
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

/// The rows, beside the runs.
const ROWS_JSON: &str = "compare.json";
const ROWS_CSV: &str = "compare.csv";
/// Loss against time, beside them.
const PICTURE: &str = "compare.svg";
/// What is compared unless others are named.
const POLICIES: [&str; 3] = ["mlfabric", "fair", "fifo"];
/// What stands for no controller among the policies.
const DIRECT: &str = "direct";
/// Between two looks at a run.
const CHILD_POLL: Duration = Duration::from_millis(20);
/// Seeds of one range.
const SEEDS_MAX: u64 = 1000;
