//! The controller's file; these comments and those of [`Config`], which is the rest of it, are its
//! manual.
//!
//! ```toml
//! listen = "10.0.0.1:22342"
//! # Who may call (docs/security.md); `weft certs` makes these.
//! tls = { ca = "certs/ca.pem", cert = "certs/controller.pem", key = "certs/controller.key" }
//!
//! [[host]]                     # one for every machine
//! name = "w0"
//! up_bytes_per_sec = 125000000 # missing: estimated
//! down_bytes_per_sec = 125000000
//!
//! [[host]]
//! name = "s0"
//!
//! [[job]]
//! name = "digits"
//! index = 1
//! dimension = 101770
//! workers = ["w0"]
//! server = "s0"
//! ```

mod bands;
mod jobs;
mod options;
mod reduce;

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::SocketAddr;

use serde::{Deserialize, Serialize};

pub use bands::BandsConfig;
pub use jobs::{Config, HostConfig, JobConfig, NodeConfig, RackConfig, Tuning, WorkerConfig};
pub use options::{AggregatorChoice, Objective, Options};
pub use reduce::{JobPolicySection, PlaceConfig, Placement, ReduceConfig};

use crate::{FilePath, Problem, StatsFormat, TlsSection};

/// A whole configuration file.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ControllerConfig {
    /// Where workers, boxes and tools call, "address:port". Port 0 takes a free one; the ready line
    /// names it. One that is not on the loopback needs `tls`, or `insecure`.
    pub listen: SocketAddr,
    /// The controller's certificate, and the CA of those who may call. Default: none; whoever
    /// reaches `listen` may do everything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<TlsSection>,
    /// Listen without `tls` where others than this machine may call. Default false.
    #[serde(default)]
    pub insecure: bool,
    /// TCP address of `/metrics` for Prometheus, and of `/healthz` and `/readyz` for a supervisor:
    /// read-only, without TLS, open to every caller. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metrics: Option<SocketAddr>,
    /// File for the state that boxes do not have after a restart; one controller at a time has it.
    /// Default: none is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state_file: Option<FilePath>,
    /// File that gets a line for every group that a box is told to install, behind what is there.
    /// Default: none is written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub events: Option<FilePath>,
    /// Seconds between statistics on stderr; 0 is never. Default 0.
    #[serde(default)]
    pub stats_period_s: u64,
    /// `text` (default) or `json`.
    #[serde(default)]
    pub stats_format: StatsFormat,
    /// How often boxes and workers send their counters, in milliseconds. Default 100.
    #[serde(default = "default_telemetry_period_ms")]
    pub telemetry_period_ms: u64,
    /// How to plan.
    #[serde(default)]
    pub tuning: Tuning,
    /// Whose frames leave a host first. Default: nobody's, and frames carry no labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bands: Option<BandsConfig>,
    /// What else a job that is registered at run time may name as its policy.
    #[serde(default)]
    pub policies: PoliciesSection,
    /// A policy of whole jobs. Default: none; jobs run unless somebody pauses them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_policy: Option<JobPolicySection>,
    /// Racks, where their uplinks may limit.
    #[serde(default, rename = "rack", skip_serializing_if = "Vec::is_empty")]
    pub racks: Vec<RackConfig>,
    /// Machines.
    #[serde(default, rename = "host")]
    pub hosts: Vec<HostConfig>,
    /// Boxes with other names than their hosts.
    #[serde(default, rename = "node", skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<NodeConfig>,
    /// Training jobs.
    #[serde(default, rename = "job")]
    pub jobs: Vec<JobConfig>,
    /// Training jobs whose gradients are summed by allreduce, and which this controller pauses and
    /// resizes.
    #[serde(default, rename = "reduce", skip_serializing_if = "Vec::is_empty")]
    pub reduces: Vec<ReduceConfig>,
}

/// `[policies]`: programs that may plan. A program is started only if this file names it, here or
/// as a policy of its own; neither a client nor the state file can name another.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct PoliciesSection {
    /// Commands that RegisterJob may give as `exec:CMD`, letter by letter. Default: none but those
    /// that this file's own policies are.
    pub exec: Vec<String>,
}

const fn default_telemetry_period_ms() -> u64 {
    100
}

impl ControllerConfig {
    /// A controller that knows of nothing yet.
    #[cfg(feature = "text")]
    #[must_use]
    pub fn new(listen: SocketAddr) -> Self {
        section!(listen)
    }

    /// Checks that only those call who are meant to. The rest is checked by the engine, which takes
    /// it.
    ///
    /// # Errors
    /// The field, and what would be right.
    pub fn check(&self) -> Result<(), Problem> {
        match &self.tls {
            Some(_) if self.insecure => {
                Err(Problem::new("insecure", "contradicts `tls`; remove one of them"))
            }
            None if !(self.insecure || self.listen.ip().to_canonical().is_loopback()) => {
                let problem = format!(
                    "{} is not on the loopback, and nobody who calls there would be asked for a \
                     name; give tls = {{ ca, cert, key }} (`weft certs` makes them), or insecure = \
                     true if all who reach it may command the cluster",
                    self.listen
                );
                Err(Problem::new("listen", problem))
            }
            _ => Ok(()),
        }
    }

    /// What the engine takes.
    #[must_use]
    pub fn engine(&self) -> Config {
        Config {
            tuning: self.tuning.clone(),
            bands: self.bands,
            racks: self.racks.clone(),
            hosts: self.hosts.clone(),
            nodes: self.nodes.clone(),
            jobs: self.jobs.clone(),
            reduces: self.reduces.clone(),
        }
    }

    /// Plans every job with this policy.
    pub fn set_policy(&mut self, policy: &str) {
        policy.clone_into(&mut self.tuning.policy);
        for job in &mut self.jobs {
            job.policy = Some(policy.to_owned());
        }
    }
}
