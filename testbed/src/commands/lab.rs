//! `weft lab up|down|exec|list|topology`.

use std::fs;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow};
use clap::{Args, Subcommand};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::Serialize;
use tempfile::TempDir;
use weft_testbed::lab::rootless::{self, Privilege};
use weft_testbed::lab::{self, LabError, LabName, Topology, left, netns};
use weft_testbed::scenario::{
    FactorisationScenario, JobsScenario, Scenario, has_factorisation, has_jobs,
};

use super::{Exit, Failure, Format, Outcome, emit_csv, emit_json, emit_text, input};
use weft_process::say;
use weft_testbed::interrupt;

#[derive(Debug, Subcommand)]
pub(crate) enum LabCommand {
    /// Bring a topology up
    ///
    /// Every host and switch gets a network namespace of its own, `wf-<lab>-<node>`. Without root
    /// the lab lives in a user namespace and ends with the command after `--`.
    Up(UpArgs),
    /// Take a lab down; content when it is down already
    ///
    /// Ends the processes in the lab's namespaces and removes these, and nothing else.
    Down(DownArgs),
    /// Run a command in a node of a lab
    Exec(ExecArgs),
    /// List the labs of this machine
    List,
    /// Print a scenario's topology as Mininet-style topology.json
    ///
    /// For Mininet itself (testbed/deploy/mininet), or to change it by hand and bring that up.
    Topology {
        /// A scenario (.toml), or a topology.json.
        #[arg(value_parser = input())]
        file: PathBuf,
    },
}

