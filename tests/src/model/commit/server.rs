//! What the server does with each frame of a group (rule 4).
//!
//! Per chunk it stages a sum with the bitmap of its contributors. A frame whose members are
//! disjoint from it is added, a subset is a duplicate, a partial overlap is refused. The group
//! commits when every chunk has exactly the mask's members; a close changes the mask once, and
//! stages afresh what holds the removed member.

use super::Rules;

/// The server's side of one group.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Server {
    /// The member mask.
    pub(super) members: u8,
    is_closed: bool,
    staging: Vec<Staged>,
    /// Per chunk: what this group brought into the model.
    pub(super) model: Vec<Parts>,
    pub(super) outcome: Option<Outcome>,
}

/// What is staged of one chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
struct Staged {
    /// The contributors as the frames name them.
    members: u8,
    /// The data: how often each contribution really went in.
    parts: Parts,
    /// Which sources' frames were taken: bit 7 the aggregator, else the direct sender's rank.
    sources: u8,
}

/// The server's decision about a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Outcome {
    /// The updates of `members` entered the model.
    #[expect(missing_docs, reason = "named by the line above")]
    Committed { members: u8 },
    /// Nothing of the group will ever enter it.
    Void,
}

/// Who sent a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    Aggregator,
    Worker(u8),
}

/// How often each member's chunk went in: two bits per member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(super) struct Parts(u8);

impl Server {
    pub(super) fn new(members: u8, chunks: usize) -> Self {
        Self {
            members,
            is_closed: false,
            staging: vec![Staged::default(); chunks],
            model: vec![Parts::default(); chunks],
            outcome: None,
        }
    }

    /// Takes a frame with the sum of `members`' chunks.
    pub(super) fn take(&mut self, rules: Rules, chunk: u8, members: u8, source: Source) {
        let is_decided = self.outcome.is_some() && rules != Rules::ForgetDecided;
        if is_decided || members & !self.members != 0 {
            return;
        }
        let staged = &mut self.staging[usize::from(chunk)];
        let source_bit = match source {
            Source::Aggregator => 1 << 7,
            Source::Worker(worker) => 1 << worker,
        };
        let is_disjoint = members & staged.members == 0;
        let is_subset = members & !staged.members == 0;
        let is_added = match rules {
            Rules::DedupBySubsetAlone => !is_subset,
            Rules::DedupByGroupAndChunk => staged.sources & source_bit == 0,
            _ => is_disjoint,
        };
        if is_added {
            staged.members |= members;
            staged.parts.add(members);
            if rules == Rules::DedupByGroupAndChunk {
                staged.sources |= source_bit;
            }
            self.commit_if_complete(rules);
        }
    }

    /// Commits the whole group when all its chunks have the same members, those of the mask.
    fn commit_if_complete(&mut self, rules: Rules) {
        if rules == Rules::CommitEachChunk {
            self.commit_complete_chunks();
        } else if self.staging.iter().all(|staged| staged.members == self.members) {
            for (model, staged) in self.model.iter_mut().zip(&mut self.staging) {
                model.add_parts(staged.parts);
                *staged = Staged::default();
            }
            self.outcome = Some(Outcome::Committed { members: self.members });
        }
    }

    /// The wrong variant: a chunk enters the model on its own, and the group is decided with the
    /// last of them.
    fn commit_complete_chunks(&mut self) {
        for (model, staged) in self.model.iter_mut().zip(&mut self.staging) {
            if *model == Parts::default() && staged.members == self.members {
                model.add_parts(staged.parts);
            }
        }
        if self.model.iter().all(|&model| model != Parts::default()) {
            self.outcome = Some(Outcome::Committed { members: self.members });
        }
    }

    /// Closes the group without `worker`. True if it did: only once, and only before the decision.
    pub(super) fn close(&mut self, rules: Rules, worker: u8) -> bool {
        let remaining = self.members & !(1 << worker);
        if self.is_closed || self.outcome.is_some() || remaining == 0 {
            return false;
        }
        self.is_closed = true;
        self.members = remaining;
        for staged in &mut self.staging {
            if staged.members & !remaining != 0 && rules != Rules::CloseKeepsStaged {
                *staged = Staged::default();
            }
        }
        self.commit_if_complete(rules);
        true
    }

    /// Judges the group VOID. True if it did: only after a close, and only before the decision.
    pub(super) fn void(&mut self) -> bool {
        if !self.is_closed || self.outcome.is_some() {
            return false;
        }
        self.staging.fill(Staged::default());
        self.outcome = Some(Outcome::Void);
        true
    }
}

impl Parts {
    /// Returns the exact sum of `members`' chunks.
    pub(super) fn of(members: u8) -> Self {
        let mut parts = Self::default();
        parts.add(members);
        parts
    }

    /// Adds each of `members` once.
    fn add(&mut self, members: u8) {
        for worker in (0..4).filter(|worker| members >> worker & 1 == 1) {
            if self.count(worker) < 3 {
                self.0 += 1 << (2 * worker);
            }
        }
    }

    fn add_parts(&mut self, other: Self) {
        for worker in 0..4 {
            for _ in 0..other.count(worker) {
                self.add(1 << worker);
            }
        }
    }

    pub(super) const fn count(self, worker: u8) -> u8 {
        (self.0 >> (2 * worker)) & 3
    }

    /// Returns the data as text, for a counterexample.
    pub(super) fn text(self, members: u8) -> String {
        let present = (0..members).filter(|&worker| self.count(worker) > 0);
        let terms: Vec<String> =
            present.map(|worker| format!("{} x w{worker}", self.count(worker))).collect();
        if terms.is_empty() { "nothing".into() } else { terms.join(" + ") }
    }
}
