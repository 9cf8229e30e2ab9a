//! What a finished run amounts to: verdict, counters, bottleneck, and the rows of its directory.

use weft_wire::header::ElementType;

use super::Observed;
use super::background::{FlowSeen, bytes_at, part};
use super::bottleneck::{Bottleneck, Usage};
use super::message::{BoxCounters, RoundMessage, WorkerMessage, WorkerSummary};
use super::plan::{Io, Place, Plan};
use super::verify::Proof;
use crate::lab::tc::Rate;
use crate::report::{
    EventRow, FilesError, RoundRow, RunOutcome, RunWriter, Surroundings, TransferRow, Verdict,
};
use crate::scenario::Scenario;

/// Where the frames really travel, and why not where they were asked to.
#[derive(Clone, Debug)]
pub struct Ground {
    /// The port.
    pub io: Io,
    /// Where boxes and workers are.
    pub place: Place,
    /// Why it is less than what was asked for.
    pub degraded: Option<String>,
}

/// A run that is over, and how to tell of it.
#[derive(Debug)]
pub struct Finished<'a> {
    /// What was asked for.
    pub scenario: &'a Scenario,
    /// How it was laid out.
    pub plan: &'a Plan,
    /// Where it ran.
    pub ground: &'a Ground,
    /// What was seen.
    pub observed: &'a Observed,
    /// How long it took.
    pub wall_ns: u64,
}

