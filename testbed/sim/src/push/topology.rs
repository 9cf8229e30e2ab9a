//! Who is where, and how each engine is configured.

use std::net::SocketAddr;

use weft_control::{AckMode, BoxIndex};
use weft_engine::role::gather::PushConfig;
use weft_engine::role::model::ModelConfig;
use weft_engine::role::push::PusherConfig;
use weft_engine::role::replica::ReplicaJobConfig;
use weft_engine::role::server::{ServerJobConfig, snapshots_for};
use weft_wire::frame::Endpoint;
use weft_wire::header::ElementType;
use weft_wire::hello::{Integrity, Overflow};
use weft_wire::{JobId, MacAddr, Rank};

use super::scenario::{Kind, Scenario};

const PORT: u16 = 22_341;

/// Where a box listens.
#[must_use]
pub fn box_endpoint(scenario: &Scenario, node: usize) -> Endpoint {
    scenario.site.as_ref().map_or_else(|| endpoint(0, node), |site| site.place(node).1)
}

/// Where a worker of a job speaks from.
#[must_use]
pub fn worker_endpoint(scenario: &Scenario, job: usize, rank: usize) -> Endpoint {
    let site = scenario.site.as_ref();
    site.map_or_else(|| endpoint(1 + job, rank), |site| site.workers[rank].local)
}

fn endpoint(network: usize, host: usize) -> Endpoint {
    let byte = |value: usize| u8::try_from(value).expect("a small number");
    let (network, host) = (byte(network), byte(host + 1));
    Endpoint {
        mac: MacAddr([2, 0, 0, 0, network, host]),
        addr: SocketAddr::from(([10, 0, network, host], PORT)),
    }
}

/// The node that an address belongs to: boxes first, then the workers job by job.
#[must_use]
pub fn node_at(scenario: &Scenario, addr: SocketAddr) -> Option<usize> {
    if let Some(site) = &scenario.site {
        let boxes = (0..scenario.boxes()).map(|node| site.place(node).1.addr);
        return boxes.chain(site.workers.iter().map(|w| w.local.addr)).position(|at| at == addr);
    }
    let SocketAddr::V4(addr) = addr else { return None };
    let [10, 0, network, host] = addr.ip().octets() else { return None };
    let host = usize::from(host).checked_sub(1)?;
    let node = match usize::from(network).checked_sub(1) {
        None if host < scenario.boxes() => host,
        Some(job) if job < scenario.jobs && host < scenario.workers => {
            scenario.boxes() + job * scenario.workers + host
        }
        _ => return None,
    };
    (addr.port() == PORT).then_some(node)
}

/// A job on the wire.
#[must_use]
pub fn job_id(job: usize) -> JobId {
    JobId(u16::try_from(3 + 2 * job).expect("a small number"))
}

/// A job's place by its index on the wire.
#[must_use]
pub fn job_place(job: JobId) -> usize {
    usize::from((job.0 - 3) / 2)
}

/// A rank.
#[must_use]
pub fn rank(rank: usize) -> Rank {
    Rank::new(u8::try_from(rank).expect("a small number")).expect("below 64")
}

/// The index of an aggregator in every job.
#[must_use]
pub fn box_index(node: usize) -> BoxIndex {
    BoxIndex(u8::try_from(node).expect("a small number"))
}

/// The index of the replica in every job: the one after the aggregators'.
#[must_use]
pub fn replica_index(scenario: &Scenario) -> BoxIndex {
    box_index(scenario.aggregators)
}

/// Exponent of all fixed-point updates.
pub const EXPONENT: i8 = -4;

/// What an element is.
#[must_use]
pub fn element_type(scenario: &Scenario) -> ElementType {
    if scenario.is_fixed { ElementType::I32 } else { ElementType::F32 }
}

fn workers(scenario: &Scenario, job: usize) -> Vec<SocketAddr> {
    (0..scenario.workers).map(|rank| worker_endpoint(scenario, job, rank).addr).collect()
}

fn model(scenario: &Scenario, job: usize) -> ModelConfig {
    ModelConfig {
        elements: scenario.elements,
        momentum: scenario.momentum,
        exponent: EXPONENT,
        ..ModelConfig::new(job_id(job), scenario.dimension())
    }
}

