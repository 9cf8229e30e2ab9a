//! `weft run --level packet`: runs a scenario in virtual time, proves it, reports it.

use std::path::Path;
use std::time::Instant;

use anyhow::anyhow;
use weft_testbed::report::{RunOutcome, RunWriter, Verdict, VirtualTime};
use weft_testbed::run::push::{PushFinished, PushPlan, run_push_in_virtual_time};
use weft_testbed::run::{
    DelayedBy, Finished, Ground, Io, PacketError, PacketRun, Place, Plan, check_virtual_time,
    run_in_virtual_time,
};
use weft_testbed::scenario::Scenario;
use weft_testbed::{interrupt, say};

use super::run::{default_directory, progress_bar, record};
use super::run_args::RunArgs;
use super::{Exit, Failure, Format, Outcome, report, run as live, run_push as live_push};

pub(super) fn run(arguments: &RunArgs, scenario: &Scenario, format: Format) -> Outcome {
    check(arguments, scenario)?;
    let name = arguments.name.as_ref().unwrap_or(&scenario.name);
    let directory = arguments.out.clone().unwrap_or_else(|| default_directory(name));
    let ground = Ground { io: IO, place: Place::Lab, degraded: None };
    let link_delay = (!scenario.delays().is_empty()).then(|| DelayedBy::Packet.report(scenario));
    let begin = || {
        interrupt::listen().map_err(|error| Exit::CannotRun.because(error))?;
        let written = RunWriter::create(&directory, record(scenario, arguments));
        written.map_err(|error| Exit::Usage.because(error))
    };
    let clock = Clock { begun: Instant::now(), seed: arguments.seed };
    let bar = progress_bar(scenario.job.rounds.into());
    let (failed, degraded) = if scenario.push.is_some() {
        let plan = PushPlan::new(scenario, IO, &ground.place, arguments.seed, &directory, None)
            .map_err(|error| Exit::Usage.because(error))?;
        if arguments.dry_run {
            return live_push::print_plan(&plan, link_delay.as_ref());
        }
        let writer = begin()?;
        live_push::write_initial(scenario, arguments.seed, &directory)?;
        let mut progress = |rank, message: &_| live_push::show(&bar, &plan, rank, message);
        let run = run_push_in_virtual_time(
            scenario,
            &plan,
            arguments.seed,
            &directory,
            &mut progress,
            &interrupt::is_raised,
        );
        let run = clock.ended(run)?;
        let proof = live_push::prove(scenario, arguments.seed, &directory, &run.observed);
        if !arguments.keep_recordings {
            live_push::remove_recordings(scenario, &directory);
        }
        let finished = PushFinished {
            scenario,
            plan: &plan,
            ground: &ground,
            observed: &run.observed,
            proof,
            begun_ns: 0,
            wall_ns: run.virtual_ns,
        };
        let mut outcome = finished.outcome(IO, arguments.seed);
        clock.note(&mut outcome, &run);
        outcome.surroundings.link_delay = link_delay;
        let failed = outcome.verdict == Verdict::Failed;
        finished.write(writer, outcome).map_err(|error| Exit::Failed.because(error))?;
        (failed, !finished.degraded().is_empty())
    } else {
        let plan = Plan::new(scenario, IO, Place::Lab, arguments.seed)
            .map_err(|error| Exit::Usage.because(error))?;
        if arguments.dry_run {
            return live::print_plan(&plan, link_delay.as_ref());
        }
        let writer = begin()?;
        let mut progress = |rank, message: &_| live::show(&bar, rank, message);
        let run = run_in_virtual_time(
            scenario,
            &plan,
            arguments.seed,
            &directory,
            &mut progress,
            &interrupt::is_raised,
        );
        let run = clock.ended(run)?;
        let proof = live::prove(scenario, &plan, arguments.seed, &directory, &run.observed);
        if !arguments.keep_recordings {
            live::remove_recordings(&plan, &directory);
        }
        let finished = Finished {
            scenario,
            plan: &plan,
            ground: &ground,
            observed: &run.observed,
            wall_ns: run.virtual_ns,
        };
        let mut outcome = finished.outcome(IO, arguments.seed, proof.as_ref());
        clock.note(&mut outcome, &run);
        outcome.surroundings.link_delay = link_delay;
        let failed = outcome.verdict == Verdict::Failed;
        finished
            .write(writer, 0, proof.as_ref().ok(), outcome)
            .map_err(|error| Exit::Failed.because(error))?;
        (failed, false)
    };
    bar.finish_and_clear();
    present(&directory, format)?;
    Ok(match (failed, degraded) {
        (true, _) => Exit::Failed as u8,
        (false, true) => Exit::CannotRun as u8,
        (false, false) => 0,
    })
}

fn present(directory: &Path, format: Format) -> Result<(), Failure> {
    report::present(directory, None, format)?;
    say!("weft: run directory {}", directory.display());
    Ok(())
}

/// This machine's clock, beside the virtual one.
struct Clock {
    begun: Instant,
    seed: u64,
}

impl Clock {
    fn ended<O>(&self, run: Result<PacketRun<O>, PacketError>) -> Result<PacketRun<O>, Failure> {
        run.map_err(|error| match error {
            PacketError::Interrupted => Exit::Interrupted.because(error),
            _ => Exit::Failed.because(error),
        })
    }

    fn note<O>(&self, outcome: &mut RunOutcome, run: &PacketRun<O>) {
        outcome.seed = self.seed;
        (outcome.io_requested, outcome.io) = (IO_NAME.to_owned(), IO_NAME.to_owned());
        outcome.surroundings.virtual_time = Some(VirtualTime {
            level: "packet".to_owned(),
            virtual_seconds: run.virtual_ns as f64 / 1e9,
            events: run.events,
            wall_seconds: self.begun.elapsed().as_secs_f64(),
            fingerprint: run.fingerprint.clone(),
        });
    }
}

/// Refuses what virtual time has not, by the option or the key that asks for it.
fn check(arguments: &RunArgs, scenario: &Scenario) -> Result<(), Failure> {
    let options = [
        (arguments.io.is_some(), "--io", "its frames pass through no port"),
        (arguments.pcap, "--pcap", "it has no captures"),
        (arguments.no_lab, "--no-lab", "it has no namespaces to do without"),
    ];
    if let Some((_, option, why)) = options.into_iter().find(|(is_given, ..)| *is_given) {
        let error = anyhow!("{option} is for --level live; --level packet: {why}");
        return Err(Exit::Usage.because(error));
    }
    check_virtual_time(scenario)
        .map_err(|error| Exit::Usage.because(anyhow!("{}: {error}", arguments.scenario.display())))
}

/// The nodes are configured as those of a lab with plain ports would be.
const IO: Io = Io::Udp;
/// What carries the frames.
const IO_NAME: &str = "virtual";
