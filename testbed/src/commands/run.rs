//! `weft run`: reads a scenario, runs it, proves it, reports it.

use std::fs;
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::anyhow;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use weft_config::to_toml;
use weft_testbed::lab::rootless;
use weft_testbed::lab::topology::Topology;
use weft_testbed::lab::{self, LabName};
use weft_testbed::report::{LinkDelay, Machine, RunRecord, RunWriter, Verdict};
use weft_testbed::run::{
    DelayedBy, Finished, FlowPlan, Ground, Io, LOOPBACK_FIRST, LOOPBACK_PORTS, Observed, Place,
    Plan, ProcessError, Proof, VirtualClock, WorkerMessage, captures, find_node, monotonic_ns,
    recording_path, run_in_memory, run_in_virtual_time, run_processes, verify,
};
use weft_testbed::scenario::Scenario;

use super::lab::{listen, tell_left};
use super::run_args::{IoName, Level, RunArgs, load};
use super::{Exit, Failure, Format, Outcome, emit, report, run_ground, run_packet, run_push};
use weft_process::say;
use weft_testbed::interrupt;

pub(crate) fn run(arguments: &RunArgs, format: Format) -> Outcome {
    let scenario = load(arguments)?;
    run_packet::check(arguments, &scenario)?;
    if scenario.push.is_some() {
        // A server, a replica and aggregators on DPDK would each keep a core busy.
        let requested = arguments.io.unwrap_or(IoName::Udp).io();
        return run_push::run(arguments, &scenario, requested, format);
    }
    let requested = arguments.io.unwrap_or(IoName::Dpdk).io();
    let ground = choose_ground(requested, &scenario, arguments)?;
    run_ground::check(&scenario, &ground, arguments)?;
    let name = arguments.name.as_ref().unwrap_or(&scenario.name);
    let directory = arguments.out.clone().unwrap_or_else(|| default_directory(name));
    let mut plan = Plan::new(&scenario, ground.io, ground.place.clone(), arguments.seed)
        .map_err(|error| Exit::Usage.because(error))?;
    let delayed_by = run_ground::delayed_by(&scenario, &ground, arguments.level);
    if delayed_by == Some(DelayedBy::FaultPorts) {
        plan.delay_by_fault_ports(&scenario);
    }
    let link_delay = delayed_by.map(|by| by.report(&scenario));
    if arguments.pcap {
        plan.capture(&directory, arguments.pcap_size);
    }
    if arguments.dry_run {
        return print_plan(&plan, link_delay.as_ref());
    }
    if let Some(reason) = &ground.degraded {
        say!("weft: DEGRADED: {reason}");
    }
    let writer = RunWriter::create(&directory, record(&scenario, arguments))
        .map_err(|error| Exit::Usage.because(error))?;
    let begun_ns = monotonic_ns();
    let (observed, clock) = carry_out(&scenario, &plan, &ground, arguments, &directory)?;
    let wall_ns = monotonic_ns() - begun_ns;
    let begun_ns = if clock.is_some() { 0 } else { begun_ns };
    let proof = prove(&scenario, &plan, arguments.seed, &directory, &observed);
    if !arguments.keep_recordings {
        for worker in &plan.workers {
            // A worker that failed early may have left none.
            let _ = fs::remove_file(recording_path(&directory, usize::from(worker.rank)));
        }
    }
    let run = Finished {
        scenario: &scenario,
        plan: &plan,
        ground: &ground,
        observed: &observed,
        wall_ns: clock.as_ref().map_or(wall_ns, |clock| clock.virtual_ns),
    };
    let mut outcome = run.outcome(requested, arguments.seed, proof.as_ref());
    if let Some(clock) = clock {
        run_packet::note(&mut outcome, clock, Duration::from_nanos(wall_ns));
    }
    outcome.surroundings.link_delay = link_delay;
    outcome.surroundings.captures = captures(&directory, &observed.boxes);
    let failed = outcome.verdict == Verdict::Failed;
    run.write(writer, begun_ns, proof.as_ref().ok(), outcome)
        .map_err(|error| Exit::Failed.because(error))?;
    report::present(&directory, None, format)?;
    say!("weft: run directory {}", directory.display());
    Ok(match (failed, &ground.degraded) {
        (true, _) => Exit::Failed as u8,
        (false, Some(_)) => Exit::CannotRun as u8,
        (false, None) => 0,
    })
}

