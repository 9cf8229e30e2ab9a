//! A run in processes: `weft-node` for each box, this program again for each worker, in the
//! namespaces of a lab or on loopback.
//!
//! Every process that is started here is ended here, whatever happens: by its own end, by SIGINT
//! within a time, else by SIGKILL. Nothing waits without bound.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use super::background::Background;
use super::plan::{Place, Plan};
use super::process::{Process, io};
use super::running_box::{RunningBox, wait_until_ready};
use super::running_worker::RunningWorker;
use super::{Observed, WorkerMessage, monotonic_ns};
use crate::lab::LabName;
use crate::scenario::RestartSection;
/// How long the run may go without a word from any worker, beyond a worker's own patience.
const SILENCE_MARGIN: Duration = Duration::from_secs(30);

/// Why a run's processes could not do their work.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    /// There is no `weft-node`.
    #[error(
        "no weft-node found beside this program, on PATH or in WEFT_NODE: build it with `cargo \
         build --release -p weft-node --features dpdk`"
    )]
    NoNode,
    /// There is no `weft-controller`.
    #[error(
        "no weft-controller found beside this program, on PATH or in WEFT_CONTROLLER: build it \
         with `cargo build --release -p weft-controller`"
    )]
    NoController,
    /// A link did not take its new rate.
    #[error("giving the link of {name} another rate: {problem}")]
    RateStep {
        /// The host.
        name: String,
        /// What `tc` said.
        problem: String,
    },
    /// It is of another version, so its configuration or protocol may differ.
    #[error("{path} is {found}, this is {wanted}: build both from one tree", path = .path.display())]
    NodeVersion {
        /// The program.
        path: PathBuf,
        /// What it says of itself.
        found: String,
        /// This version.
        wanted: &'static str,
    },
    /// A process could not be started or talked to.
    #[error("{what}: {source}")]
    Io {
        /// What was attempted.
        what: String,
        /// The kernel's answer.
        #[source]
        source: std::io::Error,
    },
    /// A box left a log that makes no sense.
    #[error("{path}: {problem}", path = .path.display())]
    Log {
        /// The log.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// A box ended or said nothing at its start.
    #[error("{name} did not become ready: {said}")]
    BoxNotReady {
        /// Its name.
        name: String,
        /// The last thing it said.
        said: String,
    },
    /// No worker said anything for longer than a worker waits for the others.
    #[error("no worker has said anything for {} s; the run was ended", .0.as_secs())]
    Silence(Duration),
    /// SIGINT, SIGTERM or SIGHUP.
    #[error("the run was broken off")]
    Interrupted,
}

