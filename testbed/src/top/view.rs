//! Decides what of a controller's figures is shown, and in what order. Pure.
//!
//! Rates are of what was counted between two readings; with one reading there are none. A reading
//! of a controller that has begun anew since the one before is taken as the first.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use weft_rpc::v1;

pub use boxes::{DropLine, NodeLine, QueueLine};
use boxes::{drop_lines, node_line, queue_lines};

mod boxes;

/// What is shown. Outside scripts read these names.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct View {
    /// Since the controller started.
    pub uptime_s: f64,
    /// Plans computed.
    pub plans: u64,
    /// `fifo`, `one` or `round_robin`, and how often an operator set it.
    pub band_policy: String,
    /// See above.
    pub band_policy_changes: u64,
    /// The jobs, by index.
    pub jobs: Vec<JobLine>,
    /// Who goes before whom on hosts' links: the bands that have jobs, the first first.
    pub bands: Vec<BandLine>,
    /// What waits for the links of boxes whose ports have queues for bands, and what left.
    pub queues: Vec<QueueLine>,
    /// The hosts' links, by name.
    pub links: Vec<LinkLine>,
    /// Groups that are not decided, by job and order.
    pub groups: Vec<GroupLine>,
    /// Workers, those that come latest after the others first.
    pub stragglers: Vec<StragglerLine>,
    /// The allreduce jobs that the controller steers, by index.
    pub reduces: Vec<ReduceLine>,
    /// What did not get into a model, by job; the frames that boxes refused or lost, by box; and
    /// the messages that the controller refused.
    pub drops: Vec<DropLine>,
    /// The boxes, as configured.
    pub nodes: Vec<NodeLine>,
}

/// A job.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[expect(missing_docs, reason = "the fields are those of `v1::JobStatus`")]
pub struct JobLine {
    pub job: String,
    pub index: u32,
    pub policy: String,
    /// `running`, `pausing`, `paused` or `resizing`.
    pub state: String,
    /// Its band on its server's host, and how often that became another one.
    pub band: Option<u32>,
    pub band_changes: u64,
    /// Boxes there that have given it the band, and that have yet to answer.
    pub band_boxes_done: u32,
    pub band_boxes_awaited: u32,
    /// Which box refused it, and why; empty: none.
    pub band_refused: String,
    /// Pauses, and the longest from the word to the standstill.
    pub pauses: u64,
    pub standstill_max_ms: f64,
    pub version: u64,
    pub committed: u64,
    /// Between two readings.
    pub commits_per_s: Option<f64>,
    pub pending: u32,
    pub in_flight: u32,
    /// Mean from request to commit.
    pub commit_mean_ms: f64,
    /// Share of the granted updates that went through an aggregator.
    pub aggregated_share: f64,
    pub workers: usize,
    /// Of them, those with a stream.
    pub workers_attached: usize,
    pub is_server_attached: bool,
    /// Why a box refuses its groups; empty: none does.
    pub refusing: String,
}

/// A band.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct BandLine {
    /// 0 goes first.
    pub band: u32,
    /// Names of its jobs.
    pub jobs: Vec<String>,
}

/// A host's link.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[expect(missing_docs, reason = "the fields are those of `v1::HostStatus`")]
pub struct LinkLine {
    pub host: String,
    pub up_mbit: f64,
    pub down_mbit: f64,
    /// What Weft has of it.
    pub sent_mbit: Option<f64>,
    pub received_mbit: Option<f64>,
    pub confidence: f64,
}

/// A group that is not decided.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[expect(missing_docs, reason = "the fields are those of `v1::GroupStatus`")]
pub struct GroupLine {
    pub job: String,
    pub group: u32,
    pub order: u64,
    pub ranks: Vec<u32>,
    /// Name of its aggregator's box index; empty: straight to the server.
    pub via: String,
    pub state: String,
    pub age_ms: f64,
    pub is_late: bool,
}

