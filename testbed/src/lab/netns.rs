//! Runs `ip` and `tc`, and moves threads between network namespaces. Decides nothing.
//!
//! Namespaces are those of `ip netns`: names under `/run/netns`. A thread that [`enter`]s one
//! stays there, and so do the sockets it opens and the processes it starts.

use std::fs::File;
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use nix::sched::{CloneFlags, setns};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::Deserialize;

/// Runs lines through `ip -batch -`, in `namespace` or the caller's.
///
/// # Errors
/// Says which line failed and what `ip` said.
pub fn ip_batch(namespace: Option<&str>, lines: &[String]) -> Result<(), ToolError> {
    batch("ip", namespace, lines)
}

/// Runs lines through `tc -batch -` in `namespace`.
///
/// # Errors
/// Says which line failed and what `tc` said.
pub fn tc_batch(namespace: &str, lines: &[String]) -> Result<(), ToolError> {
    batch("tc", Some(namespace), lines)
}

/// Asks `tc` in `namespace`; returns its standard output.
///
/// # Errors
/// When `tc` cannot be run or fails.
pub fn tc(namespace: &str, arguments: &[&str]) -> Result<String, ToolError> {
    let mut command = Command::new("tc");
    command.args(["-netns", namespace]).args(arguments);
    run(command, "tc", arguments.join(" "))
}

/// Asks `ip` in `namespace`; returns its standard output.
///
/// # Errors
/// When `ip` cannot be run or fails.
pub fn ip(namespace: &str, arguments: &[&str]) -> Result<String, ToolError> {
    let mut command = Command::new("ip");
    command.args(["-netns", namespace]).args(arguments);
    run(command, "ip", arguments.join(" "))
}

/// A command that runs `program` in `namespace`, with a `/sys` that fits it. The process keeps its
/// id when `ip` gives way to `program`.
#[must_use]
pub fn command(namespace: &str, program: &str) -> Command {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", namespace, program]);
    command
}

/// Names of all namespaces, of this lab, other labs and others, in order.
///
/// # Errors
/// When `ip` cannot be run or fails.
pub fn names() -> Result<Vec<String>, ToolError> {
    #[derive(Deserialize)]
    struct Row {
        name: String,
    }
    let mut command = Command::new("ip");
    command.args(["-j", "netns", "list"]);
    let text = run(command, "ip", "-j netns list".to_owned())?;
    if text.trim().is_empty() {
        return Ok(Vec::new());
    }
    let rows: Vec<Row> = serde_json::from_str(&text).map_err(|error| ToolError::Failed {
        tool: "ip",
        command: "-j netns list".to_owned(),
        stderr: format!("output is not the expected JSON: {error}"),
        line: None,
    })?;
    let mut names: Vec<String> = rows.into_iter().map(|row| row.name).collect();
    names.sort_unstable();
    Ok(names)
}

/// Ends the processes of `namespace`, then removes it. One that is gone already is no error.
///
/// # Errors
/// When `ip` cannot be run or the namespace stays.
pub fn remove(namespace: &str) -> Result<(), ToolError> {
    for signal in [Signal::SIGTERM, Signal::SIGKILL] {
        let mut left = processes(namespace);
        for pid in &left {
            // A process that ended in the meantime is what we want.
            let _ = kill(*pid, signal);
        }
        for _ in 0..END_POLLS_MAX {
            if left.is_empty() {
                break;
            }
            std::thread::sleep(END_POLL);
            left = processes(namespace);
        }
    }
    let mut command = Command::new("ip");
    command.args(["netns", "delete", namespace]);
    match run(command, "ip", format!("netns delete {namespace}")) {
        Err(_) if !path(namespace).exists() => Ok(()),
        other => other.map(drop),
    }
}

/// Moves the calling thread into `namespace`, for good.
///
/// # Errors
/// When there is no such namespace or the caller may not enter it.
pub fn enter(namespace: &str) -> std::io::Result<()> {
    let file = File::open(path(namespace))?;
    setns(file, CloneFlags::CLONE_NEWNET)?;
    Ok(())
}

