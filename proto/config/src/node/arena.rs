//! `[arena]`: what a box keeps free for jobs and leases that come at run time.

use serde::{Deserialize, Serialize};

/// `[arena]`: room for what a controller installs beside the jobs and rows of this file. All of it
/// is taken when the box starts, so that nothing is allocated while frames come; what finds no room
/// is refused. A row of this file that is removed leaves its own place, for leases that are no
/// larger.
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
}

impl Default for ArenaSection {
    fn default() -> Self {
        Self { jobs: None, leases: None, lease_bytes: 1 << 20 }
    }
}
