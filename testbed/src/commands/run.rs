//! `weft run`: reads a scenario, runs it, proves it, reports it.

use std::fs;
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, anyhow};
use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use signal_hook::consts::{SIGINT, SIGTERM};
use weft_testbed::lab::rootless;
use weft_testbed::lab::{self, LabName};
use weft_testbed::report::{Machine, RunRecord, RunWriter, Verdict};
use weft_testbed::run::{
    Finished, Ground, Io, LOOPBACK_PORTS, Observed, Place, Plan, ProcessError, Proof,
    WorkerMessage, find_node, monotonic_ns, recording_path, run_in_memory, run_processes, verify,
};
use weft_testbed::scenario::{CONTROLLER, Replication, Scenario};

use super::{Exit, Failure, Format, Outcome, emit, report, run_push};

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// The scenario (TOML).
    scenario: PathBuf,
    /// Port that carries the frames: DPDK on veth when it can, else UDP on loopback, which is
    /// reported as degraded [default: dpdk].
    #[arg(long, value_enum)]
    io: Option<IoName>,
    /// Seed of data, model and faults.
    #[arg(long, default_value_t = 1)]
    pub(super) seed: u64,
    /// Run directory, which must not exist [default: out/NAME-TIME].
    #[arg(long, value_name = "DIR")]
    pub(super) out: Option<PathBuf>,
    /// Do without network namespaces: DPDK over a memif between two processes, UDP on loopback.
    #[arg(long)]
    no_lab: bool,
    /// Fail instead of falling back to another port.
    #[arg(long)]
    pub(super) strict: bool,
    /// Print each box's configuration and each worker's plan, and exit.
    #[arg(long)]
    pub(super) dry_run: bool,
    /// Keep the recorded gradients and sums in the run directory.
    #[arg(long)]
    pub(super) keep_recordings: bool,
    /// How the run is carried out: on this machine's real network stack and clock. Simulation in
    /// virtual time is not there yet.
    #[arg(long, value_enum, default_value_t)]
    level: Level,
    /// Overrides push.policy: how transfers are planned.
    #[arg(long, help_heading = "Overrides")]
    policy: Option<String>,
    /// Overrides push.replication: `none`, `network`, `worker` or `chain`.
    #[arg(long, value_enum, help_heading = "Overrides")]
    replication: Option<ReplicationName>,
    /// Does without a controller and aggregators: updates go straight to the server and are
    /// committed in the order of their arrival.
    #[arg(long, help_heading = "Overrides")]
    direct: bool,
    /// Short for --replication network.
    #[arg(long, conflicts_with = "replication", help_heading = "Overrides")]
    replica: bool,
    /// Overrides job.rounds.
    #[arg(long, help_heading = "Overrides")]
    rounds: Option<u32>,
    /// Overrides aggregation.leaves.
    #[arg(long, help_heading = "Overrides")]
    leaves: Option<u8>,
    /// Overrides faults.loss.
    #[arg(long, help_heading = "Overrides")]
    loss: Option<f64>,
    /// Overrides faults.duplicate.
    #[arg(long, help_heading = "Overrides")]
    duplicate: Option<f64>,
    /// Overrides faults.reorder.
    #[arg(long, help_heading = "Overrides")]
    reorder: Option<f64>,
    /// Overrides faults.corrupt.
    #[arg(long, help_heading = "Overrides")]
    corrupt: Option<f64>,
    /// Kills a box after a round of rank 0 and starts it again, such as a1@40; may be repeated.
    #[arg(long, value_name = "BOX@ROUND", help_heading = "Overrides")]
    restart: Vec<String>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, clap::ValueEnum)]
#[value(rename_all = "snake_case")]
enum IoName {
    Memory,
    Udp,
    AfPacket,
    Dpdk,
}

impl IoName {
    fn io(self) -> Io {
        match self {
            Self::Memory => Io::Memory,
            Self::Udp => Io::Udp,
            Self::AfPacket => Io::AfPacket,
            Self::Dpdk => Io::Dpdk,
        }
    }
}

/// How a run is carried out.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, clap::ValueEnum)]
enum Level {
    /// Processes, in real time.
    #[default]
    Live,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, clap::ValueEnum)]
