//! `[bench]`: what `weft-bench` measures. A node that has it does not serve.

use serde::{Deserialize, Serialize};

use super::defaults;
use crate::FilePath;

/// `[bench]`: what `weft-bench` measures (`weft bench` writes it); `weft-node` refuses it. It
/// measures for `seconds` and ends with one JSON object. It needs one lane, and a row for each job.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct BenchSection {
    /// `replay`: be the aggregator of a device that delivers the same frames for ever. `generate`:
    /// be all members of the row at once, against an aggregator on the other end of the device.
    /// `echo`: as `generate`, against something that sends every frame back. `loop`: as `replay`,
    /// on a device made of memory, without DPDK, for `packets` instead of `seconds`. `quota`: one
    /// whose contributions come as fast as the job's token bucket allows; without DPDK too.
    /// `forged`: the same, and all the time between is filled with forged frames.
    pub mode: BenchMode,
    /// `replay`, `loop`: how long slots live. `windowed` (default), or `whole`: two groups of 64
    /// MiB take turns, one gathers while the other is released.
    #[serde(default)]
    pub lease: LeaseName,
    /// `replay`: this file is written before EAL starts, for a device that replays it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pcap: Option<FilePath>,
    /// How long to measure, after a warm-up of a tenth of it. Default 1.
    #[serde(default = "defaults::seconds")]
    pub seconds: f64,
    /// `loop`: packets to handle. Default 10000.
    #[serde(default = "defaults::packets")]
    pub packets: u64,
    /// Different frames over all members, at most 1048576. Default 256: contributions come from cache, as they would
    /// from a NIC that writes into it.
    #[serde(default = "defaults::frames")]
    pub frames: u32,
    /// `replay`, `loop`: steps that a member sends before it is the next member's turn. Default 1:
    /// the contributions to a step stand one behind another.
    #[serde(default = "defaults::order")]
    pub order: u32,
    /// `replay`, `loop`: frames carry a VLAN tag, which an aggregator refuses. Default false.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub vlan: bool,
    /// Answers from one that is compared with the reference to the next. Default 61.
    #[serde(default = "defaults::check_every")]
    pub check_every: u32,
}

impl BenchSection {
    /// A bench with what has no default.
    #[cfg(feature = "text")]
    #[must_use]
    pub fn new(mode: BenchMode) -> Self {
        section!(mode)
    }
}

/// What a bench measures.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum BenchMode {
    /// An aggregator on replayed frames.
    Replay,
    /// The members, against an aggregator.
    Generate,
    /// The members, against an echo.
    Echo,
    /// An aggregator on frames from memory.
    Loop,
    /// A job at its quota.
    Quota,
    /// A job at its quota among forged frames.
    Forged,
}

/// How long slots live.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LeaseName {
    /// A window of slots with two banks.
    #[default]
    Windowed,
    /// A slot per chunk.
    Whole,
}