/// A worker.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[expect(missing_docs, reason = "the fields are those of `v1::WorkerStatus`")]
pub struct StragglerLine {
    pub job: String,
    pub rank: u32,
    pub host: String,
    pub is_attached: bool,
    pub committed: u64,
    pub outstanding: u32,
    pub lag_mean_ms: f64,
    pub asked_ago_ms: Option<f64>,
}

/// An allreduce job.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[expect(missing_docs, reason = "the fields are those of `v1::ReduceStatus`")]
pub struct ReduceLine {
    pub job: String,
    pub index: u32,
    pub state: String,
    pub workers: u32,
    pub workers_attached: u32,
    /// Grows with every resize.
    pub cohort: u32,
    pub next_round: u64,
    /// Between two readings.
    pub rounds_per_s: Option<f64>,
    pub resizes: usize,
    pub pauses: u64,
    /// Why its box holds no lease; empty: it does.
    pub refusing: String,
    /// The place of each worker, by rank.
    #[serde(default)]
    pub placed: Vec<u32>,
    /// Why the workers of its last resize have not begun; empty: they have, or there is time.
    #[serde(default)]
    pub unbegun: String,
    #[serde(default)]
    pub round_messages: u32,
    #[serde(default)]
    pub round_bytes: u64,
    #[serde(default)]
    pub largest_bytes: u64,
    /// The largest tensor's part of all; none: not known.
    #[serde(default)]
    pub skew: Option<f64>,
}

impl View {
    /// What a reading says; rates need the reading `before`.
    #[must_use]
    pub fn new(now: &v1::StatusReply, before: Option<&v1::StatusReply>) -> Self {
        let before = before.filter(|before| before.uptime_ns < now.uptime_ns);
        let jobs = now.jobs.iter().map(|job| job_line(job, now.uptime_ns, before));
        let mut stragglers: Vec<StragglerLine> =
            now.jobs.iter().flat_map(straggler_lines).collect();
        stragglers.sort_by(|a, b| b.lag_mean_ms.total_cmp(&a.lag_mean_ms));
        Self {
            uptime_s: now.uptime_ns as f64 / 1e9,
            plans: now.plans,
            band_policy: small(now.band_policy().as_str_name(), "BAND_POLICY_"),
            band_policy_changes: now.band_policy_changes,
            jobs: jobs.collect(),
            bands: bands(now),
            queues: now
                .nodes
                .iter()
                .flat_map(|it| queue_lines(it, now.uptime_ns, before))
                .collect(),
            links: now.hosts.iter().map(link_line).collect(),
            groups: now.jobs.iter().flat_map(group_lines).collect(),
            stragglers,
            reduces: now.reduces.iter().map(|it| reduce_line(it, now.uptime_ns, before)).collect(),
            drops: drop_lines(now),
            nodes: now.nodes.iter().map(node_line).collect(),
        }
    }
}

fn job_line(job: &v1::JobStatus, now_ns: u64, before: Option<&v1::StatusReply>) -> JobLine {
    let earlier = before.and_then(|before| {
        let was = before.jobs.iter().find(|was| was.job == job.job)?;
        Some((was.committed, now_ns - before.uptime_ns))
    });
    let rate = |(committed, span_ns): (u64, u64)| {
        job.committed.saturating_sub(committed) as f64 * 1e9 / span_ns as f64
    };
    let attached = job.workers.iter().filter(|worker| worker.is_attached).count();
    JobLine {
        job: job.name.clone(),
        index: job.job,
        policy: job.policy.clone(),
        state: state_word(job.state),
        band: job.band,
        band_changes: job.band_changes,
        band_boxes_done: job.band_boxes_done,
        band_boxes_awaited: job.band_boxes_awaited,
        band_refused: job.band_refused.clone(),
        pauses: job.pauses,
        standstill_max_ms: job.standstill_max_ns as f64 / 1e6,
        version: job.version,
        committed: job.committed,
        commits_per_s: earlier.map(rate),
        pending: job.pending,
        in_flight: job.in_flight,
        commit_mean_ms: job.commit_mean_ns as f64 / 1e6,
        aggregated_share: job.aggregated as f64 / job.granted.max(1) as f64,
        workers: job.workers.len(),
        workers_attached: attached,
        is_server_attached: job.is_server_attached,
        refusing: job.refusing.clone(),
    }
}

