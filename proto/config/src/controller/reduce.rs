//! `[[reduce]]`: an allreduce job as the controller steers it.

use alloc::string::String;
use alloc::vec::Vec;
use core::net::SocketAddr;

use serde::{Deserialize, Serialize};
use weft_wire::hello::{Integrity, Overflow};

/// `[[reduce]]`: a training job whose gradients are summed by allreduce. The controller has its
/// aggregator hold its lease, and stops its workers at a round's boundary: to pause it, or to go on
/// with as many workers as somebody says.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ReduceConfig {
    /// Its name, unlike any other job's.
    pub name: String,
    /// The index that packets carry, unlike any other job's.
    pub index: u16,
    /// Node of its aggregator, with room for a lease in its `[arena]`.
    pub aggregator: String,
    /// Row of its lease there. Default 0.
    #[serde(default)]
    pub row: u16,
    /// Where workers may run, by rank: at most as many as these, at most 64.
    pub places: Vec<PlaceConfig>,
    /// Which of its places a number of workers gets: `order` (default), the first; `consolidate`,
    /// on as few hosts as possible; `fragments`, on the hosts with least room first; `skew`, as
    /// `consolidate` where one tensor is much larger than the others, by what was seen of the
    /// messages, or nothing was seen yet, and else as `fragments`.
    #[serde(default, skip_serializing_if = "Placement::is_default")]
    pub placement: Placement,
    /// For `skew`: the largest tensor's part of all, from 0 to 1, above which it is much larger.
    /// Default 0.4.
    #[serde(default = "pack_limit", skip_serializing_if = "is_pack_limit")]
    pub pack_limit: f64,
    /// How long, in seconds, the workers of a resize may take to begin, from the end of those
    /// before; after that whoever asked is told who is missing, and may ask again. Up to 86400.
    /// Default 120.
    #[serde(default = "begin_timeout_s", skip_serializing_if = "is_begin_timeout_s")]
    pub begin_timeout_s: f64,
    /// How long, in seconds, workers may take to stop for a pause or a resize: until all stand
    /// before the same round, and for a resize as long again until all have kept their checkpoint.
    /// After that whoever asked is told who was waited for, and the job goes on as it was. A round
    /// is to be shorter. Up to 86400. Default 300.
    #[serde(default = "stop_timeout_s", skip_serializing_if = "is_stop_timeout_s")]
    pub stop_timeout_s: f64,
    /// Workers at the start, at least 1. The training program's learning rate is meant for these.
    pub workers: u16,
    /// Slots of the lease, as of a row of a box's file. Default 256.
    #[serde(default = "window")]
    pub window: u16,
    /// Elements per chunk. Default 256.
    #[serde(default = "elements")]
    pub elements: u16,
    /// Chunks before the group must be formed again. Default 2^31.
    #[serde(default = "chunks_max")]
    pub chunks_max: u32,
    /// Scale exponent: a value is element x 2^exponent.
    pub exponent: i8,
    /// Rounds of the whole job: what a policy that widens jobs weighs. Default: not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rounds: Option<u64>,
    /// i32 sums that do not fit: `wrap`, or `clamp` each contribution first. Default `clamp`.
    #[serde(default = "clamp")]
    pub overflow: Overflow,
    /// `crc32c` (default), `checksum16` or `none`.
    #[serde(default)]
    pub integrity: Integrity,
}

/// How workers get their places.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Placement {
    /// The first ones.
    #[default]
    Order,
    /// On as few hosts as possible.
    Consolidate,
    /// On the hosts that have the least room first.
    Fragments,
    /// As `Consolidate` or as `Fragments`, by the sizes of the messages that were seen (Tiresias).
    Skew,
}

impl Placement {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
    fn is_default(&self) -> bool {
        *self == Self::Order
    }
}

/// Where a worker may run.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct PlaceConfig {
    /// Its host.
    pub host: String,
    /// "address:port" of its data port.
    pub address: SocketAddr,
}

impl ReduceConfig {
    /// A job with what has no default.
    #[cfg(feature = "text")]
    #[must_use]
    pub fn new(
        name: &str,
        index: u16,
        aggregator: &str,
        (places, workers): (Vec<PlaceConfig>, u16),
        exponent: i8,
    ) -> Self {
        let (name, aggregator) = (String::from(name), String::from(aggregator));
        section!(name, index, aggregator, places, workers, exponent)
    }
}

const fn window() -> u16 {
    256
}

const fn elements() -> u16 {
    256
}

const fn chunks_max() -> u32 {
    1 << 31
}

/// Between the models whose largest tensor Tiresias found to hold jobs up, and the others.
const fn pack_limit() -> f64 {
    0.4
}

#[expect(clippy::trivially_copy_pass_by_ref, clippy::float_cmp, reason = "serde's signature")]
fn is_pack_limit(limit: &f64) -> bool {
    *limit == pack_limit()
}

const fn begin_timeout_s() -> f64 {
    120.0
}

#[expect(clippy::trivially_copy_pass_by_ref, clippy::float_cmp, reason = "serde's signature")]
fn is_begin_timeout_s(timeout_s: &f64) -> bool {
    *timeout_s == begin_timeout_s()
}

const fn stop_timeout_s() -> f64 {
    300.0
}

#[expect(clippy::trivially_copy_pass_by_ref, clippy::float_cmp, reason = "serde's signature")]
fn is_stop_timeout_s(timeout_s: &f64) -> bool {
    *timeout_s == stop_timeout_s()
}

const fn clamp() -> Overflow {
    Overflow::Clamp
}

/// `[job_policy]`: a policy of whole jobs, those of `weft cluster`, on the jobs of this controller:
/// it pauses and resumes them by what they were served, and widens allreduce jobs.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct JobPolicySection {
    /// Its name: `dlas-gpu` is Tiresias, `doubling` the doubling heuristic. docs/job-policies.md
    /// has them all.
    pub policy: String,
    /// Workers that may be at work at a time.
    pub slots: u32,
    /// How often it is asked, in milliseconds. Default 200.
    #[serde(default = "period_ms")]
    pub period_ms: u64,
    /// Limits of Tiresias' upper queues, in worker-seconds, growing. Default: 3250 and 7200.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub queue_limits_s: Vec<f64>,
    /// A job that waited so many times as long as it ran goes back to the first queue. Default:
    /// none does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub promote_knob: Option<f64>,
    /// What a change of width costs, in milliseconds. Default 10000.
    #[serde(default = "restart_ms")]
    pub restart_ms: u64,
}

const fn period_ms() -> u64 {
    200
}

const fn restart_ms() -> u64 {
    10_000
}