#[derive(Debug, Args)]
pub(crate) struct UpArgs {
    /// A Mininet-style topology.json, or a scenario (.toml).
    #[arg(value_parser = input())]
    file: PathBuf,
    /// Name of the lab: 1 to 16 lower-case letters and digits [default: from the file].
    #[arg(long)]
    name: Option<LabName>,
    /// Run this once the lab is up, with WEFT_LAB set to its name, then take the lab down.
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct DownArgs {
    /// Name of the lab, or the file that it was brought up from.
    #[arg(required_unless_present = "all")]
    lab: Option<String>,
    /// Take down every lab of this machine but those of commands that still run, and remove what
    /// killed commands left in the temporary folder.
    #[arg(long, conflicts_with = "lab")]
    all: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ExecArgs {
    /// Name of the lab.
    lab: LabName,
    /// Node, such as h1.
    node: String,
    /// What to run there.
    #[arg(required = true, last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

pub(crate) fn run(command: LabCommand, format: Format) -> Outcome {
    match command {
        LabCommand::Up(arguments) => up(&arguments, format),
        LabCommand::Down(arguments) => down(&arguments, format),
        LabCommand::Exec(arguments) => exec(&arguments),
        LabCommand::List => list(format),
        LabCommand::Topology { file } => {
            emit_text(&load(&file)?.0.to_json())?;
            Ok(0)
        }
    }
}

#[derive(Serialize)]
struct UpRow<'a> {
    lab: &'a str,
    nodes: usize,
    warnings: usize,
}

fn up(arguments: &UpArgs, format: Format) -> Outcome {
    let (topology, named) = load(&arguments.file)?;
    let name = arguments.name.clone().or(named).ok_or_else(|| {
        Exit::Usage.because(anyhow!("the file's name gives no lab name; pass --name"))
    })?;
    if arguments.command.is_empty() && !rootless::is_privileged() {
        return Err(Exit::CannotRun.because(anyhow!(
            "without root a lab ends with the process that made it: run as root, or give a \
             command to run in it, `weft lab up {} -- COMMAND`",
            arguments.file.display()
        )));
    }
    if rootless::acquire().map_err(|error| Exit::CannotRun.because(error))?
        == Privilege::UserNamespace
    {
        say!("weft: no root: the lab lives in a user namespace and ends with the command");
    }
    tell_left();
    // From here on a signal must not leave half a lab behind.
    listen()?;
    let lab = lab::up(&name, &topology).map_err(explain)?;
    for warning in &lab.warnings {
        say!("weft: warning: {warning}");
    }
    if arguments.command.is_empty() {
        if interrupt::is_raised() {
            lab::down(&name).map_err(explain)?;
            return Err(interrupted("the lab was taken down"));
        }
        let row = UpRow { lab: &name.to_string(), nodes: lab.nodes, warnings: lab.warnings.len() };
        match format {
            Format::Text => emit_text(&format!("lab {name} is up: {} namespaces\n", lab.nodes))?,
            Format::Json => emit_json(&row)?,
            Format::Csv => emit_csv(&[row])?,
        }
        return Ok(0);
    }
    let status = attend(&name, &arguments.command);
    let removed = lab::down(&name).map_err(explain);
    let status = status?;
    removed?;
    if interrupt::is_raised() {
        return Err(interrupted("the lab was taken down"));
    }
    Ok(exit_code(status))
}

/// Runs the command of `lab up … -- COMMAND` to its end. A signal is passed on as SIGTERM; a
/// command that does not end of it within [`END_GRACE`] is killed.
fn attend(name: &LabName, command: &[String]) -> Result<ExitStatus, Failure> {
    let mut child = Command::new(&command[0])
        .args(&command[1..])
        .env("WEFT_LAB", name.to_string())
        .spawn()
        .with_context(|| format!("cannot run `{}`", command[0]))
        .map_err(|error| Exit::Failed.because(error))?;
    let mut told: Option<Instant> = None;
    loop {
        let ended = child.try_wait().map_err(|error| Exit::Failed.because(error))?;
        if let Some(status) = ended {
            return Ok(status);
        }
        match told {
            None if interrupt::is_raised() => {
                told = Some(Instant::now());
                terminate(&child);
            }
            // One that ends in this moment is no error.
            Some(told) if told.elapsed() > END_GRACE => drop(child.kill()),
            _ => {}
        }
        std::thread::sleep(CHILD_POLL);
    }
}

/// Asks a process to end.
pub(super) fn terminate(child: &Child) {
    if let Ok(pid) = i32::try_from(child.id()) {
        // The child may have ended in the meantime, which is what we want.
        let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
    }
}

/// Begins what a signal must not leave half done.
pub(super) fn listen() -> Result<(), Failure> {
    interrupt::listen().map_err(|error| Exit::Failed.because(error))
}

/// What a signal must not leave half done is taken down: from now on one ends the command at once,
/// in the middle of a long computation too.
pub(super) fn taken_down() -> Result<(), Failure> {
    interrupt::end_at_once().map_err(|error| Exit::Failed.because(error))?;
    if interrupt::is_raised() {
        return Err(interrupted("what ran is taken down, and not judged"));
    }
    Ok(())
}

/// A folder for a run's certificates and keys, if it is wanted; it goes with what is returned.
pub(super) fn keys_folder(is_wanted: bool) -> Result<Option<TempDir>, Failure> {
    if !is_wanted {
        return Ok(None);
    }
    // A signal that ended the process at once would leave keys behind.
    listen()?;
    let folder = tempfile::Builder::new().prefix("weft-certs-").tempdir();
    let folder = folder.context(
        "cannot make a temporary folder for the run's certificates, where TMPDIR says or in /tmp",
    );
    folder.map(Some).map_err(|error| Exit::CannotRun.because(error))
}

/// What a command says that a signal has ended.
pub(super) fn interrupted(what: &'static str) -> Failure {
    Exit::Interrupted.because(anyhow!(what))
}

/// Says what commands left that were killed.
pub(super) fn tell_left() {
    // What cannot be read now fails where it is needed.
    for left in left::find().unwrap_or_default() {
        say!(
            "weft: {left} was left by a command that was killed; `weft lab down --all` removes it"
        );
    }
}

#[derive(Serialize)]
struct DownRow<'a> {
    lab: &'a str,
    removed: usize,
}

fn down(arguments: &DownArgs, format: Format) -> Outcome {
    let Some(lab) = arguments.lab.as_deref().filter(|_| !arguments.all) else {
        return down_all(format);
    };
    let name = match lab.parse::<LabName>() {
        Ok(name) => name,
        Err(_) if Path::new(lab).exists() => {
            let (_, named) = load(Path::new(lab))?;
            named.ok_or_else(|| Exit::Usage.because(anyhow!("the file gives no lab name")))?
        }
        Err(error) => return Err(Exit::Usage.because(error)),
    };
    let removed = lab::down(&name).map_err(explain)?;
    let row = DownRow { lab: &name.to_string(), removed };
    match format {
        Format::Text => emit_text(&format!("lab {name} is down: {removed} namespaces removed\n"))?,
        Format::Json => emit_json(&row)?,
        Format::Csv => emit_csv(&[row])?,
    }
    Ok(0)
}

/// Takes down all labs that no running command owns, and what else was left.
fn down_all(format: Format) -> Outcome {
    let mut rows = Vec::new();
    for entry in lab::list().map_err(explain)? {
        // A namespace of ours with a name that we would not give.
        let Ok(name) = entry.name.parse::<LabName>() else { continue };
        if left::is_of_running_command(&name) {
            continue;
        }
        rows.push((entry.name, lab::down(&name).map_err(explain)?));
    }
    for path in left::files() {
        left::remove(&path)
            .with_context(|| format!("removing {}", path.display()))
            .map_err(|error| Exit::Failed.because(error))?;
        rows.push((path.display().to_string(), 0));
    }
    let rows: Vec<DownRow<'_>> =
        rows.iter().map(|(lab, removed)| DownRow { lab, removed: *removed }).collect();
    let line = |row: &DownRow<'_>| match row.removed {
        0 => format!("{} is removed\n", row.lab),
        removed => format!("lab {} is down: {removed} namespaces removed\n", row.lab),
    };
    match format {
        Format::Text => emit_text(&rows.iter().map(line).collect::<String>())?,
        Format::Json => emit_json(&rows)?,
        Format::Csv => emit_csv(&rows)?,
    }
    Ok(0)
}

