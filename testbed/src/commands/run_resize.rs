//! `weft run` of a scenario with `[resize]`, and the report of its directory.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, anyhow};
use tempfile::TempDir;
use weft_process::say;
use weft_testbed::certs::Folder;
use weft_testbed::lab;
use weft_testbed::report::{ResizeOutcome as Ran, ResizeRecord, Verdict, pauses_svg};
use weft_testbed::run::resize::{ResizePlan, judge, run as carry_out};
use weft_testbed::run::{Io, Place, WorkerMessage};
use weft_testbed::scenario::Scenario;

use super::certs::now_unix_s;
use super::lab::{keys_folder, taken_down};
use super::run::{choose_ground, in_lab, loopback_base, process_failure, record};
use super::run_args::{IoName, Level, RunArgs};
use super::{Exit, Failure, Format, Outcome, csv_table, emit, emit_json, emit_text, progress_bar};

/// Runs it over UDP: in a lab, if the scenario wants one, or on loopback.
pub(super) fn run(
    arguments: &RunArgs,
    scenario: &Scenario,
    directory: &Path,
    format: Format,
) -> Outcome {
    let place = choose_place(arguments, scenario)?;
    let mut record: ResizeRecord = record(&scenario.name, scenario, arguments);
    record.create(directory, RECORD).map_err(|error| Exit::Usage.because(error))?;
    // On loopback only this machine calls.
    let keys = keys_folder(place == Place::Lab)?;
    let certs = keys.as_ref().map(TempDir::path);
    let mut plan = ResizePlan::new(scenario, &place, arguments.seed, directory, certs)
        .map_err(|error| Exit::Usage.because(error))?;
    if let Some(worker_io) = arguments.worker_io {
        plan.set_worker_io(worker_io.io()).map_err(|error| Exit::Usage.because(error))?;
    }
    if let (Some(name), Some(topology)) = (&arguments.lab, &plan.topology) {
        lab::check_nodes(name, topology).map_err(|error| Exit::CannotRun.because(error))?;
    }
    if let Some(folder) = certs {
        plan.make_certificates(&Folder::at(folder), now_unix_s())
            .map_err(|error| Exit::CannotRun.because(error))?;
    }
    let bar = progress_bar(u64::from(scenario.job.rounds), "round");
    let mut progress = |rank: u8, message: &WorkerMessage| match message {
        WorkerMessage::Round(round) if rank == 0 => {
            bar.set_position(u64::from(round.round) + 1);
            bar.set_message(format!("loss {:.4}", round.loss));
        }
        WorkerMessage::Failed { error, .. } => bar.println(format!("weft: worker {rank}: {error}")),
        _ => {}
    };
    let topology = plan.topology.as_ref();
    let seen = in_lab(topology, arguments.lab.as_ref(), &bar, |lab, stop| {
        carry_out(&plan, lab, directory, &mut progress, stop)
    })?;
    drop(keys);
    let seen = seen.map_err(process_failure)?;
    taken_down()?;
    let mut ran =
        judge(scenario, arguments.seed, &seen).map_err(|error| Exit::Usage.because(error))?;
    ran.name.clone_from(&record.name);
    let is_ok = ran.verdict == Verdict::Ok;
    record.outcome = Some(ran);
    record.write(directory, RECORD).map_err(|error| Exit::Failed.because(error))?;
    show(directory, None, &record, format)?;
    say!("weft: run directory {}", directory.display());
    Ok(if is_ok { 0 } else { Exit::Failed as u8 })
}

/// Where it runs; what makes no sense with `[resize]` is refused by its name.
fn choose_place(arguments: &RunArgs, scenario: &Scenario) -> Result<Place, Failure> {
    let refuse = |option: &str, why: &str| {
        Err(Exit::Usage.because(anyhow!("{option} is not for a scenario with [resize]: {why}")))
    };
    if arguments.io.is_some_and(|io| io != IoName::Udp) {
        return refuse("--io", "workers that come and go call over UDP; leave it out");
    }
    if arguments.level != Level::Live {
        let why = "what becomes of words in virtual time is simulated by tests; leave it out";
        return refuse("--level", why);
    }
    if arguments.switch.is_some() {
        return refuse("--switch", "a switch gets no leases at run time; leave it out");
    }
    for (option, is_there) in [("--pcap", arguments.pcap), ("--record", arguments.record)] {
        if is_there {
            return refuse(option, "its proof is the reference's model; leave it out");
        }
    }
    if arguments.dry_run {
        return refuse("--dry-run", "which workers there are is told at run time; leave it out");
    }
    let wants_lab = scenario.resize.as_ref().is_some_and(|resize| resize.lab);
    if arguments.lab.is_some() && !wants_lab {
        let why = "this one runs over loopback; set `lab = true` in its [resize]";
        return Err(Exit::Usage.because(anyhow!("--lab is for a scenario with a lab: {why}")));
    }
    if arguments.worker_io.is_some() && !wants_lab {
        let why = "this one runs over loopback; set `lab = true` in its [resize]";
        let problem = "--worker-io is for a lab, where each worker has an interface";
        return Err(Exit::Usage.because(anyhow!("{problem}: {why}")));
    }
    if arguments.no_lab || !wants_lab {
        return Ok(Place::Loopback { port_base: loopback_base() });
    }
    match choose_ground(Io::Udp, false, arguments)?.place {
        Place::Lab => Ok(Place::Lab),
        _ => {
            let problem = "resize.lab: there are no network namespaces here; --no-lab runs it over \
                           loopback, without links that have rates, and without certificates";
            Err(Exit::CannotRun.because(anyhow!("{problem}")))
        }
    }
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    fs::write(path, text)
        .with_context(|| format!("writing {}", path.display()))
        .map_err(|error| Exit::Failed.because(error))
}

