//! A file that tells what happened to groups at this box: a JSON object a line, in the order in
//! which things happened here (`node.events`). Reports of runs are made from it.
//!
//! Does I/O; decides nothing. A line is in the file when the call returns, so that a box that is
//! killed leaves all it knew.

use std::collections::HashMap;
use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};
use weft_config::node::NodeConfig;
use weft_control::{Command, Decision, Event, GroupDescriptor, Holding};
use weft_wire::{GroupId, JobId, Members};

use super::TICK;
use crate::control::NodeControl;
use crate::durable::Resumed;

/// The log.
#[derive(Debug)]
pub(super) struct EventLog {
    file: Option<File>,
    lines: EventLines,
}

/// The lines of a log, whoever keeps it. Pure.
#[derive(Debug)]
pub struct EventLines {
    /// Descriptors of groups that are not decided, for what events leave out.
    groups: HashMap<(JobId, GroupId), GroupDescriptor>,
    /// Of each job: the version last told, and the exponent of groups that nobody installed.
    jobs: HashMap<JobId, (u64, i8)>,
}

impl EventLog {
    /// Opens the file to append: a box that comes back goes on where it was, behind the last line
    /// that is whole.
    ///
    /// # Errors
    /// When the file cannot be opened.
    pub(super) fn open(
        path: &Path,
        config: &NodeConfig,
        resumed: &[Resumed],
    ) -> std::io::Result<Self> {
        cut_last_line(path)?;
        let file = File::options().create(true).append(true).open(path)?;
        let mut lines = EventLines::new(config);
        for job in resumed {
            lines.jobs.entry(job.job).or_default().0 = job.version_before.0;
        }
        Ok(Self { file: Some(file), lines })
    }

    /// Remembers what a controller said of a group.
    pub(super) fn command(&mut self, command: &Command) {
        self.lines.command(command);
    }

    /// Writes an event, with the bytes that the port has received by now. A file that cannot be
    /// written is given up, with a line that says so.
    pub(super) fn event(&mut self, job: JobId, event: &Event, rx_bytes: u64) {
        let line = self.lines.event(monotonic_ns(), job, event, rx_bytes);
        // At once, so that a box that is killed leaves whole lines.
        let line = format!("{line}\n");
        if let Some(file) = &mut self.file
            && let Err(error) = file.write_all(line.as_bytes())
        {
            weft_process::say!("weft-node: writing the log of events: {error}");
            self.file = None;
        }
    }

    /// Takes all that happens, without a controller, until it is told to stop, and writes it to the
    /// log if there is one.
    pub(super) fn keep(mut log: Option<Self>, control: &NodeControl, stop: &AtomicBool) {
        loop {
            // Asked first, so that what happened before it was set is still taken.
            let is_over = stop.load(Ordering::Relaxed);
            while let Some(event) = control.event() {
                if let Some(log) = &mut log {
                    log.event(event.job, &event.event, control.carried().0);
                }
            }
            if is_over {
                return;
            }
            std::thread::sleep(TICK);
        }
    }
}

impl EventLines {
    /// Of a node that has just begun.
    #[must_use]
    pub fn new(config: &NodeConfig) -> Self {
        let servers = config.server.iter().map(|s| (s.job, s.initial_version, s.exponent));
        let replicas = config.replica.iter().map(|s| (s.job, s.initial_version, s.exponent));
        let jobs = servers
            .chain(replicas)
            .map(|(job, version, exponent)| (JobId(job), (version, exponent)));
        Self { groups: HashMap::new(), jobs: jobs.collect() }
    }

    /// Remembers what a controller said of a group.
    pub fn command(&mut self, command: &Command) {
        if let Command::Install(group) = command {
            self.groups.insert((group.job, group.group), group.clone());
        }
    }

    /// The line of an event at a time, with the bytes that the port has received by then.
    pub fn event(&mut self, t_ns: u64, job: JobId, event: &Event, rx_bytes: u64) -> Value {
        let mut line = self.describe(job, event);
        if let Value::Object(fields) = &mut line {
            fields.insert("t_ns".to_owned(), t_ns.into());
            fields.insert("job".to_owned(), job.0.into());
            fields.insert("rx_bytes".to_owned(), rx_bytes.into());
        }
        line
    }

