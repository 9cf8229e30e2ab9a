//! Decides whether a plan obeys its case: what tests and outside policies are held to.

use alloc::string::String;
use alloc::vec::Vec;

use thiserror::Error;

use crate::case::{Case, HostId, Segment, UpdateId};
use crate::net::ledger::{Ledger, Overbooked};

use super::{Group, Hop, Plan};

/// A rule that a plan breaks.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
pub enum PlanFault {
    /// Every update has one place.
    #[error("update `{update}` appears {count} times in order and drops; it must appear once")]
    NotOnce {
        /// Which.
        update: String,
        /// How often.
        count: usize,
    },
    /// A group's members belong to its server and have transfers that commit with it.
    #[error("update `{update}` does not fit its group: {reason}")]
    Member {
        /// Which.
        update: String,
        /// Why.
        reason: &'static str,
    },
    /// Commits of a server happen in order.
    #[error("update `{update}` commits at {commit_ns} ns, before the one ahead of it")]
    Order {
        /// Which.
        update: String,
        /// When.
        commit_ns: u64,
    },
    /// The delay bound.
    #[error("update `{update}` would commit with delay {delay}; the bound is {tau_max}")]
    Delay {
        /// Which.
        update: String,
        /// Version before its commit minus its own.
        delay: u64,
        /// The bound.
        tau_max: u64,
    },
    /// A transfer brings all bytes, within its time.
    #[error("{what} of `{update}` {reason}")]
    Transfer {
        /// Which leg.
        what: &'static str,
        /// Which.
        update: String,
        /// What is wrong.
        reason: &'static str,
    },
    /// No link carries more than it can.
    #[error("{what} of `{update}` takes more of a link than is left at {at_ns} ns")]
    Capacity {
        /// Which leg.
        what: &'static str,
        /// Which.
        update: String,
        /// When.
        at_ns: u64,
    },
}

/// One leg of a way: between two hosts, in time.
struct Leg<'a> {
    what: &'static str,
    update: UpdateId,
    from: HostId,
    to: HostId,
    ready_ns: u64,
    arrival_ns: u64,
    size_bytes: u64,
    segments: &'a [Segment],
}

/// Checks every rule.
///
/// # Errors
/// The first rule that is broken.
pub fn check(case: &Case, plan: &Plan) -> Result<(), PlanFault> {
    every_update_once(case, plan)?;
    let mut ledger = Ledger::new(case);
    let mut commits: Vec<(u64, u64)> =
        case.servers.iter().map(|s| (s.version, s.commit_from_ns)).collect();
    for group in &plan.groups {
        let (version, last_ns) = &mut commits[group.server.index()];
        members_fit(case, plan, group)?;
        if group.commit_ns < *last_ns {
            let (update, commit_ns) = (name(case, group.members[0]), group.commit_ns);
            return Err(PlanFault::Order { update, commit_ns });
        }
        *last_ns = group.commit_ns;
        for id in &group.members {
            let delay = *version - case.update(*id).version;
            let tau_max = case.server(group.server).tau_max;
            if delay > tau_max {
                return Err(PlanFault::Delay { update: name(case, *id), delay, tau_max });
            }
            *version += 1;
        }
        carry_group(case, plan, group, &mut ledger)?;
    }
    for replica in &plan.replicas {
        for copy in &replica.copies {
            let group = &plan.groups[copy.group as usize];
            let Some(hop) = &copy.hop else { continue };
            let first = group.members[0];
            let leg = Leg {
                what: "the copy",
                update: first,
                from: group.via.unwrap_or_else(|| case.update(first).host),
                to: replica.host,
                ready_ns: group.forward.as_ref().map_or(case.now_ns, |f| f.ready_ns),
                arrival_ns: hop.arrival_ns,
                size_bytes: size_of(case, group),
                segments: &hop.segments,
            };
            carry(case, &leg, &mut ledger)?;
        }
    }
    Ok(())
}

fn every_update_once(case: &Case, plan: &Plan) -> Result<(), PlanFault> {
    let mut counts = vec![0; case.updates.len()];
    let ordered = plan.groups.iter().flat_map(|g| &g.members);
    for id in ordered.chain(plan.dropped.iter().map(|(id, _)| id)) {
        counts[id.index()] += 1;
    }
    for (id, count) in case.update_ids().zip(counts) {
        if count != 1 {
            return Err(PlanFault::NotOnce { update: name(case, id), count });
        }
    }
    Ok(())
}

