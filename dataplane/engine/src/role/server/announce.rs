//! Updates that workers announce without a grant (SPEC#push "Without a controller").
//!
//! They get order numbers from the server itself. Invariant: none while a controller is there, for
//! it could be a number that the controller has given, or is about to give, to a group of its plan
//! (I3).

use weft_control::{GroupMember, Version};
use weft_wire::Rank;
use weft_wire::header::{ElementType, Outcome};

use super::group::Opening;
use super::job::Job;
use crate::role::model::{Incoming, near};

impl Job {
    /// A worker announces an update that no controller planned. One that is refused may be asked
    /// for again, under another number.
    pub(super) fn admit_direct(&mut self, rank: Rank, incoming: &Incoming<'_>) -> Outcome {
        let header = &incoming.header;
        let is_pushed = matches!(header.element_type, ElementType::I32 | ElementType::F32);
        let fits = is_pushed && header.count == self.config.model.elements;
        if !fits || self.ledger.outcomes().is_old_news(rank, header.group) {
            return Outcome::Stale;
        }
        if !self.presence.is_over(incoming.now, self.config.fallback_ns) {
            self.stats.announcements_refused += 1;
            return Outcome::Stale;
        }
        let version = Version(near(self.ledger.model().version(), header.chunk.0));
        let opening = Opening {
            id: header.group,
            members: &[GroupMember { rank, version }],
            element_type: header.element_type,
            exponent: header.exponent,
            via: None,
            rate_bytes_per_sec: None,
            train_chunks: 0,
            after: None,
            lateness_ns: self.config.lateness_ns,
        };
        self.open_direct(incoming.now, &opening);
        // Too many are open, or it is open now: either way it may ask again.
        Outcome::Wait
    }
}
