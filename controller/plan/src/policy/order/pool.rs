//! Finds the update that would end first among those whose paths differ in the first link only,
//! without asking about every one of them.
//!
//! All paths share the server's downlink (and the racks' links), whose residual is zero up to some
//! instant T. A host whose uplink has no promises after T is *plain*: the finish of its update is a
//! function of its capacity and the size alone, falling in the one and rising in the other. Plain
//! hosts stand in a tree, by capacity, with the smallest size below each node, so that one
//! comparison rules out a whole branch: not even the best capacity with the smallest size would be
//! in time. The others are *touched* and stand in a heap by the finish they had when last asked,
//! which only grows. As T moves on, touched hosts become plain again.
//!
//! Invariant: [`Pool::best`] is what asking every update would give, ties included. Cost: about
//! log H node visits and a few probes, where links saturate or uplinks have few promises.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::case::{Case, HostId, UpdateId};
use crate::net::ledger::{Ledger, Profile};
use crate::net::topology::{LinkId, Path};

/// Updates for one server from one rack.
#[derive(Debug)]
pub(super) struct Pool {
    /// All of the path but the uplink.
    common: Vec<LinkId>,
    /// By capacity, largest first.
    hosts: Vec<PoolHost>,
    by_host: Vec<(HostId, u32)>,
    nodes: Vec<Node>,
    leaves: usize,
    /// Touched hosts: (finish when last asked, host, version).
    touched: BinaryHeap<Reverse<(u64, u32, u32)>>,
    /// Touched hosts by the instant from which they may be plain again.
    returning: BinaryHeap<Reverse<(u64, u32)>>,
    profile: Profile,
    best: Option<(u64, u32)>,
    best_host: u32,
    /// At most the best key.
    least: (u64, u32),
    seen_changes: u64,
}

#[derive(Debug)]
struct PoolHost {
    up: LinkId,
    path: Path,
    capacity: u64,
    /// (size, rank), largest first.
    queue: Vec<(u64, u32)>,
    plain: bool,
    version: u32,
}

/// The plain hosts below a node.
#[derive(Clone, Copy, Debug)]
struct Node {
    capacity_max: u64,
    capacity_min: u64,
    /// Smallest size; [`EMPTY_BYTES`] if there is no update.
    size_min: u64,
    /// Smallest size above that.
    size_next: u64,
    /// Smallest rank among the updates of the smallest size.
    rank: u32,
}

const EMPTY_BYTES: u64 = u64::MAX;

const EMPTY: Node = Node {
    capacity_max: 0,
    capacity_min: 0,
    size_min: EMPTY_BYTES,
    size_next: EMPTY_BYTES,
    rank: u32::MAX,
};

impl Node {
    fn join(self, other: Self) -> Self {
        if self.size_min == EMPTY_BYTES {
            return other;
        }
        if other.size_min == EMPTY_BYTES {
            return self;
        }
        let (size_min, size_next, rank) = match self.size_min.cmp(&other.size_min) {
            std::cmp::Ordering::Less => {
                (self.size_min, self.size_next.min(other.size_min), self.rank)
            }
            std::cmp::Ordering::Greater => {
                (other.size_min, other.size_next.min(self.size_min), other.rank)
            }
            std::cmp::Ordering::Equal => {
                let next = self.size_next.min(other.size_next);
                (self.size_min, next, self.rank.min(other.rank))
            }
        };
        Self {
            capacity_max: self.capacity_max.max(other.capacity_max),
            capacity_min: self.capacity_min.min(other.capacity_min),
            size_min,
            size_next,
            rank,
        }
    }
}

impl PoolHost {
    /// The smallest update.
    fn head(&self) -> Option<(u64, u32)> {
        self.queue.last().copied()
    }

    fn leaf(&self) -> Node {
        let Some((size_min, rank)) = self.head().filter(|_| self.plain) else { return EMPTY };
        let above = self.queue.partition_point(|(size, _)| *size > size_min);
        let size_next = if above > 0 { self.queue[above - 1].0 } else { EMPTY_BYTES };
        let (capacity_max, capacity_min) = (self.capacity, self.capacity);
        Node { capacity_max, capacity_min, size_min, size_next, rank }
    }

    /// The smallest update of every size, from the smallest size on.
    fn by_size(&self) -> impl Iterator<Item = (u64, u32)> + '_ {
        self.queue.chunk_by(|a, b| a.0 == b.0).rev().filter_map(|same| same.last().copied())
    }
}

