//! Finds the update that would end first among those behind one [`Line`], without asking about
//! every one of them.
//!
//! Of the plain hosts, by capacity, only those count whose smallest update is smaller than all that
//! hosts of more capacity have: the lows, some square root of H. Hosts that are not plain are set
//! aside as they are met, each with its finish when it was last asked; residuals only shrink, so
//! that it is asked again only when that would still be the best.
//!
//! Invariant: [`Pool::best`] is what asking every update would give, ties included. Cost: a few
//! instructions for each low and each host that is set aside, and a few probes.

use alloc::vec::Vec;

use crate::case::{Case, Segment, UpdateId};
use crate::net::ledger::Ledger;
use crate::net::topology::{LinkId, Path};
use crate::net::units::NS_PER_SEC;

use super::line::{Line, Offer};
use super::lows::{Low, NONE, Row};
use super::places::{Places, Standing};

/// Updates for one server from one rack.
#[derive(Debug)]
pub(super) struct Pool {
    line: Line,
    /// By capacity, largest first.
    hosts: Vec<PoolHost>,
    /// Places of updates, host after host, largest first.
    queues: Vec<u32>,
    /// By host: the place of its smallest update; [`NONE`] where there is none, and for `aside`.
    heads: Row<Offer>,
    /// Hosts that were not plain when they were last met, and an instant before which none of
    /// their updates ends.
    aside: Vec<(u64, usize)>,
    best: Option<(u64, u32)>,
    best_host: usize,
    /// What an update must beat in the search under way, and whether that is `best_host`'s.
    bound: (u64, u32),
    is_found: bool,
    /// At most the best key.
    least: (u64, u32),
    seen_changes: u64,
    /// When the line was looked up.
    looked_changes: u64,
}

#[derive(Debug)]
struct PoolHost {
    place: u32,
    path: Path,
    up: LinkId,
    capacity: u64,
    /// Its part of the queues.
    from: usize,
    to: usize,
}

/// What a pool asks.
#[derive(Clone, Copy)]
pub(super) struct Facts<'a> {
    pub(super) case: &'a Case,
    pub(super) ledger: &'a Ledger,
    pub(super) places: &'a Places,
}

impl Pool {
    pub(super) fn new(facts: Facts<'_>, ids: &[UpdateId]) -> Self {
        let Facts { case, ledger, places } = facts;
        let key = |id: &UpdateId| {
            let host = places.of_host(case.update(*id).host);
            // Larger updates first.
            u64::from(host) << 32 | u64::from(!places.of_update(*id))
        };
        let mut keys: Vec<u64> = ids.iter().map(key).collect();
        keys.sort_unstable();
        let mut hosts: Vec<PoolHost> = Vec::new();
        let mut queues = Vec::with_capacity(ids.len());
        let server = ids.first().map(|id| case.server(case.update(*id).server).host);
        for key in keys {
            #[expect(clippy::cast_possible_truncation, reason = "its parts")]
            let (place, update) = ((key >> 32) as u32, !(key as u32));
            if hosts.last().is_none_or(|last| last.place != place)
                && let Some(server) = server
            {
                let host = places.host(place);
                let path = ledger.path(host, server);
                let capacity = case.host(host).up_bytes_per_sec;
                let (up, from) = (ledger.topology().up(host), queues.len());
                hosts.push(PoolHost { place, path, up, capacity, from, to: 0 });
            }
            queues.push(update);
            if let Some(last) = hosts.last_mut() {
                last.to = queues.len();
            }
        }
        Self {
            line: hosts
                .first()
                .map_or_else(Line::default, |host| Line::new(&host.path.links()[1..])),
            heads: Row::new(hosts.iter().map(|host| queues[host.to - 1]), offers(&hosts, places)),
            aside: Vec::new(),
            hosts,
            queues,
            best: None,
            best_host: 0,
            bound: (u64::MAX, u32::MAX),
            is_found: false,
            least: (0, 0),
            seen_changes: 0,
            looked_changes: 0,
        }
    }

    /// At most the (finish, rank) of the best update.
    pub(super) const fn key(&self) -> (u64, u32) {
        self.least
    }

