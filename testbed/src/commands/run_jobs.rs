//! `weft run` of a scenario with several jobs: runs them, proves each, reports each and all.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use tempfile::TempDir;
use weft_config::controller::ControllerConfig;
use weft_config::to_toml;
use weft_process::say;
use weft_testbed::certs::Folder;
use weft_testbed::lab::LabName;
use weft_testbed::report::{
    JobsRecord, JobsReport, Report, RunFiles, RunWriter, Verdict, WordRow, jobs_text,
};
use weft_testbed::run::several::{
    JobPlan, JobSeen, SeveralPlan, outcome, predict, row, run_several, steered,
};
use weft_testbed::run::{
    BoxPlan, Finished, Io, Place, WorkerMessage, WorkerPlan, monotonic_ns, prepare, prove,
    remove_recordings,
};
use weft_testbed::scenario::JobsScenario;

use super::certs::now_unix_s;
use super::lab::{keys_folder, taken_down};
use super::run::{choose_ground, default_directory, in_lab, prepared, process_failure, record};
use super::run_args::RunArgs;
use super::{
    Exit, Failure, Format, Outcome, csv_table, emit, emit_json, emit_text, progress_bar, report,
    run_ground,
};

pub(super) fn run(arguments: &RunArgs, text: &str, format: Format) -> Outcome {
    let scenario = load(arguments, text)?;
    let ground = choose_ground(Io::Udp, false, arguments)?;
    if scenario.bands.is_some() && ground.place != Place::Lab {
        let reason = ground.degraded.as_deref().unwrap_or("--no-lab");
        let error =
            anyhow!("[bands] orders what leaves over links of a lab, and has none: {reason}");
        return Err(Exit::CannotRun.because(error));
    }
    let name = arguments.name.as_ref().unwrap_or(&scenario.name);
    let directory = arguments.out.clone().unwrap_or_else(|| default_directory(name));
    let absolute = std::path::absolute(&directory).map_err(|error| Exit::Usage.because(error))?;
    let keys = keys_folder(!arguments.dry_run)?;
    let printed = absolute.join("certs");
    let certs = keys.as_ref().map_or(&*printed, |keys| keys.path());
    let mut plan =
        SeveralPlan::new(&scenario, &ground.place, arguments.seed, &absolute, Some(certs))
            .map_err(|error| Exit::Usage.because(error))?;
    if let Some(io) = run_ground::worker_io(&ground, arguments)? {
        plan.set_worker_io(io).map_err(|error| Exit::Usage.because(error))?;
    }
    if arguments.dry_run {
        return print_plan(&plan);
    }
    if let Some(reason) = &ground.degraded {
        say!("weft: DEGRADED: {reason}");
    }
    let mut record: JobsRecord = record(&scenario.name, &scenario, arguments);
    record.create(&directory, RECORD).map_err(|error| Exit::Usage.because(error))?;
    let writers = plan.jobs.iter().map(|job| begin(job, &record));
    let writers = writers.collect::<Result<Vec<_>, _>>()?;
    if let Some(keys) = &keys {
        plan.make_certificates(&Folder::at(keys.path()), now_unix_s())
            .map_err(|error| Exit::CannotRun.because(error))?;
    }
    let begun_ns = monotonic_ns();
    let (seen, words) = carry_out(&plan, arguments, &absolute, keys.as_ref().map(TempDir::path))?;
    let wall_ns = monotonic_ns() - begun_ns;
    drop(keys);
    taken_down()?;
    let mut rows = Vec::with_capacity(plan.jobs.len());
    let mut is_degraded = false;
    for ((job, mut writer), seen) in plan.jobs.iter().zip(writers).zip(&seen) {
        let observed = &seen.observed;
        let proof = match &seen.steered {
            Some(_) => Err(String::new()),
            None => prove(&job.scenario, &job.plan, job.seed, &job.directory, observed),
        };
        if !arguments.keep_recordings {
            remove_recordings(&job.scenario, &job.directory);
        }
        let run = Finished {
            scenario: &job.scenario,
            plan: &job.plan,
            ground: &ground,
            observed,
            proof,
            begun_ns: seen.came_ns,
            wall_ns,
        };
        let mut outcome = run.outcome(Io::Udp, job.seed);
        if let Some(push) = &mut outcome.push {
            // What a server's port counts is other jobs' too.
            push.downlink_utilisation = None;
        }
        is_degraded |= !run.degraded().is_empty();
        let judged = seen.steered.as_ref().map(|it| steered(job, it, &mut outcome)).transpose();
        let judged = judged.map_err(|error| Exit::Failed.because(error))?;
        let mut row = row(job, seen, run.proof.as_ref().ok(), &outcome);
        if let Some(judged) = judged {
            let widths: Vec<String> = judged.widths.iter().map(ToString::to_string).collect();
            (row.widths, row.pause_s) = (widths.join("-"), judged.pause_s);
        }
        rows.push((row, outcome.reasons.clone()));
        for event in &seen.steering {
            writer.event(event).map_err(|error| Exit::Failed.because(error))?;
        }
        run.write(writer, outcome).map_err(|error| Exit::Failed.because(error))?;
    }
    let bands = scenario.bands.unwrap_or_default();
    let policy = scenario.bands.map(|bands| bands.policy.to_string());
    let mut outcome = outcome(ground.degraded.as_ref(), policy, rows, words);
    let interval_ns = Some(bands.interval_ns());
    // Who changes jobs on the way makes them others than the simulator's.
    let is_known = plan.words.is_empty();
    let predicted = predict(&plan, bands.policy, interval_ns, arguments.seed);
    if let Some(prediction) = predicted.filter(|_| is_known) {
        prediction.note(&mut outcome.jobs);
    }
    let failed = outcome.verdict == Verdict::Failed;
    record.outcome = Some(outcome);
    record.write(&directory, RECORD).map_err(|error| Exit::Failed.because(error))?;
    present(&directory, format)?;
    say!("weft: run directory {}", directory.display());
    Ok(match (failed, is_degraded) {
        (true, _) => Exit::Failed as u8,
        (false, true) => Exit::CannotRun as u8,
        (false, false) => 0,
    })
}