/// A state in small letters.
#[must_use]
pub fn state_word(state: i32) -> String {
    let known = v1::JobState::try_from(state).unwrap_or_default();
    small(known.as_str_name(), "JOB_STATE_")
}

fn small(name: &str, prefix: &str) -> String {
    name.trim_start_matches(prefix).to_ascii_lowercase()
}

fn bands(now: &v1::StatusReply) -> Vec<BandLine> {
    let mut lines: BTreeMap<u32, Vec<String>> = BTreeMap::new();
    for (job, band) in now.jobs.iter().filter_map(|job| Some((job, job.band?))) {
        lines.entry(band).or_default().push(job.name.clone());
    }
    lines.into_iter().map(|(band, jobs)| BandLine { band, jobs }).collect()
}

fn link_line(host: &v1::HostStatus) -> LinkLine {
    let mbit = |bytes_per_sec: u64| bytes_per_sec as f64 * 8.0 / 1e6;
    LinkLine {
        host: host.name.clone(),
        up_mbit: mbit(host.up_bytes_per_sec),
        down_mbit: mbit(host.down_bytes_per_sec),
        sent_mbit: host.sent_bytes_per_sec.map(mbit),
        received_mbit: host.received_bytes_per_sec.map(mbit),
        confidence: host.confidence,
    }
}

fn group_lines(job: &v1::JobStatus) -> impl Iterator<Item = GroupLine> {
    job.groups.iter().map(|group| GroupLine {
        job: job.name.clone(),
        group: group.group,
        order: group.order,
        ranks: group.ranks.clone(),
        via: group.via.map(|index| format!("a{index}")).unwrap_or_default(),
        state: group.state.clone(),
        age_ms: group.age_ns as f64 / 1e6,
        is_late: group.is_late,
    })
}

fn straggler_lines(job: &v1::JobStatus) -> impl Iterator<Item = StragglerLine> {
    job.workers.iter().map(|worker| StragglerLine {
        job: job.name.clone(),
        rank: worker.rank,
        host: worker.host.clone(),
        is_attached: worker.is_attached,
        committed: worker.committed,
        outstanding: worker.outstanding,
        lag_mean_ms: worker.lag_mean_ns as f64 / 1e6,
        asked_ago_ms: worker.asked_ago_ns.map(|ago_ns| ago_ns as f64 / 1e6),
    })
}

fn reduce_line(
    job: &v1::ReduceStatus,
    now_ns: u64,
    before: Option<&v1::StatusReply>,
) -> ReduceLine {
    let earlier = before.and_then(|before| {
        let was = before.reduces.iter().find(|was| was.job == job.job)?;
        Some((was.rounds, now_ns - before.uptime_ns))
    });
    let rate = |(rounds, span_ns): (u64, u64)| {
        job.rounds.saturating_sub(rounds) as f64 * 1e9 / span_ns as f64
    };
    ReduceLine {
        job: job.name.clone(),
        index: job.job,
        state: state_word(job.state),
        workers: job.workers,
        workers_attached: job.attached,
        cohort: job.cohort,
        next_round: job.next_round,
        rounds_per_s: earlier.map(rate),
        resizes: job.resizes.len(),
        pauses: job.pauses,
        refusing: job.refusing.clone(),
        placed: job.placed.clone(),
        unbegun: job.unbegun.clone(),
        round_messages: job.round_messages,
        round_bytes: job.round_bytes,
        largest_bytes: job.largest_bytes,
        skew: job.skew,
    }
}

#[cfg(test)]
mod tests;
