//! Finds the update that would end first among those whose paths differ in the first link only,
//! without asking about every one of them.
//!
//! All paths share the server's downlink (and the racks' links), whose residual is zero up to some
//! instant T. A host whose uplink has no promises after T is *plain*: the finish of its update is a
//! function of its capacity and the size alone, falling in the one and rising in the other. For
//! other hosts that function is a lower bound. Hosts stand in a tree, by capacity, with the smallest
//! size below each node, so that one comparison rules out a whole branch: not even the best capacity
//! with the smallest size would be in time. Each node also has the earliest finish that the hosts
//! below it had when they were last asked; residuals only shrink, so it only grows.
//!
//! Invariant: [`Pool::best`] is what asking every update would give, ties included. Cost: about
//! log H node visits and a few probes, where links saturate or uplinks have few promises.

use std::cmp::Reverse;

use crate::case::{Case, HostId, UpdateId};
use crate::net::ledger::{Ledger, Profile, Reach};
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
    profile: Profile,
    best: Option<(u64, u32)>,
    best_host: u32,
    /// Leaves that were nearly the best lately, with their finish then: first guesses.
    runners_up: Vec<(u64, usize)>,
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
}

/// What an update must beat.
#[derive(Clone, Copy, Debug)]
struct Bound {
    best: (u64, u32),
    /// By the best finish, and by a nanosecond earlier.
    reach: Reach,
    before: Reach,
}

/// The hosts below a node.
#[derive(Clone, Copy, Debug)]
struct Node {
    capacity_max: u64,
    /// Smallest size; [`EMPTY_BYTES`] if there is no update.
    size_min: u64,
    /// Smallest size above that.
    size_next: u64,
    /// No update below ends before this.
    floor_ns: u64,
    /// Smallest rank among the updates of the smallest size.
    rank: u32,
}

const EMPTY_BYTES: u64 = u64::MAX;

const RUNNERS_UP_MAX: usize = 8;

const EMPTY: Node = Node {
    capacity_max: 0,
    size_min: EMPTY_BYTES,
    size_next: EMPTY_BYTES,
    floor_ns: u64::MAX,
    rank: u32::MAX,
};

impl Node {
    /// Whether its first update could end before the other's, on links of their own.
    fn is_before(&self, other: &Self) -> bool {
        let cross = |a: &Self, b: &Self| u128::from(a.size_min) * u128::from(b.capacity_max);
        (cross(self, other), self.rank) < (cross(other, self), other.rank)
    }

    fn join(&self, other: &Self) -> Self {
        if self.size_min == EMPTY_BYTES {
            return *other;
        }
        if other.size_min == EMPTY_BYTES {
            return *self;
        }
        let (small, large) =
            if self.size_min <= other.size_min { (self, other) } else { (other, self) };
        let equal = small.size_min == large.size_min;
        let beyond = if equal { large.size_next } else { large.size_min };
        Self {
            // Children stand by capacity.
            capacity_max: self.capacity_max,
            size_min: small.size_min,
            size_next: small.size_next.min(beyond),
            floor_ns: self.floor_ns.min(other.floor_ns),
            rank: if equal { small.rank.min(large.rank) } else { small.rank },
        }
    }
}

impl PoolHost {
    fn leaf(&self, floor_ns: u64) -> Node {
        let Some((size_min, rank)) = self.queue.last().copied() else { return EMPTY };
        let above = self.queue.partition_point(|(size, _)| *size > size_min);
        let size_next = if above > 0 { self.queue[above - 1].0 } else { EMPTY_BYTES };
        Node { capacity_max: self.capacity, size_min, size_next, floor_ns, rank }
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
            profile: Profile::default(),
            best: None,
            best_host: 0,
            runners_up: Vec::with_capacity(RUNNERS_UP_MAX),
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
            let at = UpdateId::from_index(pool.hosts.len()).0;
            pool.by_host.push((update.host, at));
            let capacity = case.host(update.host).up_bytes_per_sec;
            pool.hosts.push(PoolHost { up: path.links()[0], path, capacity, queue });
        }
        pool.by_host.sort_unstable();
        pool.leaves = pool.hosts.len().next_power_of_two();
        pool.nodes = vec![EMPTY; pool.leaves * 2];
        for (at, host) in pool.hosts.iter().enumerate() {
            pool.nodes[pool.leaves + at] = host.leaf(0);
        }
        for node in (1..pool.leaves).rev() {
            pool.join_children(node);
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
        let limit_ns = limit.map_or(u64::MAX, |(finish_ns, _)| finish_ns);
        let mut bound = self.bound((limit_ns, u32::MAX));
        if let Some(leaf) = self.guess() {
            self.search_host(case, ledger, leaf, &mut bound);
        }
        self.search(case, ledger, 1, &mut bound);
        let best = bound.best;
        if best.1 == u32::MAX {
            self.least = self.least.max((limit_ns, 0));
            return None;
        }
        self.seen_changes = ledger.changes();
        self.least = best;
        self.best = Some(best);
        Some(best)
    }

