//! What must hold when the replica takes over (SPEC#promotion): it goes on with a prefix of what
//! its server decided, which has all that workers were told of, and shown.

use weft_control::{Decision, Event, OrderNumber, Version};
use weft_wire::JobId;

use super::Judge;
use super::truth::Truth;
use crate::push::scenario::Scenario;
use crate::push::topology;

impl Judge {
    /// True once the replica serves a job.
    #[must_use]
    pub fn is_succeeded(&self, place: usize) -> bool {
        self.jobs[place].is_succeeded
    }

    /// An event of the server or the replica.
    pub fn box_event(&mut self, scenario: &Scenario, node: usize, job: JobId, event: &Event) {
        let place = topology::job_place(job);
        let (is_replica, is_succeeded) =
            (Some(node) == scenario.replica(), self.is_succeeded(place));
        match *event {
            Event::Promoted { applied, order, version, .. } if is_replica && !is_succeeded => {
                for problem in self.jobs[place].succeed(applied, order, version) {
                    self.violations.push(format!("job {place}, the new server: {problem}"));
                }
            }
            Event::Decided { group, decision: Decision::Dropped, .. }
                if !is_replica && is_succeeded =>
            {
                // A server that is cut off may tell its workers so: nothing of it is in the model.
                let truth = &mut self.jobs[place];
                let offers = truth.groups.get(&group).map(|known| known.offers.as_slice());
                let old = offers.unwrap_or_default().iter().map(|offer| offer.uid);
                truth.dropped.extend(old);
            }
            _ if is_replica == is_succeeded => self.server_event(scenario, job, event),
            _ => {}
        }
    }

    /// A worker was shown a version.
    pub fn shown(&mut self, place: usize, version: u64, weights: &[f32]) {
        let truth = &mut self.jobs[place];
        truth.shown = truth.shown.max(version);
        let mut of_it = truth.history.values().filter(|(known, ..)| *known == version);
        // A worker has room for the last chunk too.
        if !of_it.any(|(_, w, _)| weights.starts_with(w)) {
            let text = format!("job {place}: version {version} was shown, and is another");
            self.violations.push(text);
        }
    }

    /// Nobody can take a job over: its replica lacks something, and its server is dead.
    pub fn note_stranded(&mut self, place: usize) {
        self.jobs[place].is_stranded = true;
    }

    /// True when a job has come to its end without a server.
    #[must_use]
    pub fn is_stranded(&self, place: usize) -> bool {
        self.jobs[place].is_stranded
    }
}

impl Truth {
    /// What the new server has not applied never was. Returns what that breaks.
    fn succeed(
        &mut self,
        OrderNumber(applied): OrderNumber,
        OrderNumber(order): OrderNumber,
        Version(version): Version,
    ) -> Vec<String> {
        let mut problems = Vec::new();
        let Some((known, w, h)) = self.history.get(&applied).cloned() else {
            return vec![format!("nothing was decided up to {applied}")];
        };
        if known != version {
            problems.push(format!("at {applied} it is at version {version}, not {known}"));
        }
        if order < self.next_order {
            problems.push(format!("it begins at {order}; {} is next", self.next_order));
        }
        if self.shown > version {
            problems.push(format!("version {} was shown, it has {version}", self.shown));
        }
        let lost = self.committed.iter().filter(|(_, at)| **at > version).map(|(uid, _)| uid);
        let told = lost.filter(|uid| self.told.contains(uid));
        problems.extend(told.map(|uid| format!("{uid:?} was told of its commit, which is lost")));
        self.committed.retain(|_, at| *at <= version);
        self.history.retain(|known, _| *known <= applied);
        (self.version, self.next_order, self.is_succeeded) = (version, order, true);
        (self.w, self.h) = (w, h);
        let kept = (self.version, self.w.clone(), self.h.clone());
        self.history.insert(order, kept);
        problems
    }
}
