//! Processes of a bench: weft-node, weft-bench and dpdk-testpmd, and the CPU time of their polling
//! threads.
//!
//! Each is ended by its own handle, with all that it started, also when the bench fails or is
//! interrupted, and when it does not end in time.

mod beside;

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::prctl::set_child_subreaper;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use serde::Deserialize;
use weft_config::to_toml;

use super::case::Case;
use super::config::{self, NodeSpec};
use super::interrupt;
use crate::doctor::{find_weft_bench, find_weft_node};
use crate::proc::threads_ns;

/// Why a bench has no figure.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BenchError {
    /// A program is missing.
    #[error(
        "{name} was not found beside weft, on PATH, or in {variable}: `cargo build --release -p \
         {name} --features dpdk`"
    )]
    NotFound {
        /// The program.
        name: &'static str,
        /// The variable that may say where it is.
        variable: &'static str,
    },
    /// Another version.
    #[error("{} is version {found}, this weft is {}: build both from one tree", .path.display(), env!("CARGO_PKG_VERSION"))]
    OtherVersion {
        /// The program.
        path: PathBuf,
        /// What it said.
        found: String,
    },
    /// A program without DPDK.
    #[error("{} was built without DPDK: `cargo build --release -p {name} --features dpdk`", .path.display())]
    NoDpdk {
        /// Its name.
        name: &'static str,
        /// Where it is.
        path: PathBuf,
    },
    /// One CPU is not enough.
    #[error("a memif bench needs two CPUs, one for each process; this process may use {0}")]
    OneCpu(usize),
    /// SIGINT or SIGTERM.
    #[error("the bench was broken off")]
    Interrupted,
    /// No lab.
    #[error("building the lab: {0}")]
    Lab(String),
    /// A file or a process.
    #[error("{attempt}: {source}")]
    System {
        /// What was attempted.
        attempt: String,
        /// The kernel's answer.
        source: std::io::Error,
    },
    /// A process failed.
    #[error("{program} {how}{}{stderr}", if .stderr.is_empty() { "" } else { ": " })]
    Process {
        /// Which.
        program: String,
        /// How it ended.
        how: String,
        /// The last thing that it said.
        stderr: String,
    },
}

impl BenchError {
    pub(super) fn system(attempt: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let attempt = attempt.into();
        move |source| Self::System { attempt, source }
    }
}

/// A program of the dataplane, of this version.
#[derive(Clone, Debug)]
pub struct Program {
    name: &'static str,
    path: PathBuf,
    /// What `--version` says.
    pub version: String,
}

impl Program {
    /// Finds `weft-node`, which serves.
    ///
    /// # Errors
    /// [`BenchError`], saying how to build it.
    pub fn node() -> Result<Self, BenchError> {
        Self::new("weft-node", "WEFT_NODE", find_weft_node())
    }

    /// Finds `weft-bench`, which measures.
    ///
    /// # Errors
    /// [`BenchError`], saying how to build it.
    pub fn bench() -> Result<Self, BenchError> {
        Self::new("weft-bench", "WEFT_BENCH", find_weft_bench())
    }

    fn new(
        name: &'static str,
        variable: &'static str,
        found: Option<PathBuf>,
    ) -> Result<Self, BenchError> {
        let path = found.ok_or(BenchError::NotFound { name, variable })?;
        let output = Command::new(&path)
            .arg("--version")
            .output()
            .map_err(BenchError::system(format!("starting {}", path.display())))?;
        let version = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        let found = version.split_whitespace().nth(1).unwrap_or("unknown").to_owned();
        if found != env!("CARGO_PKG_VERSION") {
            return Err(BenchError::OtherVersion { path, found });
        }
        Ok(Self { name, path, version })
    }

    /// The same, which must have DPDK.
    ///
    /// # Errors
    /// [`BenchError::NoDpdk`].
    pub fn with_dpdk(self) -> Result<Self, BenchError> {
        let Self { name, path, version } = self;
        if version.contains("dpdk") {
            Ok(Self { name, path, version })
        } else {
            Err(BenchError::NoDpdk { name, path })
        }
    }

    /// The binary.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Both programs of the dataplane, with DPDK.
#[derive(Clone, Debug)]
pub struct Programs {
    node: Program,
    /// The one that measures.
    pub bench: Program,
}

impl Programs {
    /// Finds both.
    ///
    /// # Errors
    /// [`BenchError`], saying how to build what is missing.
    pub fn find() -> Result<Self, BenchError> {
        Ok(Self { node: Program::node()?.with_dpdk()?, bench: Program::bench()?.with_dpdk()? })
    }

