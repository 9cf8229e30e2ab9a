//! Decides which consecutive updates are summed on the way, and where.
//!
//! The first `nd` updates of a server's sequence go direct; the rest is cut greedily into groups,
//! each as long as its last member is at the aggregator when the server has everything before the
//! group, so the server's link never waits for an aggregator. A group of one goes direct. All `nd`
//! are tried and the best for the objective is kept; ties keep the smallest. The order is kept, and
//! a group of k updates advances the version by k, so deadlines survive.
//!
//! A live controller relaxes this, for its workers ask anew at once (*derived*, off in `weft
//! plan`): a sum streams while its last member arrives, the server's link may wait for a group,
//! each transfer into the server has a price, and slow updates are relayed (`search`, `relay`).
//!
//! Source: MLfabric, aggregation; how groups are sized is *derived*. Servers are cut one after the
//! other: each may use what the direct plans of the later ones leave, so none gets worse than
//! direct. Cost: about three probes per update and `nd` tried; see
//! [`crate::case::Options::direct_search`].

use alloc::vec::Vec;
use core::mem;

use crate::case::{AggregatorChoice, Case, HostId, Objective, Segment, ServerId, UpdateId};
use crate::net::ledger::Ledger;
use crate::net::topology::Path;
use crate::plan::{Group, Hop, Transfer};

use super::order::{Ordered, direct_path};

mod relay;
mod search;

pub(super) use search::price;

#[cfg(test)]
mod tests;

/// Groups of every server in commit order, and each update's transfer.
#[derive(Clone, Debug, Default)]
pub struct Aggregated {
    /// By [`ServerId`].
    pub groups: Vec<Vec<Group>>,
    /// By [`UpdateId`].
    pub transfers: Vec<Option<Transfer>>,
}

/// Cuts the sequences of `ordered`, whose transfers are reserved in `ledger`, into groups.
#[must_use]
pub fn aggregate(case: &Case, ledger: &mut Ledger, ordered: &Ordered) -> Aggregated {
    let mut out = Aggregated {
        groups: case.server_ids().map(|server| direct(server, ordered)).collect(),
        transfers: ordered.transfers.clone(),
    };
    if case.options.no_aggregate || case.aggregators.is_empty() {
        return out;
    }
    for server in case.server_ids() {
        let sequence = &ordered.sequences[server.index()];
        if sequence.len() > usize::from(!case.options.stream_sums) {
            cut(case, ledger, server, sequence, &mut out);
        }
    }
    out
}

fn direct(server: ServerId, ordered: &Ordered) -> Vec<Group> {
    let groups = ordered.sequences[server.index()].iter().map(|id| {
        let commit_ns = ordered.transfers[id.index()].as_ref().map_or(0, |t| t.commit_ns);
        Group { server, members: vec![*id], via: None, forward: None, commit_ns }
    });
    groups.collect()
}

fn cut(
    case: &Case,
    ledger: &mut Ledger,
    server: ServerId,
    sequence: &[UpdateId],
    out: &mut Aggregated,
) {
    for id in sequence {
        if let Some(transfer) = &out.transfers[id.index()] {
            ledger.release(&direct_path(case, ledger, case.update(*id)), &transfer.segments);
        }
    }
    let start = ledger.mark();
    let mut cutter = Cutter::new(case, ledger, server, sequence);
    let direct = sequence.iter().filter_map(|id| Some((id, out.transfers[id.index()].as_ref()?)));
    let prices = direct.clone().map(|(id, _)| cutter.price(case.update(*id).size_bytes)).sum();
    let direct_cost = Cost::of(case.options.objective, direct.map(|(_, t)| t.commit_ns), prices);
    let mut best = (Cost::MAX, 0);
    let mut patience_ns = 0;
    for wait_ns in cutter.patiences() {
        cutter.patience_ns = wait_ns;
        let found = cutter.search();
        if found.0 < best.0 {
            (best, patience_ns) = (found, wait_ns);
        }
    }
    let (best, direct_count) = best;
    cutter.ledger.rollback(start);
    if best < direct_cost || case.options.stream_sums && best < Cost::MAX {
        let mut record = Record::default();
        cutter.reset();
        cutter.direct_count = direct_count;
        cutter.patience_ns = patience_ns;
        let cost = cutter.tail(None, Some(&mut record));
        debug_assert_eq!(cost, Some(best), "a cut that is played again is the same");
        for (id, transfer) in record.transfers {
            out.transfers[id.index()] = Some(transfer);
        }
        out.groups[server.index()] = record.groups;
    } else {
        for id in sequence {
            if let Some(transfer) = &out.transfers[id.index()] {
                ledger.reserve(&direct_path(case, ledger, case.update(*id)), &transfer.segments);
            }
        }
    }
    ledger.commit();
}

