//! Decides which slots are no longer free: the earliest-deadline tests of the ordering.
//!
//! With the waiting updates of a server sorted by deadline, the n-th (1-based) needs
//! `deadline - (n - 1) >= slot`. Where that is an equality, the next n slots belong to those n: a
//! tight prefix. A tree keeps the smallest `deadline - (n - 1)` under removals in O(log N): each
//! node counts what waits below it, so that only the nodes above a removed leaf change. An update
//! whose deadline is behind all slots that there can be is never in such a prefix: it is not in the
//! tree.

use alloc::collections::BinaryHeap;
use alloc::vec::Vec;

use crate::case::{Case, Update, UpdateId};
use crate::net::ledger::Ledger;

use super::{direct_path, pairs};

/// One server's waiting updates by deadline, and its next slot.
#[derive(Debug)]
pub(in crate::policy) struct Deadlines {
    /// The bounded ones, which a slot may be too late for, by (deadline, name), then the others.
    sorted: Vec<UpdateId>,
    bounded_count: usize,
    gone: Vec<bool>,
    /// By node, in pairs of siblings: node 1 is the root, node n has the children 2 n and 2 n + 1.
    nodes: Vec<[Node; 2]>,
    leaves: usize,
    waiting: usize,
    slot: i64,
}

/// The waiting updates below a node.
#[derive(Clone, Copy, Debug)]
struct Node {
    count: i64,
    /// The smallest slack, as if nothing waited before them.
    least: i64,
}

impl Node {
    /// Nothing: its slack is more than any deadline.
    const GONE: Self = Self { count: 0, least: i64::MAX / 2 };

    /// What two siblings have together.
    fn above([left, right]: [Self; 2]) -> Self {
        Self { count: left.count + right.count, least: left.least.min(right.least - left.count) }
    }
}

impl Deadlines {
    /// Of updates that [`sort`] has sorted; notes in `places` where each stands.
    pub(in crate::policy) fn new(case: &Case, sorted: Vec<UpdateId>, places: &mut [u32]) -> Self {
        let slots = index(sorted.len());
        let bounded_count = sorted.partition_point(|id| case.deadline(*id) < slots);
        for (place, id) in sorted.iter().enumerate() {
            places[id.index()] = UpdateId::from_index(place).0;
        }
        let leaves = bounded_count.next_power_of_two();
        let mut nodes = vec![[Node::GONE; 2]; leaves];
        for (place, id) in sorted[..bounded_count].iter().enumerate() {
            let node = leaves + place;
            nodes[node / 2][node % 2] = Node { count: 1, least: case.deadline(*id) };
        }
        for node in (1..leaves).rev() {
            nodes[node / 2][node % 2] = Node::above(nodes[node]);
        }
        Self {
            gone: vec![false; sorted.len()],
            waiting: sorted.len(),
            sorted,
            bounded_count,
            nodes,
            leaves,
            slot: 0,
        }
    }

    pub(in crate::policy) const fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    /// The next 0-based position.
    pub(super) const fn slot(&self) -> i64 {
        self.slot
    }

    /// The next slot has been given away.
    pub(in crate::policy) const fn advance(&mut self) {
        self.slot += 1;
    }

    /// Whether an update, with its place, still waits.
    pub(super) fn waits(&self, place: u32, id: UpdateId) -> bool {
        let place = place as usize;
        self.sorted.get(place) == Some(&id) && !self.gone[place]
    }

    /// What waits.
    pub(super) fn remaining(&self) -> Vec<UpdateId> {
        let waiting = self.sorted.iter().zip(&self.gone).filter(|(_, gone)| !**gone);
        waiting.map(|(id, _)| *id).collect()
    }

    /// The place of the last update of the shortest tight prefix for the next slot.
    pub(in crate::policy) fn tight_end(&self) -> Option<usize> {
        let [_, root] = self.nodes[0];
        if root.least > self.slot {
            return None;
        }
        let (mut node, mut before) = (1, 0);
        while node < self.leaves {
            let [left, _] = self.nodes[node];
            node *= 2;
            if left.least - before > self.slot {
                before += left.count;
                node += 1;
            }
        }
        Some(node - self.leaves)
    }

