//! What a finished allreduce amounts to, and the rows of its directory. Pure but for writing them.

use weft_wire::header::ElementType;

use super::verify::ReduceProof;
use crate::lab::tc::Rate;
use crate::report::{FilesError, RoundRow, RunWriter, TransferRow};
use crate::run::background::{bytes_at, part};
use crate::run::bottleneck::{Bottleneck, Usage};
use crate::run::finished::{Finished, Judgement};
use crate::run::plan::{Io, Place};
use crate::run::{BoxCounters, RoundMessage, WorkerSummary};

/// Judges the run.
pub(in crate::run) fn judge(
    run: &Finished<'_>,
    proof: Option<&ReduceProof>,
    total: &WorkerSummary,
) -> Judgement {
    let summaries = &run.observed.summaries;
    let mut wrong = Vec::new();
    let wrong_sums = proof.map(ReduceProof::wrong_sums);
    if let Some(wrong_sums) = wrong_sums.filter(|count| *count > 0) {
        wrong.push(format!("{wrong_sums} elements of sums differ from the reference"));
    }
    let is_identical = proof.map(|proof| {
        let is_same =
            |(_, summary): &(u8, WorkerSummary)| summary.model_sha256 == proof.model_sha256;
        proof.wrong_parameters == 0 && summaries.iter().all(is_same)
    });
    if is_identical == Some(false) {
        wrong.push("a final model differs from the reference".to_owned());
    }
    let rounds = &run.observed.rounds;
    let first = rounds.iter().map(|(_, round)| round.start_ns).min();
    let last = rounds.iter().map(|(_, round)| round.start_ns + round.duration_ns).max();
    Judgement {
        wrong,
        // Those that every worker finished.
        rounds: (rounds.len() / run.plan.workers.len()) as u64,
        span_ns: first.zip(last).map_or(0, |(first, last)| last - first),
        accuracy: summaries.first().map(|(_, summary)| summary.accuracy),
        is_identical,
        model_sha256: proof.map(|proof| proof.model_sha256.clone()),
        wrong_sums,
        bottleneck: run.is_whole().then(|| Bottleneck::of(&usage(run, total))),
        push: None,
    }
}

fn usage(run: &Finished<'_>, total: &WorkerSummary) -> Usage {
    let waiting_ns = run.observed.rounds.iter().map(|(_, round)| round.duration_ns).sum();
    let rate = run.scenario.lab.rate_mbit.filter(|_| run.ground.place == Place::Lab);
    Usage {
        wall_ns: run.wall_ns,
        cpu_ns: run.cpu_ns(),
        cpus: std::thread::available_parallelism().map_or(1, |cpus| cpus.get() as u64),
        waiting_ns,
        workers: run.plan.workers.len() as u64,
        link_bytes: busiest_link_bytes(run, waiting_ns),
        link_bytes_per_sec: rate.and_then(Rate::from_mbit).map(|rate| rate.bits_per_sec() / 8),
        retransmissions: total.retransmissions,
        contributions: total.chunks_sent,
        faults_fired: total.faults_fired,
    }
}

/// Bytes that the busiest link carried in one direction during transfers, for which workers
/// waited so long together.
fn busiest_link_bytes(run: &Finished<'_>, waiting_ns: u64) -> u64 {
    // Transfers take a part of the run's time, and meet as large a part of others' traffic.
    let waited_ns = waiting_ns / (run.plan.workers.len().max(1) as u64);
    let others = |host: &str| {
        let bytes = bytes_at(&run.observed.background, host, 0, u64::MAX);
        bytes.map(|bytes| part(bytes, waited_ns.min(run.wall_ns), run.wall_ns))
    };
    let of_box = |(name, counters): &(String, BoxCounters)| {
        // A port that takes frames off an interface has counted those of others.
        let down = if run.ground.io == Io::Udp { others(name)[1] } else { 0 };
        counters.rx_bytes + down
    };
    let of_worker = |(rank, summary): &(u8, WorkerSummary)| {
        let [up, down] = others(&format!("w{rank}"));
        (summary.tx_bytes + up).max(summary.rx_bytes + down)
    };
    let boxes = run.observed.boxes.iter().map(of_box);
    boxes.chain(run.observed.summaries.iter().map(of_worker)).max().unwrap_or(0)
}

/// Writes rounds and transfers.
pub(in crate::run) fn write(
    run: &Finished<'_>,
    proof: Option<&ReduceProof>,
    writer: &mut RunWriter,
) -> Result<(), FilesError> {
    let element_bytes = ElementType::I32.len_bytes() as u64;
    let chunk_bytes = u64::from(run.plan.elements) * element_bytes;
    let mut rounds: Vec<Vec<&RoundMessage>> = vec![Vec::new(); run.scenario.job.rounds as usize];
    for (rank, round) in &run.observed.rounds {
        writer.transfer(&TransferRow {
            round: u64::from(round.round),
            rank: (*rank).into(),
            start_ns: run.since_begin(round.start_ns),
            duration_ns: round.duration_ns,
            bytes: round.chunks * chunk_bytes,
            chunks_aggregated: round.chunks,
            chunks_direct: 0,
            retransmissions: round.retransmissions,
            duplicates: round.duplicates,
            source: format!("w{rank}"),
            target: run.plan.box_name((*rank).into()).to_owned(),
            ..TransferRow::default()
        })?;
        if let Some(place) = rounds.get_mut(round.round as usize) {
            place.push(round);
        }
    }
    for (index, parts) in rounds.iter().enumerate().filter(|(_, parts)| !parts.is_empty()) {
        let start = parts.iter().map(|part| part.start_ns).min().unwrap_or(run.begun_ns);
        let end = parts.iter().map(|part| part.start_ns + part.duration_ns).max().unwrap_or(start);
        let proved = proof.and_then(|proof| proof.rounds.get(index)).copied().unwrap_or_default();
        writer.round(&RoundRow {
            round: index as u64,
            start_ns: run.since_begin(start),
            duration_ns: end - start,
            wrong_sums: proved.wrong_sums,
            clamped_elements: proved.clamped_elements,
            loss: parts.iter().map(|part| part.loss).sum::<f32>() / parts.len() as f32,
        })?;
    }
    Ok(())
}
