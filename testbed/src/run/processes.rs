//! A run in processes: `weft-node` for each box, this program again for each worker, in the
//! namespaces of a lab or on loopback.
//!
//! Every process that is started here is ended here, whatever happens: by its own end, by SIGINT
//! within a time, else by SIGKILL. Nothing waits without bound.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use super::plan::{BoxPlan, Place, Plan, WorkerPlan};
use super::process::Process;
use super::{BoxCounters, Observed, WorkerMessage, monotonic_ns};
use crate::lab::{LabName, netns};
use crate::scenario::RestartSection;

/// How long a box may take to be ready.
const READY_TIMEOUT: Duration = Duration::from_secs(15);
/// How long a box may take to write its statistics after SIGINT.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);
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
    /// SIGINT or SIGTERM.
    #[error("interrupted")]
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
    let (sender, receiver) = mpsc::channel();
    let mut workers = Vec::new();
    for plan in &plan.workers {
        workers.push(RunningWorker::start(plan, lab, directory, sender.clone())?);
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
    for mut running in boxes {
        let name = running.plan.name.clone();
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
    let Some(running) = boxes.iter_mut().find(|running| running.plan.name == restart.name) else {
        return Ok(());
    };
    observed.restarts.push((monotonic_ns(), restart.name.clone()));
    running.restart()
}

/// A box's process.
#[derive(Debug)]
struct RunningBox {
    plan: BoxPlan,
    namespace: Option<String>,
    node: PathBuf,
    config: PathBuf,
    log: PathBuf,
    process: Process,
}

impl RunningBox {
    fn start(
        node: &Path,
        plan: &BoxPlan,
        lab: Option<&LabName>,
        directory: &Path,
    ) -> Result<Self, ProcessError> {
        let config = directory.join(format!("{}.toml", plan.name));
        fs::write(&config, &plan.config).map_err(io("writing a box's configuration"))?;
        let log = directory.join(format!("{}.log", plan.name));
        let namespace = lab.map(|lab| lab.namespace(&plan.name));
        let process = spawn_box(node, &config, &log, namespace.as_deref())?;
        let (plan, node) = (plan.clone(), node.to_owned());
        Ok(Self { plan, namespace, node, config, log, process })
    }

    fn wait_until_ready(&mut self) -> Result<(), ProcessError> {
        wait_until_ready(&mut self.process, &self.plan.name, &self.log)
    }

    /// Kills the box without a word and starts it again: it comes back knowing nothing.
    fn restart(&mut self) -> Result<(), ProcessError> {
        let _ = self.process.0.kill();
        let _ = self.process.0.wait();
        fs::write(&self.log, "").map_err(io("emptying a box's log"))?;
        self.process = spawn_box(&self.node, &self.config, &self.log, self.namespace.as_deref())?;
        self.wait_until_ready()
    }

    /// Ends the box and reads its statistics.
    fn stop(&mut self) -> BoxCounters {
        let cpu_ns = self.process.cpu_ns();
        self.process.signal(Signal::SIGINT);
        self.process.end(STOP_TIMEOUT);
        let mut text = String::new();
        if let Some(stdout) = &mut self.process.0.stdout {
            let _ = stdout.read_to_string(&mut text);
        }
        BoxCounters { cpu_ns, ..counters(&text).unwrap_or_default() }
    }
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

/// Waits for the line that says so in a process's log.
fn wait_until_ready(process: &mut Process, name: &str, log: &Path) -> Result<(), ProcessError> {
    let begun = Instant::now();
    loop {
        let said = fs::read_to_string(log).unwrap_or_default();
        if said.contains("\"ready\":true") {
            return Ok(());
        }
        let ended = !matches!(process.0.try_wait(), Ok(None));
        if ended || begun.elapsed() > READY_TIMEOUT {
            let said = said.lines().last().unwrap_or("nothing").to_owned();
            return Err(ProcessError::BoxNotReady { name: name.to_owned(), said });
        }
        thread::sleep(Duration::from_millis(10));
    }
}

fn spawn_box(
    node: &Path,
    config: &Path,
    log: &Path,
    namespace: Option<&str>,
) -> Result<Process, ProcessError> {
    let stderr = File::create(log).map_err(io("creating a box's log"))?;
    let child = program(node, namespace)
        .arg("--config")
        .arg(config)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(stderr)
        // EAL wants a directory of its own where it may write.
        .env("RUNTIME_DIRECTORY", log.parent().unwrap_or_else(|| Path::new("/tmp")))
        .spawn()
        .map_err(io("starting weft-node"))?;
    Ok(Process(child))
}

/// Reads a box's final statistics.
fn counters(text: &str) -> Option<BoxCounters> {
    let json: serde_json::Value = serde_json::from_str(text).ok()?;
    let number = |value: &serde_json::Value, key: &str| value[key].as_u64().unwrap_or(0);
    let port = &json["port"];
    let lanes = json["lanes"].as_array()?.iter();
    let mut counters = BoxCounters {
        rx_packets: number(port, "rx_packets"),
        rx_bytes: number(port, "rx_bytes"),
        port_losses: number(port, "rx_missed")
            + number(port, "rx_nombuf")
            + lanes.map(|lane| number(lane, "tx_dropped")).sum::<u64>(),
        ..BoxCounters::default()
    };
    for job in json["jobs"].as_array()? {
        counters.contributions_added += number(job, "contributions_added");
        counters.chunks_completed += number(job, "chunks_completed");
        counters.duplicates += number(job, "duplicates");
    }
    Some(counters)
}

/// A worker's process, killed when dropped, and the thread that reads what it says.
#[derive(Debug)]
struct RunningWorker {
    process: Arc<Mutex<Process>>,
}

impl Drop for RunningWorker {
    fn drop(&mut self) {
        // Nobody panics while holding it; and if, the process is killed with the last owner.
        if let Ok(mut process) = self.process.lock() {
            process.end(Duration::ZERO);
        }
    }
}

impl RunningWorker {
    fn start(
        plan: &WorkerPlan,
        lab: Option<&LabName>,
        directory: &Path,
        sender: Sender<(usize, WorkerMessage)>,
    ) -> Result<Self, ProcessError> {
        let this = std::env::current_exe().map_err(io("finding this program"))?;
        let namespace = lab.map(|lab| lab.namespace(&format!("w{}", plan.rank)));
        let mut child = program(&this, namespace.as_deref())
            .arg("worker")
            .arg(directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(io("starting a worker"))?;
        let mut stdin = child.stdin.take().expect("piped");
        let stdout = BufReader::new(child.stdout.take().expect("piped"));
        let process = Arc::new(Mutex::new(Process(child)));
        let text = serde_json::to_string(plan).expect("a plan is a JSON object");
        stdin.write_all(text.as_bytes()).map_err(io("telling a worker its plan"))?;
        drop(stdin);
        let rank = usize::from(plan.rank);
        let shared = Arc::clone(&process);
        thread::spawn(move || listen(stdout, &shared, rank, &sender));
        Ok(Self { process })
    }
}

/// Hands on what a worker says, and how it ended if it did not say so.
fn listen(
    stdout: BufReader<ChildStdout>,
    process: &Mutex<Process>,
    rank: usize,
    sender: &Sender<(usize, WorkerMessage)>,
) {
    let mut finished = false;
    for line in stdout.lines().map_while(Result::ok) {
        let Ok(message) = serde_json::from_str(&line) else { continue };
        finished |= matches!(message, WorkerMessage::Done(_) | WorkerMessage::Failed { .. });
        if sender.send((rank, message)).is_err() {
            return;
        }
    }
    let Ok(mut process) = process.lock() else { return };
    process.end(STOP_TIMEOUT);
    if !finished {
        let status = process.0.wait().map_or_else(|error| error.to_string(), |s| s.to_string());
        let error = format!("ended without a word: {status}");
        // A receiver that is gone has given the run up.
        let _ = sender.send((rank, WorkerMessage::Failed { at_ns: monotonic_ns(), error }));
    }
}

fn program(path: &Path, namespace: Option<&str>) -> Command {
    match namespace {
        Some(namespace) => netns::command(namespace, &path.to_string_lossy()),
        None => Command::new(path),
    }
}

fn io(what: &'static str) -> impl FnOnce(std::io::Error) -> ProcessError {
    move |source| ProcessError::Io { what: what.to_owned(), source }
}
