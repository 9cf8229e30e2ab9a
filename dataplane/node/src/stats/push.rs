//! The push jobs in a snapshot and in a report.

use std::collections::BTreeMap;
use std::fmt::{self, Write};

use serde::Serialize;
use weft_engine::role::channel::Standing;
use weft_engine::role::gather::{PushReport as Gathered, PushStats};

use super::LaneSnapshot;
use super::metrics::{head, label};
use crate::config::PushSection;

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
#[expect(missing_docs, reason = "the counters are those of the engine's `PushStats`")]
pub struct PushReport {
    pub job: u16,
    pub name: String,
    /// `opening`, `open`, `closing` or `closed`.
    pub server: &'static str,
    /// The same of the replica; absent when the job has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replica: Option<&'static str>,
    /// Ranks that have a channel, as a bitmap.
    pub workers_open: u64,
    pub groups_open: usize,
    /// Slots that the quota paid for.
    pub slots: usize,
    pub slots_in_use: usize,
    pub contributions_added: u64,
    pub duplicates: u64,
    pub contributions_clamped: u64,
    pub contributions_marked: u64,
    pub chunks_completed: u64,
    pub sums_sent: u64,
    pub copies_skipped: u64,
    pub bytes_accepted: u64,
    pub over_quota: u64,
    pub pulls_answered: u64,
    pub haves_lost: u64,
    pub events_lost: u64,
    /// What leases, slots and pulls went through; every transition is there.
    pub transitions: BTreeMap<&'static str, u64>,
}

/// The report of a section. Push jobs run in one lane.
pub(super) fn report(section: &PushSection, lanes: &[LaneSnapshot]) -> PushReport {
    let named = PushReport { job: section.job, name: section.display_name(), ..Default::default() };
    let mut pushes = lanes.iter().flat_map(|lane| &lane.pushes);
    let Some(push) = pushes.find(|push| push.job == section.job) else { return named };
    let stats = &push.stats;
    PushReport {
        server: push.links[0].map_or("", standing),
        replica: push.links[1].map(standing),
        workers_open: push.workers_open,
        groups_open: push.groups_open,
        slots: push.slots[0],
        slots_in_use: push.slots[1],
        contributions_added: stats.contributions_added,
        duplicates: stats.duplicates,
        contributions_clamped: stats.contributions_clamped,
        contributions_marked: stats.contributions_marked,
        chunks_completed: stats.chunks_completed,
        sums_sent: stats.sums_sent,
        copies_skipped: stats.copies_skipped,
        bytes_accepted: stats.bytes_accepted,
        over_quota: stats.over_quota,
        pulls_answered: stats.pulls_answered,
        haves_lost: stats.haves_lost,
        events_lost: stats.events_lost,
        transitions: stats.transitions().collect(),
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

impl PushReport {
    fn counters(&self) -> [(&'static str, u64); 12] {
        [
            ("contributions_added", self.contributions_added),
            ("duplicates", self.duplicates),
            ("contributions_clamped", self.contributions_clamped),
            ("contributions_marked", self.contributions_marked),
            ("chunks_completed", self.chunks_completed),
            ("sums_sent", self.sums_sent),
            ("copies_skipped", self.copies_skipped),
            ("bytes_accepted", self.bytes_accepted),
            ("over_quota", self.over_quota),
            ("pulls_answered", self.pulls_answered),
            ("haves_lost", self.haves_lost),
            ("events_lost", self.events_lost),
        ]
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
        let list = |counts: &mut dyn Iterator<Item = (&'static str, u64)>| {
            let seen = counts.filter(|(_, count)| *count > 0);
            let seen: Vec<_> =
                seen.map(|(name, count)| format!("{}: {count}", name.replace('_', " "))).collect();
            if seen.is_empty() { "none".to_owned() } else { seen.join("  ") }
        };
        writeln!(out, "    {}", list(&mut push.counters().into_iter()))?;
        let mut transitions = push.transitions.iter().map(|(name, count)| (*name, *count));
        writeln!(out, "    transitions: {}", list(&mut transitions))?;
    }
    Ok(())
}

pub(super) fn write_metrics(out: &mut String, pushes: &[PushReport]) -> fmt::Result {
    if pushes.is_empty() {
        return Ok(());
    }
    for (index, (counter, _)) in PushReport::default().counters().into_iter().enumerate() {
        let name = format!("weft_push_{counter}_total");
        head(out, &name, "counter", "Counters of a push job")?;
        for push in pushes {
            let (_, value) = push.counters()[index];
            writeln!(out, "{name}{{job={}}} {value}", label(&push.name))?;
        }
    }
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
