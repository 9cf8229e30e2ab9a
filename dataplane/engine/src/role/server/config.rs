//! What a server is told before it starts, and the checks that make it a [`ServerJobConfig`] that
//! the engine can trust.

use alloc::vec::Vec;
use core::net::SocketAddr;

use weft_control::{
    AckMode, BoxIndex, CommitMode, ConductMode, GROUPS_OPEN_MAX, OrderNumber, Version,
};
use weft_wire::MEMBERS_MAX;
use weft_wire::frame::{ETHERNET_LEN, Endpoint};

use crate::role::channel::{BOXES_MAX, ChannelHostConfig};
use crate::role::model::{ModelConfig, ModelConfigError};
use crate::table::peer_problem;

/// One job of a server.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerJobConfig {
    /// The model.
    pub model: ModelConfig,
    /// Addresses of the workers, by rank.
    pub workers: Vec<SocketAddr>,
    /// Addresses of the aggregators and the replica, by index.
    pub boxes: Vec<Option<SocketAddr>>,
    /// The replica among them.
    pub replica: Option<BoxIndex>,
    /// Greatest delay of a committed update (I4).
    pub tau_max: u64,
    /// Bound of the distance to the replica (I5); `None`: it is measured, not held.
    pub div_max: Option<f64>,
    /// How long a commit may wait for the replica for the bound's sake. Default 1 s.
    pub divergence_wait_ns: u64,
    /// Which order groups are committed in.
    pub commit: CommitMode,
    /// Whom credits go to.
    pub conduct: ConductMode,
    /// When updates are acknowledged.
    pub ack: AckMode,
    /// What the server's link may receive for this job, bytes of Ethernet frames per second, of
    /// which credits call for 31/32; `None`: as much as comes.
    pub rate_bytes_per_sec: Option<u64>,
    /// Lateness bound of updates without a controller, and of order numbers that nobody installs.
    /// Default 2 s.
    pub lateness_ns: u64,
    /// How long no controller must have been there before updates that workers announce without a
    /// grant get order numbers; of no effect where there never was one. Default 1 s.
    pub fallback_ns: u64,
    /// How long an aggregator may be silent before its groups' members are asked. Default 500 ms.
    pub source_timeout_ns: u64,
    /// Groups open at a time, at most 1024. Default 256.
    pub groups_open_max: u16,
    /// Bytes of updates that may be staged at a time; at least one update's. Default 256 MiB.
    pub staging_bytes_max: u64,
    /// Decisions that the log keeps. Default 1024.
    pub log_entries_max: usize,
    /// Bytes of sums that the log keeps for the replica. Default 256 MiB.
    pub log_bytes_max: u64,
    /// Versions that can be pulled at a time. Default: what [`snapshots_for`] says of the workers;
    /// a job with boxes needs more.
    pub snapshots_max: usize,
    /// How long those who pull a version must have asked for nothing before it makes room for
    /// another. Default 50 ms.
    pub snapshot_idle_ns: u64,
    /// Credits in flight, per source. Default 256. A group without a granted rate uses 64 of them,
    /// one with a rate what flows in 6 ms and two of the shortest round trips.
    pub window_max: u32,
    /// Credits in flight, of all sources together. Default 512.
    pub credits_max: u32,
    /// Least time before a PULL is repeated, where no later answer shows that it is lost. Default
    /// 20 ms.
    pub rto_min_ns: u64,
    /// Greatest time before a PULL is repeated, back-off included. Default 200 ms.
    pub rto_max_ns: u64,
    /// The model at the start: weights in order, missing ones zero.
    pub initial: Vec<f32>,
    /// Version of the initial model.
    pub initial_version: Version,
    /// The order number that is decided first. A restarted server must not use one again.
    pub initial_order: OrderNumber,
    /// True when decisions are told only once [`super::Server::handle_durable`] says that they are
    /// kept. Default: they are told at once, and a server that dies forgets them.
    pub is_durable: bool,
}

impl ServerJobConfig {
    /// The defaults of the fields' documentation, no replica, `tau_max` twice the workers.
    #[must_use]
    pub fn new(model: ModelConfig, workers: Vec<SocketAddr>) -> Self {
        let tau_max = 2 * workers.len() as u64;
        Self {
            snapshots_max: snapshots_for(workers.len()),
            model,
            workers,
            boxes: Vec::new(),
            replica: None,
            tau_max,
            div_max: None,
            divergence_wait_ns: 1_000_000_000,
            commit: CommitMode::Order,
            conduct: ConductMode::InOrder,
            ack: AckMode::Commit,
            rate_bytes_per_sec: None,
            lateness_ns: 2_000_000_000,
            fallback_ns: 1_000_000_000,
            source_timeout_ns: 500_000_000,
            groups_open_max: 256,
            staging_bytes_max: 256 << 20,
            log_entries_max: 1024,
            log_bytes_max: 256 << 20,
            snapshot_idle_ns: 50_000_000,
            window_max: 256,
            credits_max: 512,
            rto_min_ns: 20_000_000,
            rto_max_ns: 200_000_000,
            initial: Vec::new(),
            initial_version: Version(0),
            initial_order: OrderNumber(0),
            is_durable: false,
        }
    }

    /// Groups that can be staged at a time.
    #[must_use]
    pub fn stages_open(&self) -> u32 {
        stages(self.staging_bytes_max, &self.model).min(u32::from(self.groups_open_max))
    }