impl Pool {
    pub(super) fn new(case: &Case, ledger: &Ledger, ids: &[UpdateId]) -> Self {
        let uplink = |id: &UpdateId| {
            let host = case.update(*id).host;
            (Reverse(case.host(host).up_bytes_per_sec), host)
        };
        let mut ids = ids.to_vec();
        ids.sort_unstable_by_key(uplink);
        let mut pool = Self {
            common: Vec::new(),
            hosts: Vec::new(),
            by_host: Vec::new(),
            nodes: Vec::new(),
            leaves: 0,
            touched: BinaryHeap::new(),
            returning: BinaryHeap::new(),
            profile: Profile::default(),
            best: None,
            best_host: 0,
            least: (0, 0),
            seen_changes: 0,
        };
        for own in ids.chunk_by(|a, b| uplink(a) == uplink(b)) {
            let update = case.update(own[0]);
            let path = ledger.path(update.host, case.server(update.server).host);
            pool.common = path.links()[1..].to_vec();
            let mut queue: Vec<(u64, u32)> = own
                .iter()
                .map(|id| (case.update(*id).size_bytes, case.ranks[id.index()]))
                .collect();
            queue.sort_unstable_by_key(|entry| Reverse(*entry));
            let up = path.links()[0];
            let at = UpdateId::from_index(pool.hosts.len()).0;
            let from_ns = ledger.link(up).constant_from_ns();
            let plain = from_ns <= case.now_ns;
            if !plain {
                pool.touched.push(Reverse((case.now_ns, at, 0)));
                pool.returning.push(Reverse((from_ns, at)));
            }
            pool.by_host.push((update.host, at));
            let capacity = case.host(update.host).up_bytes_per_sec;
            pool.hosts.push(PoolHost { up, path, capacity, queue, plain, version: 0 });
        }
        pool.by_host.sort_unstable();
        pool.leaves = pool.hosts.len().next_power_of_two();
        pool.nodes = vec![EMPTY; pool.leaves * 2];
        for (at, host) in pool.hosts.iter().enumerate() {
            pool.nodes[pool.leaves + at] = host.leaf();
        }
        for node in (1..pool.leaves).rev() {
            pool.nodes[node] = pool.nodes[node * 2].join(pool.nodes[node * 2 + 1]);
        }
        pool
    }

    /// At most the (finish, rank) of the best update.
    pub(super) const fn key(&self) -> (u64, u32) {
        self.least
    }

    /// The smallest (finish, rank); none if there is no update, or none up to `limit`.
    pub(super) fn best(
        &mut self,
        case: &Case,
        ledger: &Ledger,
        limit: Option<(u64, u32)>,
    ) -> Option<(u64, u32)> {
        if let Some(best) = self.best
            && (self.seen_changes == ledger.changes() || self.still(case, ledger, best))
        {
            self.seen_changes = ledger.changes();
            return Some(best);
        }
        self.best = None;
        if !ledger.profile(&self.common, case.now_ns, &mut self.profile) {
            return self.unreachable();
        }
        self.welcome_back(ledger);
        let limit_ns = limit.map_or(u64::MAX, |(finish_ns, _)| finish_ns);
        let mut best = (limit_ns.saturating_add(1), u32::MAX);
        self.search(1, &mut best.0);
        if best.0 <= limit_ns && self.nodes[1].size_min != EMPTY_BYTES {
            self.tie(1, best.0, &mut best.1);
        }
        self.ask_touched(case, ledger, &mut best);
        if best.1 == u32::MAX {
            self.least = (limit_ns.max(self.least.0), 0).max(self.least);
            return None;
        }
        self.seen_changes = ledger.changes();
        self.least = best;
        self.best = Some(best);
        Some(best)
    }

    /// Takes an update out; false if it is not here.
    pub(super) fn remove(&mut self, host: HostId, size_bytes: u64, rank: u32) -> bool {
        let Some(at) = self.index_of(host) else { return false };
        let queue = &mut self.hosts[at].queue;
        let key = Reverse((size_bytes, rank));
        let Ok(place) = queue.binary_search_by_key(&key, |entry| Reverse(*entry)) else {
            return false;
        };
        queue.remove(place);
        if self.best.is_some_and(|(_, best)| best == rank) {
            self.best = None;
        }
        self.refresh(at);
        true
    }

    /// The uplink of a host has changed.
    pub(super) fn touch(&mut self, host: HostId, ledger: &Ledger) {
        let Some(at) = self.index_of(host) else { return };
        let entry = &mut self.hosts[at];
        if !entry.plain || entry.queue.is_empty() {
            return;
        }
        entry.plain = false;
        entry.version += 1;
        let index = UpdateId::from_index(at).0;
        self.touched.push(Reverse((self.least.0, index, entry.version)));
        self.returning.push(Reverse((ledger.link(entry.up).constant_from_ns(), index)));
        self.refresh(at);
    }

    fn index_of(&self, host: HostId) -> Option<usize> {
        let place = self.by_host.binary_search_by_key(&host, |(host, _)| *host).ok()?;
        Some(self.by_host[place].1 as usize)
    }

    fn refresh(&mut self, at: usize) {
        let mut node = self.leaves + at;
        self.nodes[node] = self.hosts[at].leaf();
        while node > 1 {
            node /= 2;
            self.nodes[node] = self.nodes[node * 2].join(self.nodes[node * 2 + 1]);
        }
    }

