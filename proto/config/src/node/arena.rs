//! `[arena]`: what a box keeps free for what comes at run time.

use serde::{Deserialize, Serialize};

/// `[arena]`: room for what a controller installs beside the jobs, rows and push jobs of this file.
/// All of it is taken when the box starts, so that nothing is allocated while frames come; what
/// finds no room is refused. A row or push job of this file that is removed leaves its own place,
/// for those that are no larger.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct ArenaSection {
    /// Jobs beside those of this file, together at most 256. Default 8, or as many as there may be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jobs: Option<u16>,
    /// Windowed leases beside the rows of this file, together at most 1024. Each takes
    /// `lease_bytes`, and for members and slots some 300 KiB more in each lane, of which only what
    /// is used costs memory. Default 8, or as many as there may be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leases: Option<u16>,
    /// Bytes of slots of each of them, over all lanes: a slot takes two banks of `elements` x 4
    /// bytes, in whole cache lines; in rank order of each member and the sum. Default 1048576,
    /// which is 512 slots of 256 elements.
    pub lease_bytes: u64,
    /// Push jobs beside those of this file, together at most 256. Default 2, or as many as there
    /// may be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pushes: Option<u16>,
    /// What each of them may have as its `quota_bytes`; it takes up to a fifth more, and 1 MiB for
    /// its groups. Default 8388608, which is 8065 slots of 256 elements.
    pub push_bytes: u64,
    /// What each of them may have as its `pull_cache_bytes`, where a chunk counts as 64 bytes at
    /// least; it takes up to three eighths more. Default 1048576.
    pub pull_cache_bytes: u64,
}

impl Default for ArenaSection {
    fn default() -> Self {
        Self {
            jobs: None,
            leases: None,
            lease_bytes: 1 << 20,
            pushes: None,
            push_bytes: 8 << 20,
            pull_cache_bytes: 1 << 20,
        }
    }
}
