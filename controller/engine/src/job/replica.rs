//! How far the replica of a job is, as its server and itself report it.
//!
//! Invariant: the lag holds the norms of committed groups that the replica has not reported, in
//! their order; its length is bounded.

use alloc::collections::VecDeque;

/// How far the replica is.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReplicaProgress {
    order: u64,
    divergence_bound: f64,
    is_held: bool,
    /// Norms of committed groups that it misses, by order number.
    lag: VecDeque<(u64, f64)>,
    /// The norm of the momentum term after the last group that it has applied.
    h_norm: f64,
}

impl ReplicaProgress {
    /// The order number that it applies next.
    pub(crate) const fn order(&self) -> u64 {
        self.order
    }

    /// The bound of its distance, as its server reported it.
    pub(crate) const fn divergence_bound(&self) -> f64 {
        self.divergence_bound
    }

    /// True while its server holds the bound.
    pub(crate) const fn is_held(&self) -> bool {
        self.is_held
    }

    /// The norm of the momentum term after the last group that it has applied.
    pub(crate) const fn h_norm(&self) -> f64 {
        self.h_norm
    }

    /// Norms of committed groups that it misses, in their order.
    pub(crate) fn lag_norms(&self) -> impl Iterator<Item = f64> {
        self.lag.iter().map(|(_, norm)| *norm)
    }

    /// Its server says where it is; `h_norm` is the server's.
    pub(crate) fn report(&mut self, order: u64, divergence_bound: f64, is_held: bool, h_norm: f64) {
        (self.divergence_bound, self.is_held) = (divergence_bound, is_held);
        self.apply(order);
        if self.lag.is_empty() {
            self.h_norm = h_norm;
        }
    }

    /// It says itself where it is.
    pub(crate) fn begin(&mut self, order: u64, h_norm: f64) {
        self.apply(order);
        self.h_norm = h_norm;
    }

    fn apply(&mut self, order: u64) {
        self.order = order;
        self.lag.retain(|(missing, _)| *missing >= order);
    }

    /// Its server has committed a group.
    pub(crate) fn miss(&mut self, order: u64, norm: f64) {
        if self.lag.len() == LAG_MAX {
            self.lag.pop_front();
        }
        self.lag.push_back((order, norm));
    }

    /// It and its server begin with the same model.
    pub(crate) fn set_h_norm(&mut self, h_norm: f64) {
        self.h_norm = h_norm;
    }

    /// Nothing bounds its distance any more.
    pub(crate) fn release(&mut self) {
        self.is_held = false;
    }
}

/// Groups that a replica may miss and the plan still counts one by one.
const LAG_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    fn lag(progress: &ReplicaProgress) -> Vec<f64> {
        progress.lag_norms().collect()
    }

    #[test]
    fn the_lag_is_what_was_committed_and_not_reported() {
        let mut progress = ReplicaProgress::default();
        progress.set_h_norm(0.5);
        for (order, norm) in [(3, 3.0), (4, 4.0), (5, 5.0)] {
            progress.miss(order, norm);
        }
        progress.report(4, 1.5, true, 9.0);
        assert_eq!((progress.order(), lag(&progress)), (4, [4.0, 5.0].into()));
        assert_eq!((progress.divergence_bound(), progress.is_held()), (1.5, true));
        assert!((progress.h_norm() - 0.5).abs() < 1e-9, "the server is ahead of it");
        progress.report(6, 0.0, true, 9.0);
        assert_eq!((progress.order(), lag(&progress)), (6, [].into()));
        assert!((progress.h_norm() - 9.0).abs() < 1e-9, "it has what the server has");
        progress.release();
        assert!(!progress.is_held());
    }

    #[test]
    fn its_own_word_counts_whatever_it_misses() {
        let mut progress = ReplicaProgress::default();
        progress.miss(6, 1.0);
        progress.miss(7, 2.0);
        progress.begin(7, 0.25);
        assert_eq!((progress.order(), lag(&progress)), (7, [2.0].into()));
        assert!((progress.h_norm() - 0.25).abs() < 1e-9);
    }

    #[test]
    fn the_lag_forgets_its_oldest_at_its_bound() {
        let mut progress = ReplicaProgress::default();
        (0_u32..).take(LAG_MAX + 2).for_each(|order| progress.miss(order.into(), order.into()));
        assert_eq!(
            (lag(&progress).len(), lag(&progress)[..2].to_vec()),
            (LAG_MAX, [2.0, 3.0].into())
        );
    }
}
