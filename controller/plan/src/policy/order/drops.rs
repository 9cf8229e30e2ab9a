//! Decides whether an update that its deadline forces to the front is dropped instead (*derived*:
//! the sources say that this happens, not when).
//!
//! It is dropped if the others' mean commit time, over the next [`LOOKAHEAD`] of them, is later
//! with it by more than `theta` median transfer times; if fewer than `drop_limit` of the last
//! `drop_window` updates were dropped; and if its worker did not lose the previous one.

use std::cmp::Reverse;
use std::collections::VecDeque;

use crate::case::{Case, UpdateId};
use crate::net::ledger::Ledger;

use super::direct_path;
use super::picker::Candidate;

/// Others that are planned ahead, with and without the update in question.
pub(super) const LOOKAHEAD: usize = 16;

/// The rule and its budget.
#[derive(Debug)]
pub(super) struct DropRule {
    recent: VecDeque<bool>,
    dropped: u32,
    budget: f64,
    /// Per server, made when first needed.
    threshold_ns: Vec<Option<u64>>,
    briefest: Vec<Option<Vec<UpdateId>>>,
}

impl DropRule {
    pub(super) fn new(case: &Case) -> Self {
        let options = &case.options;
        let window = options.drop_window;
        let dropped = options.recent_drops.min(window);
        let mut recent: VecDeque<bool> = VecDeque::new();
        recent.extend((0..window).map(|i| i >= window - dropped));
        let budget = if options.no_drop { 0.0 } else { options.drop_limit * f64::from(window) };
        let threshold_ns = vec![None; case.servers.len()];
        Self { recent, dropped, budget, threshold_ns, briefest: vec![None; case.servers.len()] }
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
        let threshold_ns = self.threshold_ns(case, forced.id);
        forced.finish_ns.saturating_sub(free_ns) > threshold_ns
    }

    /// Plans the others with and without the forced update and compares.
    pub(super) fn decide(
        &mut self,
        case: &Case,
        ledger: &mut Ledger,
        forced: UpdateId,
        waits: impl Fn(UpdateId) -> bool,
        slot: i64,
        last_commit_ns: u64,
    ) -> bool {
        let threshold_ns = self.threshold_ns(case, forced);
        let others = self.others(case, forced, waits);
        if others.is_empty() {
            return false;
        }
        let count = others.len() as u128;
        let mark = ledger.mark();
        let without = ahead(case, ledger, &others, slot, last_commit_ns);
        ledger.rollback(mark);
        let finish_ns = send(case, ledger, forced);
        let with = ahead(case, ledger, &others, slot + 1, last_commit_ns.max(finish_ns));
        ledger.rollback(mark);
        with.saturating_sub(without) > u128::from(threshold_ns) * count
    }

    /// The briefest transfers to the same server that still wait.
    fn others(
        &mut self,
        case: &Case,
        forced: UpdateId,
        waits: impl Fn(UpdateId) -> bool,
    ) -> Vec<UpdateId> {
        let server = case.update(forced).server;
        let briefest = self.briefest[server.index()].get_or_insert_with(|| {
            let own = case.update_ids().filter(|id| case.update(*id).server == server);
            let mut own: Vec<UpdateId> = own.collect();
            own.sort_by_cached_key(|id| {
                Reverse((uncontended_ns(case, *id), case.ranks[id.index()]))
            });
            own
        });
        // They mostly go in this order, so what is gone is at the end.
        while briefest.last().is_some_and(|id| !waits(*id)) {
            briefest.pop();
        }
        let waiting = briefest.iter().rev().copied().filter(|id| *id != forced && waits(*id));
        waiting.take(LOOKAHEAD).collect()
    }

    fn threshold_ns(&mut self, case: &Case, id: UpdateId) -> u64 {
        let server = case.update(id).server;
        *self.threshold_ns[server.index()].get_or_insert_with(|| {
            let own = case.update_ids().filter(|id| case.update(*id).server == server);
            let mut times: Vec<u64> = own.map(|id| uncontended_ns(case, id)).collect();
            let middle = times.len() / 2;
            let (_, median, _) = times.select_nth_unstable(middle);
            scale(*median, case.options.theta)
        })
    }
}

/// Sum of the commit instants of `others`, shortest first under their deadlines.
fn ahead(
    case: &Case,
    ledger: &mut Ledger,
    others: &[UpdateId],
    first_slot: i64,
    mut last_commit_ns: u64,
) -> u128 {
    let mut waiting = others.to_vec();
    waiting.sort_unstable_by_key(|id| (case.deadline(*id), case.ranks[id.index()]));
    let mut sum = 0;
    let mut slot = first_slot;
    while !waiting.is_empty() {
        let tight = (0..waiting.len()).find(|n| case.deadline(waiting[*n]) - slot <= *n as i64);
        let choice = waiting[..tight.map_or(waiting.len(), |n| n + 1)].iter().enumerate();
        let keyed =
            choice.map(|(at, id)| (standalone_ns(case, ledger, *id), case.ranks[id.index()], at));
        let Some((_, _, at)) = keyed.min() else { break };
        let id = waiting.remove(at);
        last_commit_ns = last_commit_ns.max(send(case, ledger, id));
        sum += u128::from(last_commit_ns);
        slot += 1;
    }
    sum
}

/// Reserves an update's transfer and returns its finish.
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

fn standalone_ns(case: &Case, ledger: &Ledger, id: UpdateId) -> u64 {
    let update = case.update(id);
    let path = direct_path(case, ledger, update);
    ledger.probe(&path, case.now_ns, update.size_bytes).unwrap_or(u64::MAX)
}

/// Transfer time on links that carry nothing else.
fn uncontended_ns(case: &Case, id: UpdateId) -> u64 {
    let update = case.update(id);
    let up = case.host(update.host).up_bytes_per_sec;
    let down = case.host(case.server(update.server).host).down_bytes_per_sec;
    let time_ns = u128::from(update.size_bytes) * 1_000_000_000 / u128::from(up.min(down));
    u64::try_from(time_ns).unwrap_or(u64::MAX)
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
