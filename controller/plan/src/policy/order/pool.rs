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

use crate::case::{Case, UpdateId};
use crate::net::ledger::Ledger;
use crate::net::profile::{Profile, Reach, amount};
use crate::net::topology::{LinkId, Path};

use super::places::Places;

/// Updates for one server from one rack.
#[derive(Debug)]
pub(super) struct Pool {
    /// All of the path but the uplink.
    common: Vec<LinkId>,
    /// By capacity, largest first.
    hosts: Vec<PoolHost>,
    /// (size, rank), host after host, largest first.
    queues: Vec<(u64, u32)>,
    nodes: Vec<Node>,
    leaves: usize,
    profile: Profile,
    best: Option<(u64, u32)>,
    best_host: usize,
    /// Hosts that were the best lately, or nearly, with their finish then: first guesses.
    runners_up: Vec<(u64, usize)>,
    /// At most the best key.
    least: (u64, u32),
    seen_changes: u64,
}

#[derive(Debug)]
struct PoolHost {
    place: u32,
    path: Path,
    capacity: u64,
    /// Its part of the queues.
    from: usize,
    to: usize,
}

/// What an update must beat.
#[derive(Clone, Copy, Debug)]
struct Bound {
    best: (u64, u32),
    /// By the best finish.
    reach: Reach,
}

/// The hosts below a node. Sizes are amounts, see [`amount`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Node {
    capacity_max: u64,
    /// Smallest size; [`EMPTY_SIZE`] if there is no update.
    size_min: u64,
    /// Smallest size above that.
    size_next: u64,
    /// Shortest time of a smallest update on its own uplink.
    time_min_ns: u64,
    /// No update below ends before this.
    floor_ns: u64,
    /// Smallest rank among the updates of the smallest size.
    rank: u32,
}

const EMPTY_SIZE: u64 = u64::MAX;
const RUNNERS_UP_MAX: usize = 4;
const EMPTY: Node = Node {
    capacity_max: 0,
    size_min: EMPTY_SIZE,
    size_next: EMPTY_SIZE,
    time_min_ns: u64::MAX,
    floor_ns: u64::MAX,
    rank: u32::MAX,
};

impl Node {
    fn join(&self, other: &Self) -> Self {
        let (small, large) =
            if self.size_min <= other.size_min { (self, other) } else { (other, self) };
        let equal = small.size_min == large.size_min;
        let beyond = if equal { large.size_next } else { large.size_min };
        Self {
            // Children stand by capacity; what is empty has none.
            capacity_max: self.capacity_max.max(other.capacity_max),
            size_min: small.size_min,
            size_next: small.size_next.min(beyond),
            time_min_ns: self.time_min_ns.min(other.time_min_ns),
            floor_ns: self.floor_ns.min(other.floor_ns),
            rank: if equal { small.rank.min(large.rank) } else { small.rank },
        }
    }
}

