//! Server-side buffering: all send at once, and the server holds back what has arrived while its
//! commit would make an update that is still on the way too old (MLfabric's figure b).

use alloc::vec::Vec;

use weft_control::DropReason;

use super::{Arrival, Commits, commit_alone, requested, send};
use crate::case::{Case, ServerId};
use crate::plan::Plan;
use crate::policy::order::deadlines::Deadlines;
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
    // Each kept update has the last slot that is free up to its deadline; by slot, the last free
    // one up to it, as far as known.
    let mut free: Vec<Option<usize>> = (0..arrivals.len()).map(Some).collect();
    let fits = |arrival: &Arrival| {
        let deadline = case.deadline(arrival.update);
        if deadline < 0 {
            plan.dropped.push((arrival.update, DropReason::TooOld));
            return false;
        }
        let slot = usize::try_from(deadline).unwrap_or(usize::MAX).min(free.len() - 1);
        let taken = last_free(&mut free, slot);
        match taken {
            Some(taken) => free[taken] = taken.checked_sub(1),
            None => plan.dropped.push((arrival.update, DropReason::DeadlineCluster)),
        }
        taken.is_some()
    };
    arrivals.into_iter().filter(fits).collect()
}

/// The last free slot up to `slot`; halves the ways that lead there.
fn last_free(free: &mut [Option<usize>], mut slot: usize) -> Option<usize> {
    loop {
        let next = free[slot]?;
        if next == slot {
            return Some(slot);
        }
        free[slot] = free[next];
        slot = next;
    }
}

/// Commits in order of arrival, except that the earliest update whose commit leaves all others in
/// time goes first; where there is none among those that have arrived, the server waits.
fn commit(
    case: &Case,
    server: ServerId,
    arrivals: Vec<Arrival>,
    commits: &mut Commits,
    plan: &mut Plan,
) {
    let mut by_deadline: Vec<usize> = (0..arrivals.len()).collect();
    by_deadline.sort_by_key(|index| case.deadline(arrivals[*index].update));
    let mut places = vec![0; case.updates.len()];
    let ids = by_deadline.iter().map(|index| arrivals[*index].update).collect();
    let mut deadlines = Deadlines::new(case, ids, &mut places);
    let mut earliest = Earliest::new(&by_deadline);
    let mut arrivals: Vec<Option<Arrival>> = arrivals.into_iter().map(Some).collect();
    while !deadlines.is_empty() {
        let index = earliest.up_to(deadlines.tight_end().unwrap_or(usize::MAX));
        let arrival = arrivals[index].take().expect("it waits");
        let place = places[arrival.update.index()];
        deadlines.remove(place);
        deadlines.advance();
        earliest.remove(place as usize);
        commit_alone(server, arrival, commits, plan);
    }
}

/// The least number up to a place in a row, under removals: a tree of minima.
struct Earliest {
    nodes: Vec<usize>,
    leaves: usize,
}

impl Earliest {
    fn new(row: &[usize]) -> Self {
        let leaves = row.len().next_power_of_two();
        let mut nodes = vec![usize::MAX; 2 * leaves];
        nodes[leaves..][..row.len()].copy_from_slice(row);
        for node in (1..leaves).rev() {
            nodes[node] = nodes[2 * node].min(nodes[2 * node + 1]);
        }
        Self { nodes, leaves }
    }

    fn up_to(&self, place: usize) -> usize {
        let mut node = self.leaves + place.min(self.leaves - 1);
        let mut least = self.nodes[node];
        while node > 1 {
            if node % 2 == 1 {
                least = least.min(self.nodes[node - 1]);
            }
            node /= 2;
        }
        least
    }

    fn remove(&mut self, place: usize) {
        let mut node = self.leaves + place;
        self.nodes[node] = usize::MAX;
        while node > 1 {
            node /= 2;
            self.nodes[node] = self.nodes[2 * node].min(self.nodes[2 * node + 1]);
        }
    }
}
