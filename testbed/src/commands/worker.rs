//! `weft worker`: the process that `weft run` starts for each worker. Its plan comes on standard
//! input, its messages go to standard output, one JSON object a line. A worker that pushes may be
//! told later at which version to end: a number on a line of its own.

use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use clap::Args;
use weft_testbed::run::{WorkerMessage, WorkerPlan, worker};

use super::{Exit, Outcome};

#[derive(Debug, Args)]
pub(crate) struct WorkerArgs {
    /// Run directory, for the recording.
    directory: PathBuf,
}

pub(crate) fn run(arguments: &WorkerArgs) -> Outcome {
    let mut text = String::new();
    std::io::stdin().read_line(&mut text).map_err(|error| Exit::Usage.because(error))?;
    let plan: WorkerPlan =
        serde_json::from_str(&text).map_err(|error| Exit::Usage.because(error))?;
    let end = Arc::new(AtomicU64::new(plan.last_version()));
    let told = Arc::clone(&end);
    thread::spawn(move || hear_end(&told));
    let mut failed = false;
    worker::run_over_its_port(&plan, &arguments.directory, &end, &mut |message| {
        failed |= matches!(message, WorkerMessage::Failed { .. });
        say(&message);
    });
    Ok(if failed { Exit::Failed as u8 } else { 0 })
}

/// Takes in versions to end at until standard input is closed.
fn hear_end(end: &AtomicU64) {
    for line in std::io::stdin().lines().map_while(Result::ok) {
        if let Ok(version) = line.parse() {
            end.store(version, Ordering::Relaxed);
        }
    }
}

fn say(message: &WorkerMessage) {
    let line = serde_json::to_string(message).expect("a message is a JSON object");
    // Whoever started this has gone when standard output has; there is nobody left to tell.
    let _ = writeln!(std::io::stdout().lock(), "{line}");
}
