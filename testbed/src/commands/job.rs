//! `weft job`: an operator's word to a controller that runs.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use serde::Serialize;
use weft_testbed::operator::{Operator, OperatorError, pause_ns};

use super::{Exit, Failure, Format, Outcome, emit_csv, emit_json, emit_text};

/// What scripts read of how it ended.
pub(crate) const EXITS: &str = "\
Exit status: 0 the job does what was asked; 1 the controller refused, or the word came to nothing, \
or no answer came in time: standard error says which; 2 wrong usage, \
a controller that is no address or a certificate that is not there; 3 the controller was not \
reached, or ended before it answered.";

#[derive(Debug, Subcommand)]
pub(crate) enum JobCommand {
    /// Have a job pause, and wait until it stands still
    ///
    /// It is granted nothing more, and what it was granted finishes. A job that is paused already
    /// is refused, and so is one that is resumed before it stands still. The pause outlives the
    /// controller, if that keeps a state file.
    Pause(Steered),
    /// Have a paused job go on
    Resume(Steered),
    /// Have an allreduce job go on with another number of workers, and wait until those have begun
    ///
    /// All its workers stop before the same round and keep a checkpoint; whoever starts workers
    /// starts the new ones when the controller wants them. More workers than the job has places, or
    /// than a host has slots, are refused, and nothing has changed then.
    Resize(Resized),
}

#[derive(Debug, Args)]
pub(crate) struct Resized {
    #[command(flatten)]
    steered: Steered,
    /// Workers that it is to have.
    #[arg(value_parser = clap::value_parser!(u32).range(1..=64))]
    workers: u32,
}

#[derive(Debug, Args)]
pub(crate) struct Steered {
    /// The job's name.
    name: String,
    /// Where the controller listens, such as http://10.0.0.1:22342, or https:// with --certs.
    #[arg(long, value_name = "URL")]
    controller: String,
    /// Folder with ca.pem, operator.pem and operator.key, as `weft certs` makes them.
    #[arg(long, value_name = "FOLDER")]
    certs: Option<PathBuf>,
    /// How long to wait for the answer, in seconds.
    #[arg(long, default_value_t = 60.0, value_name = "SECONDS")]
    timeout: f64,
}

/// What became of it.
#[derive(Debug, Default, Serialize)]
struct Answer<'a> {
    job: &'a str,
    state: &'static str,
    /// From the word to the standstill, of a pause.
    standstill_ms: Option<f64>,
    /// Of a resize: workers now, the first round of theirs, and how long nobody worked: until the
    /// checkpoint was kept, the lease was in, and all had begun.
    workers: Option<u32>,
    round: Option<u64>,
    pause_s: Option<f64>,
    checkpoint_s: Option<f64>,
    lease_s: Option<f64>,
    start_s: Option<f64>,
}

pub(crate) fn run(command: &JobCommand, format: Format) -> Outcome {
    let steered = match command {
        JobCommand::Pause(steered) | JobCommand::Resume(steered) => steered,
        JobCommand::Resize(resized) => &resized.steered,
    };
    let timeout = Duration::try_from_secs_f64(steered.timeout)
        .map_err(|error| Exit::Usage.because(anyhow::Error::new(error).context("--timeout")))?;
    let certs = steered.certs.as_deref();
    let operator = Operator::dial(&steered.controller, certs, timeout).map_err(failed)?;
    let answer = Answer { job: &steered.name, state: "running", ..Answer::default() };
    let answer = match command {
        JobCommand::Pause(_) => {
            let standstill = operator.pause(&steered.name).map_err(failed)?;
            let standstill_ms = Some(standstill.as_secs_f64() * 1e3);
            Answer { state: "paused", standstill_ms, ..answer }
        }
        JobCommand::Resume(_) => {
            operator.resume(&steered.name).map_err(failed)?;
            answer
        }
        JobCommand::Resize(resized) => {
            let resize = operator.resize(&steered.name, resized.workers).map_err(failed)?;
            let seconds = |ns: u64| Some(ns as f64 / 1e9);
            Answer {
                workers: Some(resize.to),
                round: Some(resize.round),
                pause_s: seconds(pause_ns(&resize)),
                checkpoint_s: seconds(resize.checkpoint_ns),
                lease_s: seconds(resize.lease_ns),
                start_s: seconds(resize.start_ns),
                ..answer
            }
        }
    };
    match format {
        Format::Text => emit_text(&words(&answer))?,
        Format::Json => emit_json(&answer)?,
        Format::Csv => emit_csv(&[answer])?,
    }
    Ok(0)
}

fn words(answer: &Answer<'_>) -> String {
    let Answer { job, state, .. } = answer;
    match (answer.standstill_ms, answer.workers, answer.pause_s) {
        (Some(ms), ..) => format!("{job} is {state}, {ms:.3} ms after the word\n"),
        (None, Some(workers), Some(pause_s)) => format!(
            "{job} is {state} with {workers} workers from round {} on, after {pause_s:.3} s\n",
            answer.round.unwrap_or(0)
        ),
        _ => format!("{job} is {state}\n"),
    }
}

fn failed(error: OperatorError) -> Failure {
    let exit = match (error.is_usage(), error.is_unreachable()) {
        (true, _) => Exit::Usage,
        (false, true) => Exit::CannotRun,
        (false, false) => Exit::Failed,
    };
    exit.because(error)
}