/// Finds out what this machine allows. Must run before any thread: it may enter a namespace.
pub(super) fn choose_ground(
    requested: Io,
    scenario: &Scenario,
    arguments: &RunArgs,
) -> Result<Ground, Failure> {
    let at = |io, place| Ok(Ground { io, place, degraded: None });
    if arguments.level == Level::Packet {
        // Nodes are configured as those of a lab with plain ports.
        return at(Io::Udp, Place::Lab);
    }
    let port_base = loopback_base();
    if requested == Io::Memory {
        return at(Io::Memory, Place::Loopback { port_base });
    }
    if arguments.dry_run {
        return at(
            requested,
            if arguments.no_lab { Place::Loopback { port_base } } else { Place::Lab },
        );
    }
    let (_, dpdk) = find_node().map_err(|error| Exit::CannotRun.because(error))?;
    let degrade = |reason: String| {
        if arguments.strict {
            return Err(Exit::CannotRun.because(anyhow!("{reason} (--strict)")));
        }
        Ok(Ground { io: Io::Udp, place: Place::Loopback { port_base }, degraded: Some(reason) })
    };
    if requested == Io::Dpdk && !dpdk {
        return degrade(
            "weft-node was built without DPDK (`--features dpdk`): UDP on loopback".to_owned(),
        );
    }
    let no_lab = if arguments.no_lab {
        "--no-lab".to_owned()
    } else {
        match rootless::acquire() {
            Ok(_) => return at(requested, Place::Lab),
            Err(error) => error.to_string(),
        }
    };
    say!("weft: no network namespaces ({no_lab})");
    match requested {
        Io::Udp | Io::Memory => at(Io::Udp, Place::Loopback { port_base }),
        Io::Dpdk if scenario.aggregation.leaves == 0 => {
            say!("weft: DPDK over a memif between two processes instead");
            let socket = std::env::temp_dir().join(format!("weft-{}.memif", std::process::id()));
            let socket = socket.to_string_lossy().into_owned();
            at(Io::Dpdk, Place::Memif { socket, port_base })
        }
        Io::Dpdk | Io::AfPacket => {
            degrade(format!("no network namespaces ({no_lab}): UDP on loopback"))
        }
    }
}

/// UDP ports of this process's own, below those that the kernel hands out, so that runs do not
/// meet.
fn loopback_base() -> u16 {
    let places = (32_768 - LOOPBACK_FIRST) / LOOPBACK_PORTS;
    let place = std::process::id() % u32::from(places);
    LOOPBACK_FIRST + u16::try_from(place).expect("few places") * LOOPBACK_PORTS
}

fn print_plan(plan: &Plan, delay: Option<&LinkDelay>) -> Outcome {
    let mut text = String::new();
    for planned in &plan.boxes {
        text += &format!(
            "# {0}: weft-node --config {0}.toml\n{1}\n",
            planned.name,
            to_toml(&planned.config)
        );
    }
    for worker in &plan.workers {
        text += &format!(
            "# w{}: rank {} of {}, from {} to {}\n",
            worker.rank, worker.box_rank, worker.aggregator, worker.local, worker.aggregator
        );
    }
    text += &surroundings(&plan.background, delay);
    emit(&text)?;
    Ok(0)
}

/// What a plan has besides boxes and workers, as `--dry-run` prints it.
pub(super) fn surroundings(background: &[FlowPlan], delay: Option<&LinkDelay>) -> String {
    let flows = background.iter().map(FlowPlan::words);
    let lines = flows.chain(delay.map(LinkDelay::words));
    lines.map(|line| format!("# {line}\n")).collect()
}

pub(super) fn default_directory(name: &str) -> PathBuf {
    Path::new("out").join(format!("{name}-{}", unix_s()))
}

#[expect(clippy::disallowed_methods, reason = "people want to know when a run was")]
fn unix_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