/// What a cut is judged by: the sum of commit instants and prices of the server's link, or the last
/// commit.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
struct Cost(u128);

impl Cost {
    const MAX: Self = Self(u128::MAX);

    fn of(objective: Objective, commits: impl Iterator<Item = u64>, prices: u128) -> Self {
        match objective {
            Objective::Mean => Self(commits.map(u128::from).sum::<u128>() + prices),
            Objective::Last => Self(commits.max().map_or(0, u128::from)),
        }
    }
}

struct Cutter<'a> {
    case: &'a Case,
    ledger: &'a mut Ledger,
    server: ServerId,
    sequence: &'a [UpdateId],
    /// Updates planned so far, their commits' sum, and the last of them.
    at: usize,
    sum: u128,
    done_ns: u64,
    next_aggregator: usize,
    /// Updates up to here go direct without a try.
    direct_count: usize,
    /// How long the server's link may wait for a group.
    patience_ns: u64,
    segments: Vec<Segment>,
    /// Ends of the group members' hops.
    arrivals: Vec<(u64, Vec<Segment>)>,
}

/// What a cut looks like, for the one that is kept.
#[derive(Default)]
struct Record {
    groups: Vec<Group>,
    transfers: Vec<(UpdateId, Transfer)>,
}

impl<'a> Cutter<'a> {
    fn new(
        case: &'a Case,
        ledger: &'a mut Ledger,
        server: ServerId,
        sequence: &'a [UpdateId],
    ) -> Self {
        Self {
            case,
            ledger,
            server,
            sequence,
            at: 0,
            sum: 0,
            done_ns: case.server(server).commit_from_ns,
            next_aggregator: 0,
            direct_count: 0,
            patience_ns: 0,
            segments: Vec::new(),
            arrivals: Vec::new(),
        }
    }

    fn reset(&mut self) {
        (self.at, self.sum, self.next_aggregator) = (0, 0, 0);
        self.done_ns = self.case.server(self.server).commit_from_ns;
    }

    /// Cuts what is left into groups; none if that cannot be better than `limit`.
    fn tail(&mut self, limit: Option<Cost>, mut record: Option<&mut Record>) -> Option<Cost> {
        while self.at < self.sequence.len() {
            if limit.is_some_and(|limit| self.least() > limit) {
                return None;
            }
            if self.at < self.direct_count || !self.go_together(record.as_deref_mut()) {
                self.go_direct(record.as_deref_mut())?;
            }
        }
        Some(self.least())
    }

    /// At least this is the cost of any way to go on.
    fn least(&self) -> Cost {
        match self.case.options.objective {
            Objective::Mean => {
                let left = (self.sequence.len() - self.at) as u128;
                Cost(self.sum + left * u128::from(self.done_ns))
            }
            Objective::Last => Cost(u128::from(self.done_ns)),
        }
    }

    /// Sends one update straight to the server; none if its path never has bandwidth.
    fn go_direct(&mut self, mut record: Option<&mut Record>) -> Option<()> {
        let id = self.sequence[self.at];
        let (update, server) = (self.case.update(id), self.case.server(self.server).host);
        let path = self.ledger.path(update.host, server);
        let arrival_ns = self.probe(&path, self.case.now_ns, update.size_bytes)?;
        if self.is_slow(id) {
            let direct = mem::take(&mut self.segments);
            if self.relay(id, arrival_ns, record.as_deref_mut()) {
                return Some(());
            }
            self.segments = direct;
        }
        self.ledger.reserve(&path, &self.segments);
        self.sum += self.price(update.size_bytes);
        let commit_ns = self.commit(1, arrival_ns);
        if let Some(record) = record {
            let segments = self.segments.clone();
            let transfer = Transfer { arrival_ns, commit_ns, via: None, segments };
            record.transfers.push((id, transfer));
            let (server, members) = (self.server, vec![id]);
            record.groups.push(Group { server, members, via: None, forward: None, commit_ns });
        }
        Some(())
    }

