//! A worker's process: told its plan and perhaps its end on standard input, heard line by line,
//! ended with its owner.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{ChildStdin, ChildStdout, Stdio};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::plan::WorkerPlan;
use super::process::{Process, io, program};
use super::processes::ProcessError;
use super::{WorkerMessage, monotonic_ns};

/// A worker's rank, and which of its lives.
pub(super) type Life = (u8, u32);

/// What such a process says, one JSON object a line.
pub(super) trait Spoken: DeserializeOwned + Send + 'static {
    /// Whether nothing comes after it.
    fn is_last(&self) -> bool;

    /// The last word of one that said none.
    fn failed(at_ns: u64, error: String) -> Self;
}

impl Spoken for WorkerMessage {
    fn is_last(&self) -> bool {
        Self::is_last(self)
    }

    fn failed(at_ns: u64, error: String) -> Self {
        Self::Failed { at_ns, error }
    }
}

/// How long a worker may take to end after its last word.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// A worker's process, killed when dropped, and the thread that reads what it says.
#[derive(Debug)]
pub(super) struct RunningWorker {
    process: Arc<Mutex<Process>>,
    stdin: ChildStdin,
}

impl Drop for RunningWorker {
    fn drop(&mut self) {
        // Nobody panics while holding it; and if, the process is killed with the last owner.
        self.kill();
    }
}

impl RunningWorker {
    /// Starts `weft worker`.
    pub(super) fn start(
        plan: &WorkerPlan,
        namespace: Option<&str>,
        directory: &Path,
        sender: Sender<(Life, WorkerMessage)>,
    ) -> Result<Self, ProcessError> {
        Self::spawn(("worker", plan), (plan.rank, plan.life), namespace, directory, sender)
    }

    /// Starts a command of this program, such as `worker`, and tells it its plan. What it says goes
    /// to `sender` with its rank and life; the last message is final, whatever happens.
    pub(super) fn spawn<M: Spoken>(
        (command, plan): (&str, &impl Serialize),
        life: Life,
        namespace: Option<&str>,
        directory: &Path,
        sender: Sender<(Life, M)>,
    ) -> Result<Self, ProcessError> {
        let text = serde_json::to_string(plan).expect("a plan is a JSON object");
        let this = std::env::current_exe().map_err(io("finding this program"))?;
        let mut child = program(&this, namespace)
            .arg(command)
            .arg(directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(io("starting a worker"))?;
        let mut stdin = child.stdin.take().expect("piped");
        let stdout = BufReader::new(child.stdout.take().expect("piped"));
        let process = Arc::new(Mutex::new(Process(child)));
        stdin.write_all(format!("{text}\n").as_bytes()).map_err(io("telling a worker its plan"))?;
        let shared = Arc::clone(&process);
        thread::spawn(move || listen(stdout, &shared, life, &sender));
        Ok(Self { process, stdin })
    }

    /// Tells it one more line. One that has ended does not hear it.
    pub(super) fn tell(&mut self, line: &str) {
        let _ = self.stdin.write_all(format!("{line}\n").as_bytes());
    }

    /// Its process, while nobody has waited for it.
    pub(super) fn pid(&self) -> Option<u32> {
        self.process.lock().ok().map(|process| process.0.id())
    }

    /// Kills it without a word.
    pub(super) fn kill(&self) {
        if let Ok(mut process) = self.process.lock() {
            process.end(Duration::ZERO);
        }
    }
}

/// Hands on what a worker says, and how it ended if it did not say so.
fn listen<M: Spoken>(
    stdout: BufReader<ChildStdout>,
    process: &Mutex<Process>,
    life: Life,
    sender: &Sender<(Life, M)>,
) {
    let mut finished = false;
    for line in stdout.lines().map_while(Result::ok) {
        let Ok(message) = serde_json::from_str::<M>(&line) else { continue };
        finished |= message.is_last();
        if sender.send((life, message)).is_err() {
            return;
        }
    }
    let Ok(mut process) = process.lock() else { return };
    process.end(STOP_TIMEOUT);
    if !finished {
        let status = process.0.wait().map_or_else(|error| error.to_string(), |s| s.to_string());
        let error = format!("ended without a word: {status}");
        // A receiver that is gone has given the run up.
        let _ = sender.send((life, M::failed(monotonic_ns(), error)));
    }
}
