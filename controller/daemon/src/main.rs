//! `weft-controller`: see `--help`, and [`weft_config::controller`] for the configuration file.

// These macros panic when nobody reads: `weft_process::say` does not.
#![cfg_attr(not(test), deny(clippy::print_stderr, clippy::print_stdout))]

use std::process::ExitCode;

use clap::Parser;
use tokio::signal::unix::{SignalKind, signal};
use weft_config::controller::ControllerConfig;
use weft_config::{ConfigFile, to_toml};
use weft_controller::cli::Cli;
use weft_controller::daemon::{self, Daemon};
use weft_controller::error::DaemonError;
use weft_process::say;
use weft_process::signals::note_hangups;

fn main() -> ExitCode {
    match start(&Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            weft_process::say!("weft-controller: {error}");
            ExitCode::from(error.exit_status())
        }
    }
}

fn start(cli: &Cli) -> Result<(), DaemonError> {
    let path = &cli.config;
    let text = std::fs::read_to_string(path)
        .map_err(|source| DaemonError::Unreadable { path: path.clone(), source })?;
    let file = ConfigFile::new(path.display().to_string(), text);
    run(cli, file.read()?).map_err(|error| error.in_file(&file))
}

fn run(cli: &Cli, mut config: ControllerConfig) -> Result<(), DaemonError> {
    config.stats_period_s = cli.stats_period.unwrap_or(config.stats_period_s);
    config.stats_format = cli.format.unwrap_or(config.stats_format);
    if let Some(policy) = &cli.policy {
        config.set_policy(policy);
    }
    let tuning = &mut config.tuning;
    tuning.policy_timeout_ms = cli.policy_timeout_ms.unwrap_or(tuning.policy_timeout_ms);
    tuning.policy_start_timeout_ms =
        cli.policy_start_timeout_ms.unwrap_or(tuning.policy_start_timeout_ms);
    if cli.print_config {
        say::out(&to_toml(&config));
        return Ok(());
    }
    if cli.check_config {
        daemon::check(&config)?;
        say::out(&format!("{}: good\n", cli.config.display()));
        return Ok(());
    }
    let system = |what| move |source| DaemonError::System { what, source };
    say::stamp_lines();
    // One thread: messages that come together go on together, and none wakes another thread.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(system("start the runtime"))?;
    let format = config.stats_format;
    let last = runtime.block_on(async {
        note_hangups("weft-controller").map_err(system("catch SIGHUP"))?;
        let mut interrupt = signal(SignalKind::interrupt()).map_err(system("catch SIGINT"))?;
        let mut terminate = signal(SignalKind::terminate()).map_err(system("catch SIGTERM"))?;
        let stop = async {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
        };
        Daemon::bind(config).await?.run(stop).await
    })?;
    say::out(&daemon::write(&last, format));
    Ok(())
}
