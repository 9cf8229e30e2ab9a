//! `[push]`: workers push updates to a parameter server, by a controller's plan or without one.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use weft_config::Problem;
use weft_control::{AckMode, ConductMode, Mode};
use weft_plan::policy;

use super::job::JobSection;
use super::refuse;
use crate::scenario::ScaleExponent;

/// `[push]`: a parameter server takes the updates.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct PushSection {
    /// When a worker goes on, and which updates enter the model: with `async` as soon as its own
    /// update is decided; with `sync` after a round of every worker's update; with `partial` after
    /// a round, which takes in the `best` of them and drops the others.
    pub mode: Mode,
    /// How transfers are planned: a policy's name, or `exec:COMMAND`. Default `mlfabric`.
    #[serde(default = "default_policy")]
    pub policy: String,
    /// False: no controller, updates go straight to the server in the order of their arrival.
    /// Default true.
    #[serde(default = "yes")]
    pub controller: bool,
    /// Aggregators `a0`, `a1` and so on. Default 1.
    #[serde(default = "default_aggregators")]
    pub aggregators: u8,
    /// `partial`: how many updates a round takes in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub best: Option<u8>,
    /// Largest delay of a committed update. Default twice the workers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tau_max: Option<u32>,
    /// How a replica gets its copies. Default `none`: there is no replica.
    #[serde(default)]
    pub replication: Replication,
    /// When a worker is told that its update is committed: `commit` (default), or `replica`, when
    /// the replica has it too. Then the replica takes the place of a server that dies.
    #[serde(default)]
    pub ack: AckMode,
    /// Bound of the distance between server and replica. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub div_max: Option<f64>,
    /// Emulated computing before each push: uniform between two times, in milliseconds, on top of
    /// the gradient's own time. Default 0 to 0.
    #[serde(default)]
    pub compute_ms: [u32; 2],
    /// Held-out loss whose first crossing the report names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_loss: Option<f64>,
    /// The run ends soon after worker 0 has pulled a model of `target_loss`, and when its rounds
    /// are over at the latest. Default false: at `target_loss` it goes on.
    #[serde(default)]
    pub until_loss: bool,
    /// The server keeps its state in the run directory: what it told anybody survives its restart.
    /// Default false.
    #[serde(default)]
    pub durable: bool,
    /// Whether the controller is told the rates of the lab's links, or finds them out. Default
    /// `configured`.
    #[serde(default)]
    pub link_rates: LinkRates,
    /// How long a group may be at the head of the order without being staged, in milliseconds.
    /// Default 5000.
    #[serde(default = "default_lateness_ms")]
    pub lateness_ms: u32,
}

/// What the controller knows of the lab's links.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LinkRates {
    /// Their rates are in its configuration.
    #[default]
    Configured,
    /// Nothing: it estimates them.
    Estimated,
}

/// How a replica gets its copies.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Replication {
    /// There is no replica.
    #[default]
    None,
    /// Aggregators duplicate their sums, direct senders their updates.
    Network,
    /// Every worker sends a copy of its update to the replica; there are no aggregators.
    Worker,
    /// The server forwards what it committed.
    Chain,
}

fn default_policy() -> String {
    "mlfabric".to_owned()
}

const fn yes() -> bool {
    true
}

const fn default_aggregators() -> u8 {
    1
}

const fn default_lateness_ms() -> u32 {
    5000
}

impl PushSection {
    /// Names of the hosts besides the workers.
    #[must_use]
    pub fn boxes(&self) -> Vec<String> {
        let replica = self.has_replica().then(|| REPLICA.to_owned());
        let controller = self.controller.then(|| CONTROLLER.to_owned());
        let aggregators = (0..self.aggregators).map(|index| format!("a{index}"));
        std::iter::once(SERVER.to_owned())
            .chain(replica)
            .chain(controller)
            .chain(aggregators)
            .collect()
    }

    /// Whether there is a replica.
    #[must_use]
    pub fn has_replica(&self) -> bool {
        self.replication != Replication::None
    }

    /// Updates that one round takes in.
    #[must_use]
    pub fn updates_per_round(&self, job: &JobSection) -> u32 {
        match self.mode {
            Mode::Async | Mode::Sync => u32::from(job.workers),
            Mode::Partial => u32::from(self.best.unwrap_or(job.workers)),
        }
    }

    /// Largest delay of a committed update.
    #[must_use]
    pub fn tau_max(&self, job: &JobSection) -> u32 {
        match self.mode {
            // A round's updates are computed on the version before it, and none on an older one.
            Mode::Sync | Mode::Partial => self.updates_per_round(job) - 1,
            Mode::Async => self.tau_max.unwrap_or_else(|| 2 * u32::from(job.workers)),
        }
    }