    /// The smallest (finish, rank); none if there is no update, or none up to `limit`.
    pub(super) fn best(
        &mut self,
        facts: Facts<'_>,
        limit: Option<(u64, u32)>,
    ) -> Option<(u64, u32)> {
        let Facts { case, ledger, .. } = facts;
        if let Some(best) = self.best
            && self.is_still(facts, best)
        {
            self.seen_changes = ledger.changes();
            return Some(best);
        }
        self.best = None;
        if !self.line.look_up(case, ledger) {
            return self.unreachable(facts);
        }
        let limit_ns = limit.map_or(u64::MAX, |(finish_ns, _)| finish_ns);
        self.looked_changes = ledger.changes();
        (self.bound, self.is_found) = ((limit_ns, u32::MAX), false);
        self.line.limit(limit_ns);
        self.guess(facts);
        self.search_aside(facts);
        self.search_plain(facts);
        let best = self.bound;
        if best.1 == u32::MAX {
            self.least = self.least.max((limit_ns, 0));
            return None;
        }
        self.seen_changes = ledger.changes();
        self.least = best;
        self.best = Some(best);
        Some(best)
    }

    /// Writes the rates of the best update, if that is the one, without a look at its path; none if
    /// it has changed meanwhile.
    pub(super) fn send(
        &self,
        facts: Facts<'_>,
        key: (u64, u32),
        size_bytes: u64,
        segments: &mut Vec<Segment>,
    ) -> Option<u64> {
        let Facts { ledger, .. } = facts;
        let host = self.hosts.get(self.best_host)?;
        if self.best != Some(key) || ledger.has_changed(&host.path, self.looked_changes) {
            return None;
        }
        let offer = Offer::new(host.up, host.capacity, size_bytes);
        self.line.send(ledger, &offer, segments)
    }

    /// Takes an update out; false if it is not here.
    pub(super) fn remove(&mut self, facts: Facts<'_>, id: UpdateId) -> bool {
        let Facts { case, places, .. } = facts;
        let place = places.of_host(case.update(id).host);
        let Some(at) = self.find(place) else { return false };
        let update = places.of_update(id);
        let queue = self.queue(at);
        let Ok(found) = queue.binary_search_by(|other| update.cmp(other)) else { return false };
        let PoolHost { from, to, .. } = self.hosts[at];
        self.queues.copy_within(from + found + 1..to, from + found);
        self.hosts[at].to -= 1;
        if self.best.is_some_and(|(_, rank)| rank == case.ranks[id.index()]) {
            self.best = None;
        }
        if self.heads.at(at) == update {
            let head = self.queue(at).last().copied().unwrap_or(NONE);
            self.heads.set(at, head, offers(&self.hosts, places));
        }
        true
    }

    /// Where a host is, if it is here.
    fn find(&self, place: u32) -> Option<usize> {
        if self.hosts.get(self.best_host).is_some_and(|host| host.place == place) {
            return Some(self.best_host);
        }
        self.hosts.binary_search_by_key(&place, |host| host.place).ok()
    }

    /// A host's updates, largest first.
    fn queue(&self, at: usize) -> &[u32] {
        let PoolHost { from, to, .. } = self.hosts[at];
        &self.queues[from..to]
    }

    /// Whether the last answer still ends when it did; the others can only have become later.
    fn is_still(&self, facts: Facts<'_>, (finish_ns, rank): (u64, u32)) -> bool {
        let Facts { case, ledger, places } = facts;
        let path = &self.hosts[self.best_host].path;
        if !ledger.has_changed(path, self.seen_changes) {
            return true;
        }
        let queue = self.queue(self.best_host).iter().rev().map(|place| places.update(*place));
        let best = queue.into_iter().find(|update| update.rank == rank);
        best.is_some_and(|update| {
            ledger.probe(path, case.now_ns, update.size_bytes) == Some(finish_ns)
        })
    }

    /// Lowers the bound by asking the low where the last best was, and the one that then has the
    /// most room: mostly that is the best.
    fn guess(&mut self, facts: Facts<'_>) {
        let lows = self.heads.lows();
        let near = lows.partition_point(|low| low.place < self.best_host);
        if let Some(low) = lows.get(near).or_else(|| lows.last()).copied() {
            self.consider(facts, low);
        }
        if let Some(low) = self.line.roomiest(self.heads.lows()).copied() {
            self.consider(facts, low);
        }
    }

