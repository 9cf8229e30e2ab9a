//! `weft job`: an operator's commands to a controller that runs.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use serde::Serialize;
use weft_control::{BandPolicy, Holding, HoldingCommand};
use weft_rpc::v1;
use weft_testbed::operator::{Operator, OperatorError, pause_ns};
use weft_testbed::report::table;
use weft_testbed::top::state_word;

use super::{
    Exit, Failure, Format, Outcome, csv_table, emit, emit_csv, emit_json, emit_text, job_files,
    word,
};

/// What scripts read of how it ended.
pub(crate) const EXITS: &str = "\
Exit status: 0 the job does what was asked; 1 the controller refused, or the word came to nothing, \
or no answer came in time: standard error says which; 2 wrong usage, \
a controller that is no address or a certificate that is not there; 3 the controller was not \
reached, or ended before it answered.";

#[derive(Debug, Subcommand)]
pub(crate) enum JobCommand {
    /// Register a push job
    ///
    /// The controller keeps it in its state file, if it has one. An allreduce job is of the
    /// controller's file alone.
    Add(Added),
    /// End a job that was registered
    ///
    /// Its requests are dropped, its open groups are taken back, and its workers' streams end. A
    /// job of the controller's file ends with its entry there.
    Remove(Steered),
    /// List the jobs: name, index, kind, state, workers and policy
    List(Called),
    /// Install the shares, rows and push jobs of a file at an aggregator, or remove them
    ///
    /// One after the other: the first that the aggregator or the controller refuses ends the
    /// command, and those before stay.
    Hold(Held),
    /// Set the order in which the frames of jobs leave a host whose link they share
    Bands(Banded),
    /// Have a job pause, and wait until it stands still
    ///
    /// It is granted nothing more, and what it was granted finishes. A job that is paused already
    /// is refused, and so is one that is resumed before it stands still. The pause outlives the
    /// controller, if that keeps a state file.
    Pause(Steered),
    /// Have a paused job go on
    Resume(Steered),
    /// Have an allreduce job go on with another number of workers, and wait until those have begun
    ///
    /// All its workers stop before the same round and keep a checkpoint; whoever starts workers
    /// starts the new ones when the controller wants them. More workers than the job has places, or
    /// than a host has slots, are refused, and nothing has changed then.
    Resize(Resized),
}

#[derive(Debug, Args)]
pub(crate) struct Resized {
    #[command(flatten)]
    steered: Steered,
    /// Workers that it is to have.
    #[arg(value_parser = clap::value_parser!(u32).range(1..=64))]
    workers: u32,
}

#[derive(Debug, Args)]
pub(crate) struct Added {
    /// TOML with one [[job]], as in the controller's file (docs/reference/controller.md).
    file: PathBuf,
    #[command(flatten)]
    called: Called,
}

#[derive(Debug, Args)]
pub(crate) struct Held {
    /// The aggregator, by its name in the controller's file.
    node: String,
    /// TOML with [[job]], [[row]] and [[push]] as in a node's file (docs/reference/node.md), and
    /// its [port] where rows take from there what they leave out.
    file: PathBuf,
    /// Remove what the file lists, the last first.
    #[arg(long)]
    remove: bool,
    #[command(flatten)]
    called: Called,
}

#[derive(Debug, Args)]
pub(crate) struct Banded {
    /// The policy.
    #[arg(value_parser = word::<BandPolicy>())]
    policy: BandPolicy,
    /// Seconds between two rotations of `round-robin`. Default: 20.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    interval: Option<u64>,
    #[command(flatten)]
    called: Called,
}

#[derive(Debug, Args)]
pub(crate) struct Steered {
    /// The job's name.
    name: String,
    #[command(flatten)]
    called: Called,
}

/// The controller that gets a command.
#[derive(Debug, Args)]
pub(crate) struct Called {
    /// Where the controller listens, such as http://10.0.0.1:22342, or https:// with --certs.
    #[arg(long, value_name = "URL")]
    controller: String,
    /// Folder of `weft certs`: operator.pem there, else the one operator-NAME.pem; or the path of
    /// such a file. ca.pem and the key are beside it.
    #[arg(long, value_name = "FOLDER|FILE")]
    certs: Option<PathBuf>,
    /// How long to wait for the answer, in seconds.
    #[arg(long, default_value_t = 60.0, value_name = "SECONDS")]
    timeout: f64,
}

impl Called {
    fn dial(&self) -> Result<Operator, Failure> {
        let timeout = Duration::try_from_secs_f64(self.timeout)
            .map_err(|error| Exit::Usage.because(anyhow::Error::new(error).context("--timeout")))?;
        Operator::dial(&self.controller, self.certs.as_deref(), timeout).map_err(failed)
    }
}

