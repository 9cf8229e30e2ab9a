//! Decides when each group's copy travels to the replica, and which commits wait for it.
//!
//! A copy leaves the box that has the sum (the worker, or the aggregator: the same payload under a
//! new header) and takes what the transfers to the servers leave, in commit order, with the
//! server's group boundaries. The replica applies a group once it is there and the server has
//! decided on it. Before a group commits at the server, the bound of [`divergence`] decides which
//! missing copies must have arrived; where they are later, the commit waits for them. If no lag
//! fits the bound, server and replica apply the group together.
//!
//! Invariant: while [`ReplicaPlan::held`], the bound just after every commit is at most `div_max`.
//! Source: MLfabric, replication ("u_1 is scheduled ahead at the replica to satisfy the bound");
//! that the commit waits where bandwidth is short is *derived*. Cost: one probe per group.

pub mod divergence;

#[cfg(test)]
mod tests;

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::case::{Case, HostId, Server, ServerId, UpdateId};
use crate::net::ledger::Ledger;
use crate::plan::{Copy, Hop, ReplicaPlan};

use super::aggregate::Aggregated;
use divergence::{Lag, Need};

/// Plans all copies; commits that must wait for one move, and all later ones of their server.
///
/// [`Copy::group`] and [`Copy::forced_before`] count the server's own groups.
#[must_use]
pub fn replicate(case: &Case, ledger: &mut Ledger, plan: &mut Aggregated) -> Vec<ReplicaPlan> {
    let mut out = Vec::new();
    for server in case.server_ids() {
        if let Some(host) = case.server(server).replica {
            out.push(copy_all(case, ledger, plan, server, host));
        }
    }
    ledger.commit();
    out
}

fn copy_all(
    case: &Case,
    ledger: &mut Ledger,
    plan: &mut Aggregated,
    server: ServerId,
    host: HostId,
) -> ReplicaPlan {
    let spec = case.server(server);
    let mut replica = Replica::new(spec);
    let mut out = ReplicaPlan { server, host, copies: Vec::new(), held: true };
    let mut last_ns = 0;
    for (index, group) in plan.groups[server.index()].iter_mut().enumerate() {
        let norm: f64 = group.members.iter().map(|id| case.update(*id).norm).sum();
        let hop = copy(case, ledger, host, group.via, group.forward.as_ref(), &group.members);
        let arrival_ns = hop.as_ref().map(|hop| hop.arrival_ns);
        let commit_ns = group.commit_ns.max(last_ns);
        let index = UpdateId::from_index(index).0;
        let decided = replica.commit(index, norm, commit_ns, arrival_ns);
        for forced in decided.forced {
            out.copies[forced as usize].forced_before = Some(index);
        }
        out.held &= decided.held;
        last_ns = decided.commit_ns;
        group.commit_ns = last_ns;
        for id in &group.members {
            if let Some(transfer) = &mut plan.transfers[id.index()] {
                transfer.commit_ns = last_ns;
            }
        }
        out.copies.push(Copy {
            group: index,
            hop,
            forced_before: None,
            joint: decided.joint,
            divergence: decided.divergence,
        });
    }
    out
}

/// Sends a group's sum to the replica with what bandwidth is left; none if there is none, ever.
fn copy(
    case: &Case,
    ledger: &mut Ledger,
    replica: HostId,
    via: Option<HostId>,
    forward: Option<&Hop>,
    members: &[UpdateId],
) -> Option<Hop> {
    let source = via.unwrap_or_else(|| case.update(members[0]).host);
    let ready_ns = forward.map_or(case.now_ns, |hop| hop.ready_ns);
    let size_bytes = members.iter().map(|id| case.update(*id).size_bytes).max()?;
    let path = ledger.path(source, replica);
    let mut segments = Vec::new();
    let arrival_ns = ledger.probe_segments(&path, ready_ns, size_bytes, &mut segments)?;
    ledger.reserve(&path, &segments);
    Some(Hop { ready_ns, arrival_ns, segments })
}

/// What the replica misses while the server commits.
struct Replica {
    lag: Lag,
    div_max: Option<f64>,
    /// Missing groups, oldest first: index and arrival. Groups of earlier plans come first and
    /// have no index; their copies are under way.
    missing: VecDeque<(Option<u32>, Option<u64>)>,
    /// The replica applies in order: not before this.
    applied_ns: u64,
}

/// What one commit takes.
struct Decided {
    commit_ns: u64,
    forced: Vec<u32>,
    joint: bool,
    held: bool,
    divergence: f64,
}

impl Replica {
    fn new(server: &Server) -> Self {
        let mut lag = Lag::new(server.momentum, server.h_norm);
        let mut missing = VecDeque::new();
        for norm in &server.lag_norms {
            lag.push(*norm);
            missing.push_back((None, Some(server.commit_from_ns)));
        }
        Self { lag, div_max: server.div_max, missing, applied_ns: 0 }
    }

    fn commit(
        &mut self,
        index: u32,
        norm: f64,
        mut commit_ns: u64,
        arrival_ns: Option<u64>,
    ) -> Decided {
        while let Some((_, Some(at_ns))) = self.missing.front()
            && (*at_ns).max(self.applied_ns) <= commit_ns
        {
            self.apply();
        }
        let (mut forced, mut held, mut joint) = (Vec::new(), true, false);
        if let Some(div_max) = self.div_max {
            loop {
                match self.lag.need(norm, div_max) {
                    Need::Nothing => break,
                    Need::Oldest => match self.missing.front() {
                        Some((name, Some(at_ns))) => {
                            forced.extend(*name);
                            commit_ns = commit_ns.max(*at_ns).max(self.applied_ns);
                            self.apply();
                        }
                        _ => {
                            held = false;
                            break;
                        }
                    },
                    Need::Joint => {
                        joint = arrival_ns.is_some();
                        held = joint;
                        break;
                    }
                }
            }
        }
        self.lag.push(norm);
        self.missing.push_back((Some(index), arrival_ns));
        if joint {
            commit_ns = commit_ns.max(arrival_ns.unwrap_or(0)).max(self.applied_ns);
            self.apply();
        }
        Decided { commit_ns, forced, joint, held, divergence: self.lag.bound() }
    }

    /// The replica applies the oldest missing group.
    fn apply(&mut self) {
        if let Some((_, at_ns)) = self.missing.pop_front() {
            self.applied_ns = self.applied_ns.max(at_ns.unwrap_or(0));
            self.lag.pop();
        }
    }
}
