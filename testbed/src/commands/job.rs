//! `weft job`: an operator's word to a controller that runs.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use serde::Serialize;
use weft_testbed::operator::{Operator, OperatorError};

use super::{Exit, Failure, Format, Outcome, emit_csv, emit_json, emit_text};

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
#[derive(Debug, Serialize)]
struct Answer<'a> {
    job: &'a str,
    state: &'static str,
    /// From the word to the standstill, of a pause.
    standstill_ms: Option<f64>,
}

pub(crate) fn run(command: &JobCommand, format: Format) -> Outcome {
    let (JobCommand::Pause(steered) | JobCommand::Resume(steered)) = command;
    let timeout = Duration::try_from_secs_f64(steered.timeout)
        .map_err(|error| Exit::Usage.because(anyhow::Error::new(error).context("--timeout")))?;
    let certs = steered.certs.as_deref();
    let operator = Operator::dial(&steered.controller, certs, timeout).map_err(failed)?;
    let (state, standstill_ms) = match command {
        JobCommand::Pause(_) => {
            let standstill = operator.pause(&steered.name).map_err(failed)?;
            ("paused", Some(standstill.as_secs_f64() * 1e3))
        }
        JobCommand::Resume(_) => {
            operator.resume(&steered.name).map_err(failed)?;
            ("running", None)
        }
    };
    let answer = Answer { job: &steered.name, state, standstill_ms };
    match format {
        Format::Text => emit_text(&match standstill_ms {
            Some(ms) => format!("{} is {state}, {ms:.3} ms after the word\n", answer.job),
            None => format!("{} is {state}\n", answer.job),
        })?,
        Format::Json => emit_json(&answer)?,
        Format::Csv => emit_csv(&[answer])?,
    }
    Ok(0)
}

fn failed(error: OperatorError) -> Failure {
    let exit = if error.is_unreachable() { Exit::CannotRun } else { Exit::Failed };
    exit.because(error)
}
