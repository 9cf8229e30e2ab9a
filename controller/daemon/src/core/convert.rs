//! Between the interface's messages and what the engine takes and gives.

use weft_control::{RoundWord, ServerEpoch};
use weft_controller_engine::{
    Gate, Grant, JobConfig, ProbeTrain, Refusal, Reply, Telemetry, TransferKey,
};
use weft_plan::net::estimate::train::{Arrival, PACKETS_MAX, Reading};
use weft_rpc::convert::{decision_to_proto, rank_to_proto, rounds};
use weft_rpc::v1;
use weft_rpc::v1::worker_reply::Message;

/// The engine's refusal in the interface's words.
pub(super) fn refused(refusal: Refusal) -> v1::Refused {
    v1::Refused::new(refusal.field, refusal.problem)
}

/// A reply in the interface's words.
pub(super) fn reply_to_proto(reply: &Reply) -> Message {
    match reply {
        Reply::Grant(grant) => Message::Grant(grant_to_proto(grant)),
        Reply::Drop { update_id, reason } => Message::Drop(v1::Drop {
            update_id: *update_id,
            reason: v1::DropReason::from(reason).into(),
            detail: reason.as_str().to_owned(),
        }),
        Reply::Release { update_id, segment } => {
            Message::Release(v1::Release { update_id: *update_id, segment: *segment })
        }
        Reply::Delivered { update_id, decision } => {
            let (decision, version) = decision_to_proto(*decision);
            let decision = decision.into();
            Message::Delivered(v1::Delivered { update_id: *update_id, decision, version })
        }
        Reply::ServerMoved { address, epoch } => {
            Message::ServerMoved(v1::ServerMoved { address: address.clone(), epoch: epoch.0 })
        }
    }
}

/// What a worker of an allreduce is told, in the interface's words.
pub(super) fn round_word(word: RoundWord) -> Message {
    match word {
        RoundWord::Cohort(cohort) => Message::Cohort(rounds::cohort_to_proto(cohort)),
        RoundWord::Order(turn, order) => {
            Message::RoundOrder(rounds::round_order_to_proto(turn, order))
        }
    }
}

fn grant_to_proto(grant: &Grant) -> v1::Grant {
    let segments = grant.segments.iter().map(|segment| v1::Segment {
        rate_bytes_per_sec: segment.rate_bytes_per_sec,
        expected_in_ns: segment.expected_in_ns,
        gate: Some(match segment.gate {
            Gate::Open => v1::segment::Gate::Open(true),
            Gate::After(key) => v1::segment::Gate::After(v1::TransferId {
                group: key.group().0,
                rank: match key {
                    TransferKey::Member(_, rank) => Some(rank_to_proto(rank)),
                    TransferKey::Sum(_) | TransferKey::Copy(_) => None,
                },
            }),
        }),
    });
    v1::Grant {
        update_id: grant.update_id,
        group: grant.group.0,
        order: grant.order.0,
        via: grant.via.map(|via| via.0.into()),
        exponent: grant.exponent.into(),
        segments: segments.collect(),
        replicate: grant.replicate,
        member_count: grant.member_count,
        train_chunks: grant.train_chunks.into(),
    }
}

/// A job as its workers need to know it. `address` gives a box's.
pub(super) fn describe(
    job: &JobConfig,
    epoch: ServerEpoch,
    (telemetry_period_ns, probe_nonce): (u64, u64),
    address: &dyn Fn(&str) -> String,
) -> v1::JobDescription {
    let place = |index: usize, node: &String| v1::Box {
        index: u32::try_from(index).unwrap_or(u32::MAX),
        node: node.clone(),
        address: address(node),
    };
    let aggregators = job.aggregators.iter().enumerate();
    v1::JobDescription {
        name: job.name.clone(),
        job: job.index.into(),
        dimension: job.dimension,
        element_type: v1::ElementType::from(job.element).into(),
        elements_per_chunk: job.elements().into(),
        chunk_count: u32::try_from(job.chunk_count()).unwrap_or(u32::MAX),
        worker_count: u32::try_from(job.workers.len()).unwrap_or(u32::MAX),
        tau_max: job.delay_max(),
        mode: v1::Mode::from(job.mode).into(),
        partial_count: job.partial_count.unwrap_or(0),
        server: Some(place(0, &job.server)),
        aggregators: aggregators.map(|(index, node)| place(index, node)).collect(),
        replica: job.replica.as_ref().map(|node| place(job.aggregators.len(), node)),
        epoch: epoch.0,
        telemetry_period_ns,
        probe_nonce,
        label: 0,
    }
}

/// Reads counters.
pub(super) const fn telemetry(telemetry: &v1::Telemetry) -> Telemetry {
    Telemetry {
        at_ns: telemetry.at_ns,
        rx_bytes: telemetry.rx_bytes,
        tx_bytes: telemetry.tx_bytes,
        nic_rx_bytes: telemetry.nic_rx_bytes,
        nic_tx_bytes: telemetry.nic_tx_bytes,
    }
}

/// Reads a probe train.
///
/// # Errors
/// Lists that are too long, or not of one length.
pub(super) fn probe_train(train: &v1::ProbeTrain) -> Result<ProbeTrain, v1::Refused> {
    let most = PACKETS_MAX as usize;
    if train.at_ns.len() > most {
        return Err(v1::Refused::new("at_ns", "must be at most 256"));
    }
    if train.reading_at_ns.len() > most || train.reading_at_ns.len() != train.reading_bytes.len() {
        return Err(v1::Refused::new(
            "reading_bytes",
            "must be at most 256, and as many as reading_at_ns",
        ));
    }
    let arrival = |at_ns: &u64| Arrival { at_ns: *at_ns, len_bytes: train.frame_bytes };
    let readings = train.reading_at_ns.iter().zip(&train.reading_bytes);
    let reading = |(at_ns, total): (&u64, &u64)| Reading { at_ns: *at_ns, total_bytes: *total };
    Ok(ProbeTrain {
        train: train.train,
        arrivals: train.at_ns.iter().map(arrival).collect(),
        readings: readings.map(reading).collect(),
    })
}
