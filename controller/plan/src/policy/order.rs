//! Shortest transfer first (to be completed with deadlines and drops).

use crate::case::{Case, UpdateId};
use crate::net::ledger::Ledger;
use crate::plan::{DropReason, Group, Plan, Transfer};

/// Plans all updates direct.
pub fn order(case: &Case, ledger: &mut Ledger) -> Plan {
    let mut plan = Plan::empty("order", case);
    let mut last: Vec<u64> = case.servers.iter().map(|s| s.commit_from_ns).collect();
    let mut pending: Vec<UpdateId> = case.update_ids().collect();
    while !pending.is_empty() {
        let probes = pending.iter().map(|id| {
            let update = case.update(*id);
            let path = ledger.path(update.host, case.server(update.server).host);
            let finish = ledger.probe(&path, case.now_ns, update.size_bytes);
            (finish.unwrap_or(u64::MAX), case.ranks[id.index()], *id)
        });
        let Some((_, _, id)) = probes.min() else { break };
        pending.retain(|other| *other != id);
        let update = case.update(id);
        let path = ledger.path(update.host, case.server(update.server).host);
        let mut segments = Vec::new();
        let Some(arrival_ns) =
            ledger.probe_segments(&path, case.now_ns, update.size_bytes, &mut segments)
        else {
            plan.dropped.push((id, DropReason::NoBandwidth));
            continue;
        };
        ledger.reserve(&path, &segments);
        let last_ns = &mut last[update.server.index()];
        *last_ns = arrival_ns.max(*last_ns);
        let commit_ns = *last_ns;
        plan.transfers[id.index()] = Some(Transfer { arrival_ns, commit_ns, via: None, segments });
        let server = update.server;
        plan.groups.push(Group { server, members: vec![id], via: None, forward: None, commit_ns });
    }
    plan.settle();
    plan
}
