//! Decides what the links of a path carried during a train: the train, and what others put on the
//! links of its two hosts meanwhile. Links between them are held to the train alone.
//!
//! The two ends have different witnesses. Others' packets to the receiver come between the train's
//! own, and its NIC's counter tells of them. Others' packets of the sender wait behind the train,
//! which its queue keeps together: it leaves at the link's rate, or leaves them room.

use super::{Estimator, TrainSample};
use crate::case::HostId;
use crate::net::topology::LinkId;

/// Rates on the links of a path during a train.
#[derive(Clone, Copy, Debug)]
pub(super) struct Carried {
    /// Of the train alone, at the slowest link.
    pub(super) own: f64,
    /// On the sender's link, and how that is known.
    pub(super) up: f64,
    pub(super) up_shows: Shows,
    /// On the receiver's link.
    pub(super) down: f64,
}

/// What is known of how the sender's link held a train.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Shows {
    /// Nothing: as with any link of the path, the slowest may be another one.
    Path,
    /// It did: the rate is its own.
    Itself,
    /// It did not: the rate is the least that it has.
    Least,
}

impl Carried {
    /// A transfer of `own`, and `down` on its receiver's link.
    pub(super) const fn path(own: f64, down: f64) -> Self {
        Self { own, up: own, up_shows: Shows::Path, down }
    }
}

impl Estimator {
    /// What a probe's links carried: a train of `own` beside which its receiver got `received`.
    pub(super) fn carried(
        &self,
        (from, to): (HostId, HostId),
        (own, received): (f64, f64),
        sample: &TrainSample,
    ) -> Carried {
        let down = self.total((from, to), own, received);
        // What others take of the receiver's link stays theirs when a flow lasts longer than a
        // train, which their queue may have put before them.
        let lasting = (down - self.taken(self.topology.down(to))).min(own);
        let room = lasting + self.taken(self.topology.up(from));
        let (up, up_shows) = match sample.departure {
            Some(departure) if departure.held => (departure.bytes_per_sec, Shows::Itself),
            Some(departure) => (departure.bytes_per_sec.min(room).max(own), Shows::Least),
            None => (own, Shows::Path),
        };
        Carried { own, up, up_shows, down }
    }

    /// What the receiver's link carried during a train, from two imperfect witnesses: the counter
    /// readings meanwhile, which are a packet ahead or behind, and the average background, of
    /// which a saturated queue lets no larger share through than of the train.
    fn total(&self, (from, to): (HostId, HostId), own: f64, received: f64) -> f64 {
        if !self.background_matters(to, own) {
            return if received >= own * (1.0 + FOREIGN_MUCH) { received } else { own };
        }
        let foreign = self.foreign((from, to), own);
        if received > 0.0 { received.min(own + foreign * FOREIGN_SLACK) } else { own }
    }

    /// What others put on the receiver's link beside a train of `own`: their average, of which a
    /// saturated queue lets no larger share through than of the train.
    pub(super) fn foreign(&self, (from, to): (HostId, HostId), own: f64) -> f64 {
        let down = self.topology.down(to);
        let path = self.topology.path(from, to);
        let upstream = path.links().iter().filter(|link| **link != down);
        let rates =
            upstream.map(|link| self.links[link.index()].capacity.bytes_per_sec().unwrap_or(own));
        let sent = rates.fold(f64::INFINITY, f64::min).max(own);
        self.taken(down) * own / sent
    }

    /// Whether others have a share of the receiver's link that shows beside a train of `own`.
    pub(super) fn background_matters(&self, to: HostId, own: f64) -> bool {
        self.taken(self.topology.down(to)) >= own * FOREIGN_KNOWN
    }

    fn taken(&self, link: LinkId) -> f64 {
        self.links[link.index()].background.bytes_per_sec()
    }
}

/// Background at which a train's counter readings are believed, and readings believed at once; in
/// shares of the train's rate.
const FOREIGN_KNOWN: f64 = 0.02;
const FOREIGN_MUCH: f64 = 0.2;
/// Readings err in both directions: cutting off all that is too much would bias them.
const FOREIGN_SLACK: f64 = 1.1;