/// Reads the scenario, with the options that change it.
fn load(arguments: &RunArgs, text: &str) -> Result<JobsScenario, Failure> {
    if let Some((option, why)) = arguments.not_for_several() {
        let error = anyhow!("{option} is for a scenario of one job: {why}");
        return Err(Exit::Usage.because(error));
    }
    let name = arguments.scenario.display().to_string();
    let mut scenario =
        JobsScenario::parse(&name, text).map_err(|error| Exit::Usage.because(error))?;
    arguments.change_jobs(&mut scenario)?;
    scenario.check().map_err(|problem| Exit::Usage.because(arguments.overridden(&problem)))?;
    Ok(scenario)
}

/// Makes a job's directory, with what its boxes read.
fn begin(job: &JobPlan, record: &JobsRecord) -> Result<RunWriter, Failure> {
    let configuration = serde_json::to_value(&job.scenario).unwrap_or_default();
    let own = record.of_part(&job.name, job.seed, configuration);
    let writer =
        RunWriter::create(&job.directory, own).map_err(|error| Exit::Usage.because(error))?;
    prepare(&job.scenario, job.seed, &job.directory).map_err(prepared)?;
    Ok(writer)
}

fn carry_out(
    plan: &SeveralPlan,
    arguments: &RunArgs,
    directory: &Path,
    keys: Option<&Path>,
) -> Result<(Vec<JobSeen>, Vec<WordRow>), Failure> {
    let rounds = plan.jobs.iter().map(|job| u64::from(job.scenario.job.rounds)).sum();
    let bar = progress_bar(rounds, "round");
    let progress = |job: usize, rank: u8, message: &WorkerMessage| {
        let name = &plan.jobs[job].name;
        match message {
            WorkerMessage::Update(_) | WorkerMessage::Round(_) if rank == 0 => bar.inc(1),
            WorkerMessage::Failed { error, .. } => {
                bar.println(format!("weft: {name}: worker {rank}: {error}"));
            }
            _ => {}
        }
    };
    let result = in_lab(plan.topology.as_ref(), arguments.lab.as_ref(), &bar, |lab, stop| {
        if let (Some(planned), Some(keys)) = (&plan.controller, keys) {
            say!("{}", watching(planned, lab, keys));
        }
        run_several(plan, lab, (directory, keys), &progress, stop)
    })?;
    result.map_err(process_failure)
}

