//! What must hold whatever is killed: each round is in the model once, with the number of workers
//! that computed it; all workers hold the same model after the same round; a checkpoint is the
//! model of its round; all stand at the same boundary.

use weft_control::CohortId;

use super::worker::Model;

/// The one history that there may be.
#[derive(Debug, Default)]
pub(super) struct Judge {
    /// The model after each round.
    models: Vec<Model>,
    /// Who computed it.
    cohorts: Vec<CohortId>,
    pub(super) violations: Vec<String>,
}

impl Judge {
    /// A round ended, for all workers of a cohort at once.
    pub(super) fn summed(&mut self, round: u64, cohort: CohortId, workers: u16) {
        let done = self.models.len() as u64;
        if round != done {
            self.violations.push(format!(
                "round {round} was summed by cohort {} where round {done} comes next",
                cohort.0
            ));
            return;
        }
        if self.cohorts.last().is_some_and(|last| *last > cohort) {
            let problem = format!("cohort {} summed round {round} after a later one", cohort.0);
            self.violations.push(problem);
        }
        let before = self.models.last().copied().unwrap_or(Model::FIRST);
        self.models.push(before.after(round, workers));
        self.cohorts.push(cohort);
    }

    /// Somebody has this model: a worker, or the disk.
    pub(super) fn check(&mut self, who: &str, model: Model) {
        let expected = match model.rounds.checked_sub(1) {
            None => Some(Model::FIRST),
            Some(last) => usize::try_from(last).ok().and_then(|i| self.models.get(i)).copied(),
        };
        if expected != Some(model) {
            self.violations.push(format!("{who} has {model:?}, and {expected:?} is right"));
        }
    }

    /// The controller says that all stand before this round.
    pub(super) fn stands(&mut self, boundary: u64, workers: &[(u64, Option<u64>)]) {
        for (next, within) in workers {
            if *next != boundary || within.is_some() {
                self.violations.push(format!(
                    "the job stands at {boundary}, and a worker is at {next}, within {within:?}"
                ));
            }
        }
    }

    pub(super) fn rounds(&self) -> u64 {
        self.models.len() as u64
    }
}