    /// Starts the one that `spec` is for in `directory`, as `name`.
    pub(super) fn start(
        &self,
        directory: &Path,
        name: &str,
        case: &Case,
        spec: &NodeSpec,
    ) -> Result<Running, BenchError> {
        let program = if spec.bench.is_some() { &self.bench } else { &self.node };
        let config = directory.join(format!("{name}.toml"));
        fs::write(&config, to_toml(&config::config(case, spec)))
            .map_err(BenchError::system(format!("writing {}", config.display())))?;
        let mut command = favoured(&program.path);
        command.arg("--config").arg(&config).env("RUNTIME_DIRECTORY", directory);
        Running::start(name, &mut command)
    }
}

/// What `weft-bench` measured: the keys of its answer that a row needs.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct Measurement {
    pub(super) packets: u64,
    pub(super) contributions_added: u64,
    pub(super) cpu_seconds: f64,
    pub(super) wall_seconds: f64,
    pub(super) checked: u64,
    pub(super) wrong: u64,
    #[serde(default)]
    pub(super) repeated: u64,
    #[serde(default)]
    pub(super) drops: BTreeMap<String, u64>,
}

/// A process that ends with its handle.
#[derive(Debug)]
pub(super) struct Running {
    program: String,
    child: Child,
    lines: Receiver<Line>,
    stdout: String,
    /// The last line of standard error.
    said: String,
    /// Longest time that a wait takes.
    limit: Duration,
    /// The value of [`MARK`] in its environment and in that of all that it starts.
    mark: String,
    has_succeeded: bool,
}

/// What a process writes, line by line.
#[derive(Debug)]
enum Line {
    Stdout(String),
    Stderr(String),
}

