//! `weft worker`: the process that `weft run` starts for each worker. Its plan comes on standard
//! input, its messages go to standard output, one JSON object a line.

use std::io::{Read as _, Write as _};
use std::path::PathBuf;

use clap::Args;
use weft_testbed::run::push::{PushMessage, PushWorkerPlan, run_push_worker};
use weft_testbed::run::{WorkerMessage, WorkerPlan, worker};

use super::{Exit, Outcome};

#[derive(Debug, Args)]
pub(crate) struct WorkerArgs {
    /// Run directory, for the recording.
    directory: PathBuf,
    /// The worker of a scenario with a `push` section.
    #[arg(long)]
    push: bool,
}

pub(crate) fn run(arguments: &WorkerArgs) -> Outcome {
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).map_err(|error| Exit::Usage.because(error))?;
    let mut failed = false;
    if arguments.push {
        let plan: PushWorkerPlan =
            serde_json::from_str(&text).map_err(|error| Exit::Usage.because(error))?;
        run_push_worker(&plan, &arguments.directory, &mut |message| {
            failed |= matches!(message, PushMessage::Failed { .. });
            say(&message);
        });
    } else {
        let plan: WorkerPlan =
            serde_json::from_str(&text).map_err(|error| Exit::Usage.because(error))?;
        worker::run_over_udp(&plan, &arguments.directory, &mut |message| {
            failed |= matches!(message, WorkerMessage::Failed { .. });
            say(&message);
        });
    }
    Ok(if failed { Exit::Failed as u8 } else { 0 })
}

fn say<M: serde::Serialize>(message: &M) {
    let line = serde_json::to_string(message).expect("a message is a JSON object");
    // Whoever started this has gone when standard output has; there is nobody left to tell.
    let _ = writeln!(std::io::stdout().lock(), "{line}");
}
