//! `[[push]]`: a job whose updates this box gathers for its server.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};
use weft_control::BoxIndex;
use weft_engine::role::gather::PushConfig;
use weft_wire::frame::Endpoint;
use weft_wire::header::ElementType;
use weft_wire::hello::{Integrity, Overflow};
use weft_wire::{JobId, MacAddr};

use super::row::{default_element_type, default_overflow};

/// `[[push]]`: whole leases for a job that pushes to a parameter server, and a relay for its pulls.
/// Groups are installed by a controller. Needs `lcores.shards = 1`.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct PushSection {
    /// Index of the job on the wire, below 256; no `[[job]]` may have it.
    pub job: u16,
    /// Name in statistics and metrics. Default `job` and its id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
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
    #[serde(default = "default_elements")]
    pub elements: u16,
    /// `i32` (default) or `f32`. `bf16` is for allreduce.
    #[serde(default = "default_element_type")]
    pub element_type: ElementType,
    /// i32 sums that do not fit: `wrap` (default), or `clamp` each contribution first.
    #[serde(default = "default_overflow")]
    pub overflow: Overflow,
    /// `crc32c` (default) or `none`.
    #[serde(default)]
    pub integrity: Integrity,
    /// Scale exponent of updates that no controller gave one, -126 to 126. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exponent: Option<i8>,
    /// Memory of the whole leases. A chunk takes `elements` x 4 bytes, in whole cache lines, and 16
    /// more; a group takes `chunks` of them from its installation to its decision. Default
    /// 67108864.
    #[serde(default = "default_quota_bytes")]
    pub quota_bytes: u64,
    /// Memory of the chunks of the model that the relay keeps. Default 4194304.
    #[serde(default = "default_pull_cache_bytes")]
    pub pull_cache_bytes: u64,
    /// Token bucket: bytes of frames per second, whatever becomes of them. A request or a credit
    /// counts as much as what it may be answered with. Default: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_bytes_per_sec: Option<u64>,
    /// Token bucket: depth in bytes, at least 2048. Default 1048576.
    #[serde(default = "default_burst_bytes")]
    pub burst_bytes: u64,
}

const fn default_elements() -> u16 {
    256
}

const fn default_quota_bytes() -> u64 {
    64 << 20
}

const fn default_pull_cache_bytes() -> u64 {
    4 << 20
}

const fn default_burst_bytes() -> u64 {
    1 << 20
}

impl PushSection {
    /// The job's name in reports.
    #[must_use]
    pub fn display_name(&self) -> String {
        self.name.clone().unwrap_or_else(|| format!("job{}", self.job))
    }

    /// What the section means. Ethernet addresses are learnt from the first answers.
    #[must_use]
    pub fn to_config(&self) -> PushConfig {
        let endpoint = |addr| Endpoint { mac: MacAddr::BROADCAST, addr };
        PushConfig {
            job: JobId(self.job),
            box_index: BoxIndex(self.box_index),
            workers: self.workers.clone(),
            server: endpoint(self.server),
            replica: self.replica.map(endpoint),
            quota_bytes: self.quota_bytes,
            pull_cache_bytes: self.pull_cache_bytes,
            chunks: self.chunks,
            elements: self.elements,
            element_type: self.element_type,
            overflow: self.overflow,
            integrity: self.integrity,
            exponent: self.exponent,
            rate_bytes_per_sec: self.rate_bytes_per_sec,
            burst_bytes: self.burst_bytes,
        }
    }
}
