//! Chain replication: links are shared fairly, updates commit on arrival, and the server sends what
//! it applied to its replica after every `chain_every` commits.
//!
//! The replica costs the server's own uplink, and lags by design; the divergence bound is reported,
//! and nothing waits for it.

use alloc::vec::Vec;

use super::{commit_on_arrival, requested, send};
use crate::case::{Case, ServerId};
use crate::net::ledger::Ledger;
use crate::plan::{Copy, Hop, Plan, ReplicaPlan};
use crate::policy::replicate::divergence::Lag;
use crate::policy::{Policy, PolicyError};

/// Server to replica, every n commits. One message carries the sum of n updates.
#[derive(Clone, Copy, Debug, Default)]
pub struct Chain;

impl Policy for Chain {
    fn name(&self) -> &str {
        "chain"
    }

    fn plan(&self, case: &Case) -> Result<Plan, PolicyError> {
        let mut plan = Plan::empty(self.name(), case);
        let arrivals = send(case, &requested(case), usize::MAX, &mut plan);
        commit_on_arrival(case, arrivals, &mut plan);
        let replicas = case.server_ids().filter_map(|server| copies(case, &plan, server));
        plan.replicas = replicas.collect();
        Ok(plan)
    }
}

fn copies(case: &Case, plan: &Plan, server: ServerId) -> Option<ReplicaPlan> {
    let spec = case.server(server);
    let host = spec.replica?;
    let mut ledger = Ledger::new(case);
    let path = ledger.path(spec.host, host);
    let mut lag = Lag::new(spec.momentum, spec.h_norm);
    spec.lag_norms.iter().for_each(|norm| lag.push(*norm));
    let mut out = ReplicaPlan { server, host, copies: Vec::new(), held: true };
    let mut free_ns = case.now_ns;
    let mut waiting = 0;
    // Copies under way: when they arrive, and how many groups they carry.
    let mut under_way: Vec<(u64, usize)> = Vec::new();
    let groups = (0_u32..).zip(&plan.groups).filter(|(_, group)| group.server == server);
    for (index, group) in groups {
        under_way.retain(|(arrival_ns, carried)| {
            let arrived = *arrival_ns <= group.commit_ns;
            if arrived {
                (0..*carried).for_each(|_| lag.pop());
            }
            !arrived
        });
        lag.push(group.members.iter().map(|id| case.update(*id).norm).sum());
        waiting += 1;
        let sizes = group.members.iter().map(|id| case.update(*id).size_bytes);
        let hop = if waiting == case.options.chain_every {
            waiting = 0;
            let ready_ns = group.commit_ns.max(free_ns);
            let mut segments = Vec::new();
            let size_bytes = sizes.max().unwrap_or(0);
            let arrival_ns = ledger.probe_segments(&path, ready_ns, size_bytes, &mut segments);
            arrival_ns.map(|arrival_ns| {
                ledger.reserve(&path, &segments);
                free_ns = arrival_ns;
                under_way.push((arrival_ns, lag.len() - carried(&under_way)));
                Hop { ready_ns, arrival_ns, segments }
            })
        } else {
            None
        };
        let divergence = lag.bound();
        out.held &= spec.div_max.is_none_or(|div_max| divergence <= div_max);
        out.copies.push(Copy { group: index, hop, forced_before: None, joint: false, divergence });
    }
    Some(out)
}

fn carried(under_way: &[(u64, usize)]) -> usize {
    under_way.iter().map(|(_, carried)| carried).sum()
}
