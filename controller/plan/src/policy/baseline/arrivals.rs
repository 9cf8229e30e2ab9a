//! Baselines that commit whatever arrives: they differ in who may send.

use core::cmp::Reverse;

use weft_control::ConductMode;

use super::{commit_on_arrival, requested, send};
use crate::case::{Case, UpdateId};
use crate::plan::Plan;
use crate::policy::{Manner, Policy, PolicyError};

/// One transfer at a time for each server, in order of request: the strict time-sharing of
/// MLfabric's prototype, policy (i).
#[derive(Clone, Copy, Debug, Default)]
pub struct Fifo;

/// All at once: what a parameter server without a controller sees.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fair;

/// Newest version first, `outstanding_max` at a time: the prototype's policy (ii). Old updates can
/// starve until they are too old.
#[derive(Clone, Copy, Debug, Default)]
pub struct NewestFirst;

impl Policy for Fifo {
    fn name(&self) -> &str {
        "fifo"
    }

    fn plan(&self, case: &Case) -> Result<Plan, PolicyError> {
        Ok(plan(self.name(), case, &requested(case), 1))
    }
}

impl Policy for Fair {
    fn name(&self) -> &str {
        "fair"
    }

    fn manner(&self) -> Manner {
        Manner { conduct: ConductMode::Fair, ..Manner::default() }
    }

    fn plan(&self, case: &Case) -> Result<Plan, PolicyError> {
        Ok(plan(self.name(), case, &requested(case), usize::MAX))
    }
}

impl Policy for NewestFirst {
    fn name(&self) -> &str {
        "newest-first"
    }

    fn plan(&self, case: &Case) -> Result<Plan, PolicyError> {
        let mut queue = requested(case);
        queue.sort_by_key(|id| Reverse(case.update(*id).version));
        let outstanding = usize::try_from(case.options.outstanding_max).unwrap_or(usize::MAX);
        Ok(plan(self.name(), case, &queue, outstanding))
    }
}

fn plan(name: &str, case: &Case, queue: &[UpdateId], outstanding: usize) -> Plan {
    let mut plan = Plan::empty(name, case);
    let arrivals = send(case, queue, outstanding, &mut plan);
    commit_on_arrival(case, arrivals, &mut plan);
    plan
}
