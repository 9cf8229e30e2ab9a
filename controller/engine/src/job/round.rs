//! The round of a job with rounds: how many updates were granted in it, and how many are in the
//! model.
//!
//! Invariant: a round ends when as many updates as it has are in the model, and the next begins at
//! the version that they made.

/// A round.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Round {
    /// Version of the model when it began.
    base: u64,
    /// Updates that were granted, or are about to be, and committed.
    granted: u32,
    committed: u32,
}

impl Round {
    /// The round that a model of this version is within, of `size` updates each.
    pub(crate) fn within(version: u64, size: u32) -> Self {
        let committed = u32::try_from(version % u64::from(size)).unwrap_or(0);
        Self { base: version - u64::from(committed), granted: committed, committed }
    }

    /// The model was at this version when it began.
    pub(crate) fn set_base(&mut self, version: u64) {
        self.base = version;
    }

    /// Updates that can still be granted.
    pub(crate) const fn room(&self, size: u32) -> u32 {
        size.saturating_sub(self.granted)
    }

    pub(crate) fn grant(&mut self, updates: usize) {
        self.granted += u32::try_from(updates).unwrap_or(u32::MAX);
    }

    /// Updates that were granted will not come.
    pub(crate) fn withdraw(&mut self, updates: usize) {
        self.granted = self.granted.saturating_sub(u32::try_from(updates).unwrap_or(u32::MAX));
    }

    pub(crate) fn commit(&mut self) {
        self.committed += 1;
    }

    /// Where it began, and how many were granted and committed.
    #[cfg(test)]
    pub(crate) const fn numbers(&self) -> (u64, u32, u32) {
        (self.base, self.granted, self.committed)
    }

    /// True when all of it is in the model.
    pub(crate) const fn is_over(&self, size: u32) -> bool {
        self.committed >= size
    }

    /// True when an update of this version comes too late for it.
    pub(crate) const fn is_stale(&self, version: u64, size: u32) -> bool {
        version < self.base || (version == self.base && self.room(size) == 0)
    }

    /// Begins the next one, when all of this one is in the model.
    pub(crate) fn close(&mut self, version: u64, size: u32) {
        if self.is_over(size) {
            *self = Self { base: version, granted: 0, committed: 0 };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_withdrawn_can_be_granted_again() {
        let mut round = Round::default();
        round.grant(5);
        assert_eq!(round.room(8), 3);
        round.withdraw(2);
        assert_eq!(round.room(8), 5);
        round.withdraw(9);
        assert_eq!((round.room(8), round.room(0)), (8, 0));
    }

    #[test]
    fn an_update_is_stale_below_the_base_and_at_it_when_the_round_is_full() {
        let mut round = Round::default();
        round.set_base(4);
        assert!(round.is_stale(3, 2) && !round.is_stale(4, 2) && !round.is_stale(5, 2));
        round.grant(2);
        assert!(round.is_stale(4, 2) && !round.is_stale(5, 2));
        round.commit();
        assert!(!round.is_over(2));
        round.close(5, 2);
        assert_eq!(round.numbers(), (4, 2, 1), "one of two is in the model");
        round.commit();
        assert!(round.is_over(2));
        round.close(6, 2);
        assert_eq!(round.numbers(), (6, 0, 0));
    }

    #[test]
    fn a_model_is_within_the_round_that_its_version_falls_into() {
        assert_eq!(Round::within(17, 5).numbers(), (15, 2, 2));
        assert_eq!(Round::within(20, 5).numbers(), (20, 0, 0));
    }
}