fn members_fit(case: &Case, plan: &Plan, group: &Group) -> Result<(), PlanFault> {
    for id in &group.members {
        let fault = |reason| Err(PlanFault::Member { update: name(case, *id), reason });
        if case.update(*id).server != group.server {
            return fault("it is for another server");
        }
        let Some(transfer) = &plan.transfers[id.index()] else {
            return fault("it has no transfer");
        };
        if transfer.via != group.via || transfer.commit_ns != group.commit_ns {
            return fault("its transfer names another way or commit");
        }
        let last_ns = group.forward.as_ref().map_or(transfer.arrival_ns, |f| f.arrival_ns);
        if last_ns > group.commit_ns {
            return fault("it commits before it has arrived");
        }
        let leaves_ns = |f: &Hop| if case.options.stream_sums { f.arrival_ns } else { f.ready_ns };
        if group.forward.as_ref().is_some_and(|f| leaves_ns(f) < transfer.arrival_ns) {
            return fault("the sum leaves the aggregator before it has arrived there");
        }
    }
    if group.via.is_some() != group.forward.is_some() || group.members.is_empty() {
        let update = group.members.first().map_or_else(String::new, |id| name(case, *id));
        return Err(PlanFault::Member { update, reason: "an aggregator's sum has a way onwards" });
    }
    if group.via.is_none() && group.members.len() != 1 {
        let update = name(case, group.members[0]);
        return Err(PlanFault::Member { update, reason: "several updates need an aggregator" });
    }
    Ok(())
}

fn carry_group(
    case: &Case,
    plan: &Plan,
    group: &Group,
    ledger: &mut Ledger,
) -> Result<(), PlanFault> {
    let server = case.server(group.server).host;
    for id in &group.members {
        let Some(transfer) = &plan.transfers[id.index()] else { continue };
        let leg = Leg {
            what: "the transfer",
            update: *id,
            from: case.update(*id).host,
            to: group.via.unwrap_or(server),
            ready_ns: case.now_ns,
            arrival_ns: transfer.arrival_ns,
            size_bytes: case.update(*id).size_bytes,
            segments: &transfer.segments,
        };
        carry(case, &leg, ledger)?;
    }
    if let (Some(via), Some(forward)) = (group.via, &group.forward) {
        let leg = Leg {
            what: "the sum",
            update: group.members[0],
            from: via,
            to: server,
            ready_ns: forward.ready_ns,
            arrival_ns: forward.arrival_ns,
            size_bytes: size_of(case, group),
            segments: &forward.segments,
        };
        carry(case, &leg, ledger)?;
    }
    Ok(())
}

fn carry(case: &Case, leg: &Leg<'_>, ledger: &mut Ledger) -> Result<(), PlanFault> {
    if leg.from == leg.to {
        return Ok(());
    }
    let (what, update) = (leg.what, name(case, leg.update));
    let in_order = leg.segments.windows(2).all(|pair| pair[0].to_ns <= pair[1].from_ns);
    let real = leg.segments.iter().all(|s| s.from_ns < s.to_ns && s.bytes_per_sec > 0);
    let bytes_ns: u128 = leg
        .segments
        .iter()
        .map(|s| u128::from(s.bytes_per_sec) * u128::from(s.to_ns.saturating_sub(s.from_ns)))
        .sum();
    let reason = if !in_order || !real {
        Some("has segments out of order or empty")
    } else if bytes_ns < u128::from(leg.size_bytes) * 1_000_000_000 {
        Some("carries less than the update's bytes")
    } else if leg.segments.first().is_some_and(|s| s.from_ns < leg.ready_ns) {
        Some("starts before it can")
    } else if leg.segments.last().is_some_and(|s| s.to_ns > leg.arrival_ns) {
        Some("arrives before it ends")
    } else {
        None
    };
    if let Some(reason) = reason {
        return Err(PlanFault::Transfer { what, update, reason });
    }
    let path = ledger.path(leg.from, leg.to);
    ledger.try_reserve(&path, leg.segments).map_err(|Overbooked { at_ns }| PlanFault::Capacity {
        what,
        update,
        at_ns,
    })
}

fn size_of(case: &Case, group: &Group) -> u64 {
    group.members.iter().map(|id| case.update(*id).size_bytes).max().unwrap_or(0)
}

fn name(case: &Case, id: UpdateId) -> String {
    case.update(id).name.clone()
}
