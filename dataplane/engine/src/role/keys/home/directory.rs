//! What the box knows of each key: at which process its row is, and who asked for it last.
//!
//! A cache of what processes know, and never the truth: in a new life it is empty, and learns from
//! claims. A key is *settled* when all living processes have claimed it in this life, no copy is on
//! its way to one of them, and one of them holds the row; only when the first two hold and nobody
//! has the row may it be said that nobody owns it (PROTOCOL section 13, "Restart").
//!
//! Of claims it keeps sums, 64 bytes a key: who has claimed, who has a copy on its way, the row
//! that is held, the newest copy that went to a dead process. When a process takes back what such a
//! sum stands on, the claims of that key are forgotten, as if they had been lost, and all claim
//! again.

use alloc::vec;
use alloc::vec::Vec;

use weft_wire::Members;
use weft_wire::keys::RowEpoch;

/// Nobody.
const NOBODY: u8 = u8::MAX;

/// What a process says that it has of one key.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Told {
    /// The epoch of the row that it holds, or none.
    pub(super) held: RowEpoch,
    /// True if it keeps a copy of what it gave to one who lives.
    pub(super) is_giving: bool,
    /// The newest copy that it keeps of what it gave to one who is dead.
    pub(super) lost: RowEpoch,
}

/// What is to be done about a key that all have claimed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Finding {
    /// It is where a process holds it.
    Settled,
    /// Not all have claimed it, or a copy is on its way.
    Open,
    /// The copy that this process keeps is the row now.
    TakeBack(u8, RowEpoch),
    /// Nobody has it.
    Nobody,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    owner: u8,
    next: u8,
    is_settled: bool,
    /// The highest epoch heard of.
    epoch: RowEpoch,
    claims: Claims,
}

/// The sums of the claims of one key.
#[derive(Clone, Copy, Debug)]
struct Claims {
    claimed: Members,
    giving: Members,
    held: (u8, RowEpoch),
    lost: (u8, RowEpoch),
}

const NO_CLAIMS: Claims = Claims {
    claimed: Members::EMPTY,
    giving: Members::EMPTY,
    held: (NOBODY, RowEpoch::NONE),
    lost: (NOBODY, RowEpoch::NONE),
};

const UNKNOWN: Entry = Entry {
    owner: NOBODY,
    next: NOBODY,
    is_settled: false,
    epoch: RowEpoch::NONE,
    claims: NO_CLAIMS,
};

/// The directory of one table in one life.
#[derive(Debug)]
pub(super) struct Directory {
    entries: Vec<Entry>,
    living: Members,
}

impl Directory {
    pub(super) fn new(key_count: u32) -> Self {
        Self { entries: vec![UNKNOWN; key_count as usize], living: Members::EMPTY }
    }

    /// Begins a life, with these processes. In the first one it is known who has the rows.
    pub(super) fn begin(&mut self, living: Members, first_owner: Option<impl Fn(u32) -> u8>) {
        self.living = living;
        self.entries.fill(UNKNOWN);
        if let Some(first_owner) = first_owner {
            for (index, entry) in (0..).zip(&mut self.entries) {
                entry.owner = first_owner(index);
                (entry.epoch, entry.is_settled) = (RowEpoch::born(1), true);
            }
        }
    }

    /// Returns where an access goes, if that is known.
    pub(super) fn route(&mut self, index: u32, is_repeat: bool) -> Option<u8> {
        let entry = self.entry(index);
        if is_repeat {
            entry.next = NOBODY;
        }
        [entry.next, entry.owner].into_iter().find(|process| *process != NOBODY)
    }

    /// Returns where a localize of `from` goes, if that is known.
    pub(super) fn route_localize(&mut self, index: u32, is_repeat: bool, from: u8) -> Option<u8> {
        let to = self.route(index, is_repeat)?;
        if !is_repeat {
            self.entry(index).next = from;
        }
        Some(to)
    }

    /// `process` has had the row in this epoch.
    pub(super) fn learn(&mut self, index: u32, process: u8, epoch: RowEpoch) {
        let entry = self.entry(index);
        if epoch > entry.epoch {
            (entry.owner, entry.epoch) = (process, epoch);
        }
    }

    /// The highest epoch that was heard of.
    pub(super) fn epoch(&self, index: u32) -> RowEpoch {
        self.entries[index as usize].epoch
    }

    pub(super) fn is_settled(&self, index: u32) -> bool {
        self.entries[index as usize].is_settled
    }

    /// Takes what a living process says of a key, which is newer than what it said before.
    pub(super) fn claim(&mut self, index: u32, from: u8, told: Told) -> Finding {
        self.learn(index, from, told.held);
        let living = self.living;
        let entry = self.entry(index);
        if entry.is_settled {
            return Finding::Settled;
        }
        let claims = &mut entry.claims;
        if claims.held.0 == from && told.held < claims.held.1
            || claims.lost.0 == from && told.lost < claims.lost.1
        {
            *claims = NO_CLAIMS;
        }
        claims.add(from, told);
        let finding = claims.finding(living);
        if finding == Finding::Settled {
            entry.is_settled = true;
            entry.claims = NO_CLAIMS;
        }
        finding
    }

