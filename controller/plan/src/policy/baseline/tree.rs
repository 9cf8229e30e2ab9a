//! A fixed aggregation tree: every worker belongs to one aggregator, whose sum goes to the server
//! when all of its workers' updates are in. Links are shared fairly.

use alloc::borrow::ToOwned;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use weft_control::DropReason;

use super::Commits;
use crate::case::{Case, HostId, ServerId, UpdateId};
use crate::net::ledger::Ledger;
use crate::net::sharing::Sharing;
use crate::plan::{Group, Hop, Plan, Transfer};
use crate::policy::{Policy, PolicyError};

/// Workers are dealt out to the case's aggregators in the order of their hosts.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tree;

/// What a flow carries.
#[derive(Clone, Copy, Debug)]
enum Cargo {
    Update(UpdateId),
    Sum(usize),
}

/// The updates of one server at one aggregator.
#[derive(Clone, Debug)]
struct Branch {
    server: ServerId,
    via: HostId,
    members: Vec<UpdateId>,
    missing: usize,
    ready_ns: u64,
}

impl Policy for Tree {
    fn name(&self) -> &str {
        "tree"
    }

    fn plan(&self, case: &Case) -> Result<Plan, PolicyError> {
        if case.aggregators.is_empty() && !case.updates.is_empty() {
            let reason = "`aggregators` is empty; name the hosts that sum".to_owned();
            return Err(PolicyError::Unsuitable { policy: self.name().to_owned(), reason });
        }
        let mut plan = Plan::empty(self.name(), case);
        let mut sent: Vec<UpdateId> = case.update_ids().collect();
        sent.retain(|id| {
            let in_time = case.deadline(*id) >= 0;
            if !in_time {
                plan.dropped.push((*id, DropReason::TooOld));
            }
            in_time
        });
        // Members that would be too old when their sum arrives must not be in it; without them the
        // rest is faster, so this is repeated until nobody is.
        loop {
            let mut attempt = plan.clone();
            let late = try_tree(case, &sent, &mut attempt);
            if late.is_empty() {
                attempt.settle();
                return Ok(attempt);
            }
            plan.dropped.extend(late.iter().map(|id| (*id, DropReason::TooOld)));
            sent.retain(|id| !late.contains(id));
        }
    }
}

/// Sends `sent` through the tree; returns those that would be too old.
fn try_tree(case: &Case, sent: &[UpdateId], plan: &mut Plan) -> Vec<UpdateId> {
    let mut branches = branches(case, sent);
    let ledger = Ledger::new(case);
    let mut sharing = Sharing::new(&ledger, case.now_ns);
    let mut cargo: Vec<Cargo> = Vec::new();
    let mut branch_of = BTreeMap::new();
    for (index, branch) in branches.iter().enumerate() {
        for id in &branch.members {
            let update = case.update(*id);
            sharing.start(ledger.path(update.host, branch.via), update.size_bytes);
            cargo.push(Cargo::Update(*id));
            branch_of.insert(*id, index);
        }
    }
    let mut servers = Commits::of_all(case);
    let mut late = Vec::new();
    while let Some(ended) = sharing.next_ended() {
        let now_ns = sharing.now_ns();
        for flow in ended {
            match cargo[flow.0] {
                Cargo::Update(id) => {
                    let branch = &mut branches[branch_of[&id]];
                    let segments = sharing.segments(flow).to_vec();
                    let via = Some(branch.via);
                    let transfer = Transfer { arrival_ns: now_ns, commit_ns: 0, via, segments };
                    plan.transfers[id.index()] = Some(transfer);
                    branch.missing -= 1;
                    if branch.missing == 0 {
                        branch.ready_ns = now_ns;
                        let path = ledger.path(branch.via, case.server(branch.server).host);
                        let sizes = branch.members.iter().map(|id| case.update(*id).size_bytes);
                        sharing.start(path, sizes.max().unwrap_or(0));
                        cargo.push(Cargo::Sum(branch_of[&id]));
                    }
                }
                Cargo::Sum(index) => {
                    let hop = Hop {
                        ready_ns: branches[index].ready_ns,
                        arrival_ns: now_ns,
                        segments: sharing.segments(flow).to_vec(),
                    };
                    commit(case, &branches[index], hop, &mut servers, plan, &mut late);
                }
            }
        }
    }
    let stuck = sent.iter().filter(|id| {
        !plan.groups.iter().any(|group| group.members.contains(id)) && !late.contains(id)
    });
    for id in stuck {
        plan.transfers[id.index()] = None;
        plan.dropped.push((*id, DropReason::NoBandwidth));
    }
    late
}

fn commit(
    case: &Case,
    branch: &Branch,
    hop: Hop,
    servers: &mut [Commits],
    plan: &mut Plan,
    late: &mut Vec<UpdateId>,
) {
    let commits = &mut servers[branch.server.index()];
    let positions = branch.members.iter().zip(commits.count..);
    let too_old = positions.filter(|(id, position)| case.deadline(**id) < *position);
    late.extend(too_old.map(|(id, _)| *id));
    commits.count += i64::try_from(branch.members.len()).unwrap_or(i64::MAX);
    commits.last_ns = commits.last_ns.max(hop.arrival_ns);
    for id in &branch.members {
        if let Some(transfer) = &mut plan.transfers[id.index()] {
            transfer.commit_ns = commits.last_ns;
        }
    }
    plan.groups.push(Group {
        server: branch.server,
        members: branch.members.clone(),
        via: Some(branch.via),
        forward: Some(hop),
        commit_ns: commits.last_ns,
    });
}

/// Deals the hosts out to the aggregators, an aggregator's own updates to itself; members by
/// version, the oldest first.
fn branches(case: &Case, sent: &[UpdateId]) -> Vec<Branch> {
    let mut members: BTreeMap<(ServerId, usize), Vec<UpdateId>> = BTreeMap::new();
    for id in sent {
        let update = case.update(*id);
        let own = case.aggregators.iter().position(|host| *host == update.host);
        let index = own.unwrap_or_else(|| update.host.index() % case.aggregators.len());
        members.entry((update.server, index)).or_default().push(*id);
    }
    let branch = |((server, index), mut members): ((ServerId, usize), Vec<UpdateId>)| {
        members.sort_by_key(|id| (case.update(*id).version, case.ranks[id.index()]));
        let missing = members.len();
        Branch { server, via: case.aggregators[index], members, missing, ready_ns: 0 }
    };
    members.into_iter().map(branch).collect()
}
