//! `weft run` of a scenario with `[factorisation]`, and the report of its directory.

use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Duration;

use anyhow::anyhow;
use weft_config::to_toml;
use weft_process::say;
use weft_testbed::interrupt;
use weft_testbed::report::{FactorisationOutcome, FactorisationRecord, Verdict, VirtualTime};
use weft_testbed::run::factorisation::{
    FactorisationPlan, ProcessMessage, judge, packet, run as carry_out,
};
use weft_testbed::run::{Io, monotonic_ns};
use weft_testbed::scenario::FactorisationScenario;

use super::lab::{listen, taken_down};
use super::run::{choose_ground, default_directory, in_lab, process_failure, record};
use super::run_args::{Level, RunArgs};
use super::{
    Exit, Failure, Format, Outcome, emit, emit_csv, emit_json, emit_text, progress_bar, run_ground,
    run_packet,
};

pub(super) fn run(arguments: &RunArgs, text: &str, format: Format) -> Outcome {
    let scenario = load(arguments, text)?;
    let ground = choose_ground(Io::Udp, false, arguments)?;
    let name = arguments.name.as_ref().unwrap_or(&scenario.name);
    let directory = arguments.out.clone().unwrap_or_else(|| default_directory(name));
    let directory = std::path::absolute(&directory).map_err(|error| Exit::Usage.because(error))?;
    let mut plan = FactorisationPlan::new(&scenario, &ground.place, own_loopback(), arguments.seed)
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
    let mut record: FactorisationRecord = record(&scenario.name, &scenario, arguments);
    record.create(&directory, RECORD).map_err(|error| Exit::Usage.because(error))?;
    let mut outcome = match arguments.level {
        Level::Live => run_live(arguments, &plan, &directory)?,
        Level::Packet => run_in_virtual_time(&plan)?,
    };
    outcome.name.clone_from(&record.name);
    let is_ok = outcome.verdict == Verdict::Ok;
    record.outcome = Some(outcome);
    record.write(&directory, RECORD).map_err(|error| Exit::Failed.because(error))?;
    show(&directory, &record, format)?;
    say!("weft: run directory {}", directory.display());
    Ok(match (is_ok, &ground.degraded) {
        (false, _) => Exit::Failed as u8,
        (true, Some(_)) if arguments.strict => Exit::CannotRun as u8,
        (true, _) => 0,
    })
}

fn run_live(
    arguments: &RunArgs,
    plan: &FactorisationPlan,
    directory: &Path,
) -> Result<FactorisationOutcome, Failure> {
    let bar = progress_bar(u64::from(plan.scenario.factorisation.epochs), "epoch");
    let mut progress = |node: u8, message: &ProcessMessage| match message {
        ProcessMessage::Epoch { epoch, .. } if node == 0 => bar.set_position(u64::from(*epoch) + 1),
        ProcessMessage::Failed { error, .. } => {
            bar.println(format!("weft: process {node}: {error}"));
        }
        _ => {}
    };
    let lab = arguments.lab.as_ref();
    let seen = in_lab(plan.topology.as_ref(), lab, &bar, |lab, stop| {
        carry_out(plan, lab, directory, &mut progress, stop)
    })?;
    let seen = seen.map_err(process_failure)?;
    taken_down()?;
    Ok(judge(plan, &seen))
}

fn run_in_virtual_time(plan: &FactorisationPlan) -> Result<FactorisationOutcome, Failure> {
    listen()?;
    let begun_ns = monotonic_ns();
    let (seen, clock) = packet::run(plan, &interrupt::is_raised).map_err(run_packet::failed)?;
    let wall_ns = monotonic_ns().saturating_sub(begun_ns);
    let mut outcome = judge(plan, &seen);
    outcome.virtual_time = Some(run_packet::time(clock, Duration::from_nanos(wall_ns)));
    Ok(outcome)
}

/// An address of loopback that no other process's runs have.
fn own_loopback() -> Ipv4Addr {
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    Ipv4Addr::new(127, high | 0x40, middle, low)
}

/// Reads the scenario, with the options that change it.
fn load(arguments: &RunArgs, text: &str) -> Result<FactorisationScenario, Failure> {
    if let Some(option) = arguments.not_for_factorisation() {
        let problem = "runs over UDP, and of overrides takes those of faults";
        let error = anyhow!("{option}: a scenario with [factorisation] {problem}");
        return Err(Exit::Usage.because(error));
    }
    let name = arguments.scenario.display().to_string();
    let mut scenario =
        FactorisationScenario::parse(&name, text).map_err(|error| Exit::Usage.because(error))?;
    arguments.change_factorisation(&mut scenario);
    scenario.check().map_err(|problem| Exit::Usage.because(arguments.overridden(&problem)))?;
    run_packet::check_options(arguments)?;
    if arguments.level == Level::Packet {
        packet::check_virtual_time(&scenario).map_err(|error| {
            Exit::Usage.because(anyhow!("{}: {error}", arguments.scenario.display()))
        })?;
    }
    Ok(scenario)
}