/// Runs `work` on a thread of its own inside `namespace`.
///
/// # Errors
/// When the namespace cannot be entered.
///
/// # Panics
/// If `work` panics.
pub fn within<T: Send>(namespace: &str, work: impl FnOnce() -> T + Send) -> std::io::Result<T> {
    let inside = || enter(namespace).map(|()| work());
    std::thread::scope(|scope| match scope.spawn(inside).join() {
        Ok(result) => result,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}

/// The file that stands for a namespace.
#[must_use]
pub fn path(namespace: &str) -> PathBuf {
    Path::new("/run/netns").join(namespace)
}

/// Processes in `namespace` other than this one.
fn processes(namespace: &str) -> Vec<Pid> {
    let mut command = Command::new("ip");
    command.args(["netns", "pids", namespace]);
    let text = run(command, "ip", format!("netns pids {namespace}")).unwrap_or_default();
    let pids = text.lines().filter_map(|line| line.trim().parse().ok().map(Pid::from_raw));
    pids.filter(|pid| *pid != Pid::this()).collect()
}

fn batch(tool: &'static str, namespace: Option<&str>, lines: &[String]) -> Result<(), ToolError> {
    if lines.is_empty() {
        return Ok(());
    }
    let mut command = Command::new(tool);
    if let Some(namespace) = namespace {
        command.args(["-netns", namespace]);
    }
    // A signal from the terminal must not end it halfway.
    command.args(["-batch", "-"]).stdin(Stdio::piped()).process_group(0);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let start = |reason| ToolError::Start { tool, reason };
    let mut child = command.spawn().map_err(start)?;
    if let Some(mut stdin) = child.stdin.take() {
        // A tool that stops at a bad line closes its end early; its exit status tells.
        let _ = stdin.write_all((lines.join("\n") + "\n").as_bytes());
    }
    let output = child.wait_with_output().map_err(start)?;
    if output.status.success() {
        return Ok(());
    }
    let stderr = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    let line = failed_line(&stderr);
    let command = line.and_then(|line| lines.get(line - 1)).cloned();
    Err(ToolError::Failed {
        tool,
        command: command.unwrap_or_else(|| lines.join("; ")),
        stderr,
        line,
    })
}

fn run(mut command: Command, tool: &'static str, shown: String) -> Result<String, ToolError> {
    let Output { status, stdout, stderr } = command
        .process_group(0)
        .stdin(Stdio::null())
        .output()
        .map_err(|reason| ToolError::Start { tool, reason })?;
    if status.success() {
        return Ok(String::from_utf8_lossy(&stdout).into_owned());
    }
    let stderr = String::from_utf8_lossy(&stderr).trim().to_owned();
    Err(ToolError::Failed { tool, command: shown, stderr, line: None })
}

/// Reads `Command failed -:3` (a batch's line, from 1).
fn failed_line(stderr: &str) -> Option<usize> {
    let (_, rest) = stderr.rsplit_once("Command failed -:")?;
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    rest[..digits].parse().ok().filter(|line| *line > 0)
}

/// Why `ip` or `tc` did not do what it should.
#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    /// The program cannot be run.
    #[error("cannot run `{tool}`: {reason}; install it with `apt install iproute2`")]
    Start {
        /// The program.
        tool: &'static str,
        /// Why.
        reason: std::io::Error,
    },
    /// The program failed.
    #[error("`{tool} {command}` failed: {stderr}")]
    Failed {
        /// The program.
        tool: &'static str,
        /// The line of the batch, or the arguments.
        command: String,
        /// What it said.
        stderr: String,
        /// Line in the batch, from 1.
        line: Option<usize>,
    },
}

/// How long a process of a lab has between SIGTERM and SIGKILL.
const END_POLL: Duration = Duration::from_millis(20);
const END_POLLS_MAX: usize = 50;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_failed_line_of_a_batch_is_found() {
        let stderr = "Error: argument \"x\" is wrong\nCommand failed -:12";
        assert_eq!(failed_line(stderr), Some(12));
        assert_eq!(failed_line("Cannot open network namespace \"x\""), None);
        assert_eq!(failed_line("Command failed -:0"), None);
    }

    #[test]
    fn entering_a_namespace_that_is_not_there_is_an_error() {
        let error = within("wf-none-h0", || ()).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
    }
}
