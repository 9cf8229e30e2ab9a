//! `simple_switch_CLI`, which writes entries: a command a line, answered up to its prompt.

use std::io::{Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use nix::poll::{PollFd, PollFlags, poll};

/// A running one.
#[derive(Debug)]
pub(super) struct Cli {
    child: Child,
    to: ChildStdin,
    from: ChildStdout,
    /// Heard, and not taken yet.
    heard: String,
}

impl Cli {
    pub(super) fn start(thrift_port: &str) -> Result<Self, String> {
        let mut command = Command::new(PROGRAM);
        command.args(["--thrift-port", thrift_port]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().map_err(|error| format!("{PROGRAM}: {error}"))?;
        let to = child.stdin.take().expect("it is a pipe");
        let from = child.stdout.take().expect("it is a pipe");
        let mut cli = Self { child, to, from, heard: String::new() };
        cli.answer()?;
        Ok(cli)
    }

    /// What it says until it asks for the next command.
    fn answer(&mut self) -> Result<String, String> {
        let mut buffer = [0; 4096];
        loop {
            if let Some((said, rest)) = self.heard.split_once(PROMPT) {
                let said = said.trim().to_owned();
                self.heard = rest.to_owned();
                return Ok(said);
            }
            let mut waits = [PollFd::new(self.from.as_fd(), PollFlags::POLLIN)];
            match poll(&mut waits, ANSWER_MAX_MS) {
                Ok(0) => return Err(format!("{PROGRAM} says nothing: {}", self.heard.trim())),
                Ok(_) => {}
                Err(error) => return Err(format!("{PROGRAM}: {error}")),
            }
            match self.from.read(&mut buffer) {
                Ok(0) => return Err(format!("{PROGRAM} ended: {}", self.heard.trim())),
                Ok(len) => self.heard.push_str(&String::from_utf8_lossy(&buffer[..len])),
                Err(error) => return Err(format!("{PROGRAM}: {error}")),
            }
        }
    }

    /// Runs commands; what each said.
    pub(super) fn run_all(&mut self, lines: &[String]) -> Result<Vec<String>, String> {
        let mut all = Vec::new();
        // A pipe has room for that many.
        for lines in lines.chunks(256) {
            let text: String = lines.iter().flat_map(|line| [line, "\n"]).collect();
            let done = self.to.write_all(text.as_bytes());
            done.map_err(|error| format!("{PROGRAM}: {error}"))?;
            for line in lines {
                let said = self.answer()?;
                if ["Invalid", "Error", "Unknown"].iter().any(|word| said.contains(word)) {
                    return Err(format!("{line}: {said}"));
                }
                all.push(said);
            }
        }
        Ok(all)
    }

    pub(super) fn run(&mut self, line: &str) -> Result<String, String> {
        Ok(self.run_all(&[line.to_owned()])?.remove(0))
    }

    /// Runs a command that makes something; the switch's number of it.
    pub(super) fn handle(&mut self, line: &str) -> Result<String, String> {
        let said = self.run(line)?;
        let handle = said.rsplit_once("with handle ").map(|(_, handle)| handle.trim().to_owned());
        handle.ok_or_else(|| format!("{line}: {said}"))
    }
}

impl Drop for Cli {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(super) const PROGRAM: &str = "simple_switch_CLI";
/// How long it may take to say something: a switch that hangs does not answer it.
const ANSWER_MAX_MS: u16 = 30_000;
const PROMPT: &str = "RuntimeCmd: ";