enum ReplicationName {
    None,
    Network,
    Worker,
    Chain,
}

impl ReplicationName {
    fn replication(self) -> Replication {
        match self {
            Self::None => Replication::None,
            Self::Network => Replication::Network,
            Self::Worker => Replication::Worker,
            Self::Chain => Replication::Chain,
        }
    }
}

pub(crate) fn run(arguments: &RunArgs, format: Format) -> Outcome {
    let scenario = load(arguments)?;
    if scenario.push.is_some() {
        // A server, a replica and aggregators on DPDK would each keep a core busy.
        let requested = arguments.io.unwrap_or(IoName::Udp).io();
        return run_push::run(arguments, &scenario, requested, format);
    }
    let requested = arguments.io.unwrap_or(IoName::Dpdk).io();
    let ground = choose_ground(requested, &scenario, arguments)?;
    let plan = Plan::new(&scenario, ground.io, ground.place.clone(), arguments.seed)
        .map_err(|error| Exit::Usage.because(error))?;
    if arguments.dry_run {
        return print_plan(&plan);
    }
    if let Some(reason) = &ground.degraded {
        eprintln!("weft: DEGRADED: {reason}");
    }
    let directory = arguments.out.clone().unwrap_or_else(|| default_directory(&scenario.name));
    let writer = RunWriter::create(&directory, record(&scenario, arguments))
        .map_err(|error| Exit::Usage.because(error))?;
    let begun_ns = monotonic_ns();
    let observed = carry_out(&scenario, &plan, &ground, arguments, &directory)?;
    let wall_ns = monotonic_ns() - begun_ns;
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
        wall_ns,
    };
    let outcome = run.outcome(requested, arguments.seed, proof.as_ref());
    let failed = outcome.verdict == Verdict::Failed;
    run.write(writer, begun_ns, proof.as_ref().ok(), outcome)
        .map_err(|error| Exit::Failed.because(error))?;
    report::present(&directory, None, format)?;
    eprintln!("weft: run directory {}", directory.display());
    Ok(match (failed, &ground.degraded) {
        (true, _) => Exit::Failed as u8,
        (false, Some(_)) => Exit::CannotRun as u8,
        (false, None) => 0,
    })
}

fn load(arguments: &RunArgs) -> Result<Scenario, Failure> {
    let name = arguments.scenario.display().to_string();
    let text = fs::read_to_string(&arguments.scenario)
        .with_context(|| format!("reading {name}"))
        .map_err(|error| Exit::Usage.because(error))?;
    let mut scenario = Scenario::parse(&name, &text).map_err(|error| Exit::Usage.because(error))?;
    let faults = &mut scenario.faults;
    for (place, option) in [
        (&mut faults.loss, arguments.loss),
        (&mut faults.duplicate, arguments.duplicate),
        (&mut faults.reorder, arguments.reorder),
        (&mut faults.corrupt, arguments.corrupt),
    ] {
        *place = option.unwrap_or(*place);
    }
    scenario.job.rounds = arguments.rounds.unwrap_or(scenario.job.rounds);
    scenario.aggregation.leaves = arguments.leaves.unwrap_or(scenario.aggregation.leaves);
    let for_push = arguments.policy.is_some() || arguments.replication.is_some();
    match &mut scenario.push {
        Some(push) => {
            if let Some(policy) = &arguments.policy {
                push.policy.clone_from(policy);
            }
            if arguments.direct {
                push.controller = false;
                push.aggregators = 0;
                scenario.lab.links.remove(CONTROLLER);
            }
            if arguments.replica {
                push.replication = Replication::Network;
            }
            if let Some(name) = arguments.replication {
                push.replication = name.replication();
                if push.replication == Replication::Worker {
                    // The lab's links of the aggregators go with them.
                    push.aggregators = 0;
                }
                if push.replication == Replication::None {
                    push.div_max = None;
                }
            }
        }
        None if for_push || arguments.replica || arguments.direct => {
            let error =
                anyhow!("--policy, --direct and --replica belong to a scenario with [push]");
            return Err(Exit::Usage.because(error));
        }
        None => {}
    }
    for restart in &arguments.restart {
        let section = Scenario::restart(restart).map_err(|error| Exit::Usage.because(error))?;
        scenario.restart.push(section);
    }
    // The overrides obey the same rules as the file.
    let text = toml::to_string(&scenario).map_err(|error| Exit::Usage.because(error))?;
    Scenario::parse("the scenario with its overrides", &text)
        .map_err(|error| Exit::Usage.because(error))
}

