//! `[[push]]`: a job whose updates this box gathers for its server.

use alloc::string::String;
use alloc::vec::Vec;
use core::net::SocketAddr;

use serde::{Deserialize, Serialize};
use weft_wire::header::ElementType;
use weft_wire::hello::{Integrity, Overflow};

use super::defaults;

/// `[[push]]`: whole leases for a job that pushes to a parameter server, and a relay for its pulls.
/// Groups are installed by a controller. Of several lanes the first serves them.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct PushSection {
    /// Index of the job on the wire, below 256; no `[[job]]` may have it, for groups and rows share
    /// their numbers on the wire.
    pub job: u16,
    /// Name in statistics and metrics. Default `job` and its id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// DSCP of the job's frames, 0 to 63, until a controller gives it another: by it hosts and
    /// switches tell the job's frames from others (SPEC, "Labels and bands"). Default 0.
    #[serde(default, skip_serializing_if = "defaults::is_zero")]
    pub dscp: u8,
    /// This aggregator among the job's boxes, below 64. Default 0.
    #[serde(default)]
    pub box_index: u8,
    /// The workers by rank, 1 to 64: `"ip:port"`.
    pub workers: Vec<SocketAddr>,
    /// Where the job's server listens.
    pub server: SocketAddr,
    /// Where the job's replica listens, which gets a copy of the sums of groups that say so.
    /// Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replica: Option<SocketAddr>,
    /// Chunks of the job's model, at most 2^20.
    pub chunks: u32,
    /// Elements per chunk. Default 256, which fits an MTU of 1500 with 4-byte elements.
    #[serde(default = "defaults::elements")]
    pub elements: u16,
    /// `i32` (default) or `f32`. `bf16` is for allreduce.
    #[serde(default = "defaults::element_type")]
    pub element_type: ElementType,
    /// i32 sums that do not fit: `wrap` (default), or `clamp` each contribution first.
    #[serde(default = "defaults::overflow")]
    pub overflow: Overflow,
    /// `crc32c` (default), `checksum16` (UDP's, for P4 peers), or `none`.
    #[serde(default)]
    pub integrity: Integrity,
    /// Scale exponent of updates that no controller gave one, -126 to 126. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exponent: Option<i8>,
    /// Memory of the whole leases. A chunk takes `elements` x 4 bytes, in whole cache lines, and 16
    /// more; a group takes `chunks` of them from its installation to its decision. Default
    /// 67108864, at most 2^38.
    #[serde(default = "defaults::quota_bytes")]
    pub quota_bytes: u64,
    /// Memory of the chunks of the model that the relay keeps, at most 2^38. Default 4194304.
    #[serde(default = "defaults::pull_cache_bytes")]
    pub pull_cache_bytes: u64,
    /// Token bucket: bytes of frames per second, whatever becomes of them. A request or a credit
    /// counts as much as what it may be answered with. Default: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_bytes_per_sec: Option<u64>,
    /// Token bucket: depth in bytes, at least 2048. Default 1048576.
    #[serde(default = "defaults::burst_bytes")]
    pub burst_bytes: u64,
}

impl PushSection {
    /// A job with what has no default.
    #[cfg(feature = "text")]
    #[must_use]
    pub fn new(job: u16, workers: Vec<SocketAddr>, server: SocketAddr, chunks: u32) -> Self {
        section!(job, workers, server, chunks)
    }
}
