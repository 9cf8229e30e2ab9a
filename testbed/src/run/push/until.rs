//! Decides at which version a run ends that trains until a loss. Pure.
//!
//! Worker 0 measures every model that it pulls. With the first whose loss is at most the target,
//! the job has fewer updates: each worker ends as it does at the end of the whole job, with the
//! last version of the model. So nobody is left alone in a round that never fills.

use weft_control::Mode;

use crate::run::{UpdateOutcome, WorkerMessage};
use crate::scenario::{JobSection, PushSection};

/// What is known of the model on the way to the target.
#[derive(Debug)]
pub(in crate::run) struct Until {
    target: Option<f64>,
    mode: Mode,
    per_round: u64,
    /// Version at which the whole job is over.
    last: u64,
    /// The highest version that a worker spoke of.
    highest: u64,
    reached: Option<(u64, f64)>,
}

impl Until {
    pub(in crate::run) fn new(push: &PushSection, job: &JobSection) -> Self {
        let per_round = push.updates_per_round(job).into();
        Self {
            target: push.target_loss.filter(|_| push.until_loss),
            mode: push.mode,
            per_round,
            last: u64::from(job.rounds) * per_round,
            highest: 0,
            reached: None,
        }
    }

    /// The version and loss that ended the run.
    pub(in crate::run) const fn reached(&self) -> Option<(u64, f64)> {
        self.reached
    }

    /// Takes in what a worker says; once, the version at which all end from now on.
    pub(in crate::run) fn note(&mut self, message: &WorkerMessage) -> Option<u64> {
        match *message {
            WorkerMessage::Update(ref update) if update.outcome == UpdateOutcome::Committed => {
                self.highest = self.highest.max(update.committed_version);
                None
            }
            WorkerMessage::Measured { version, loss } => {
                self.highest = self.highest.max(version);
                if self.reached.is_some() || self.target.is_none_or(|target| loss > target) {
                    return None;
                }
                self.reached = Some((version, loss));
                Some(self.end())
            }
            _ => None,
        }
    }

    /// In rounds all must leave after the same one, also those that are ahead and hear it late.
    fn end(&self) -> u64 {
        let end = match self.mode {
            Mode::Async => self.highest,
            Mode::Sync | Mode::Partial => {
                (self.highest / self.per_round + ROUNDS_AHEAD) * self.per_round
            }
        };
        end.min(self.last)
    }
}

/// Rounds that workers may go on while they are told.
const ROUNDS_AHEAD: u64 = 3;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::UpdateMessage;
    use crate::scenario::Scenario;

    fn until(text: &str) -> Until {
        let text = text.replace("target_loss = 0.5", "target_loss = 0.5\nuntil_loss = true");
        let scenario = Scenario::parse("a.toml", &text).unwrap();
        Until::new(scenario.push.as_ref().unwrap(), &scenario.job)
    }

    fn committed(committed_version: u64) -> WorkerMessage {
        let outcome = UpdateOutcome::Committed;
        WorkerMessage::Update(UpdateMessage {
            outcome,
            committed_version,
            ..UpdateMessage::default()
        })
    }

    #[test]
    fn the_first_model_that_is_good_enough_ends_the_run_once() {
        let mut until = until(include_str!("../../../scenarios/async.toml"));
        let measured = |version, loss| WorkerMessage::Measured { version, loss };
        assert_eq!(until.note(&measured(20, 0.51)), None);
        assert_eq!(until.note(&committed(31)), None);
        assert_eq!(until.note(&measured(29, 0.5)), Some(31));
        assert_eq!(until.note(&measured(33, 0.4)), None);
        assert_eq!(until.reached(), Some((29, 0.5)));
    }

    #[test]
    fn rounds_end_whole() {
        let mut until = until(include_str!("../../../scenarios/partial.toml"));
        assert_eq!(until.note(&committed(13)), None);
        let end = until.note(&WorkerMessage::Measured { version: 12, loss: 0.1 });
        assert_eq!(end, Some(30), "13 is in the third round of six");
        let mut late = self::until(include_str!("../../../scenarios/partial.toml"));
        let end = late.note(&WorkerMessage::Measured { version: 174, loss: 0.1 });
        assert_eq!(end, Some(180), "the job has no more");
    }

    #[test]
    fn a_target_alone_ends_nothing() {
        let scenario =
            Scenario::parse("a.toml", include_str!("../../../scenarios/async.toml")).unwrap();
        let mut until = Until::new(scenario.push.as_ref().unwrap(), &scenario.job);
        assert_eq!(until.note(&WorkerMessage::Measured { version: 5, loss: 0.1 }), None);
    }
}
