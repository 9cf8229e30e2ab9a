//! `weft soak`: seeds of the simulated system without end, and what the invariants say of them.

use std::collections::BTreeMap;
use std::num::NonZero;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::Args;
use serde::Serialize;
use weft_process::say;
use weft_sim::seeds::{Found, Seed, every, run_all};
use weft_testbed::interrupt;

use super::{Exit, Format, Outcome, emit_csv, emit_json, emit_text};

#[derive(Debug, Args)]
pub(crate) struct SoakArgs {
    /// How long to begin new seeds, in minutes: such as 30, or 0.5.
    #[arg(long, value_name = "N", value_parser = minutes, required_unless_present = "replay")]
    minutes: Option<Duration>,
    /// The first seed of each kind of scenario.
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    from: u64,
    /// Seeds at a time [default: the processors].
    #[arg(long, value_name = "N")]
    threads: Option<NonZero<usize>>,
    /// Run one seed again and print its scenario and every frame, such as push/workers:7; `weft
    /// soak` names the seeds that failed.
    #[arg(long, value_name = "KIND:SEED", conflicts_with_all = ["minutes", "from", "threads"])]
    replay: Option<Seed>,
}

fn minutes(text: &str) -> Result<Duration, String> {
    let minutes = text.parse().ok().filter(|minutes: &f64| *minutes > 0.0);
    let span = minutes.and_then(|minutes| Duration::try_from_secs_f64(minutes * 60.0).ok());
    span.ok_or_else(|| "expected a number of minutes above 0".to_owned())
}

/// What a soak found. Outside scripts read these names.
#[derive(Debug, Serialize)]
struct Report {
    /// Seeds run.
    seeds: u64,
    /// The first of each kind.
    first_seed: u64,
    /// Frames that reached a node.
    frames: u64,
    /// Faults that fired, by kind.
    faults: BTreeMap<&'static str, u64>,
    /// What the invariants say against all seeds together; 0 is good.
    violations: usize,
    /// Which seeds, and what.
    failed: Vec<Failed>,
    /// Of all frames, events and messages of all seeds, with their times.
    fingerprint: String,
    virtual_seconds: f64,
    wall_seconds: f64,
    /// A signal ended it early.
    interrupted: bool,
}

#[derive(Debug, Serialize)]
struct Failed {
    seed: String,
    violations: Vec<String>,
    replay: String,
}

/// A figure, as text and CSV have it.
#[derive(Debug, Serialize)]
struct Row {
    figure: String,
    value: String,
}

pub(crate) fn run(arguments: &SoakArgs, format: Format) -> Outcome {
    let threads = arguments.threads.or_else(|| thread::available_parallelism().ok());
    let threads = threads.map_or(1, NonZero::get);
    let begun = Instant::now();
    let found = match (arguments.replay, arguments.minutes) {
        (Some(seed), _) => run_all([seed].into_iter(), 1, true, &|| false),
        (None, span) => {
            let span = span.unwrap_or_default();
            interrupt::listen()
                .context("listening to signals")
                .map_err(|error| Exit::CannotRun.because(error))?;
            say!("weft: seeds from {} on, {threads} at a time", arguments.from);
            let is_over = || begun.elapsed() >= span || interrupt::is_raised();
            run_all(every(arguments.from), threads, false, &is_over)
        }
    };
    let report = Report::new(&found, arguments.from, begun.elapsed());
    match format {
        Format::Text => emit_text(&report.text())?,
        Format::Json => emit_json(&report)?,
        Format::Csv => emit_csv(&report.rows())?,
    }
    Ok(match report.violations {
        _ if report.interrupted => Exit::Interrupted as u8,
        0 => 0,
        _ => Exit::Failed as u8,
    })
}

impl Report {
    fn new(found: &Found, first_seed: u64, wall: Duration) -> Self {
        let failed = found.failures.iter().map(|(seed, violations)| Failed {
            seed: seed.to_string(),
            violations: violations.clone(),
            replay: format!("weft soak --replay {seed}"),
        });
        Self {
            seeds: found.coverage.seeds,
            first_seed,
            frames: found.coverage.frames,
            faults: found.coverage.all("fault").collect(),
            violations: found.failures.values().map(Vec::len).sum(),
            failed: failed.collect(),
            fingerprint: format!("{:016x}", found.fingerprint),
            virtual_seconds: found.virtual_ns as f64 / 1e9,
            wall_seconds: wall.as_secs_f64(),
            interrupted: interrupt::is_raised(),
        }
    }

    /// Figures, each with its name.
    fn rows(&self) -> Vec<Row> {
        let figures = [
            ("seeds", self.seeds.to_string()),
            ("frames", self.frames.to_string()),
            ("virtual_seconds", format!("{:.1}", self.virtual_seconds)),
            ("wall_seconds", format!("{:.1}", self.wall_seconds)),
            ("violations", self.violations.to_string()),
            ("fingerprint", self.fingerprint.clone()),
        ];
        let faults = self.faults.iter().map(|(name, count)| (format!("fault {name}"), count));
        let figures = figures.into_iter().map(|(name, value)| (name.to_owned(), value));
        let rows = figures.chain(faults.map(|(name, count)| (name, count.to_string())));
        rows.map(|(figure, value)| Row { figure, value }).collect()
    }

    fn text(&self) -> String {
        let rows = self.rows();
        let mut text: String =
            rows.iter().map(|row| format!("{:<26} {:>16}\n", row.figure, row.value)).collect();
        for Failed { seed, violations, replay } in &self.failed {
            text += &format!("\n{seed} failed; {replay}\n");
            violations.iter().for_each(|violation| text += &format!("  {violation}\n"));
        }
        text
    }
}
