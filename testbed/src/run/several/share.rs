//! Decides what of a shared box's log and counters is one job's, and calls the box by the name that
//! the job has for it. Pure.

use serde::Deserialize;

use super::JobPlan;
use crate::run::push::LogLine;
use crate::run::push::log::{LogError, parse, told_once};
use crate::scenario::CONTROLLER;

/// A line of a box's log, with the job that it is of.
#[derive(Debug, Deserialize)]
struct Tagged {
    job: u16,
    #[serde(flatten)]
    line: LogLine,
}

/// The lines of a box's log that are of a job.
///
/// # Errors
/// A line is none.
pub(super) fn log_of(text: &str, job: u16) -> Result<Vec<LogLine>, LogError> {
    let lines: Vec<Tagged> = parse(text)?;
    let own = lines.into_iter().filter(|line| line.job == job).map(|tagged| tagged.line);
    Ok(told_once(own.collect()))
}

/// The name that a job has for a host's box; `None` where it has none there.
pub(super) fn name_at<'a>(job: &'a JobPlan, host: &'a str) -> Option<&'a str> {
    if host == CONTROLLER {
        return Some(CONTROLLER);
    }
    let names = job.plan.boxes.iter().map(|planned| planned.name.as_str());
    names.into_iter().find(|name| job.site.host(name) == host)
}