/// Finds out what this machine allows. Must run before any thread: it may enter a namespace.
pub(super) fn choose_ground(
    requested: Io,
    scenario: &Scenario,
    arguments: &RunArgs,
) -> Result<Ground, Failure> {
    let at = |io, place| Ok(Ground { io, place, degraded: None });
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
    eprintln!("weft: no network namespaces ({no_lab})");
    match requested {
        Io::Udp | Io::Memory => at(Io::Udp, Place::Loopback { port_base }),
        Io::Dpdk if scenario.aggregation.leaves == 0 => {
            eprintln!("weft: DPDK over a memif between two processes instead");
            let socket = std::env::temp_dir().join(format!("weft-{}.memif", std::process::id()));
            let socket = socket.to_string_lossy().into_owned();
            at(Io::Dpdk, Place::Memif { socket, port_base })
        }
        Io::Dpdk | Io::AfPacket => {
            degrade(format!("no network namespaces ({no_lab}): UDP on loopback"))
        }
    }
}

/// UDP ports of this process's own, below those that the kernel hands out, so that runs do not meet.
fn loopback_base() -> u16 {
    let places = (32_768 - 10_000) / LOOPBACK_PORTS;
    let place = std::process::id() % u32::from(places);
    10_000 + u16::try_from(place).expect("few places") * LOOPBACK_PORTS
}

fn print_plan(plan: &Plan) -> Outcome {
    let mut text = String::new();
    for planned in &plan.boxes {
        text += &format!("# {0}: weft-node --config {0}.toml\n{1}\n", planned.name, planned.config);
    }
    for worker in &plan.workers {
        text += &format!(
            "# w{}: rank {} of {}, from {} to {}\n",
            worker.rank, worker.box_rank, worker.aggregator, worker.local, worker.aggregator
        );
    }
    emit(&text)?;
    Ok(0)
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
) -> Result<Observed, Failure> {
    let bar = progress_bar(u64::from(scenario.job.rounds));
    let mut progress = |rank: usize, message: &WorkerMessage| match message {
        WorkerMessage::Round(round) if rank == 0 => {
            bar.set_position(u64::from(round.round) + 1);
            bar.set_message(format!("loss {:.4}", round.loss));
        }
        WorkerMessage::Failed { error, .. } => bar.println(format!("weft: worker {rank}: {error}")),
        _ => {}
    };
    if ground.io == Io::Memory {
        let result = run_in_memory(scenario, plan, arguments.seed, directory, &mut progress);
        bar.finish_and_clear();
        return result.map_err(|error| Exit::Usage.because(error));
    }
    let signalled = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&signalled))
            .map_err(|error| Exit::Failed.because(error))?;
    }
    let lab = match &plan.topology {
        Some(topology) => {
            let name = lab_name();
            let lab = lab::up(&name, topology).map_err(|error| Exit::CannotRun.because(error))?;
            for warning in &lab.warnings {
                bar.println(format!("weft: warning: {warning}"));
            }
            Some(name)
        }
        _ => None,
    };
    let interrupted = || signalled.load(Ordering::Relaxed);
    let result = run_processes(
        plan,
        lab.as_ref(),
        &scenario.restart,
        directory,
        &mut progress,
        &interrupted,
    );
    bar.finish_and_clear();
    if let Some(name) = &lab {
        lab::down(name).map_err(|error| Exit::Failed.because(error))?;
    }
    result.map_err(|error| match error {
        ProcessError::Interrupted | ProcessError::Silence(_) => Exit::Failed.because(error),
        _ => Exit::CannotRun.because(error),
    })
}

/// A lab of this process's own, so that two runs do not meet.
pub(super) fn lab_name() -> LabName {
    format!("run{}", std::process::id()).parse().expect("letters and digits")
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
