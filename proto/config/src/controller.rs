//! The configuration file: TOML; these comments and those of [`weft_controller_engine::Config`],
//! which is the rest of it, are its manual. An unknown key is an error.
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

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use weft_controller_engine::{
    Config, ConfigError, HostConfig, JobConfig, NodeConfig, RackConfig, Tuning,
};
use weft_rpc::tls::TlsFiles;

use crate::error::DaemonError;
use crate::exec;

/// A whole configuration file.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct FileConfig {
    /// Where workers, boxes and tools call, "address:port". Port 0 takes a free one; the ready line
    /// names it. One that is not on the loopback needs `tls`, or `insecure`.
    pub listen: SocketAddr,
    /// The controller's certificate, and the CA of those who may call. Default: none; whoever
    /// reaches `listen` may do everything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<TlsFiles>,
    /// Listen without `tls` where others than this machine may call. Default false.
    #[serde(default)]
    pub insecure: bool,
    /// Where Prometheus scrapes `/metrics`: read-only, without TLS, for everybody who reaches it.
    /// Default: nowhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metrics: Option<SocketAddr>,
    /// File for what the boxes cannot tell after a restart. Default: none is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state_file: Option<PathBuf>,
    /// File that gets a line for every group that a box is told to install, behind what is there.
    /// Default: none is written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub events: Option<PathBuf>,
    /// Seconds between statistics on stderr; 0 is never. Default 0.
    #[serde(default)]
    pub stats_period_s: u64,
    /// `text` (default) or `json`.
    #[serde(default)]
    pub stats_format: Format,
    /// How often boxes and workers send their counters, in milliseconds. Default 100.
    #[serde(default = "default_telemetry_period_ms")]
    pub telemetry_period_ms: u64,
    /// How to plan.
    #[serde(default)]
    pub tuning: Tuning,
    /// What else a job that is registered at run time may name as its policy.
    #[serde(default)]
    pub policies: PoliciesSection,
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

/// How statistics are written.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// For people.
    #[default]
    Text,
    /// One object per line.
    Json,
}

const fn default_telemetry_period_ms() -> u64 {
    100
}

impl FileConfig {
    /// Reads a file's shape. What its values mean is checked when the engine takes them.
    ///
    /// # Errors
    /// It cannot be read, or a key is unknown, missing or of the wrong type.
    pub fn load(path: &Path) -> Result<Self, DaemonError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| DaemonError::Unreadable { path: path.to_owned(), source })?;
        toml::from_str(&text).map_err(|error| {
            let problem: Vec<&str> = error.message().lines().map(str::trim).collect();
            let start = error.span().map_or(0, |span| span.start);
            let line = 1 + text.bytes().take(start).filter(|byte| *byte == b'\n').count();
            let problem = format!("line {line}: {}", problem.join("; "));
            DaemonError::Shape { path: path.to_owned(), problem }
        })
    }

    /// Checks that only those call who are meant to.
    ///
    /// # Errors
    /// The field, and what would be right.
    pub fn check_listener(&self) -> Result<(), ConfigError> {
        let wrong = |field: &str, problem: String| {
            Err(ConfigError { field: field.to_owned(), problem, is_taken: false })
        };
        match &self.tls {
            Some(_) if self.insecure => {
                wrong("insecure", "contradicts `tls`; remove one of them".to_owned())
            }
            None if !(self.insecure || self.listen.ip().to_canonical().is_loopback()) => wrong(
                "listen",
                format!(
                    "{} is not on the loopback, and nobody who calls there would be asked for a \
                     name; give tls = {{ ca, cert, key }} (`weft certs` makes them), or insecure = \
                     true if all who reach it may command the cluster",
                    self.listen
                ),
            ),
            _ => Ok(()),
        }
    }

    /// What the engine takes.
    #[must_use]
    pub fn engine(&self) -> Config {
        Config {
            tuning: self.tuning.clone(),
            racks: self.racks.clone(),
            hosts: self.hosts.clone(),
            nodes: self.nodes.clone(),
            jobs: self.jobs.clone(),
        }
    }

    /// The commands that may plan: all that this configuration names.
    #[must_use]
    pub fn programs(&self) -> BTreeSet<String> {
        let own = self.jobs.iter().filter_map(|job| job.policy.as_ref());
        let own = own.chain([&self.tuning.policy]).filter_map(|name| exec::command_of(name));
        let listed = self.policies.exec.iter().map(|command| command.trim());
        own.chain(listed).map(str::to_owned).collect()
    }

    /// Plans every job with this policy.
    pub fn set_policy(&mut self, policy: &str) {
        policy.clone_into(&mut self.tuning.policy);
        for job in &mut self.jobs {
            job.policy = Some(policy.to_owned());
        }
    }

    /// As a file, with every default filled in.
    #[must_use]
    pub fn to_toml(&self) -> String {
        toml::to_string(self).unwrap_or_default()
    }
}
