//! Server-side buffering: all send at once, and the server holds back what has arrived while its
//! commit would make an update that is still on the way too old (MLfabric's figure b).

use alloc::vec::Vec;

use weft_control::DropReason;

use super::{Arrival, Commits, commit_alone, requested, send};
use crate::case::{Case, ServerId, UpdateId};
use crate::plan::Plan;
use crate::policy::{Policy, PolicyError};

/// Fair sharing with a reorder buffer at the server.
#[derive(Clone, Copy, Debug, Default)]
pub struct ServerBuffering;

impl Policy for ServerBuffering {
    fn name(&self) -> &str {
        "server-buffering"
    }

    fn plan(&self, case: &Case) -> Result<Plan, PolicyError> {
        let mut plan = Plan::empty(self.name(), case);
        let arrivals = send(case, &requested(case), usize::MAX, &mut plan);
        commit_in_time(case, &arrivals, &mut plan);
        Ok(plan)
    }
}

/// Commits what has arrived, held back where that keeps others in time.
pub(super) fn commit_in_time(case: &Case, arrivals: &[Arrival], plan: &mut Plan) {
    let mut servers = Commits::of_all(case);
    for server in case.server_ids() {
        let of_server = |arrival: &&Arrival| case.update(arrival.update).server == server;
        let arrivals: Vec<Arrival> = arrivals.iter().filter(of_server).cloned().collect();
        let arrivals = feasible(case, arrivals, plan);
        commit(case, server, arrivals, &mut servers[server.index()], plan);
    }
    plan.settle();
}

/// Drops what no order could commit in time: of every set of updates that is too large for its
/// deadlines, the last to arrive.
fn feasible(case: &Case, arrivals: Vec<Arrival>, plan: &mut Plan) -> Vec<Arrival> {
    let mut kept: Vec<Arrival> = Vec::with_capacity(arrivals.len());
    for arrival in arrivals {
        if case.deadline(arrival.update) < 0 {
            plan.dropped.push((arrival.update, DropReason::TooOld));
            continue;
        }
        kept.push(arrival);
        if !fits(case, kept.iter().map(|arrival| arrival.update), 0) {
            let arrival = kept.pop().expect("just pushed");
            plan.dropped.push((arrival.update, DropReason::DeadlineCluster));
        }
    }
    kept
}

/// True when some order commits all of them in time, the first at position `next`.
fn fits(case: &Case, updates: impl Iterator<Item = UpdateId>, next: i64) -> bool {
    let mut deadlines: Vec<i64> = updates.map(|id| case.deadline(id)).collect();
    deadlines.sort_unstable();
    deadlines.into_iter().zip(next..).all(|(deadline, position)| deadline >= position)
}

/// Commits in order of arrival, except that the earliest update whose commit leaves all others in
/// time goes first; where there is none among those that have arrived, the server waits.
fn commit(
    case: &Case,
    server: ServerId,
    mut left: Vec<Arrival>,
    commits: &mut Commits,
    plan: &mut Plan,
) {
    while !left.is_empty() {
        let others = |index: usize| {
            left.iter().enumerate().filter(move |(i, _)| *i != index).map(|(_, a)| a.update)
        };
        let next = commits.count;
        let harmless = |index: &usize| {
            case.deadline(left[*index].update) >= next && fits(case, others(*index), next + 1)
        };
        let index = (0..left.len()).find(harmless).expect("a set that fits has a first one");
        commit_alone(server, left.remove(index), commits, plan);
    }
}
