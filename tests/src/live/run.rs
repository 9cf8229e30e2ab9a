//! `weft` as a process: starts it, watches it, and looks for what it left behind.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::TempDir;

use super::{eventually, program};

/// The shipped scenario.
#[must_use]
pub fn digits() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../testbed/scenarios/digits.toml")
}

/// Writes a scenario with other lines in it into a directory, as `changed.toml`.
///
/// # Panics
/// When a line to be changed is not there, or the file cannot be written.
#[must_use]
pub fn changed(scenario: &str, directory: &Path, changes: &[(&str, &str)]) -> PathBuf {
    let mut text = scenario.to_owned();
    for (from, to) in changes {
        assert!(text.contains(from), "{from}");
        text = text.replace(from, to);
    }
    let path = directory.join("changed.toml");
    fs::write(&path, text).expect("a file in a temporary directory");
    path
}

/// `weft run` under way, with a run directory of its own. Killed when dropped.
#[derive(Debug)]
pub struct Run {
    directory: TempDir,
    child: Child,
    stdout: Option<JoinHandle<String>>,
    stderr: Option<JoinHandle<String>>,
    begun: Instant,
}

/// How a program ended.
#[derive(Debug)]
pub struct Ended {
    /// Its exit status; `None` when a signal ended it.
    pub code: Option<i32>,
    /// The JSON value on its standard output, if that is what is there.
    pub json: Option<Value>,
    /// Its standard error.
    pub stderr: String,
    /// How long it ran.
    pub took: Duration,
}

impl Run {
    /// Starts `weft run SCENARIO --format json --out <new directory>` and more arguments.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn start<S: AsRef<OsStr>>(scenario: &Path, arguments: &[S]) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let out = directory.path().join("run");
        let mut command = Command::new(program("weft"));
        command.arg("run").arg(scenario).args(["--format", "json", "--out"]).arg(out);
        let mut child = command
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("weft starts");
        let stdout = Some(drain(child.stdout.take().expect("piped")));
        let stderr = Some(drain(child.stderr.take().expect("piped")));
        Self { directory, child, stdout, stderr, begun: Instant::now() }
    }

    /// Its process id, which names its lab.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The run directory.
    #[must_use]
    pub fn out(&self) -> PathBuf {
        self.directory.path().join("run")
    }

    /// Processes of this run: workers, in the order of their ranks, then boxes.
    #[must_use]
    pub fn workers(&self) -> Vec<Pid> {
        self.running("worker")
    }

    /// Processes of this run with a word in their command line that ends so.
    #[must_use]
    pub fn running(&self, word: &str) -> Vec<Pid> {
        let mut found: Vec<i32> = children(self.child.id())
            .into_iter()
            .filter(|pid| command_line(*pid).split('\0').any(|other| other.ends_with(word)))
            .collect();
        found.sort_unstable();
        found.into_iter().map(Pid::from_raw).collect()
    }

    /// All processes that it started and that have not ended.
    #[must_use]
    pub fn children(&self) -> Vec<i32> {
        children(self.child.id())
    }

    /// Waits until all `count` workers run and the first rounds are over.
    ///
    /// # Panics
    /// When they do not come, or the run ends before.
    pub fn wait_until_training(&mut self, count: usize) {
        let under_way = eventually(super::PATIENCE, || {
            assert!(matches!(self.child.try_wait(), Ok(None)), "the run ended early");
            self.workers().len() == count && self.recorded() > 1 << 20
        });
        assert!(under_way, "the workers do not begin");
    }

    /// Bytes of gradients and sums that rank 0 has recorded, which grow with each round.
    fn recorded(&self) -> u64 {
        fs::metadata(self.out().join("w0.rec")).map_or(0, |file| file.len())
    }

    /// Sends it a signal.
    ///
    /// # Panics
    /// When it has ended already.
    pub fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).expect("a process id");
        kill(Pid::from_raw(pid), signal).expect("the run is under way");
    }

    /// Waits for the end, at most `timeout`.
    ///
    /// # Panics
    /// When it takes longer, or leaves a process or a namespace behind.
    #[must_use]
    pub fn end(mut self, timeout: Duration) -> (Ended, TempDir) {
        let left = timeout.saturating_sub(self.begun.elapsed());
        let ended = eventually(left, || !matches!(self.child.try_wait(), Ok(None)));
        if !ended {
            stop(&mut self.child);
        }
        let status = self.child.wait().expect("the run is ours");
        let stdout = self.stdout.take().expect("once").join().expect("a reader");
        let stderr = self.stderr.take().expect("once").join().expect("a reader");
        assert!(ended, "the run does not end within {timeout:?}: {stderr}");
        let leftovers = leftovers(self.child.id(), &self.out());
        assert!(leftovers.is_empty(), "left behind: {leftovers:?}");
        let directory = std::mem::replace(
            &mut self.directory,
            tempfile::tempdir().expect("a temporary directory"),
        );
        let took = self.begun.elapsed();
        let json = serde_json::from_str(&stdout).ok();
        (Ended { code: status.code(), json, stderr, took }, directory)
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        stop(&mut self.child);
    }
}