    /// Lowers the bound to the best of the hosts that are set aside; those that have become plain
    /// take their places again.
    fn search_aside(&mut self, facts: Facts<'_>) {
        let mut next = 0;
        while let Some((floor_ns, at)) = self.aside.get(next).copied() {
            if floor_ns > self.bound.0 {
                next += 1;
                continue;
            }
            let head = self.head(facts, at);
            let Some(head) = head.filter(|head| !self.line.is_plain(facts.ledger, &head.about))
            else {
                let number = head.map_or(NONE, |head| head.number);
                self.heads.set(at, number, offers(&self.hosts, facts.places));
                self.aside.swap_remove(next);
                continue;
            };
            self.aside[next].0 = if self.line.admits(&head.about) {
                self.consider(facts, head)
            } else {
                self.bound.0 + 1
            };
            next += 1;
        }
    }

    /// Lowers the bound to the best of the plain hosts; sets aside those it meets that are not.
    fn search_plain(&mut self, facts: Facts<'_>) {
        let (mut next, mut is_tie) = (0, false);
        while let Some(index) = self.line.first_admitted(self.heads.lows(), next) {
            let low = self.heads.lows()[index];
            let before_ns = self.bound.0;
            let finish_ns = self.consider(facts, low);
            if !self.line.is_plain(facts.ledger, &low.about) {
                // Others come to stand in its place.
                self.heads.set(low.place, NONE, offers(&self.hosts, facts.places));
                self.aside.push((finish_ns, low.place));
                next = index;
                continue;
            }
            next = index + 1;
            // Does a larger update end at the same instant? Instants are rounded.
            let larger = facts.places.larger(low.number).map(|size| low.about.resized(size));
            is_tie = is_tie && self.bound.0 == before_ns
                || larger.is_some_and(|larger| self.line.admits(&larger));
        }
        if is_tie {
            for at in 0..self.hosts.len() {
                if let Some(head) = self.head(facts, at) {
                    self.consider(facts, head);
                }
            }
        }
    }

    /// A host's smallest update.
    fn head(&self, facts: Facts<'_>, at: usize) -> Option<Low<Offer>> {
        let number = *self.queue(at).last()?;
        let about = offers(&self.hosts, facts.places)(at, number);
        Some(Low { place: at, number, about })
    }

    /// Asks a host with its smallest update; lowers the bound to its best update if that is better.
    /// When it ends.
    fn consider(&mut self, facts: Facts<'_>, head: Low<Offer>) -> u64 {
        let Facts { ledger, places, .. } = facts;
        let Low { place: at, number, about: offer } = head;
        if self.is_found && self.best_host == at {
            return self.bound.0;
        }
        let finish_ns = self.line.ask(ledger, &offer);
        if finish_ns > self.bound.0 {
            return finish_ns;
        }
        let Standing { size_bytes, mut rank, .. } = places.update(number);
        // Rounding up to nanoseconds can make sizes equal that differ by this much.
        let nearly = size_bytes.saturating_add(self.hosts[at].capacity / NS_PER_SEC + 1);
        let mut asked = size_bytes;
        let others = self.queue(at).iter().rev().skip(1).map(|place| places.update(*place));
        for other in others.take_while(|other| other.size_bytes <= nearly) {
            if other.size_bytes > asked {
                if self.line.ask(ledger, &offer.resized(other.size_bytes)) != finish_ns {
                    break;
                }
                asked = other.size_bytes;
            }
            rank = rank.min(other.rank);
        }
        if (finish_ns, rank) < self.bound {
            if finish_ns < self.bound.0 {
                self.line.limit(finish_ns);
            }
            self.bound = (finish_ns, rank);
            (self.best_host, self.is_found) = (at, true);
        }
        finish_ns
    }

    /// The answer when some shared link has nothing left, ever.
    fn unreachable(&self, facts: Facts<'_>) -> Option<(u64, u32)> {
        let heads = (0..self.hosts.len()).filter_map(|at| self.queue(at).last());
        heads.map(|place| (u64::MAX, facts.places.update(*place).rank)).min()
    }
}

/// The update that stands at a place, from a host.
fn offers(hosts: &[PoolHost], places: &Places) -> impl Fn(usize, u32) -> Offer {
    |at, place| {
        let PoolHost { up, capacity, .. } = hosts[at];
        Offer::new(up, capacity, places.update(place).size_bytes)
    }
}

#[cfg(test)]
mod tests;