    /// Whether the last answer still ends when it did; the others can only have become later.
    fn still(&self, case: &Case, ledger: &Ledger, (finish_ns, rank): (u64, u32)) -> bool {
        let host = &self.hosts[self.best_host as usize];
        let update = host.queue.iter().rev().find(|(_, other)| *other == rank);
        update.is_some_and(|(size, _)| {
            ledger.probe(&host.path, case.now_ns, *size) == Some(finish_ns)
        })
    }

    /// Touched hosts whose promises all lie before T are plain again.
    fn welcome_back(&mut self, ledger: &Ledger) {
        let start_ns = self.profile.start_ns();
        while let Some(Reverse((from_ns, index))) = self.returning.peek().copied() {
            if from_ns > start_ns {
                break;
            }
            self.returning.pop();
            let at = index as usize;
            let host = &mut self.hosts[at];
            let from_ns = ledger.link(host.up).constant_from_ns();
            if from_ns > start_ns {
                self.returning.push(Reverse((from_ns, index)));
                continue;
            }
            host.plain = true;
            host.version += 1;
            self.refresh(at);
        }
    }

    /// Lowers `best_ns` to the smallest finish among plain hosts.
    fn search(&self, node: usize, best_ns: &mut u64) {
        let Node { capacity_max, capacity_min, size_min, .. } = self.nodes[node];
        if size_min == EMPTY_BYTES || !self.profile.carries(capacity_max, size_min, *best_ns - 1) {
            return;
        }
        if capacity_max == capacity_min {
            if let Some(finish_ns) = self.profile.finish_ns(capacity_max, size_min) {
                *best_ns = (*best_ns).min(finish_ns);
            }
            return;
        }
        // The child with the smallest update is the better first guess.
        let (left, right) = (node * 2, node * 2 + 1);
        let flip = self.nodes[right].size_min < self.nodes[left].size_min;
        let (first, second) = if flip { (right, left) } else { (left, right) };
        self.search(first, best_ns);
        self.search(second, best_ns);
    }

    /// Lowers `best` to the smallest rank among plain hosts' updates that end by `finish_ns`.
    fn tie(&mut self, node: usize, finish_ns: u64, best: &mut u32) {
        let Node { capacity_max, capacity_min, size_min, size_next, rank } = self.nodes[node];
        if size_min == EMPTY_BYTES || !self.profile.carries(capacity_max, size_min, finish_ns) {
            return;
        }
        let is_leaf = node >= self.leaves;
        if !is_leaf
            && self.profile.carries(capacity_min, size_min, finish_ns)
            && (size_next == EMPTY_BYTES
                || !self.profile.carries(capacity_max, size_next, finish_ns))
        {
            if rank < *best {
                // Down to the leaf that it is on, to know its host.
                let child =
                    if self.holds(node * 2, size_min, rank) { node * 2 } else { node * 2 + 1 };
                self.tie(child, finish_ns, best);
            }
            return;
        }
        if is_leaf {
            let at = node - self.leaves;
            for (size, rank) in self.hosts[at].by_size() {
                if !self.profile.carries(capacity_max, size, finish_ns) {
                    break;
                }
                if rank < *best {
                    *best = rank;
                    self.best_host = UpdateId::from_index(at).0;
                }
            }
            return;
        }
        self.tie(node * 2, finish_ns, best);
        self.tie(node * 2 + 1, finish_ns, best);
    }

    fn holds(&self, node: usize, size: u64, rank: u32) -> bool {
        self.nodes[node].size_min == size && self.nodes[node].rank == rank
    }

    /// Asks touched hosts that could still be better than `best`.
    fn ask_touched(&mut self, case: &Case, ledger: &Ledger, best: &mut (u64, u32)) {
        let mut asked = Vec::new();
        while let Some(Reverse((least_ns, index, version))) = self.touched.peek().copied() {
            if least_ns > best.0 {
                break;
            }
            self.touched.pop();
            let host = &self.hosts[index as usize];
            let Some((head_size, _)) = host.head() else { continue };
            if host.version != version {
                continue;
            }
            let ask = |size| ledger.probe(&host.path, case.now_ns, size).unwrap_or(u64::MAX);
            let finish_ns = ask(head_size);
            asked.push(Reverse((finish_ns, index, version)));
            // Rounding up to nanoseconds can make sizes equal that differ by this much.
            let nearly = head_size.saturating_add(host.capacity / 1_000_000_000 + 1);
            for (size, rank) in host.by_size() {
                if size > head_size && (size > nearly || ask(size) != finish_ns) {
                    break;
                }
                if (finish_ns, rank) < *best {
                    *best = (finish_ns, rank);
                    self.best_host = index;
                }
            }
        }
        self.touched.extend(asked);
    }

    /// The answer when some shared link has nothing left, ever.
    fn unreachable(&self) -> Option<(u64, u32)> {
        let heads = self.hosts.iter().filter_map(PoolHost::head);
        heads.map(|(_, rank)| (u64::MAX, rank)).min()
    }
}
