//! `weft`: labs, runs and reports of the Weft dataplane.

#![forbid(unsafe_code)]

mod commands;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use commands::{Failure, Format, lab, report};

/// Labs, runs and reports of Weft, the in-network gradient aggregation dataplane.
///
/// Data goes to standard output; progress and messages go to standard error.
#[derive(Debug, Parser)]
#[command(name = "weft", version = VERSION, after_help = EXIT_CODES, subcommand_required = true)]
struct Cli {
    /// How data is written.
    #[arg(long, global = true, value_enum, default_value_t, help_heading = "Output")]
    format: Format,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Build networks of namespaces on this machine
    #[command(subcommand)]
    Lab(lab::LabCommand),
    /// Redraw the report of a run from its directory
    Report(report::ReportArgs),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let result = match cli.command {
        Command::Lab(command) => lab::run(command, cli.format),
        Command::Report(arguments) => report::run(&arguments, cli.format),
    };
    match result {
        Ok(code) => ExitCode::from(code),
        Err(Failure { exit, error }) => {
            eprintln!("weft: {error:#}");
            ExitCode::from(exit as u8)
        }
    }
}

const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (commit ", env!("WEFT_COMMIT"), ")");

const EXIT_CODES: &str = "\
Exit status: 0 done, 1 failed, 2 wrong usage or input file, 3 cannot run here or degraded.";
