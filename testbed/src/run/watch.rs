//! Decides what is due while a run goes on, by what its workers say: deaths and other rates of
//! links after a round, the end of a run that has reached its loss, or that commits nothing. Pure.

use std::time::{Duration, Instant};

use super::plan::Plan;
use super::push::losses::Losses;
use super::push::until::Until;
use super::{UpdateOutcome, WorkerMessage};
use crate::scenario::{RateStepSection, RestartSection, Scenario};

/// How long a run may go without a word from any worker, beyond a worker's own patience.
pub(super) const SILENCE_MARGIN: Duration = Duration::from_secs(30);

/// What a run does on the way.
#[derive(Debug)]
pub(super) struct Watch<'a> {
    /// Not done yet, with the round after which it is.
    due: Vec<(u32, Due<'a>)>,
    /// Versions of the model in a round.
    per_round: u64,
    push: Option<(Until, Losses)>,
}

/// Something that is due.
#[derive(Clone, Copy, Debug)]
pub(super) enum Due<'a> {
    /// A link gets another rate.
    Rate(&'a RateStepSection),
    /// This is killed and started again.
    Restart(&'a str),
    /// This is killed for good.
    Crash(&'a str),
}

/// What a message gives rise to.
#[derive(Debug, Default)]
pub(super) struct Noted<'a> {
    /// Links first.
    pub(super) due: Vec<Due<'a>>,
    /// The version at which all workers end from now on.
    pub(super) end: Option<u64>,
    /// Why the run ends now.
    pub(super) ended: Option<String>,
}

impl<'a> Watch<'a> {
    /// Of a run in which workers wait so long for each other.
    pub(super) fn new(
        scenario: &'a Scenario,
        plan: &Plan,
        patience: Duration,
        now: Instant,
    ) -> Self {
        let rates = scenario.rate_step.iter().map(|step| (step.after_round, Due::Rate(step)));
        let death = |of: fn(&'a str) -> Due<'a>| {
            move |death: &'a RestartSection| (death.after_round, of(&death.name))
        };
        let restarts = scenario.restart.iter().map(death(Due::Restart));
        let crashes = scenario.crash.iter().map(death(Due::Crash));
        let push = scenario.push.as_ref().map(|push| {
            let computing = Duration::from_millis(push.compute_ms[1].into());
            let patience = patience + push.lateness() + 4 * computing;
            let (workers, wanted) = (plan.workers.len() as u64, plan.workers[0].last_version());
            let losses = Losses::new(workers, wanted, patience, now);
            (Until::new(push, &scenario.job), losses)
        });
        let due = rates.chain(restarts).chain(crashes).collect();
        Self { due, per_round: scenario.updates_per_round(), push }
    }

    /// The version and loss that ended the run.
    pub(super) fn reached(&self) -> Option<(u64, f64)> {
        self.push.as_ref().and_then(|(until, _)| until.reached())
    }

    /// Takes in what a worker says.
    pub(super) fn note(&mut self, rank: u8, message: &WorkerMessage, now: Instant) -> Noted<'a> {
        let mut noted = Noted::default();
        if let Some((until, losses)) = &mut self.push {
            noted.end = until.note(message);
            if let WorkerMessage::Update(update) = message {
                noted.ended = losses.note(update.outcome, now);
            }
        }
        let rounds = match message {
            WorkerMessage::Round(round) if rank == 0 => u64::from(round.round) + 1,
            WorkerMessage::Update(update) if update.outcome == UpdateOutcome::Committed => {
                update.committed_version / self.per_round
            }
            _ => return noted,
        };
        let due = self.due.extract_if(.., |(after_round, _)| rounds > u64::from(*after_round));
        noted.due = due.map(|(_, due)| due).collect();
        noted
    }
}
