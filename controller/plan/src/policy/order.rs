//! Decides the order in which updates travel and commit: shortest transfer first with reservation
//! of the bottleneck, bent by deadlines, with a rule for what to drop.
//!
//! 1. Of all updates that wait, the one that would end first goes next and reserves its path.
//!    Over several servers this is one choice, so that a shared uplink serves the shorter one.
//! 2. The update at 0-based position i of its server has delay (version before its commit) minus
//!    its own version, so it meets the bound iff i <= [`Case::deadline`]. When the n earliest
//!    deadlines leave exactly n slots, the slot goes to one of those n (*derived*; see
//!    `deadlines.rs`); updates of a cluster that cannot fit are dropped beforehand.
//! 3. A forced update that holds the others up too long is dropped (*derived*; see `drops.rs`).
//!
//! Ties go to the earlier finish, then to the smaller name. Source: MLfabric, update ordering.
//! Cost: for every update a few instructions for each of about the square root of the hosts (see
//! `pool.rs`), plus the drop rule's look-ahead.

pub(super) mod deadlines;
mod drops;
mod line;
mod longest;
mod lows;
mod pairs;
mod picker;
mod places;
mod pool;

#[cfg(test)]
mod tests;

use alloc::vec::Vec;

use crate::case::{Case, Objective, Segment, ServerId, Update, UpdateId};
use crate::net::ledger::Ledger;
use crate::net::topology::Path;
use crate::plan::{Group, Plan, Transfer};

use deadlines::Deadlines;
use drops::DropRule;
use picker::{Candidate, Picker};
use places::Places;
use pool::Facts;
use weft_control::DropReason;

/// What the ordering decided: sequences of direct transfers, reserved in the ledger.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Ordered {
    /// Commit order of every server.
    pub sequences: Vec<Vec<UpdateId>>,
    /// Updates not sent.
    pub dropped: Vec<(UpdateId, DropReason)>,
    /// By [`UpdateId`]; none for dropped ones.
    pub transfers: Vec<Option<Transfer>>,
}

impl Ordered {
    fn last_commit_ns(&self) -> u64 {
        self.transfers.iter().flatten().map(|t| t.commit_ns).max().unwrap_or(0)
    }

    /// As a plan in which every update goes direct.
    #[must_use]
    pub fn into_plan(self, policy: &str, case: &Case) -> Plan {
        let mut plan = Plan::empty(policy, case);
        for (server, sequence) in case.server_ids().zip(&self.sequences) {
            for id in sequence {
                let commit_ns = self.transfers[id.index()].as_ref().map_or(0, |t| t.commit_ns);
                let members = vec![*id];
                plan.groups.push(Group { server, members, via: None, forward: None, commit_ns });
            }
        }
        plan.transfers = self.transfers;
        plan.dropped = self.dropped;
        plan.settle();
        plan
    }
}

/// The path of an update to its server.
#[must_use]
pub fn direct_path(case: &Case, ledger: &Ledger, update: &Update) -> Path {
    ledger.path(update.host, case.server(update.server).host)
}

/// Orders all updates of a case.
///
/// Where the last commit is what counts, shortest first leaves the slowest uplinks for the end. So
/// the opposite order is planned too, and taken if it ends earlier and keeps every deadline
/// (*derived*).
#[must_use]
pub fn order(case: &Case, ledger: &mut Ledger) -> Ordered {
    // A partial round keeps the first arrivals.
    if case.options.objective == Objective::Mean || case.options.best_of.is_some() {
        return Planner::new(case, ledger).run();
    }
    let mut other = ledger.clone();
    let shortest = Planner::new(case, ledger).run();
    match longest::order(case, &mut other, &shortest) {
        Some(longest) if longest.last_commit_ns() < shortest.last_commit_ns() => {
            *ledger = other;
            longest
        }
        _ => shortest,
    }
}

struct Planner<'a> {
    case: &'a Case,
    ledger: &'a mut Ledger,
    by_rank: Vec<UpdateId>,
    /// By [`UpdateId`]: place in its server's deadlines.
    slots: Vec<u32>,
    places: Places,
    lanes: Vec<Lane>,
    out: Ordered,
    rule: DropRule,
    segments: Vec<Segment>,
}