    /// Whom the server lets send under the policy.
    #[must_use]
    pub fn conduct(&self) -> ConductMode {
        policy::by_name(&self.policy)
            .map_or_else(ConductMode::default, |policy| policy.manner().conduct)
    }

    /// [`PushSection::lateness_ms`] as a duration.
    #[must_use]
    pub fn lateness(&self) -> Duration {
        Duration::from_millis(self.lateness_ms.into())
    }

    pub(super) fn validate(&self, job: &JobSection) -> Result<(), Problem> {
        let refused = |key: &str, reason: String| refuse("push", key, reason);
        if job.scale_exponent == ScaleExponent::Auto {
            let reason = "is \"auto\"; a push has an exponent for the job".to_owned();
            return refuse("job", "scale_exponent", reason);
        }
        if self.policy.is_empty() {
            return refused("policy", "must not be empty".to_owned());
        }
        let is_outside =
            self.policy.strip_prefix("exec:").is_some_and(|command| !command.trim().is_empty());
        if self.controller && !is_outside && policy::by_name(&self.policy).is_none() {
            let known: Vec<_> = policy::names().collect();
            let known = known.join(", ");
            let reason = format!("is `{}`; known are {known} and exec:CMD", self.policy);
            return refused("policy", reason);
        }
        let workers = job.workers;
        match (self.mode, self.best) {
            (Mode::Partial, Some(best)) if (1..=workers).contains(&best) => {}
            (Mode::Partial, found) => {
                let found = found.map_or_else(|| "missing".to_owned(), |best| best.to_string());
                let reason = format!("is {found}; expected 1 to the {workers} workers");
                return refused("best", reason);
            }
            (_, Some(_)) => {
                let reason = "belongs to mode \"partial\" alone".to_owned();
                return refused("best", reason);
            }
            (_, None) => {}
        }
        if self.mode == Mode::Partial && !self.controller {
            let reason = "is false; a partial round needs a controller to drop".to_owned();
            return refused("controller", reason);
        }
        // A full round of updates on one version must fit.
        if let Some(tau_max) = self.tau_max
            && (self.mode != Mode::Async || tau_max + 1 < u32::from(workers))
        {
            let reason = format!(
                "is {tau_max}; expected at least the workers less one, and mode \"async\" (else a \
                 round's own size decides)"
            );
            return refused("tau_max", reason);
        }
        if self.aggregators > AGGREGATORS_MAX || (self.aggregators > 0 && !self.controller) {
            let reason = format!(
                "is {}; expected at most {AGGREGATORS_MAX}, and 0 without a controller",
                self.aggregators
            );
            return refused("aggregators", reason);
        }
        if self.replication == Replication::Worker && self.aggregators > 0 {
            let reason = "is \"worker\"; such a job has aggregators = 0".to_owned();
            return refused("replication", reason);
        }
        let is_planned = matches!(self.replication, Replication::Network | Replication::Worker);
        if self.ack == AckMode::Replica && !(self.controller && is_planned) {
            let reason = "is \"replica\"; expected a controller, and replication \"network\" or \
                          \"worker\""
                .to_owned();
            return refused("ack", reason);
        }
        if let Some(div_max) = self.div_max
            && !(div_max.is_finite() && div_max > 0.0 && self.has_replica())
        {
            let reason = format!("is {div_max}; expected a positive number, and a replica");
            return refused("div_max", reason);
        }
        let [from, to] = self.compute_ms;
        if from > to || to > COMPUTE_MS_MAX {
            let reason = format!("is [{from}, {to}]; expected [from, to], to {COMPUTE_MS_MAX}");
            return refused("compute_ms", reason);
        }
        if let Some(target) = self.target_loss
            && !(target.is_finite() && target > 0.0)
        {
            return refused("target_loss", format!("is {target}; expected a positive number"));
        }
        if self.until_loss && self.target_loss.is_none() {
            return refused("until_loss", "is true; expected a target_loss with it".to_owned());
        }
        if !(LATENESS_MS_MIN..=LATENESS_MS_MAX).contains(&self.lateness_ms) {
            let reason =
                format!("is {}; expected {LATENESS_MS_MIN} to {LATENESS_MS_MAX}", self.lateness_ms);
            return refused("lateness_ms", reason);
        }
        Ok(())
    }
}

/// Host of the server.
pub const SERVER: &str = "server";
/// Host of the replica.
pub const REPLICA: &str = "replica";
/// Host of the controller.
pub const CONTROLLER: &str = "controller";
const AGGREGATORS_MAX: u8 = 16;
const COMPUTE_MS_MAX: u32 = 60_000;
const LATENESS_MS_MIN: u32 = 100;
const LATENESS_MS_MAX: u32 = 600_000;
