//! One worker of a run: trains on its share of the images, sums its gradients through the client,
//! records what went in and what came out. It uses nothing of Weft but `weft-client` and a port.

use std::path::Path;
use std::time::Instant;

use weft_client::{Session, Statistics};
use weft_io::Port;
use weft_io::fault::{Fault, FaultConfig, FaultRates, member_seed};
use weft_io::udp::{UdpConfig, UdpPort};

use super::additions::FRAMES_WITH_DELAY;
use super::message::{RoundMessage, WorkerMessage, WorkerSummary};
use super::plan::WorkerPlan;
use super::recording::Recording;
use super::{monotonic_ns, process_cpu_ns, recording_path};
use crate::scenario::FaultSection;
use crate::workload::digits::Trainer;

/// Longest that a delayed frame is held, so that reordering stays within a round trip or two.
const DELAY_MAX_NS: u64 = 2_000_000;

/// Runs a worker over UDP sockets to its end.
pub fn run_over_udp(plan: &WorkerPlan, directory: &Path, say: &mut dyn FnMut(WorkerMessage)) {
    let mut config = UdpConfig::new(plan.local);
    config.mtu = usize::from(plan.mtu);
    config.socket_count = usize::from(plan.scenario.aggregation.lanes);
    if plan.link_delay_us > 0 {
        config.frame_count = FRAMES_WITH_DELAY;
    }
    match UdpPort::open(&config) {
        Ok(port) => run(plan, directory, port, say),
        Err(error) => say(failed(chain(&error))),
    }
}

/// Runs a worker over any port to its end; the last message is `Done` or `Failed`.
pub fn run<P: Port>(
    plan: &WorkerPlan,
    directory: &Path,
    port: P,
    say: &mut dyn FnMut(WorkerMessage),
) {
    let seed = member_seed(plan.seed, plan.rank);
    let faults = fault_config(&plan.scenario.faults, plan.link_delay_us, seed);
    let port = Fault::new(port, &faults);
    match train(plan, directory, port, say) {
        Ok(summary) => say(WorkerMessage::Done(summary)),
        Err(error) => say(failed(format!("{error:#}"))),
    }
}

fn failed(error: String) -> WorkerMessage {
    WorkerMessage::Failed { at_ns: monotonic_ns(), error }
}

fn train<P: Port>(
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
    let mut compute_ns = 0;
    for round in 0..job.rounds {
        let begun = Instant::now();
        let loss = trainer.gradient(u64::from(round), &mut gradient);
        compute_ns += begun.elapsed().as_nanos();
        values.copy_from_slice(&gradient);
        let start_ns = monotonic_ns();
        let report = session.allreduce(&mut values)?;
        let duration_ns = monotonic_ns() - start_ns;
        recording.round(&session.exponents(), &gradient, &values)?;
        let begun = Instant::now();
        for value in &mut values {
            *value /= f32::from(job.workers);
        }
        trainer.apply(&values);
        compute_ns += begun.elapsed().as_nanos();
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
        answers: statistics.data.answers,
        retransmissions: retransmissions(&statistics),
        status_probes: statistics.data.status_probes,
        resyncs: statistics.data.resyncs,
        hand_overs: statistics.data.handovers_done,
        refused: statistics.data.refused.iter().sum(),
        smoothed_rtt_ns: statistics.data.smoothed_rtt.0,
        compute_ns: u64::try_from(compute_ns).unwrap_or(u64::MAX),
        tx_packets: stats.tx_packets,
        tx_bytes: stats.tx_bytes,
        rx_bytes: stats.rx_bytes,
        faults_fired: fired(port.rx_counts()) + fired(port.tx_counts()),
        cpu_ns: 0,
    };
    session.close()?;
    summary.cpu_ns = process_cpu_ns();
    Ok(summary)
}

fn retransmissions(statistics: &Statistics) -> u64 {
    let exponents = statistics.exponents.as_ref().map_or(0, |stats| stats.retransmissions);
    statistics.data.retransmissions + exponents
}

pub(super) fn fault_config(section: &FaultSection, link_delay_us: u64, seed: u64) -> FaultConfig {
    let rates = FaultRates {
        loss: section.loss,
        duplicate: section.duplicate,
        reorder: section.reorder,
        corrupt: section.corrupt,
        delay: 0.0,
    };
    FaultConfig {
        seed,
        rx: rates,
        tx: rates,
        delay_max_ns: DELAY_MAX_NS,
        link_delay_ns: link_delay_us.saturating_mul(1000),
        ..FaultConfig::default()
    }
}

pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}
