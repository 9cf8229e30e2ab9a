//! What a finished push run amounts to: verdict, counters, bottleneck, and the rows of the run
//! directory.

use std::collections::HashMap;

use super::downlink::Downlink;
use super::message::PushSummary;
use super::plan::PushPlan;
use super::processes::PushObserved;
use super::verify::PushProof;
use crate::report::{PushOutcome, Quantiles, RunOutcome, Surroundings, Verdict};
use crate::run::background::{FlowSeen, bytes_at};
use crate::run::bottleneck::Bottleneck;
use crate::run::finished::Ground;
use crate::run::plan::{Io, Place};
use crate::scenario::{FaultSection, REPLICA, Replication, SERVER, Scenario};

/// A push run that is over, and how to tell of it.
#[derive(Debug)]
pub struct PushFinished<'a> {
    /// What was asked for.
    pub scenario: &'a Scenario,
    /// How it was laid out.
    pub plan: &'a PushPlan,
    /// Where it ran.
    pub ground: &'a Ground,
    /// What was seen.
    pub observed: &'a PushObserved,
    /// What the proof found, or why there is none.
    pub proof: Result<PushProof, String>,
    /// When it began, by the monotonic clock.
    pub begun_ns: u64,
    /// How long it took.
    pub wall_ns: u64,
}

