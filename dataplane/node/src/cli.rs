//! The command line. Without `--` all arguments are ours; else EAL arguments come before it, as in
//! DPDK's own programs, and replace those that `[dpdk]` generates.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Parser;
use clap::builder::{PathBufValueParser, TypedValueParser as _};
use weft_config::StatsFormat;
use weft_process::shipped;

/// Sums gradients of training jobs on their way: the aggregator of Weft.
///
/// Ends on SIGINT or SIGTERM with a statistics block on stdout; SIGHUP is logged and not used.
/// Progress goes to stderr;
/// the line that begins with "weft-node ready:" (or is `{"ready":true,…}` with --format json) says
/// that the node serves. A parameter server without `state_dir` forgets its job when it ends.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "weft-node",
    version = VERSION,
    override_usage = "weft-node --config <FILE> [OPTIONS]\n       weft-node <EAL ARGUMENTS>… -- --config <FILE> [OPTIONS]",
    after_help = "Exit status: 0 ended on a signal; 2 usage or configuration; 3 cannot run here; 130 ended at once by a second signal."
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
    /// Write statistics to stderr every so many seconds; 0 is never. Overrides
    /// `node.stats_period_s`.
    #[arg(long, value_name = "SECONDS")]
    pub stats_period: Option<u64>,
    /// Keep what the engines meet in this directory, which is made, or is there and empty, for
    /// `weft replay`. Overrides `record.directory`.
    #[arg(long, value_name = "DIR")]
    pub record: Option<PathBuf>,
    /// Largest size of the recording in bytes [default: 268435456]. Overrides `record.max_bytes`.
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u64).range(65536..))]
    pub record_max_bytes: Option<u64>,
    /// How statistics are written. Overrides `node.stats_format`.
    #[arg(long, value_enum)]
    pub format: Option<StatsFormat>,
}

#[cfg(feature = "dpdk-static")]
macro_rules! features {
    () => {
        "dpdk dpdk-static"
    };
}
#[cfg(all(feature = "dpdk", not(feature = "dpdk-static")))]
macro_rules! features {
    () => {
        "dpdk"
    };
}
#[cfg(not(feature = "dpdk"))]
macro_rules! features {
    () => {
        "none"
    };
}

/// A parsed command line.
#[derive(Clone, Debug)]
pub struct Invocation {
    /// Our arguments.
    pub cli: Cli,
    /// EAL arguments, if there was a `--`.
    pub eal_args: Option<Vec<String>>,
}

impl Invocation {
    /// Parses a command line, the program's name first.
    ///
    /// # Errors
    /// clap's error, which knows its own exit status and also stands for `--help`.
    pub fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Self, clap::Error> {
        let (ours, eal_args) = split_eal_args(args)?;
        Ok(Self { cli: Cli::try_parse_from(ours)?, eal_args })
    }
}

/// Splits a command line, the program's name first, into our arguments, again with its name, and
/// EAL's, if there was a `--`.
///
/// # Errors
/// clap's, for an EAL argument that is not UTF-8.
pub fn split_eal_args(
    args: impl IntoIterator<Item = OsString>,
) -> Result<(Vec<OsString>, Option<Vec<String>>), clap::Error> {
    let mut args: Vec<OsString> = args.into_iter().collect();
    let Some(at) = args.iter().position(|arg| arg == "--") else {
        return Ok((args, None));
    };
    let mut ours = args.split_off(at);
    // The name takes the place of `--`.
    if at > 0 {
        ours[0] = args.remove(0);
    }
    let text = |arg: OsString| {
        arg.into_string().map_err(|arg| {
            let message = format!("EAL argument {} is not UTF-8\n", arg.display());
            clap::Error::raw(clap::error::ErrorKind::InvalidUtf8, message)
        })
    };
    Ok((ours, Some(args.into_iter().map(text).collect::<Result<_, _>>()?)))
}

/// Version, commit and features, as `--version` prints them.
pub const VERSION: &str = concat!(
    env!("CARGO_PKG_VERSION"),
    " (commit ",
    env!("WEFT_COMMIT"),
    ", features: ",
    features!(),
    ")"
);

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &[&str]) -> Result<Invocation, clap::Error> {
        Invocation::parse(args.iter().map(OsString::from))
    }

    #[test]
    fn without_dashes_all_arguments_are_ours() {
        let invocation =
            parse(&["weft-node", "--config", "a.toml", "--stats-period", "5"]).unwrap();
        assert_eq!(invocation.eal_args, None);
        assert_eq!(invocation.cli.config, PathBuf::from("a.toml"));
        assert_eq!(invocation.cli.stats_period, Some(5));
    }

    #[test]
    fn eal_arguments_come_before_the_dashes() {
        let args = ["weft-node", "-l", "0-1", "--vdev=net_null0", "--", "--config", "a.toml"];
        let invocation = parse(&args).unwrap();
        let eal = ["-l", "0-1", "--vdev=net_null0"].map(str::to_owned);
        assert_eq!(invocation.eal_args, Some(eal.to_vec()));
        assert_eq!(invocation.cli.config, PathBuf::from("a.toml"));
        assert!(parse(&["weft-node", "-l", "0-1", "--config", "a.toml"]).is_err());
    }
}