    /// Sends as many updates as are in time through the next aggregator; false if that is none or
    /// only one, for which a hop is no gain.
    fn go_together(&mut self, record: Option<&mut Record>) -> bool {
        let aggregator = self.choose();
        let mark = self.ledger.mark();
        let (mut count, mut ready_ns, mut size_bytes) = (0, 0, 0);
        let streams = self.case.options.stream_sums;
        self.arrivals.clear();
        while let Some(id) = self.sequence.get(self.at + count).copied() {
            let update = self.case.update(id);
            let path = self.ledger.path(update.host, aggregator);
            let arrival = self.probe(&path, self.case.now_ns, update.size_bytes);
            let overlap_ns = if streams { self.link_ns(update.size_bytes) } else { 0 };
            let by_ns = self.done_ns.saturating_add(overlap_ns).saturating_add(self.patience_ns);
            let Some(arrival_ns) = arrival.filter(|at_ns| *at_ns <= by_ns) else { break };
            self.ledger.reserve(&path, &self.segments);
            if record.is_some() {
                self.arrivals.push((arrival_ns, self.segments.clone()));
            }
            count += 1;
            ready_ns = ready_ns.max(arrival_ns);
            size_bytes = size_bytes.max(update.size_bytes);
        }
        let host = self.case.server(self.server).host;
        let last_ns = ready_ns;
        if streams {
            let overlap_ns = self.link_ns(size_bytes);
            ready_ns = ready_ns.saturating_sub(overlap_ns).max(self.case.now_ns);
        }
        let arrival = (count > 1).then(|| self.send(aggregator, host, ready_ns, size_bytes));
        let Some(arrival_ns) = arrival.flatten() else {
            self.ledger.rollback(mark);
            return false;
        };
        let arrival_ns = arrival_ns.max(last_ns);
        let first = self.at;
        self.sum += self.price(size_bytes);
        let commit_ns = self.commit(count, arrival_ns);
        if let Some(record) = record {
            let (server, members) = (self.server, self.sequence[first..self.at].to_vec());
            let via = Some(aggregator);
            for (id, (arrival_ns, segments)) in members.iter().zip(self.arrivals.drain(..)) {
                record.transfers.push((*id, Transfer { arrival_ns, commit_ns, via, segments }));
            }
            let forward = Some(Hop { ready_ns, arrival_ns, segments: self.segments.clone() });
            record.groups.push(Group { server, members, via, forward, commit_ns });
        }
        true
    }

    fn choose(&mut self) -> HostId {
        let aggregators = &self.case.aggregators;
        match self.case.options.aggregator_choice {
            AggregatorChoice::RoundRobin => {
                let aggregator = aggregators[self.next_aggregator % aggregators.len()];
                self.next_aggregator += 1;
                aggregator
            }
            AggregatorChoice::FirstFree => {
                let free_ns = |host: &HostId| {
                    let down = self.ledger.topology().down(*host);
                    let free_ns = self.ledger.link(down).first_free_ns(self.case.now_ns);
                    free_ns.unwrap_or(u64::MAX)
                };
                aggregators.iter().copied().min_by_key(free_ns).unwrap_or(aggregators[0])
            }
            AggregatorChoice::Earliest => {
                let update = self.case.update(self.sequence[self.at]);
                let arrival_ns = |host: &HostId| {
                    let path = self.ledger.path(update.host, *host);
                    // Two of its size: a group has a second member.
                    let arrival = self.ledger.probe(&path, self.case.now_ns, 2 * update.size_bytes);
                    arrival.unwrap_or(u64::MAX)
                };
                aggregators.iter().copied().min_by_key(arrival_ns).unwrap_or(aggregators[0])
            }
        }
    }

    /// Reserves a transfer's path; when it ends.
    fn send(&mut self, from: HostId, to: HostId, from_ns: u64, size_bytes: u64) -> Option<u64> {
        let path = self.ledger.path(from, to);
        let arrival_ns = self.probe(&path, from_ns, size_bytes)?;
        self.ledger.reserve(&path, &self.segments);
        Some(arrival_ns)
    }

    /// When a transfer would end, and by which segments.
    fn probe(&mut self, path: &Path, from_ns: u64, size_bytes: u64) -> Option<u64> {
        self.segments.clear();
        self.ledger.probe_segments(path, from_ns, size_bytes, &mut self.segments)
    }

    fn commit(&mut self, count: usize, arrival_ns: u64) -> u64 {
        self.done_ns = self.done_ns.max(arrival_ns);
        self.sum += u128::from(self.done_ns) * count as u128;
        self.at += count;
        self.done_ns
    }
}
