//! `weft-node`: see `--help`, and [`weft_config::node`] for the configuration file.

// These macros panic when nobody reads: `weft_process::say` does not.
#![cfg_attr(not(test), deny(clippy::print_stderr, clippy::print_stdout))]

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use weft_config::StatsFormat;
use weft_lane::Settings;
use weft_node::agent;
use weft_node::bands;
use weft_node::cli::Invocation;
use weft_node::config;
use weft_node::control::NodeControl;
use weft_node::durable::Stored;
use weft_node::environment;
use weft_node::error::{NodeError, one_line};
use weft_node::node::{self, Options};
use weft_node::record;
use weft_node::stats::{Report, write_text};
use weft_process::{files, say, signals};
use weft_switch::SwitchError;

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
    record::override_by(&mut settings.config, cli.record.as_deref(), cli.record_max_bytes)?;
    if cli.print_config {
        say::out(&weft_config::to_toml(&settings.config));
        return Ok(());
    }
    if cli.check_config {
        say::out(&format!("{}: good\n{}", cli.config.display(), settings.arena_text()));
        return Ok(());
    }
    if settings.config.bench.is_some() {
        return Err(NodeError::Bench);
    }
    files::raise();
    say::stamp_lines();
    let stop = signals::daemon_stop_flag("weft-node").map_err(NodeError::Signals)?;
    let mut options = Options { eal_args, stop, control: None, lives: 0 };
    let mut last = None;
    let report = loop {
        match (live(&settings, options.clone()), last.take()) {
            (Err(NodeError::SwitchLost { reason, report }), _) => {
                say!("weft-node: {reason}; beginning anew");
                last = Some(*report);
                options.lives += 1;
            }
            // Told to end while the switch was away: what was counted before is all there is.
            (Err(NodeError::Switch(SwitchError::Stopped)), Some(report)) => break report,
            (other, _) => break other?,
        }
    };
    print_report(&report, format);
    Ok(())
}

/// One life of the node.
fn live(settings: &Settings, mut options: Options) -> Result<Report, NodeError> {
    let stored = Stored::open(settings)?;
    let is_over = Arc::new(AtomicBool::new(false));
    bands::forget(&settings.config);
    let agent = if agent::is_wanted(&settings.config) {
        let control = Arc::new(NodeControl::of(settings));
        options.control = Some(Arc::clone(&control));
        let life = environment::random_seed().map_err(NodeError::Seed)?;
        let resumed: Vec<_> = stored.resumed().cloned().collect();
        agent::start(&settings.config, control, life, &resumed, Arc::clone(&is_over))?
    } else {
        None
    };
    let served = node::run(settings, options, stored);
    // Only now, so that the lanes' last events are logged too.
    is_over.store(true, Ordering::Relaxed);
    if let Some(agent) = agent {
        // It looks at the flag every few milliseconds; a panic there is no reason to lose the
        // report.
        let _ = agent.join();
    }
    served
}

fn print_report(report: &Report, format: StatsFormat) {
    match format {
        StatsFormat::Text => say::out(&write_text(report)),
        StatsFormat::Json => say::out(&format!("{}\n", report.to_json())),
    }
}
