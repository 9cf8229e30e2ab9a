//! `[faults]` and `[trace]`: what is put around the port, for tests and experiments.

use serde::{Deserialize, Serialize};

use super::defaults;
use crate::FilePath;

/// `[faults]`: what happens to Weft's datagrams between the wire and the engine, in both
/// directions. Rates are probabilities from 0 to 1. The same datagram meets the same fate in every
/// run with the same seed.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct FaultsSection {
    /// Seed of all decisions. Default 0.
    pub seed: u64,
    /// Share of datagrams that vanish. Default 0, as for the other rates.
    pub loss: f64,
    /// Share that come twice.
    pub duplicate: f64,
    /// Share that later ones overtake.
    pub reorder: f64,
    /// Share that are held for a time.
    pub delay: f64,
    /// Share with a range of bytes overwritten.
    pub corrupt: f64,
    /// A reordered datagram is overtaken by 1 to this many. Default 8.
    pub reorder_span: u32,
    /// Shortest delay in microseconds. Default 100.
    pub delay_min_us: u64,
    /// Longest delay in microseconds. Default 2000.
    pub delay_max_us: u64,
    /// How long every frame takes more in each direction, in microseconds, as over a long link.
    /// Default 0.
    pub link_delay_us: u64,
}

impl Default for FaultsSection {
    fn default() -> Self {
        Self {
            seed: 0,
            loss: 0.0,
            duplicate: 0.0,
            reorder: 0.0,
            delay: 0.0,
            corrupt: 0.0,
            reorder_span: 8,
            delay_min_us: 100,
            delay_max_us: 2000,
            link_delay_us: 0,
        }
    }
}

impl FaultsSection {
    /// The first key that is out of range.
    pub(super) fn problem(&self) -> Option<(&'static str, &'static str)> {
        let rates = [
            ("loss", self.loss),
            ("duplicate", self.duplicate),
            ("reorder", self.reorder),
            ("delay", self.delay),
            ("corrupt", self.corrupt),
        ];
        if let Some((key, _)) = rates.into_iter().find(|(_, rate)| !(0.0..=1.0).contains(rate)) {
            return Some((key, "must be a probability, from 0 to 1"));
        }
        if self.reorder_span == 0 {
            return Some(("reorder_span", "must be at least 1"));
        }
        if self.delay_min_us > self.delay_max_us {
            return Some(("delay_min_us", "must be at most delay_max_us"));
        }
        None
    }
}

/// `[trace]`
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct TraceSection {
    /// File for a capture (pcap with nanoseconds) of what the port received and sent, before and
    /// after `[faults]`; it is overwritten.
    pub pcap: FilePath,
    /// Its largest size in MiB. The capture ends with the last frame that has room; how many came
    /// after it is in the statistics. So it is when the disk is full, which the node says as well.
    /// Default 1024.
    #[serde(default = "defaults::size_max_mib")]
    pub size_max_mib: u64,
}

impl TraceSection {
    /// A capture into a file.
    #[cfg(feature = "text")]
    #[must_use]
    pub fn new(pcap: impl Into<FilePath>) -> Self {
        let pcap = pcap.into();
        section!(pcap)
    }

    pub(super) fn has_good_size(&self) -> bool {
        (1..=SIZE_MIB_MAX).contains(&self.size_max_mib)
    }
}

/// Beyond it a capture is of no use to anybody.
const SIZE_MIB_MAX: u64 = 1 << 20;
