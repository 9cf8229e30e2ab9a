//! Processes of a bench: weft-node and dpdk-testpmd, and the CPU time of their polling threads.
//!
//! Each is ended by its own handle, also when the bench fails.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::Deserialize;

use super::aggregator::Case;
use super::config::{NodeSpec, toml};
use crate::doctor::find_weft_node;

/// Why a bench has no figure.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BenchError {
    /// No daemon.
    #[error(
        "weft-node was not found beside weft, on PATH, or in WEFT_NODE: `cargo build --release -p \
         weft-node --features dpdk`"
    )]
    NoNode,
    /// Another version.
    #[error("{} is version {found}, this weft is {}: build both from one tree", .path.display(), env!("CARGO_PKG_VERSION"))]
    OtherVersion {
        /// The daemon.
        path: PathBuf,
        /// What it said.
        found: String,
    },
    /// A daemon without DPDK.
    #[error("{} was built without DPDK: `cargo build --release -p weft-node --features dpdk`", .0.display())]
    NoDpdk(PathBuf),
    /// One CPU is not enough.
    #[error("a memif bench needs two CPUs, one for each process; this process may use {0}")]
    OneCpu(usize),
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
    #[error("{program} {how}: {stderr}")]
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

/// The daemon's binary, checked.
#[derive(Clone, Debug)]
pub struct Node {
    path: PathBuf,
    /// What `--version` says.
    pub version: String,
}

impl Node {
    /// Finds the daemon and checks its version and that it has DPDK.
    ///
    /// # Errors
    /// [`BenchError`], saying how to build it.
    pub fn find() -> Result<Self, BenchError> {
        let node = Self::find_any()?;
        if node.version.contains("dpdk") { Ok(node) } else { Err(BenchError::NoDpdk(node.path)) }
    }

    /// Finds the daemon and checks its version.
    ///
    /// # Errors
    /// [`BenchError`], saying how to build it.
    pub fn find_any() -> Result<Self, BenchError> {
        let path = find_weft_node().ok_or(BenchError::NoNode)?;
        let output = Command::new(&path)
            .arg("--version")
            .output()
            .map_err(BenchError::system(format!("starting {}", path.display())))?;
        let version = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        let found = version.split_whitespace().nth(1).unwrap_or("unknown").to_owned();
        if found != env!("CARGO_PKG_VERSION") {
            return Err(BenchError::OtherVersion { path, found });
        }
        Ok(Self { path, version })
    }

    /// The binary.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Starts a node in `directory`.
    pub(super) fn start(
        &self,
        directory: &Path,
        name: &str,
        case: &Case,
        spec: &NodeSpec<'_>,
    ) -> Result<Running, BenchError> {
        let config = directory.join(format!("{name}.toml"));
        fs::write(&config, toml(case, spec))
            .map_err(BenchError::system(format!("writing {}", config.display())))?;
        Running::start(name, favoured(&self.path).arg("--config").arg(&config))
    }
}

/// What a node measured; see `weft_node::bench::Measurement`.
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
}

/// A process that ends with its handle.
#[derive(Debug)]
pub(super) struct Running {
    program: String,
    child: Child,
}

impl Running {
    pub(super) fn start(program: &str, command: &mut Command) -> Result<Self, BenchError> {
        let child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(BenchError::system(format!("starting {program}")))?;
        Ok(Self { program: program.to_owned(), child })
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

    pub(super) fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Reads standard error up to the line that holds `text`.
    pub(super) fn wait_for(&mut self, text: &str) -> Result<(), BenchError> {
        let stderr = self.child.stderr.take().expect("standard error is piped");
        let mut lines = BufReader::new(stderr);
        let mut said = String::new();
        loop {
            let mut line = String::new();
            let len = lines
                .read_line(&mut line)
                .map_err(BenchError::system(format!("reading from {}", self.program)))?;
            if line.contains(text) {
                self.child.stderr = Some(lines.into_inner());
                return Ok(());
            }
            if len == 0 {
                return Err(self.failed("ended early", &said));
            }
            said = line;
        }
    }

    /// CPU time of the busiest thread so far, which is the one that polls.
    pub(super) fn busiest_thread(&self) -> Duration {
        let tasks = format!("/proc/{}/task", self.child.id());
        let times = fs::read_dir(tasks).into_iter().flatten().flatten().filter_map(|task| {
            let text = fs::read_to_string(task.path().join("schedstat")).ok()?;
            text.split_whitespace().next()?.parse().ok()
        });
        Duration::from_nanos(times.max().unwrap_or(0))
    }

    /// Asks the process to end with a signal, waits, and returns its standard output.
    pub(super) fn interrupt(self) -> Result<String, BenchError> {
        if let Ok(pid) = i32::try_from(self.child.id()) {
            // It may have ended in the meantime, which the exit status tells.
            let _ = kill(Pid::from_raw(pid), Signal::SIGINT);
        }
        self.finish()
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
        let mut stdout = self.child.stdout.take().expect("standard output is piped");
        let reader = std::thread::spawn(move || {
            let mut text = String::new();
            let _ = stdout.read_to_string(&mut text);
            text
        });
        loop {
            let ended = self
                .child
                .try_wait()
                .map_err(BenchError::system(format!("waiting for {}", self.program)))?;
            if let Some(status) = ended {
                let text = reader.join().unwrap_or_default();
                if status.success() {
                    return Ok(text);
                }
                let mut said = String::new();
                if let Some(stderr) = &mut self.child.stderr {
                    let _ = stderr.read_to_string(&mut said);
                }
                return Err(self.failed(&status.to_string(), &said));
            }
            if begun.elapsed() > END_TIMEOUT {
                return Err(self.failed("did not end in time", ""));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn failed(&self, how: &str, said: &str) -> BenchError {
        let stderr = said.trim().lines().last().unwrap_or_default().to_owned();
        BenchError::Process { program: self.program.clone(), how: how.to_owned(), stderr }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.is_running() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// dpdk-testpmd on a device, if it is installed.
pub(super) fn testpmd(
    directory: &Path,
    name: &str,
    vdev: &str,
    mode: &str,
    cpus: [u32; 2],
) -> Result<Option<Running>, BenchError> {
    let [lane, main] = cpus;
    let Some(path) = on_path("dpdk-testpmd") else { return Ok(None) };
    let mut command = favoured(&path);
    command
        .arg(format!("--lcores=0@{main},1@{lane}"))
        .args(["--no-pci", "--no-huge", "-m", "128", "--no-telemetry", "--no-shconf"])
        .arg(format!("--file-prefix={name}{}", std::process::id()))
        .arg(format!("--vdev={vdev}"))
        .args(["--", "--no-lsc-interrupt", "--auto-start", "--total-num-mbufs=8192"])
        .arg(format!("--forward-mode={mode}"))
        .current_dir(directory);
    Running::start("dpdk-testpmd", &mut command).map(Some)
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

/// Longest time that a process may take to end: a table of many sizes on a busy machine.
const END_TIMEOUT: Duration = Duration::from_secs(900);
