//! `weft-node`: see `--help`, and [`weft_config::node`] for the configuration file.

// These macros panic when nobody reads: `weft_process::say` does not.
#![cfg_attr(not(test), deny(clippy::print_stderr, clippy::print_stdout))]

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use weft_config::StatsFormat;
use weft_node::agent;
use weft_node::bench;
use weft_node::cli::Invocation;
use weft_node::config;
use weft_node::control::NodeControl;
use weft_node::durable::Stored;
use weft_node::environment;
use weft_node::error::NodeError;
use weft_node::node::{self, Options};
use weft_node::stats::{Report, write_text};
use weft_process::say;

fn main() -> ExitCode {
    let invocation = match Invocation::parse(std::env::args_os()) {
        Ok(invocation) => invocation,
        Err(error) => error.exit(),
    };
    match start(invocation) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            weft_process::say!("weft-node: {}", one_line(&error));
            ExitCode::from(error.exit_status())
        }
    }
}

fn start(invocation: Invocation) -> Result<(), NodeError> {
    let Invocation { cli, eal_args } = invocation;
    let mut settings = config::load(&cli.config)?;
    let node = &mut settings.config.node;
    node.stats_period_s = cli.stats_period.unwrap_or(node.stats_period_s);
    node.stats_format = cli.format.unwrap_or(node.stats_format);
    let format = node.stats_format;
    if cli.print_config {
        say::out(&weft_config::to_toml(&settings.config));
        return Ok(());
    }
    if cli.check_config {
        say::out(&format!("{}: good\n{}", cli.config.display(), settings.arena_text()));
        return Ok(());
    }
    let mut options = Options { eal_args, stop: stop_on_signals()?, control: None };
    if settings.config.bench.is_some() {
        let measured = bench::run(&settings, options)?;
        say::out(&format!("{}\n", measured.to_json()));
        return Ok(());
    }
    let stored = Stored::open(&settings)?;
    let is_over = Arc::new(AtomicBool::new(false));
    let agent = if agent::is_wanted(&settings.config) {
        let control = Arc::new(NodeControl::of(&settings));
        options.control = Some(Arc::clone(&control));
        let life = environment::random_seed().map_err(NodeError::Seed)?;
        let resumed: Vec<_> = stored.resumed().cloned().collect();
        agent::start(&settings.config, control, life, &resumed, Arc::clone(&is_over))?
    } else {
        None
    };
    let served = node::run(&settings, options, stored);
    // Only now, so that the lanes' last events are logged too.
    is_over.store(true, Ordering::Relaxed);
    if let Some(agent) = agent {
        // It looks at the flag every few milliseconds; a panic there is no reason to lose the
        // report.
        let _ = agent.join();
    }
    let report = served?;
    print_report(&report, format);
    Ok(())
}

fn print_report(report: &Report, format: StatsFormat) {
    match format {
        StatsFormat::Text => say::out(&write_text(report)),
        StatsFormat::Json => say::out(&format!("{}\n", report.to_json())),
    }
}

/// A flag that the first SIGINT, SIGTERM or SIGHUP sets; the second ends the process at once, as
/// interrupted. SIGHUP stays ignored where it was (`nohup`).
fn stop_on_signals() -> Result<Arc<AtomicBool>, NodeError> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    let stop = Arc::new(AtomicBool::new(false));
    let is_heard = |signal: &i32| *signal != SIGHUP || !weft_process::signals::ignores_hangup();
    for signal in [SIGINT, SIGTERM, SIGHUP].into_iter().filter(is_heard) {
        signal_hook::flag::register_conditional_shutdown(signal, INTERRUPTED, Arc::clone(&stop))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&stop)))
            .map_err(NodeError::Signals)?;
    }
    Ok(stop)
}

/// The exit status of a node that a second signal has ended.
const INTERRUPTED: i32 = 130;

/// The error and its causes on one line.
fn one_line(error: &NodeError) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        let words = error.to_string();
        // Some messages already end with their cause.
        if !text.contains(&words) {
            text = format!("{text}: {words}");
        }
        cause = error.source();
    }
    text.lines().map(str::trim).collect::<Vec<_>>().join("; ")
}
