//! Decides what of a shared box's log and counters is one job's, and calls the box by the name that
//! the job has for it. Pure.

use serde::Deserialize;
use serde_json::Value;

use super::JobPlan;
use crate::report::EventRow;
use crate::run::push::LogLine;
use crate::run::push::log::{LogError, parse, told_once};
use crate::scenario::CONTROLLER;

/// A line of a box's log, with the job that it is of: its number, or in the controller's its name.
#[derive(Debug, Deserialize)]
struct Tagged {
    job: Value,
    #[serde(flatten)]
    line: LogLine,
}

/// The lines of a box's log that are of a job's groups.
///
/// # Errors
/// A line is none.
pub(super) fn log_of(text: &str, job: u16) -> Result<Vec<LogLine>, LogError> {
    let lines: Vec<Tagged> = parse(text)?;
    let own = lines.into_iter().filter(|line| line.job == job).map(|tagged| tagged.line);
    Ok(told_once(own.collect()))
}

/// What a box's log says of what somebody did to a job: another band, a pause, a resize. Times
/// count from `begun_ns`.
pub(super) fn steering_of(text: &str, job: u16, name: &str, begun_ns: u64) -> Vec<EventRow> {
    let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let row = |line: Value| {
        let event = line["event"].as_str().filter(|event| STEERING.contains(event))?.to_owned();
        let is_own = line["job"] == job || line["job"] == name;
        let t_ns = line["t_ns"].as_u64().filter(|_| is_own)?.saturating_sub(begun_ns);
        let Value::Object(fields) = line else { return None };
        let more =
            |(key, _): &(String, Value)| !["t_ns", "job", "event", "rx_bytes"].contains(&&**key);
        Some(EventRow { t_ns, event, fields: fields.into_iter().filter(more).collect() })
    };
    lines.filter_map(row).collect()
}

/// Events of who steers jobs.
const STEERING: [&str; 6] =
    ["band_set", "band_lost", "band_refused", "job_state", "job_unpaused", "job_resized"];

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
        // What is said of a job by its name is of no group.
        let named =
            "{\"t_ns\": 9, \"job\": \"x\", \"event\": \"job_state\", \"state\": \"paused\"}\n";
        let text = text.clone() + "\n" + named;
        let rows = steering_of(&text, 0, "x", 2);
        let [row] = rows.as_slice() else { panic!("{rows:?}") };
        assert_eq!((row.t_ns, row.event.as_str(), row.fields.len()), (7, "job_state", 1));
        assert_eq!(row.fields["state"], "paused");
        assert!(steering_of(&text, 0, "y", 2).is_empty());
        assert!(log_of(named, 0).expect("a line").is_empty());
        // Of nobody: that is no line of a box.
        assert!(log_of("{\"t_ns\": 1, \"event\": \"staged\", \"group\": 1}\n", 0).is_err());
    }
}
