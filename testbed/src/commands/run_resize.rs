//! `weft run` of a scenario with `[resize]`.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, anyhow};
use weft_process::say;
use weft_testbed::interrupt;
use weft_testbed::run::resize::{Outcome as Ran, ResizePlan, judge, run as carry_out};
use weft_testbed::run::{ProcessError, WorkerMessage};
use weft_testbed::scenario::Scenario;

use super::lab::listen;
use super::run_args::{IoName, Level, RunArgs};
use super::{Exit, Format, Outcome, emit_csv, emit_json, emit_text, progress_bar};

/// Runs it over UDP on loopback, from this port on.
pub(super) fn run(
    arguments: &RunArgs,
    scenario: &Scenario,
    (directory, port_base): (&Path, u16),
    format: Format,
) -> Outcome {
    let is_udp = arguments.io.is_none_or(|io| io == IoName::Udp);
    let is_plain = arguments.level == Level::Live && arguments.switch.is_none();
    if !is_udp || !is_plain || arguments.lab.is_some() || arguments.pcap || arguments.record {
        let problem = "a scenario with [resize] runs live over UDP on loopback: leave out --io, \
                       --level, --switch, --lab, --pcap and --record";
        return Err(Exit::Usage.because(anyhow!("{problem}")));
    }
    fs::create_dir_all(directory)
        .with_context(|| format!("cannot make the run directory {}", directory.display()))
        .map_err(|error| Exit::Usage.because(error))?;
    let plan = ResizePlan::new(scenario, port_base, arguments.seed, directory);
    listen()?;
    let bar = progress_bar(u64::from(scenario.job.rounds), "round");
    let mut progress = |rank: u8, message: &WorkerMessage| match message {
        WorkerMessage::Round(round) if rank == 0 => {
            bar.set_position(u64::from(round.round) + 1);
            bar.set_message(format!("loss {:.4}", round.loss));
        }
        WorkerMessage::Failed { error, .. } => bar.println(format!("weft: worker {rank}: {error}")),
        _ => {}
    };
    let seen = carry_out(&plan, directory, &mut progress, &interrupt::is_raised);
    bar.finish_and_clear();
    let seen = seen.map_err(|error| match error {
        ProcessError::Interrupted => Exit::Interrupted.because(error),
        _ => Exit::CannotRun.because(error),
    })?;
    let ran = judge(scenario, arguments.seed, &seen).map_err(|error| Exit::Usage.because(error))?;
    let text = serde_json::to_string_pretty(&ran).map_err(|error| Exit::Failed.because(error))?;
    fs::write(directory.join("resize.json"), text + "\n")
        .map_err(|error| Exit::Failed.because(error))?;
    match format {
        Format::Json => emit_json(&ran)?,
        Format::Csv => emit_csv(&ran.pauses)?,
        Format::Text => emit_text(&words(&ran))?,
    }
    say!("weft: run directory {}", directory.display());
    Ok(if ran.problems.is_empty() { 0 } else { Exit::Failed as u8 })
}

fn words(ran: &Ran) -> String {
    let widths: Vec<String> = ran.widths.iter().map(u32::to_string).collect();
    let mut text = format!(
        "{}: {}, {} rounds with {} workers, accuracy {:.3}\n",
        ran.name,
        ran.verdict,
        ran.rounds,
        widths.join(", then "),
        ran.accuracy,
    );
    let is_identical = if ran.model_identical { "identical" } else { "DIFFERENT" };
    text += &format!(
        "model {is_identical} to a reference in one process that switches width and rate at the \
         same rounds\n"
    );
    for row in &ran.pauses {
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