/// One server's part of the planning.
struct Lane {
    /// What waits; above the first, sets that the coming slots are reserved for.
    pickers: Vec<Picker>,
    deadlines: Deadlines,
    last_commit_ns: u64,
    /// At most the key of the best candidate, since residuals only shrink.
    key: (u64, u32),
}

impl Lane {
    /// The key, then the lane's index, as one number; [`NONE_WAITS`] if nothing waits.
    fn joined_key(&self, index: usize) -> u128 {
        let (finish_ns, rank) = self.key;
        match self.deadlines.is_empty() {
            true => NONE_WAITS,
            false => u128::from(finish_ns) << 64 | u128::from(rank) << 32 | index as u128,
        }
    }
}

const NONE_WAITS: u128 = u128::MAX;

impl<'a> Planner<'a> {
    fn new(case: &'a Case, ledger: &'a mut Ledger) -> Self {
        let mut by_rank = vec![UpdateId(0); case.updates.len()];
        for id in case.update_ids() {
            by_rank[case.ranks[id.index()] as usize] = id;
        }
        let mut out = Ordered {
            sequences: vec![Vec::new(); case.servers.len()],
            dropped: Vec::new(),
            transfers: vec![None; case.updates.len()],
        };
        let mut waiting = vec![Vec::new(); case.servers.len()];
        for id in case.update_ids() {
            if case.deadline(id) < 0 {
                out.dropped.push((id, DropReason::TooOld));
            } else {
                waiting[case.update(id).server.index()].push(id);
            }
        }
        for ids in &mut waiting {
            deadlines::sort(case, &by_rank, ids);
            let lost = deadlines::repair(case, ledger, ids);
            out.dropped.extend(lost.into_iter().map(|id| (id, DropReason::DeadlineCluster)));
        }
        picker::reserve_thin(case, ledger, &waiting, &mut out.transfers);
        let mut slots = vec![0; case.updates.len()];
        let places = Places::new(case, &by_rank);
        let facts = Facts { case, ledger, places: &places };
        let lanes = waiting.into_iter().zip(&case.servers).map(|(ids, server)| Lane {
            pickers: vec![Picker::new(facts, &ids, &out.transfers)],
            deadlines: Deadlines::new(case, ids, &mut slots),
            last_commit_ns: server.commit_from_ns,
            key: (0, 0),
        });
        let lanes = lanes.collect();
        let rule = DropRule::new(case);
        Self { case, ledger, by_rank, slots, places, lanes, out, rule, segments: Vec::new() }
    }

    fn run(mut self) -> Ordered {
        while let Some((server, candidate)) = self.next() {
            if self.is_dropped(server, candidate) {
                self.remove(server, candidate.id);
                self.loosen(server);
                self.rule.note(true);
                self.out.dropped.push((candidate.id, DropReason::DelaysOthers));
            } else {
                self.commit(server, candidate);
            }
        }
        self.ledger.commit();
        self.out
    }

    /// The server and update that go next: the smallest (finish, name) over all servers.
    fn next(&mut self) -> Option<(ServerId, Candidate)> {
        loop {
            let (mut least, mut others) = (NONE_WAITS, NONE_WAITS);
            for (index, lane) in self.lanes.iter().enumerate() {
                let key = lane.joined_key(index);
                others = others.min(key.max(least));
                least = least.min(key);
            }
            if least == NONE_WAITS {
                return None;
            }
            #[expect(clippy::cast_possible_truncation, reason = "its lower part")]
            let index = least as u32 as usize;
            let server = ServerId::from_index(index);
            self.force(server);
            let facts = Facts { case: self.case, ledger: self.ledger, places: &self.places };
            let lane = &mut self.lanes[index];
            let picker = lane.pickers.last_mut()?;
            let candidate = picker.best(facts, &self.by_rank)?;
            lane.key = candidate.key();
            if lane.joined_key(index) >> 32 <= others >> 32 {
                return Some((server, candidate));
            }
        }
    }