/// Ends a program and the processes that it started, which may hold its output's pipes: who reads
/// those to their end would wait for the last of them.
fn stop(child: &mut Child) {
    if !matches!(child.try_wait(), Ok(None)) {
        return;
    }
    let started = children(child.id());
    // SIGTERM first: a run takes its own lab down.
    if let Ok(pid) = i32::try_from(child.id()) {
        let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
        eventually(Duration::from_secs(10), || !matches!(child.try_wait(), Ok(None)));
    }
    if matches!(child.try_wait(), Ok(None)) {
        let _ = child.kill();
        let _ = child.wait();
        for pid in started {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
    }
}

/// Runs `weft` with these arguments to its end, at most `timeout`.
///
/// # Panics
/// When it takes longer.
#[must_use]
pub fn weft<S: AsRef<OsStr>>(arguments: &[S], timeout: Duration) -> Ended {
    ended(Command::new(program("weft")).args(arguments), timeout)
}

/// Runs a command to its end, at most `timeout`.
///
/// # Panics
/// When it cannot be started or takes longer.
#[must_use]
pub fn ended(command: &mut Command, timeout: Duration) -> Ended {
    let begun = Instant::now();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let stdout = drain(child.stdout.take().expect("piped"));
    let stderr = drain(child.stderr.take().expect("piped"));
    let in_time = eventually(timeout, || !matches!(child.try_wait(), Ok(None)));
    if !in_time {
        stop(&mut child);
    }
    let status = child.wait().expect("the program is ours");
    let stderr = stderr.join().expect("a reader");
    assert!(in_time, "no end within {timeout:?}: {stderr}");
    let json = serde_json::from_str(&stdout.join().expect("a reader")).ok();
    Ended { code: status.code(), json, stderr, took: begun.elapsed() }
}

fn drain(mut pipe: impl std::io::Read + Send + 'static) -> JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        // A program that is killed closes its end like any other.
        let _ = pipe.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// Namespaces of the lab of run `pid`, and processes that name its directory.
fn leftovers(pid: u32, out: &Path) -> Vec<String> {
    let prefix = format!("wf-run{pid}-");
    let namespaces = fs::read_dir("/run/netns").into_iter().flatten().flatten();
    let mut left: Vec<String> = namespaces
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| name.starts_with(&prefix))
        .collect();
    let out = out.to_string_lossy();
    left.extend(
        processes()
            .map(command_line)
            .filter(|line| line.contains(&*out))
            .map(|line| line.replace('\0', " ")),
    );
    left
}

/// Children of a process.
fn children(parent: u32) -> Vec<i32> {
    let is_child = |pid: &i32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // The name in parentheses may hold anything; the parent is the second field after it.
        let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
        fields.split_whitespace().nth(1).and_then(|field| field.parse().ok()) == Some(parent)
    };
    processes().filter(is_child).collect()
}

fn processes() -> impl Iterator<Item = i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

fn command_line(pid: i32) -> String {
    fs::read(format!("/proc/{pid}/cmdline"))
        .map_or_else(|_| String::new(), |bytes| String::from_utf8_lossy(&bytes).into_owned())
}
