//! Tries every way to plan a small case, and knows the least cost.

use alloc::vec::Vec;

use crate::case::{Case, HostId, Objective};
use crate::net::ledger::Ledger;

/// The least cost of a case with one server: the sum of its commits' instants, or the last of them.
#[must_use]
pub fn best_cost(case: &Case) -> u128 {
    Oracle::new(case).run()
}

/// What commits at once.
#[derive(Clone, Copy, Debug)]
struct Item {
    arrival_ns: u64,
    members: i64,
    /// The last position that its first member may have.
    start_max: i64,
}

struct Oracle<'a> {
    case: &'a Case,
    ledger: Ledger,
    best: u128,
    sent: Vec<bool>,
    items: Vec<Item>,
    /// By update: its arrival if it were alone.
    alone_ns: Vec<u64>,
}

/// A group while it grows.
#[derive(Clone)]
struct Growing {
    aggregator: HostId,
    deadlines: Vec<i64>,
    ready_ns: u64,
    size_bytes: u64,
}

impl<'a> Oracle<'a> {
    fn new(case: &'a Case) -> Self {
        let ledger = Ledger::new(case);
        let alone_ns = |id| {
            let update = case.update(id);
            let path = ledger.path(update.host, case.server(update.server).host);
            ledger.probe(&path, case.now_ns, update.size_bytes).unwrap_or(u64::MAX)
        };
        let alone_ns = case.update_ids().map(alone_ns).collect();
        let sent = vec![false; case.updates.len()];
        Self { case, ledger, best: u128::MAX, sent, items: Vec::new(), alone_ns }
    }

    fn run(mut self) -> u128 {
        self.extend();
        self.best
    }

    /// At least this is the cost of any way to go on, with `open` in a group that grows.
    fn least(&self) -> u128 {
        let left = self.sent.iter().zip(&self.alone_ns).filter(|(sent, _)| !**sent);
        let left = left.map(|(_, at_ns)| (u128::from(*at_ns), 1));
        let known =
            self.items.iter().map(|i| (u128::from(i.arrival_ns), i.members.cast_unsigned()));
        let all = known.chain(left);
        match self.case.options.objective {
            Objective::Mean => all.map(|(at_ns, count)| at_ns * u128::from(count)).sum(),
            Objective::Last => all.map(|(at_ns, _)| at_ns).max().unwrap_or(0),
        }
    }

    /// Goes on with every update that may be next: direct, or as the first of a group.
    fn extend(&mut self) {
        if self.least() >= self.best {
            return;
        }
        if self.sent.iter().all(|sent| *sent) {
            let commits = commits(&self.items, self.case.servers[0].commit_from_ns);
            let cost = match self.case.options.objective {
                Objective::Mean => commits.map(|(sum, _)| sum),
                Objective::Last => commits.map(|(_, last_ns)| u128::from(last_ns)),
            };
            self.best = self.best.min(cost.unwrap_or(u128::MAX));
            return;
        }
        for id in self.case.update_ids() {
            if self.sent[id.index()] {
                continue;
            }
            self.sent[id.index()] = true;
            let update = self.case.update(id);
            let (size_bytes, deadline) = (update.size_bytes, self.case.deadline(id));
            let mark = self.ledger.mark();
            if let Some(arrival_ns) =
                self.send(update.host, self.server(), self.case.now_ns, size_bytes)
            {
                self.items.push(Item { arrival_ns, members: 1, start_max: deadline });
                self.extend();
                self.items.pop();
            }
            self.ledger.rollback(mark);
            for aggregator in self.case.aggregators.clone() {
                if let Some(ready_ns) =
                    self.send(update.host, aggregator, self.case.now_ns, size_bytes)
                {
                    let deadlines = vec![deadline];
                    self.join(&Growing { aggregator, deadlines, ready_ns, size_bytes });
                }
                self.ledger.rollback(mark);
            }
            self.sent[id.index()] = false;
        }
    }