    fn describe(&mut self, job: JobId, event: &Event) -> Value {
        match *event {
            Event::Installed { group } => self.installed(job, group),
            Event::Refused { group, error } => {
                self.groups.remove(&(job, group));
                json!({ "event": "refused", "group": group.0, "error": error.to_string() })
            }
            Event::Gathered { group, rank } => {
                json!({ "event": "gathered", "group": group.0, "rank": rank.index() })
            }
            Event::Staged { group } => json!({ "event": "staged", "group": group.0 }),
            Event::Transferred { group, rank, bytes, duration_ns, wait_ns, idle_ns } => json!({
                "event": "transferred", "group": group.0, "rank": rank.map(weft_wire::Rank::index),
                "bytes": bytes, "duration_ns": duration_ns, "wait_ns": wait_ns, "idle_ns": idle_ns,
            }),
            Event::Decided { group, order, decision, members, norm, momentum_norm } => {
                let norms = (norm, momentum_norm);
                self.decided(job, group, order.0, decision, members, norms)
            }
            Event::MemberLost { rank, .. } => {
                json!({ "event": "member_lost", "rank": rank.index() })
            }
            // JSON has no infinity, which is what the bound is before the first answer.
            Event::ReplicaAt { order, divergence_bound, is_held } => json!({
                "event": "replica_at", "order": order.0, "is_held": is_held,
                "divergence_bound": divergence_bound.min(f64::MAX),
            }),
            Event::ReplicaFitness { is_fit } => {
                json!({ "event": "replica_fitness", "is_fit": is_fit })
            }
            Event::Promoted { epoch, applied, order, version, momentum_norm } => {
                self.jobs.entry(job).or_default().0 = version.0;
                json!({
                    "event": "promoted", "epoch": epoch.0, "applied": applied.0, "order": order.0,
                    "version": version.0, "momentum_norm": momentum_norm,
                })
            }
            Event::PromotionRefused { applied } => {
                json!({ "event": "promotion_refused", "applied": applied.0 })
            }
            Event::StoodDown { epoch } => json!({ "event": "stood_down", "epoch": epoch.0 }),
            Event::HoldingInstalled { holding } => {
                json!({ "event": "holding_installed", "holding": kind_of(holding), "row": row_of(holding) })
            }
            Event::HoldingRemoved { holding } => {
                json!({ "event": "holding_removed", "holding": kind_of(holding), "row": row_of(holding) })
            }
            Event::HoldingRefused { holding, error } => json!({
                "event": "holding_refused", "holding": kind_of(holding), "row": row_of(holding),
                "error": error.to_string(),
            }),
            Event::BandSet { band } => json!({ "event": "band_set", "band": band }),
            Event::BandLost { band, error } => {
                json!({ "event": "band_lost", "band": band, "error": error.to_string() })
            }
            Event::BandRefused { band, error } => {
                json!({ "event": "band_refused", "band": band, "error": error.to_string() })
            }
        }
    }

    fn installed(&self, job: JobId, id: GroupId) -> Value {
        let Some(group) = self.groups.get(&(job, id)) else {
            return json!({ "event": "installed_unknown", "group": id.0 });
        };
        let members: Vec<(usize, u64)> =
            group.members.iter().map(|member| (member.rank.index(), member.version.0)).collect();
        json!({
            "event": "installed", "group": id.0, "order": group.order.0, "members": members,
            "exponent": group.exponent, "via": group.via.map(|index| index.0),
            "replicate": group.replicate, "rate_bytes_per_sec": group.rate_bytes_per_sec,
        })
    }

    fn decided(
        &mut self,
        job: JobId,
        id: GroupId,
        order: u64,
        decision: Decision,
        members: Members,
        (norm, momentum_norm): (f64, f64),
    ) -> Value {
        let known = self.jobs.entry(job).or_default();
        let word = match decision {
            Decision::Committed(version) => {
                known.0 = version.0;
                "committed"
            }
            Decision::Void => "void",
            Decision::Dropped => "dropped",
        };
        let (version, exponent) = *known;
        let group = self.groups.remove(&(job, id));
        json!({
            "event": "decided", "group": id.0, "order": order, "decision": word,
            "version": version, "members": members.0,
            "exponent": group.map_or(exponent, |group| group.exponent),
            "norm": norm, "momentum_norm": momentum_norm,
        })
    }
}

/// Removes what a former life left of a line that it could not end.
fn cut_last_line(path: &Path) -> std::io::Result<()> {
    let text = match std::fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    if whole < text.len() {
        File::options().write(true).open(path)?.set_len(whole as u64)?;
    }
    Ok(())
}

/// The row of a lease; none for what is of the whole job.
const fn row_of(holding: Holding) -> Option<u16> {
    match holding {
        Holding::Job | Holding::Push => None,
        Holding::Row(row) => Some(row),
    }
}

const fn kind_of(holding: Holding) -> &'static str {
    match holding {
        Holding::Job => "job",
        Holding::Row(_) => "row",
        Holding::Push => "push",
    }
}

/// Nanoseconds of the machine's monotonic clock, the same in all its processes.
fn monotonic_ns() -> u64 {
    let time = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("Linux has a monotonic clock");
    let seconds = u64::try_from(time.tv_sec()).unwrap_or(0);
    seconds * 1_000_000_000 + u64::try_from(time.tv_nsec()).unwrap_or(0)
}