    /// Sets aside the updates that the next slots must go to, if there are such.
    fn force(&mut self, server: ServerId) {
        let lane = &mut self.lanes[server.index()];
        while lane.pickers.len() > 1 && lane.pickers.last().is_some_and(Picker::is_empty) {
            lane.pickers.pop();
        }
        let Some(top) = lane.pickers.last_mut() else { return };
        let Some(forced) = lane.deadlines.tight_prefix(self.case, top.len()) else { return };
        let facts = Facts { case: self.case, ledger: self.ledger, places: &self.places };
        for id in &forced {
            top.remove(facts, *id);
        }
        lane.pickers.push(Picker::new(facts, &forced, &self.out.transfers));
    }

    /// Rule 3: whether the update at a forced slot is dropped instead.
    fn is_dropped(&mut self, server: ServerId, forced: Candidate) -> bool {
        let lane = &mut self.lanes[server.index()];
        if lane.pickers.len() < 2 || self.out.transfers[forced.id.index()].is_some() {
            return false;
        }
        if !self.rule.may_drop(self.case, forced.id) {
            return false;
        }
        let below = lane.pickers.len() - 1;
        let facts = Facts { case: self.case, ledger: self.ledger, places: &self.places };
        let mut free_ns = u64::MAX;
        for picker in &mut lane.pickers[..below] {
            if let Some(free) = picker.best(facts, &self.by_rank) {
                free_ns = free_ns.min(free.finish_ns);
            }
        }
        let start_ns = free_ns.max(lane.last_commit_ns);
        if !self.rule.is_slow(self.case, forced, start_ns) {
            return false;
        }
        let next = (lane.deadlines.slot(), lane.last_commit_ns);
        let waits = |id: UpdateId| {
            lane.deadlines.waits(self.slots[id.index()], id)
                && self.out.transfers[id.index()].is_none()
        };
        let (case, ledger, by_rank) = (self.case, &mut *self.ledger, &self.by_rank);
        self.rule.decide(case, ledger, by_rank, forced.id, waits, next)
    }

    /// After a drop the slots set aside are one too many: everything waits together again.
    fn loosen(&mut self, server: ServerId) {
        let lane = &mut self.lanes[server.index()];
        if lane.pickers[1..].iter().any(|picker| !picker.is_empty()) {
            let waiting = lane.deadlines.remaining();
            let facts = Facts { case: self.case, ledger: self.ledger, places: &self.places };
            lane.pickers = vec![Picker::new(facts, &waiting, &self.out.transfers)];
        }
    }

    fn commit(&mut self, server: ServerId, candidate: Candidate) {
        let (case, id) = (self.case, candidate.id);
        let facts = Facts { case, ledger: self.ledger, places: &self.places };
        let picker = self.lanes[server.index()].pickers.last();
        let sent = picker.and_then(|picker| picker.send(facts, candidate, &mut self.segments));
        self.remove(server, id);
        if candidate.finish_ns == u64::MAX {
            self.out.dropped.push((id, DropReason::NoBandwidth));
            self.loosen(server);
            return;
        }
        let lane = &mut self.lanes[server.index()];
        lane.deadlines.advance();
        lane.last_commit_ns = lane.last_commit_ns.max(candidate.finish_ns);
        let commit_ns = lane.last_commit_ns;
        self.rule.note(false);
        self.out.sequences[server.index()].push(id);
        if let Some(transfer) = &mut self.out.transfers[id.index()] {
            transfer.commit_ns = commit_ns;
            return;
        }
        let update = case.update(id);
        let path = direct_path(case, self.ledger, update);
        let segments = &mut self.segments;
        let finish = sent.or_else(|| {
            segments.clear();
            self.ledger.probe_segments(&path, case.now_ns, update.size_bytes, segments)
        });
        debug_assert_eq!(finish, Some(candidate.finish_ns), "a candidate is a fresh probe");
        self.ledger.reserve(&path, segments);
        let (arrival_ns, segments) = (candidate.finish_ns, segments.to_vec());
        self.out.transfers[id.index()] =
            Some(Transfer { arrival_ns, commit_ns, via: None, segments });
    }

    fn remove(&mut self, server: ServerId, id: UpdateId) {
        let lane = &mut self.lanes[server.index()];
        lane.deadlines.remove(self.slots[id.index()]);
        lane.key = (0, 0);
        if let Some(picker) = lane.pickers.last_mut() {
            let facts = Facts { case: self.case, ledger: self.ledger, places: &self.places };
            picker.remove(facts, id);
        }
    }
}
