//! Says a word to the controller, and waits for what it comes to, whoever dies meanwhile.

use std::thread;
use std::time::{Duration, Instant};

use weft_process::say::chain;
use weft_rpc::v1;

use super::plan::JOB;
use crate::operator::Operator;
use crate::run::caller::Caller;
use crate::scenario::WordSection;

/// What became of a word.
pub(super) type Answer = Result<Word, String>;

/// What that was.
pub(super) enum Word {
    /// It has other workers.
    Resized(v1::Resize),
    /// It stood still, and goes on.
    Paused(Duration),
}

/// Says a word, again when the controller goes before it answers, and waits for what it comes to.
pub(super) fn carry_out(caller: &Caller, word: &WordSection) -> Answer {
    caller.within(|| carry_out_there(caller, word))?
}

fn carry_out_there(caller: &Caller, word: &WordSection) -> Answer {
    let until = Instant::now() + WORD_TIMEOUT;
    let mut was_lost = false;
    loop {
        let said = Operator::dial(&caller.endpoint, caller.certs.as_deref(), WORD_TIMEOUT)
            .map_err(|error| (error.is_unreachable(), chain(&error)))
            .and_then(|operator| say_once(&operator, word, was_lost));
        match said {
            Ok(answer) => return Ok(answer),
            Err((true, _)) if Instant::now() < until => {
                was_lost = true;
                thread::sleep(REDIAL);
            }
            Err((_, problem)) => return Err(problem),
        }
    }
}

/// A word, or what became of the one that a controller before this took.
fn say_once(
    operator: &Operator,
    word: &WordSection,
    was_lost: bool,
) -> Result<Word, (bool, String)> {
    let failed = |error: crate::operator::OperatorError| (error.is_unreachable(), chain(&error));
    let state = |operator: &Operator| -> Result<v1::ReduceStatus, (bool, String)> {
        let status = operator.status().map_err(failed)?;
        let job = status.reduces.into_iter().find(|job| job.name == JOB);
        job.ok_or_else(|| (false, "the controller has forgotten the job".to_owned()))
    };
    let Some(workers) = word.workers else {
        let standstill = match operator.pause(JOB) {
            Ok(standstill) => standstill,
            Err(error) if was_lost && !error.is_unreachable() => {
                while state(operator)?.state() != v1::JobState::Paused {
                    thread::sleep(LOOK_PERIOD);
                }
                Duration::ZERO
            }
            Err(error) => return Err(failed(error)),
        };
        thread::sleep(Duration::from_millis(word.pause_ms));
        operator.resume(JOB).map_err(failed)?;
        return Ok(Word::Paused(standstill));
    };
    if was_lost {
        loop {
            let job = state(operator)?;
            let is_done = job.workers == u32::from(workers) && job.state() == v1::JobState::Running;
            if is_done {
                let resize = job.resizes.last().copied().unwrap_or_else(|| v1::Resize {
                    to: job.workers,
                    round: job.from_round,
                    ..v1::Resize::default()
                });
                return Ok(Word::Resized(resize));
            }
            if job.workers != u32::from(workers) && job.state() == v1::JobState::Running {
                // It died before it took the word.
                break;
            }
            thread::sleep(LOOK_PERIOD);
        }
    }
    // One that has just begun anew does not know before it hears of it that the cohort runs.
    let until = Instant::now() + WORD_TIMEOUT;
    while state(operator)?.state() == v1::JobState::Resizing && Instant::now() < until {
        thread::sleep(LOOK_PERIOD);
    }
    operator.resize(JOB, workers.into()).map(Word::Resized).map_err(failed)
}

/// How often it is looked what a word comes to.
const LOOK_PERIOD: Duration = Duration::from_millis(5);
/// How long a word may take.
const WORD_TIMEOUT: Duration = Duration::from_secs(40);
/// How long until a controller that went is called again.
const REDIAL: Duration = Duration::from_millis(50);