/// What became of it.
#[derive(Debug, Default, Serialize)]
struct Answer<'a> {
    job: &'a str,
    state: &'static str,
    /// From the word to the standstill, of a pause.
    standstill_ms: Option<f64>,
    /// Of a resize: workers now, the first round of theirs, and how long nobody worked: until the
    /// checkpoint was kept, the lease was in, and all had begun.
    workers: Option<u32>,
    round: Option<u64>,
    pause_s: Option<f64>,
    checkpoint_s: Option<f64>,
    lease_s: Option<f64>,
    start_s: Option<f64>,
}

impl<'a> Answer<'a> {
    fn of(job: &'a str) -> Self {
        Self { job, state: "running", ..Self::default() }
    }
}

/// The answer to an addition or a removal. Outside scripts read these names.
#[derive(Debug, Serialize)]
struct Registered<'a> {
    job: &'a str,
    state: &'static str,
    /// Of a removal: updates that were dropped, and groups that were taken back.
    dropped: Option<u64>,
    groups: Option<u32>,
}

/// A job as `weft job list` has it. Outside scripts read these names (docs/steering.md).
#[derive(Debug, Default, Serialize)]
struct Listed {
    name: String,
    id: u32,
    kind: &'static str,
    state: String,
    policy: Option<String>,
    workers: usize,
    workers_attached: usize,
    is_server_attached: Option<bool>,
    version: Option<u64>,
    next_round: Option<u64>,
    epoch: Option<u32>,
    band: Option<u32>,
    pauses: u64,
    resizes: Option<usize>,
    problem: String,
}

/// The answer to a hold. Outside scripts read these names.
#[derive(Debug, Serialize)]
struct Holdings<'a> {
    node: &'a str,
    state: &'static str,
    /// How many shares, rows and push jobs.
    count: usize,
}

/// The answer to a policy of bands. Outside scripts read these names.
#[derive(Debug, Serialize)]
struct Bands {
    policy: String,
    jobs_changed: u32,
}

pub(crate) fn run(command: &JobCommand, format: Format) -> Outcome {
    match command {
        JobCommand::Add(added) => add(added, format),
        JobCommand::Remove(removed) => remove(removed, format),
        JobCommand::List(called) => list(called, format),
        JobCommand::Hold(held) => hold(held, format),
        JobCommand::Bands(banded) => bands(banded, format),
        JobCommand::Pause(steered) => {
            let standstill = steered.called.dial()?.pause(&steered.name).map_err(failed)?;
            let standstill_ms = Some(standstill.as_secs_f64() * 1e3);
            answered(Answer { state: "paused", standstill_ms, ..Answer::of(&steered.name) }, format)
        }
        JobCommand::Resume(steered) => {
            steered.called.dial()?.resume(&steered.name).map_err(failed)?;
            answered(Answer::of(&steered.name), format)
        }
        JobCommand::Resize(Resized { steered, workers }) => {
            let resize = steered.called.dial()?.resize(&steered.name, *workers).map_err(failed)?;
            let seconds = |ns: u64| Some(ns as f64 / 1e9);
            let answer = Answer {
                workers: Some(resize.to),
                round: Some(resize.round),
                pause_s: seconds(pause_ns(&resize)),
                checkpoint_s: seconds(resize.checkpoint_ns),
                lease_s: seconds(resize.lease_ns),
                start_s: seconds(resize.start_ns),
                ..Answer::of(&steered.name)
            };
            answered(answer, format)
        }
    }
}

fn answered(answer: Answer<'_>, format: Format) -> Outcome {
    emit_one(format, answer, words)
}

fn add(Added { file, called }: &Added, format: Format) -> Outcome {
    let job = job_files::job(file)?;
    let name = job.name.clone();
    called.dial()?.register(job).map_err(failed)?;
    let answer = Registered { job: &name, state: "registered", dropped: None, groups: None };
    emit_one(format, answer, |answer| format!("{} is registered\n", answer.job))
}

fn remove(Steered { name, called }: &Steered, format: Format) -> Outcome {
    let ended = called.dial()?.unregister(name).map_err(failed)?;
    let v1::UnregisterJobReply { dropped, groups } = ended;
    let answer =
        Registered { job: name, state: "removed", dropped: Some(dropped), groups: Some(groups) };
    emit_one(format, answer, |answer| {
        format!("{} is removed: {dropped} updates dropped, {groups} groups void\n", answer.job)
    })
}

fn list(called: &Called, format: Format) -> Outcome {
    let rows = listed(&called.dial()?.status().map_err(failed)?);
    match format {
        Format::Text => emit_text(&list_text(&rows)),
        Format::Json => emit_json(&rows),
        Format::Csv => emit(&csv_table(&rows)?),
    }?;
    Ok(0)
}

