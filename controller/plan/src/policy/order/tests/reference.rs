//! The rules of the ordering as they are written down: everybody is asked before every pick, and
//! nothing is kept from one pick to the next.

use alloc::vec::Vec;

use super::*;
use crate::case::Update;

/// What [`order`] is to decide where the mean commit time counts.
pub(super) fn order(case: &Case, ledger: &mut Ledger) -> Ordered {
    let mut reference = Reference::new(case, ledger);
    while let Some((server, forced, id)) = reference.next() {
        if forced && reference.holds_up(server, id) {
            reference.take_out(server, id);
            reference.drops.push(true);
            reference.out.dropped.push((id, DropReason::DelaysOthers));
        } else {
            reference.commit(server, id);
        }
    }
    reference.out
}

struct Reference<'a> {
    case: &'a Case,
    ledger: &'a mut Ledger,
    /// By server, by (deadline, name).
    waiting: Vec<Vec<UpdateId>>,
    last_commits_ns: Vec<u64>,
    /// For every update that was sent or dropped by rule 3, and before: whether it was dropped.
    drops: Vec<bool>,
    out: Ordered,
}

impl<'a> Reference<'a> {
    fn new(case: &'a Case, ledger: &'a mut Ledger) -> Self {
        let (window, recent) = (case.options.drop_window, case.options.recent_drops);
        let mut reference = Self {
            case,
            ledger,
            waiting: vec![Vec::new(); case.servers.len()],
            last_commits_ns: case.servers.iter().map(|s| s.commit_from_ns).collect(),
            drops: (0..window).map(|i| i + recent >= window).collect(),
            out: Ordered {
                sequences: vec![Vec::new(); case.servers.len()],
                dropped: Vec::new(),
                transfers: vec![None; case.updates.len()],
            },
        };
        for id in case.update_ids() {
            if case.deadline(id) < 0 {
                reference.out.dropped.push((id, DropReason::TooOld));
            } else {
                reference.waiting[case.update(id).server.index()].push(id);
            }
        }
        for server in 0..case.servers.len() {
            reference.make_fit(server);
        }
        reference.reserve_thin();
        reference
    }

    /// Drops, from the shortest prefix that has too many, who would end last.
    fn make_fit(&mut self, server: usize) {
        let case = self.case;
        let mut ids = core::mem::take(&mut self.waiting[server]);
        ids.sort_by_key(|id| (case.deadline(*id), case.ranks[id.index()]));
        let all = ids.clone();
        while let Some(n) = (0..ids.len()).find(|n| case.deadline(ids[*n]) < *n as i64) {
            let last = (0..=n).max_by_key(|at| {
                let (finish_ns, rank) = self.key(ids[*at]);
                (finish_ns, self.in_the_way_ns(ids[*at], &all), rank)
            });
            let last = last.unwrap();
            self.out.dropped.push((ids.remove(last), DropReason::DeadlineCluster));
        }
        self.waiting[server] = ids;
    }

    fn reserve_thin(&mut self) {
        let case = self.case;
        let mut thin: Vec<UpdateId> = self.waiting.iter().flatten().copied().collect();
        thin.retain(|id| {
            let Update { host, server, .. } = case.update(*id);
            let down = case.host(case.server(*server).host).down_bytes_per_sec as f64;
            (case.host(*host).up_bytes_per_sec as f64) < down * case.options.thin_flow_share
        });
        thin.sort_by_cached_key(|id| self.key(*id));
        for id in thin {
            self.out.transfers[id.index()] = self.send(id);
        }
    }

    /// By how much an update holds each of the others up, together.
    fn in_the_way_ns(&self, id: UpdateId, all: &[UpdateId]) -> u128 {
        let own = self.case.update(id);
        let down = self.case.host(self.case.server(own.server).host).down_bytes_per_sec;
        let others = all.iter().filter(|other| **other != id);
        let wait_ns = |other: &UpdateId| {
            let up = self.case.host(own.host).up_bytes_per_sec;
            let is_beside = self.case.update(*other).host == own.host;
            let rate = if is_beside { up.min(down) } else { down };
            u128::from(own.size_bytes) * 1_000_000_000 / u128::from(rate)
        };
        others.map(wait_ns).sum()
    }

    /// When an update would end, and its name's rank.
    fn key(&self, id: UpdateId) -> (u64, u32) {
        let rank = self.case.ranks[id.index()];
        if let Some(transfer) = &self.out.transfers[id.index()] {
            return (transfer.arrival_ns, rank);
        }
        let update = self.case.update(id);
        let path = direct_path(self.case, self.ledger, update);
        let finish = self.ledger.probe(&path, self.case.now_ns, update.size_bytes);
        (finish.unwrap_or(u64::MAX), rank)
    }

    /// Reserves an update's path.
    fn send(&mut self, id: UpdateId) -> Option<Transfer> {
        let update = self.case.update(id);
        let path = direct_path(self.case, self.ledger, update);
        let (now_ns, mut segments) = (self.case.now_ns, Vec::new());
        let arrival_ns =
            self.ledger.probe_segments(&path, now_ns, update.size_bytes, &mut segments)?;
        self.ledger.reserve(&path, &segments);
        Some(Transfer { arrival_ns, commit_ns: arrival_ns, via: None, segments })
    }

