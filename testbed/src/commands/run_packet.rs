//! What `weft run --level packet` does otherwise than a live run.

use std::time::Duration;

use anyhow::anyhow;
use weft_testbed::report::{RunOutcome, VirtualTime};
use weft_testbed::run::{PacketError, VirtualClock, check_virtual_time};
use weft_testbed::scenario::Scenario;

use super::run_args::{Level, RunArgs};
use super::{Exit, Failure};

/// Refuses what virtual time has not, by the option or the key that asks for it.
pub(super) fn check(arguments: &RunArgs, scenario: &Scenario) -> Result<(), Failure> {
    check_options(arguments)?;
    if arguments.level == Level::Live {
        return Ok(());
    }
    check_virtual_time(scenario)
        .map_err(|error| Exit::Usage.because(anyhow!("{}: {error}", arguments.scenario.display())))
}

/// Refuses what virtual time has not, by the option.
pub(super) fn check_options(arguments: &RunArgs) -> Result<(), Failure> {
    if arguments.level == Level::Live {
        return Ok(());
    }
    let options = [
        (arguments.io.is_some(), "--io", "its frames pass through no port"),
        (arguments.worker_io.is_some(), "--worker-io", "its frames pass through no port"),
        (arguments.pcap, "--pcap", "it has no captures"),
        (arguments.record, "--record", "it has no boxes of their own"),
        (arguments.no_lab, "--no-lab", "it has no namespaces to do without"),
    ];
    if let Some((_, option, why)) = options.into_iter().find(|(is_given, ..)| *is_given) {
        let error = anyhow!("{option} is for --level live; --level packet: {why}");
        return Err(Exit::Usage.because(error));
    }
    Ok(())
}

/// Why a run in virtual time ended.
pub(super) fn failed(error: PacketError) -> Failure {
    match error {
        PacketError::Interrupted => Exit::Interrupted.because(error),
        _ => Exit::Failed.because(error),
    }
}

/// Says what was otherwise.
pub(super) fn note(outcome: &mut RunOutcome, clock: VirtualClock, wall: Duration) {
    (outcome.io_requested, outcome.io) = (IO_NAME.to_owned(), IO_NAME.to_owned());
    outcome.surroundings.virtual_time = Some(time(clock, wall));
}

/// The clock of a run, as its report has it.
pub(super) fn time(clock: VirtualClock, wall: Duration) -> VirtualTime {
    VirtualTime {
        level: "packet".to_owned(),
        virtual_seconds: clock.virtual_ns as f64 / 1e9,
        events: clock.events,
        wall_seconds: wall.as_secs_f64(),
        fingerprint: clock.fingerprint,
    }
}

/// What carries the frames.
const IO_NAME: &str = "virtual";
