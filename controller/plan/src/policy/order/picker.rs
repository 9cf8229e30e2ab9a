//! Finds the update of a set that would end first, for one server.
//!
//! The set is split by the rack that updates come from, so that all updates of one [`Pool`] share
//! everything of their path but the first link. What ends at a known instant anyhow (a worker on
//! the server's host, a thin flow that is reserved already) is kept apart.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use crate::case::{Case, Segment, UpdateId};
use crate::net::ledger::Ledger;
use crate::plan::Transfer;

use super::direct_path;
use super::pool::{Facts, Pool};

/// An update and when it would end.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Candidate {
    pub(super) finish_ns: u64,
    pub(super) rank: u32,
    pub(super) id: UpdateId,
}

impl Candidate {
    /// What candidates are compared by.
    pub(super) const fn key(&self) -> (u64, u32) {
        (self.finish_ns, self.rank)
    }
}

/// A set of updates for one server.
#[derive(Debug)]
pub(super) struct Picker {
    pools: Vec<Pool>,
    fixed: BTreeSet<(u64, u32)>,
    count: usize,
}

impl Picker {
    /// `fixed` holds the transfers of updates that are reserved already.
    pub(super) fn new(facts: Facts<'_>, ids: &[UpdateId], fixed: &[Option<Transfer>]) -> Self {
        let Facts { case, ledger, .. } = facts;
        let mut picker = Self { pools: Vec::new(), fixed: BTreeSet::new(), count: ids.len() };
        let mut free: Vec<UpdateId> = Vec::with_capacity(ids.len());
        for id in ids {
            match picker.fixed_finish_ns(case, *id, fixed) {
                Some(finish_ns) => {
                    picker.fixed.insert((finish_ns, case.ranks[id.index()]));
                }
                None => free.push(*id),
            }
        }
        let rack = |id: &UpdateId| ledger.topology().rack(case.update(*id).host);
        if ledger.topology().rack_count() > 0 {
            free.sort_unstable_by_key(rack);
        }
        for pool in free.chunk_by(|a, b| rack(a) == rack(b)) {
            picker.pools.push(Pool::new(facts, pool));
        }
        picker
    }

    pub(super) const fn len(&self) -> usize {
        self.count
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The candidate with the smallest (finish, name).
    pub(super) fn best(&mut self, facts: Facts<'_>, by_rank: &[UpdateId]) -> Option<Candidate> {
        let mut best = self.fixed.first().copied();
        for pool in &mut self.pools {
            if best.is_none_or(|best| pool.key() < best)
                && let Some(key) = pool.best(facts, best)
                && best.is_none_or(|best| key < best)
            {
                best = Some(key);
            }
        }
        let (finish_ns, rank) = best?;
        Some(Candidate { finish_ns, rank, id: by_rank[rank as usize] })
    }

    /// Writes the rates of the best, as it was just found, and returns its end; none where that is
    /// to be asked of the ledger.
    pub(super) fn send(
        &self,
        facts: Facts<'_>,
        best: Candidate,
        segments: &mut Vec<Segment>,
    ) -> Option<u64> {
        let size_bytes = facts.case.update(best.id).size_bytes;
        let mut pools = self.pools.iter();
        pools.find_map(|pool| pool.send(facts, best.key(), size_bytes, segments))
    }

    /// Takes an update out of the set.
    pub(super) fn remove(&mut self, facts: Facts<'_>, id: UpdateId) {
        self.count -= 1;
        let taken = self.pools.iter_mut().any(|pool| pool.remove(facts, id));
        if !taken {
            let rank = facts.case.ranks[id.index()];
            self.fixed.retain(|(_, other)| *other != rank);
        }
    }

    fn fixed_finish_ns(
        &self,
        case: &Case,
        id: UpdateId,
        fixed: &[Option<Transfer>],
    ) -> Option<u64> {
        let update = case.update(id);
        if let Some(transfer) = &fixed[id.index()] {
            return Some(transfer.arrival_ns);
        }
        (update.host == case.server(update.server).host).then_some(case.now_ns)
    }
}

/// Reserves flows so thin that starting them at once hardly takes anything from the others
/// (*derived*, off by default); they keep their place in the order by their finish.
pub(super) fn reserve_thin(
    case: &Case,
    ledger: &mut Ledger,
    waiting: &[Vec<UpdateId>],
    transfers: &mut [Option<Transfer>],
) {
    let share = case.options.thin_flow_share;
    if share > 0.0 {
        let is_thin = |id: &UpdateId| {
            let update = case.update(*id);
            let server = case.host(case.server(update.server).host);
            (case.host(update.host).up_bytes_per_sec as f64)
                < server.down_bytes_per_sec as f64 * share
        };
        let mut thin: Vec<UpdateId> = waiting.iter().flatten().copied().filter(is_thin).collect();
        thin.sort_by_cached_key(|id| {
            let update = case.update(*id);
            let path = direct_path(case, ledger, update);
            (ledger.probe(&path, case.now_ns, update.size_bytes), case.ranks[id.index()])
        });
        for id in thin {
            let update = case.update(id);
            let path = direct_path(case, ledger, update);
            let mut segments = Vec::new();
            if let Some(arrival_ns) =
                ledger.probe_segments(&path, case.now_ns, update.size_bytes, &mut segments)
            {
                ledger.reserve(&path, &segments);
                let commit_ns = arrival_ns;
                transfers[id.index()] =
                    Some(Transfer { arrival_ns, commit_ns, via: None, segments });
            }
        }
    }
}
