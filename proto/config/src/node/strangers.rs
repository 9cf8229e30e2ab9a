//! `[strangers]`: what frames that do not show whose they are may cost.

use serde::{Deserialize, Serialize};

/// `[strangers]`: handshakes that begin, and frames with another cookie or from another address
/// than a member's, are answered out of these token buckets and never out of a job's: one for each
/// address of the tables and one for all other addresses together, in each lane.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct StrangersSection {
    /// Bytes of frames per second that are answered. Default 1000000.
    pub rate_bytes_per_sec: u64,
    /// Depth in bytes, at least 2048. Default 65536.
    pub burst_bytes: u64,
}

impl Default for StrangersSection {
    fn default() -> Self {
        Self { rate_bytes_per_sec: 1_000_000, burst_bytes: 64 << 10 }
    }
}
