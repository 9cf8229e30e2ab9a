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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::push::BoxEvent;

    #[test]
    fn a_job_has_the_lines_that_are_of_it_alone() {
        let line = |job: u16, group: u32| {
            format!(
                "{{\"t_ns\": {group}, \"job\": {job}, \"event\": \"staged\", \"group\": {group}}}\n"
            )
        };
        let text = [line(0, 1), line(3, 2), line(0, 3), "{\"t_ns\": 9, \"jo".to_owned()].concat();
        let groups = |job| {
            let lines = log_of(&text, job).expect("lines");
            let group = |line: &LogLine| match line.event {
                BoxEvent::Staged { group } => group,
                _ => 0,
            };
            lines.iter().map(group).collect::<Vec<u32>>()
        };
        assert_eq!((groups(0), groups(3), groups(1)), (vec![1, 3], vec![2], vec![]));
        // Of nobody: that is no line of a box.
        assert!(log_of("{\"t_ns\": 1, \"event\": \"staged\", \"group\": 1}\n", 0).is_err());
    }
}
