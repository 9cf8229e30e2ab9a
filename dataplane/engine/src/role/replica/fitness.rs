//! Whether the replica could take its server's place (SPEC#promotion "Fitness").
//!
//! Decides it from what the server says to it alone, so that no other box need know what workers
//! were told. A server tells workers of a commit, and shows them a version, only when its replica
//! has it. So a replica that has all that its server had decided at some moment since they met has,
//! from then on, all that anybody is told: what a former life of it let the server tell was decided
//! before that, for the server refuses the frames of a former life once it has met this one.
//! Invariant (I1): a replica that calls itself fit lacks nothing that a worker was told.
//!
//! In a job that acknowledges at the commit this says nothing, and nobody asks.

/// What of the server's words decides it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Fitness {
    /// The server had decided all below, and nothing else, at some moment of this life.
    level: Option<u64>,
    /// Its server acknowledges without it.
    is_left: bool,
    /// The model came as a whole once: which updates are in it is not all known here.
    is_patchy: bool,
}

impl Fitness {
    /// True when all that workers were told of is below `next_order`, and every update in the model
    /// is known.
    pub(super) fn is_fit(&self, next_order: u64) -> bool {
        self.level.is_some_and(|order| order <= next_order) && !self.is_left && !self.is_patchy
    }

    /// True when the model came as a whole once.
    pub(super) fn is_patchy(&self) -> bool {
        self.is_patchy
    }

    /// The server says what it decides next.
    pub(super) fn note_level(&mut self, order: u64) {
        let level = self.level.get_or_insert(order);
        *level = order.min(*level);
    }

    /// Workers are told of what it does not have: a controller said so, or the server.
    pub(super) fn note_left(&mut self) {
        self.is_left = true;
    }

    /// The model came as a whole.
    pub(super) fn note_snapshot(&mut self) {
        self.is_patchy = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replica_is_fit_once_it_has_all_that_its_server_had_decided_at_some_moment() {
        let mut fitness = Fitness::default();
        assert!(!fitness.is_fit(9), "the server has said nothing");
        fitness.note_level(5);
        fitness.note_level(8);
        assert!(fitness.is_fit(5) && !fitness.is_fit(4), "the earliest moment counts");
        fitness.note_level(3);
        assert!(fitness.is_fit(3) && !fitness.is_patchy());
        let mut left = fitness;
        left.note_left();
        assert!(!left.is_fit(9) && !left.is_patchy());
        fitness.note_snapshot();
        assert!(!fitness.is_fit(9) && fitness.is_patchy());
    }
}