/// A job at an aggregator.
#[must_use]
pub fn push(scenario: &Scenario, node: usize, job: usize) -> PushConfig {
    if let Some(site) = &scenario.site {
        return site.aggregators[node].config.clone();
    }
    let chunk_len = (u64::from(scenario.elements) * 4).next_multiple_of(64) + 16;
    PushConfig {
        job: job_id(job),
        box_index: box_index(node),
        workers: workers(scenario, job),
        server: Endpoint { mac: MacAddr::BROADCAST, ..box_endpoint(scenario, scenario.server()) },
        replica: scenario
            .replica()
            .map(|node| Endpoint { mac: MacAddr::BROADCAST, ..box_endpoint(scenario, node) }),
        quota_bytes: u64::from(scenario.quota_updates * scenario.chunks) * chunk_len,
        pull_cache_bytes: u64::from(scenario.elements) * 4 * 8,
        chunks: scenario.chunks,
        elements: scenario.elements,
        element_type: element_type(scenario),
        overflow: Overflow::Wrap,
        integrity: Integrity::Crc32c,
        exponent: Some(EXPONENT),
        // What a token bucket refuses is sent again.
        rate_bytes_per_sec: scenario.seed.is_multiple_of(11).then_some(100_000),
        burst_bytes: if scenario.seed.is_multiple_of(11) { 2_048 } else { 1 << 20 },
    }
}

/// A job at a server with the settings that users get.
pub(super) fn usual_server(scenario: &Scenario, job: usize) -> ServerJobConfig {
    ServerJobConfig {
        tau_max: scenario.tau_max,
        ..ServerJobConfig::new(model(scenario, job), workers(scenario, job))
    }
}

/// A job at the server.
#[must_use]
pub fn server(scenario: &Scenario, job: usize) -> ServerJobConfig {
    if let Some(site) = &scenario.site {
        return site.server.config.clone();
    }
    let boxes = (0..scenario.aggregators).chain(scenario.replica());
    let (usual, boxes_max) = (usual_server(scenario, job), scenario.boxes() - 1);
    ServerJobConfig {
        boxes: boxes.map(|node| Some(box_endpoint(scenario, node).addr)).collect(),
        replica: scenario.replica().map(|_| replica_index(scenario)),
        ack: if scenario.has_heir() { AckMode::Replica } else { AckMode::Commit },
        div_max: scenario.div_max,
        divergence_wait_ns: 200_000_000,
        lateness_ns: 1_500_000_000,
        fallback_ns: 30_000_000,
        source_timeout_ns: 100_000_000,
        groups_open_max: 16,
        staging_bytes_max: 16 * 4 * u64::from(scenario.elements) * u64::from(scenario.chunks),
        // A short log makes a replica take snapshots, and its server know less of it.
        log_entries_max: if scenario.seed.is_multiple_of(3) { 2 } else { 12 },
        log_bytes_max: 8 * 4 * u64::from(scenario.elements) * u64::from(scenario.chunks),
        // Fewer copies than peers, or as many as users get.
        snapshots_max: match scenario.seed % 2 {
            1 if scenario.kind != Kind::Promotion => snapshots_for(scenario.workers + boxes_max),
            _ => 3,
        },
        window_max: 8,
        credits_max: 12,
        ..usual
    }
}

/// A job at the replica.
#[must_use]
pub fn replica(scenario: &Scenario, job: usize) -> ReplicaJobConfig {
    if let Some(Some(replica)) = scenario.site.as_ref().map(|site| &site.replica) {
        return replica.config.clone();
    }
    let target = Endpoint { mac: MacAddr::BROADCAST, ..box_endpoint(scenario, scenario.server()) };
    let boxes = (0..scenario.aggregators).map(|node| Some(box_endpoint(scenario, node).addr));
    ReplicaJobConfig {
        boxes: boxes.collect(),
        tau_max: scenario.tau_max,
        lateness_ns: 1_500_000_000,
        groups_open_max: 16,
        staging_bytes_max: if scenario.has_heir() { 16 } else { 8 }
            * 4
            * u64::from(scenario.elements)
            * u64::from(scenario.chunks),
        window_max: 8,
        ..ReplicaJobConfig::new(
            model(scenario, job),
            replica_index(scenario),
            target,
            workers(scenario, job),
        )
    }
}

/// A worker with the settings that users get.
pub(super) fn usual_pusher(scenario: &Scenario, job: usize, worker: usize) -> PusherConfig {
    let target = Endpoint { mac: MacAddr::BROADCAST, ..box_endpoint(scenario, scenario.server()) };
    let local = worker_endpoint(scenario, job, worker);
    PusherConfig::new(job_id(job), rank(worker), local, target)
}

/// A worker.
#[must_use]
pub fn pusher(scenario: &Scenario, job: usize, worker: usize) -> PusherConfig {
    if let Some(site) = &scenario.site {
        return site.workers[worker];
    }
    PusherConfig {
        element_type: element_type(scenario),
        updates_max: scenario.in_flight,
        cwnd_initial: 4,
        cwnd_max: 16,
        member_timeout_ns: 60_000_000_000,
        connect_timeout_ns: 60_000_000_000,
        ..usual_pusher(scenario, job, worker)
    }
}
