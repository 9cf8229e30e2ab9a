//! One worker of a cohort: begins from the checkpoint, if there is one, trains while the controller
//! lets it, and keeps the next checkpoint when the cohort is over.

use anyhow::{Context as _, ensure};
use weft_client::Session;
use weft_client::checkpoint::{Checkpoint, Optimiser, Position, Shape, file};
use weft_client::rounds::{Next, RoundConfig, RoundControl};
use weft_io::Port;
use weft_io::fault::Fault;

use crate::run::plan::{CohortPlan, WorkerPlan};
use crate::run::{RoundMessage, WorkerMessage, WorkerSummary, monotonic_ns, process_cpu_ns};
use crate::workload::digits::{Trainer, TrainerConfig};

pub(in crate::run) fn train<P: Port>(
    plan: &WorkerPlan,
    own: &CohortPlan,
    port: Fault<P>,
    say: &mut dyn FnMut(WorkerMessage),
) -> anyhow::Result<WorkerSummary> {
    let job = &plan.scenario.job;
    let workers = usize::from(own.workers);
    let config = TrainerConfig {
        learning_rate: scaled_rate(job.learning_rate, own.workers, job.workers),
        ..job.trainer()
    };
    let mut trainer = Trainer::new(usize::from(plan.rank), workers, plan.seed, &config)?;
    let shape = Shape {
        parameters: trainer.parameter_count() as u64,
        seed: plan.seed,
        batch: u32::try_from(job.batch).unwrap_or(u32::MAX),
    };
    let mut round = 0;
    if own.cohort > 0 {
        let kept = file::read(&own.checkpoint, &shape)?
            .with_context(|| format!("there is no checkpoint `{}`", own.checkpoint.display()))?;
        trainer.restore(&kept.parameters, &kept.velocity);
        round = kept.position.round;
    }
    let endpoint = plan.controller.clone().context("a cohort has a controller")?;
    let mut control = RoundControl::connect(&RoundConfig {
        cohort: own.cohort,
        next_round: round,
        tls: plan.tls.clone(),
        ..RoundConfig::new(endpoint, plan.job).rank(plan.rank)
    })?;
    let cohort = control.cohort();
    ensure!(
        (cohort.workers, cohort.from_round) == (own.workers.into(), round),
        "the controller wants {} workers from round {} on, and this one was started for {workers} \
         from {round}",
        cohort.workers,
        cohort.from_round,
    );
    let mut session = Session::over(port, &plan.client())?;
    control.watch(session.messages());
    say(WorkerMessage::Joined { at_ns: monotonic_ns() });
    let mut gradient = vec![0.0; trainer.parameter_count()];
    let mut values = gradient.clone();
    let lens = trainer.tensor_lens();
    let bytes = 4 * gradient.len() as u64;
    let mut is_over = false;
    while round < u64::from(job.rounds) {
        match control.next_round(bytes)? {
            Next::Round(next) => {
                ensure!(next == round, "round {next} is due, and {round} comes next here");
                let loss = trainer.gradient(round, &mut gradient);
                values.copy_from_slice(&gradient);
                let start_ns = monotonic_ns();
                // Each layer is a tensor of its own; the bits are those of one vector.
                let mut layers = split(&mut values, &lens);
                let report = session.allreduce_many(&mut layers)?;
                let duration_ns = monotonic_ns() - start_ns;
                for value in &mut values {
                    *value /= f32::from(own.workers);
                }
                trainer.apply(&values);
                say(WorkerMessage::Round(RoundMessage {
                    round: u32::try_from(round).unwrap_or(u32::MAX),
                    start_ns,
                    duration_ns,
                    loss,
                    chunks: report.chunks,
                    retransmissions: 0,
                    duplicates: 0,
                    chunks_clamped: report.chunks_clamped,
                }));
                round += 1;
            }
            // All hold the same model; one keeps it.
            Next::Checkpoint(_) if plan.rank > 0 => {}
            Next::Checkpoint(at) => {
                ensure!(at == round, "a checkpoint of round {at} is asked for, at {round}");
                let checkpoint = Checkpoint {
                    parameters: trainer.parameters().to_vec(),
                    velocity: trainer.velocity().to_vec(),
                    optimiser: Optimiser::Sgd {
                        learning_rate: config.learning_rate,
                        momentum: config.momentum,
                    },
                    position: Position {
                        round,
                        seed: plan.seed,
                        batch: shape.batch,
                        workers: own.workers.into(),
                    },
                };
                file::write(&own.checkpoint, &checkpoint)?;
            }
            Next::End => {
                is_over = true;
                break;
            }
        }
    }
    let statistics = session.statistics();
    let stats = session.port().stats();
    let summary = WorkerSummary {
        accuracy: trainer.accuracy(),
        model_sha256: trainer.model_sha256(),
        chunks_sent: statistics.data.chunks_sent,
        chunks_aggregated: statistics.data.answers,
        chunks_by_multicast: statistics.data.answers_by_multicast,
        retransmissions: statistics.data.retransmissions,
        tx_bytes: stats.tx_bytes,
        rx_bytes: stats.rx_bytes,
        cpu_ns: process_cpu_ns(),
        ..WorkerSummary::default()
    };
    // The lease of a cohort that is over is gone, and nobody would answer.
    if !is_over {
        session.close()?;
    }
    Ok(summary)
}

/// A vector's parts, one behind the other.
fn split<'a>(mut values: &'a mut [f32], lens: &[usize]) -> Vec<&'a mut [f32]> {
    let mut parts = Vec::with_capacity(lens.len());
    for len in lens {
        let (part, rest) = std::mem::take(&mut values).split_at_mut(*len);
        parts.push(part);
        values = rest;
    }
    parts
}

/// The linear rule: as the number of workers, so the step size.
pub(super) fn scaled_rate(rate: f32, workers: u8, workers_first: u8) -> f32 {
    rate * (f32::from(workers) / f32::from(workers_first))
}
