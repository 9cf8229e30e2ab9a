//! MLfabric: order, then aggregate, then replicate; of a small case also other ways, and the best
//! of all (`candidates`).

use weft_control::DropReason;

use crate::case::Case;
use crate::net::ledger::Ledger;
use crate::plan::Plan;

use super::aggregate::aggregate;
use super::order::{Ordered, direct_path, order};
use super::replicate::replicate;
use super::{Manner, Policy, PolicyError};

mod candidates;

#[cfg(test)]
mod tests;

/// The composition of the three planners.
#[derive(Clone, Copy, Debug, Default)]
pub struct Mlfabric;

impl Policy for Mlfabric {
    fn name(&self) -> &str {
        NAME
    }

    fn manner(&self) -> Manner {
        Manner { looks_ahead: true, ..Manner::default() }
    }

    fn plan(&self, case: &Case) -> Result<Plan, PolicyError> {
        Ok(candidates::best(case))
    }
}

/// The plan that the rules of the three planners make.
fn by_rules(case: &Case) -> Plan {
    let mut ledger = Ledger::new(case);
    let mut ordered = order(case, &mut ledger);
    close_rounds(case, &mut ledger, &mut ordered);
    let mut cut = aggregate(case, &mut ledger, &ordered);
    let replicas = replicate(case, &mut ledger, &mut cut);
    let mut plan = Plan::empty(NAME, case);
    plan.candidate = Some(candidates::RULES);
    plan.dropped = ordered.dropped;
    plan.groups = cut.groups.into_iter().flatten().collect();
    plan.transfers = cut.transfers;
    plan.replicas = replicas;
    plan.settle();
    plan.count_over_all_servers();
    plan
}

/// Partial rounds: keeps the first `best_of` updates of each server and takes the others' promises
/// back.
fn close_rounds(case: &Case, ledger: &mut Ledger, ordered: &mut Ordered) {
    let Some(best) = case.options.best_of.and_then(|best| usize::try_from(best).ok()) else {
        return;
    };
    for sequence in &mut ordered.sequences {
        for id in sequence.split_off(best.min(sequence.len())) {
            if let Some(transfer) = ordered.transfers[id.index()].take() {
                let path = direct_path(case, ledger, case.update(id));
                ledger.release(&path, &transfer.segments);
            }
            ordered.dropped.push((id, DropReason::RoundClosed));
        }
    }
}

const NAME: &str = "mlfabric";
