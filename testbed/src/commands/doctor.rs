//! `weft doctor`.

use clap::Args;
use weft_testbed::doctor::{Diagnosis, gather};

use super::{Exit, Format, Outcome, emit_csv, emit_json, emit_text};

#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {}

pub(crate) fn run(_: &DoctorArgs, format: Format) -> Outcome {
    let diagnosis = Diagnosis::new(&gather());
    match format {
        Format::Text => {
            let line = |finding| format!("{finding}\n");
            emit_text(&diagnosis.findings.iter().map(line).collect::<String>())?;
        }
        Format::Json => emit_json(&diagnosis)?,
        Format::Csv => emit_csv(&diagnosis.findings)?,
    }
    Ok(if diagnosis.can_run { 0 } else { Exit::CannotRun as u8 })
}
