//! Puts a simulation together from what is chosen by name.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;

use super::Parts;
use super::speed::{BySpread, ByWidth, Costs, Speeds};
use crate::place::network::ByNetwork;
use crate::place::{Options, Placement};
use crate::policy::{AnyPolicy, Jobs, PolicyError, Setting};

/// What is chosen; [`Parts`] are made of it for every run anew.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Who runs.
    pub policy: AnyPolicy<Jobs>,
    /// What the policy knows: the cluster, the knobs, the speeds by width.
    pub setting: Setting,
    /// Where jobs go.
    pub placement: &'static Placement,
    /// What can be turned at placements.
    pub options: Options,
    /// How many times as long a skewed model takes that is spread; 1 is as long. Without a network
    /// in `options`, which knows better.
    pub spread_slowdown: f64,
    /// What a start takes.
    pub costs: Costs,
}

impl Setup {
    /// A policy with its own placement, and nothing turned.
    #[must_use]
    pub fn new(policy: AnyPolicy<Jobs>, setting: Setting) -> Self {
        let placement = crate::place::default_of(policy.manner());
        let (options, costs) = (Options::default(), Costs::default());
        Self { policy, setting, placement, options, spread_slowdown: 1.0, costs }
    }

    /// The parts of one run.
    ///
    /// # Errors
    /// What the policy says against the setting.
    pub fn parts(&self) -> Result<Parts, PolicyError> {
        let Setting { cluster, widths, .. } = &self.setting;
        let widths = Arc::clone(widths);
        let speeds: Box<dyn Speeds> = match (self.options.network, self.spread_slowdown > 1.0) {
            (Some(network), _) => Box::new(ByNetwork::new(widths, network, cluster)),
            (None, true) => Box::new(BySpread {
                widths,
                gpus_per_node: cluster.gpus_per_node,
                pack_limit: self.options.pack_limit,
                slowdown: self.spread_slowdown,
            }),
            (None, false) => Box::new(ByWidth(widths)),
        };
        Ok(Parts {
            cluster: *cluster,
            policy: String::from(self.policy.name()),
            manner: self.policy.manner(),
            scheduler: self.policy.plan(&self.setting)?,
            placer: (self.placement.placer)(cluster, &self.options),
            speeds,
            overheads: Box::new(self.costs),
        })
    }
}