impl Pool {
    pub(super) fn new(case: &Case, ledger: &Ledger, places: &Places, ids: &[UpdateId]) -> Self {
        let mut keys: Vec<u128> = ids.iter().map(|id| places.key(case, *id)).collect();
        keys.sort_unstable();
        let mut pool = Self {
            common: Vec::new(),
            hosts: Vec::new(),
            queues: Vec::with_capacity(ids.len()),
            nodes: Vec::new(),
            leaves: 0,
            profile: Profile::default(),
            best: None,
            best_host: 0,
            runners_up: Vec::with_capacity(RUNNERS_UP_MAX),
            least: (0, 0),
            seen_changes: 0,
        };
        let Some(server) = ids.first().map(|id| case.server(case.update(*id).server)) else {
            return pool;
        };
        for (place, entry) in keys.into_iter().map(Places::split) {
            if pool.hosts.last().is_none_or(|last| last.place != place) {
                let host = places.host(place);
                let path = ledger.path(host, server.host);
                let capacity = case.host(host).up_bytes_per_sec;
                let from = pool.queues.len();
                pool.hosts.push(PoolHost { place, path, capacity, from, to: from });
            }
            pool.queues.push(entry);
            if let Some(last) = pool.hosts.last_mut() {
                last.to += 1;
            }
        }
        if let Some(first) = pool.hosts.first() {
            pool.common = first.path.links()[1..].to_vec();
        }
        pool.leaves = pool.hosts.len().next_power_of_two();
        pool.nodes = vec![EMPTY; pool.leaves * 2];
        for at in 0..pool.hosts.len() {
            pool.nodes[pool.leaves + at] = pool.leaf(at, 0);
        }
        for node in (1..pool.leaves).rev() {
            pool.nodes[node] = pool.joined(node);
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
            && self.is_still(case, ledger, best)
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
        self.guess(case, ledger, &mut bound);
        self.search(case, ledger, &mut bound);
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
    pub(super) fn remove(&mut self, case: &Case, places: &Places, id: UpdateId) -> bool {
        let update = case.update(id);
        let place = places.of(update.host);
        let Ok(at) = self.hosts.binary_search_by_key(&place, |host| host.place) else {
            return false;
        };
        let PoolHost { from, to, .. } = self.hosts[at];
        let entry = (update.size_bytes, case.ranks[id.index()]);
        let queue = &self.queues[from..to];
        let Ok(found) = queue.binary_search_by_key(&Reverse(entry), |entry| Reverse(*entry)) else {
            return false;
        };
        self.queues.copy_within(from + found + 1..to, from + found);
        self.hosts[at].to -= 1;
        if self.best.is_some_and(|(_, best)| best == entry.1) {
            self.best = None;
        }
        let mut node = self.leaves + at;
        self.nodes[node] = self.leaf(at, self.nodes[node].floor_ns);
        while node > 1 {
            node /= 2;
            let joined = self.joined(node);
            if joined == self.nodes[node] {
                break;
            }
            self.nodes[node] = joined;
        }
        true
    }

    /// A host's updates, largest first.
    fn queue(&self, at: usize) -> &[(u64, u32)] {
        let PoolHost { from, to, .. } = self.hosts[at];
        &self.queues[from..to]
    }

    fn leaf(&self, at: usize, floor_ns: u64) -> Node {
        let queue = self.queue(at);
        let Some((size_min, rank)) = queue.last().copied() else { return EMPTY };
        let above = queue.partition_point(|(size, _)| *size > size_min);
        let size_next = if above > 0 { amount(queue[above - 1].0) } else { EMPTY_SIZE };
        let (capacity_max, size_min) = (self.hosts[at].capacity, amount(size_min));
        let time_min_ns = size_min / capacity_max;
        Node { capacity_max, size_min, size_next, time_min_ns, floor_ns, rank }
    }

    fn joined(&self, node: usize) -> Node {
        self.nodes[node * 2].join(&self.nodes[node * 2 + 1])
    }

    /// Whether the last answer still ends when it did; the others can only have become later.
    fn is_still(&self, case: &Case, ledger: &Ledger, (finish_ns, rank): (u64, u32)) -> bool {
        let path = &self.hosts[self.best_host].path;
        if !ledger.has_changed(path, self.seen_changes) {
            return true;
        }
        let update = self.queue(self.best_host).iter().rev().find(|(_, other)| *other == rank);
        update.is_some_and(|(size, _)| ledger.probe(path, case.now_ns, *size) == Some(finish_ns))
    }

    /// Whether nothing is promised of a host's uplink once the links behind it are free.
    #[inline]
    fn is_plain(&self, ledger: &Ledger, at: usize) -> bool {
        let up = ledger.link(self.hosts[at].path.links()[0]);
        up.constant_from_ns() <= self.profile.start_ns()
    }

    /// When an update of a host would end.
    fn ask(&self, case: &Case, ledger: &Ledger, at: usize, size_bytes: u64) -> u64 {
        let finish = if self.is_plain(ledger, at) {
            self.profile.finish_ns(self.hosts[at].capacity, size_bytes)
        } else {
            let up = ledger.link(self.hosts[at].path.links()[0]);
            ledger.probe_behind(up, &self.profile, case.now_ns, size_bytes)
        };
        finish.unwrap_or(u64::MAX)
    }

    fn bound(&self, best: (u64, u32)) -> Bound {
        Bound { best, reach: self.profile.reach(best.0) }
    }

    /// Whether an update below a node could be better.
    #[inline]
    fn admits(&self, bound: &Bound, node: &Node) -> bool {
        let Node { capacity_max, size_min, size_next, time_min_ns, floor_ns, rank } = *node;
        let Bound { best, reach } = bound;
        if floor_ns > best.0 || time_min_ns > reach.time_ns() || size_min > reach.total() {
            return false;
        }
        let carried = self.profile.carried(reach, capacity_max);
        if carried < size_min {
            return false;
        }
        // Only a tie with a name that comes later?
        let is_tie = carried < size_next && carried - reach.last_ns(capacity_max) < size_min;
        rank < best.1 || !is_tie
    }

    /// Lowers the bound to the smallest (finish, rank) of all.
    fn search(&mut self, case: &Case, ledger: &Ledger, bound: &mut Bound) {
        // Of every level at most one sibling waits.
        let mut waiting = [0; usize::BITS as usize];
        let (mut count, mut node) = (0, 1);
        loop {
            if self.admits(bound, &self.nodes[node]) {
                if node < self.leaves {
                    // The child with the smaller update is the better first guess.
                    let left = node * 2;
                    let is_flipped = self.nodes[left + 1].size_min < self.nodes[left].size_min;
                    node = left + usize::from(is_flipped);
                    waiting[count] = node ^ 1;
                    count += 1;
                    continue;
                }
                self.search_host(case, ledger, node - self.leaves, bound);
            }
            if count == 0 {
                return;
            }
            count -= 1;
            node = waiting[count];
        }
    }

    fn search_host(&mut self, case: &Case, ledger: &Ledger, at: usize, bound: &mut Bound) {
        // Leaves beyond the hosts, and hosts without updates, are found while nothing is known.
        let Some(PoolHost { from, to, .. }) = self.hosts.get(at) else { return };
        let Some((smallest, mut rank)) = self.queues[*from..*to].last().copied() else { return };
        let finish_ns = self.ask(case, ledger, at, smallest);
        if !self.is_plain(ledger, at) {
            // Of the others the bound tells as much.
            self.raise_floor(self.leaves + at, finish_ns);
        }
        self.remember(finish_ns, at);
        if finish_ns > bound.best.0 {
            return;
        }
        // Rounding up to nanoseconds can make sizes equal that differ by this much.
        let nearly = smallest.saturating_add(self.hosts[at].capacity / 1_000_000_000 + 1);
        let mut asked = smallest;
        for (size, other) in self.queue(at).iter().rev().skip(1) {
            if *size > nearly {
                break;
            }
            if *size > asked {
                if self.ask(case, ledger, at, *size) != finish_ns {
                    break;
                }
                asked = *size;
            }
            rank = rank.min(*other);
        }
        if (finish_ns, rank) < bound.best {
            *bound = self.bound((finish_ns, rank));
            self.best_host = at;
        }
    }

    /// Notes that nothing below a leaf ends earlier.
    fn raise_floor(&mut self, mut node: usize, mut floor_ns: u64) {
        while self.nodes[node].floor_ns != floor_ns {
            self.nodes[node].floor_ns = floor_ns;
            if node == 1 {
                return;
            }
            floor_ns = floor_ns.min(self.nodes[node ^ 1].floor_ns);
            node /= 2;
        }
    }

    /// Keeps a host among the runners-up if it ends before one of them.
    fn remember(&mut self, finish_ns: u64, at: usize) {
        if let Some(known) = self.runners_up.iter_mut().find(|(_, host)| *host == at) {
            known.0 = finish_ns;
        } else if self.runners_up.len() < RUNNERS_UP_MAX {
            self.runners_up.push((finish_ns, at));
        } else if let Some(last) = self.runners_up.iter_mut().max()
            && last.0 > finish_ns
        {
            *last = (finish_ns, at);
        }
    }

    /// Asks the runners-up, the nearest first: all have become later alike.
    fn guess(&mut self, case: &Case, ledger: &Ledger, bound: &mut Bound) {
        let nearest = (0..self.runners_up.len()).min_by_key(|i| self.runners_up[*i]);
        if let Some(nearest) = nearest {
            self.runners_up.swap(0, nearest);
        }
        for i in 0..self.runners_up.len() {
            let (finish_ns, at) = self.runners_up[i];
            let leaf = &self.nodes[self.leaves + at];
            if leaf.capacity_max == 0 {
                self.runners_up[i].0 = u64::MAX;
            } else if finish_ns <= bound.best.0 && self.admits(bound, leaf) {
                self.search_host(case, ledger, at, bound);
            }
        }
    }

    /// The answer when some shared link has nothing left, ever.
    fn unreachable(&self) -> Option<(u64, u32)> {
        let heads = (0..self.hosts.len()).filter_map(|at| self.queue(at).last());
        heads.map(|(_, rank)| (u64::MAX, *rank)).min()
    }
}
