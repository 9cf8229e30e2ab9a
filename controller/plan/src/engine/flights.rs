//! Decides what is still promised of the network, and which transfer's end opens a gate.
//!
//! A *flight* is a granted transfer that has not arrived. Invariants: a flight keeps its promise
//! until it has arrived (no pre-emption), and beyond its planned end while it is late; a waiter of a
//! flight is told exactly once. One ledger for all jobs: the flights of every job are here.

use std::collections::BTreeMap;

use weft_wire::{JobId, Rank};

use crate::case::{HostId, Reservation, Segment};
use crate::net::topology::Topology;

use super::message::TransferKey;

/// All flights.
#[derive(Clone, Debug, Default)]
pub(super) struct Flights {
    flights: BTreeMap<TransferKey, Flight>,
    waiters: BTreeMap<TransferKey, Vec<Waiter>>,
    timed: BTreeMap<(u64, u64), Waiter>,
    timed_count: u64,
    /// Flights into servers, by host.
    arriving: Vec<u32>,
}

/// A transfer under way, or about to be.
#[derive(Clone, Debug)]
pub(super) struct Flight {
    pub(super) from: HostId,
    pub(super) to: HostId,
    /// As planned.
    pub(super) segments: Vec<Segment>,
}

/// A segment of a grant that waits for its gate.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Waiter {
    pub(super) job: JobId,
    pub(super) rank: Rank,
    pub(super) update_id: u64,
    pub(super) segment: u32,
}

impl Flight {
    fn start_ns(&self) -> u64 {
        self.segments.first().map_or(0, |segment| segment.from_ns)
    }

    fn end_ns(&self) -> u64 {
        self.segments.last().map_or(0, |segment| segment.to_ns)
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

    pub(super) fn insert(&mut self, key: TransferKey, flight: Flight) {
        if let TransferKey::Sum(_) = key {
            self.arriving[flight.to.index()] += 1;
        }
        self.flights.insert(key, flight);
    }

    pub(super) fn get(&self, key: TransferKey) -> Option<&Flight> {
        self.flights.get(&key)
    }

    /// Transfers under way into the servers on a host.
    pub(super) fn arriving(&self, host: HostId) -> u32 {
        self.arriving[host.index()]
    }

    /// Ends a flight and returns who waited for it.
    pub(super) fn finish(&mut self, key: TransferKey) -> Vec<Waiter> {
        if let Some(flight) = self.flights.remove(&key)
            && let TransferKey::Sum(_) = key
        {
            self.arriving[flight.to.index()] -= 1;
        }
        self.waiters.remove(&key).unwrap_or_default()
    }

    /// Ends all flights of a group.
    pub(super) fn finish_group(&mut self, group: weft_wire::GroupId) -> Vec<Waiter> {
        let first = Rank::new(0).map(|rank| TransferKey::Member(group, rank));
        let last = Rank::new(63).map(|rank| TransferKey::Member(group, rank));
        let mut keys = vec![TransferKey::Sum(group), TransferKey::Copy(group)];
        if let (Some(first), Some(last)) = (first, last) {
            keys.extend(self.flights.range(first..=last).map(|(key, _)| *key));
        }
        keys.into_iter().flat_map(|key| self.finish(key)).collect()
    }

    /// Has a segment wait for a flight.
    pub(super) fn wait(&mut self, key: TransferKey, waiter: Waiter) {
        self.waiters.entry(key).or_default().push(waiter);
    }

    /// Has a segment wait for an instant.
    pub(super) fn wait_until(&mut self, at_ns: u64, waiter: Waiter) {
        self.timed_count += 1;
        self.timed.insert((at_ns, self.timed_count), waiter);
    }

    /// When the next instant is that a segment waits for.
    pub(super) fn next_timed_ns(&self) -> Option<u64> {
        self.timed.first_key_value().map(|((at_ns, _), _)| *at_ns)
    }

    /// A segment whose instant has come.
    pub(super) fn pop_timed(&mut self, now_ns: u64) -> Option<Waiter> {
        let entry = self.timed.first_entry()?;
        (entry.key().0 <= now_ns).then(|| entry.remove())
    }

    /// Forgets what a worker's update waits for.
    pub(super) fn forget(&mut self, job: JobId, rank: Rank, update_id: u64) {
        let is_other =
            |waiter: &Waiter| (waiter.job, waiter.rank, waiter.update_id) != (job, rank, update_id);
        for waiters in self.waiters.values_mut() {
            waiters.retain(is_other);
        }
        self.timed.retain(|_, waiter| is_other(waiter));
    }

    /// What is promised from `now_ns` on. A late flight keeps its last rate for a fifth of its
    /// planned duration more, each time anew.
    pub(super) fn reservations(&self, now_ns: u64, out: &mut Vec<Reservation>) {
        for flight in self.flights.values() {
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

    /// The flight whose end opens a transfer that starts at `start_ns` from `from` to `to`: of those
    /// that share a link with it and end by then, the last to end.
    pub(super) fn opener(
        &self,
        topology: &Topology,
        (from, to): (HostId, HostId),
        start_ns: u64,
        is_eligible: impl Fn(TransferKey) -> bool,
    ) -> Option<TransferKey> {
        let path = topology.path(from, to);
        let shares = |flight: &Flight| {
            let other = topology.path(flight.from, flight.to);
            other.links().iter().any(|link| path.links().contains(link))
        };
        self.flights
            .iter()
            .filter(|(key, flight)| {
                flight.end_ns() <= start_ns.saturating_add(TOLERANCE_NS)
                    && is_eligible(**key)
                    && shares(flight)
            })
            .max_by_key(|(key, flight)| (flight.end_ns(), **key))
            .map(|(key, _)| *key)
    }
}

/// Least extension of a late flight's promise.
const LATE_NS_MIN: u64 = 1_000_000;
/// Plans round instants up.
const TOLERANCE_NS: u64 = 1000;
