//! Decides which slots are no longer free: the earliest-deadline tests of the ordering.
//!
//! With the waiting updates of a server sorted by deadline, the n-th (1-based) needs
//! `deadline - (n - 1) >= slot`. Where that is an equality, the next n slots belong to those n: a
//! tight prefix. A tree keeps the smallest `deadline - (n - 1)` under removals in O(log N).

use std::collections::BinaryHeap;

use crate::case::{Case, UpdateId};
use crate::net::ledger::Ledger;

use super::{direct_path, pairs};

/// One server's waiting updates by deadline, and its next slot.
#[derive(Debug)]
pub(super) struct Deadlines {
    /// Sorted by (deadline, name).
    sorted: Vec<UpdateId>,
    gone: Vec<bool>,
    /// Per node: smallest slack below it, and what is still to be added to its children.
    least: Vec<i64>,
    added: Vec<i64>,
    leaves: usize,
    waiting: usize,
    slot: i64,
}

/// The slack of what is gone: more than any deadline.
const GONE: i64 = i64::MAX / 2;

impl Deadlines {
    /// Of updates that [`sort`] has sorted; notes in `places` where each stands.
    pub(super) fn new(case: &Case, sorted: Vec<UpdateId>, places: &mut [u32]) -> Self {
        let leaves = sorted.len().next_power_of_two();
        let mut least = vec![GONE; leaves * 2];
        for (rank, id) in sorted.iter().enumerate() {
            places[id.index()] = UpdateId::from_index(rank).0;
            least[leaves + rank] = case.deadline(*id).min(GONE / 2) - index(rank);
        }
        for node in (1..leaves).rev() {
            least[node] = least[node * 2].min(least[node * 2 + 1]);
        }
        Self {
            gone: vec![false; sorted.len()],
            waiting: sorted.len(),
            added: vec![0; leaves * 2],
            sorted,
            least,
            leaves,
            slot: 0,
        }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    /// The next 0-based position.
    pub(super) const fn slot(&self) -> i64 {
        self.slot
    }

    /// The next slot has been given away.
    pub(super) const fn advance(&mut self) {
        self.slot += 1;
    }

    /// Whether an update, with its place, still waits.
    pub(super) fn waits(&self, place: u32, id: UpdateId) -> bool {
        let place = place as usize;
        self.sorted.get(place) == Some(&id) && !self.gone[place]
    }

    /// What waits, by deadline.
    pub(super) fn remaining(&self) -> Vec<UpdateId> {
        let waiting = self.sorted.iter().zip(&self.gone).filter(|(_, gone)| !**gone);
        waiting.map(|(id, _)| *id).collect()
    }

    /// The shortest tight prefix for the next slot, if there is one of less than `len` updates.
    pub(super) fn tight_prefix(&self, case: &Case, len: usize) -> Option<Vec<UpdateId>> {
        if self.waiting == 0 || self.least[1] > self.slot {
            return None;
        }
        let (mut node, mut above) = (1, 0);
        while node < self.leaves {
            above += self.added[node];
            node *= 2;
            if self.least[node] + above > self.slot {
                node += 1;
            }
        }
        let last = node - self.leaves;
        // That it is tight tells how many there are.
        if case.deadline(self.sorted[last]) - self.slot + 1 >= index(len) {
            return None;
        }
        let prefix = self.sorted[..=last].iter().zip(&self.gone).filter(|(_, gone)| !**gone);
        Some(prefix.map(|(id, _)| *id).collect())
    }

    /// The update at a place no longer waits: those behind it move up by one.
    pub(super) fn remove(&mut self, place: u32) {
        let at = place as usize;
        debug_assert!(!self.gone[at], "an update waits once");
        self.gone[at] = true;
        self.waiting -= 1;
        // Walk down to the leaf: everything to its right gains one, the leaf itself leaves.
        let mut node = self.leaves + at;
        self.least[node] = GONE;
        while node > 1 {
            if node.is_multiple_of(2) {
                self.least[node + 1] += 1;
                self.added[node + 1] += 1;
            }
            node /= 2;
            let children = self.least[node * 2].min(self.least[node * 2 + 1]);
            self.least[node] = children + self.added[node];
        }
    }
}

/// Drops from `ids` what cannot fit: from the shortest prefix by deadline that has more updates
/// than slots, the one that would arrive last, until all fit (*derived*). `ids` are sorted.
pub(super) fn repair(case: &Case, ledger: &Ledger, ids: &mut Vec<UpdateId>) -> Vec<UpdateId> {
    let fits = ids.iter().enumerate().all(|(rank, id)| case.deadline(*id) >= index(rank));
    if fits {
        return Vec::new();
    }
    let mut kept = BinaryHeap::new();
    let mut lost = Vec::new();
    for id in ids.iter().copied() {
        let update = case.update(id);
        let path = direct_path(case, ledger, update);
        let finish_ns = ledger.probe(&path, case.now_ns, update.size_bytes).unwrap_or(u64::MAX);
        kept.push((finish_ns, case.ranks[id.index()], id));
        if case.deadline(id) < index(kept.len() - 1)
            && let Some((_, _, late)) = kept.pop()
        {
            lost.push(late);
        }
    }
    let mut is_lost = vec![false; case.updates.len()];
    for id in &lost {
        is_lost[id.index()] = true;
    }
    ids.retain(|id| !is_lost[id.index()]);
    lost
}

/// Sorts updates of one server by (deadline, name).
pub(super) fn sort(case: &Case, by_rank: &[UpdateId], ids: &mut [UpdateId]) {
    // The deadline grows with the version.
    let pair = |id: &UpdateId| (case.update(*id).version, case.ranks[id.index()]);
    let mut pairs: Vec<(u64, u32)> = ids.iter().map(pair).collect();
    pairs::sort(&mut pairs);
    for (id, (_, rank)) in ids.iter_mut().zip(pairs) {
        *id = by_rank[rank as usize];
    }
}

fn index(rank: usize) -> i64 {
    i64::try_from(rank).unwrap_or(i64::MAX)
}
