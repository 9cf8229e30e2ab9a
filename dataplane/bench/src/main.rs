//! `weft-bench`: see `--help`, and the crate.

// These macros panic when nobody reads: `weft_process::say` does not.
#![cfg_attr(not(test), deny(clippy::print_stderr, clippy::print_stdout))]

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use weft_bench::{BenchError, Measurement};
use weft_node::cli::{VERSION, split_eal_args};
use weft_node::config;
use weft_node::error::{NodeError, one_line};
use weft_process::{say, signals};

/// Measures the aggregator of Weft as the configuration's `[bench]` says, and ends with one JSON
/// object on stdout.
#[derive(Debug, Parser)]
#[command(
    name = "weft-bench",
    version = VERSION,
    override_usage = "weft-bench --config <FILE>\n       weft-bench <EAL ARGUMENTS>… -- --config <FILE>",
    after_help = "Exit status: 0 measured; 1 the measurement failed; 2 usage or configuration; 3 cannot run here; 130 ended at once by a second signal."
)]
struct Cli {
    /// Configuration file (TOML) of a node, with a section `[bench]`.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
}

fn main() -> ExitCode {
    let parsed = split_eal_args(std::env::args_os())
        .and_then(|(arguments, eal_args)| Ok((Cli::try_parse_from(arguments)?, eal_args)));
    let (cli, eal_args) = match parsed {
        Ok(parsed) => parsed,
        Err(error) => error.exit(),
    };
    match measure(&cli, eal_args) {
        Ok(measured) => {
            say::out(&format!("{}\n", measured.to_json()));
            ExitCode::SUCCESS
        }
        Err(error) => {
            say!("weft-bench: {}", one_line(&error));
            ExitCode::from(error.exit_status())
        }
    }
}

fn measure(cli: &Cli, eal_args: Option<Vec<String>>) -> Result<Measurement, BenchError> {
    let settings = config::load(&cli.config)?;
    let stop = signals::stop_flag().map_err(NodeError::Signals)?;
    weft_bench::run(&settings, eal_args, stop)
}