    fn entry(&mut self, index: u32) -> &mut Entry {
        &mut self.entries[index as usize]
    }
}

impl Claims {
    fn add(&mut self, from: u8, told: Told) {
        let bit = Members(1 << from);
        self.claimed = self.claimed.union(bit);
        self.giving = self.giving.without(bit);
        if told.is_giving {
            self.giving = self.giving.union(bit);
        }
        if told.held > self.held.1 || self.held.0 == from {
            self.held = (if told.held.is_some() { from } else { NOBODY }, told.held);
        }
        if told.lost > self.lost.1 || self.lost.0 == from {
            self.lost = (if told.lost.is_some() { from } else { NOBODY }, told.lost);
        }
    }

    fn finding(&self, living: Members) -> Finding {
        let (keeper, lost) = self.lost;
        if !self.claimed.contains(living) || !self.giving.is_empty() {
            Finding::Open
        } else if lost > self.held.1 {
            Finding::TakeBack(keeper, lost)
        } else if self.held.1.is_some() {
            Finding::Settled
        } else {
            Finding::Nobody
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn moved(count: u64) -> RowEpoch {
        RowEpoch(RowEpoch::born(1).0 + count)
    }

    fn directory() -> Directory {
        let mut directory = Directory::new(1);
        directory.begin(Members(0b111), None::<fn(u32) -> u8>);
        directory
    }

    fn holds(count: u64) -> Told {
        Told { held: moved(count), ..Told::default() }
    }

    #[test]
    fn first_transmissions_go_to_the_last_localizer_and_repeats_to_the_owner() {
        let mut directory = Directory::new(3);
        directory.begin(Members(0b111), Some(|_| 0));
        assert_eq!(directory.route_localize(0, false, 1), Some(0));
        assert_eq!(directory.route_localize(0, false, 2), Some(1));
        assert_eq!(directory.route(0, false), Some(2));
        assert_eq!(directory.route_localize(0, true, 1), Some(0));
        assert_eq!(directory.route(0, false), Some(0), "a repeat clears the last localizer");
        directory.learn(0, 2, moved(1));
        directory.learn(0, 1, RowEpoch::born(1));
        assert_eq!(directory.route(0, false), Some(2), "the highest epoch counts");
    }

    #[test]
    fn a_key_is_settled_when_all_have_claimed_it_and_nothing_is_on_its_way() {
        let mut directory = directory();
        assert_eq!(directory.claim(0, 0, holds(0)), Finding::Open);
        assert_eq!(directory.route(0, false), Some(0), "known keys are served");
        let giving = Told { is_giving: true, ..Told::default() };
        assert_eq!(directory.claim(0, 1, giving), Finding::Open);
        assert_eq!(directory.claim(0, 2, Told::default()), Finding::Open);
        assert_eq!(directory.claim(0, 1, Told::default()), Finding::Settled);
        assert!(directory.is_settled(0));
    }

    #[test]
    fn nobody_owns_a_key_only_after_all_have_claimed_it() {
        let mut directory = directory();
        assert_eq!(directory.claim(0, 0, Told::default()), Finding::Open);
        assert_eq!(directory.claim(0, 1, Told::default()), Finding::Open);
        assert_eq!(directory.route(0, false), None);
        assert_eq!(directory.claim(0, 2, Told::default()), Finding::Nobody);
    }

    #[test]
    fn the_newest_copy_to_the_dead_is_taken_back() {
        let mut directory = directory();
        let lost = |count| Told { lost: moved(count), ..Told::default() };
        directory.claim(0, 0, lost(1));
        directory.claim(0, 1, lost(3));
        assert_eq!(directory.claim(0, 2, lost(2)), Finding::TakeBack(1, moved(3)));
        assert_eq!(directory.claim(0, 2, holds(4)), Finding::Settled, "it had the row after that");
    }

    #[test]
    fn what_a_process_takes_back_is_claimed_by_all_again() {
        let mut directory = directory();
        directory.claim(0, 0, holds(0));
        directory.claim(0, 1, Told::default());
        let gave = Told { is_giving: true, ..Told::default() };
        assert_eq!(directory.claim(0, 0, gave), Finding::Open);
        assert_eq!(directory.claim(0, 2, Told::default()), Finding::Open);
        assert_eq!(
            directory.claim(0, 0, Told::default()),
            Finding::Open,
            "process 1 said it before"
        );
        assert_eq!(directory.claim(0, 1, holds(1)), Finding::Settled);
    }
}