impl Running {
    /// Starts a process in a group of its own: a signal from the terminal comes through its handle.
    pub(super) fn start(program: &str, command: &mut Command) -> Result<Self, BenchError> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let mark = format!("{}-{count}", std::process::id());
        let mut child = command
            .env(MARK, &mark)
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(BenchError::system(format!("starting {program}")))?;
        let (sender, lines) = channel();
        read_lines(child.stdout.take().expect("it is piped"), Line::Stdout, sender.clone());
        read_lines(child.stderr.take().expect("it is piped"), Line::Stderr, sender);
        Ok(Self {
            program: program.to_owned(),
            child,
            lines,
            stdout: String::new(),
            said: String::new(),
            limit: LIMIT,
            mark,
            has_succeeded: false,
        })
    }

    /// The same process, which has to do what it is waited for within `limit`.
    pub(super) fn within(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Starts a process and writes `text` to its standard input.
    pub(super) fn start_with(
        program: &str,
        command: &mut Command,
        text: &str,
    ) -> Result<Self, BenchError> {
        let mut running = Self::start(program, command)?;
        if let Some(mut stdin) = running.child.stdin.take() {
            let told = stdin.write_all(text.as_bytes());
            told.map_err(BenchError::system(format!("writing to {program}")))?;
        }
        Ok(running)
    }

    /// The process.
    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Keeps what it wrote to standard error last.
    fn note_said(&mut self, line: &str) {
        if !line.trim().is_empty() {
            line.trim().clone_into(&mut self.said);
        }
    }

    /// The next line that the process writes; `None` at its end.
    fn line(&mut self, begun: Instant) -> Result<Option<Line>, BenchError> {
        loop {
            if let Some(line) = self.poll_line(begun)? {
                return Ok(line);
            }
        }
    }

    /// The same; no answer when it has written none for [`LINE_WAIT`].
    fn poll_line(&mut self, begun: Instant) -> Result<Option<Option<Line>>, BenchError> {
        if interrupt::is_raised() {
            return Err(BenchError::Interrupted);
        }
        if begun.elapsed() > self.limit {
            let seconds = self.limit.as_secs_f64();
            return Err(self.failed(&format!("did not end within {seconds:.0} s")));
        }
        match self.lines.recv_timeout(LINE_WAIT) {
            Ok(Line::Stderr(line)) => {
                self.note_said(&line);
                Ok(Some(Some(Line::Stderr(line))))
            }
            Ok(Line::Stdout(line)) => {
                self.stdout += &line;
                Ok(Some(Some(Line::Stdout(line))))
            }
            Err(RecvTimeoutError::Disconnected) => Ok(Some(None)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
        }
    }

    /// Waits for a line that holds `text`.
    pub(super) fn wait_for(&mut self, text: &str) -> Result<(), BenchError> {
        let begun = Instant::now();
        while let Some(Line::Stdout(line) | Line::Stderr(line)) = self.line(begun)? {
            if line.contains(text) {
                // What it says when it is ready are no last words.
                self.said.clear();
                return Ok(());
            }
        }
        Err(self.failed("ended early"))
    }

    /// CPU time of the busiest thread so far, which is the one that polls.
    pub(super) fn busiest_thread(&self) -> Duration {
        let folder = Path::new("/proc").join(self.child.id().to_string());
        Duration::from_nanos(threads_ns(&folder).max().unwrap_or(0))
    }

    /// Asks the process to end with a signal, waits, and returns its standard output.
    pub(super) fn interrupt(self) -> Result<String, BenchError> {
        self.signal(Signal::SIGINT);
        self.finish()
    }

    fn signal(&self, signal: Signal) {
        if let Ok(pid) = i32::try_from(self.child.id()) {
            // It may have ended in the meantime, which the exit status tells.
            let _ = kill(Pid::from_raw(pid), signal);
        }
    }

    /// Presses enter, waits, and returns the standard output.
    pub(super) fn press_enter(mut self) -> Result<String, BenchError> {
        if let Some(stdin) = &mut self.child.stdin {
            let pressed = stdin.write_all(b"\n").and_then(|()| stdin.flush());
            pressed.map_err(BenchError::system(format!("writing to {}", self.program)))?;
        }
        self.finish()
    }

    /// Waits for the end and returns the standard output.
    pub(super) fn finish(mut self) -> Result<String, BenchError> {
        let begun = Instant::now();
        while self.line(begun)?.is_some() {}
        self.end()
    }

    fn end(mut self) -> Result<String, BenchError> {
        let status = self
            .child
            .wait()
            .map_err(BenchError::system(format!("waiting for {}", self.program)))?;
        if status.success() {
            self.has_succeeded = true;
            return Ok(std::mem::take(&mut self.stdout));
        }
        Err(self.failed(&status.to_string()))
    }

    fn failed(&self, how: &str) -> BenchError {
        BenchError::Process {
            program: self.program.clone(),
            how: how.to_owned(),
            stderr: self.said.clone(),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.has_succeeded {
            return;
        }
        if self.is_running() {
            // mpirun ends its ranks when it is asked to end.
            self.signal(Signal::SIGTERM);
            let begun = Instant::now();
            while self.is_running() && begun.elapsed() < TERM_WAIT {
                thread::sleep(LINE_WAIT);
            }
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
        end_marked(&self.mark);
    }
}

/// Makes this process the parent of orphans of its children, such as mpirun's daemons: their CPU
/// time would count as another program's. [`reap`] waits for them.
pub(super) fn adopt() {
    // A kernel that refuses leaves them to init.
    let _ = set_child_subreaper(true);
}

/// Waits a moment for the end of adopted processes. Only without a handle that has a child still:
/// its end would be taken, too.
pub(super) fn reap() {
    let begun = Instant::now();
    loop {
        match waitpid(Pid::from_raw(-1), Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::StillAlive) if begun.elapsed() < TERM_WAIT => thread::sleep(LINE_WAIT),
            Ok(WaitStatus::StillAlive) | Err(_) => return,
            Ok(_) => {}
        }
    }
}

/// Kills what a process has left behind, in whichever group, session or namespace.
fn end_marked(mark: &str) {
    for _ in 0..SCANS_MAX {
        let left = marked(mark);
        if left.is_empty() {
            return;
        }
        for pid in left {
            // One that has ended in the meantime is what we want.
            let _ = kill(pid, Signal::SIGKILL);
        }
        thread::sleep(LINE_WAIT);
    }
}

/// Processes with the mark in their environment; after its end a process has no environment.
fn marked(mark: &str) -> Vec<Pid> {
    let wanted = format!("{MARK}={mark}");
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let has_mark = |entry: &fs::DirEntry| {
        let environment = fs::read(entry.path().join("environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|variable| variable == wanted.as_bytes())
    };
    let pid = |entry: &fs::DirEntry| entry.file_name().to_str()?.parse().ok().map(Pid::from_raw);
    entries.filter_map(|entry| pid(&entry).filter(|_| has_mark(&entry))).collect()
}

/// Reads a stream to its end on a thread of its own, so that a process never waits for its reader.
fn read_lines(stream: impl Read + Send + 'static, of: fn(String) -> Line, to: Sender<Line>) {
    thread::spawn(move || {
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        while matches!(reader.read_line(&mut line), Ok(len) if len > 0) {
            if to.send(of(std::mem::take(&mut line))).is_err() {
                return;
            }
        }
    });
}

/// dpdk-testpmd on a device, if it is installed; it forwards when it is returned.
///
/// A memif client that connects earlier finds the socket but no device behind it, is turned away,
/// and does not try again.
pub(super) fn testpmd(
    directory: &Path,
    name: &str,
    vdev: &str,
    mode: &str,
    cpus: [u32; 2],
) -> Result<Option<Running>, BenchError> {
    let [lane, main] = cpus;
    let Some(path) = on_path("dpdk-testpmd") else { return Ok(None) };
    let mut command = favoured(Path::new("stdbuf"));
    command
        .arg("-oL")
        .arg(&path)
        .arg(format!("--lcores=0@{main},1@{lane}"))
        .args(["--no-pci", "--no-huge", "-m", "128", "--no-telemetry", "--no-shconf"])
        .arg(format!("--file-prefix={name}{}", std::process::id()))
        .arg(format!("--vdev={vdev}"))
        .args(["--", "--no-lsc-interrupt", "--auto-start", "--total-num-mbufs=8192"])
        .arg(format!("--forward-mode={mode}"))
        .current_dir(directory);
    command.env("RUNTIME_DIRECTORY", directory);
    let mut testpmd = Running::start("dpdk-testpmd", &mut command)?;
    testpmd.wait_for("Press enter")?;
    Ok(Some(testpmd))
}

/// A command that other loads disturb less; without the right to a better priority it just runs.
fn favoured(program: &Path) -> Command {
    let mut command = Command::new("nice");
    command.args(["-n", "-10"]).arg(program);
    command
}

fn on_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|path| path.is_file())
}

/// Longest wait for a process unless another is set: a table of many sizes on a busy machine.
pub(super) const LIMIT: Duration = Duration::from_secs(900);
/// How long a process may take to end when it is asked to, or when its parent has.
const TERM_WAIT: Duration = Duration::from_secs(2);
/// Looks for what is left behind.
const SCANS_MAX: u32 = 50;
/// The variable that processes of one handle share.
const MARK: &str = "WEFT_BENCH_RUN";
/// How often a wait looks whether it was interrupted.
const LINE_WAIT: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Running {
        Running::start("sh", Command::new("sh").args(["-c", script])).unwrap()
    }

    #[test]
    fn lines_of_both_streams_are_waited_for_and_standard_output_is_kept() {
        let mut running = shell("echo first; echo ready >&2; read line; echo last");
        running.wait_for("ready").unwrap();
        assert_eq!(running.press_enter().unwrap(), "first\nlast\n");
    }

    #[test]
    fn a_process_that_fails_is_an_error_with_its_last_words() {
        let error = shell("echo out of order >&2; exit 3").finish().unwrap_err();
        assert!(error.to_string().contains("out of order"), "{error}");
        let error = shell("echo other").wait_for("ready").unwrap_err();
        assert!(error.to_string().contains("ended early"), "{error}");
    }

    #[test]
    fn a_process_that_stands_still_is_an_error_at_its_limit() {
        let mut command = Command::new("sleep");
        let running = Running::start("sleep", command.arg("600")).unwrap();
        let pid = Pid::from_raw(running.id().try_into().unwrap());
        let error = running.within(Duration::from_millis(200)).finish().unwrap_err().to_string();
        assert!(error.contains("sleep did not end within 0 s"), "{error}");
        assert!(kill(pid, None).is_err(), "it is gone");
        // One that writes without end stands still, too.
        let endless = shell("yes").within(Duration::from_millis(200)).finish().unwrap_err();
        assert!(endless.to_string().contains("did not end within"), "{endless}");
    }

    #[test]
    fn what_a_process_started_ends_with_it_in_whichever_session() {
        let script = "trap '' TERM; (setsid sleep 600 & echo $! ready); sleep 600";
        let mut running = shell(script);
        running.wait_for("ready").unwrap();
        let daemon = running.stdout.split_whitespace().next().unwrap().to_owned();
        let mark = running.mark.clone();
        assert!(marked(&mark).len() >= 2, "the shell and the daemon");
        drop(running);
        assert_eq!(marked(&mark), []);
        // It has no environment a little before it is gone.
        let begun = Instant::now();
        let state = || fs::read_to_string(format!("/proc/{daemon}/stat")).unwrap_or_default();
        while !(state().is_empty() || state().contains(") Z ")) {
            assert!(begun.elapsed() < Duration::from_secs(20), "{}", state());
            thread::sleep(LINE_WAIT);
        }
    }

    #[test]
    fn a_process_that_writes_much_does_not_wait_for_its_reader() {
        let mut running = shell("yes | head -c 1000000 >&2; echo ready; sleep 60");
        running.wait_for("ready").unwrap();
        let pid = Pid::from_raw(running.child.id().try_into().unwrap());
        drop(running);
        assert!(kill(pid, None).is_err(), "it ends with its handle");
    }
}
