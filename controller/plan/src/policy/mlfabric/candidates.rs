//! Decides whether the rules' plan of a case is taken, or that of another way to plan it
//! (*derived*): the rules are greedy, and where a slow uplink starts last, or a deadline bends the
//! order, plain sharing can be better.
//!
//! Invariants: what is taken drops no more than the rules do, and no more than the baseline that is
//! best among those that drop no more than the rules; of what is left, none is better. So no
//! baseline that loses as few updates commits sooner in the mean. Ties go to the rules.
//!
//! A baseline is a candidate if it moves every update to its server: `ring` does not, and
//! `backup-workers` drops by choice, so that it fits partial rounds only. `chain` commits like
//! `fair`, which is `direct` here: every update straight to its server, at once. The rules are also
//! planned with slow uplinks first, and without dropping.
//!
//! Cost: some eight plans of a case of at most [`Options::candidates_max`] updates, fewer where
//! there is other traffic; a larger one is planned by the rules alone, and the plan says so.
//!
//! [`Options::candidates_max`]: crate::case::Options::candidates_max

use alloc::borrow::ToOwned;
use alloc::vec::Vec;
use core::cmp::Ordering;

use weft_control::DropReason;

use crate::case::{Case, Objective};
use crate::net::ledger::Ledger;
use crate::plan::Plan;
use crate::plan::check::check;
use crate::policy::Policy;
use crate::policy::aggregate::{Aggregated, price};
use crate::policy::baseline::{BackupWorkers, Fifo, NewestFirst, Tree, all_at_once};
use crate::policy::order::order;
use crate::policy::replicate::replicate;

use super::{NAME, by_rules};

/// The best plan of a case.
pub(super) fn best(case: &Case) -> Plan {
    let mut rules = by_rules(case);
    // One transfer alone has nothing to share.
    if case.options.candidates_max == 0 || case.updates.len() < 2 {
        return rules;
    }
    if !is_affordable(case) {
        rules.candidates_skipped = true;
        return rules;
    }
    let (variants, baselines) = (variants(case, &rules), baselines(case));
    let fits = baselines.iter().filter(|plan| plan.dropped.len() <= rules.dropped.len());
    let scored = fits.map(|plan| (Score::of(case, plan), plan.dropped.len()));
    let drops_max = scored.min_by(|(a, _), (b, _)| a.compare(b));
    let drops_max = drops_max.map_or(rules.dropped.len(), |(_, dropped)| dropped);
    let candidates = [rules].into_iter().chain(variants).chain(baselines);
    let allowed = candidates.filter(|plan| plan.dropped.len() <= drops_max);
    let scored = allowed.map(|plan| (Score::of(case, &plan), plan));
    // Of equals the first is kept.
    let best = scored.min_by(|(a, _), (b, _)| a.compare(b));
    best.map(|(_, plan)| plan).expect("the rules, or the baseline that drops less")
}

/// Whether the case is small enough: what sharing costs grows with the updates, and with how often
/// a link changes for one of them.
fn is_affordable(case: &Case) -> bool {
    let max = u64::from(case.options.candidates_max);
    let (updates, reservations) = (case.updates.len() as u64, case.reservations.len() as u64);
    updates <= max && updates.saturating_mul(updates + 2 * reservations) <= max * max
}

/// The rules under other switches than the case's.
fn variants(case: &Case, rules: &Plan) -> Vec<Plan> {
    let with = |name: &'static str, share: Option<f64>, no_drop: bool| {
        let mut other = case.clone();
        other.options.thin_flow_share = share.unwrap_or(other.options.thin_flow_share);
        other.options.no_drop |= no_drop;
        Plan { candidate: Some(name), ..by_rules(&other) }
    };
    let share = slow_share(case);
    let is_by_rule = |(_, reason): &(_, DropReason)| *reason == DropReason::DelaysOthers;
    let mut plans = vec![with(SLOW_FIRST, Some(share), false)];
    if rules.dropped.iter().any(is_by_rule) {
        plans.push(with(NO_DROP, None, true));
        plans.push(with(SLOW_FIRST, Some(share), true));
    }
    plans
}

/// The share below which uplinks best go first, judged by the order alone.
fn slow_share(case: &Case) -> f64 {
    let ledger = Ledger::new(case);
    let mut other = case.clone();
    let mut best = (usize::MAX, u128::MAX, SLOW_SHARES[0]);
    for share in SLOW_SHARES {
        other.options.thin_flow_share = share;
        let ordered = order(&other, &mut ledger.clone());
        let commits = ordered.transfers.iter().flatten().map(|t| u128::from(t.commit_ns));
        let cost = match case.options.objective {
            Objective::Mean => commits.sum(),
            Objective::Last => commits.max().unwrap_or(0),
        };
        if (ordered.dropped.len(), cost) < (best.0, best.1) {
            best = (ordered.dropped.len(), cost, share);
        }
    }
    best.2
}

