//! Says an operator's words while jobs run, and looks how long it takes until what they ask for is
//! to be seen in the controller's status.

use std::thread;
use std::time::{Duration, Instant};

use weft_control::BandPolicy;
use weft_rpc::v1;

use crate::operator::{Operator, OperatorError};
use crate::report::WordRow;
use crate::run::caller::Caller;
use crate::run::monotonic_ns;
use crate::scenario::WordOfJobs;

/// Says them in the order of their times, which count from `begun`.
pub(super) fn say_all(
    words: &[WordOfJobs],
    caller: &Caller,
    begun: Instant,
    is_over: &dyn Fn() -> bool,
) -> Vec<WordRow> {
    let mut rows = Vec::new();
    for word in words {
        let at = begun + Duration::try_from_secs_f64(word.at_s).unwrap_or_default();
        while Instant::now() < at {
            if is_over() {
                return rows;
            }
            thread::sleep(LOOK.min(at.saturating_duration_since(Instant::now())));
        }
        rows.push(say(word, caller));
    }
    rows
}

fn say(word: &WordOfJobs, caller: &Caller) -> WordRow {
    let said = Instant::now();
    let mut row = WordRow { at_ns: monotonic_ns(), word: word.words(), ..WordRow::default() };
    let seen = thread::scope(|scope| {
        // Whoever watches sees the change while the one who asked waits for the answer.
        let watching = scope.spawn(|| caller.call(|operator| watch(operator, word, said)));
        let answer = caller.call(|operator| ask(operator, word).map_err(text));
        row.answered_ms = said.elapsed().as_secs_f64() * 1e3;
        row.problem = answer.err();
        watching.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    match seen {
        Ok(seen_ms) => row.seen_ms = seen_ms,
        Err(problem) => row.problem = row.problem.or(Some(problem)),
    }
    row
}

fn ask(operator: &Operator, word: &WordOfJobs) -> Result<(), OperatorError> {
    if let Some(policy) = word.bands {
        return operator.set_bands(policy, 0).map(drop);
    }
    if let Some(job) = &word.pause {
        return operator.pause(job).map(drop);
    }
    if let Some(job) = &word.resume {
        return operator.resume(job);
    }
    if let (Some(job), Some(workers)) = (&word.resize, word.workers) {
        return operator.resize(job, workers.into()).map(drop);
    }
    Ok(())
}

/// How long until the status shows what was asked for; none when it does not in time.
fn watch(operator: &Operator, word: &WordOfJobs, said: Instant) -> Result<Option<f64>, String> {
    while said.elapsed() < SEEN_TIMEOUT {
        let status = operator.status().map_err(text)?;
        if is_seen(&status, word) {
            return Ok(Some(said.elapsed().as_secs_f64() * 1e3));
        }
        thread::sleep(LOOK);
    }
    Ok(None)
}

/// Whether the status shows that the word is heeded: boxes have given jobs their new bands; a job
/// that pauses is granted nothing more, one that is resized stops for it or has its new workers.
fn is_seen(status: &v1::StatusReply, word: &WordOfJobs) -> bool {
    let state = |name: &String| {
        let pushed = status.jobs.iter().find(|job| job.name == *name).map(v1::JobStatus::state);
        let summed = status.reduces.iter().find(|job| job.name == *name);
        pushed.or_else(|| summed.map(v1::ReduceStatus::state))
    };
    if let Some(policy) = word.bands {
        let is_done = |job: &v1::JobStatus| {
            job.band_boxes_awaited == 0 && job.band.is_some() == (policy != BandPolicy::Fifo)
        };
        let is_set = status.band_policy() == v1::BandPolicy::from(policy);
        return is_set && status.jobs.iter().all(is_done);
    }
    if let Some(job) = &word.pause {
        return matches!(state(job), Some(v1::JobState::Pausing | v1::JobState::Paused));
    }
    if let Some(job) = &word.resume {
        return state(job) == Some(v1::JobState::Running);
    }
    if let (Some(job), Some(workers)) = (&word.resize, word.workers) {
        let found = status.reduces.iter().find(|it| it.name == *job);
        return found.is_some_and(|it| {
            it.state() == v1::JobState::Resizing || it.workers == u32::from(workers)
        });
    }
    true
}

#[expect(clippy::needless_pass_by_value, reason = "it is an error's end")]
fn text(error: OperatorError) -> String {
    weft_process::say::chain(&error)
}

/// How often the status is read.
const LOOK: Duration = Duration::from_millis(20);
/// How long a word may take until it is to be seen.
const SEEN_TIMEOUT: Duration = Duration::from_secs(10);
