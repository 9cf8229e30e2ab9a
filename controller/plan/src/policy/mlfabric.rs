//! MLfabric: order, then aggregate, then replicate.

use crate::case::Case;
use crate::net::ledger::Ledger;
use crate::plan::Plan;

use super::aggregate::aggregate;
use super::order::order;
use super::replicate::replicate;
use super::{Policy, PolicyError};

/// The composition of the three planners.
#[derive(Clone, Copy, Debug, Default)]
pub struct Mlfabric;

impl Policy for Mlfabric {
    fn name(&self) -> &str {
        "mlfabric"
    }

    fn plan(&self, case: &Case) -> Result<Plan, PolicyError> {
        let mut ledger = Ledger::new(case);
        let ordered = order(case, &mut ledger);
        let mut cut = aggregate(case, &mut ledger, &ordered);
        let replicas = replicate(case, &mut ledger, &mut cut);
        let mut plan = Plan::empty(self.name(), case);
        plan.dropped = ordered.dropped;
        plan.groups = cut.groups.into_iter().flatten().collect();
        plan.transfers = cut.transfers;
        plan.replicas = replicas;
        plan.settle();
        plan.count_over_all_servers();
        Ok(plan)
    }
}
