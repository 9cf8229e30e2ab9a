//! What is told of an allreduce job.

use alloc::string::String;
use alloc::vec::Vec;

use serde::Serialize;
use weft_control::JobState;

use super::job::Reduce;
use crate::Controller;
use crate::steered::{PauseStatus, Resize};

/// An allreduce job.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ReduceStatus {
    /// Its name.
    pub name: String,
    /// Its index.
    pub job: u16,
    /// What it is doing.
    pub state: JobState,
    /// Its cohort, one more with every resize.
    pub cohort: u32,
    /// Its workers.
    pub workers: u16,
    /// Those that have a stream.
    pub attached: usize,
    /// The round that the cohort began with.
    pub from_round: u64,
    /// The round that comes next.
    pub next_round: u64,
    /// The round that it stops before, if it does.
    pub boundary: Option<u64>,
    /// Its box holds the cohort's lease.
    pub is_leased: bool,
    /// Workers of the cohort are to be started: its lease is in, and they have not begun.
    pub wants_workers: bool,
    /// Rounds that this controller saw end, and the bytes that workers gave to their sums.
    pub rounds: u64,
    /// See above.
    pub bytes: u64,
    /// Time that it ran, as this controller saw it.
    pub executed_ns: u64,
    /// That times its workers of the time.
    pub service_ns: u64,
    /// Rounds of the whole job, if its configuration says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rounds_max: Option<u64>,
    /// Workers that it began with, and may have at most.
    pub workers_first: u16,
    /// See above.
    pub places: usize,
    /// The place of each of its workers, by rank.
    pub placed: Vec<u16>,
    /// How long a round takes at this width; 0: not known.
    pub round_ns: u64,
    /// Tensors that its first worker summed in a round, their bytes, and those of the largest; 0:
    /// not known.
    pub round_messages: u32,
    /// See above.
    pub round_bytes: u64,
    /// See above.
    pub largest_bytes: u64,
    /// The largest tensor's part of all, from 0 to 1, over the last rounds; none: not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skew: Option<f64>,
    /// Its last resizes.
    pub resizes: Vec<Resize>,
    /// Its pauses.
    #[serde(flatten)]
    pub pauses: PauseStatus,
    /// Why its box holds no lease, if it said so; else empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub refusing: String,
    /// Why the workers of its last resize have not begun, once that took too long; else empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub unbegun: String,
}

impl Controller {
    pub(crate) fn reduce_status(&self) -> Vec<ReduceStatus> {
        let status = |job: &Reduce| {
            let (cohort, seen, sizes) = (job.cohort(), job.seen(), job.seen().sizes);
            ReduceStatus {
                name: job.config.name.clone(),
                job: job.id.0,
                state: job.state(),
                cohort: cohort.id.0,
                workers: cohort.workers,
                attached: job.attached(),
                from_round: cohort.from_round,
                next_round: job.next_round(),
                boundary: job.boundary(),
                is_leased: job.is_leased(),
                wants_workers: job.wants_workers(),
                rounds: seen.rounds,
                bytes: seen.bytes,
                executed_ns: seen.executed_ns,
                service_ns: seen.service_ns,
                rounds_max: job.config.rounds,
                workers_first: cohort.workers_first,
                places: job.config.places.len(),
                placed: job.places().to_vec(),
                round_ns: seen.round_ns,
                round_messages: sizes.last().count,
                round_bytes: sizes.last().bytes,
                largest_bytes: sizes.last().largest_bytes,
                skew: sizes.skew(),
                resizes: job.resizes().collect(),
                pauses: job.pauses(),
                unbegun: job.unbegun().into(),
                refusing: job.refused().map_or_else(String::new, |error| format!("{error}")),
            }
        };
        self.reduces.values().map(status).collect()
    }
}