/// Prints the report of a run directory, and draws its table and picture; `None` if it is not that
/// of such a run. True when the verdict was good.
pub(super) fn present(
    directory: &Path,
    svg: Option<&Path>,
    format: Format,
) -> Result<Option<bool>, Failure> {
    // Whoever reads the directories of other runs says what is wrong with one that cannot be read.
    let Ok(text) = fs::read_to_string(directory.join(RECORD)) else { return Ok(None) };
    let Ok(record) = serde_json::from_str::<ResizeRecord>(&text) else { return Ok(None) };
    if !record.has_resizes() {
        return Ok(None);
    }
    show(directory, svg, &record, format)?;
    Ok(Some(record.outcome.is_some_and(|ran| ran.verdict == Verdict::Ok)))
}

fn show(
    directory: &Path,
    svg: Option<&Path>,
    record: &ResizeRecord,
    format: Format,
) -> Result<(), Failure> {
    let Some(ran) = &record.outcome else {
        let problem = anyhow!("the run in {} has not ended", directory.display());
        return Err(Exit::Failed.because(problem));
    };
    match format {
        Format::Json => emit_json(ran)?,
        Format::Csv => emit(&csv_table(&ran.pauses)?)?,
        Format::Text => emit_text(&words(ran))?,
    }
    write(&directory.join(TABLE), &csv_table(&ran.pauses)?)?;
    let title = format!("{}: pauses of its resizes", record.title());
    let picture = pauses_svg(&title, &ran.pauses).map_err(|error| Exit::Failed.because(error))?;
    if let Some(picture) = picture {
        let path = svg.map_or_else(|| directory.join(PICTURE), Path::to_owned);
        write(&path, &picture)?;
        say!("weft: {TABLE} in {}, a picture in {}", directory.display(), path.display());
    } else if svg.is_some() {
        return Err(Exit::Failed.because(anyhow!("nothing was resized, so no picture")));
    }
    Ok(())
}

/// What was run, and how it ended.
const RECORD: &str = "run.json";
/// A line for each resize, and the picture of that.
const TABLE: &str = "pauses.csv";
/// See above.
const PICTURE: &str = "pauses.svg";

fn words(ran: &Ran) -> String {
    let widths: Vec<String> = ran.widths.iter().map(u32::to_string).collect();
    let mut text = format!(
        "{}: {}, {} rounds with {} workers, accuracy {}\n",
        ran.name,
        ran.verdict.for_people(),
        ran.rounds,
        widths.join(", then "),
        ran.accuracy.map_or_else(|| "unknown".to_owned(), |share| format!("{share:.3}")),
    );
    let is_identical = match ran.model_identical {
        Some(true) => "model identical to",
        Some(false) => "model DIFFERENT from",
        None => "model not compared with",
    };
    text += &format!(
        "{is_identical} a reference in one process that switches width and rate at the same \
         rounds\n"
    );
    for row in &ran.pauses {
        if !row.is_measured {
            let (round, to, from) = (row.round, row.to, row.from);
            text += &format!(
                "round {round}: {to} workers instead of {from}; the controller was killed \
                 meanwhile, so how long that took was not measured\n"
            );
            continue;
        }
        text += &format!(
            "round {}: {} workers instead of {} after {:.3} s (checkpoint {:.3}, lease {:.3}, start \
             {:.3}), {:.3} s from the word to the boundary\n",
            row.round,
            row.to,
            row.from,
            row.pause_s,
            row.checkpoint_s,
            row.lease_s,
            row.start_s,
            row.stop_s,
        );
    }
    for standstill_s in &ran.standstills_s {
        text += &format!("paused, {standstill_s:.3} s from the word to the standstill\n");
    }
    for name in &ran.killed {
        text += &format!("{name} was killed and started again\n");
    }
    for problem in &ran.problems {
        text += &format!("PROBLEM: {problem}\n");
    }
    text
}