impl PushFinished<'_> {
    /// Judges the run.
    #[must_use]
    pub fn outcome(&self, requested: Io, seed: u64) -> RunOutcome {
        let empty = PushProof::default();
        let (proof, proved) = match &self.proof {
            Ok(proof) => (proof, true),
            Err(_) => (&empty, false),
        };
        let mut wrong: Vec<String> = self.observed.ended.iter().cloned().collect();
        wrong.extend(proof.problems.iter().cloned());
        wrong.extend(self.proof.as_ref().err().cloned());
        wrong.extend(
            self.observed.failures.iter().map(|(_, rank, error)| format!("worker {rank}: {error}")),
        );
        let total = self.total();
        let accounted = self.observed.summaries.iter().all(|(_, summary)| summary.is_accounted());
        if !accounted {
            wrong.push("the chunks of a worker do not add up to those that it sent".to_owned());
        }
        let verdict = if wrong.is_empty() { Verdict::Ok } else { Verdict::Failed };
        let shown = wrong.len().saturating_sub(PROBLEMS_SHOWN_MAX);
        wrong.truncate(PROBLEMS_SHOWN_MAX);
        if shown > 0 {
            wrong.push(format!("and {shown} more"));
        }
        let mut reasons = self.degraded();
        reasons.extend(wrong);
        let last = proof.curve.last().copied().unwrap_or_default();
        let version = proof.decided.last().map_or(0, |last| last.version);
        let push = self.scenario.push.as_ref().expect("a scenario with [push]");
        let rounds = version / u64::from(push.updates_per_round(&self.scenario.job));
        let bottleneck = self.bottleneck(proof, &total);
        RunOutcome {
            verdict,
            reasons,
            io_requested: requested.name().to_owned(),
            io: self.ground.io.name().to_owned(),
            rounds,
            rounds_per_second: rounds as f64 / (span_ns(proof).max(1) as f64 / 1e9),
            accuracy: last.accuracy,
            model_identical: proved && proof.wrong_parameters == 0,
            model_sha256: proof.model_sha256.clone(),
            wrong_sums: proof.wrong_parameters,
            chunks_aggregated: total.chunks_aggregated,
            chunks_direct: total.chunks_direct,
            retransmissions: total.retransmissions,
            duplicates_dropped: self.observed.boxes.iter().map(|(_, b)| b.duplicates).sum(),
            bottleneck: bottleneck.name.to_owned(),
            bottleneck_evidence: bottleneck.evidence,
            seed,
            surroundings: Surroundings {
                background: self.observed.background.iter().map(FlowSeen::row).collect(),
                ..Surroundings::default()
            },
            push: Some(self.push_outcome(proof, &total, accounted)),
        }
    }

    /// What the run did without although it was asked for, and no fault was (DESIGN I11).
    #[must_use]
    pub fn degraded(&self) -> Vec<String> {
        let mut reasons: Vec<String> = self.ground.degraded.iter().cloned().collect();
        let fallbacks = self.total().controller_fallbacks;
        let is_quiet = self.scenario.faults == FaultSection::default();
        if fallbacks > 0 && is_quiet && self.observed.restarts.is_empty() {
            reasons.push(format!("{fallbacks} updates went without a word from the controller"));
        }
        let failures = self.policy_failures();
        if failures > 0 {
            let push = self.scenario.push.as_ref().expect("a scenario with [push]");
            reasons.push(format!(
                "the default policy made {failures} plans, for `{}` gave none that can be used",
                push.policy
            ));
        }
        reasons
    }

    fn policy_failures(&self) -> u64 {
        self.observed.boxes.iter().map(|(_, counters)| counters.policy_failures).sum()
    }

    fn push_outcome(&self, proof: &PushProof, total: &PushSummary, accounted: bool) -> PushOutcome {
        let push = self.scenario.push.as_ref().expect("a scenario with [push]");
        let times = commit_times(self.observed, proof);
        let quantiles = Quantiles::of(&times);
        let delays = &proof.delays;
        let of_box = |name: &str| {
            let found = self.observed.boxes.iter().find(|(box_name, _)| box_name == name);
            found.map(|(_, counters)| *counters).unwrap_or_default()
        };
        let (server, replica) = (of_box(SERVER), of_box(REPLICA));
        let mean = |sum: u64, count: u64| sum.checked_div(count).unwrap_or(0);
        let last = proof.curve.last().copied().unwrap_or_default();
        let began = proof.curve.first().map_or(0, |point| point.t_ns);
        let reached = push.target_loss.and_then(|target| {
            let crossing = proof.curve.iter().find(|point| point.loss <= target)?;
            Some(crossing.t_ns.saturating_sub(began) as f64 / 1e9)
        });
        let distances = proof.divergence.iter().map(|point| point.distance);
        let downlink = self.downlink();
        let down_rate =
            self.scenario.lab.rates(SERVER)[1].filter(|_| self.ground.place == Place::Lab);
        PushOutcome {
            downlink_utilisation: down_rate
                .and_then(|rate| downlink.utilisation(rate.bytes_per_sec())),
            downlink_wanted_ns: downlink.wanted_ns,
            transfer_wait_mean_ns: downlink.wait_mean_ns,
            transfer_idle_mean_ns: downlink.idle_mean_ns,
            transfer_ceiling_share: downlink.ceiling_share,
            mode: push.mode.to_string(),
            policy: if push.controller { push.policy.clone() } else { "direct".to_owned() },
            policy_failures: self.policy_failures(),
            updates_committed: delays.len() as u64,
            dropped: total.updates_dropped,
            voided: total.updates_void,
            mean_commit_ns: quantiles.map_or(0.0, |quantiles| quantiles.mean),
            p99_commit_ns: quantiles.map_or(0, |quantiles| quantiles.p99),
            delay_max: delays.iter().copied().max().unwrap_or(0),
            delay_mean: delays.iter().sum::<u64>() as f64 / (delays.len().max(1)) as f64,
            planning_mean_ns: mean(total.request_to_grant_total_ns, total.request_to_grant_count),
            gating_mean_ns: mean(
                total.grant_to_first_chunk_total_ns,
                total.grant_to_first_chunk_count,
            ),
            controller_fallbacks: total.controller_fallbacks,
            chunks_sent: total.chunks_sent,
            chunks_dropped: total.chunks_dropped,
            chunks_voided: total.chunks_voided,
            chunks_undecided: total.chunks_undecided,
            chunks_accounted: accounted,
            replication: match push.replication {
                Replication::None => "none",
                Replication::Network => "network",
                Replication::Worker => "worker",
                Replication::Chain => "chain",
            }
            .to_owned(),
            replica_identical: proof.replica_identical,
            promotions: u64::from(proof.promoted.is_some()),
            replication_held: proof.replica_identical.map(|_| proof.promoted.is_none()),
            divergence_max: proof.replica_identical.map(|_| distances.fold(0.0, f64::max)),
            divergence_bound: push.div_max,
            replica_bytes: replica.rx_bytes,
            server_bytes: server.rx_bytes + server.tx_bytes,
            server_sent_bytes: server.tx_bytes,
            time_to_loss_s: reached,
            target_loss: push.target_loss,
            final_loss: last.loss,
        }
    }

    fn downlink(&self) -> Downlink {
        let updates = self.observed.updates.iter();
        let pending = updates.map(|(.., update)| (update.push_ns, update.outcome_ns));
        Downlink::new(self.observed.log(SERVER).unwrap_or_default(), pending)
    }

    fn total(&self) -> PushSummary {
        let mut total = PushSummary::default();
        for (_, summary) in &self.observed.summaries {
            total.add(summary);
        }
        total
    }

    /// Which link was busiest, by what it carried between the first and the last commit.
    fn bottleneck(&self, proof: &PushProof, total: &PushSummary) -> Bottleneck {
        let (from_ns, to_ns) = span(proof);
        let span_s = (to_ns - from_ns).max(1) as f64 / 1e9;
        let in_lab = self.ground.place == Place::Lab;
        let mut busiest: Option<(f64, String)> = None;
        let mut look = |host: &str, [up, down]: [u64; 2], others: [u64; 2]| {
            let [up_rate, down_rate] = self.scenario.lab.rates(host);
            let ways =
                [(up, others[0], up_rate, "uplink"), (down, others[1], down_rate, "downlink")];
            for (bytes, others, rate, way) in ways {
                let Some(rate) = rate.filter(|_| in_lab) else { continue };
                let share = (bytes + others) as f64 * 8.0 / (rate.bits_per_sec() as f64 * span_s);
                if busiest.as_ref().is_none_or(|(highest, _)| share > *highest) {
                    let whose = if others > 0 { ", with background flows," } else { "" };
                    busiest = Some((share, format!("{way} of {host}{whose}")));
                }
            }
        };
        let flows = |host: &str| bytes_at(&self.observed.background, host, from_ns, to_ns);
        for (name, counters) in &self.observed.boxes {
            let [up, down] = flows(name);
            // A port that takes frames off an interface has counted those of others.
            let down = if self.ground.io == Io::Udp { down } else { 0 };
            look(name, [counters.tx_bytes, counters.rx_bytes], [up, down]);
        }
        for (rank, summary) in &self.observed.summaries {
            let name = format!("w{rank}");
            look(&name, [summary.bytes_sent, summary.bytes_received], flows(&name));
        }
        let boxes_cpu: u64 = self.observed.boxes.iter().map(|(_, counters)| counters.cpu_ns).sum();
        let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let workers_cpu = if self.ground.io == Io::Memory {
            // Threads of one process: each saw the whole.
            self.observed.summaries.iter().map(|(_, summary)| summary.cpu_ns).max().unwrap_or(0)
        } else {
            total.cpu_ns
        };
        let cpu = (workers_cpu + boxes_cpu) as f64 / (self.wall_ns.max(1) as f64 * cpus as f64);
        let computing: u64 =
            self.observed.updates.iter().map(|(.., update)| update.compute_ns).sum();
        let workers = f64::from(self.scenario.job.workers);
        let computing = computing as f64 / (span_s * 1e9 * workers);
        Bottleneck::of_push(busiest, cpu, cpus, computing)
    }
}

/// From handing an update over to its commit at the server, for each committed update.
fn commit_times(observed: &PushObserved, proof: &PushProof) -> Vec<u64> {
    let pushed: HashMap<(u8, u32, u64), u64> = observed
        .updates
        .iter()
        .map(|(rank, life, update)| ((*rank, *life, update.number), update.push_ns))
        .collect();
    let time = |(index, rank, life, number): &(usize, u8, u32, u64)| {
        let push_ns = pushed.get(&(*rank, *life, *number))?;
        Some(proof.decided.get(*index)?.t_ns.saturating_sub(*push_ns))
    };
    proof.places.iter().filter_map(time).collect()
}

/// When the first model was there, and when the last commit was.
fn span(proof: &PushProof) -> (u64, u64) {
    let first = proof.curve.first().map_or(0, |point| point.t_ns);
    (first, proof.decided.last().map_or(first, |last| last.t_ns.max(first)))
}

fn span_ns(proof: &PushProof) -> u64 {
    let (from_ns, to_ns) = span(proof);
    to_ns - from_ns
}

/// A broken run breaks everything that comes after; the first lines tell why.
const PROBLEMS_SHOWN_MAX: usize = 8;