fn print_plan(plan: &FactorisationPlan) -> Outcome {
    let (name, config) = (&plan.home.name, to_toml(&plan.home.config));
    let mut text = format!("# {name}: weft-node --config {name}.toml\n{config}\n");
    for process in &plan.processes {
        text += &format!("# {}\n", process.words());
    }
    emit(&text)?;
    Ok(0)
}

/// Prints the report of a run directory; `None` if it is not that of such a run. True when the
/// verdict was good.
pub(super) fn present(directory: &Path, format: Format) -> Result<Option<bool>, Failure> {
    // Whoever reads the directories of other runs says what is wrong with one that cannot be read.
    let Ok(text) = fs::read_to_string(directory.join(RECORD)) else { return Ok(None) };
    let Ok(record) = serde_json::from_str::<FactorisationRecord>(&text) else { return Ok(None) };
    if !record.has_factorisation() {
        return Ok(None);
    }
    show(directory, &record, format)?;
    Ok(Some(record.outcome.is_some_and(|ran| ran.verdict == Verdict::Ok)))
}

fn show(directory: &Path, record: &FactorisationRecord, format: Format) -> Result<(), Failure> {
    let Some(ran) = &record.outcome else {
        let problem = anyhow!("the run in {} has not ended", directory.display());
        return Err(Exit::Failed.because(problem));
    };
    match format {
        Format::Json => emit_json(ran),
        Format::Csv => emit_csv(&ran.latencies),
        Format::Text => emit_text(&words(ran)),
    }
}

fn words(ran: &FactorisationOutcome) -> String {
    let verdict = ran.verdict.for_people();
    let mode = serde_json::to_value(ran.mode).unwrap_or_default();
    let mode = mode.as_str().unwrap_or_default();
    let mut text = format!(
        "{}: {verdict}, {mode}, {} nodes with {} threads each\n",
        ran.name, ran.nodes, ran.threads
    );
    let loss = ran.loss.map_or_else(|| "unknown".to_owned(), |loss| format!("{loss:.6}"));
    text += &format!(
        "loss {loss}, of one process {:.6}; {} values differ in any bit\n",
        ran.reference_loss, ran.wrong_values
    );
    text += &format!(
        "an epoch took {:.4} s; {:.1} % of {} operations were local; {} rows moved, half of them \
         within {:.1} us\n",
        ran.epoch_s,
        ran.local_share * 100.0,
        ran.local_operations + ran.remote_operations,
        ran.relocations,
        ran.relocation_us_p50
    );
    if ran.wire_bytes > 0 {
        let takes = ran.wire_s.map_or_else(String::new, |s| format!(", {s:.4} s at its rate"));
        text += &format!("the busiest link carried {} bytes an epoch{takes}\n", ran.wire_bytes);
    }
    if let Some(time) = &ran.virtual_time {
        let VirtualTime { virtual_seconds, events, wall_seconds, fingerprint, .. } = time;
        text += &format!(
            "virtual time: {virtual_seconds:.3} s, {events} events, in {wall_seconds:.1} s; \
             fingerprint {fingerprint}\n"
        );
    }
    text += &format!(
        "{:<12} {:>9} {:>11} {:>11} {:>11} {:>11}\n",
        "operation", "timed", "p50 us", "p90 us", "p99 us", "most us"
    );
    for row in ran.latencies.iter().filter(|row| row.count > 0) {
        text += &format!(
            "{:<12} {:>9} {:>11.3} {:>11.3} {:>11.3} {:>11.3}\n",
            row.operation, row.count, row.p50_us, row.p90_us, row.p99_us, row.most_us
        );
    }
    let counted = ran.home.iter().filter(|(_, count)| **count > 0);
    let counted: Vec<String> = counted.map(|(name, count)| format!("{name} {count}")).collect();
    text += &format!("the home counted {}\n", counted.join(", "));
    for epoch in &ran.home_kills {
        text += &format!("the home was killed in epoch {epoch} and started again\n");
    }
    for problem in &ran.problems {
        text += &format!("PROBLEM: {problem}\n");
    }
    text
}

/// What was run, and how it ended.
const RECORD: &str = "run.json";
