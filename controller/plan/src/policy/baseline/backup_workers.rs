//! Synchronous rounds with backup workers (Chen et al., "Revisiting Distributed Synchronous SGD"):
//! a round closes with the first K of N updates.

use alloc::vec::Vec;

use weft_control::DropReason;

use super::{Arrival, Commits, in_time, requested, send};
use crate::case::Case;
use crate::plan::{Group, Plan, Transfer};
use crate::policy::{Policy, PolicyError};

/// All send at once; the first `best_of` of each server commit together, the rest is dropped.
/// Without `best_of` one in ten is spare, at least one (derived).
#[derive(Clone, Copy, Debug, Default)]
pub struct BackupWorkers;

impl Policy for BackupWorkers {
    fn name(&self) -> &str {
        "backup-workers"
    }

    fn plan(&self, case: &Case) -> Result<Plan, PolicyError> {
        let mut plan = Plan::empty(self.name(), case);
        let arrivals = send(case, &requested(case), usize::MAX, &mut plan);
        let servers = Commits::of_all(case);
        for server in case.server_ids() {
            let of_server = |arrival: &&Arrival| case.update(arrival.update).server == server;
            let mut round: Vec<&Arrival> = arrivals.iter().filter(of_server).collect();
            let best = case.options.best_of.map_or_else(
                || round.len() - round.len().div_ceil(10).min(round.len().saturating_sub(1)),
                |best| usize::try_from(best).unwrap_or(usize::MAX).min(round.len()),
            );
            let late = round.split_off(best);
            plan.dropped.extend(late.iter().map(|late| (late.update, DropReason::RoundClosed)));
            round.sort_by_key(|arrival| case.update(arrival.update).version);
            let (round, old) = in_time(case, round, |arrival| arrival.update);
            plan.dropped.extend(old.iter().map(|old| (old.update, DropReason::TooOld)));
            let Some(last_ns) = round.iter().map(|arrival| arrival.arrival_ns).max() else {
                continue;
            };
            let commit_ns = last_ns.max(servers[server.index()].last_ns);
            for arrival in round {
                let Arrival { update, arrival_ns, segments } = arrival.clone();
                let transfer = Transfer { arrival_ns, commit_ns, via: None, segments };
                plan.transfers[update.index()] = Some(transfer);
                let members = vec![update];
                plan.groups.push(Group { server, members, via: None, forward: None, commit_ns });
            }
        }
        plan.settle();
        Ok(plan)
    }
}
