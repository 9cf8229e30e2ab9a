//! A child process that is gone when its owner is, and what it used.

use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::processes::ProcessError;
use crate::lab::netns;
use crate::proc::CpuTimes;

/// A process that does not outlive its owner.
#[derive(Debug)]
pub(super) struct Process(pub(super) Child);

impl Process {
    pub(super) fn signal(&self, signal: Signal) {
        if let Ok(pid) = i32::try_from(self.0.id()) {
            // It may have ended already.
            let _ = kill(Pid::from_raw(pid), signal);
        }
    }

    /// Its processor time so far, user and system, to the kernel's 10 ms.
    pub(super) fn cpu_ns(&self) -> u64 {
        CpuTimes::of(&Path::new("/proc").join(self.0.id().to_string())).own_ns
    }

    /// How it ended, if it has.
    pub(super) fn ended(&mut self) -> Option<ExitStatus> {
        self.0.try_wait().ok().flatten()
    }

    /// Waits for its end; kills it when that takes too long. How it ended, if by itself.
    pub(super) fn end(&mut self, timeout: Duration) -> Option<ExitStatus> {
        let begun = Instant::now();
        while begun.elapsed() < timeout {
            if let Some(status) = self.ended() {
                return Some(status);
            }
            thread::sleep(Duration::from_millis(5));
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
        None
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A program's command, in a namespace or in this process's own.
pub(super) fn program(path: &Path, namespace: Option<&str>) -> Command {
    match namespace {
        Some(namespace) => netns::command(namespace, &path.to_string_lossy()),
        None => Command::new(path),
    }
}

/// Says what was attempted when the kernel refused.
pub(super) fn io(what: &'static str) -> impl FnOnce(std::io::Error) -> ProcessError {
    move |source| ProcessError::Io { what: what.to_owned(), source }
}
