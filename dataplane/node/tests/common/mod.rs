//! Starts `weft-node` as a user would, and waits for its ready line.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use weft_config::node::NodeConfig;
use weft_config::to_toml;

/// How long anything may take. The machine may be busy; nothing here takes a second on its own.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A running node; killed when dropped.
pub(crate) struct Running {
    child: Child,
    /// What it wrote to stderr until it was ready.
    pub(crate) ready: String,
    /// Keeps the pipe open, and holds what came later.
    later: mpsc::Receiver<String>,
}

/// How a node ended.
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: Vec<String>,
    pub(crate) took: Duration,
}

impl Running {
    /// Starts `command` and waits until the node serves.
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("weft-node starts");
        let stderr = BufReader::new(child.stderr.take().expect("it is piped"));
        let (lines, later) = mpsc::channel();
        std::thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                let _ = lines.send(line);
            }
        });
        let mut seen = Vec::new();
        let deadline = Instant::now() + PATIENCE;
        loop {
            match later.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) if line.contains("ready") => return Self { child, ready: line, later },
                Ok(line) => seen.push(line),
                Err(_) => {
                    let _ = child.kill();
                    let _ = child.wait();
                    panic!("weft-node is not ready: {seen:?}");
                }
            }
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The next line of the log that has these words.
    pub(crate) fn line_with(&self, words: &str) -> String {
        let lines = std::iter::from_fn(|| self.later.recv_timeout(PATIENCE).ok());
        lines.into_iter().find(|line| line.contains(words)).expect(words)
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.pid()).expect("a process id");
        kill(Pid::from_raw(pid), signal).expect("the node is ours");
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("the node is ours").is_some()
    }

    /// Sends a signal and waits for the end.
    pub(crate) fn end(mut self, signal: Signal) -> Ended {
        let started = Instant::now();
        self.signal(signal);
        let deadline = started + PATIENCE;
        while !self.has_ended() {
            assert!(Instant::now() < deadline, "the node does not end");
            std::thread::sleep(Duration::from_millis(2));
        }
        let status = self.child.wait().expect("the node is ours");
        let took = started.elapsed();
        let mut stdout = String::new();
        let mut pipe = self.child.stdout.take().expect("it is piped");
        pipe.read_to_string(&mut stdout).expect("statistics are UTF-8");
        let stderr = self.later.iter().collect();
        Ended { code: status.code(), stdout, stderr, took }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a command that must end by itself.
pub(crate) fn run_to_end(command: &mut Command) -> Output {
    let piped = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = piped.spawn().expect("the command starts");
    let deadline = Instant::now() + PATIENCE;
    while child.try_wait().expect("it is ours").is_none() {
        if Instant::now() > deadline {
            let _ = child.kill();
            panic!("it does not end: {:?}", child.wait_with_output());
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    child.wait_with_output().expect("it has ended")
}

/// A configuration file that is removed when dropped.
pub(crate) struct ConfigFile(PathBuf);

impl ConfigFile {
    pub(crate) fn new(name: &str, config: &NodeConfig) -> Self {
        Self::with_text(name, &to_toml(config))
    }

    pub(crate) fn with_text(name: &str, text: &str) -> Self {
        let file = format!("weft-node-{name}-{}.toml", std::process::id());
        let path = std::env::temp_dir().join(file);
        std::fs::write(&path, text).expect("a file in the temporary directory");
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for ConfigFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// `weft-node --config FILE` and more arguments.
pub(crate) fn weft_node(config: &ConfigFile, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weft-node"));
    command.arg("--config").arg(config.path()).args(args);
    command
}
