//! One worker of an allreduce: trains on its share of the images, sums its gradients through the
//! client, records what went in and what came out.

use std::path::Path;

use weft_client::{Session, Statistics};
use weft_io::Port;
use weft_io::fault::Fault;

use crate::run::plan::WorkerPlan;
use crate::run::recording::Recording;
use crate::run::{
    RoundMessage, WorkerMessage, WorkerSummary, monotonic_ns, process_cpu_ns, recording_path,
};
use crate::workload::digits::Trainer;

pub(in crate::run) fn train<P: Port>(
    plan: &WorkerPlan,
    directory: &Path,
    port: Fault<P>,
    say: &mut dyn FnMut(WorkerMessage),
) -> anyhow::Result<WorkerSummary> {
    let job = &plan.scenario.job;
    let workers = usize::from(job.workers);
    let mut trainer = Trainer::new(usize::from(plan.rank), workers, plan.seed, &job.trainer())?;
    let mut recording = Recording::create(&recording_path(directory, usize::from(plan.rank)))?;
    let mut session = Session::over(port, &plan.client())?;
    say(WorkerMessage::Joined { at_ns: monotonic_ns() });
    let mut gradient = vec![0.0; trainer.parameter_count()];
    let mut values = gradient.clone();
    let mut before = session.statistics();
    for round in 0..job.rounds {
        let loss = trainer.gradient(u64::from(round), &mut gradient);
        values.copy_from_slice(&gradient);
        let start_ns = monotonic_ns();
        let report = session.allreduce(&mut values)?;
        let duration_ns = monotonic_ns() - start_ns;
        recording.round(&session.exponents(), &gradient, &values)?;
        for value in &mut values {
            *value /= f32::from(job.workers);
        }
        trainer.apply(&values);
        let after = session.statistics();
        say(WorkerMessage::Round(RoundMessage {
            round,
            start_ns,
            duration_ns,
            loss,
            chunks: report.chunks,
            retransmissions: retransmissions(&after) - retransmissions(&before),
            duplicates: after.data.duplicate_answers - before.data.duplicate_answers,
            chunks_clamped: report.chunks_clamped,
        }));
        before = after;
    }
    recording.finish(trainer.parameters())?;
    let statistics = session.statistics();
    let port = session.port();
    let stats = port.stats();
    let fired = |counts: weft_io::fault::FaultCounts| {
        counts.lost + counts.duplicated + counts.reordered + counts.corrupted
    };
    let mut summary = WorkerSummary {
        accuracy: trainer.accuracy(),
        model_sha256: trainer.model_sha256(),
        chunks_sent: statistics.data.chunks_sent,
        chunks_aggregated: statistics.data.answers,
        chunks_by_multicast: statistics.data.answers_by_multicast,
        retransmissions: retransmissions(&statistics),
        tx_bytes: stats.tx_bytes,
        rx_bytes: stats.rx_bytes,
        faults_fired: fired(port.rx_counts()) + fired(port.tx_counts()),
        ..WorkerSummary::default()
    };
    session.close()?;
    summary.cpu_ns = process_cpu_ns();
    Ok(summary)
}

fn retransmissions(statistics: &Statistics) -> u64 {
    let exponents = statistics.exponents.as_ref().map_or(0, |stats| stats.retransmissions);
    statistics.data.retransmissions + exponents
}
