//! `weft bench keys`.

use clap::Args;
use weft_testbed::bench::keys::{self, Row, Settings};

use super::rows::Rows;
use super::{Exit, Format, Outcome};

#[derive(Debug, Args)]
pub(crate) struct KeysArgs {
    /// Processes: sessions over UDP on the loopback.
    #[arg(long, value_delimiter = ',', default_value = "2,3", value_parser = clap::value_parser!(u8).range(1..=8))]
    nodes: Vec<u8>,
    /// Elements of a row.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..=150))]
    row_len: u16,
    /// Calls of each kind; a twentieth on many keys.
    #[arg(long, default_value_t = 2_000, value_parser = clap::value_parser!(u32).range(20..))]
    calls: u32,
    /// Keys of a call on many.
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(2..=2_000))]
    many: u32,
}

pub(crate) fn run(arguments: &KeysArgs, format: Format) -> Outcome {
    let mut rows = Rows::begin(format, HEADER)?;
    for nodes in &arguments.nodes {
        let KeysArgs { row_len, calls, many, .. } = *arguments;
        let settings = Settings { nodes: *nodes, row_len, calls, many };
        match keys::run(&settings) {
            Ok(measured) => measured.iter().try_for_each(|row| rows.row(row, text))?,
            Err(error) => {
                rows.end()?;
                return Err(Exit::Failed.because(error));
            }
        }
    }
    rows.end()?;
    Ok(0)
}

const HEADER: &str = "# operation       keys  nodes   median (us)      p99 (us)   calls/s\n";

fn text(row: &Row) -> String {
    format!(
        "{:>13} {:>8} {:>6} {:>13.3} {:>13.3} {:>9.0}\n",
        row.operation, row.keys, row.nodes, row.median_us, row.p99_us, row.operations_per_sec
    )
}

pub(crate) const COLUMNS: &str = "\
Columns (JSON and CSV name them in full; times are of one call, whatever its keys):
  operation           local: the row is here; remote: another process has it; localize: it comes
  keys                keys of a call
  nodes               processes, all on this machine
  median_us, p99_us   time of a call; of a call on one local row, the mean of a thousand
  operations_per_sec  calls in a second";