    /// The shortest tight prefix for the next slot, if there is one of less than `len` updates.
    pub(super) fn tight_prefix(&self, case: &Case, len: usize) -> Option<Vec<UpdateId>> {
        let last = self.tight_end()?;
        // That it is tight tells how many there are.
        if case.deadline(self.sorted[last]) - self.slot + 1 >= index(len) {
            return None;
        }
        let prefix = self.sorted[..=last].iter().zip(&self.gone).filter(|(_, gone)| !**gone);
        Some(prefix.map(|(id, _)| *id).collect())
    }

    /// The update at a place no longer waits: those behind it move up by one.
    pub(in crate::policy) fn remove(&mut self, place: u32) {
        let at = place as usize;
        debug_assert!(!self.gone[at], "an update waits once");
        self.gone[at] = true;
        self.waiting -= 1;
        if at >= self.bounded_count {
            return;
        }
        let (mut node, mut changed) = (self.leaves + at, Node::GONE);
        while node > 0 {
            let siblings = &mut self.nodes[node / 2];
            siblings[node % 2] = changed;
            changed = Node::above(*siblings);
            node /= 2;
        }
    }
}

/// Drops from `ids` what cannot fit: from the shortest prefix by deadline that has more updates
/// than slots, the one that would arrive last, until all fit; of those that would arrive together,
/// the one that the others wait for longest (*derived*). [`sort`] has sorted them.
pub(super) fn repair(case: &Case, ledger: &Ledger, ids: &mut Vec<UpdateId>) -> Vec<UpdateId> {
    let fits = ids.iter().enumerate().all(|(rank, id)| case.deadline(*id) >= index(rank));
    if fits {
        return Vec::new();
    }
    let mut of_host = vec![0; case.hosts.len()];
    for id in ids.iter() {
        of_host[case.update(*id).host.index()] += 1;
    }
    let mut kept = BinaryHeap::new();
    let mut lost = Vec::new();
    for id in ids.iter().copied() {
        let update = case.update(id);
        let path = direct_path(case, ledger, update);
        let finish_ns = ledger.probe(&path, case.now_ns, update.size_bytes).unwrap_or(u64::MAX);
        let beside = of_host[update.host.index()] - 1;
        let wait_ns = others_wait_ns(case, update, beside, ids.len() - 1);
        kept.push((finish_ns, wait_ns, case.ranks[id.index()], id));
        if case.deadline(id) < index(kept.len() - 1)
            && let Some((_, _, _, late)) = kept.pop()
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

/// How long `others` would wait for an update together: all of them for its time on the server's
/// link, those of its own host, which are `beside` it, for that on their uplink if it is longer.
fn others_wait_ns(case: &Case, update: &Update, beside: usize, others: usize) -> u128 {
    let time_ns = |rate| u128::from(update.size_bytes) * 1_000_000_000 / u128::from(rate);
    let server = case.host(case.server(update.server).host);
    let down_ns = time_ns(server.down_bytes_per_sec);
    let up_ns = time_ns(case.host(update.host).up_bytes_per_sec).max(down_ns);
    up_ns * beside as u128 + down_ns * (others - beside) as u128
}

/// Sorts updates of one server as [`Deadlines`] wants them.
pub(super) fn sort(case: &Case, by_rank: &[UpdateId], ids: &mut [UpdateId]) {
    let slots = index(ids.len());
    let mut bounded_count = 0;
    for at in 0..ids.len() {
        if case.deadline(ids[at]) < slots {
            ids.swap(at, bounded_count);
            bounded_count += 1;
        }
    }
    // The deadline grows with the version.
    let bounded = &mut ids[..bounded_count];
    let pair = |id: &UpdateId| (case.update(*id).version, case.ranks[id.index()]);
    let mut pairs: Vec<(u64, u32)> = bounded.iter().map(pair).collect();
    pairs::sort(&mut pairs);
    for (id, (_, rank)) in bounded.iter_mut().zip(pairs) {
        *id = by_rank[rank as usize];
    }
}

fn index(rank: usize) -> i64 {
    i64::try_from(rank).unwrap_or(i64::MAX)
}