/// How to watch a run while it goes on.
fn watching(controller: &BoxPlan<ControllerConfig>, lab: Option<&LabName>, keys: &Path) -> String {
    let into = lab.map(|lab| format!("weft lab exec {lab} {} -- ", controller.name));
    let (into, at) = (into.unwrap_or_default(), controller.config.listen);
    format!("weft: to watch it: {into}weft top https://{at} --certs {}", keys.display())
}

fn print_plan(plan: &SeveralPlan) -> Outcome {
    let mut text = String::new();
    let file = |name: &str, program: &str, config: String| {
        format!("# {name}: {program} --config {name}.toml\n{config}\n")
    };
    for planned in &plan.nodes {
        text += &file(&planned.name, "weft-node", to_toml(&planned.config));
    }
    if let Some(planned) = &plan.controller {
        text += &file(&planned.name, "weft-controller", to_toml(&planned.config));
    }
    for job in &plan.jobs {
        let after = job.start.as_secs_f64();
        for line in job.plan.workers.iter().map(WorkerPlan::words) {
            text += &format!("# {}, after {after} s: {line}\n", job.name);
        }
    }
    emit(&text)?;
    Ok(0)
}

/// What is said of all jobs in a run directory.
pub(super) fn read_record(directory: &Path) -> Result<JobsRecord, Failure> {
    let path = directory.join(RECORD);
    let text = fs::read_to_string(&path)
        .with_context(|| format!("reading {}", path.display()))
        .map_err(|error| Exit::Usage.because(error))?;
    serde_json::from_str(&text)
        .with_context(|| format!("{} tells of no run", path.display()))
        .map_err(|error| Exit::Usage.because(error))
}

/// Shows a run of several jobs again, if the directory holds one, and draws the pictures of its
/// jobs; whether all of them were ok.
pub(super) fn present(directory: &Path, format: Format) -> Result<Option<bool>, Failure> {
    let path = directory.join(RECORD);
    if !path.is_file() {
        return Ok(None);
    }
    let record = read_record(directory)?;
    let rows = record.outcome.as_ref().map(|outcome| outcome.jobs.as_slice()).unwrap_or_default();
    let folders: Vec<PathBuf> = rows.iter().map(|row| directory.join(&row.job)).collect();
    let files = folders.iter().map(|folder| RunFiles::read(folder));
    let files = files.collect::<Result<Vec<_>, _>>().map_err(|error| Exit::Usage.because(error))?;
    let found = JobsReport::new(&record, files.iter().map(Report::new).collect());
    match format {
        Format::Text => emit_text(&jobs_text(&found))?,
        Format::Json => emit_json(&found)?,
        Format::Csv => emit(&csv_table(rows)?)?,
    }
    for (files, folder) in files.iter().zip(&folders) {
        report::draw(folder, None, files)?;
    }
    let is_ok = |outcome: &weft_testbed::report::JobsOutcome| outcome.verdict == Verdict::Ok;
    Ok(Some(record.outcome.as_ref().is_some_and(is_ok)))
}

/// What is said of all jobs, in the run directory.
const RECORD: &str = "jobs.json";
