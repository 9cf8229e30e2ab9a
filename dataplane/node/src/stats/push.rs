//! The push jobs in a snapshot and in a report.

use std::collections::BTreeMap;
use std::fmt::{self, Write};

use serde::Serialize;
use weft_config::node::NodeConfig;
use weft_engine::role::channel::Standing;
use weft_engine::role::gather::{PushReport as Gathered, PushStats};
use weft_process::metrics::{head, label};

use super::figures::Figures;
use super::{LaneSnapshot, figures};

/// A push job at one moment.
#[derive(Clone, Debug)]
pub struct PushSnapshot {
    /// Its index on the wire.
    pub job: u16,
    /// Its counters.
    pub stats: PushStats,
    /// Groups that are open.
    pub groups_open: usize,
    /// Slots of the quota, and those that open groups have.
    pub slots: [usize; 2],
    /// Workers that have a channel.
    pub workers_open: u64,
    /// The channels to the server and to the replica.
    pub links: [Option<Standing>; 2],
}

impl PushSnapshot {
    pub(super) fn take(report: &Gathered<'_>) -> Self {
        Self {
            job: report.id().0,
            stats: report.stats().clone(),
            groups_open: report.groups_open(),
            slots: [report.slots(), report.slots_in_use()],
            workers_open: report.workers_open().0,
            links: [Some(report.server()), report.replica()],
        }
    }
}

/// A push job.
#[derive(Clone, Debug, Default, Serialize)]
pub struct PushReport {
    /// Its index on the wire.
    pub job: u16,
    /// Its name.
    pub name: String,
    /// `opening`, `open`, `closing` or `closed`.
    pub server: &'static str,
    /// The same of the replica; absent when the job has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replica: Option<&'static str>,
    /// Ranks that have a channel, as a bitmap.
    pub workers_open: u64,
    /// Groups that are open.
    pub groups_open: usize,
    /// Slots that the quota paid for.
    pub slots: usize,
    /// Slots that open groups have.
    pub slots_in_use: usize,
    /// What the engine counts.
    #[serde(flatten)]
    pub figures: Figures,
    /// What leases, slots and pulls went through; every transition is there.
    pub transitions: BTreeMap<&'static str, u64>,
}

/// The reports of the file's push jobs, and of those that came at run time.
pub(super) fn reports(config: &NodeConfig, lanes: &[LaneSnapshot]) -> Vec<PushReport> {
    let of_file = config.push.iter().map(|push| (push.job, push.display_name()));
    let is_late = |job: &u16| config.push.iter().all(|push| push.job != *job);
    let held = lanes.iter().flat_map(|lane| lane.pushes.iter().map(|push| push.job));
    let late = held.filter(is_late).map(|job| (job, format!("job{job}")));
    of_file.chain(late).map(|(job, name)| report(job, name, lanes)).collect()
}

/// The report of a job. Push jobs run in one lane.
fn report(job: u16, name: String, lanes: &[LaneSnapshot]) -> PushReport {
    let push = lanes.iter().flat_map(|lane| &lane.pushes).find(|push| push.job == job);
    let figures = Figures::sum(PushStats::FIGURES, push.iter().map(|push| &push.stats));
    let named = PushReport { job, name, figures, ..PushReport::default() };
    let Some(push) = push else { return named };
    PushReport {
        server: push.links[0].map_or("", standing),
        replica: push.links[1].map(standing),
        workers_open: push.workers_open,
        groups_open: push.groups_open,
        slots: push.slots[0],
        slots_in_use: push.slots[1],
        transitions: push.stats.transitions().collect(),
        ..named
    }
}

const fn standing(standing: Standing) -> &'static str {
    match standing {
        Standing::Opening => "opening",
        Standing::Open => "open",
        Standing::Closing => "closing",
        Standing::Closed => "closed",
    }
}

pub(super) fn write_text(out: &mut String, pushes: &[PushReport]) -> fmt::Result {
    for push in pushes {
        writeln!(
            out,
            "  push {} ({}): server: {}  replica: {}  workers: {:#x}  groups: {}  slots: {}/{}",
            push.job,
            push.name,
            push.server,
            push.replica.unwrap_or("none"),
            push.workers_open,
            push.groups_open,
            push.slots_in_use,
            push.slots
        )?;
        figures::write_text(out, &push.figures)?;
        let transitions = push.transitions.iter().map(|(name, count)| (*name, *count));
        writeln!(out, "    transitions")?;
        figures::write_list(out, transitions.filter(|(_, count)| *count > 0))?;
    }
    Ok(())
}

pub(super) fn write_metrics(out: &mut String, pushes: &[PushReport]) -> fmt::Result {
    if pushes.is_empty() {
        return Ok(());
    }
    let labels = |push: &PushReport| format!("{{job={}}}", label(&push.name));
    let things: Vec<_> = pushes.iter().map(|push| (labels(push), &push.figures)).collect();
    figures::write_metrics(out, "push", &things)?;
    head(
        out,
        "weft_push_transitions_total",
        "counter",
        "What leases, slots and pulls went through",
    )?;
    for push in pushes {
        for (transition, count) in &push.transitions {
            let (job, transition) = (label(&push.name), label(transition));
            writeln!(
                out,
                "weft_push_transitions_total{{job={job},transition={transition}}} {count}"
            )?;
        }
    }
    type Value = fn(&PushReport) -> u64;
    let gauges: [(&str, &str, Value); 5] = [
        ("weft_push_groups_open", "Groups that are open", |push| push.groups_open as u64),
        ("weft_push_slots", "Slots that the quota paid for", |push| push.slots as u64),
        ("weft_push_slots_in_use", "Slots of open groups", |push| push.slots_in_use as u64),
        ("weft_push_workers_open", "Workers that have a channel", |push| {
            u64::from(push.workers_open.count_ones())
        }),
        ("weft_push_server_open", "1 if the channel to the server is open", |push| {
            u64::from(push.server == "open")
        }),
    ];
    for (name, help, value) in gauges {
        head(out, name, "gauge", help)?;
        for push in pushes {
            writeln!(out, "{name}{{job={}}} {}", label(&push.name), value(push))?;
        }
    }
    Ok(())
}
