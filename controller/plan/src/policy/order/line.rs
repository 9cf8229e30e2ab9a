//! Asks about transfers whose paths differ in the first link only: the uplinks of their hosts.
//!
//! What they share (the server's downlink, and the racks' links) has nothing left up to some instant
//! T. A host whose uplink has no promises after T is *plain*: the finish of its update is a function
//! of its capacity and the size alone, falling in the one and rising in the other. For other hosts
//! that function is a lower bound.

use crate::case::Case;
use crate::net::ledger::Ledger;
use crate::net::profile::{Profile, Reach, amount};
use crate::net::topology::LinkId;

/// The links that are shared, and what they had left together when that was last looked up.
#[derive(Debug, Default)]
pub(super) struct Line {
    common: Vec<LinkId>,
    profile: Profile,
}

/// An update of a host in front of a line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Offer {
    up: LinkId,
    capacity: u64,
    size_bytes: u64,
    /// Its size as an amount, see [`amount`].
    amount: u64,
    /// How long that takes at least.
    time_ns: u64,
}

/// What an update must beat.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bound {
    /// (finish, rank).
    pub(super) best: (u64, u32),
    /// By that finish.
    reach: Reach,
}

impl Offer {
    pub(super) const fn new(up: LinkId, capacity: u64, size_bytes: u64) -> Self {
        let amount = amount(size_bytes);
        Self { up, capacity, size_bytes, amount, time_ns: amount / capacity }
    }

    /// Another size from the same host.
    pub(super) const fn resized(self, size_bytes: u64) -> Self {
        Self::new(self.up, self.capacity, size_bytes)
    }
}

impl Line {
    pub(super) fn new(common: &[LinkId]) -> Self {
        Self { common: common.to_vec(), profile: Profile::default() }
    }

    pub(super) fn common(&self) -> &[LinkId] {
        &self.common
    }

    /// Looks up what is left; false if that is nothing, ever.
    pub(super) fn look_up(&mut self, case: &Case, ledger: &Ledger) -> bool {
        ledger.profile(&self.common, case.now_ns, &mut self.profile)
    }

    /// The first instant with something left.
    pub(super) fn start_ns(&self) -> u64 {
        self.profile.start_ns()
    }

    /// What beats a (finish, rank).
    pub(super) fn bound(&self, best: (u64, u32)) -> Bound {
        Bound { best, reach: self.profile.reach(best.0) }
    }

    /// Whether an update may end by the bound. If its host is plain, it does.
    #[inline]
    pub(super) fn admits(&self, bound: &Bound, offer: &Offer) -> bool {
        offer.time_ns <= bound.reach.time_ns()
            && self.profile.carried(&bound.reach, offer.capacity) >= offer.amount
    }

    /// Whether an update of the first one's host and the second one's size may end by the bound.
    #[inline]
    pub(super) fn admits_both(&self, bound: &Bound, host: &Offer, size: &Offer) -> bool {
        self.profile.carried(&bound.reach, host.capacity) >= size.amount
    }

    /// Whether nothing is promised of a host's uplink once the links behind it are free.
    #[inline]
    pub(super) fn is_plain(&self, ledger: &Ledger, offer: &Offer) -> bool {
        ledger.link(offer.up).constant_from_ns() <= self.profile.start_ns()
    }

    /// When an update would end; [`u64::MAX`] for never.
    pub(super) fn ask(&self, case: &Case, ledger: &Ledger, offer: &Offer) -> u64 {
        let finish = if self.is_plain(ledger, offer) {
            self.profile.finish_ns(offer.capacity, offer.size_bytes)
        } else {
            let up = ledger.link(offer.up);
            ledger.probe_behind(up, &self.profile, case.now_ns, offer.size_bytes)
        };
        finish.unwrap_or(u64::MAX)
    }
}
