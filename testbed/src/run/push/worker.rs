//! One worker of a push run: pulls the model, computes an update on it, records it, pushes it,
//! until the model has the version at which the run ends.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use weft_client::push::{Outcome, PushSession, PushStatistics, Version};
use weft_control::Mode;
use weft_io::Port;
use weft_io::fault::Fault;

use super::recording::{UpdateRecording, updates_path};
use crate::run::plan::WorkerPlan;
use crate::run::{
    UpdateMessage, UpdateOutcome, WorkerMessage, WorkerSummary, monotonic_ns, process_cpu_ns,
};
use crate::workload::digits::{SplitMix64, Trainer};

pub(in crate::run) fn train<P: Port<Frame: Send> + Send + 'static>(
    plan: &WorkerPlan,
    directory: &Path,
    end: &AtomicU64,
    port: Fault<P>,
    say: &mut dyn FnMut(WorkerMessage),
) -> anyhow::Result<WorkerSummary> {
    let mut worker = Worker::new(plan, directory, port)?;
    let is_over = |version: u64| version >= end.load(Ordering::Relaxed);
    say(WorkerMessage::Joined { at_ns: monotonic_ns() });
    let mut model = vec![0.0; worker.update.len()];
    let mut pull_ns = monotonic_ns();
    let mut version = worker.session.pull(&mut model)?;
    while !is_over(version.0) {
        let message = worker.step(&model, version, pull_ns, say)?;
        let outcome = message.outcome;
        let committed = message.committed_version;
        say(WorkerMessage::Update(message));
        pull_ns = monotonic_ns();
        version = match worker.wait_for(version, outcome, committed) {
            Some(newer) => worker.session.pull_newer(&mut model, newer)?,
            None if is_over(committed) => break,
            None => worker.session.pull(&mut model)?,
        };
    }
    let statistics = worker.session.close()?;
    let mut summary = summary(&statistics);
    summary.cpu_ns = process_cpu_ns();
    Ok(summary)
}

struct Worker<'a> {
    plan: &'a WorkerPlan,
    trainer: Trainer,
    recording: UpdateRecording,
    session: PushSession,
    /// Draws the emulated computing times.
    random: SplitMix64,
    update: Vec<f32>,
    number: u64,
    /// Updates of a round.
    per_round: u64,
}

impl<'a> Worker<'a> {
    fn new<P: Port<Frame: Send> + Send + 'static>(
        plan: &'a WorkerPlan,
        directory: &Path,
        port: Fault<P>,
    ) -> anyhow::Result<Self> {
        let job = &plan.scenario.job;
        let workers = usize::from(job.workers);
        let rank = usize::from(plan.rank);
        let trainer = Trainer::new(rank, workers, plan.seed, &job.trainer())?;
        let path = updates_path(directory, plan.rank, plan.life);
        let per_round = u64::from(plan.push().updates_per_round(job));
        Ok(Self {
            recording: UpdateRecording::create(&path)?,
            session: PushSession::over(port, &plan.push_client())?,
            random: SplitMix64::keyed(plan.seed, STREAM_COMPUTE, u64::from(plan.rank)),
            update: vec![0.0; trainer.parameter_count()],
            number: 0,
            per_round,
            plan,
            trainer,
        })
    }

    /// One update on `model`, until its outcome.
    fn step(
        &mut self,
        model: &[f32],
        version: Version,
        pull_ns: u64,
        say: &mut dyn FnMut(WorkerMessage),
    ) -> anyhow::Result<UpdateMessage> {
        let pulled_ns = monotonic_ns();
        let begun = Instant::now();
        self.trainer.load(model);
        // Within the emulated computing, so that it takes no time where there is some.
        if self.plan.push().until_loss && self.plan.rank == 0 {
            let (loss, _) = self.trainer.evaluate();
            say(WorkerMessage::Measured { version: version.0, loss });
        }
        let lives = u64::from(self.plan.life) * STEPS_OF_A_LIFE;
        let loss = self.trainer.gradient(lives + self.number, &mut self.update);
        let rate = self.plan.scenario.job.learning_rate;
        for value in &mut self.update {
            *value *= -rate;
        }
        let [from, to] = self.plan.push().compute_ms.map(|ms| f64::from(ms) / 1e3);
        let wanted_s = from + (to - from) * f64::from(self.random.next_f32());
        if wanted_s > 0.0 {
            // What the gradient really took is not emulated again.
            thread::sleep(Duration::from_secs_f64(wanted_s).saturating_sub(begun.elapsed()));
        }
        self.recording.update(self.number, version.0, &self.update)?;
        let push_ns = monotonic_ns();
        let outcome = self.session.push(&self.update, version)?.wait()?;
        let outcome_ns = monotonic_ns();
        let (outcome, committed_version) = match outcome {
            Outcome::Committed { version } => (UpdateOutcome::Committed, version.0),
            Outcome::Dropped => (UpdateOutcome::Dropped, 0),
            Outcome::Void => (UpdateOutcome::Void, 0),
        };
        let number = self.number;
        self.number += 1;
        Ok(UpdateMessage {
            number,
            version: version.0,
            pull_ns,
            pull_duration_ns: pulled_ns - pull_ns,
            compute_ns: push_ns - pulled_ns,
            push_ns,
            outcome_ns,
            outcome,
            committed_version,
            loss,
        })
    }

    /// The version that the next one must exceed: a round's end for all but asynchronous jobs.
    fn wait_for(&self, on: Version, outcome: UpdateOutcome, committed: u64) -> Option<Version> {
        match self.plan.push().mode {
            Mode::Async => None,
            Mode::Sync | Mode::Partial => {
                let last = if outcome == UpdateOutcome::Committed { committed - 1 } else { on.0 };
                let end = (last / self.per_round + 1) * self.per_round;
                Some(Version(end - 1))
            }
        }
    }
}

fn summary(statistics: &PushStatistics) -> WorkerSummary {
    let (grant, gate) = (statistics.request_to_grant, statistics.grant_to_first_chunk);
    WorkerSummary {
        updates_dropped: statistics.updates_dropped,
        updates_void: statistics.updates_void,
        controller_fallbacks: statistics.controller_fallbacks,
        chunks_sent: statistics.chunks_sent,
        chunks_direct: statistics.chunks_direct,
        chunks_aggregated: statistics.chunks_aggregated,
        chunks_dropped: statistics.chunks_dropped,
        chunks_voided: statistics.chunks_voided,
        chunks_undecided: statistics.chunks_undecided,
        retransmissions: statistics.retransmissions,
        tx_bytes: statistics.bytes_sent,
        rx_bytes: statistics.bytes_received,
        request_to_grant_total_ns: grant.total_ns,
        request_to_grant_count: grant.count,
        grant_to_first_chunk_total_ns: gate.total_ns,
        grant_to_first_chunk_count: gate.count,
        ..WorkerSummary::default()
    }
}

/// Stream of randomness for emulated computing.
pub(in crate::run::push) const STREAM_COMPUTE: u64 = 64;
/// Steps between the minibatches of one life of a worker and those of the next.
pub(in crate::run::push) const STEPS_OF_A_LIFE: u64 = 1 << 20;