/// Finds `weft-node` and checks that it is of this version; true when it can do DPDK.
///
/// # Errors
/// [`ProcessError::NoNode`], [`ProcessError::NodeVersion`].
pub fn find_node() -> Result<(PathBuf, bool), ProcessError> {
    let path = crate::doctor::find_weft_node().ok_or(ProcessError::NoNode)?;
    let output =
        Command::new(&path).arg("--version").output().map_err(io("asking for a version"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let found = text.split_whitespace().nth(1).unwrap_or("unknown").to_owned();
    let wanted = env!("CARGO_PKG_VERSION");
    if found != wanted {
        return Err(ProcessError::NodeVersion { path, found, wanted });
    }
    Ok((path, text.contains("dpdk")))
}

/// Runs a plan. `lab` is up already, or `None` for loopback; `progress` sees every message;
/// `interrupted` is asked now and then.
///
/// # Errors
/// [`ProcessError`]; all processes have ended by then.
pub fn run_processes(
    plan: &Plan,
    lab: Option<&LabName>,
    restarts: &[RestartSection],
    directory: &Path,
    progress: &mut dyn FnMut(usize, &WorkerMessage),
    interrupted: &dyn Fn() -> bool,
) -> Result<Observed, ProcessError> {
    let (node, _) = find_node()?;
    let mut boxes = Vec::new();
    for plan in &plan.boxes {
        boxes.push(RunningBox::start(&node, plan, lab, directory)?);
    }
    for running in &mut boxes {
        running.wait_until_ready()?;
    }
    let _bridge = match &plan.place {
        Place::Memif { socket, .. } => Some(start_bridge(&node, plan, socket, directory)?),
        Place::Lab | Place::Loopback { .. } => None,
    };
    let background = Background::start(lab, &plan.background)?;
    let (sender, receiver) = mpsc::channel();
    let mut workers = Vec::new();
    for plan in &plan.workers {
        let rank = usize::from(plan.rank);
        let text = serde_json::to_string(plan).expect("a plan is a JSON object");
        let name = format!("w{rank}");
        let namespace = lab.map(|lab| lab.namespace(&name));
        let arguments = [directory.as_os_str()];
        workers.push(RunningWorker::start(
            rank,
            &text,
            namespace.as_deref(),
            &arguments,
            sender.clone(),
        )?);
    }
    drop(sender);
    let mut observed = Observed::default();
    let mut due: Vec<&RestartSection> = restarts.iter().collect();
    let patience = plan.workers.iter().map(|worker| worker.scenario.job.member_timeout()).max();
    let patience = patience.unwrap_or_default() + SILENCE_MARGIN;
    collect(&receiver, patience, interrupted, &mut |rank, message| {
        if let WorkerMessage::Round(round) = &message
            && rank == 0
        {
            for restart in due.extract_if(.., |restart| restart.after_round == round.round) {
                restart_box(&mut boxes, restart, &mut observed)?;
            }
        }
        progress(rank, &message);
        observed.messages.push((rank, message));
        Ok(())
    })?;
    drop(workers);
    observed.background = background.stop();
    for mut running in boxes {
        let name = running.name().to_owned();
        observed.boxes.push((name, running.stop()));
    }
    Ok(observed)
}

/// Hands on what workers say until the last of them has ended.
fn collect(
    receiver: &Receiver<(usize, WorkerMessage)>,
    patience: Duration,
    interrupted: &dyn Fn() -> bool,
    take: &mut dyn FnMut(usize, WorkerMessage) -> Result<(), ProcessError>,
) -> Result<(), ProcessError> {
    let mut heard = Instant::now();
    loop {
        let received = receiver.recv_timeout(Duration::from_millis(100));
        // Asked for after every message, for workers may never be silent.
        if interrupted() {
            return Err(ProcessError::Interrupted);
        }
        match received {
            Ok((rank, message)) => {
                heard = Instant::now();
                take(rank, message)?;
            }
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
            Err(RecvTimeoutError::Timeout) if heard.elapsed() > patience => {
                return Err(ProcessError::Silence(patience));
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}

fn restart_box(
    boxes: &mut [RunningBox],
    restart: &RestartSection,
    observed: &mut Observed,
) -> Result<(), ProcessError> {
    let Some(running) = boxes.iter_mut().find(|running| running.name() == restart.name) else {
        return Ok(());
    };
    observed.restarts.push((monotonic_ns(), restart.name.clone()));
    running.restart()
}

/// Starts the program that stands between the workers' loopback and the box's memif.
fn start_bridge(
    node: &Path,
    plan: &Plan,
    socket: &str,
    directory: &Path,
) -> Result<Process, ProcessError> {
    let log = directory.join("bridge.log");
    let child = Command::new(node.with_file_name("weft-bridge"))
        .arg(format!("--addr={}", plan.workers[0].aggregator))
        .arg(format!("--socket={socket}"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(File::create(&log).map_err(io("creating the bridge's log"))?)
        .env("RUNTIME_DIRECTORY", directory)
        .spawn()
        .map_err(io("starting weft-bridge"))?;
    let mut process = Process(child);
    wait_until_ready(&mut process, "weft-bridge", &log)?;
    Ok(process)
}
