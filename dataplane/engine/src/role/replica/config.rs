//! What a replica is told before it starts.

use alloc::vec::Vec;
use core::net::SocketAddr;

use weft_control::{BoxIndex, OrderNumber, Version};
use weft_wire::frame::Endpoint;

use crate::role::channel::{ChannelClientConfig, ChannelHostConfig, Peer};
use crate::role::model::{ModelConfig, ModelConfigError};
use crate::role::server::{ServerJobConfig, snapshots_for};
use crate::table::peer_problem;

/// One job of a replica.
#[derive(Clone, Debug, PartialEq)]
pub struct ReplicaJobConfig {
    /// The model, as the server has it.
    pub model: ModelConfig,
    /// Which of the job's boxes this is.
    pub index: BoxIndex,
    /// The server. An Ethernet address of broadcast is learnt.
    pub server: Endpoint,
    /// Addresses of the workers, by rank.
    pub workers: Vec<SocketAddr>,
    /// Addresses of the aggregators, by index.
    pub boxes: Vec<Option<SocketAddr>>,
    /// Groups whose copies are staged at a time, at most 1024. Default 256.
    pub groups_open_max: u16,
    /// Bytes of updates that may be staged at a time; at least one update's. Default 256 MiB.
    pub staging_bytes_max: u64,
    /// How long copies may come after the decision before they are asked for. Default 5 ms.
    pub copy_grace_ns: u64,
    /// Time between two questions for what is next. Default 20 ms.
    pub status_interval_ns: u64,
    /// Chunks asked for at a time. Default 64.
    pub window_max: u32,
    /// Least time before a question is repeated. Default 2 ms.
    pub rto_min_ns: u64,
    /// Greatest time before a question is repeated, back-off included. Default 200 ms.
    pub rto_max_ns: u64,
    /// The model at the start, the same as the server's.
    pub initial: Vec<f32>,
    /// Greatest delay of a committed update, if it becomes the server. Default: twice the workers.
    pub tau_max: u64,
    /// Lateness bound of updates without a controller, if it becomes the server. Default 2 s.
    pub lateness_ns: u64,
    /// Version of the initial model.
    pub initial_version: Version,
    /// The order number that is applied first.
    pub initial_order: OrderNumber,
}

impl ReplicaJobConfig {
    /// The defaults of the fields' documentation.
    #[must_use]
    pub fn new(
        model: ModelConfig,
        index: BoxIndex,
        server: Endpoint,
        workers: Vec<SocketAddr>,
    ) -> Self {
        Self {
            tau_max: 2 * workers.len() as u64,
            lateness_ns: 2_000_000_000,
            model,
            index,
            server,
            workers,
            boxes: Vec::new(),
            groups_open_max: 256,
            staging_bytes_max: 256 << 20,
            copy_grace_ns: 5_000_000,
            status_interval_ns: 20_000_000,
            window_max: 64,
            rto_min_ns: 2_000_000,
            rto_max_ns: 200_000_000,
            initial: Vec::new(),
            initial_version: Version(0),
            initial_order: OrderNumber(0),
        }
    }

    /// Groups that can be staged at a time, besides the one that is repaired.
    #[must_use]
    pub fn stages_open(&self) -> u32 {
        self.as_server().stages_open()
    }

    /// The same job as its server has it, without a replica (SPEC#promotion).
    #[must_use]
    pub fn as_server(&self) -> ServerJobConfig {
        let peers = self.workers.len() + self.boxes.len();
        ServerJobConfig {
            boxes: self.boxes.clone(),
            tau_max: self.tau_max,
            lateness_ns: self.lateness_ns,
            groups_open_max: self.groups_open_max,
            staging_bytes_max: self.staging_bytes_max,
            snapshots_max: snapshots_for(peers),
            window_max: self.window_max,
            rto_min_ns: self.rto_min_ns,
            rto_max_ns: self.rto_max_ns,
            ..ServerJobConfig::new(self.model.clone(), self.workers.clone())
        }
    }

    pub(super) fn host(&self, local: Endpoint) -> ChannelHostConfig {
        self.as_server().host(local)
    }

    pub(super) fn client(&self, local: Endpoint) -> ChannelClientConfig {
        let chunk = 32 + 4 * self.model.elements;
        ChannelClientConfig {
            probe_len: chunk,
            ..ChannelClientConfig::new(self.model.job, Peer::Box(self.index), local, self.server)
        }
    }

    /// Judges the configuration of a job of a replica that listens at `local`.
    ///
    /// # Errors
    /// [`ModelConfigError`] naming the field and the remedy.
    pub fn check(&self, local: &Endpoint, mtu: u16) -> Result<(), ModelConfigError> {
        let error = |field, problem| Err(ModelConfigError { field, problem });
        // What it is as a server later, it must fit now.
        self.as_server().check(local, mtu)?;
        if let Some(problem) = peer_problem(local, self.server.addr) {
            return error("server", problem);
        }
        if self.index.0 >= 64 {
            return error("index", "must be below 64");
        }
        if self.status_interval_ns == 0 {
            return error("status_interval_ns", "must be positive");
        }
        if self.initial.len() > self.model.dimension {
            return error("initial", "has more parameters than the model");
        }
        Ok(())
    }
}
