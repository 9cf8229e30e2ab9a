//! Decides where hosts stand in a [`super::pool::Pool`], and sorts updates by that.

use std::cmp::Reverse;

use crate::case::{Case, HostId, UpdateId};

/// Hosts by uplink, largest first.
#[derive(Debug)]
pub(super) struct Places {
    hosts: Vec<HostId>,
    /// By host: where it stands.
    of: Vec<u32>,
}

impl Places {
    pub(super) fn new(case: &Case) -> Self {
        let mut hosts: Vec<HostId> = (0..case.hosts.len()).map(HostId::from_index).collect();
        hosts.sort_unstable_by_key(|host| (Reverse(case.host(*host).up_bytes_per_sec), *host));
        let mut of = vec![0; hosts.len()];
        for (host, place) in hosts.iter().zip(0..) {
            of[host.index()] = place;
        }
        Self { hosts, of }
    }

    /// Where a host stands.
    pub(super) fn of(&self, host: HostId) -> u32 {
        self.of[host.index()]
    }

    /// The host that stands there.
    pub(super) fn host(&self, place: u32) -> HostId {
        self.hosts[place as usize]
    }

    /// Place of the host, then size and rank, largest first, as one number to sort by.
    pub(super) fn key(&self, case: &Case, id: UpdateId) -> u128 {
        let update = case.update(id);
        let place = self.of(update.host);
        let (size, rank) = (!update.size_bytes, !case.ranks[id.index()]);
        u128::from(place) << 96 | u128::from(size) << 32 | u128::from(rank)
    }

    /// Place, and (size, rank), of such a number.
    #[expect(clippy::cast_possible_truncation, reason = "its parts")]
    pub(super) const fn split(key: u128) -> (u32, (u64, u32)) {
        ((key >> 96) as u32, (!((key >> 32) as u64), !(key as u32)))
    }
}