fn exec(arguments: &ExecArgs) -> Outcome {
    let ExecArgs { lab, node, command } = arguments;
    let nodes = lab::nodes_of(lab).map_err(explain)?;
    if !nodes.contains(node) {
        let reason = if nodes.is_empty() {
            anyhow!("lab `{lab}` is not up; `weft lab list` shows those that are")
        } else {
            anyhow!("lab `{lab}` has no node `{node}`; it has {}", nodes.join(", "))
        };
        return Err(Exit::Failed.because(reason));
    }
    let error = netns::command(&lab.namespace(node), &command[0]).args(&command[1..]).exec();
    Err(Exit::CannotRun.because(anyhow::Error::new(error).context("cannot run `ip netns exec`")))
}

fn list(format: Format) -> Outcome {
    let labs = lab::list().map_err(explain)?;
    match format {
        Format::Text => {
            let line = |lab: &lab::LabEntry| format!("{:<16} {}\n", lab.name, lab.nodes.join(" "));
            emit_text(&labs.iter().map(line).collect::<String>())?;
        }
        Format::Json => emit_json(&labs)?,
        Format::Csv => {
            #[derive(Serialize)]
            struct Row<'a> {
                lab: &'a str,
                node: &'a str,
            }
            let rows: Vec<Row<'_>> = labs
                .iter()
                .flat_map(|lab| lab.nodes.iter().map(|node| Row { lab: &lab.name, node }))
                .collect();
            emit_csv(&rows)?;
        }
    }
    Ok(0)
}

/// Reads a topology, and the lab name that the file suggests.
pub(super) fn load(path: &Path) -> Result<(Topology, Option<LabName>), Failure> {
    let shown = path.display().to_string();
    let text = fs::read_to_string(path)
        .with_context(|| format!("cannot read {shown}"))
        .map_err(|error| Exit::Usage.because(error))?;
    if path.extension().is_some_and(|extension| extension == "toml") {
        let usage = |error| Exit::Usage.because(error);
        let (topology, name) = if has_jobs(&shown, &text).map_err(usage)? {
            let scenario = JobsScenario::parse(&shown, &text).map_err(usage)?;
            (scenario.topology(), scenario.name)
        } else if has_factorisation(&shown, &text).map_err(usage)? {
            let scenario = FactorisationScenario::parse(&shown, &text).map_err(usage)?;
            (scenario.topology(), scenario.name)
        } else {
            let scenario = Scenario::parse(&shown, &text).map_err(usage)?;
            (scenario.topology(), scenario.name)
        };
        let topology = topology.map_err(|error| Exit::Usage.because(error))?;
        return Ok((topology, LabName::from_stem(&name)));
    }
    let topology = Topology::from_json(&text)
        .map_err(|error| Exit::Usage.because(anyhow!("{shown}: {error}")))?;
    let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
    Ok((topology, stem.as_deref().and_then(LabName::from_stem)))
}

pub(super) fn explain(error: LabError) -> Failure {
    let cannot = matches!(
        error,
        LabError::Privilege
            | LabError::KernelLacks { .. }
            | LabError::Rate(_)
            | LabError::Tool(netns::ToolError::Start { .. })
    );
    if cannot { Exit::CannotRun.because(error) } else { Exit::Failed.because(error) }
}

/// A command's own status; 128 + signal when a signal ended it, as shells have it.
fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(Exit::Failed as u8)
}

const CHILD_POLL: Duration = Duration::from_millis(20);
/// What a command has to end after SIGTERM.
const END_GRACE: Duration = Duration::from_secs(10);