impl Finished<'_> {
    /// Judges the run.
    #[must_use]
    pub fn outcome(&self, requested: Io, seed: u64, proof: Result<&Proof, &String>) -> RunOutcome {
        let observed = self.observed;
        let mut reasons: Vec<String> = self.ground.degraded.iter().cloned().collect();
        let summaries: Vec<_> = observed.summaries().map(|(_, summary)| summary).collect();
        let (wrong_sums, identical, sha256) = match proof {
            Ok(proof) => {
                let same = summaries.iter().all(|s| s.model_sha256 == proof.model_sha256);
                (
                    proof.wrong_sums(),
                    same && proof.wrong_parameters == 0,
                    proof.model_sha256.clone(),
                )
            }
            Err(error) => {
                reasons.push(error.clone());
                (0, false, String::new())
            }
        };
        let proved = proof.is_ok();
        if proved && wrong_sums > 0 {
            reasons.push(format!("{wrong_sums} elements of sums differ from the reference"));
        }
        if proved && !identical {
            reasons.push("a final model differs from the reference".to_owned());
        }
        let rounds = self.rounds_completed();
        let aggregated: u64 = summaries.iter().map(|summary| summary.answers).sum();
        let bottleneck = Bottleneck::of(&self.usage());
        RunOutcome {
            verdict: if proved && wrong_sums == 0 && identical {
                Verdict::Ok
            } else {
                Verdict::Failed
            },
            reasons,
            io_requested: requested.name().to_owned(),
            io: self.ground.io.name().to_owned(),
            rounds,
            rounds_per_second: self.rounds_per_second(rounds),
            accuracy: summaries.first().map_or(0.0, |summary| summary.accuracy),
            model_identical: identical,
            model_sha256: sha256,
            wrong_sums,
            chunks_aggregated: aggregated,
            // An allreduce has no destination but the aggregator.
            chunks_direct: 0,
            retransmissions: summaries.iter().map(|summary| summary.retransmissions).sum(),
            duplicates_dropped: observed
                .boxes
                .iter()
                .map(|(_, counters)| counters.duplicates)
                .sum(),
            bottleneck: bottleneck.name.to_owned(),
            bottleneck_evidence: bottleneck.evidence,
            seed,
            surroundings: Surroundings {
                background: observed.background.iter().map(FlowSeen::row).collect(),
                ..Surroundings::default()
            },
            push: None,
        }
    }

    /// Rounds that every worker finished.
    fn rounds_completed(&self) -> u64 {
        let workers = self.plan.workers.len() as u64;
        let finished = self
            .observed
            .messages
            .iter()
            .filter(|(_, message)| matches!(message, WorkerMessage::Round(_)))
            .count() as u64;
        finished / workers
    }

    fn rounds_per_second(&self, rounds: u64) -> f64 {
        let times = self.rounds_span();
        times.map_or(0.0, |(first, last)| rounds as f64 * 1e9 / (last - first).max(1) as f64)
    }

    /// From the first gradient to the last sum.
    fn rounds_span(&self) -> Option<(u64, u64)> {
        let rounds = self.observed.messages.iter().filter_map(|(_, message)| match message {
            WorkerMessage::Round(round) => Some(round),
            _ => None,
        });
        let first = rounds.clone().map(|round| round.start_ns).min()?;
        let last = rounds.map(|round| round.start_ns + round.duration_ns).max()?;
        Some((first, last))
    }

    fn usage(&self) -> Usage {
        let summaries: Vec<_> = self.observed.summaries().map(|(_, summary)| summary).collect();
        let boxes = &self.observed.boxes;
        let waiting = self.observed.messages.iter().filter_map(|(_, message)| match message {
            WorkerMessage::Round(round) => Some(round.duration_ns),
            _ => None,
        });
        let waiting_ns = waiting.sum();
        let in_memory = self.ground.io == Io::Memory;
        let worker_cpu: u64 = if in_memory {
            // Threads of one process: each saw the whole.
            summaries.iter().map(|summary| summary.cpu_ns).max().unwrap_or(0)
        } else {
            summaries.iter().map(|summary| summary.cpu_ns).sum()
        };
        Usage {
            wall_ns: self.wall_ns,
            cpu_ns: worker_cpu + boxes.iter().map(|(_, counters)| counters.cpu_ns).sum::<u64>(),
            cpus: std::thread::available_parallelism().map_or(1, |cpus| cpus.get() as u64),
            waiting_ns,
            workers: self.plan.workers.len() as u64,
            link_bytes: self.busiest_link_bytes(waiting_ns),
            link_bytes_per_sec: self
                .scenario
                .lab
                .rate_mbit
                .filter(|_| self.ground.place == Place::Lab)
                .and_then(Rate::from_mbit)
                .map(|rate| rate.bits_per_sec() / 8),
            retransmissions: summaries.iter().map(|summary| summary.retransmissions).sum(),
            contributions: summaries.iter().map(|summary| summary.chunks_sent).sum(),
            faults_fired: summaries.iter().map(|summary| summary.faults_fired).sum(),
        }
    }

    /// Bytes that the busiest link carried in one direction during transfers, for which workers
    /// waited so long together.
    fn busiest_link_bytes(&self, waiting_ns: u64) -> u64 {
        // Transfers take a part of the run's time, and meet as large a part of others' traffic.
        let waited_ns = waiting_ns / (self.plan.workers.len().max(1) as u64);
        let others = |host: &str| {
            let bytes = bytes_at(&self.observed.background, host, 0, u64::MAX);
            bytes.map(|bytes| part(bytes, waited_ns.min(self.wall_ns), self.wall_ns))
        };
        let of_box = |(name, counters): &(String, BoxCounters)| {
            // A port that takes frames off an interface has counted those of others.
            let down = if self.ground.io == Io::Udp { others(name)[1] } else { 0 };
            counters.rx_bytes + down
        };
        let of_worker = |(rank, summary): (usize, &WorkerSummary)| {
            let [up, down] = others(&format!("w{rank}"));
            (summary.tx_bytes + up).max(summary.rx_bytes + down)
        };
        let boxes = self.observed.boxes.iter().map(of_box);
        boxes.chain(self.observed.summaries().map(of_worker)).max().unwrap_or(0)
    }

    /// Fills the run directory.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn write(
        &self,
        mut writer: RunWriter,
        begun_ns: u64,
        proof: Option<&Proof>,
        outcome: RunOutcome,
    ) -> Result<(), FilesError> {
        let job = &self.scenario.job;
        let element_bytes = ElementType::I32.len_bytes() as u64;
        let chunk_bytes = u64::from(self.plan.elements) * element_bytes;
        let mut rounds: Vec<Vec<&RoundMessage>> = vec![Vec::new(); job.rounds as usize];
        for (rank, message) in &self.observed.messages {
            let WorkerMessage::Round(round) = message else { continue };
            writer.transfer(&TransferRow {
                round: u64::from(round.round),
                rank: u32::try_from(*rank).unwrap_or(u32::MAX),
                start_ns: round.start_ns.saturating_sub(begun_ns),
                duration_ns: round.duration_ns,
                bytes: round.chunks * chunk_bytes,
                chunks_aggregated: round.chunks,
                chunks_direct: 0,
                retransmissions: round.retransmissions,
                duplicates: round.duplicates,
                source: format!("w{rank}"),
                target: self.plan.box_name(*rank).to_owned(),
                ..TransferRow::default()
            })?;
            if let Some(place) = rounds.get_mut(round.round as usize) {
                place.push(round);
            }
        }
        for (index, parts) in rounds.iter().enumerate().filter(|(_, parts)| !parts.is_empty()) {
            let start = parts.iter().map(|part| part.start_ns).min().unwrap_or(begun_ns);
            let end =
                parts.iter().map(|part| part.start_ns + part.duration_ns).max().unwrap_or(start);
            let proved =
                proof.and_then(|proof| proof.rounds.get(index)).copied().unwrap_or_default();
            writer.round(&RoundRow {
                round: index as u64,
                start_ns: start.saturating_sub(begun_ns),
                duration_ns: end - start,
                wrong_sums: proved.wrong_sums,
                clamped_elements: proved.clamped_elements,
                loss: parts.iter().map(|part| part.loss).sum::<f32>() / parts.len() as f32,
            })?;
        }
        let event = |t_ns: u64, event: &str, fields: &[(&str, serde_json::Value)]| EventRow {
            t_ns: t_ns.saturating_sub(begun_ns),
            event: event.to_owned(),
            fields: fields.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect(),
        };
        for (at_ns, name) in &self.observed.restarts {
            let fields = [("box", name.as_str().into())];
            writer.event(&event(*at_ns, "aggregator_restart", &fields))?;
        }
        for row in self.observed.background.iter().flat_map(|flow| flow.events(begun_ns)) {
            writer.event(&row)?;
        }
        for (rank, message) in &self.observed.messages {
            let rank = ("rank", (*rank).into());
            match message {
                WorkerMessage::Joined { at_ns } => {
                    writer.event(&event(*at_ns, "worker_joined", &[rank]))?;
                }
                WorkerMessage::Failed { at_ns, error } => {
                    let fields = [rank, ("error", error.as_str().into())];
                    writer.event(&event(*at_ns, "worker_failed", &fields))?;
                }
                WorkerMessage::Round(_) | WorkerMessage::Done(_) => {}
            }
        }
        writer.finish(outcome)?;
        Ok(())
    }
}
