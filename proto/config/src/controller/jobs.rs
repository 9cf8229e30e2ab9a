//! What a controller is told at its start: hosts, racks, boxes, jobs, and how to plan.

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::IpAddr;

use serde::{Deserialize, Serialize};
use weft_control::{AckMode, Mode};
use weft_wire::header::ElementType;

use super::{BandsConfig, Options, ReduceConfig};

/// Everything.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// How to plan.
    #[serde(default)]
    pub tuning: Tuning,
    /// Whose frames leave a host first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bands: Option<BandsConfig>,
    /// Racks, where their uplinks may limit.
    #[serde(default, rename = "rack", skip_serializing_if = "Vec::is_empty")]
    pub racks: Vec<RackConfig>,
    /// Machines with a link into the network.
    #[serde(default, rename = "host")]
    pub hosts: Vec<HostConfig>,
    /// Boxes. A host without an entry is also the name of the one box on it.
    #[serde(default, rename = "node", skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<NodeConfig>,
    /// Training jobs.
    #[serde(default, rename = "job")]
    pub jobs: Vec<JobConfig>,
    /// Training jobs whose gradients are summed by allreduce.
    #[serde(default, rename = "reduce", skip_serializing_if = "Vec::is_empty")]
    pub reduces: Vec<ReduceConfig>,
}

/// `[[host]]`: a machine and its two links.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct HostConfig {
    /// Its name.
    pub name: String,
    /// From the host into the network, bytes of Ethernet frames per second. Missing: estimated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub up_bytes_per_sec: Option<u64>,
    /// From the network to the host. Missing: estimated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub down_bytes_per_sec: Option<u64>,
    /// Its rack.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rack: Option<String>,
    /// Workers that it has room for, over all jobs. Default: as many as there are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slots: Option<u16>,
}

impl HostConfig {
    /// A machine whose links are estimated.
    #[must_use]
    pub fn named(name: impl Into<String>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }
}

/// `[[rack]]`: the links that a rack shares.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct RackConfig {
    /// Its name.
    pub name: String,
    /// Out of the rack. Missing: estimated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub up_bytes_per_sec: Option<u64>,
    /// Into the rack. Missing: estimated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub down_bytes_per_sec: Option<u64>,
}

/// `[[node]]`: a box.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct NodeConfig {
    /// The name that it attaches with.
    pub name: String,
    /// The host that it runs on. Missing: the one of the same name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub host: String,
    /// "address:port" of its data port, for workers that attach before it does.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub address: String,
}

/// `[[job]]`: a training job.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct JobConfig {
    /// Its name.
    pub name: String,
    /// The index that packets carry.
    pub index: u16,
    /// Parameters of its model.
    pub dimension: u64,
    /// What an element of an update is on the wire: `i32` (default) or `f32`. `bf16` is for
    /// allreduce.
    #[serde(default = "i32_elements")]
    pub element: ElementType,
    /// Elements of a chunk. Default: what fits an MTU of 1500, 256 of 4 bytes or 512 of 2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub elements_per_chunk: Option<u16>,
    /// Workers by rank: host names, or tables with `host` and the `address` that they may call
    /// from.
    pub workers: Vec<WorkerConfig>,
    /// Node of its server.
    pub server: String,
    /// Nodes that may sum its groups, by box index.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub aggregators: Vec<String>,
    /// When its server acknowledges updates, as in the server's own file. With `replica` a worker
    /// is told of nothing that the replica lacks, and the replica takes over from a dead server.
    /// Default `commit`.
    #[serde(default)]
    pub ack: AckMode,
    /// Node of its replica, whose box index is the number of aggregators.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replica: Option<String>,
    /// Largest delay of a commit. Default: twice the workers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tau_max: Option<u64>,
    /// Momentum of its server, 0 to below 1. Default 0.
    #[serde(default)]
    pub momentum: f64,
    /// Largest norm of server minus replica. Missing: unbounded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub div_max: Option<f64>,
    /// How updates enter the model. Default `async`.
    #[serde(default)]
    pub mode: Mode,
    /// With `mode = "partial"`: updates of a round.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partial_count: Option<u32>,
    /// Name of its policy. Default: the controller's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// Share of contended links against other jobs. Default 1.
    #[serde(default = "one")]
    pub weight: f64,
    /// Switches of its plans.
    #[serde(default)]
    pub options: Options,
}

