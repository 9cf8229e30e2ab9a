//! `[[job]]`: a job's share of the box.

use alloc::format;
use alloc::string::String;

use serde::{Deserialize, Serialize};

use super::{PushSection, ReplicaSection, ServerSection, defaults};

/// `[[job]]`
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct JobSection {
    /// Index on the wire, below 256, different for each job.
    pub id: u16,
    /// Name in statistics and metrics. Default `job` and its id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// DSCP of the job's frames, 0 to 63, until a controller gives it another: by it hosts and
    /// switches tell the job's frames from others (SPEC, "Labels and bands"). Default 0.
    #[serde(default, skip_serializing_if = "defaults::is_zero")]
    pub dscp: u8,
    /// Slots over all lanes that the job's rows may take together. A slot takes two banks of
    /// `elements` numbers of 4 bytes. Default 4096.
    #[serde(default = "defaults::slots_max")]
    pub slots_max: u32,
    /// Token bucket: bytes of frames per second over all lanes, whatever becomes of them. A
    /// question counts as much as the sum that it may be answered with, and forming a row as
    /// 55000 and some 200 for each of its slots. Default: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_bytes_per_sec: Option<u64>,
    /// Token bucket: depth in bytes, at least 2048. Default 1048576.
    #[serde(default = "defaults::burst_bytes")]
    pub burst_bytes: u64,
}

impl JobSection {
    /// A job without a limit of its rate.
    #[cfg(feature = "text")]
    #[must_use]
    pub fn new(id: u16) -> Self {
        section!(id)
    }
}

macro_rules! named {
    ($($section:ident: $index:ident),*) => {$(
        impl $section {
            /// The job's name in reports.
            #[must_use]
            pub fn display_name(&self) -> String {
                self.name.clone().unwrap_or_else(|| format!("job{}", self.$index))
            }
        }
    )*};
}
named!(JobSection: id, PushSection: job, ServerSection: job, ReplicaSection: job);
