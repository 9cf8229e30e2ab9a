//! Decides when a run is ended because its updates do not enter the model. Pure.
//!
//! Workers push until the model has taken in all updates of the job, so a policy that drops what it
//! is asked for would have them push for ever. A run ends when updates are lost and none is
//! committed, by their number or by the time that passes; and when many times as many are lost as
//! the job has.

use std::time::{Duration, Instant};

use crate::run::UpdateOutcome;

/// Lost updates, and how many are too many.
#[derive(Debug)]
pub(in crate::run) struct Losses {
    workers: u64,
    /// Updates that the job has.
    wanted: u64,
    patience: Duration,
    in_a_row: u64,
    all: u64,
    committed: u64,
    since: Instant,
}

impl Losses {
    /// Of a job of so many workers and updates; `patience` is how long the next commit may take
    /// while updates are lost.
    pub(in crate::run) const fn new(
        workers: u64,
        wanted: u64,
        patience: Duration,
        now: Instant,
    ) -> Self {
        Self { workers, wanted, patience, in_a_row: 0, all: 0, committed: 0, since: now }
    }

    /// Takes in an outcome; says why the run ends, if it does.
    pub(in crate::run) fn note(&mut self, outcome: UpdateOutcome, now: Instant) -> Option<String> {
        match outcome {
            UpdateOutcome::Committed => {
                (self.in_a_row, self.since) = (0, now);
                self.committed += 1;
                return None;
            }
            UpdateOutcome::Unknown => return None,
            UpdateOutcome::Dropped | UpdateOutcome::Void => {}
        }
        self.in_a_row += 1;
        self.all += 1;
        let waited = now.saturating_duration_since(self.since);
        let is_late = self.in_a_row >= self.workers && waited > self.patience;
        if is_late || self.in_a_row >= IN_A_ROW_MAX * self.workers {
            return Some(format!(
                "{} updates were dropped or void one after the other, in {:.1} s, and none was \
                 committed: the run was ended after {} of {} updates",
                self.in_a_row,
                waited.as_secs_f64(),
                self.committed,
                self.wanted
            ));
        }
        (self.all >= ALL_MAX * (self.wanted + self.workers)).then(|| {
            format!(
                "{} updates were dropped or void, of a job of {}: the run was ended after {}",
                self.all, self.wanted, self.committed
            )
        })
    }
}

/// Lost one after the other, for each worker. A partial round loses all but one at most.
const IN_A_ROW_MAX: u64 = 64;
/// Lost together, for each update of the job and each worker.
const ALL_MAX: u64 = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use UpdateOutcome::{Committed, Dropped, Unknown, Void};

    #[test]
    fn a_run_that_commits_nothing_ends_by_number_and_by_time() {
        let start = Instant::now();
        let losses = || Losses::new(2, 10, Duration::from_secs(60), start);
        let mut by_number = losses();
        assert_eq!(by_number.note(Committed, start), None);
        let ends = (1..).find(|_| by_number.note(Dropped, start).is_some());
        assert_eq!(ends, Some(128));
        let mut by_time = losses();
        let late = start + Duration::from_secs(61);
        assert_eq!(by_time.note(Dropped, late), None, "one alone may have had bad luck");
        assert_eq!(by_time.note(Unknown, late), None);
        let why = by_time.note(Void, late).expect("it ends");
        assert!(why.contains("in 61.0 s") && why.contains("after 0 of 10 updates"), "{why}");
    }

    #[test]
    fn a_run_that_commits_now_and_then_ends_too() {
        let start = Instant::now();
        let mut losses = Losses::new(2, 10, Duration::from_secs(60), start);
        let outcome = |number: u64| if number.is_multiple_of(100) { Committed } else { Dropped };
        let ends = (1..10_000).find(|number| losses.note(outcome(*number), start).is_some());
        assert_eq!(ends, Some(775), "64 x 12 lost, and 7 committed");
    }
}
