//! What was decided about each worker's last updates (PROTOCOL section 4): a worker that asks again
//! is told the same again, by a restarted server and by a promoted replica too.
//!
//! The number kept is fixed and far above what a worker may have under way. O(kept) per look-up.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use weft_control::Version;
use weft_wire::header::Outcome;
use weft_wire::rows::ROW_DIRECT;
use weft_wire::{GroupId, Members, Rank};

use super::state::{DecidedUpdate, WorkerOutcomes};

/// What became of a worker's update.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Decided {
    pub(crate) group: GroupId,
    pub(crate) outcome: Outcome,
    /// Version of the model afterwards.
    pub(crate) version: u64,
    /// The decision that it is told of only when others have it.
    pub(crate) held_by: Option<u64>,
    /// The record of the journal that must be durable before it is told; 0 when there is none.
    pub(crate) position: u64,
    /// A former life of this box decided it.
    pub(crate) is_restored: bool,
}

impl Decided {
    /// One that may be told at once.
    pub(crate) fn new(group: GroupId, outcome: Outcome, version: u64) -> Self {
        Self { group, outcome, version, held_by: None, position: 0, is_restored: false }
    }
}

/// What a decision is for one of those whom it is about.
pub(crate) fn outcome_of(rank: Rank, members: Members, old: Members) -> Outcome {
    if members.contains(rank.bit()) {
        Outcome::Committed
    } else if old.contains(rank.bit()) {
        Outcome::Dropped
    } else {
        Outcome::Void
    }
}

/// The last decided updates of all workers of a job.
#[derive(Debug)]
pub(crate) struct Outcomes {
    workers: Vec<Worker>,
}

#[derive(Debug)]
struct Worker {
    /// The life of the worker that these are of; 0 when that is not known.
    life: u64,
    decided: VecDeque<Decided>,
}

impl Outcomes {
    /// Takes the memory for so many workers.
    pub(crate) fn new(workers: usize) -> Self {
        let worker = || Worker { life: 0, decided: VecDeque::with_capacity(DECIDED_KEPT) };
        Self { workers: core::iter::repeat_with(worker).take(workers).collect() }
    }

    /// Notes what became of a worker's update; the oldest makes room.
    pub(super) fn push(&mut self, rank: Rank, decided: Decided) {
        let Some(worker) = self.workers.get_mut(rank.index()) else { return };
        if worker.decided.len() == DECIDED_KEPT {
            worker.decided.pop_front();
        }
        worker.decided.push_back(decided);
    }

    /// What became of a worker's update, if it is kept.
    pub(crate) fn get(&self, rank: Rank, group: GroupId) -> Option<&Decided> {
        let decided = &self.workers.get(rank.index())?.decided;
        decided.iter().rev().find(|decided| decided.group == group)
    }

    /// Nobody holds back what became of this update; returns that, if it is kept.
    pub(super) fn release(&mut self, rank: Rank, group: GroupId) -> Option<Decided> {
        let decided = &mut self.workers.get_mut(rank.index())?.decided;
        let decided = decided.iter_mut().rev().find(|decided| decided.group == group)?;
        decided.held_by = None;
        Some(*decided)
    }

    /// True when a direct update with this number is older than what the worker's are by now.
    /// What a former life decided says nothing: frames of that time are refused for their cookie.
    pub(crate) fn is_old_news(&self, rank: Rank, group: GroupId) -> bool {
        let Some(worker) = self.workers.get(rank.index()) else { return false };
        let direct = worker.decided.iter().filter(|decided| !decided.is_restored);
        let direct = direct.filter(|decided| decided.group.row() == group.row());
        let ages = direct.map(|d| d.group.generation().wrapping_sub(group.generation()));
        let mut ages = ages.filter(|age| *age < 1 << 15);
        ages.any(|age| usize::from(age) >= DECIDED_KEPT / 2)
    }

