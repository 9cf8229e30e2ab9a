//! The command line.

use std::path::PathBuf;

use clap::Parser;
use clap::builder::{PathBufValueParser, TypedValueParser as _};
use weft_config::StatsFormat;
use weft_process::shipped;

/// Plans the transfers of training jobs: who may send, when, where and how fast.
///
/// Ends on SIGINT or SIGTERM with a statistics block on stdout; SIGHUP is logged and not used.
/// Progress goes to stderr;
/// the line `{"ready":true,…}` says that it serves.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "weft-controller",
    version = VERSION,
    after_help = "Exit status: 0 ended on a signal; 2 usage or configuration; 3 cannot run here."
)]
pub struct Cli {
    /// Configuration file (TOML).
    #[arg(long, value_name = "FILE", value_parser = PathBufValueParser::new().map(shipped::find))]
    pub config: PathBuf,
    /// Read the configuration, say whether it is good, and exit.
    #[arg(long)]
    pub check_config: bool,
    /// Print the configuration with every default filled in, and exit.
    #[arg(long)]
    pub print_config: bool,
    /// Plan all jobs with this policy: a name, or `exec:CMD` for a program of your own.
    #[arg(long, value_name = "POLICY")]
    pub policy: Option<String>,
    /// How long a policy that is a program may take over a plan. Overrides
    /// `tuning.policy_timeout_ms`.
    #[arg(long, value_name = "MS")]
    pub policy_timeout_ms: Option<u64>,
    /// How much longer it may take over its first one. Overrides `tuning.policy_start_timeout_ms`.
    #[arg(long, value_name = "MS")]
    pub policy_start_timeout_ms: Option<u64>,
    /// Write statistics to stderr every so many seconds; 0 is never. Overrides `stats_period_s`.
    #[arg(long, value_name = "SECONDS")]
    pub stats_period: Option<u64>,
    /// How statistics are written. Overrides `stats_format`.
    #[arg(long, value_enum)]
    pub format: Option<StatsFormat>,
}

/// Version and commit, as `--version` prints them.
pub const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (commit ", env!("WEFT_COMMIT"), ")");
