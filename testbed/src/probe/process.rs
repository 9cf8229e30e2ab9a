//! The processes of a measurement: agents in the hosts' namespaces, and what else must end with it.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::Sender;
use std::thread;

use super::message::{AgentPlan, Command, Message};
use super::session::ProbeFailure;
use crate::lab::netns;

/// A process that ends with its owner.
#[derive(Debug)]
pub(super) struct Owned(pub(super) Child);

impl Drop for Owned {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// An agent process.
#[derive(Debug)]
pub(super) struct Agent {
    stdin: ChildStdin,
    _process: Owned,
}

impl Agent {
    pub(super) fn start(
        namespace: &str,
        index: usize,
        plan: &AgentPlan,
        sender: Sender<(usize, Option<Message>)>,
    ) -> Result<Self, ProbeFailure> {
        let failed = |source| ProbeFailure::Start { what: "a probe agent", source };
        let weft = std::env::current_exe().map_err(failed)?;
        let mut command = netns::command(namespace, &weft.to_string_lossy());
        let plan = serde_json::to_string(plan).expect("a plan is a JSON object");
        command.args(["probe-agent", &plan]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = Owned(command.spawn().map_err(failed)?);
        let stdin = process.0.stdin.take().expect("piped");
        let stdout = process.0.stdout.take().expect("piped");
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines() {
                let message = line.ok().and_then(|line| serde_json::from_str(&line).ok());
                // A receiver that is gone has given the measurement up.
                if sender.send((index, message)).is_err() {
                    return;
                }
            }
            let _ = sender.send((index, None));
        });
        Ok(Self { stdin, _process: process })
    }

    pub(super) fn tell(&mut self, command: &Command) {
        let line = serde_json::to_string(command).expect("a command is a JSON object");
        // An agent that has ended says so itself.
        let _ = writeln!(self.stdin, "{line}");
    }
}
