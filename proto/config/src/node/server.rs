//! `[[server]]` and `[[replica]]`: jobs whose model this node holds.

use alloc::string::String;
use alloc::vec::Vec;
use core::net::SocketAddr;

use serde::{Deserialize, Serialize};
use weft_control::{AckMode, CommitMode, ConductMode, LearningRate};
use weft_wire::hello::Integrity;

use super::defaults;
use crate::FilePath;

/// `[[server]]`: a job whose parameter server this node is. A node with servers has no rows, push
/// jobs or replicas: start one process per role. Needs `lcores.shards = 1`.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ServerSection {
    /// Index of the job on the wire, below 256.
    pub job: u16,
    /// Name in statistics and metrics. Default `job` and its id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// DSCP of the job's frames, 0 to 63, until a controller gives it another: by it hosts and
    /// switches tell the job's frames from others (SPEC, "Labels and bands"). Default 0.
    #[serde(default, skip_serializing_if = "defaults::is_zero")]
    pub dscp: u8,
    /// The workers by rank, 1 to 64: `"ip:port"`.
    pub workers: Vec<SocketAddr>,
    /// The aggregators and the replica by index: `"ip:port"`. Default: none.
    #[serde(default)]
    pub boxes: Vec<SocketAddr>,
    /// Index of the replica among `boxes`. Default: no replica.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replica: Option<u8>,
    /// Parameters of the model.
    pub dimension: usize,
    /// Elements per chunk. Default 256.
    #[serde(default = "defaults::elements")]
    pub elements: u16,
    /// Scale exponent of updates that no controller gave one, -126 to 126. Default -20.
    #[serde(default = "defaults::exponent")]
    pub exponent: i8,
    /// `crc32c` (default), `checksum16` or `none`.
    #[serde(default)]
    pub integrity: Integrity,
    /// h = momentum x h + sum, from 0 (default) to 1.
    #[serde(default)]
    pub momentum: f32,
    /// `plain` (default), `inverse_delay` or `ada_delay`.
    #[serde(default)]
    pub learning_rate: LearningRate,
    /// Greatest delay of a committed update. Default: twice the workers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tau_max: Option<u64>,
    /// Bound of the distance to the replica. Default: it is measured, not held.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub div_max: Option<f64>,
    /// How long a commit may wait for the replica for the bound's sake, in milliseconds. Default
    /// 1000.
    #[serde(default = "defaults::divergence_wait_ms")]
    pub divergence_wait_ms: u64,
    /// `order` (default) or `arrival`.
    #[serde(default)]
    pub commit: CommitMode,
    /// `in_order` (default) or `fair`.
    #[serde(default)]
    pub conduct: ConductMode,
    /// `commit` (default) or `replica`.
    #[serde(default)]
    pub ack: AckMode,
    /// What the node's link may receive for this job: bytes of frames per second, of which 31/32
    /// are called for. A controller sets it anew. Default: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_bytes_per_sec: Option<u64>,
    /// Lateness bound of updates without a controller, in milliseconds. Default 2000.
    #[serde(default = "defaults::lateness_ms")]
    pub lateness_ms: u64,
    /// How long the node must have been without its controller before updates that nobody granted
    /// are taken, in milliseconds. Default 1000.
    #[serde(default = "defaults::fallback_ms")]
    pub fallback_ms: u64,
    /// How long an aggregator may be silent, in milliseconds, before members are asked. Default
    /// 500.
    #[serde(default = "defaults::source_timeout_ms")]
    pub source_timeout_ms: u64,
    /// Groups open at a time, at most 1024. Default 256.
    #[serde(default = "defaults::groups_open_max")]
    pub groups_open_max: u16,
    /// Memory of updates that are staged, at most 2^38. Default 268435456.
    #[serde(default = "defaults::staging_bytes_max")]
    pub staging_bytes_max: u64,
    /// Decisions that the log keeps for the replica, at most 2^20. Default 1024.
    #[serde(default = "defaults::log_entries_max")]
    pub log_entries_max: usize,
    /// Memory of sums that the log keeps for the replica, at most 2^38. Default 268435456.
    #[serde(default = "defaults::staging_bytes_max")]
    pub log_bytes_max: u64,
    /// Versions that can be pulled at a time, 1 to 64. Default: one for each worker and box, and
    /// two more, so that everybody can pull another one. Each takes twice the model's memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshots_max: Option<usize>,
    /// Credits in flight per source. Default 256. A group without a granted rate uses 64 of them,
    /// one with a rate what flows in 6 ms and two of the shortest round trips.
    #[serde(default = "defaults::credits_window_max")]
    pub window_max: u32,
    /// Credits in flight of all sources together. Default 512.
    #[serde(default = "defaults::credits_max")]
    pub credits_max: u32,
    /// Least time before a credit is repeated, in microseconds, where no later answer shows that it
    /// is lost. Default 20000.
    #[serde(default = "defaults::credit_rto_min_us")]
    pub rto_min_us: u64,
    /// Greatest time before a credit is repeated, in microseconds. Default 200000.
    #[serde(default = "defaults::rto_max_us")]
    pub rto_max_us: u64,
    /// File with the model to begin with: f32, little-endian, nothing else. Default: zeros.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initial_model: Option<FilePath>,
    /// Version of that model. Default 0.
    #[serde(default)]
    pub initial_version: u64,
    /// The order number that is decided first. Default 0.
    #[serde(default)]
    pub initial_order: u64,
    /// File that the model is written to when the node ends, in the same form. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dump_model: Option<FilePath>,
    /// Directory where the job is kept: every decision is on disk before anybody is told of it, and
    /// a node that starts again, after whatever end, goes on from there; `initial_*` are then for
    /// the first start only. A file that is missing or damaged there is an error that says what it
    /// costs, never a silent start. Default: none. A server that ends then forgets its momentum,
    /// the commits since its initial model, and what it told its workers: the job must begin anew.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state_dir: Option<FilePath>,
    /// Bytes that the journal in `state_dir` may have before a checkpoint of the model takes its
    /// place; at least eight updates. While the checkpoint is made the next journal may have as
    /// many. Default 67108864.
    #[serde(default = "defaults::journal_bytes_max")]
    pub journal_bytes_max: u64,
}

