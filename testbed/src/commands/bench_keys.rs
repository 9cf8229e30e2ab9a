//! `weft bench keys`.

use clap::Args;
use weft_testbed::bench::interrupt;
use weft_testbed::bench::keys::{self, KeysError, Row, Settings};

use super::rows::Rows;
use super::{Exit, Failure, Format, Outcome};

#[derive(Debug, Args)]
pub(crate) struct KeysArgs {
    /// Processes, each a thread with a socket on loopback.
    #[arg(long, value_delimiter = ',', default_value = "2", value_parser = clap::value_parser!(u8).range(2..=16))]
    nodes: Vec<u8>,
    /// Keys of one call.
    #[arg(long, value_delimiter = ',', default_value = "1,1000", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    keys: Vec<u32>,
    /// Elements of a row, each an f32: 100 are Lapse's 400 bytes.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..))]
    row_len: u16,
    /// Samples of each row of results.
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=7_000))]
    samples: u32,
    /// Largest IP packet of processes and home. Loopback takes up to 65535.
    #[arg(long, default_value_t = 1500, value_parser = clap::value_parser!(u16).range(1280..))]
    mtu: u16,
}

/// What ends the bench.
enum Ended {
    Bench(KeysError),
    Output(Failure),
}

impl From<KeysError> for Ended {
    fn from(error: KeysError) -> Self {
        Self::Bench(error)
    }
}

pub(crate) fn run(arguments: &KeysArgs, format: Format) -> Outcome {
    interrupt::listen().map_err(|error| Exit::CannotRun.because(error))?;
    let settings = Settings {
        nodes: arguments.nodes.clone(),
        keys: arguments.keys.clone(),
        row_len: arguments.row_len,
        samples: arguments.samples,
        mtu: arguments.mtu,
    };
    let mut rows = Rows::begin(format, &header())?;
    let ended = keys::run(&settings, |row| rows.row(row, text).map_err(Ended::Output));
    rows.end()?;
    match ended {
        Ok(()) => Ok(0),
        Err(Ended::Output(failure)) => Err(failure),
        Err(Ended::Bench(error)) => Err(explain(error)),
    }
}

fn explain(error: KeysError) -> Failure {
    let exit = match error {
        KeysError::Config(_) => Exit::Usage,
        KeysError::Ports(_) | KeysError::Home(_) => Exit::CannotRun,
        KeysError::Interrupted => Exit::Interrupted,
        _ => Exit::Failed,
    };
    exit.because(error)
}

fn header() -> String {
    format!(
        "{:<12} {:>6} {:>6} {:>12} {:>12} {:>14}\n",
        "operation", "keys", "nodes", "median us", "p99 us", "operations/s"
    )
}

fn text(row: &Row) -> String {
    format!(
        "{:<12} {:>6} {:>6} {:>12.3} {:>12.3} {:>14.0}\n",
        row.operation, row.keys, row.nodes, row.median_us, row.p99_us, row.operations_per_sec
    )
}

/// What the columns mean.
pub(crate) const COLUMNS: &str = "\
Columns:
  operation           pull or push of rows that are here (local) or at another process (remote);
                      localize has them come from another process
  keys                keys of one call
  nodes               processes; the home box of the table is one more thread
  median_us, p99_us   time of a whole call, over the samples; a sample of a local operation is the
                      mean of as many calls as make 2000 keys, for the clock takes longer than one
  operations_per_sec  keys per second of one thread that calls again and again
All pushes are summed up in the end; exit status 1 says that a sum was wrong or a call failed.";
