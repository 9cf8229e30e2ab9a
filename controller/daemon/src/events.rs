//! Writes what the controller has boxes install and jobs do: a JSON object a line, in the words of
//! a box's own log, before the command is sent. A run's proof holds the server's commits against
//! it.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::Path;

use nix::time::{ClockId, clock_gettime};
use serde::Serialize;
use weft_control::{GroupDescriptor, JobState};
use weft_controller_engine::{LostCommits, Resize};

/// The log.
#[derive(Debug)]
pub struct Events(File);

/// A line of what a job does.
#[derive(Debug, Serialize)]
struct State<'a> {
    t_ns: u64,
    event: &'static str,
    job: &'a str,
    state: JobState,
    /// From the word to the standstill.
    #[serde(skip_serializing_if = "Option::is_none")]
    after_ns: Option<u64>,
}

/// A line of a resize.
#[derive(Debug, Serialize)]
struct Resized<'a> {
    t_ns: u64,
    event: &'static str,
    job: &'a str,
    #[serde(flatten)]
    resize: Option<&'a Resize>,
    /// Why the job goes on as it was.
    #[serde(skip_serializing_if = "Option::is_none")]
    refused: Option<&'a String>,
}

/// A line of a pause that came to nothing.
#[derive(Debug, Serialize)]
struct Unpaused<'a> {
    t_ns: u64,
    event: &'static str,
    job: &'a str,
    /// Why the job goes on.
    refused: &'a str,
}

/// A server returned with fewer commits than it announced.
#[derive(Debug, Serialize)]
struct CommitsLost<'a> {
    t_ns: u64,
    event: &'static str,
    job: &'a str,
    returned: u64,
    acknowledged: u64,
    /// No replica takes over: the job has ended.
    is_over: bool,
}

/// A line of a group.
#[derive(Debug, Serialize)]
struct Installed {
    t_ns: u64,
    job: u16,
    event: &'static str,
    group: u32,
    order: u64,
    /// Rank and version, in the group's order.
    members: Vec<(u8, u64)>,
    exponent: i8,
    via: Option<u8>,
    replicate: bool,
    rate_bytes_per_sec: Option<u64>,
}

impl Events {
    /// Opens the log behind what a former life has written.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn open(path: &Path) -> std::io::Result<Self> {
        OpenOptions::new().create(true).append(true).open(path).map(Self)
    }

    /// A box is told to install a group.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn installed(&mut self, group: &GroupDescriptor) -> std::io::Result<()> {
        let line = Installed {
            t_ns: monotonic_ns(),
            job: group.job.0,
            event: "installed",
            group: group.group.0,
            order: group.order.0,
            members: group
                .members
                .iter()
                .map(|m| (u8::try_from(m.rank.index()).unwrap_or(u8::MAX), m.version.0))
                .collect(),
            exponent: group.exponent,
            via: group.via.map(|via| via.0),
            replicate: group.replicate,
            rate_bytes_per_sec: group.rate_bytes_per_sec,
        };
        self.write(&line)
    }

    /// A job does something else now.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn state(
        &mut self,
        job: &str,
        state: JobState,
        after_ns: Option<u64>,
    ) -> std::io::Result<()> {
        self.write(&State { t_ns: monotonic_ns(), event: "job_state", job, state, after_ns })
    }

    /// A resize has come to its end.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn resized(&mut self, job: &str, outcome: &Result<Resize, String>) -> std::io::Result<()> {
        let (resize, refused) = (outcome.as_ref().ok(), outcome.as_ref().err());
        self.write(&Resized { t_ns: monotonic_ns(), event: "job_resized", job, resize, refused })
    }

    /// Writes of a pause that came to nothing.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn unpaused(&mut self, job: &str, refused: &str) -> std::io::Result<()> {
        self.write(&Unpaused { t_ns: monotonic_ns(), event: "job_unpaused", job, refused })
    }

    /// A job's server returned with fewer commits than it announced.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn commits_lost(
        &mut self,
        job: &str,
        lost: LostCommits,
        is_over: bool,
    ) -> std::io::Result<()> {
        let (returned, acknowledged) = (lost.returned.0, lost.acknowledged.0);
        let (t_ns, event) = (monotonic_ns(), "commits_lost");
        self.write(&CommitsLost { t_ns, event, job, returned, acknowledged, is_over })
    }

    fn write(&mut self, line: &impl Serialize) -> std::io::Result<()> {
        let mut text = serde_json::to_string(line)?;
        text.push('\n');
        // One write, so that no line is cut by another life.
        self.0.write_all(text.as_bytes())
    }
}

fn monotonic_ns() -> u64 {
    let time = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("Linux has a monotonic clock");
    let seconds = u64::try_from(time.tv_sec()).unwrap_or(0);
    seconds * 1_000_000_000 + u64::try_from(time.tv_nsec()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use weft_control::{GroupMember, OrderNumber, Version};
    use weft_wire::header::ElementType;
    use weft_wire::{GroupId, JobId, Rank};

    use super::*;

    fn group(order: u64) -> GroupDescriptor {
        GroupDescriptor {
            job: JobId(5),
            group: GroupId(70),
            order: OrderNumber(order),
            members: vec![GroupMember { rank: Rank::new(2).expect("a rank"), version: Version(9) }],
            chunks: 1,
            element_type: ElementType::I32,
            elements: 64,
            exponent: -3,
            via: None,
            replicate: false,
            rate_bytes_per_sec: None,
            train_chunks: 0,
            after: None,
            lateness_ns: 1,
        }
    }

    #[test]
    fn a_second_life_writes_behind_the_first() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("controller.events.jsonl");
        for order in [3, 4] {
            let mut events = Events::open(&path).expect("a file");
            events.installed(&group(order)).expect("a line");
        }
        let text = fs::read_to_string(&path).expect("two lines");
        let lines: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        assert_eq!((&lines[0]["order"], &lines[1]["order"]), (&3.into(), &4.into()));
        assert_eq!((&lines[0]["event"], &lines[0]["job"]), (&"installed".into(), &5.into()));
        assert_eq!(lines[0]["members"], serde_json::json!([[2, 9]]));
    }
}