/// `[[replica]]`: a job whose replica this node is. Model and workers are the server's. A node with
/// replicas has no rows, push jobs or servers. Needs `lcores.shards = 1`.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ReplicaSection {
    /// Index of the job on the wire, below 256.
    pub job: u16,
    /// Name in statistics and metrics. Default `job` and its id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// DSCP of the job's frames, 0 to 63, until a controller gives it another: by it hosts and
    /// switches tell the job's frames from others (SPEC, "Labels and bands"). Default 0.
    #[serde(default, skip_serializing_if = "defaults::is_zero")]
    pub dscp: u8,
    /// This replica's index among the job's boxes.
    pub box_index: u8,
    /// Where the server listens.
    pub server: SocketAddr,
    /// The workers by rank, 1 to 64.
    pub workers: Vec<SocketAddr>,
    /// The job's boxes by index, as at the server. Default: none.
    #[serde(default)]
    pub boxes: Vec<SocketAddr>,
    /// Parameters of the model.
    pub dimension: usize,
    /// Elements per chunk. Default 256.
    #[serde(default = "defaults::elements")]
    pub elements: u16,
    /// As at the server. Default -20.
    #[serde(default = "defaults::exponent")]
    pub exponent: i8,
    /// As at the server. Default `crc32c`.
    #[serde(default)]
    pub integrity: Integrity,
    /// As at the server. Default 0.
    #[serde(default)]
    pub momentum: f32,
    /// As at the server. Default `plain`.
    #[serde(default)]
    pub learning_rate: LearningRate,
    /// Groups whose copies are staged at a time, at most 1024. Default 256.
    #[serde(default = "defaults::groups_open_max")]
    pub groups_open_max: u16,
    /// Memory of updates that are staged, at most 2^38. Default 268435456.
    #[serde(default = "defaults::staging_bytes_max")]
    pub staging_bytes_max: u64,
    /// How long copies may come after the decision before they are asked for, in microseconds.
    /// Default 5000.
    #[serde(default = "defaults::copy_grace_us")]
    pub copy_grace_us: u64,
    /// Time between two questions for what is next, in microseconds. Default 20000.
    #[serde(default = "defaults::status_interval_us")]
    pub status_interval_us: u64,
    /// Chunks asked for at a time. Default 64.
    #[serde(default = "defaults::window_max")]
    pub window_max: u32,
    /// Least time before a question is repeated, in microseconds. Default 2000.
    #[serde(default = "defaults::rto_min_us")]
    pub rto_min_us: u64,
    /// Greatest time before a question is repeated, in microseconds. Default 200000.
    #[serde(default = "defaults::rto_max_us")]
    pub rto_max_us: u64,
    /// As at the server, in whose place this node may come. Default: twice the workers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tau_max: Option<u64>,
    /// As at the server. Default 2000.
    #[serde(default = "defaults::lateness_ms")]
    pub lateness_ms: u64,
    /// As at the server. Default: zeros.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initial_model: Option<FilePath>,
    /// As at the server. Default 0.
    #[serde(default)]
    pub initial_version: u64,
    /// As at the server. Default 0.
    #[serde(default)]
    pub initial_order: u64,
    /// File that the model is written to when the node ends. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dump_model: Option<FilePath>,
}

impl ServerSection {
    /// A job with what has no default.
    #[cfg(feature = "text")]
    #[must_use]
    pub fn new(job: u16, workers: Vec<SocketAddr>, dimension: usize) -> Self {
        section!(job, workers, dimension)
    }
}

impl ReplicaSection {
    /// A job with what has no default.
    #[cfg(feature = "text")]
    #[must_use]
    pub fn new(
        job: u16,
        box_index: u8,
        server: SocketAddr,
        workers: Vec<SocketAddr>,
        dimension: usize,
    ) -> Self {
        section!(job, box_index, server, workers, dimension)
    }
}
