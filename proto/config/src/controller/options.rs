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
    /// Derived: a sum moves on chunk by chunk while its last member is still arriving, as servers
    /// that call chunks have it. Off: when all of it is there.
    pub stream_sums: bool,
    /// Derived: how long the server's link may wait for a group, in transfer times of a sum. Groups
    /// that make it wait are tried beside those that do not.
    pub idle_max: f64,
    /// Derived: with `stream_sums`, an update whose own uplink is below this share of the server's
    /// downlink goes through an aggregator even alone, if it is there about as early: the server's
    /// link then takes it at once instead of a trickle. 0 is off.
    pub relay_share: f64,
    /// Derived: what a transfer into the server costs those who ask later, in mean commit time: so
    /// many times its own time on the server's link.
    pub link_price: f64,
    /// Derived: in a case of up to this many updates the plans of the baselines, and the rules
    /// under other switches, are candidates beside the rules', and the best is taken
    /// (`candidates`). Other traffic counts: updates times (updates and twice the reservations) is
    /// at most its square. 0 is off: the rules alone.
    pub candidates_max: u32,
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
    /// As a controller plans, whose workers ask anew as soon as they are answered: what is not set
    /// otherwise takes the values that served closed loops best (engine/tests/closed_loop.rs).
    #[must_use]
    pub fn closed_loop(mut self) -> Self {
        let open = Self::default();
        self.stream_sums = true;
        if self.candidates_max == open.candidates_max {
            // They win a batch and lose the loop: 500 commits a second where the rules have 600.
            self.candidates_max = 0;
        }
        if self.aggregator_choice == open.aggregator_choice {
            self.aggregator_choice = AggregatorChoice::Earliest;
        }
        for (own, default, value) in [
            (&mut self.idle_max, open.idle_max, IDLE_MAX),
            (&mut self.relay_share, open.relay_share, RELAY_SHARE),
            (&mut self.link_price, open.link_price, LINK_PRICE),
        ] {
            if *own == default {
                *own = value;
            }
        }
        self
    }

    /// True when nothing is set otherwise than by default.
    #[must_use]
    pub fn is_default(&self) -> bool {
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
            stream_sums: false,
            idle_max: 0.0,
            relay_share: 0.0,
            link_price: 0.0,
            candidates_max: CANDIDATES_MAX,
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
    /// The one where the next update, and one like it, would be first.
    Earliest,
}

/// What a controller plans at once at most: a larger case is planned by the rules alone.
const CANDIDATES_MAX: u32 = 128;
/// Values of a closed loop.
const IDLE_MAX: f64 = 4.0;
const RELAY_SHARE: f64 = 0.3;
const LINK_PRICE: f64 = 4.0;
