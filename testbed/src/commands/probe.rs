//! `weft probe`: estimates beside the shaped truth.

use std::path::PathBuf;

use anyhow::anyhow;
use clap::{ArgGroup, Args};
use weft_testbed::lab::tc::Rate;
use weft_testbed::lab::topology::{Rack, Rates};
use weft_testbed::lab::{self, LabName, Topology, rootless};
use weft_testbed::probe::message::AgentPlan;
use weft_testbed::probe::{
    Cross, CrossTool, Options, ProbeFailure, Report, Step, agent, run as measure,
};

use super::lab::{explain, listen, load, tell_left};
use super::{Exit, Failure, Format, Outcome, emit_csv, emit_json, emit_text, input};
use weft_process::say;
use weft_testbed::interrupt;

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("network").required(true))]
pub(crate) struct ProbeArgs {
    /// A lab that is up.
    #[arg(long, group = "network", value_name = "NAME")]
    lab: Option<LabName>,
    /// A Mininet-style topology.json or a scenario (.toml) to bring up for the measurement.
    #[arg(long, group = "network", value_name = "FILE", value_parser = input())]
    scenario: Option<PathBuf>,
    /// Hosts w0, w1, … with these rates in Mbit/s, such as 100:50,20 (up:down, or both).
    #[arg(long, group = "network", value_delimiter = ',', value_parser = parse_rates, value_name = "UP:DOWN,…")]
    rates: Vec<Rates>,
    /// How long to probe.
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Let all hosts probe at once instead of one after the other.
    #[arg(long)]
    together: bool,
    /// UDP traffic of others at this rate of frames, to the next host or TARGET; may be repeated.
    #[arg(long, value_name = "HOST[/TARGET]:MBIT")]
    cross: Vec<Cross>,
    /// What sends it.
    #[arg(long, value_enum, default_value_t)]
    cross_tool: ToolName,
    /// Gives a host's link another rate on the way; may be repeated.
    #[arg(long, value_name = "HOST:MBIT@SECONDS")]
    step: Vec<Step>,
    /// Fail when an estimate is farther than this from the truth.
    #[arg(long, value_name = "PERCENT")]
    within: Option<f64>,
}

#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, clap::ValueEnum)]
enum ToolName {
    /// The agents.
    #[default]
    Own,
    /// iperf3, if it is installed.
    Iperf3,
}

#[derive(Debug, Args)]
pub(crate) struct AgentArgs {
    /// What to do, as JSON.
    plan: String,
}

pub(crate) fn run(arguments: &ProbeArgs, format: Format) -> Outcome {
    if !(arguments.seconds.is_finite() && (0.1..=3600.0).contains(&arguments.seconds)) {
        return Err(Exit::Usage.because(anyhow!("--seconds: expected 0.1 to 3600")));
    }
    let options = Options {
        seconds: arguments.seconds,
        together: arguments.together,
        cross: arguments.cross.clone(),
        cross_tool: match arguments.cross_tool {
            ToolName::Own => CrossTool::Own,
            ToolName::Iperf3 => CrossTool::Iperf3,
        },
        steps: arguments.step.clone(),
    };
    let report = match (&arguments.lab, &arguments.scenario) {
        (Some(name), _) => {
            listen()?;
            measure(name, &options, &interrupt::is_raised).map_err(told)?
        }
        (None, Some(file)) => in_own_lab(&load(file)?.0, &options)?,
        (None, None) => {
            let named = arguments.rates.iter().enumerate();
            let hosts = named.map(|(index, rates)| (format!("w{index}"), *rates)).collect();
            let rack = Rack { hosts, uplink: Rates::default() };
            let topology = Topology::racks(&[rack], 1500);
            in_own_lab(&topology.map_err(|error| Exit::Usage.because(error))?, &options)?
        }
    };
    present(&report, format)?;
    let Some(percent) = arguments.within else { return Ok(0) };
    let mut exit = 0;
    for row in report.beyond(percent) {
        exit = Exit::Failed as u8;
        say!("weft: {} {} is not within {percent}% of the truth", row.host, row.direction);
    }
    Ok(exit)
}

/// `weft probe-agent`: one host of a measurement.
pub(crate) fn run_agent(arguments: &AgentArgs) -> Outcome {
    let plan: AgentPlan =
        serde_json::from_str(&arguments.plan).map_err(|error| Exit::Usage.because(error))?;
    agent::run(&plan);
    Ok(0)
}

/// Measures in a lab of this process's own, which is gone afterwards.
fn in_own_lab(topology: &Topology, options: &Options) -> Result<Report, Failure> {
    rootless::acquire().map_err(|error| Exit::CannotRun.because(error))?;
    tell_left();
    listen()?;
    let name = LabName::of_this_process("probe");
    let lab = lab::up(&name, topology).map_err(explain)?;
    for warning in &lab.warnings {
        say!("weft: warning: {warning}");
    }
    let report = measure(&name, options, &interrupt::is_raised);
    let removed = lab::down(&name).map_err(explain);
    let report = report.map_err(told)?;
    removed?;
    Ok(report)
}

fn told(error: ProbeFailure) -> Failure {
    match error {
        ProbeFailure::Lab(error) => explain(error),
        ProbeFailure::Host { .. } | ProbeFailure::Network(_) => Exit::Usage.because(error),
        ProbeFailure::Start { .. } | ProbeFailure::NoCross => Exit::CannotRun.because(error),
        ProbeFailure::Agent { .. } => Exit::Failed.because(error),
        ProbeFailure::Interrupted => Exit::Interrupted.because(error),
    }
}

fn present(report: &Report, format: Format) -> Result<(), Failure> {
    match format {
        Format::Text => emit_text(&report.text()),
        Format::Json => emit_json(report),
        Format::Csv => emit_csv(&report.links),
    }
}

fn parse_rates(text: &str) -> Result<Rates, String> {
    let rate = |text: &str| {
        let rate = text.parse().ok().and_then(Rate::from_mbit);
        rate.ok_or_else(|| format!("`{text}`: expected a rate in Mbit/s, 0.01 to 100000"))
    };
    let (up, down) = text.split_once(':').unwrap_or((text, text));
    Ok(Rates { up: Some(rate(up)?), down: Some(rate(down)?) })
}
