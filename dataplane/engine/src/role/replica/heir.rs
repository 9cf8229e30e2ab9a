//! Whether the replica could take its server's place (SPEC#promotion "Condition").
//!
//! Decides it from what the server says to it alone, so that nobody need know what workers were
//! told. A server tells workers of a commit, and shows them a version, only when its replica has
//! it. So a replica that has all that its server had decided at some moment since they met has,
//! from then on, all that anybody is told: what a former life of it let the server tell was decided
//! before that, for the server refuses the frames of a former life once it has met this one.
//! Invariant (I1): a replica that calls itself fit lacks nothing that a worker knows.
//!
//! In a job that acknowledges at the commit this says nothing, and nobody asks.

use weft_control::Event;

use super::job::Job;

/// What is known of the succession.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Heir {
    /// The server had decided all below, and nothing else, at some moment of this life.
    level: Option<u64>,
    /// Its server acknowledges without it.
    is_left: bool,
}

impl Job {
    /// True when it has all that workers were told of, and knows every update in it.
    pub(super) fn is_fit(&self) -> bool {
        let is_level = self.heir.level.is_some_and(|order| order <= self.next_order);
        is_level && !self.heir.is_left && !self.is_patchy
    }

    /// The server says what it decides next.
    pub(super) fn note_level(&mut self, order: u64) {
        let level = self.heir.level.get_or_insert(order);
        *level = order.min(*level);
        self.tell_fitness();
    }

    /// Workers are told of what it does not have: a controller said so, or the server.
    pub(super) fn be_left(&mut self) {
        self.heir.is_left = true;
        self.tell_fitness();
    }

    /// Says it when it changes.
    pub(super) fn tell_fitness(&mut self) {
        let is_fit = self.is_fit();
        if core::mem::replace(&mut self.stats.is_fit, is_fit) != is_fit {
            self.tell(Event::Heir { is_fit });
        }
    }
}