/// The plans of the baselines that fit a case.
fn baselines(case: &Case) -> Vec<Plan> {
    // One that lacks what it needs, such as aggregators, is no candidate.
    let plan = |policy: &dyn Policy| policy.plan(case).ok();
    let plans = match case.options.best_of {
        Some(_) => vec![("backup-workers", plan(&BackupWorkers))],
        None => {
            let [fair, buffering] = all_at_once(case).map(Some);
            let tree = (!case.options.no_aggregate).then(|| plan(&Tree)).flatten();
            vec![
                (DIRECT, fair),
                ("fifo", plan(&Fifo)),
                ("newest-first", plan(&NewestFirst)),
                ("server-buffering", buffering),
                ("tree", tree),
            ]
        }
    };
    let plans = plans.into_iter().filter_map(|(name, plan)| {
        let plan = Plan { policy: NAME.to_owned(), candidate: Some(name), ..plan? };
        let plan = with_copies(case, plan);
        debug_assert_eq!(check(case, &plan), Ok(()), "a baseline's plan is a plan: {name}");
        Some(plan)
    });
    plans.collect()
}

/// Adds the copies for the replicas, and the waits that they cost.
fn with_copies(case: &Case, mut plan: Plan) -> Plan {
    if case.servers.iter().all(|server| server.replica.is_none()) {
        return plan;
    }
    let mut ledger = Ledger::new(case);
    let mut cut = Aggregated {
        groups: vec![Vec::new(); case.servers.len()],
        transfers: core::mem::take(&mut plan.transfers),
    };
    for group in core::mem::take(&mut plan.groups) {
        let server = case.server(group.server).host;
        for id in &group.members {
            if let Some(transfer) = &cut.transfers[id.index()] {
                let path = ledger.path(case.update(*id).host, transfer.via.unwrap_or(server));
                ledger.reserve(&path, &transfer.segments);
            }
        }
        if let (Some(via), Some(forward)) = (group.via, &group.forward) {
            ledger.reserve(&ledger.path(via, server), &forward.segments);
        }
        cut.groups[group.server.index()].push(group);
    }
    plan.replicas = replicate(case, &mut ledger, &mut cut);
    plan.groups = cut.groups.into_iter().flatten().collect();
    plan.transfers = cut.transfers;
    plan.settle();
    plan.count_over_all_servers();
    plan
}

/// What a plan is judged by.
#[derive(Clone, Copy, Debug)]
struct Score {
    objective: Objective,
    /// Of servers that their replicas' bounds do not hold for.
    not_held: usize,
    /// Commit instants from the plan's start, and prices of transfers into servers.
    sum_ns: u128,
    count: u128,
    last_ns: u64,
    dropped: usize,
}

impl Score {
    fn of(case: &Case, plan: &Plan) -> Self {
        let commits = plan.order.iter().filter_map(|id| plan.transfers[id.index()].as_ref());
        let times = commits.map(|transfer| transfer.commit_ns.saturating_sub(case.now_ns));
        let sum_ns: u128 = times.map(u128::from).sum();
        let sizes = plan.groups.iter().filter_map(|group| {
            let sizes = group.members.iter().map(|id| case.update(*id).size_bytes);
            Some((group.server, sizes.max()?))
        });
        let prices: u128 = sizes.map(|(server, bytes)| price(case, server, bytes)).sum();
        Self {
            objective: case.options.objective,
            not_held: plan.replicas.iter().filter(|replica| !replica.held).count(),
            sum_ns: sum_ns + prices,
            count: plan.order.len() as u128,
            last_ns: plan.makespan_ns(case),
            dropped: plan.dropped.len(),
        }
    }

    /// The lesser is the better one.
    fn compare(&self, other: &Self) -> Ordering {
        // Nothing is committed: that is no good time.
        let is_empty = (self.count == 0).cmp(&(other.count == 0));
        let mean = (self.sum_ns * other.count).cmp(&(other.sum_ns * self.count));
        let last = self.last_ns.cmp(&other.last_ns);
        let times = match self.objective {
            Objective::Mean => mean.then(last),
            Objective::Last => last.then(mean),
        };
        let drops = self.dropped.cmp(&other.dropped);
        self.not_held.cmp(&other.not_held).then(is_empty).then(times).then(drops)
    }
}

/// The rules as they are.
pub(super) const RULES: &str = "rules";
/// The rules without the drop rule.
const NO_DROP: &str = "rules-no-drop";
/// The rules with slow uplinks first.
const SLOW_FIRST: &str = "slow-first";
/// Every update straight to its server, at once.
const DIRECT: &str = "direct";
/// Uplinks below these shares of the server's downlink go first.
const SLOW_SHARES: [f64; 4] = [0.1, 0.25, 0.5, 1.0];
