//! `weft run`: reads a scenario, runs it, proves it, reports it.

use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::anyhow;
use indicatif::ProgressBar;
use serde::Serialize;
use weft_config::to_toml;
use weft_process::{say, shipped};
use weft_testbed::certs::Folder;
use weft_testbed::interrupt;
use weft_testbed::lab::rootless;
use weft_testbed::lab::topology::Topology;
use weft_testbed::lab::{self, LabName};
use weft_testbed::report::{LinkDelay, Machine, Record, RunWriter, Verdict};
use weft_testbed::run::push::make_certificates;
use weft_testbed::run::{
    DelayedBy, Finished, FlowPlan, Ground, Io, LOOPBACK_FIRST, LOOPBACK_PORTS, Observed, Place,
    Plan, PrepareError, ProcessError, SWITCH_PROGRAM, UpdateOutcome, VirtualClock, WorkerMessage,
    WorkerPlan, captures, find_node, monotonic_ns, prepare, prove, remove_recordings,
    run_in_memory, run_in_virtual_time, run_processes,
};
use weft_testbed::scenario::{SWITCH, Scenario};

use super::certs::now_unix_s;
use super::lab::{keys_folder, listen, taken_down, tell_left};
use super::run_args::{IoName, Level, RunArgs, SwitchName, is_factorisation, load, read};
use super::{
    Exit, Failure, Format, Outcome, emit, progress_bar, report, run_factorisation, run_ground,
    run_jobs, run_packet, run_resize,
};

