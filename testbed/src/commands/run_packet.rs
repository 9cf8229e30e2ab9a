//! `weft run --level packet`: runs a scenario in virtual time, proves it, reports it.

use std::time::Instant;

use anyhow::anyhow;
use weft_testbed::report::{RunWriter, Verdict, VirtualTime};
use weft_testbed::run::push::{
    PacketError, PacketRun, PushFinished, PushPlan, check_virtual_time, run_push_in_virtual_time,
};
use weft_testbed::run::{DelayedBy, Ground, Io, Place};
use weft_testbed::scenario::Scenario;
use weft_testbed::{interrupt, say};

use super::run::{default_directory, progress_bar, record};
use super::run_args::RunArgs;
use super::run_push::{print_plan, prove, remove_recordings, show, write_initial};
use super::{Exit, Failure, Format, Outcome, report};

pub(super) fn run(arguments: &RunArgs, scenario: &Scenario, format: Format) -> Outcome {
    check(arguments, scenario)?;
    let name = arguments.name.as_ref().unwrap_or(&scenario.name);
    let directory = arguments.out.clone().unwrap_or_else(|| default_directory(name));
    // The nodes are configured as those of a lab with plain ports would be.
    let (io, place) = (Io::Udp, Place::Lab);
    let plan = PushPlan::new(scenario, io, &place, arguments.seed, &directory, None)
        .map_err(|error| Exit::Usage.because(error))?;
    let link_delay = (!scenario.delays().is_empty()).then(|| DelayedBy::Packet.report(scenario));
    if arguments.dry_run {
        return print_plan(&plan, link_delay.as_ref());
    }
    let writer = RunWriter::create(&directory, record(scenario, arguments))
        .map_err(|error| Exit::Usage.because(error))?;
    write_initial(scenario, arguments.seed, &directory)?;
    interrupt::listen().map_err(|error| Exit::CannotRun.because(error))?;
    let bar = progress_bar(u64::from(scenario.job.rounds));
    let begun = Instant::now();
    let run = run_push_in_virtual_time(
        scenario,
        &plan,
        arguments.seed,
        &directory,
        &mut |rank, message| show(&bar, &plan, rank, message),
        &interrupt::is_raised,
    );
    bar.finish_and_clear();
    let run = run.map_err(|error| match error {
        PacketError::Interrupted => Exit::Interrupted.because(error),
        _ => Exit::Failed.because(error),
    })?;
    let PacketRun { observed, virtual_ns, events, fingerprint } = run;
    let wall_seconds = begun.elapsed().as_secs_f64();
    let proof = prove(scenario, arguments.seed, &directory, &observed);
    if !arguments.keep_recordings {
        remove_recordings(scenario, &directory);
    }
    let ground = Ground { io, place, degraded: None };
    let run = PushFinished {
        scenario,
        plan: &plan,
        ground: &ground,
        observed: &observed,
        proof,
        begun_ns: 0,
        wall_ns: virtual_ns,
    };
    let mut outcome = run.outcome(io, arguments.seed);
    (outcome.io_requested, outcome.io) = (IO_NAME.to_owned(), IO_NAME.to_owned());
    outcome.surroundings.link_delay = link_delay;
    outcome.surroundings.virtual_time = Some(VirtualTime {
        level: "packet".to_owned(),
        virtual_seconds: virtual_ns as f64 / 1e9,
        events,
        wall_seconds,
        fingerprint,
    });
    let is_degraded = !run.degraded().is_empty();
    let failed = outcome.verdict == Verdict::Failed;
    run.write(writer, outcome).map_err(|error| Exit::Failed.because(error))?;
    report::present(&directory, None, format)?;
    say!("weft: run directory {}", directory.display());
    Ok(match (failed, is_degraded) {
        (true, _) => Exit::Failed as u8,
        (false, true) => Exit::CannotRun as u8,
        (false, false) => 0,
    })
}

/// Refuses what virtual time has not, by the option or the key that asks for it.
fn check(arguments: &RunArgs, scenario: &Scenario) -> Result<(), Failure> {
    let options = [
        (arguments.io.is_some(), "--io", "its frames pass through no port"),
        (arguments.pcap, "--pcap", "it has no captures"),
        (arguments.no_lab, "--no-lab", "it has no namespaces to do without"),
    ];
    if let Some((_, option, why)) = options.into_iter().find(|(is_given, ..)| *is_given) {
        return Err(Exit::Usage.because(anyhow!("{option} is for --level live: {why}")));
    }
    check_virtual_time(scenario)
        .map_err(|error| Exit::Usage.because(anyhow!("{}: {error}", arguments.scenario.display())))
}

/// What carries the frames.
const IO_NAME: &str = "virtual";
