//! What an aggregator is to hold for an allreduce job. Pure.

use alloc::vec::Vec;

use weft_config::controller::ReduceConfig;
use weft_control::{JobConfig, MemberConfig, RowConfig, SumOrder};
use weft_wire::JobId;
use weft_wire::header::{ElementType, Operation};

/// The job's share of the box.
pub(super) fn share(config: &ReduceConfig) -> JobConfig {
    JobConfig {
        job: JobId(config.index),
        slots_max: config.window.into(),
        rate_bytes_per_sec: None,
        burst_bytes: BURST_BYTES,
    }
}

/// The lease of workers at these places, in their order.
pub(super) fn row(config: &ReduceConfig, places: &[u16]) -> RowConfig {
    let places = places.iter().filter_map(|place| config.places.get(usize::from(*place)));
    let members: Vec<MemberConfig> = places
        .map(|place| MemberConfig { addr: place.address, weight: 1, is_box: false })
        .collect();
    let fan_in = u32::try_from(members.len()).unwrap_or(u32::MAX);
    RowConfig {
        row: config.row,
        job: JobId(config.index),
        members,
        element_type: ElementType::I32,
        operation: Operation::Sum,
        sum_order: SumOrder::Arrival,
        overflow: config.overflow,
        integrity: config.integrity,
        elements: config.elements,
        window: config.window,
        chunks_max: config.chunks_max,
        exponent: Some(config.exponent),
        fan_in,
        parent: None,
    }
}

/// The depth of a bucket that is not limited.
const BURST_BYTES: u64 = 1 << 20;
