//! The switches of a plan. *Derived* ones stand for what MLfabric's public sources leave open.

use serde::{Deserialize, Serialize};

/// How to plan.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Options {
    /// What the grouping makes small.
    pub objective: Objective,
    /// Never drop an update that could still commit in time (derived drop rule off).
    pub no_drop: bool,
    /// Send every update straight to its server.
    pub no_aggregate: bool,
    /// Derived: a forced update is dropped when it costs the others more than this many median
    /// transfer times of mean commit time.
    pub theta: f64,
    /// Derived: share of the last [`Options::drop_window`] updates that may be dropped.
    pub drop_limit: f64,
    /// Derived: how many updates the budget looks back on, this plan's included.
    pub drop_window: u32,
    /// Drops among the last [`Options::drop_window`] updates before this plan.
    pub recent_drops: u32,
    /// Derived: an update whose own uplink is below this share of the server's downlink is sent
    /// first instead of last, since it hardly takes anything away. 0 is off.
    pub thin_flow_share: f64,
    /// Derived: which aggregator is tried next.
    pub aggregator_choice: AggregatorChoice,
    /// Derived: for a server with up to this many updates the grouping tries every number of
    /// direct ones; beyond, numbers that grow geometrically, then those around the best.
    pub direct_search: u32,
    /// Partial rounds: the first this many updates of each server are committed, the others are
    /// dropped. Missing: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub best_of: Option<u32>,
    /// Policy `newest-first`: transfers under way at one time for each server.
    pub outstanding_max: u32,
    /// Policy `chain`: the server copies to its replica after every this many commits.
    pub chain_every: u32,
}

impl Options {
    pub(crate) fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            objective: Objective::Mean,
            no_drop: false,
            no_aggregate: false,
            theta: 1.0,
            drop_limit: 0.1,
            drop_window: 100,
            recent_drops: 0,
            thin_flow_share: 0.0,
            aggregator_choice: AggregatorChoice::RoundRobin,
            direct_search: 64,
            best_of: None,
            outstanding_max: 8,
            chain_every: 1,
        }
    }
}

/// What the grouping makes small.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Objective {
    /// Mean commit time: asynchronous training.
    #[default]
    Mean,
    /// Last commit: synchronous training.
    Last,
}

/// Which aggregator the next group tries.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AggregatorChoice {
    /// The next one in the case's list, on every attempt.
    #[default]
    RoundRobin,
    /// The one whose downlink is free first.
    FirstFree,
}
