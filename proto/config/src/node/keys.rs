//! `[[keys]]`: a table of rows whose home this box is.

use alloc::vec::Vec;
use core::net::SocketAddr;

use serde::{Deserialize, Serialize};

use super::defaults;

/// `[[keys]]`: a table of rows of parameters whose home this box is (SPEC#keys). Table, keys and
/// processes are as the processes have them. Of several lanes the first would serve it: needs
/// `lcores.shards = 1`.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct KeysSection {
    /// Index of the job on the wire, below 256.
    pub job: u16,
    /// Which of the job's tables, below 4096. Default 0.
    #[serde(default)]
    pub table: u16,
    /// Elements of a row, each an f32. A row travels in one datagram with all that belongs to it.
    pub row_len: u16,
    /// The first key. Default 0.
    #[serde(default)]
    pub first_key: u64,
    /// Keys, one after the other, at most 268435456.
    pub key_count: u32,
    /// The processes by number, 1 to 64: `"ip:port"`.
    pub processes: Vec<SocketAddr>,
    /// DSCP of the table's frames, 0 to 63, as the processes have it: `[bands]` can give them a
    /// band by it. Default 0.
    #[serde(default)]
    pub dscp: u8,
    /// DSCP of those of them longer than 576 bytes: rows in bulk, calls of many keys. Default: as
    /// `dscp`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bulk_dscp: Option<u8>,
    /// How long a process may be silent before it is dead, in milliseconds. Default 2000.
    #[serde(default = "defaults::death_timeout_ms")]
    pub death_timeout_ms: u64,
}

impl KeysSection {
    /// A table with what has no default.
    #[cfg(feature = "text")]
    #[must_use]
    pub fn new(job: u16, row_len: u16, key_count: u32, processes: Vec<SocketAddr>) -> Self {
        section!(job, row_len, key_count, processes)
    }
}