    /// Takes an update out; false if it is not here.
    pub(super) fn remove(&mut self, host: HostId, size_bytes: u64, rank: u32) -> bool {
        let Ok(place) = self.by_host.binary_search_by_key(&host, |(host, _)| *host) else {
            return false;
        };
        let at = self.by_host[place].1 as usize;
        let queue = &mut self.hosts[at].queue;
        let key = Reverse((size_bytes, rank));
        let Ok(place) = queue.binary_search_by_key(&key, |entry| Reverse(*entry)) else {
            return false;
        };
        queue.remove(place);
        if self.best.is_some_and(|(_, best)| best == rank) {
            self.best = None;
        }
        let mut node = self.leaves + at;
        self.nodes[node] = self.hosts[at].leaf(self.nodes[node].floor_ns);
        while node > 1 {
            node /= 2;
            self.join_children(node);
        }
        true
    }

    fn join_children(&mut self, node: usize) {
        self.nodes[node] = self.nodes[node * 2].join(&self.nodes[node * 2 + 1]);
    }

    /// Whether the last answer still ends when it did; the others can only have become later.
    fn still(&self, case: &Case, ledger: &Ledger, (finish_ns, rank): (u64, u32)) -> bool {
        let host = &self.hosts[self.best_host as usize];
        let update = host.queue.iter().rev().find(|(_, other)| *other == rank);
        update.is_some_and(|(size, _)| {
            ledger.probe(&host.path, case.now_ns, *size) == Some(finish_ns)
        })
    }

    /// When an update of a host would end.
    fn ask(&self, case: &Case, ledger: &Ledger, at: usize, size_bytes: u64) -> u64 {
        let host = &self.hosts[at];
        let finish = if ledger.link(host.up).constant_from_ns() <= self.profile.start_ns() {
            self.profile.finish_ns(host.capacity, size_bytes)
        } else {
            ledger.probe(&host.path, case.now_ns, size_bytes)
        };
        finish.unwrap_or(u64::MAX)
    }

    fn bound(&self, best: (u64, u32)) -> Bound {
        let before = self.profile.reach(best.0 - 1);
        Bound { best, reach: self.profile.reach(best.0), before }
    }

    /// Lowers the bound to the smallest (finish, rank) below a node.
    fn search(&mut self, case: &Case, ledger: &Ledger, node: usize, bound: &mut Bound) {
        let Node { capacity_max, size_min, size_next, floor_ns, rank, .. } = self.nodes[node];
        if floor_ns > bound.best.0 || !self.profile.covers(&bound.reach, capacity_max, size_min) {
            return;
        }
        // Only a tie with a name that comes later?
        if rank >= bound.best.1
            && !self.profile.covers(&bound.reach, capacity_max, size_next)
            && !self.profile.covers(&bound.before, capacity_max, size_min)
        {
            return;
        }
        if node >= self.leaves {
            self.search_host(case, ledger, node, bound);
            return;
        }
        // The child that could end first is the better first guess.
        let (left, right) = (node * 2, node * 2 + 1);
        let flip = self.nodes[right].is_before(&self.nodes[left]);
        let (first, second) = if flip { (right, left) } else { (left, right) };
        self.search(case, ledger, first, bound);
        self.search(case, ledger, second, bound);
        self.nodes[node].floor_ns = self.nodes[left].floor_ns.min(self.nodes[right].floor_ns);
    }

    fn search_host(&mut self, case: &Case, ledger: &Ledger, leaf: usize, bound: &mut Bound) {
        let at = leaf - self.leaves;
        let Node { size_min, mut rank, .. } = self.nodes[leaf];
        let finish_ns = self.ask(case, ledger, at, size_min);
        self.nodes[leaf].floor_ns = finish_ns;
        if finish_ns > bound.best.0 {
            self.remember(finish_ns, leaf);
            return;
        }
        // Rounding up to nanoseconds can make sizes equal that differ by this much.
        let nearly = size_min.saturating_add(self.hosts[at].capacity / 1_000_000_000 + 1);
        for (size, other) in self.hosts[at].by_size().skip(1) {
            if size > nearly || self.ask(case, ledger, at, size) != finish_ns {
                break;
            }
            rank = rank.min(other);
        }
        if (finish_ns, rank) < bound.best {
            if bound.best.1 != u32::MAX {
                self.remember(bound.best.0, self.leaves + self.best_host as usize);
            }
            *bound = self.bound((finish_ns, rank));
            self.best_host = UpdateId::from_index(at).0;
        }
    }

    fn remember(&mut self, finish_ns: u64, leaf: usize) {
        if self.runners_up.len() == RUNNERS_UP_MAX {
            self.runners_up.remove(0);
        }
        self.runners_up.push((finish_ns, leaf));
    }

    /// The leaf that was the nearest to be the best: all have become later alike.
    fn guess(&mut self) -> Option<usize> {
        let runners = self.runners_up.iter().enumerate();
        let (place, _) = runners.min_by_key(|(_, (finish_ns, _))| *finish_ns)?;
        let (_, leaf) = self.runners_up.swap_remove(place);
        (self.nodes[leaf].size_min != EMPTY_BYTES).then_some(leaf)
    }

    /// The answer when some shared link has nothing left, ever.
    fn unreachable(&self) -> Option<(u64, u32)> {
        let heads = self.hosts.iter().filter_map(|host| host.queue.last());
        heads.map(|(_, rank)| (u64::MAX, *rank)).min()
    }
}
