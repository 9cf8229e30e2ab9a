//! The reference that switches width and rate at the same rounds, in one process, and the verdict.
//! Pure.
//!
//! Invariant: the reference shares no code with the dataplane, nor with checkpoints: it trains
//! every rank here, sums by plain loops ([`crate::workload::reference`]), and knows of a resize
//! only its round and its width.

use weft_rpc::v1;

use super::live::Seen;
use super::worker::scaled_rate;
use crate::operator::pause_ns;
use crate::report::{KillRow, PauseRow, ResizeOutcome as Outcome, Verdict};
use crate::scenario::{JobSection, ScaleExponent, Scenario};
use crate::workload::digits::{Trainer, TrainerConfig, TrainerError, model_bytes, sha256_hex};
use crate::workload::reference::{Reference, ReferenceConfig, ReferenceError};

/// Why there is no reference.
#[derive(Debug, thiserror::Error)]
pub enum JudgeError {
    /// The job cannot be trained.
    #[error("the reference cannot train")]
    Trainer(#[from] TrainerError),
    /// Nor summed.
    #[error("the reference cannot sum")]
    Reference(#[from] ReferenceError),
}

/// Judges what was seen.
///
/// # Errors
/// The scenario cannot be computed at all.
pub fn judge(scenario: &Scenario, seed: u64, seen: &Seen) -> Result<Outcome, JudgeError> {
    let job = &scenario.job;
    let mut widths = vec![(0, job.workers)];
    let of_resize =
        |resize: &v1::Resize| (resize.round, u8::try_from(resize.to).unwrap_or(u8::MAX));
    widths.extend(seen.resizes.iter().map(of_resize));
    let reference_sha256 = sha256_hex(&model_bytes(&reference(job, seed, &widths)?));
    let last = widths.last().map_or(0, |(_, workers)| *workers);
    let models: Vec<String> =
        seen.finished.iter().map(|(_, summary)| summary.model_sha256.clone()).collect();
    let all_there = models.len() == usize::from(last);
    let model_identical = all_there.then(|| models.iter().all(|model| *model == reference_sha256));
    let before = widths.iter().map(|(_, workers)| u32::from(*workers));
    let pauses: Vec<PauseRow> =
        seen.resizes.iter().zip(before).map(|(resize, from)| row(resize, from)).collect();
    let mut problems = seen.problems.clone();
    if !all_there {
        problems.push(format!("{} of {last} workers finished", models.len()));
    } else if model_identical == Some(false) {
        problems.push("the model is not the reference's".to_owned());
    }
    let wanted: Vec<u32> = scenario
        .resize
        .iter()
        .flat_map(|resize| &resize.word)
        .filter_map(|word| word.workers.map(u32::from))
        .collect();
    let had: Vec<u32> = seen.resizes.iter().map(|resize| resize.to).collect();
    // Of a job whose scenario has no words, somebody else said them.
    if !wanted.is_empty() && wanted != had {
        problems.push(format!("widths {wanted:?} were asked for, and {had:?} came of it"));
    }
    problems.extend(unkilled(scenario, &seen.kills));
    let mut model_sha256 = models;
    model_sha256.dedup();
    Ok(Outcome {
        name: scenario.name.clone(),
        model_identical,
        model_sha256,
        reference_sha256,
        pause_s: pauses.iter().fold(0.0, |sum, row| sum + row.pause_s),
        widths: widths.iter().map(|(_, workers)| (*workers).into()).collect(),
        pauses,
        standstills_s: seen.standstills.iter().map(std::time::Duration::as_secs_f64).collect(),
        rounds: if all_there { job.rounds.into() } else { 0 },
        accuracy: seen.finished.first().map(|(_, summary)| summary.accuracy),
        killed: seen.killed.clone(),
        kills: seen.kills.clone(),
        verdict: if problems.is_empty() { Verdict::Ok } else { Verdict::Failed },
        problems,
    })
}

/// Kills that were asked for, and never happened.
fn unkilled(scenario: &Scenario, kills: &[KillRow]) -> Vec<String> {
    let mut left: Vec<_> = kills.iter().map(|kill| (kill.name.as_str(), kill.word)).collect();
    let mut problems = Vec::new();
    for kill in scenario.resize.iter().flat_map(|resize| &resize.kill) {
        let wanted = (kill.name.as_str(), kill.word);
        if let Some(at) = left.iter().position(|row| *row == wanted) {
            left.swap_remove(at);
            continue;
        }
        let (name, word) = wanted;
        let step = kill.step.map_or(String::new(), |step| format!(", in step {}", step.word()));
        problems.push(format!("{name} was to be killed after word {word}{step}, and was not"));
    }
    problems
}

/// `from`: the workers before, which a controller that was killed does not know.
fn row(resize: &v1::Resize, from: u32) -> PauseRow {
    let seconds = |ns: u64| ns as f64 / 1e9;
    PauseRow {
        round: resize.round,
        from,
        is_measured: resize.from > 0,
        to: resize.to,
        pause_s: seconds(pause_ns(resize)),
        checkpoint_s: seconds(resize.checkpoint_ns),
        lease_s: seconds(resize.lease_ns),
        start_s: seconds(resize.start_ns),
        stop_s: seconds(resize.stop_ns),
    }
}

/// The model of a job that has these widths from these rounds on.
fn reference(job: &JobSection, seed: u64, widths: &[(u64, u8)]) -> Result<Vec<f32>, JudgeError> {
    let ScaleExponent::Fixed(exponent) = job.scale_exponent else { return Ok(Vec::new()) };
    let trainers = |workers: u8| {
        let config = TrainerConfig { ..job.trainer() };
        (0..workers)
            .map(|rank| Trainer::new(rank.into(), workers.into(), seed, &config))
            .collect::<Result<Vec<_>, _>>()
    };
    let mut left = widths.iter().copied().peekable();
    let (_, first) = left.next().unwrap_or((0, job.workers));
    let mut cohort = trainers(first)?;
    let config = ReferenceConfig {
        workers: first.into(),
        block_elements: 1,
        clamp_limit: clamp_limit(first),
        learning_rate: job.learning_rate,
        momentum: job.momentum,
    };
    let mut reference = Reference::new(config, cohort[0].parameters());
    for round in 0..u64::from(job.rounds) {
        while let Some((_, workers)) = left.next_if(|(from, _)| *from == round) {
            cohort = trainers(workers)?;
            let rate = scaled_rate(job.learning_rate, workers, job.workers);
            reference.resize(workers.into(), clamp_limit(workers), rate);
        }
        let mut gradients = Vec::with_capacity(cohort.len());
        for trainer in &mut cohort {
            trainer.load(reference.parameters());
            let mut gradient = vec![0.0; trainer.parameter_count()];
            trainer.gradient(round, &mut gradient);
            gradients.push(gradient);
        }
        reference.round(&gradients, &[exponent])?;
    }
    Ok(reference.parameters().to_vec())
}

/// The largest contribution of which so many fit an `i32` (PROTOCOL section 9).
fn clamp_limit(workers: u8) -> i32 {
    i32::MAX / i32::from(workers)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scenario(kills: &str) -> Result<Scenario, String> {
        let text = include_str!("../../../scenarios/resize.toml");
        Scenario::parse("resize.toml", &format!("{text}\n{kills}"))
            .map_err(|error| weft_process::say::chain(&error))
    }

    const START: &str = "[[resize.kill]]\nbox = \"w3\"\nword = 0\nstep = \"start\"\n";

    #[test]
    fn a_kill_that_was_asked_for_and_never_happened_is_a_problem() {
        let mut scenario = scenario(START).expect("the new cohort has such a worker");
        scenario.job.rounds = 2;
        let seen = Seen::default();
        let problem = "w3 was to be killed after word 0, in step start, and was not";
        let judged = judge(&scenario, 1, &seen).expect("it is computed");
        assert!(judged.problems.iter().any(|it| it == problem), "{:?}", judged.problems);
        let row = KillRow { name: "w3".into(), word: 0, step: Some("start".into()) };
        assert_eq!(unkilled(&scenario, std::slice::from_ref(&row)), [""; 0]);
        let other = KillRow { name: "a0".into(), ..row };
        assert_eq!(unkilled(&scenario, &[other]), [problem]);
    }

    #[test]
    fn a_worker_that_is_not_there_in_that_step_is_refused() {
        for step in ["hold", "checkpoint"] {
            let problem = scenario(&START.replace("start", step)).expect_err("of two workers");
            assert!(problem.contains("there are 2 workers then"), "{problem}");
        }
    }

    #[test]
    fn times_that_no_clock_tells_are_not_added_up_beyond_the_largest() {
        let most = v1::Resize {
            checkpoint_ns: u64::MAX,
            lease_ns: u64::MAX,
            start_ns: u64::MAX,
            ..v1::Resize::default()
        };
        assert!(row(&most, 2).pause_s > 1e10);
    }
}
