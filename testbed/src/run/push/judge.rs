//! What a finished push run amounts to: verdict, counters, bottleneck. Pure.

use std::collections::HashMap;

use super::downlink::Downlink;
use super::verify::PushProof;
use crate::report::{PushOutcome, Quantiles};
use crate::run::background::bytes_at;
use crate::run::bottleneck::Bottleneck;
use crate::run::finished::{Finished, Judgement};
use crate::run::plan::{Io, Place};
use crate::run::{Observed, WorkerSummary};
use crate::scenario::{REPLICA, Replication, SERVER};

/// Judges the run.
pub(in crate::run) fn judge(
    run: &Finished<'_>,
    proved: Option<&PushProof>,
    total: &WorkerSummary,
) -> Judgement {
    let empty = PushProof::default();
    let proof = proved.unwrap_or(&empty);
    let mut wrong = proof.problems.clone();
    let summaries = run.observed.summaries.iter();
    let accounted = run.told(summaries.clone().all(|(_, summary)| summary.is_accounted()));
    if accounted == Some(false) {
        wrong.push("the chunks of a worker do not add up to those that it sent".to_owned());
    }
    let told = run.observed.updates.iter().map(|(.., update)| update.committed_version);
    let decided = proof.decided.last().map(|last| last.version);
    let version = decided.or_else(|| told.max()).unwrap_or(0);
    let (from_ns, to_ns) = span(proof);
    Judgement {
        wrong,
        rounds: version / run.scenario.updates_per_round(),
        span_ns: to_ns - from_ns,
        accuracy: proof.curve.last().map(|point| point.accuracy),
        is_identical: proof.wrong_parameters.map(|wrong| wrong == 0),
        model_sha256: proof.wrong_parameters.map(|_| proof.model_sha256.clone()),
        wrong_sums: proof.wrong_parameters,
        bottleneck: (run.is_whole() && to_ns > from_ns).then(|| bottleneck(run, proof)),
        push: Some(push_outcome(run, proved, total, accounted)),
    }
}

fn push_outcome(
    run: &Finished<'_>,
    proved: Option<&PushProof>,
    total: &WorkerSummary,
    accounted: Option<bool>,
) -> PushOutcome {
    let empty = PushProof::default();
    let proof = proved.unwrap_or(&empty);
    let push = run.scenario.push.as_ref().expect("a scenario with [push]");
    let times = commit_times(run.observed, proof);
    let quantiles = Quantiles::of(&times);
    let delays = &proof.delays;
    let server = run.counted(SERVER);
    let replica_bytes = match push.replication {
        Replication::None => Some(0),
        _ => run.counted(REPLICA).map(|replica| replica.rx_bytes),
    };
    let mean = |sum: u64, count: u64| sum.checked_div(count);
    let began = proof.curve.first().map_or(0, |point| point.t_ns);
    let reached = push.target_loss.and_then(|target| {
        let crossing = proof.curve.iter().find(|point| point.loss <= target)?;
        Some(crossing.t_ns.saturating_sub(began) as f64 / 1e9)
    });
    let distances = proof.divergence.iter().map(|point| point.distance);
    let downlink = downlink(run);
    let down_rate = run.scenario.lab.rates(SERVER)[1].filter(|_| run.ground.place == Place::Lab);
    PushOutcome {
        downlink_utilisation: down_rate.and_then(|rate| downlink.utilisation(rate.bytes_per_sec())),
        downlink_wanted_ns: run.observed.log(SERVER).map(|_| downlink.wanted_ns),
        transfer_wait_mean_ns: downlink.wait_mean_ns,
        transfer_idle_mean_ns: downlink.idle_mean_ns,
        transfer_ceiling_share: downlink.ceiling_share,
        mode: push.mode.to_string(),
        policy: if push.controller { push.policy.clone() } else { "direct".to_owned() },
        policy_failures: run.policy_failures(),
        updates_committed: proved.map(|_| delays.len() as u64),
        dropped: run.told(total.updates_dropped),
        voided: run.told(total.updates_void),
        mean_commit_ns: quantiles.map(|quantiles| quantiles.mean),
        p99_commit_ns: quantiles.map(|quantiles| quantiles.p99),
        delay_max: delays.iter().copied().max(),
        delay_mean: (!delays.is_empty())
            .then(|| delays.iter().sum::<u64>() as f64 / delays.len() as f64),
        planning_mean_ns: mean(total.request_to_grant_total_ns, total.request_to_grant_count),
        gating_mean_ns: mean(total.grant_to_first_chunk_total_ns, total.grant_to_first_chunk_count),
        controller_fallbacks: run.told(total.controller_fallbacks),
        chunks_sent: run.told(total.chunks_sent),
        chunks_dropped: run.told(total.chunks_dropped),
        chunks_voided: run.told(total.chunks_voided),
        chunks_undecided: run.told(total.chunks_undecided),
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
        replica_bytes,
        server_bytes: server.map(|server| server.rx_bytes + server.tx_bytes),
        server_sent_bytes: server.map(|server| server.tx_bytes),
        time_to_loss_s: reached,
        target_loss: push.target_loss,
        final_loss: proof.curve.last().map(|last| last.loss),
    }
}