    /// Adds every update that may be next to a group, or closes it.
    fn join(&mut self, group: &Growing) {
        let mark = self.ledger.mark();
        let Growing { aggregator, ready_ns, size_bytes, .. } = *group;
        if group.deadlines.len() > 1 {
            if let Some(arrival_ns) = self.send(aggregator, self.server(), ready_ns, size_bytes) {
                let mut deadlines = group.deadlines.clone();
                deadlines.sort_unstable();
                let starts = deadlines.iter().zip(0..).map(|(deadline, before)| deadline - before);
                let start_max = starts.min().unwrap_or(i64::MAX);
                let members = i64::try_from(deadlines.len()).unwrap_or(i64::MAX);
                self.items.push(Item { arrival_ns, members, start_max });
                self.extend();
                self.items.pop();
            }
            self.ledger.rollback(mark);
        }
        for id in self.case.update_ids() {
            if self.sent[id.index()] {
                continue;
            }
            self.sent[id.index()] = true;
            let update = self.case.update(id);
            let arrival = self.send(update.host, aggregator, self.case.now_ns, update.size_bytes);
            if let Some(arrival_ns) = arrival {
                let mut grown = group.clone();
                grown.deadlines.push(self.case.deadline(id));
                grown.ready_ns = ready_ns.max(arrival_ns);
                grown.size_bytes = size_bytes.max(update.size_bytes);
                self.join(&grown);
            }
            self.ledger.rollback(mark);
            self.sent[id.index()] = false;
        }
    }

    fn server(&self) -> HostId {
        self.case.servers[0].host
    }

    fn send(&mut self, from: HostId, to: HostId, from_ns: u64, size_bytes: u64) -> Option<u64> {
        let path = self.ledger.path(from, to);
        let mut segments = Vec::new();
        let arrival_ns = self.ledger.probe_segments(&path, from_ns, size_bytes, &mut segments)?;
        self.ledger.reserve(&path, &segments);
        Some(arrival_ns)
    }
}

/// Sum and last of the instants at which what arrives is committed; none if no order is in time.
/// The next is always the earliest to arrive that leaves the others in time.
fn commits(items: &[Item], from_ns: u64) -> Option<(u128, u64)> {
    let mut left = items.to_vec();
    left.sort_by_key(|item| (item.arrival_ns, item.start_max));
    let (mut position, mut sum, mut last_ns) = (0, 0, from_ns);
    while !left.is_empty() {
        let is_harmless = |index: &usize| {
            let next = left[*index];
            let others = left.iter().enumerate().filter(|(other, _)| other != index);
            next.start_max >= position
                && fit(others.map(|(_, item)| *item).collect(), position + next.members)
        };
        let next = left.remove((0..left.len()).find(is_harmless)?);
        last_ns = last_ns.max(next.arrival_ns);
        sum += u128::from(last_ns) * u128::from(next.members.cast_unsigned());
        position += next.members;
    }
    Some((sum, last_ns))
}

/// Whether some order has all of them in time from a position on: earliest end first has if any.
fn fit(mut items: Vec<Item>, mut position: i64) -> bool {
    items.sort_by_key(|item| item.start_max.saturating_add(item.members));
    items.iter().all(|item| {
        let is_in_time = item.start_max >= position;
        position += item.members;
        is_in_time
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn item(arrival_ns: u64, members: i64, start_max: i64) -> Item {
        Item { arrival_ns, members, start_max }
    }

    #[test]
    fn what_must_be_early_is_waited_for() {
        let loose = [item(1, 1, 9), item(3, 2, 9), item(2, 1, 9)];
        assert_eq!(commits(&loose, 0), Some((1 + 2 + 2 * 3, 3)));
        // The late one has to be the second.
        let tight = [item(1, 1, 9), item(2, 1, 9), item(5, 1, 1)];
        assert_eq!(commits(&tight, 0), Some((1 + 5 + 5, 5)));
        assert_eq!(commits(&[item(1, 1, 0), item(1, 1, 0)], 0), None);
    }
}
