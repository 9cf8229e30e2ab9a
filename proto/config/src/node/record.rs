//! `[record]`: a recording of what the engines met.

use serde::{Deserialize, Serialize};

use super::defaults;
use crate::FilePath;

/// `[record]`: keeps what the node's engines met, for `weft replay`. `--record` has the same.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct RecordSection {
    /// Directory of the recording. It is made, or is there and empty.
    pub directory: FilePath,
    /// Largest size of all its files together, in bytes, at least 65536. The recording ends there,
    /// or where the disk is full or slower than the lanes; the node goes on. Default 268435456.
    #[serde(default = "defaults::record_bytes_max")]
    pub max_bytes: u64,
}

impl RecordSection {
    /// A recording in a directory.
    #[cfg(feature = "text")]
    #[must_use]
    pub fn new(directory: impl Into<FilePath>) -> Self {
        let directory = directory.into();
        section!(directory)
    }

    pub(super) fn has_good_size(&self) -> bool {
        self.max_bytes >= BYTES_MIN
    }
}

/// Less than a few breaths is of no use.
const BYTES_MIN: u64 = 64 << 10;