fn downlink(run: &Finished<'_>) -> Downlink {
    let updates = run.observed.updates.iter();
    let pending = updates.map(|(.., update)| (update.push_ns, update.outcome_ns));
    Downlink::new(run.observed.log(SERVER).unwrap_or_default(), pending)
}

/// Which link was busiest, by what it carried between the first and the last commit.
fn bottleneck(run: &Finished<'_>, proof: &PushProof) -> Bottleneck {
    let (from_ns, to_ns) = span(proof);
    let span_s = (to_ns - from_ns) as f64 / 1e9;
    let in_lab = run.ground.place == Place::Lab;
    let mut busiest: Option<(f64, String)> = None;
    let mut look = |host: &str, [up, down]: [u64; 2], others: [u64; 2]| {
        let [up_rate, down_rate] = run.scenario.lab.rates(host);
        let ways = [(up, others[0], up_rate, "uplink"), (down, others[1], down_rate, "downlink")];
        for (bytes, others, rate, way) in ways {
            let Some(rate) = rate.filter(|_| in_lab) else { continue };
            let share = (bytes + others) as f64 * 8.0 / (rate.bits_per_sec() as f64 * span_s);
            if busiest.as_ref().is_none_or(|(highest, _)| share > *highest) {
                let whose = if others > 0 { ", with background flows," } else { "" };
                busiest = Some((share, format!("{way} of {host}{whose}")));
            }
        }
    };
    let flows = |host: &str| bytes_at(&run.observed.background, host, from_ns, to_ns);
    for (name, counters) in &run.observed.boxes {
        let [up, down] = flows(name);
        // A port that takes frames off an interface has counted those of others.
        let down = if run.ground.io == Io::Udp { down } else { 0 };
        look(name, [counters.tx_bytes, counters.rx_bytes], [up, down]);
    }
    for (rank, summary) in &run.observed.summaries {
        let name = format!("w{rank}");
        look(&name, [summary.tx_bytes, summary.rx_bytes], flows(&name));
    }
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let cpu = run.cpu_ns() as f64 / (run.wall_ns.max(1) as f64 * cpus as f64);
    let computing: u64 = run.observed.updates.iter().map(|(.., update)| update.compute_ns).sum();
    let workers = f64::from(run.scenario.job.workers);
    let computing = computing as f64 / (span_s * 1e9 * workers);
    Bottleneck::of_push(busiest, cpu, cpus, computing)
}

/// From handing an update over to its commit at the server, for each committed update.
fn commit_times(observed: &Observed, proof: &PushProof) -> Vec<u64> {
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