pub(crate) fn run(arguments: &RunArgs, format: Format) -> Outcome {
    let (text, has_several) = read(&arguments.scenario)?;
    if is_factorisation(&arguments.scenario, &text)? {
        return run_factorisation::run(arguments, &text, format);
    }
    if has_several {
        return run_jobs::run(arguments, &text, format);
    }
    let scenario = load(arguments, &text)?;
    if scenario.resize.is_some() {
        let name = arguments.name.as_ref().unwrap_or(&scenario.name);
        let directory = arguments.out.clone().unwrap_or_else(|| default_directory(name));
        let directory =
            std::path::absolute(&directory).map_err(|error| Exit::Usage.because(error))?;
        return run_resize::run(arguments, &scenario, &directory, format);
    }
    run_packet::check(arguments, &scenario)?;
    if arguments.switch.is_none() && scenario.restart.iter().any(|it| it.name == SWITCH) {
        let problem = anyhow!("restart: {SWITCH} is a bridge of the kernel without --switch bmv2");
        return Err(Exit::Usage.because(problem));
    }
    let is_push = scenario.push.is_some();
    // A server, a replica and aggregators on DPDK would each keep a core busy.
    let default = if is_push { IoName::Udp } else { IoName::Dpdk };
    let requested = match arguments.switch {
        Some(SwitchName::Bmv2) => Io::Bmv2,
        None => arguments.io.unwrap_or(default).io(),
    };
    let is_one_box = scenario.aggregation.leaves == 0 && !is_push;
    let ground = choose_ground(requested, is_one_box, arguments)?;
    run_ground::check(&scenario, &ground, arguments)?;
    let name = arguments.name.as_ref().unwrap_or(&scenario.name);
    let directory = arguments.out.clone().unwrap_or_else(|| default_directory(name));
    // Boxes are told whole paths, for they may run elsewhere than here.
    let absolute = std::path::absolute(&directory).map_err(|error| Exit::Usage.because(error))?;
    let has_calls = is_push && ground.io != Io::Memory && arguments.level == Level::Live;
    let keys = keys_folder(has_calls && !arguments.dry_run)?;
    // What is only printed has a name that does not change.
    let printed = absolute.join("certs");
    let certs = has_calls.then(|| keys.as_ref().map_or(&*printed, |keys| keys.path()));
    let (io, place, seed) = (ground.io, ground.place.clone(), arguments.seed);
    let mut plan = Plan::new(&scenario, io, place, seed, &absolute, certs)
        .map_err(|error| Exit::Usage.because(error))?;
    if let Some(worker_io) = arguments.worker_io {
        plan.set_worker_io(worker_io.io()).map_err(|error| Exit::Usage.because(error))?;
    }
    if let (Some(name), Some(topology)) = (&arguments.lab, &plan.topology) {
        lab::check_nodes(name, topology).map_err(|error| Exit::CannotRun.because(error))?;
    }
    let program =
        std::path::absolute(switch_program()).map_err(|error| Exit::Usage.because(error))?;
    plan.use_program(&program);
    let delayed_by = run_ground::delayed_by(&scenario, &ground, arguments)?;
    if delayed_by == Some(DelayedBy::FaultPorts) {
        plan.delay_by_fault_ports(&scenario);
    }
    let link_delay = delayed_by.map(|by| by.report(&scenario));
    if arguments.pcap {
        plan.capture(&absolute, arguments.pcap_size);
    }
    if arguments.record {
        plan.record(&absolute, arguments.record_max_bytes);
    }
    if arguments.dry_run {
        return print_plan(&plan, link_delay.as_ref());
    }
    if let Some(reason) = &ground.degraded {
        say!("weft: DEGRADED: {reason}");
    }
    let writer = RunWriter::create(&directory, record(&scenario.name, &scenario, arguments))
        .map_err(|error| Exit::Usage.because(error))?;
    prepare(&scenario, seed, &directory).map_err(prepared)?;
    if let Some(keys) = &keys {
        make_certificates(&plan, &Folder::at(keys.path()), now_unix_s())
            .map_err(|error| Exit::CannotRun.because(error))?;
    }
    let begun_ns = monotonic_ns();
    let (observed, clock) = carry_out(&scenario, &plan, &ground, arguments, &absolute)?;
    let wall_ns = monotonic_ns() - begun_ns;
    drop(keys);
    taken_down()?;
    let proof = prove(&scenario, &plan, seed, &directory, &observed);
    if !arguments.keep_recordings {
        remove_recordings(&scenario, &directory);
    }
    let run = Finished {
        scenario: &scenario,
        plan: &plan,
        ground: &ground,
        observed: &observed,
        proof,
        begun_ns: if clock.is_some() { 0 } else { begun_ns },
        wall_ns: clock.as_ref().map_or(wall_ns, |clock| clock.virtual_ns),
    };
    let mut outcome = run.outcome(requested, seed);
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

/// Why a run could not begin.
pub(super) fn prepared(error: PrepareError) -> Failure {
    match error {
        PrepareError::Trainer(_) => Exit::Usage.because(error),
        PrepareError::Io { .. } => Exit::Failed.because(error),
    }
}

/// Finds out what this machine allows; over a memif only what one box does. Must run before any
/// thread: it may enter a namespace.
pub(super) fn choose_ground(
    requested: Io,
    is_one_box: bool,
    arguments: &RunArgs,
) -> Result<Ground, Failure> {
    let at = |io, place| Ok(Ground { io, place, degraded: None });
    let loopback = || Place::Loopback { port_base: loopback_base() };
    if arguments.level == Level::Packet {
        // Nodes are configured as those of a lab with plain ports.
        return at(Io::Udp, Place::Lab);
    }
    if arguments.lab.is_some() {
        // Ports without a kernel address need a lab that was made for them.
        return match requested {
            Io::Udp | Io::Bmv2 => at(requested, Place::Lab),
            _ => Err(Exit::Usage.because(anyhow!("--lab needs --io udp, or --switch bmv2"))),
        };
    }
    if matches!(requested, Io::Memory | Io::Shm) {
        return at(requested, loopback());
    }
    if arguments.dry_run {
        return at(requested, if arguments.no_lab { loopback() } else { Place::Lab });
    }
    let (_, dpdk) = find_node().map_err(|error| Exit::CannotRun.because(error))?;
    let degrade = |reason: String| {
        if arguments.strict {
            return Err(Exit::CannotRun.because(anyhow!("{reason} (--strict)")));
        }
        Ok(Ground { io: Io::Udp, place: loopback(), degraded: Some(reason) })
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
        Io::Udp | Io::Shm | Io::Memory => at(Io::Udp, loopback()),
        Io::Dpdk if is_one_box => {
            say!("weft: DPDK over a memif between two processes instead");
            let socket = std::env::temp_dir().join(format!("weft-{}.memif", std::process::id()));
            let socket = socket.to_string_lossy().into_owned();
            at(Io::Dpdk, Place::Memif { socket, port_base: loopback_base() })
        }
        Io::Bmv2 => Err(Exit::CannotRun.because(anyhow!(
            "--switch bmv2 needs network namespaces, and there are none ({no_lab})"
        ))),
        Io::Dpdk | Io::AfPacket => {
            degrade(format!("no network namespaces ({no_lab}): UDP on loopback"))
        }
    }
}

/// The folder of the switch's program: `WEFT_P4`, else the one that ships with this program.
fn switch_program() -> PathBuf {
    let named = std::env::var_os("WEFT_P4").map(PathBuf::from);
    named.unwrap_or_else(|| shipped::find(SWITCH_PROGRAM))
}

/// UDP ports of this process's own, below those that the kernel hands out: the first place that no
/// other run of this network namespace has, which the kernel knows by a socket's name.
pub(super) fn loopback_base() -> u16 {
    static HELD: OnceLock<(u16, Option<UnixListener>)> = OnceLock::new();
    let (base, _) = HELD.get_or_init(|| {
        let places = (32_768 - LOOPBACK_FIRST) / LOOPBACK_PORTS;
        let own = u16::try_from(std::process::id() % u32::from(places)).expect("few places");
        let base = |place: u16| LOOPBACK_FIRST + place % places * LOOPBACK_PORTS;
        let hold = |place| {
            let name =
                SocketAddr::from_abstract_name(format!("weft-ports-{}", base(place))).ok()?;
            Some((base(place), Some(UnixListener::bind_addr(&name).ok()?)))
        };
        (own..own + places).find_map(hold).unwrap_or((base(own), None))
    });
    *base
}

fn print_plan(plan: &Plan, delay: Option<&LinkDelay>) -> Outcome {
    let mut text = String::new();
    let file = |name: &str, program: &str, config: String| {
        format!("# {name}: {program} --config {name}.toml\n{config}\n")
    };
    for planned in &plan.boxes {
        text += &file(&planned.name, "weft-node", to_toml(&planned.config));
    }
    if let Some(planned) = &plan.controller {
        text += &file(&planned.name, "weft-controller", to_toml(&planned.config));
    }
    let workers = plan.workers.iter().map(WorkerPlan::words);
    let flows = plan.background.iter().map(FlowPlan::words);
    for line in workers.chain(flows).chain(delay.map(LinkDelay::words)) {
        text += &format!("# {line}\n");
    }
    emit(&text)?;
    Ok(0)
}

pub(super) fn default_directory(name: &str) -> PathBuf {
    Path::new("out").join(format!("{name}-{}", unix_s()))
}

#[expect(clippy::disallowed_methods, reason = "people want to know when a run was")]
pub(super) fn unix_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

/// The record of a run that begins. `scenario` is called `name`.
pub(super) fn record<O>(name: &str, scenario: &impl Serialize, arguments: &RunArgs) -> Record<O> {
    Record {
        name: arguments.name.as_deref().unwrap_or(name).to_owned(),
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
    let bar = progress_bar(u64::from(scenario.job.rounds), "round");
    let per_round = scenario.updates_per_round();
    let mut progress = |rank: u8, message: &WorkerMessage| match message {
        WorkerMessage::Round(round) if rank == 0 => {
            bar.set_position(u64::from(round.round) + 1);
            bar.set_message(format!("loss {:.4}", round.loss));
        }
        WorkerMessage::Update(update) if update.outcome == UpdateOutcome::Committed => {
            bar.set_position(bar.position().max(update.committed_version / per_round));
            bar.set_message(format!("loss {:.4}", update.loss));
        }
        WorkerMessage::Failed { error, .. } => bar.println(format!("weft: worker {rank}: {error}")),
        _ => {}
    };
    let seed = arguments.seed;
    if arguments.level == Level::Packet {
        listen()?;
        let stop = &interrupt::is_raised;
        let run = run_in_virtual_time(scenario, plan, seed, directory, &mut progress, stop);
        bar.finish_and_clear();
        let (observed, clock) = run.map_err(run_packet::failed)?;
        return Ok((observed, Some(clock)));
    }
    if ground.io == Io::Memory {
        let result = run_in_memory(scenario, plan, seed, directory, &mut progress);
        bar.finish_and_clear();
        return result.map(|seen| (seen, None)).map_err(|error| Exit::Usage.because(error));
    }
    let processes = |lab: Option<&LabName>, interrupted: &(dyn Fn() -> bool + Sync)| {
        run_processes(scenario, plan, lab, directory, &mut progress, interrupted)
    };
    let result = in_lab(plan.topology.as_ref(), arguments.lab.as_ref(), &bar, processes)?;
    result.map(|seen| (seen, None)).map_err(process_failure)
}

/// Why processes could not do their work.
pub(super) fn process_failure(error: ProcessError) -> Failure {
    match error {
        ProcessError::Interrupted => Exit::Interrupted.because(error),
        ProcessError::Log { .. } => Exit::Failed.because(error),
        _ => Exit::CannotRun.because(error),
    }
}

/// Runs processes in a lab that is up, or in one of their own if there is a topology, until a
/// signal interrupts them. Whatever they come to, their own lab is taken down.
pub(super) fn in_lab<T>(
    topology: Option<&Topology>,
    given: Option<&LabName>,
    bar: &ProgressBar,
    processes: impl FnOnce(Option<&LabName>, &(dyn Fn() -> bool + Sync)) -> T,
) -> Result<T, Failure> {
    if let Some(name) = given {
        listen()?;
        let result = processes(Some(name), &interrupt::is_raised);
        bar.finish_and_clear();
        return Ok(result);
    }
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