const fn i32_elements() -> ElementType {
    ElementType::I32
}

const fn one() -> f64 {
    1.0
}

/// A worker: where it runs, and from where it may call.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(untagged)]
pub enum WorkerConfig {
    /// The host's name.
    Host(String),
    /// With its address.
    At {
        /// The host's name.
        host: String,
        /// IP address that its calls must come from.
        address: IpAddr,
    },
}

impl WorkerConfig {
    /// The host's name.
    #[must_use]
    pub fn host(&self) -> &str {
        match self {
            Self::Host(host) | Self::At { host, .. } => host,
        }
    }

    /// The address that its calls must come from.
    #[must_use]
    pub const fn address(&self) -> Option<IpAddr> {
        match self {
            Self::Host(_) => None,
            Self::At { address, .. } => Some(*address),
        }
    }
}

/// `[tuning]`: when plans are made and how careful they are. Every default is derived.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Tuning {
    /// Policy of jobs that name none. Default `mlfabric`.
    pub policy: String,
    /// How long a policy that is another program (`exec:CMD`) may take over a plan; from then on
    /// the default policy plans until it has answered. Default 1000.
    pub policy_timeout_ms: u64,
    /// How much longer such a program may take over its first plan after it was started, before it
    /// is killed and started again. Default 30000.
    pub policy_start_timeout_ms: u64,
    /// How long requests are gathered while their destination is busy, 1 to 5 ms. Default 2000.
    pub gather_window_us: u64,
    /// Updates of one plan. Default 128.
    pub batch_max: usize,
    /// Derived: leave order numbers free before a slow update, for those that are asked for later
    /// and arrive earlier. Default true.
    pub order_room: bool,
    /// Derived: plan for workers that ask anew as soon as they are answered
    /// ([`Options::closed_loop`]). Off: every plan as if nothing came after it. Default true.
    pub closed_loop: bool,
    /// Share of the bandwidth that plans build on. Default 0.9.
    pub planned_share: f64,
    /// How long before its planned start a group is installed and granted. Default 4000.
    pub grant_lead_us: u64,
    /// Plans are made anew when a transfer takes this share longer than planned. Default 0.2.
    pub lateness_share: f64,
    /// Plans are made anew when a link's bandwidth changed by more than this share. Default 0.1.
    pub bandwidth_change_share: f64,
    /// How long the train that a transfer begins with takes at its granted rate; at least 24
    /// chunks, at most 128 and a third of the update, else there is none. 0: no trains. Default
    /// 3000.
    pub train_us: u64,
    /// Probe trains over links that are idle and of which nothing was measured lately, at most 1 %
    /// of each link. Default: true when a link has no configured rate, for then nothing else is
    /// known of it while nobody sends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_probes: Option<bool>,
    /// A box whose stream is broken for so long counts as failed. Default 2000.
    pub node_timeout_ms: u64,
    /// A server whose box says nothing for so long is dead, and its replica takes over; likewise a
    /// replica is given up. Boxes speak every 100 ms. Default 3000.
    pub server_lease_ms: u64,
    /// A box that does not acknowledge a group for so long counts as failed. Default 1000.
    pub install_timeout_ms: u64,
    /// An update that has waited so long goes before all other jobs' updates. Default 2000.
    pub age_limit_ms: u64,
    /// Updates that a job plans in its turn while several jobs want to. Default 16.
    pub turn_updates: usize,
    /// Updates that a worker may have asked for and not been told the end of. Default 8.
    pub updates_per_worker_max: usize,
    /// A group at the head of the order becomes VOID after this many times its planned duration,
    /// Default 10, ...
    pub void_factor: u64,
    /// ... but not before this. Default 1000.
    pub void_ms_min: u64,
    /// Bandwidth of a link that is estimated, until it is. Default 125000000 (1 Gb/s).
    pub initial_bytes_per_sec: u64,
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            policy: POLICY_DEFAULT.to_owned(),
            policy_timeout_ms: 1000,
            policy_start_timeout_ms: 30_000,
            gather_window_us: 2000,
            batch_max: 128,
            order_room: true,
            closed_loop: true,
            planned_share: 0.9,
            grant_lead_us: 4000,
            lateness_share: 0.2,
            bandwidth_change_share: 0.1,
            train_us: 3000,
            idle_probes: None,
            node_timeout_ms: 2000,
            server_lease_ms: 3000,
            install_timeout_ms: 1000,
            age_limit_ms: 2000,
            turn_updates: 16,
            updates_per_worker_max: 8,
            void_factor: 10,
            void_ms_min: 1000,
            initial_bytes_per_sec: 125_000_000,
        }
    }
}

