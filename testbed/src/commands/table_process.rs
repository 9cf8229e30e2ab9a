//! `weft table-process`: the process that `weft run` starts for each process of a table. Its plan
//! comes on standard input, and after it a line for each gate that is open; its messages go to
//! standard output, one JSON object a line.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::Args;
use weft_testbed::run::factorisation::{ProcessMessage, ProcessPlan, process};

use super::{Exit, Outcome};

#[derive(Debug, Args)]
pub(crate) struct TableProcessArgs {
    /// Run directory, for what is kept of the table.
    directory: PathBuf,
}

pub(crate) fn run(arguments: &TableProcessArgs) -> Outcome {
    let mut input = BufReader::new(std::io::stdin());
    let mut text = String::new();
    input.read_line(&mut text).map_err(|error| Exit::Usage.because(error))?;
    let plan: ProcessPlan =
        serde_json::from_str(&text).map_err(|error| Exit::Usage.because(error))?;
    let failed = AtomicBool::new(false);
    process::run(&plan, &arguments.directory, input, &|message| {
        if matches!(message, ProcessMessage::Failed { .. }) {
            failed.store(true, Ordering::Relaxed);
        }
        let line = serde_json::to_string(&message).expect("a message is a JSON object");
        // Whoever started this has gone when standard output has; there is nobody left to tell.
        let _ = writeln!(std::io::stdout().lock(), "{line}");
    });
    Ok(if failed.into_inner() { Exit::Failed as u8 } else { 0 })
}