fn listed(status: &v1::StatusReply) -> Vec<Listed> {
    let pushed = status.jobs.iter().map(|job| Listed {
        name: job.name.clone(),
        id: job.job,
        kind: "push",
        state: state_word(job.state),
        policy: Some(job.policy.clone()),
        workers: job.workers.len(),
        workers_attached: job.workers.iter().filter(|worker| worker.is_attached).count(),
        is_server_attached: Some(job.is_server_attached),
        version: Some(job.version),
        epoch: Some(job.epoch),
        band: job.band,
        pauses: job.pauses,
        problem: job.refusing.clone(),
        ..Listed::default()
    });
    let reduced = status.reduces.iter().map(|job| Listed {
        name: job.name.clone(),
        id: job.job,
        kind: "allreduce",
        state: state_word(job.state),
        workers: job.workers as usize,
        workers_attached: job.attached as usize,
        next_round: Some(job.next_round),
        pauses: job.pauses,
        resizes: Some(job.resizes.len()),
        problem: if job.refusing.is_empty() { &job.unbegun } else { &job.refusing }.clone(),
        ..Listed::default()
    });
    let mut rows: Vec<Listed> = pushed.chain(reduced).collect();
    rows.sort_by_key(|row| row.id);
    rows
}

fn list_text(rows: &[Listed]) -> String {
    let head = ["job", "id", "kind", "state", "workers", "policy", "band", "at"];
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".into());
    let lines = rows.iter().map(|row| {
        let round = row.next_round.map(|round| format!("round {round}"));
        vec![
            row.name.clone(),
            row.id.to_string(),
            row.kind.to_owned(),
            row.state.clone(),
            format!("{}/{}", row.workers_attached, row.workers),
            or_dash(row.policy.clone()),
            or_dash(row.band.map(|band| band.to_string())),
            or_dash(row.version.map(|version| format!("version {version}")).or(round)),
        ]
    });
    let lines: Vec<_> = [head.map(str::to_owned).to_vec()].into_iter().chain(lines).collect();
    let problems = rows.iter().filter(|row| !row.problem.is_empty());
    let problems = problems.map(|row| format!("{}: {}\n", row.name, row.problem));
    table(&lines) + &problems.collect::<String>()
}

fn hold(Held { node, file, remove, called }: &Held, format: Format) -> Outcome {
    let mut commands = job_files::holdings(file)?;
    if *remove {
        commands.reverse();
    }
    let operator = called.dial()?;
    let count = commands.len();
    for command in commands {
        let (job, holding) = (command.job(), command.holding());
        let command = match (*remove, holding) {
            (false, _) => command,
            (true, Holding::Job) => HoldingCommand::RemoveJob { job },
            (true, Holding::Row(row)) => HoldingCommand::RemoveLease { job, row },
            (true, Holding::Push) => HoldingCommand::RemovePush { job },
        };
        operator.hold(node, command).map_err(|error| {
            let Failure { exit, error } = failed(error);
            exit.because(error.context(format!("{holding} of job {}", job.0)))
        })?;
    }
    let state = if *remove { "removed" } else { "held" };
    emit_one(format, Holdings { node, state, count }, |answer| {
        let Holdings { node, state, count } = answer;
        format!("{count} shares, rows and push jobs are {state} at {node}\n")
    })
}

fn bands(Banded { policy, interval, called }: &Banded, format: Format) -> Outcome {
    let operator = called.dial()?;
    let jobs_changed = operator.set_bands(*policy, interval.unwrap_or(0)).map_err(failed)?;
    emit_one(format, Bands { policy: policy.to_string(), jobs_changed }, |answer| {
        let Bands { policy, jobs_changed } = answer;
        format!("the policy of bands is {policy}; {jobs_changed} jobs have another band\n")
    })
}

/// Writes one answer in any format.
fn emit_one<T: Serialize>(format: Format, answer: T, text: impl FnOnce(&T) -> String) -> Outcome {
    match format {
        Format::Text => emit_text(&text(&answer))?,
        Format::Json => emit_json(&answer)?,
        Format::Csv => emit_csv(&[answer])?,
    }
    Ok(0)
}

fn words(answer: &Answer<'_>) -> String {
    let Answer { job, state, .. } = answer;
    match (answer.standstill_ms, answer.workers, answer.pause_s) {
        (Some(ms), ..) => format!("{job} is {state}, {ms:.3} ms after the word\n"),
        (None, Some(workers), Some(pause_s)) => format!(
            "{job} is {state} with {workers} workers from round {} on, after {pause_s:.3} s\n",
            answer.round.unwrap_or(0)
        ),
        _ => format!("{job} is {state}\n"),
    }
}

fn failed(error: OperatorError) -> Failure {
    let exit = match (error.is_usage(), error.is_unreachable()) {
        (true, _) => Exit::Usage,
        (false, true) => Exit::CannotRun,
        (false, false) => Exit::Failed,
    };
    exit.because(error)
}
