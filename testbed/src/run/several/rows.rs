//! Decides what a run of several jobs says of each of them, and of all. Pure.

use super::barrier::barrier_waits;
use super::plan::JobPlan;
use super::processes::JobSeen;
use crate::report::{JobRow, JobsOutcome, ResizeOutcome as Judged, RunOutcome, Verdict, WordRow};
use crate::run::resize::{JudgeError, Seen, judge};
use crate::run::{Observed, Proof};

/// What is said of a job.
#[must_use]
pub fn row(job: &JobPlan, seen: &JobSeen, proof: Option<&Proof>, outcome: &RunOutcome) -> JobRow {
    let observed = &seen.observed;
    let waits = match proof {
        Some(Proof::Push(proof)) => barrier_waits(&job.scenario, observed, proof),
        _ => Default::default(),
    };
    let measured = |value: f64| (waits.count > 0).then_some(value);
    JobRow {
        job: job.name.clone(),
        verdict: outcome.verdict,
        start_s: job.start.as_secs_f64(),
        waited_s: seen.waited_ns as f64 / 1e9,
        jct_s: (seen.waited_ns + completion_ns(observed, proof)) as f64 / 1e9,
        predicted_jct_s: None,
        rounds: outcome.rounds,
        barrier_wait_mean_ms: measured(waits.mean_ns / 1e6),
        predicted_barrier_wait_mean_ms: None,
        barrier_wait_p99_ms: measured(waits.p99_ns as f64 / 1e6),
        barrier_wait_variance_ms2: measured(waits.variance_ns2 / 1e12),
        barrier_waits: waits.count,
        band_changes: seen.band_changes,
        model_identical: outcome.model_identical,
        model_sha256: outcome.model_sha256.clone(),
        accuracy: outcome.accuracy,
        chunks_aggregated: outcome.chunks_aggregated,
        chunks_direct: outcome.chunks_direct,
        retransmissions: outcome.retransmissions,
        widths: String::new(),
        pause_s: 0.0,
    }
}

/// What is said of a job that a controller steered: its model is held against the reference that
/// changes its width at the same rounds.
///
/// # Errors
/// The job cannot be computed at all.
pub fn steered(job: &JobPlan, seen: &Seen, outcome: &mut RunOutcome) -> Result<Judged, JudgeError> {
    let judged = judge(&job.scenario, job.seed, seen)?;
    let is_ok = judged.problems.is_empty();
    outcome.verdict = if is_ok { Verdict::Ok } else { Verdict::Failed };
    outcome.reasons.clone_from(&judged.problems);
    outcome.rounds = judged.rounds;
    outcome.accuracy = judged.accuracy;
    outcome.model_identical = judged.model_identical;
    outcome.model_sha256 = Some(judged.reference_sha256.clone());
    Ok(judged)
}

/// From the first worker that was ready to the last commit, or the last round's end.
fn completion_ns(observed: &Observed, proof: Option<&Proof>) -> u64 {
    let begun_ns = observed.joined.iter().map(|(at_ns, _)| *at_ns).min().unwrap_or(0);
    let end_ns = match proof {
        Some(Proof::Push(proof)) => proof.decided.last().map(|last| last.t_ns),
        _ => observed.rounds.iter().map(|(_, round)| round.start_ns + round.duration_ns).max(),
    };
    end_ns.unwrap_or(0).saturating_sub(begun_ns)
}

/// What is said of all: it is as good as the worst job.
#[must_use]
pub fn outcome(
    degraded: Option<&String>,
    policy: Option<String>,
    jobs: Vec<(JobRow, Vec<String>)>,
    words: Vec<WordRow>,
) -> JobsOutcome {
    let is_heeded = words.iter().all(|word| word.problem.is_none() && word.seen_ms.is_some());
    let is_ok = is_heeded && jobs.iter().all(|(row, _)| row.verdict == Verdict::Ok);
    let mut reasons: Vec<String> = degraded.into_iter().cloned().collect();
    for (row, own) in &jobs {
        // What all of them say is said once.
        let own = own.iter().filter(|reason| Some(*reason) != degraded);
        reasons.extend(own.map(|reason| format!("{}: {reason}", row.job)));
    }
    for word in words.iter().filter(|word| word.problem.is_some() || word.seen_ms.is_none()) {
        let problem = word.problem.as_deref().unwrap_or("the status never showed it");
        reasons.push(format!("`{}`: {problem}", word.word));
    }
    JobsOutcome {
        verdict: if is_ok { Verdict::Ok } else { Verdict::Failed },
        reasons,
        policy,
        jobs: jobs.into_iter().map(|(row, _)| row).collect(),
        words,
    }
}
