//! Puts a simulation together from what is chosen by name.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;

use super::Parts;
use super::speed::{BySpread, ByWidth, Costs, Speeds};
use crate::job::NS_PER_S;
use crate::place::network::ByNetwork;
use crate::place::{Options, Placement};
use crate::policy::{AnyPolicy, Jobs, PolicyError, Setting};
use crate::text::SECONDS_MAX;

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
    /// What the policy says against the setting; a quantum or a
    /// queue's limit below [`QUANTUM_MIN_NS`], a start that
    /// takes more than a century, and a slowdown of more than [`SLOWDOWN_MAX`].
    pub fn parts(&self) -> Result<Parts, PolicyError> {
        self.check()?;
        let setting = Setting { knobs: self.setting.knobs.bounded(), ..self.setting.clone() };
        let Setting { cluster, widths, .. } = &setting;
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
            scheduler: self.policy.plan(&setting)?,
            placer: (self.placement.placer)(cluster, &self.options),
            speeds,
            overheads: Box::new(self.costs),
        })
    }

    fn check(&self) -> Result<(), PolicyError> {
        let century_ns = SECONDS_MAX * NS_PER_S;
        let quantum_ns = self.setting.knobs.quantum_ns;
        let wrong = [
            (
                (1..QUANTUM_MIN_NS).contains(&quantum_ns),
                format!("a quantum of {quantum_ns} ns; the least is 1 ms"),
            ),
            (
                self.setting
                    .knobs
                    .queue_limits_ns
                    .iter()
                    .any(|limit_ns| *limit_ns < QUANTUM_MIN_NS),
                "a queue with a limit below 1 ms".into(),
            ),
            (
                self.costs.preemption_ns > century_ns,
                "going on after a stop takes more than a century".into(),
            ),
            (
                self.costs.restart_ns > century_ns || self.setting.knobs.restart_ns > century_ns,
                "going on with another width takes more than a century".into(),
            ),
            (
                self.spread_slowdown > SLOWDOWN_MAX || self.spread_slowdown.is_nan(),
                format!("a slowdown of {}; the most is {SLOWDOWN_MAX}", self.spread_slowdown),
            ),
        ];
        match wrong.into_iter().find(|(is_wrong, _)| *is_wrong) {
            None => Ok(()),
            Some((_, reason)) => {
                Err(PolicyError::Unsuitable { policy: String::from(self.policy.name()), reason })
            }
        }
    }
}

/// The shortest quantum: policies are asked at each.
pub const QUANTUM_MIN_NS: u64 = NS_PER_S / 1_000;

/// The most times as long that a job takes which is spread.
pub const SLOWDOWN_MAX: f64 = 1e6;