pub(super) fn record(scenario: &Scenario, arguments: &RunArgs) -> RunRecord {
    RunRecord {
        name: arguments.name.as_ref().unwrap_or(&scenario.name).clone(),
        weft_version: env!("CARGO_PKG_VERSION").to_owned(),
        commit: env!("WEFT_COMMIT").to_owned(),
        started_unix_s: unix_s(),
        arguments: std::env::args().collect(),
        seed: arguments.seed,
        configuration: serde_json::to_value(scenario).unwrap_or_default(),
        machine: Machine::read(),
        outcome: None,
    }
}

/// Runs the plan; whatever happens, no lab and no process of it is left.
fn carry_out(
    scenario: &Scenario,
    plan: &Plan,
    ground: &Ground,
    arguments: &RunArgs,
    directory: &Path,
) -> Result<(Observed, Option<VirtualClock>), Failure> {
    let bar = progress_bar(u64::from(scenario.job.rounds));
    let mut progress = |rank: usize, message: &WorkerMessage| match message {
        WorkerMessage::Round(round) if rank == 0 => {
            bar.set_position(u64::from(round.round) + 1);
            bar.set_message(format!("loss {:.4}", round.loss));
        }
        WorkerMessage::Failed { error, .. } => bar.println(format!("weft: worker {rank}: {error}")),
        _ => {}
    };
    if arguments.level == Level::Packet {
        listen()?;
        let (seed, stop) = (arguments.seed, &interrupt::is_raised);
        let run = run_in_virtual_time(scenario, plan, seed, directory, &mut progress, stop);
        bar.finish_and_clear();
        let (observed, clock) = run.map_err(run_packet::failed)?;
        return Ok((observed, Some(clock)));
    }
    if ground.io == Io::Memory {
        let result = run_in_memory(plan, arguments.seed, directory, &mut progress);
        bar.finish_and_clear();
        return result.map(|seen| (seen, None)).map_err(|error| Exit::Usage.because(error));
    }
    let result = in_lab(plan.topology.as_ref(), &bar, |lab, interrupted| {
        run_processes(plan, lab, &scenario.restart, directory, &mut progress, interrupted)
    })?;
    result.map(|seen| (seen, None)).map_err(|error| match error {
        ProcessError::Interrupted => Exit::Interrupted.because(error),
        ProcessError::Silence(_) => Exit::Failed.because(error),
        _ => Exit::CannotRun.because(error),
    })
}

/// Runs processes in a lab of their own, if there is a topology, until a signal interrupts them.
/// Whatever they come to, the lab is taken down.
pub(super) fn in_lab<T>(
    topology: Option<&Topology>,
    bar: &ProgressBar,
    processes: impl FnOnce(Option<&LabName>, &dyn Fn() -> bool) -> T,
) -> Result<T, Failure> {
    tell_left();
    listen()?;
    let name = topology.map(|_| LabName::of_this_process("run"));
    if let (Some(topology), Some(name)) = (topology, &name) {
        let lab = lab::up(name, topology).map_err(|error| Exit::CannotRun.because(error))?;
        for warning in &lab.warnings {
            bar.println(format!("weft: warning: {warning}"));
        }
    }
    let result = processes(name.as_ref(), &interrupt::is_raised);
    bar.finish_and_clear();
    if let Some(name) = &name {
        lab::down(name).map_err(|error| Exit::Failed.because(error))?;
    }
    Ok(result)
}

pub(super) fn progress_bar(rounds: u64) -> ProgressBar {
    let bar = ProgressBar::new(rounds);
    if !std::io::stderr().is_terminal() {
        bar.set_draw_target(ProgressDrawTarget::hidden());
    }
    if let Ok(style) = ProgressStyle::with_template("round {pos}/{len} [{bar:40}] {msg} ({eta})") {
        bar.set_style(style);
    }
    bar
}

fn prove(
    scenario: &Scenario,
    plan: &Plan,
    seed: u64,
    directory: &Path,
    observed: &Observed,
) -> Result<Proof, String> {
    let failures: Vec<String> =
        observed.failures().map(|(rank, error)| format!("worker {rank}: {error}")).collect();
    if !failures.is_empty() {
        return Err(failures.join("; "));
    }
    let finished = observed.summaries().count();
    if finished != plan.workers.len() {
        return Err(format!("{finished} of {} workers finished", plan.workers.len()));
    }
    verify(scenario, seed, usize::from(plan.elements), directory).map_err(|error| error.to_string())
}
