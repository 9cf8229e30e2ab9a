//! `weft run` of a scenario with `[push]`: runs it, proves it, reports it.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use weft_config::to_toml;
use weft_testbed::certs::Folder;
use weft_testbed::report::{LinkDelay, RunWriter, Verdict};
use weft_testbed::run::push::{
    Evidence, LIVES_MAX, PushFinished, PushMessage, PushObserved, PushPlan, PushProof,
    UpdateOutcome, initial_path, make_certificates, model_path, run_push_in_memory,
    run_push_in_virtual_time, run_push_processes, updates_path, verify_push,
};
use weft_testbed::run::{
    DelayedBy, Ground, Io, Place, ProcessError, VirtualClock, captures, monotonic_ns,
};
use weft_testbed::scenario::{CONTROLLER, REPLICA, SERVER, Scenario};
use weft_testbed::workload::digits::{Trainer, model_bytes};

use super::certs::now_unix_s;
use super::lab::listen;
use super::run::{choose_ground, default_directory, in_lab, progress_bar, record, surroundings};
use super::run_args::{Level, RunArgs};
use super::{Exit, Failure, Format, Outcome, emit, report, run_ground, run_packet};
use weft_process::say;
use weft_testbed::interrupt;

pub(super) fn run(
    arguments: &RunArgs,
    scenario: &Scenario,
    requested: Io,
    format: Format,
) -> Outcome {
    let ground = choose_ground(requested, scenario, arguments)?;
    run_ground::check(scenario, &ground, arguments)?;
    let name = arguments.name.as_ref().unwrap_or(&scenario.name);
    let directory = arguments.out.clone().unwrap_or_else(|| default_directory(name));
    // Boxes are told whole paths, for they may run elsewhere than here.
    let absolute = std::path::absolute(&directory).map_err(|error| Exit::Usage.because(error))?;
    let has_calls = ground.io != Io::Memory && arguments.level == Level::Live;
    let keys = (has_calls && !arguments.dry_run)
        .then(|| tempfile::Builder::new().prefix("weft-certs-").tempdir())
        .transpose()
        .context("cannot make a temporary folder for the run's certificates")
        .map_err(|error| Exit::CannotRun.because(error))?;
    // What is only printed has a name that does not change.
    let printed = absolute.join("certs");
    let certs = has_calls.then(|| keys.as_ref().map_or(&*printed, |keys| keys.path()));
    let mut plan =
        PushPlan::new(scenario, ground.io, &ground.place, arguments.seed, &absolute, certs)
            .map_err(|error| Exit::Usage.because(error))?;
    let delayed_by = run_ground::delayed_by(scenario, &ground, arguments.level);
    if delayed_by == Some(DelayedBy::FaultPorts) {
        plan.delay_by_fault_ports(scenario);
    }
    let link_delay = delayed_by.map(|by| by.report(scenario));
    if arguments.pcap {
        plan.capture(&absolute, arguments.pcap_size);
    }
    if arguments.dry_run {
        return print_plan(&plan, link_delay.as_ref());
    }
    if let Some(reason) = &ground.degraded {
        say!("weft: DEGRADED: {reason}");
    }
    let writer = RunWriter::create(&directory, record(scenario, arguments))
        .map_err(|error| Exit::Usage.because(error))?;
    write_initial(scenario, arguments.seed, &directory)?;
    if let Some(keys) = &keys {
        make_certificates(&plan, &Folder::at(keys.path()), now_unix_s())
            .map_err(|error| Exit::CannotRun.because(error))?;
    }
    let begun_ns = monotonic_ns();
    let (observed, clock) = carry_out(scenario, &plan, &ground, arguments, &absolute)?;
    let wall_ns = monotonic_ns() - begun_ns;
    drop(keys);
    let proof = prove(scenario, arguments.seed, &directory, &observed);
    if !arguments.keep_recordings {
        remove_recordings(scenario, &directory);
    }
    let run = PushFinished {
        scenario,
        plan: &plan,
        ground: &ground,
        observed: &observed,
        proof,
        begun_ns: if clock.is_some() { 0 } else { begun_ns },
        wall_ns: clock.as_ref().map_or(wall_ns, |clock| clock.virtual_ns),
    };
    let mut outcome = run.outcome(requested, arguments.seed);
    if let Some(clock) = clock {
        run_packet::note(&mut outcome, clock, Duration::from_nanos(wall_ns));
    }
    outcome.surroundings.link_delay = link_delay;
    outcome.surroundings.captures = captures(&directory, &observed.boxes);
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

fn print_plan(plan: &PushPlan, delay: Option<&LinkDelay>) -> Outcome {
    let mut text = String::new();
    for planned in &plan.boxes {
        text += &format!(
            "# {0}: weft-node --config {0}.toml\n{1}\n",
            planned.name,
            to_toml(&planned.config)
        );
    }
    if let Some(planned) = &plan.controller {
        text += &format!(
            "# {0}: weft-controller --config {0}.toml\n{1}\n",
            planned.name,
            to_toml(&planned.config)
        );
    }
    for worker in &plan.workers {
        text += &format!("# w{}: from {} to {}\n", worker.rank, worker.local, worker.server);
    }
    text += &surroundings(&plan.background, delay);
    emit(&text)?;
    Ok(0)
}

/// The model that everybody starts from, for the server to read.
fn write_initial(scenario: &Scenario, seed: u64, directory: &Path) -> Result<(), Failure> {
    let workers = usize::from(scenario.job.workers);
    let trainer = Trainer::new(0, workers, seed, &scenario.job.trainer())
        .map_err(|error| Exit::Usage.because(error))?;
    let path = initial_path(directory);
    fs::write(&path, model_bytes(trainer.parameters()))
        .with_context(|| format!("writing {}", path.display()))
        .map_err(|error| Exit::Failed.because(error))
}

/// Runs the plan; whatever happens, no lab and no process of it is left.
fn carry_out(
    scenario: &Scenario,
    plan: &PushPlan,
    ground: &Ground,
    arguments: &RunArgs,
    directory: &Path,
) -> Result<(PushObserved, Option<VirtualClock>), Failure> {
    let seed = arguments.seed;
    let push = plan.workers[0].push();
    let per_round = u64::from(push.updates_per_round(&scenario.job));
    let bar = progress_bar(u64::from(scenario.job.rounds));
    let mut progress = |rank: u8, message: &PushMessage| match message {
        PushMessage::Update(update) if update.outcome == UpdateOutcome::Committed => {
            bar.set_position(bar.position().max(update.committed_version / per_round));
            bar.set_message(format!("loss {:.4}", update.loss));
        }
        PushMessage::Failed { error, .. } => bar.println(format!("weft: worker {rank}: {error}")),
        _ => {}
    };
    if arguments.level == Level::Packet {
        listen()?;
        let stop = &interrupt::is_raised;
        let run = run_push_in_virtual_time(scenario, plan, seed, directory, &mut progress, stop);
        bar.finish_and_clear();
        let (observed, clock) = run.map_err(run_packet::failed)?;
        return Ok((observed, Some(clock)));
    }
    if ground.io == Io::Memory {
        let result = run_push_in_memory(scenario, plan, seed, directory, &mut progress);
        bar.finish_and_clear();
        return result.map(|seen| (seen, None)).map_err(|error| Exit::Usage.because(error));
    }
    let topology = plan.topology.as_ref().filter(|_| ground.place == Place::Lab);
    let result = in_lab(topology, &bar, |lab, interrupted| {
        run_push_processes(plan, lab, scenario, directory, &mut progress, interrupted)
    })?;
    result.map(|seen| (seen, None)).map_err(|error| match error {
        ProcessError::Interrupted => Exit::Interrupted.because(error),
        ProcessError::Silence(_) | ProcessError::Log { .. } => Exit::Failed.because(error),
        _ => Exit::CannotRun.because(error),
    })
}

fn prove(
    scenario: &Scenario,
    seed: u64,
    directory: &Path,
    observed: &PushObserved,
) -> Result<PushProof, String> {
    let server = observed.log(SERVER).ok_or("the server left no log")?;
    let has_controller = scenario.push.as_ref().is_some_and(|push| push.controller);
    let evidence = Evidence {
        scenario,
        seed,
        directory,
        server,
        replica: observed.log(REPLICA),
        controller: has_controller.then(|| observed.log(CONTROLLER).unwrap_or_default()),
        updates: &observed.updates,
        reached: observed.reached,
    };
    verify_push(&evidence).map_err(|error| error.to_string())
}

fn remove_recordings(scenario: &Scenario, directory: &Path) {
    for rank in 0..scenario.job.workers {
        for life in 0..=LIVES_MAX {
            // Most workers have one life.
            let _ = fs::remove_file(updates_path(directory, rank, life));
        }
    }
    for name in [SERVER, REPLICA] {
        // A box that was killed left none.
        let _ = fs::remove_file(model_path(directory, name));
    }
    let _ = fs::remove_file(initial_path(directory));
}
