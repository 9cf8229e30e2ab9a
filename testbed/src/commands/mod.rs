//! One file per subcommand, and what they share: formats, exit codes, standard output.

pub(crate) mod bench;
mod bench_aggregator;
mod bench_allreduce;
mod bench_forged;
mod bench_gate;
mod bench_keys;
mod bench_peers;
pub(crate) mod certs;
pub(crate) mod cluster;
mod cluster_bands;
mod cluster_choice;
mod cluster_compare;
mod cluster_curves;
mod cluster_elastic;
mod cluster_files;
mod cluster_lights;
mod cluster_network;
mod cluster_stop;
mod cluster_trace;
mod cluster_widths;
pub(crate) mod compare;
mod compare_jobs;
pub(crate) mod conformance;
pub(crate) mod doctor;
pub(crate) mod install;
pub(crate) mod job;
mod job_files;
pub(crate) mod lab;
pub(crate) mod plan;
mod plan_optimum;
pub(crate) mod probe;
pub(crate) mod replay;
pub(crate) mod report;
mod rows;
pub(crate) mod run;
pub(crate) mod run_args;
mod run_factorisation;
mod run_ground;
mod run_jobs;
mod run_packet;
mod run_resize;
pub(crate) mod soak;
pub(crate) mod table_process;
pub(crate) mod top;
pub(crate) mod worker;

use std::io::{IsTerminal as _, Write as _};
use std::path::PathBuf;

use clap::builder::{PathBufValueParser, PossibleValuesParser, TypedValueParser};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use weft_process::say::plain;
use weft_process::shipped;
use weft_testbed::interrupt;
use weft_testbed::report::fold;
use weft_wire::words::Word;

/// Takes the words of an enumeration, and lists them in the help.
pub(crate) fn word<T: Word + Send + Sync>() -> impl TypedValueParser<Value = T> {
    let words = T::WORDS.iter().map(|(_, word)| *word);
    PossibleValuesParser::new(words).try_map(|word| T::from_word(&word).map_err(|e| e.to_string()))
}

/// Takes the path of a file to read, which may be one that ships with this program.
pub(crate) fn input() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().map(shipped::find)
}

/// How data is written.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, clap::ValueEnum)]
pub(crate) enum Format {
    /// For people.
    #[default]
    Text,
    /// One JSON value.
    Json,
    /// A header line, then one line per row.
    Csv,
}

/// The exit statuses that scripts may rely on, besides 0.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub(crate) enum Exit {
    /// The verdict is "failed", or an operation failed.
    Failed = 1,
    /// Wrong usage, or an input file that makes no sense.
    Usage = 2,
    /// This machine or user cannot do it.
    CannotRun = 3,
    /// SIGINT, SIGTERM or SIGHUP ended it, and what it had made is taken down.
    Interrupted = interrupt::STATUS,
}

impl Exit {
    /// Pairs an error with this status.
    pub(crate) fn because(self, error: impl Into<anyhow::Error>) -> Failure {
        Failure { exit: self, error: error.into() }
    }
}

/// An error and the exit status that it means.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    pub(crate) error: anyhow::Error,
}

/// What a subcommand returns: the exit status of a command that was able to do its work.
pub(crate) type Outcome = Result<u8, Failure>;

/// Writes data. A reader that has gone away (`weft … | head`) is no error.
pub(crate) fn emit(text: &str) -> Result<(), Failure> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(plain(text).as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Exit::Failed.because(anyhow::Error::new(error).context("writing to stdout")))
        }
        _ => Ok(()),
    }
}

/// Writes text for people, which fits 80 columns.
pub(crate) fn emit_text(text: &str) -> Result<(), Failure> {
    emit(&fold(text))
}

/// Writes a JSON value.
pub(crate) fn emit_json<T: serde::Serialize>(value: &T) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value).map_err(|error| Exit::Failed.because(error))?;
    emit(&(text + "\n"))
}

/// Writes rows with a header from their field names.
pub(crate) fn emit_csv<T: serde::Serialize>(rows: &[T]) -> Result<(), Failure> {
    emit(&csv_text(rows)?)
}

/// Rows with a header from their field names.
fn csv_text<T: serde::Serialize>(rows: &[T]) -> Result<String, Failure> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    for row in rows {
        writer.serialize(row).map_err(|error| Exit::Failed.because(error))?;
    }
    let bytes = writer.into_inner().map_err(|error| Exit::Failed.because(error.into_error()))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The same of rows of which there may be none: the header is there all the same.
fn csv_table<T: serde::Serialize + Default>(rows: &[T]) -> Result<String, Failure> {
    if !rows.is_empty() {
        return csv_text(rows);
    }
    let one = csv_text(&[T::default()])?;
    Ok(one.lines().take(1).map(|header| format!("{header}\n")).collect())
}

/// A bar that counts up to `len` of what `unit` names; on a terminal only.
fn progress_bar(len: u64, unit: &str) -> ProgressBar {
    let bar = ProgressBar::new(len);
    if !std::io::stderr().is_terminal() {
        bar.set_draw_target(ProgressDrawTarget::hidden());
    }
    let template = format!("{unit} {{pos}}/{{len}} [{{bar:40}}] {{msg}} ({{eta}})");
    if let Ok(style) = ProgressStyle::with_template(&template) {
        bar.set_style(style);
    }
    bar
}