    /// How many of a server's updates, by deadline, the next slot must go to.
    fn choice(&self, server: usize) -> usize {
        let (ids, slot) = (&self.waiting[server], self.out.sequences[server].len() as i64);
        let tight = (0..ids.len()).find(|n| self.case.deadline(ids[*n]) - slot == *n as i64);
        tight.map_or(ids.len(), |n| n + 1)
    }

    /// Who goes next, and whether others would if it were not for deadlines.
    fn next(&self) -> Option<(usize, bool, UpdateId)> {
        let servers = 0..self.waiting.len();
        let choices = servers.flat_map(|server| {
            let (ids, choice) = (&self.waiting[server], self.choice(server));
            ids[..choice].iter().map(move |id| (server, choice < ids.len(), *id))
        });
        choices.min_by_key(|(_, _, id)| self.key(*id))
    }

    /// Rule 3.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a threshold; saturates"
    )]
    fn holds_up(&mut self, server: usize, id: UpdateId) -> bool {
        let (case, options) = (self.case, &self.case.options);
        let recent = self.drops.len() - options.drop_window as usize;
        let dropped = self.drops[recent..].iter().filter(|dropped| **dropped).count();
        let is_allowed = (dropped as f64) < options.drop_limit * f64::from(options.drop_window);
        let is_fixed = self.out.transfers[id.index()].is_some();
        if options.no_drop || is_fixed || !is_allowed || case.update(id).dropped_before {
            return false;
        }
        let own = case.update_ids().filter(|other| case.update(*other).server.index() == server);
        let mut times: Vec<u64> = own.map(|other| uncontended_ns(case, other)).collect();
        times.sort_unstable();
        let threshold_ns = (times[times.len() / 2] as f64 * options.theta) as u64;
        let last_ns = self.last_commits_ns[server];
        let free = self.waiting[server][self.choice(server)..].iter();
        let free_ns = free.map(|other| self.key(*other).0).min().unwrap();
        if self.key(id).0.saturating_sub(free_ns.max(last_ns)) <= threshold_ns {
            return false;
        }
        let mut others = self.waiting[server].clone();
        others.retain(|other| *other != id && self.out.transfers[other.index()].is_none());
        others.sort_by_key(|other| (uncontended_ns(case, *other), case.ranks[other.index()]));
        others.truncate(drops::LOOKAHEAD);
        others.sort_by_key(|other| (case.deadline(*other), case.ranks[other.index()]));
        let slot = self.out.sequences[server].len() as i64;
        let mark = self.ledger.mark();
        let without = self.ahead(others.clone(), slot, last_ns);
        self.ledger.rollback(mark);
        let finish_ns = self.send(id).map_or(u64::MAX, |transfer| transfer.arrival_ns);
        let with = self.ahead(others.clone(), slot + 1, last_ns.max(finish_ns));
        self.ledger.rollback(mark);
        with > without + u128::from(threshold_ns) * others.len() as u128
    }

    /// Sum of the commit instants of `others`, by deadline.
    fn ahead(&mut self, mut others: Vec<UpdateId>, mut slot: i64, mut last_ns: u64) -> u128 {
        let mut sum = 0;
        while !others.is_empty() {
            let deadline = |n: &usize| self.case.deadline(others[*n]);
            let tight = (0..others.len()).find(|n| deadline(n) - slot <= *n as i64);
            let choice = 0..tight.map_or(others.len(), |n| n + 1);
            let next = choice.min_by_key(|at| self.key(others[*at])).unwrap();
            let transfer = self.send(others.remove(next));
            last_ns = last_ns.max(transfer.map_or(u64::MAX, |transfer| transfer.arrival_ns));
            sum += u128::from(last_ns);
            slot += 1;
        }
        sum
    }

    fn commit(&mut self, server: usize, id: UpdateId) {
        self.take_out(server, id);
        let fixed = self.out.transfers[id.index()].take();
        let Some(mut transfer) = fixed.or_else(|| self.send(id)) else {
            self.out.dropped.push((id, DropReason::NoBandwidth));
            return;
        };
        let last_ns = &mut self.last_commits_ns[server];
        *last_ns = transfer.arrival_ns.max(*last_ns);
        transfer.commit_ns = *last_ns;
        self.out.transfers[id.index()] = Some(transfer);
        self.out.sequences[server].push(id);
        self.drops.push(false);
    }

    fn take_out(&mut self, server: usize, id: UpdateId) {
        self.waiting[server].retain(|other| *other != id);
    }
}

/// Transfer time on links that carry nothing else.
fn uncontended_ns(case: &Case, id: UpdateId) -> u64 {
    let update = case.update(id);
    let up = case.host(update.host).up_bytes_per_sec;
    let down = case.host(case.server(update.server).host).down_bytes_per_sec;
    let time_ns = u128::from(update.size_bytes) * 1_000_000_000 / u128::from(up.min(down));
    u64::try_from(time_ns).unwrap_or(u64::MAX)
}
