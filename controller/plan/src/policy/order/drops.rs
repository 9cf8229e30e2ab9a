//! Decides whether an update that its deadline forces to the front is dropped instead (*derived*:
//! the sources say that this happens, not when).
//!
//! It is dropped if the others' mean commit time, over the next [`LOOKAHEAD`] of them, is later
//! with it by more than `theta` median transfer times; if fewer than `drop_limit` of the last
//! `drop_window` updates were dropped; and if its worker did not lose the previous one.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::case::{Case, ServerId, UpdateId};
use crate::net::ledger::Ledger;

use super::picker::Candidate;
use super::{direct_path, pairs};

use ahead::Ahead;

mod ahead;

#[cfg(test)]
mod tests;

/// Others that are planned ahead, with and without the update in question.
pub(super) const LOOKAHEAD: usize = 16;

/// The rule and its budget.
#[derive(Debug)]
pub(super) struct DropRule {
    recent: VecDeque<bool>,
    dropped: u32,
    budget: f64,
    /// By server, made when first needed.
    servers: Vec<Option<Brief>>,
}

/// The transfers to one server, as if each had its links for itself.
#[derive(Debug)]
struct Brief {
    /// How much longer the others may take.
    threshold_ns: u64,
    /// (time, rank), longest first; what is gone may be missing.
    times: Vec<(u64, u32)>,
}

impl DropRule {
    pub(super) fn new(case: &Case) -> Self {
        let options = &case.options;
        let window = options.drop_window;
        let dropped = options.recent_drops.min(window);
        let mut recent: VecDeque<bool> = VecDeque::new();
        recent.extend((0..window).map(|i| i >= window - dropped));
        let budget = if options.no_drop { 0.0 } else { options.drop_limit * f64::from(window) };
        let servers = case.servers.iter().map(|_| None).collect();
        Self { recent, dropped, budget, servers }
    }

    /// An update got its slot, or was dropped by this rule.
    pub(super) fn note(&mut self, dropped: bool) {
        self.recent.push_back(dropped);
        self.dropped += u32::from(dropped);
        if self.recent.pop_front() == Some(true) {
            self.dropped -= 1;
        }
    }

    /// Whether budget and fairness allow dropping this one.
    pub(super) fn may_drop(&self, case: &Case, id: UpdateId) -> bool {
        f64::from(self.dropped) < self.budget && !case.update(id).dropped_before
    }

    /// Whether it ends so much later than the free choice that a look-ahead is worth its time.
    pub(super) fn is_slow(&mut self, case: &Case, forced: Candidate, free_ns: u64) -> bool {
        forced.finish_ns.saturating_sub(free_ns) > self.brief(case, forced.id).threshold_ns
    }

    /// Plans the others with and without the forced update and compares.
    pub(super) fn decide(
        &mut self,
        case: &Case,
        ledger: &mut Ledger,
        by_rank: &[UpdateId],
        forced: UpdateId,
        waits: impl Fn(UpdateId) -> bool,
        (slot, last_commit_ns): (i64, u64),
    ) -> bool {
        let brief = self.brief(case, forced);
        let others = brief.others(by_rank, forced, waits);
        if others.is_empty() {
            return false;
        }
        let allowed = u128::from(brief.threshold_ns) * others.len() as u128;
        let mut ahead = Ahead::new(case, ledger, &others);
        let mark = ledger.mark();
        let without = ahead.commits(ledger, slot, last_commit_ns, u128::MAX);
        ledger.rollback(mark);
        let most = without.saturating_add(allowed);
        let finish_ns = send(case, ledger, forced);
        let with = ahead.commits(ledger, slot + 1, last_commit_ns.max(finish_ns), most);
        ledger.rollback(mark);
        ledger.commit();
        with > most
    }

    fn brief(&mut self, case: &Case, id: UpdateId) -> &mut Brief {
        let server = case.update(id).server;
        self.servers[server.index()].get_or_insert_with(|| Brief::new(case, server))
    }
}

impl Brief {
    fn new(case: &Case, server: ServerId) -> Self {
        let own = case.update_ids().filter(|id| case.update(*id).server == server);
        let mut times: Vec<(u64, u32)> =
            own.map(|id| (uncontended_ns(case, id), case.ranks[id.index()])).collect();
        pairs::sort(&mut times);
        let median_ns = times[times.len() / 2].0;
        times.reverse();
        Self { threshold_ns: scale(median_ns, case.options.theta), times }
    }

    /// The briefest that still wait, with their times.
    fn others(
        &mut self,
        by_rank: &[UpdateId],
        forced: UpdateId,
        waits: impl Fn(UpdateId) -> bool,
    ) -> Vec<(u64, UpdateId)> {
        // They mostly go in this order, so what is gone is at the end.
        while self.times.last().is_some_and(|(_, rank)| !waits(by_rank[*rank as usize])) {
            self.times.pop();
        }
        let ids =
            self.times.iter().rev().map(|(time_ns, rank)| (*time_ns, by_rank[*rank as usize]));
        ids.filter(|(_, id)| *id != forced && waits(*id)).take(LOOKAHEAD).collect()
    }
}

/// Reserves an update's transfer and returns its finish; [`u64::MAX`] for never.
fn send(case: &Case, ledger: &mut Ledger, id: UpdateId) -> u64 {
    let update = case.update(id);
    let path = direct_path(case, ledger, update);
    let mut segments = Vec::new();
    let finish = ledger.probe_segments(&path, case.now_ns, update.size_bytes, &mut segments);
    if finish.is_some() {
        ledger.reserve(&path, &segments);
    }
    finish.unwrap_or(u64::MAX)
}

/// Transfer time on links that carry nothing else.
fn uncontended_ns(case: &Case, id: UpdateId) -> u64 {
    let update = case.update(id);
    let up = case.host(update.host).up_bytes_per_sec;
    let down = case.host(case.server(update.server).host).down_bytes_per_sec;
    let rate = up.min(down);
    // In 64 bits where they are enough, which is much faster.
    match update.size_bytes.checked_mul(1_000_000_000) {
        Some(amount) => amount / rate,
        None => u64::try_from(u128::from(update.size_bytes) * 1_000_000_000 / u128::from(rate))
            .unwrap_or(u64::MAX),
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "a threshold; saturates, theta is finite and not negative"
)]
fn scale(time_ns: u64, theta: f64) -> u64 {
    (time_ns as f64 * theta) as u64
}
