//! One worker of a push run: pulls the model, computes an update on it, records it, pushes it,
//! until the model has the version at which the run ends. It uses nothing of Weft but `weft-client`
//! and a port.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use weft_client::push::{Latency, Outcome, PushSession, PushStatistics, Version};
use weft_control::Mode;
use weft_io::Port;
use weft_io::fault::{Fault, member_seed};
use weft_io::udp::{UdpConfig, UdpPort};

use super::message::{PushMessage, PushSummary, UpdateMessage, UpdateOutcome};
use super::plan::PushWorkerPlan;
use super::recording::{UpdateRecording, updates_path};
use crate::run::additions::FRAMES_WITH_DELAY;
use crate::run::worker::{chain, fault_config};
use crate::run::{monotonic_ns, process_cpu_ns};
use crate::workload::digits::{SplitMix64, Trainer};

/// Runs a worker over a UDP socket until the model's version is `end`, which may change on the way;
/// the last message is `Done` or `Failed`.
pub fn run_push_worker(
    plan: &PushWorkerPlan,
    directory: &Path,
    end: &AtomicU64,
    say: &mut dyn FnMut(PushMessage),
) {
    let mut config = UdpConfig::new(plan.local);
    config.mtu = usize::from(plan.mtu);
    config.offload = plan.offload;
    if plan.link_delay_us > 0 {
        config.frame_count = FRAMES_WITH_DELAY;
    }
    let port = UdpPort::open(&config).map_err(|error| anyhow::anyhow!(chain(&error)));
    let last = port.and_then(|port| train(plan, directory, end, port, say));
    say(last.unwrap_or_else(failed));
}

/// [`run_push_worker`] over any port.
pub(super) fn train_over<P: Port<Frame: Send> + Send + 'static>(
    plan: &PushWorkerPlan,
    directory: &Path,
    end: &AtomicU64,
    port: P,
    say: &mut dyn FnMut(PushMessage),
) {
    let last = train(plan, directory, end, port, say);
    say(last.unwrap_or_else(failed));
}

#[expect(clippy::needless_pass_by_value, reason = "it is the end of the error")]
fn failed(error: anyhow::Error) -> PushMessage {
    PushMessage::Failed { at_ns: monotonic_ns(), error: format!("{error:#}") }
}

fn connect<P: Port<Frame: Send> + Send + 'static>(
    plan: &PushWorkerPlan,
    port: P,
) -> anyhow::Result<PushSession> {
    let seed = member_seed(plan.seed, plan.rank).wrapping_add(plan.life.into());
    let port = Fault::new(port, &fault_config(&plan.scenario.faults, plan.link_delay_us, seed));
    Ok(PushSession::over(port, &plan.client())?)
}

fn train<P: Port<Frame: Send> + Send + 'static>(
    plan: &PushWorkerPlan,
    directory: &Path,
    end: &AtomicU64,
    port: P,
    say: &mut dyn FnMut(PushMessage),
) -> anyhow::Result<PushMessage> {
    let mut worker = Worker::new(plan, directory, port)?;
    let is_over = |version: u64| version >= end.load(Ordering::Relaxed);
    say(PushMessage::Joined { at_ns: monotonic_ns() });
    let mut model = vec![0.0; worker.update.len()];
    let mut pull_ns = monotonic_ns();
    let mut version = worker.session.pull(&mut model)?;
    while !is_over(version.0) {
        let message = worker.step(&model, version, pull_ns, say)?;
        let outcome = message.outcome;
        let committed = message.committed_version;
        say(PushMessage::Update(message));
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
    Ok(PushMessage::Done(Box::new(summary)))
}

struct Worker<'a> {
    plan: &'a PushWorkerPlan,
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
        plan: &'a PushWorkerPlan,
        directory: &Path,
        port: P,
    ) -> anyhow::Result<Self> {
        let job = &plan.scenario.job;
        let workers = usize::from(job.workers);
        let rank = usize::from(plan.rank);
        let trainer = Trainer::new(rank, workers, plan.seed, &job.trainer())?;
        let path = updates_path(directory, plan.rank, plan.life);
        let per_round = u64::from(plan.push().updates_per_round(job));
        Ok(Self {
            recording: UpdateRecording::create(&path)?,
            session: connect(plan, port)?,
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
        say: &mut dyn FnMut(PushMessage),
    ) -> anyhow::Result<UpdateMessage> {
        let pulled_ns = monotonic_ns();
        let begun = Instant::now();
        self.trainer.load(model);
        // Within the emulated computing, so that it takes no time where there is some.
        if self.plan.push().until_loss && self.plan.rank == 0 {
            let (loss, _) = self.trainer.evaluate();
            say(PushMessage::Measured { version: version.0, loss });
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

fn summary(statistics: &PushStatistics) -> PushSummary {
    let Latency { count, total_ns, max_ns } = statistics.request_to_grant;
    let gate = statistics.grant_to_first_chunk;
    PushSummary {
        updates_pushed: statistics.updates_pushed,
        updates_committed: statistics.updates_committed,
        updates_dropped: statistics.updates_dropped,
        updates_void: statistics.updates_void,
        updates_resent: statistics.updates_resent,
        controller_fallbacks: statistics.controller_fallbacks,
        chunks_sent: statistics.chunks_sent,
        chunks_direct: statistics.chunks_direct,
        chunks_aggregated: statistics.chunks_aggregated,
        chunks_dropped: statistics.chunks_dropped,
        chunks_voided: statistics.chunks_voided,
        chunks_undecided: statistics.chunks_undecided,
        chunks_clamped: statistics.chunks_clamped,
        replica_copies: statistics.replica_copies,
        retransmissions: statistics.retransmissions,
        bytes_sent: statistics.bytes_sent,
        bytes_received: statistics.bytes_received,
        request_to_grant_total_ns: total_ns,
        request_to_grant_count: count,
        request_to_grant_max_ns: max_ns,
        grant_to_first_chunk_total_ns: gate.total_ns,
        grant_to_first_chunk_count: gate.count,
        grant_to_first_chunk_max_ns: gate.max_ns,
        cpu_ns: 0,
    }
}

/// Stream of randomness for emulated computing.
pub(in crate::run::push) const STREAM_COMPUTE: u64 = 64;
/// Steps between the minibatches of one life of a worker and those of the next.
pub(in crate::run::push) const STEPS_OF_A_LIFE: u64 = 1 << 20;
