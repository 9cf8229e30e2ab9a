//! What the sections of push jobs mean to the engines.

use weft_config::node::{PushSection, ReplicaSection, ServerSection};
use weft_control::{BoxIndex, OrderNumber, PushConfig, Version};
use weft_engine::role::model::ModelConfig;
use weft_engine::role::replica::ReplicaJobConfig;
use weft_engine::role::server::{ServerJobConfig, snapshots_for};
use weft_wire::frame::Endpoint;
use weft_wire::{JobId, MacAddr};

/// What a section means. Ethernet addresses are learnt from the first answers.
pub(super) fn push(section: &PushSection) -> PushConfig {
    let endpoint = |addr| Endpoint { mac: MacAddr::BROADCAST, addr };
    PushConfig {
        job: JobId(section.job),
        box_index: BoxIndex(section.box_index),
        workers: section.workers.clone(),
        server: endpoint(section.server),
        replica: section.replica.map(endpoint),
        quota_bytes: section.quota_bytes,
        pull_cache_bytes: section.pull_cache_bytes,
        chunks: section.chunks,
        elements: section.elements,
        element_type: section.element_type,
        overflow: section.overflow,
        integrity: section.integrity,
        exponent: section.exponent,
        rate_bytes_per_sec: section.rate_bytes_per_sec,
        burst_bytes: section.burst_bytes,
    }
}

/// What a section means; the initial model is still in its file.
pub(super) fn server(section: &ServerSection) -> ServerJobConfig {
    let model = ModelConfig {
        job: JobId(section.job),
        dimension: section.dimension,
        elements: section.elements,
        integrity: section.integrity,
        exponent: section.exponent,
        momentum: section.momentum,
        learning_rate: section.learning_rate,
    };
    let plain = ServerJobConfig::new(model, section.workers.clone());
    ServerJobConfig {
        boxes: section.boxes.iter().copied().map(Some).collect(),
        replica: section.replica.map(BoxIndex),
        tau_max: section.tau_max.unwrap_or(plain.tau_max),
        div_max: section.div_max,
        divergence_wait_ns: millis(section.divergence_wait_ms),
        commit: section.commit,
        conduct: section.conduct,
        ack: section.ack,
        rate_bytes_per_sec: section.rate_bytes_per_sec,
        lateness_ns: millis(section.lateness_ms),
        fallback_ns: millis(section.fallback_ms),
        source_timeout_ns: millis(section.source_timeout_ms),
        groups_open_max: section.groups_open_max,
        staging_bytes_max: section.staging_bytes_max,
        log_entries_max: section.log_entries_max,
        log_bytes_max: section.log_bytes_max,
        snapshots_max: section
            .snapshots_max
            .unwrap_or_else(|| snapshots_for(section.workers.len() + section.boxes.len())),
        window_max: section.window_max,
        credits_max: section.credits_max,
        rto_min_ns: micros(section.rto_min_us),
        rto_max_ns: micros(section.rto_max_us),
        initial_version: Version(section.initial_version),
        initial_order: OrderNumber(section.initial_order),
        is_durable: section.state_dir.is_some(),
        ..plain
    }
}

/// What a section means; the initial model is still in its file.
pub(super) fn replica(section: &ReplicaSection) -> ReplicaJobConfig {
    let model = ModelConfig {
        job: JobId(section.job),
        dimension: section.dimension,
        elements: section.elements,
        integrity: section.integrity,
        exponent: section.exponent,
        momentum: section.momentum,
        learning_rate: section.learning_rate,
    };
    let server = Endpoint { mac: MacAddr::BROADCAST, addr: section.server };
    let index = BoxIndex(section.box_index);
    let plain = ReplicaJobConfig::new(model, index, server, section.workers.clone());
    ReplicaJobConfig {
        tau_max: section.tau_max.unwrap_or(plain.tau_max),
        lateness_ns: millis(section.lateness_ms),
        boxes: section.boxes.iter().copied().map(Some).collect(),
        groups_open_max: section.groups_open_max,
        staging_bytes_max: section.staging_bytes_max,
        copy_grace_ns: micros(section.copy_grace_us),
        status_interval_ns: micros(section.status_interval_us),
        window_max: section.window_max,
        rto_min_ns: micros(section.rto_min_us),
        rto_max_ns: micros(section.rto_max_us),
        initial_version: Version(section.initial_version),
        initial_order: OrderNumber(section.initial_order),
        ..plain
    }
}

const fn millis(ms: u64) -> u64 {
    ms.saturating_mul(1_000_000)
}

const fn micros(us: u64) -> u64 {
    us.saturating_mul(1_000)
}
