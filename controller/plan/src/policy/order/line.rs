//! Asks about transfers whose paths differ in the first link only: the uplinks of their hosts.
//!
//! What they share (the server's downlink, and the racks' links) has nothing left up to some
//! instant T. A host whose uplink has no promises after T is *plain*: the finish of its update is a
//! function of its capacity and the size alone, falling in the one and rising in the other. For
//! other hosts that function is a lower bound.

use alloc::vec::Vec;
use core::slice;

use crate::case::{Case, Segment};
use crate::net::ledger::{Ledger, append};
use crate::net::profile::{Band, Profile, amount};
use crate::net::topology::LinkId;

use super::lows::Low;

/// The links that are shared, and what they had left together when that was last looked up.
#[derive(Debug, Default)]
pub(super) struct Line {
    common: Vec<LinkId>,
    profile: Profile,
    /// What comes across by the instant that updates must end by.
    bands: Vec<Band>,
}

/// An update of a host in front of a line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Offer {
    up: LinkId,
    capacity: u64,
    size_bytes: u64,
    /// Its size as an amount, see [`amount`].
    amount: u64,
}

impl Offer {
    pub(super) const fn new(up: LinkId, capacity: u64, size_bytes: u64) -> Self {
        Self { up, capacity, size_bytes, amount: amount(size_bytes) }
    }

    /// Another size from the same host.
    pub(super) const fn resized(self, size_bytes: u64) -> Self {
        Self::new(self.up, self.capacity, size_bytes)
    }
}

impl Line {
    pub(super) fn new(common: &[LinkId]) -> Self {
        Self { common: common.to_vec(), ..Self::default() }
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

    /// From now on updates must end by that instant.
    pub(super) fn limit(&mut self, by_ns: u64) {
        self.profile.bands(by_ns, &mut self.bands);
    }

    /// Whether an update may end in time. If its host is plain, it does.
    pub(super) fn admits(&self, offer: &Offer) -> bool {
        Descent::new(&self.bands).carried(offer.capacity) >= offer.amount
    }

    /// The first from an index on that may end in time. The lows' capacities fall.
    pub(super) fn first_admitted(&self, lows: &[Low<Offer>], from: usize) -> Option<usize> {
        let mut bands = Descent::new(&self.bands);
        let admits = |low: &Low<Offer>| bands.carried(low.about.capacity) >= low.about.amount;
        Some(from + lows.get(from..)?.iter().position(admits)?)
    }

    /// The one that, if it is plain, could send the most beyond its size in time: a guess.
    pub(super) fn roomiest<'a>(&self, lows: &'a [Low<Offer>]) -> Option<&'a Low<Offer>> {
        let mut bands = Descent::new(&self.bands);
        let (mut most, mut found) = (i64::MIN, None);
        for low in lows {
            let carried = bands.carried(low.about.capacity);
            let room = carried.wrapping_sub(low.about.amount).cast_signed();
            if room > most {
                (most, found) = (room, Some(low));
            }
        }
        found
    }

    /// Whether nothing is promised of a host's uplink once the links behind it are free.
    #[inline]
    pub(super) fn is_plain(&self, ledger: &Ledger, offer: &Offer) -> bool {
        ledger.link(offer.up).constant_from_ns() <= self.profile.start_ns()
    }

    /// When an update would end; [`u64::MAX`] for never.
    pub(super) fn ask(&self, ledger: &Ledger, offer: &Offer) -> u64 {
        self.walk(ledger, offer, |_| {}).unwrap_or(u64::MAX)
    }

    /// Writes an update's rates; when it would end, none for never.
    pub(super) fn send(
        &self,
        ledger: &Ledger,
        offer: &Offer,
        segments: &mut Vec<Segment>,
    ) -> Option<u64> {
        segments.clear();
        self.walk(ledger, offer, |segment| append(segments, segment))
    }

    #[inline]
    fn walk(&self, ledger: &Ledger, offer: &Offer, note: impl FnMut(Segment)) -> Option<u64> {
        let size_bytes = offer.size_bytes;
        if self.is_plain(ledger, offer) {
            return self.profile.walk(offer.capacity, size_bytes, note);
        }
        let up = ledger.link(offer.up);
        ledger.probe_behind(up, &self.profile, size_bytes, note)
    }
}

/// The way from the highest band down.
struct Descent<'a> {
    band: Band,
    below: slice::Iter<'a, Band>,
}

impl<'a> Descent<'a> {
    #[inline]
    fn new(bands: &'a [Band]) -> Self {
        let mut below = bands.iter();
        Self { band: below.next_back().copied().unwrap_or_default(), below }
    }

    /// What a sender gets across in time whose capacity is at most that of those asked for before.
    #[inline]
    fn carried(&mut self, capacity: u64) -> u64 {
        while !self.band.holds(capacity)
            && let Some(lower) = self.below.next_back()
        {
            self.band = *lower;
        }
        self.band.carried(capacity)
    }
}