    /// A worker speaks in this life. True when it is, or may be, the one that spoke before: what is
    /// kept is its own. Else that is forgotten: a new life knows nothing of what the old one
    /// pushed.
    pub(super) fn begin_life(&mut self, rank: Rank, life: u64) -> bool {
        let Some(worker) = self.workers.get_mut(rank.index()) else { return false };
        let is_same = worker.life == life || worker.life == 0;
        if !is_same {
            worker.decided.clear();
        }
        worker.life = life;
        is_same
    }

    /// The life of a worker that these are of; 0 when it is not known.
    pub(crate) fn life(&self, rank: Rank) -> u64 {
        self.workers.get(rank.index()).map_or(0, |worker| worker.life)
    }

    /// All that is kept, by rank.
    pub(super) fn state(&self) -> Vec<WorkerOutcomes> {
        let update = |decided: &Decided| DecidedUpdate {
            group: decided.group,
            outcome: decided.outcome,
            version: Version(decided.version),
        };
        let worker = |worker: &Worker| WorkerOutcomes {
            life: worker.life,
            decided: worker.decided.iter().map(update).collect(),
        };
        self.workers.iter().map(worker).collect()
    }

    /// Takes over what a former life kept, to be told once `held_by` allows it.
    pub(super) fn restore(&mut self, state: &[WorkerOutcomes], held_by: Option<u64>) {
        for (worker, kept) in self.workers.iter_mut().zip(state) {
            worker.life = kept.life;
            worker.decided.clear();
            let skip = kept.decided.len().saturating_sub(DECIDED_KEPT);
            worker.decided.extend(kept.decided[skip..].iter().map(|update| Decided {
                held_by: held_by.filter(|_| update.outcome == Outcome::Committed),
                is_restored: true,
                ..Decided::new(update.group, update.outcome, update.version.0)
            }));
        }
    }
}

/// The worker whose direct update a group is, if it is one.
pub(crate) fn direct_rank(group: GroupId) -> Option<Rank> {
    let rank = group.row().checked_sub(ROW_DIRECT)?;
    u8::try_from(rank).ok().and_then(Rank::new)
}

/// Decided updates kept for each worker.
pub(crate) const DECIDED_KEPT: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    fn rank(rank: u8) -> Rank {
        Rank::new(rank).unwrap()
    }

    fn direct(generation: u16) -> GroupId {
        GroupId::new(ROW_DIRECT + 1, generation)
    }

    #[test]
    fn a_direct_update_is_old_news_half_of_what_is_kept_before_the_last() {
        let mut outcomes = Outcomes::new(2);
        outcomes.push(rank(1), Decided::new(direct(20), Outcome::Committed, 1));
        let is_old = |outcomes: &Outcomes, id| outcomes.is_old_news(rank(1), id);
        assert!(is_old(&outcomes, direct(4)) && is_old(&outcomes, direct(3)));
        assert!(!is_old(&outcomes, direct(5)) && !is_old(&outcomes, direct(20)));
        assert!(!is_old(&outcomes, direct(21)), "it is later");
        // Half a round of numbers away nobody can tell; nearer, it is old.
        assert!(!is_old(&outcomes, direct(20_u16.wrapping_sub(1 << 15))));
        assert!(is_old(&outcomes, direct(21_u16.wrapping_sub(1 << 15))));
        assert!(!is_old(&outcomes, GroupId::new(ROW_DIRECT, 4)), "another's row");
        assert!(!outcomes.is_old_news(rank(0), direct(4)), "another's update");
        let mut restored = Outcomes::new(2);
        restored.restore(&outcomes.state(), None);
        assert!(!is_old(&restored, direct(4)), "of a former life");
    }

    #[test]
    fn the_rows_from_the_first_direct_one_on_are_the_workers() {
        let of = |row| direct_rank(GroupId::new(row, 7));
        assert_eq!((of(ROW_DIRECT), of(ROW_DIRECT + 63)), (Rank::new(0), Rank::new(63)));
        assert_eq!((of(ROW_DIRECT - 1), of(ROW_DIRECT + 64)), (None, None));
    }
}