    /// Sums that the log can keep.
    #[must_use]
    pub fn stages_logged(&self) -> u32 {
        let most = u32::try_from(self.log_entries_max).unwrap_or(u32::MAX);
        if self.replica.is_some() { stages(self.log_bytes_max, &self.model).min(most) } else { 0 }
    }

    pub(crate) fn host(&self, local: Endpoint) -> ChannelHostConfig {
        ChannelHostConfig {
            local,
            terms: self.model.terms(),
            workers: self.workers.clone(),
            boxes: self.boxes.clone(),
        }
    }

    /// Judges the configuration of a job of a server that listens at `local`.
    ///
    /// # Errors
    /// [`ModelConfigError`] naming the field and the remedy.
    pub fn check(&self, local: &Endpoint, mtu: u16) -> Result<(), ModelConfigError> {
        let error = |field, problem| Err(ModelConfigError { field, problem });
        self.model.check(local, mtu)?;
        check_peers(local, &self.workers, &self.boxes)?;
        if let Some(BoxIndex(index)) = self.replica
            && self.boxes.get(usize::from(index)).copied().flatten().is_none()
        {
            return error("replica", "must be the index of one of the boxes");
        }
        if self.replica.is_none() && (self.div_max.is_some() || self.ack == AckMode::Replica) {
            return error("replica", "is needed for div_max and for acknowledging after it");
        }
        if self.div_max.is_some_and(|bound| bound.is_nan() || bound <= 0.0) {
            return error("div_max", "must be positive");
        }
        if self.rate_bytes_per_sec == Some(0) {
            return error("rate_bytes_per_sec", "must be positive; omit it for no limit");
        }
        if self.groups_open_max == 0 || self.groups_open_max > GROUPS_OPEN_MAX {
            return error("groups_open_max", "must be from 1 to 1024");
        }
        if self.stages_open() == 0 {
            return error("staging_bytes_max", "must hold at least one update");
        }
        if self.staging_bytes_max > STAGING_BYTES_MAX {
            return error("staging_bytes_max", "must be at most 2^38");
        }
        if !(1..=LOG_ENTRIES_MAX).contains(&self.log_entries_max) {
            return error("log_entries_max", "must be from 1 to 2^20");
        }
        if self.log_bytes_max > STAGING_BYTES_MAX {
            return error("log_bytes_max", "must be at most 2^38");
        }
        if self.replica.is_some() && self.stages_logged() == 0 {
            return error("log_bytes_max", "must hold at least one update");
        }
        if !(1..=SNAPSHOTS_MAX).contains(&self.snapshots_max) {
            return error("snapshots_max", "must be from 1 to 64");
        }
        if !(1..=WINDOW_MAX).contains(&self.window_max) {
            return error("window_max", "must be from 1 to 1024");
        }
        if self.credits_max == 0 {
            return error("credits_max", "must be at least 1");
        }
        if self.rto_min_ns == 0 || self.rto_max_ns < self.rto_min_ns {
            return error("rto_min_ns", "must be positive and at most rto_max_ns");
        }
        if self.initial.len() > self.model.dimension {
            return error("initial", "has more parameters than the model");
        }
        Ok(())
    }
}

/// So many copies that each of the workers and boxes can pull another version, and there is room
/// for the next.
#[must_use]
pub fn snapshots_for(peers: usize) -> usize {
    (peers + 2).min(SNAPSHOTS_MAX)
}

fn stages(bytes: u64, model: &ModelConfig) -> u32 {
    u32::try_from(bytes / model.stage_len_bytes().max(1)).unwrap_or(u32::MAX)
}

/// Workers and boxes: distinct, of one family, and not too many.
fn check_peers(
    local: &Endpoint,
    workers: &[SocketAddr],
    boxes: &[Option<SocketAddr>],
) -> Result<(), ModelConfigError> {
    let error = |field, problem| Err(ModelConfigError { field, problem });
    if workers.is_empty() || workers.len() > MEMBERS_MAX {
        return error("workers", "must be 1 to 64");
    }
    if boxes.len() > BOXES_MAX {
        return error("boxes", "must be at most 64");
    }
    let all: Vec<SocketAddr> = workers.iter().chain(boxes.iter().flatten()).copied().collect();
    for (index, addr) in all.iter().enumerate() {
        let field = if index < workers.len() { "workers" } else { "boxes" };
        // A replica's list of boxes has its own place.
        let is_own_box = field == "boxes" && *addr == local.addr;
        if let Some(problem) = peer_problem(local, *addr).filter(|_| !is_own_box) {
            return error(field, problem);
        }
        if all[..index].contains(addr) {
            return error(field, "must have distinct addresses");
        }
    }
    Ok(())
}

/// Most memory that updates, or those that are kept for a replica, may be given.
pub(super) const STAGING_BYTES_MAX: u64 = 1 << 38;
/// Most decisions that are kept.
pub(super) const LOG_ENTRIES_MAX: usize = 1 << 20;
/// Longest window of credits of one source.
pub const WINDOW_MAX: u32 = 1024;
/// Most versions that can be pulled at a time.
pub const SNAPSHOTS_MAX: usize = 64;

const _: () = assert!(ETHERNET_LEN == 14, "rates count Ethernet headers");
