//! MLfabric: order, then aggregate, then replicate.

use crate::case::Case;
use crate::net::ledger::Ledger;
use crate::plan::{DropReason, Plan};

use super::aggregate::aggregate;
use super::order::{Ordered, direct_path, order};
use super::replicate::replicate;
use super::{Policy, PolicyError};

#[cfg(test)]
mod tests;

/// The composition of the three planners.
#[derive(Clone, Copy, Debug, Default)]
pub struct Mlfabric;

impl Policy for Mlfabric {
    fn name(&self) -> &str {
        "mlfabric"
    }

    fn plan(&self, case: &Case) -> Result<Plan, PolicyError> {
        let mut ledger = Ledger::new(case);
        let mut ordered = order(case, &mut ledger);
        close_rounds(case, &mut ledger, &mut ordered);
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

#[cfg(test)]
mod tests {
    use crate::case::Case;
    use crate::plan::DropReason;
    use crate::policy::by_name;

    #[test]
    fn a_partial_round_keeps_the_quickest_and_gives_the_rest_of_the_link_back() {
        let host = |up: u64| format!(r#"{{"up_bytes_per_sec":{up},"down_bytes_per_sec":10}}"#);
        let update = |id: &str| {
            format!(r#"{{"id":"{id}","server":"s0","host":"{id}","size_bytes":10,"version":0}}"#)
        };
        let case = Case::from_json(&format!(
            r#"{{"now_ns":0,"hosts":{{"a":{},"b":{},"c":{},"s":{}}},
            "servers":[{{"name":"s0","host":"s","version":0}}],
            "updates":[{},{},{}],"options":{{"best_of":2}}}}"#,
            host(1),
            host(10),
            host(5),
            host(10),
            update("a"),
            update("b"),
            update("c")
        ))
        .unwrap();
        let plan = by_name("mlfabric").unwrap().plan(&case).unwrap();
        let names: Vec<_> = plan.order.iter().map(|id| &case.update(*id).name).collect();
        assert_eq!(names, ["b", "c"]);
        assert_eq!(plan.dropped[0].1, DropReason::RoundClosed);
        assert_eq!(plan.makespan_ns(&case), 3_000_000_000, "c has the whole link after b");
    }
}
