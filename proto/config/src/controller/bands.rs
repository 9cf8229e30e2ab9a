//! `[bands]`: which jobs' frames leave a host first, where several jobs' servers share its link.

use serde::{Deserialize, Serialize};
use weft_control::BandPolicy;

/// `[bands]`. With it each job has a label, the DSCP of its frames, and bands on the host that its
/// server runs on: each box there whose file has `[bands]` is told them.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct BandsConfig {
    /// `fifo` (default): no bands, all share. `one`: each job keeps its band, smaller models before
    /// larger ones. `round-robin`: jobs with models of one size take turns in their bands. An
    /// operator may set another one at run time (SetBandPolicy), until the next start.
    pub policy: BandPolicy,
    /// Seconds between two turns of `round-robin`, 1 to 86400. Default 20.
    pub interval_s: u64,
}

impl BandsConfig {
    /// Time between two turns.
    #[must_use]
    pub const fn interval_ns(&self) -> u64 {
        self.interval_s.saturating_mul(1_000_000_000)
    }

    /// What is wrong with the interval, if anything.
    #[must_use]
    pub fn interval_problem(&self) -> Option<&'static str> {
        let is_good = (1..=INTERVAL_S_MAX).contains(&self.interval_s);
        (!is_good).then_some("must be 1 to 86400 seconds, a day")
    }
}

impl Default for BandsConfig {
    fn default() -> Self {
        Self { policy: BandPolicy::Fifo, interval_s: 20 }
    }
}

const INTERVAL_S_MAX: u64 = 86_400;
