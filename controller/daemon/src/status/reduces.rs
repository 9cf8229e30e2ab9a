//! Figures of allreduce jobs, for tools and people.

use std::fmt::Write;

use weft_controller_engine::{ReduceStatus, Resize};
use weft_rpc::v1;

pub(super) fn to_proto(job: &ReduceStatus) -> v1::ReduceStatus {
    v1::ReduceStatus {
        name: job.name.clone(),
        job: job.job.into(),
        state: v1::JobState::from(job.state).into(),
        cohort: job.cohort,
        workers: job.workers.into(),
        attached: u32::try_from(job.attached).unwrap_or(u32::MAX),
        from_round: job.from_round,
        next_round: job.next_round,
        boundary: job.boundary,
        is_leased: job.is_leased,
        wants_workers: job.wants_workers,
        rounds: job.rounds,
        bytes: job.bytes,
        service_ns: job.service_ns,
        round_ns: job.round_ns,
        resizes: job.resizes.iter().map(resize_to_proto).collect(),
        pauses: job.pauses.pauses,
        standstill_last_ns: job.pauses.standstill_last_ns,
        standstill_max_ns: job.pauses.standstill_max_ns,
        refusing: job.refusing.clone(),
        placed: job.placed.iter().map(|place| u32::from(*place)).collect(),
        round_messages: job.round_messages,
        round_bytes: job.round_bytes,
        largest_bytes: job.largest_bytes,
        skew: job.skew,
        unbegun: job.unbegun.clone(),
    }
}

/// A resize in the interface's words.
pub(crate) fn resize_to_proto(resize: &Resize) -> v1::Resize {
    v1::Resize {
        from: resize.from.into(),
        to: resize.to.into(),
        round: resize.round,
        stop_ns: resize.stop_ns,
        checkpoint_ns: resize.checkpoint_ns,
        lease_ns: resize.lease_ns,
        start_ns: resize.start_ns,
    }
}

/// A job for people.
pub(super) fn write_text(text: &mut String, job: &ReduceStatus) {
    // Writing to a string does not fail.
    let _ = writeln!(
        text,
        "job {} (allreduce): {}, cohort {} of {} workers ({} here), round {}, {} rounds seen at \
         {:.3} ms",
        job.name,
        job.state,
        job.cohort,
        job.workers,
        job.attached,
        job.next_round,
        job.rounds,
        job.round_ns as f64 / 1e6,
    );
    if let Some(skew) = job.skew {
        let _ = writeln!(
            text,
            "  {} tensors a round, {} bytes; the largest is {:.1} % of all",
            job.round_messages,
            job.round_bytes,
            100.0 * skew,
        );
    }
    if !job.unbegun.is_empty() {
        let _ = writeln!(text, "  {}", job.unbegun);
    }
    if !job.refusing.is_empty() {
        let _ = writeln!(text, "  its lease is refused: {}", job.refusing);
    }
    for resize in &job.resizes {
        let _ = writeln!(
            text,
            "  {} workers instead of {} from round {} on: checkpoint {:.3} s, lease {:.3} s, start \
             {:.3} s",
            resize.to,
            resize.from,
            resize.round,
            resize.checkpoint_ns as f64 / 1e9,
            resize.lease_ns as f64 / 1e9,
            resize.start_ns as f64 / 1e9,
        );
    }
}