impl Tuning {
    /// How long an outside policy may take.
    #[must_use]
    pub const fn policy_timeout_ns(&self) -> u64 {
        self.policy_timeout_ms.saturating_mul(1_000_000)
    }

    /// How long requests are gathered.
    #[must_use]
    pub const fn gather_window_ns(&self) -> u64 {
        self.gather_window_us.saturating_mul(1000)
    }

    /// How long before its planned start a group is granted.
    #[must_use]
    pub const fn grant_lead_ns(&self) -> u64 {
        self.grant_lead_us.saturating_mul(1000)
    }

    /// When a box whose stream is broken has failed.
    #[must_use]
    pub const fn node_timeout_ns(&self) -> u64 {
        self.node_timeout_ms.saturating_mul(1_000_000)
    }

    /// When a silent server is dead.
    #[must_use]
    pub const fn server_lease_ns(&self) -> u64 {
        self.server_lease_ms.saturating_mul(1_000_000)
    }

    /// When a box that does not acknowledge has failed.
    #[must_use]
    pub const fn install_timeout_ns(&self) -> u64 {
        self.install_timeout_ms.saturating_mul(1_000_000)
    }

    /// When an update goes before all others.
    #[must_use]
    pub const fn age_limit_ns(&self) -> u64 {
        self.age_limit_ms.saturating_mul(1_000_000)
    }

    /// When a group may become VOID at the earliest.
    #[must_use]
    pub const fn void_ns_min(&self) -> u64 {
        self.void_ms_min.saturating_mul(1_000_000)
    }
}

impl JobConfig {
    /// A job with what has no default, its workers by the names of their hosts.
    #[cfg(feature = "text")]
    #[must_use]
    pub fn new(
        name: &str,
        index: u16,
        dimension: u64,
        workers: impl IntoIterator<Item = impl Into<String>>,
        server: &str,
    ) -> Self {
        let workers: Vec<String> = workers.into_iter().map(Into::into).collect();
        section!(name, index, dimension, workers, server)
    }

    /// Bytes of an element on the wire.
    fn element_bytes(&self) -> u16 {
        u16::try_from(self.element.len_bytes()).unwrap_or(u16::MAX).max(1)
    }

    /// Elements of a chunk.
    #[must_use]
    pub fn elements(&self) -> u16 {
        self.elements_per_chunk.unwrap_or_else(|| CHUNK_BYTES / self.element_bytes())
    }

    /// Chunks of an update.
    #[must_use]
    pub fn chunk_count(&self) -> u64 {
        self.dimension.div_ceil(u64::from(self.elements().max(1)))
    }

    /// Bytes of the Ethernet frames that carry an update.
    #[must_use]
    pub fn update_bytes(&self) -> u64 {
        let payload = u64::from(self.elements()) * u64::from(self.element_bytes());
        self.chunk_count().saturating_mul(FRAME_OVERHEAD_BYTES + payload)
    }

    /// What an update can take on the wire, over IPv4 or IPv6, with or without tags.
    #[must_use]
    pub fn update_bytes_range(&self) -> (u64, u64) {
        let least = self.update_bytes();
        (least, least.saturating_add(self.chunk_count().saturating_mul(FRAME_EXTRA_BYTES_MAX)))
    }

    /// The largest delay of a commit.
    #[must_use]
    pub fn delay_max(&self) -> u64 {
        self.tau_max.unwrap_or(2 * self.workers.len() as u64)
    }
}

/// The rules themselves.
const POLICY_DEFAULT: &str = "mlfabric";
/// Payload of a chunk that fits an MTU of 1500.
const CHUNK_BYTES: u16 = 1024;
/// Ethernet, IPv4, UDP and Weft's header.
const FRAME_OVERHEAD_BYTES: u64 = 14 + 20 + 8 + 32;
/// What a frame may have beyond: IPv6's longer header, two tags, frame check, preamble and gap.
const FRAME_EXTRA_BYTES_MAX: u64 = 20 + 8 + 4 + 20 + 12;
