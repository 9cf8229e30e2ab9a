//! What MLfabric is compared with, as policies of the same signature.
//!
//! | policy | who sends when | what commits |
//! | --- | --- | --- |
//! | `fifo` | one transfer at a time for each server, in order of request | on arrival |
//! | `fair` | all at once, max-min fair | on arrival |
//! | `newest-first` | newest version first, a few at a time, fair | on arrival |
//! | `server-buffering` | all at once | held back while it would make another too old |
//! | `tree` | every worker to its fixed aggregator, then the sums | sum by sum |
//! | `ring` | ring all-reduce of each server's updates | all at its end |
//! | `backup-workers` | all at once | the first of N, together; the rest is dropped |
//! | `chain` | all at once | on arrival; the server copies every n-th commit to its replica |
//!
//! None of them controls the network, so none can keep a delay bound: what is too old when it would
//! commit is dropped by the server (I4), its bandwidth spent.

mod arrivals;
mod backup_workers;
mod chain;
mod ring;
mod server_buffering;
mod tree;

pub use arrivals::{Fair, Fifo, NewestFirst};
pub use backup_workers::BackupWorkers;
pub use chain::Chain;
pub use ring::Ring;
pub use server_buffering::ServerBuffering;
pub use tree::Tree;

use alloc::borrow::ToOwned;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use weft_control::DropReason;

use crate::case::{Case, Segment, ServerId, UpdateId};
use crate::net::ledger::Ledger;
use crate::net::sharing::{FlowId, Sharing};
use crate::plan::{Group, Plan, Transfer};
use crate::policy::Policy as _;

/// An update that has reached its server.
#[derive(Clone, Debug)]
struct Arrival {
    update: UpdateId,
    arrival_ns: u64,
    segments: Vec<Segment>,
}

/// Sends updates with at most `outstanding` under way for each server, in the order of `queue`,
/// sharing links fairly. Arrivals in order of time; updates that never arrive are dropped.
fn send(case: &Case, queue: &[UpdateId], outstanding: usize, plan: &mut Plan) -> Vec<Arrival> {
    let ledger = Ledger::new(case);
    let mut sharing = Sharing::new(&ledger, case.now_ns);
    let mut waiting: Vec<VecDeque<UpdateId>> = vec![VecDeque::new(); case.servers.len()];
    for id in queue {
        waiting[case.update(*id).server.index()].push_back(*id);
    }
    let mut sent: Vec<UpdateId> = Vec::new();
    let start = |sharing: &mut Sharing<'_>, sent: &mut Vec<UpdateId>, id: UpdateId| {
        let update = case.update(id);
        let path = ledger.path(update.host, case.server(update.server).host);
        let flow = sharing.start(path, update.size_bytes);
        debug_assert_eq!(flow, FlowId(sent.len()));
        sent.push(id);
    };
    for queue in &mut waiting {
        for id in queue.drain(..outstanding.min(queue.len())) {
            start(&mut sharing, &mut sent, id);
        }
    }
    let mut arrivals = Vec::with_capacity(queue.len());
    let mut arrived = vec![false; case.updates.len()];
    while let Some(ended) = sharing.next_ended() {
        let mut ended: Vec<(u64, UpdateId, FlowId)> =
            ended.into_iter().map(|flow| (sharing.ended_ns(flow), sent[flow.0], flow)).collect();
        ended.sort_by_key(|(arrival_ns, id, _)| (*arrival_ns, case.ranks[id.index()]));
        for (arrival_ns, id, flow) in ended {
            arrived[id.index()] = true;
            let segments = sharing.segments(flow).to_vec();
            arrivals.push(Arrival { update: id, arrival_ns, segments });
            if let Some(next) = waiting[case.update(id).server.index()].pop_front() {
                start(&mut sharing, &mut sent, next);
            }
        }
    }
    let lost = queue.iter().filter(|id| !arrived[id.index()]);
    plan.dropped.extend(lost.map(|id| (*id, DropReason::NoBandwidth)));
    arrivals
}

/// The plans of `fair` and of `server-buffering`, which send alike.
pub(super) fn all_at_once(case: &Case) -> [Plan; 2] {
    let mut fair = Plan::empty(Fair.name(), case);
    let arrivals = send(case, &requested(case), usize::MAX, &mut fair);
    let mut buffering = Plan { policy: ServerBuffering.name().to_owned(), ..fair.clone() };
    server_buffering::commit_in_time(case, &arrivals, &mut buffering);
    commit_on_arrival(case, arrivals, &mut fair);
    [fair, buffering]
}

/// A server's sequence while it is made.
#[derive(Clone, Copy, Debug)]
struct Commits {
    count: i64,
    last_ns: u64,
}

impl Commits {
    fn of_all(case: &Case) -> Vec<Self> {
        let last_ns = |server: &crate::case::Server| server.commit_from_ns.max(case.now_ns);
        case.servers.iter().map(|server| Self { count: 0, last_ns: last_ns(server) }).collect()
    }
}

/// Commits each update as it arrives, alone; drops it where it is too old by then.
fn commit_on_arrival(case: &Case, arrivals: Vec<Arrival>, plan: &mut Plan) {
    let mut servers = Commits::of_all(case);
    for arrival in arrivals {
        let server = case.update(arrival.update).server;
        let commits = &mut servers[server.index()];
        if case.deadline(arrival.update) < commits.count {
            plan.dropped.push((arrival.update, DropReason::TooOld));
            continue;
        }
        commit_alone(server, arrival, commits, plan);
    }
    plan.settle();
}

fn commit_alone(server: ServerId, arrival: Arrival, commits: &mut Commits, plan: &mut Plan) {
    let Arrival { update, arrival_ns, segments } = arrival;
    commits.last_ns = commits.last_ns.max(arrival_ns);
    commits.count += 1;
    let commit_ns = commits.last_ns;
    plan.transfers[update.index()] = Some(Transfer { arrival_ns, commit_ns, via: None, segments });
    plan.groups.push(Group { server, members: vec![update], via: None, forward: None, commit_ns });
}

/// Takes out of a round, which commits in this order, who would be too old at its place.
fn in_time<T>(case: &Case, round: Vec<T>, update: impl Fn(&T) -> UpdateId) -> (Vec<T>, Vec<T>) {
    let mut position = 0;
    round.into_iter().partition(|one| {
        let in_time = case.deadline(update(one)) >= position;
        position += i64::from(in_time);
        in_time
    })
}

/// The case's updates in its order, which is the order of their requests.
fn requested(case: &Case) -> Vec<UpdateId> {
    case.update_ids().collect()
}

#[cfg(test)]
mod tests;
