//! Decides where hosts and updates stand in a [`super::pool::Pool`], as numbers that compare fast.

use alloc::vec::Vec;
use core::cmp::Reverse;

use crate::case::{Case, HostId, UpdateId};

use super::pairs;

/// Hosts by uplink, largest first, and updates by (size, name), smallest first.
#[derive(Debug)]
pub(super) struct Places {
    hosts: Vec<HostId>,
    /// By host: where it stands.
    of_host: Vec<u32>,
    updates: Vec<Standing>,
    /// By update: where it stands.
    of_update: Vec<u32>,
}

/// What an update's place stands for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Standing {
    pub(super) size_bytes: u64,
    pub(super) rank: u32,
    /// The first place with a larger size; the number of updates if there is none.
    larger: u32,
}

impl Places {
    /// Of a case whose updates by rank are `by_rank`.
    pub(super) fn new(case: &Case, by_rank: &[UpdateId]) -> Self {
        let mut hosts: Vec<HostId> = (0..case.hosts.len()).map(HostId::from_index).collect();
        hosts.sort_unstable_by_key(|host| (Reverse(case.host(*host).up_bytes_per_sec), *host));
        let mut of_host = vec![0; hosts.len()];
        for (host, place) in hosts.iter().zip(0..) {
            of_host[host.index()] = place;
        }
        let ranked = by_rank.iter().zip(0..);
        let mut pairs: Vec<(u64, u32)> =
            ranked.map(|(id, rank)| (case.update(*id).size_bytes, rank)).collect();
        pairs::sort(&mut pairs);
        let mut of_update = vec![0; pairs.len()];
        let mut updates = Vec::with_capacity(pairs.len());
        for ((size_bytes, rank), place) in pairs.into_iter().zip(0..) {
            of_update[by_rank[rank as usize].index()] = place;
            updates.push(Standing { size_bytes, rank, larger: place + 1 });
        }
        for place in (1..updates.len()).rev() {
            if updates[place - 1].size_bytes == updates[place].size_bytes {
                updates[place - 1].larger = updates[place].larger;
            }
        }
        Self { hosts, of_host, updates, of_update }
    }

    /// Where a host stands.
    pub(super) fn of_host(&self, host: HostId) -> u32 {
        self.of_host[host.index()]
    }

    /// The host that stands there.
    pub(super) fn host(&self, place: u32) -> HostId {
        self.hosts[place as usize]
    }

    /// Where an update stands.
    pub(super) fn of_update(&self, id: UpdateId) -> u32 {
        self.of_update[id.index()]
    }

    /// The update that stands there.
    pub(super) fn update(&self, place: u32) -> Standing {
        self.updates[place as usize]
    }

    /// The smallest size above that of the update that stands there.
    pub(super) fn larger(&self, place: u32) -> Option<u64> {
        let larger = self.updates[place as usize].larger;
        self.updates.get(larger as usize).map(|update| update.size_bytes)
    }
}
