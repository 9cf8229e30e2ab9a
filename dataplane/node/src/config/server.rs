//! `[[server]]` and `[[replica]]`: jobs whose model this box holds, or follows.

use std::net::SocketAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use weft_engine::push::BoxIndex;
use weft_engine::role::replica::ReplicaJobConfig;
use weft_engine::role::server::{AckMode, CommitMode, ConductMode, ModelConfig, ServerJobConfig};
use weft_wire::frame::Endpoint;
use weft_wire::{JobId, MacAddr};

/// `[[server]]`: the parameter server of a job. Needs `lcores.shards = 1`; such a box sums nothing.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ServerSection {
    /// Index of the job on the wire, below 256.
    pub job: u16,
    /// Name in statistics. Default `job` and its id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Parameters of the model.
    pub dimension: usize,
    /// Elements per chunk. Default 256, which fits an MTU of 1500.
    #[serde(default = "default_elements")]
    pub elements: u16,
    /// Scale exponent of updates that no controller gave one. Default -20.
    #[serde(default = "default_exponent")]
    pub exponent: i8,
    /// Share of the previous step that is kept. Default 0.
    #[serde(default)]
    pub momentum: f32,
    /// The workers by rank, 1 to 64: `"ip:port"`.
    pub workers: Vec<SocketAddr>,
    /// The aggregators and the replica by index: `"ip:port"`.
    #[serde(default)]
    pub boxes: Vec<SocketAddr>,
    /// The replica's index among them. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replica: Option<u8>,
    /// Greatest delay of a committed update. Default twice the workers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tau_max: Option<u64>,
    /// Bound of the distance to the replica. Default: it is measured, not held.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub div_max: Option<f64>,
    /// How long an update without a controller, or an order number that nobody installs, may be at
    /// the head of the order before it is judged void. Default 2000.
    #[serde(default = "default_lateness_ms")]
    pub lateness_ms: u64,
    /// Which order groups are committed in: `order` (default) or `arrival`, a baseline.
    #[serde(default)]
    pub commit: CommitName,
    /// Whom credits go to: `in_order` (default) or `fair`, a baseline.
    #[serde(default)]
    pub conduct: ConductName,
    /// When members are told: at the `commit` (default), or when the `replica` has it too.
    #[serde(default)]
    pub ack: AckName,
    /// What the link may receive for this job, bytes of Ethernet frames per second. Default: no
    /// limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_bytes_per_sec: Option<u64>,
    /// Bytes of updates that may be staged at a time. Default 268435456.
    #[serde(default = "default_staging_bytes")]
    pub staging_bytes_max: u64,
    /// Bytes of sums that are kept for the replica. Default 268435456.
    #[serde(default = "default_staging_bytes")]
    pub log_bytes_max: u64,
    /// File with the model at the start: little-endian single precision. Default: zeros.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initial: Option<PathBuf>,
}

/// `[[replica]]`: a copy of a job's model that follows its server. Needs `lcores.shards = 1`.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ReplicaSection {
    /// Index of the job on the wire, below 256.
    pub job: u16,
    /// Name in statistics. Default `job` and its id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Parameters of the model.
    pub dimension: usize,
    /// Elements per chunk. Default 256.
    #[serde(default = "default_elements")]
    pub elements: u16,
    /// Scale exponent of updates that no controller gave one. Default -20.
    #[serde(default = "default_exponent")]
    pub exponent: i8,
    /// Share of the previous step that is kept, as at the server. Default 0.
    #[serde(default)]
    pub momentum: f32,
    /// This box's index among the job's boxes.
    pub index: u8,
    /// Where the server listens.
    pub server: SocketAddr,
    /// The workers by rank.
    pub workers: Vec<SocketAddr>,
    /// The aggregators by index.
    #[serde(default)]
    pub boxes: Vec<SocketAddr>,
    /// Bytes of updates that may be staged at a time. Default 268435456.
    #[serde(default = "default_staging_bytes")]
    pub staging_bytes_max: u64,
    /// File with the model at the start, the same as the server's. Default: zeros.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initial: Option<PathBuf>,
}

/// Which order groups are committed in.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names are those of the engine's `CommitMode`")]
pub enum CommitName {
    #[default]
    Order,
    Arrival,
}

/// Whom credits go to.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names are those of the engine's `ConductMode`")]
pub enum ConductName {
    #[default]
    InOrder,
    Fair,
}

/// When members are told.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names are those of the engine's `AckMode`")]
pub enum AckName {
    #[default]
    Commit,
    Replica,
}

const fn default_elements() -> u16 {
    256
}

const fn default_exponent() -> i8 {
    -20
}

const fn default_lateness_ms() -> u64 {
    2000
}

const fn default_staging_bytes() -> u64 {
    256 << 20
}

impl ServerSection {
    /// The job's name in reports.
    #[must_use]
    pub fn display_name(&self) -> String {
        self.name.clone().unwrap_or_else(|| format!("job{}", self.job))
    }

    /// What the section means; the initial model is read later.
    #[must_use]
    pub fn to_config(&self) -> ServerJobConfig {
        let mut model = ModelConfig::new(JobId(self.job), self.dimension);
        (model.elements, model.exponent) = (self.elements, self.exponent);
        model.momentum = self.momentum;
        let mut config = ServerJobConfig::new(model, self.workers.clone());
        config.boxes = self.boxes.iter().copied().map(Some).collect();
        config.replica = self.replica.map(BoxIndex);
        config.tau_max = self.tau_max.unwrap_or(config.tau_max);
        config.div_max = self.div_max;
        config.lateness_ns = self.lateness_ms.saturating_mul(1_000_000);
        config.commit = match self.commit {
            CommitName::Order => CommitMode::Order,
            CommitName::Arrival => CommitMode::Arrival,
        };
        config.conduct = match self.conduct {
            ConductName::InOrder => ConductMode::InOrder,
            ConductName::Fair => ConductMode::Fair,
        };
        config.ack = match self.ack {
            AckName::Commit => AckMode::Commit,
            AckName::Replica => AckMode::Replica,
        };
        config.rate_bytes_per_sec = self.rate_bytes_per_sec;
        config.staging_bytes_max = self.staging_bytes_max;
        config.log_bytes_max = self.log_bytes_max;
        config
    }
}

impl ReplicaSection {
    /// The job's name in reports.
    #[must_use]
    pub fn display_name(&self) -> String {
        self.name.clone().unwrap_or_else(|| format!("job{}", self.job))
    }

    /// What the section means; the initial model is read later.
    #[must_use]
    pub fn to_config(&self) -> ReplicaJobConfig {
        let mut model = ModelConfig::new(JobId(self.job), self.dimension);
        (model.elements, model.exponent) = (self.elements, self.exponent);
        model.momentum = self.momentum;
        let server = Endpoint { mac: MacAddr::BROADCAST, addr: self.server };
        let index = BoxIndex(self.index);
        let mut config = ReplicaJobConfig::new(model, index, server, self.workers.clone());
        config.boxes = self.boxes.iter().copied().map(Some).collect();
        config.staging_bytes_max = self.staging_bytes_max;
        config
    }
}
