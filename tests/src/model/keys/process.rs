//! What a process remembers of its keys, and what it sends from that at any time.

use super::Keys;
use super::list::List;
use super::message::{
    Access, Claim, Frame, KEPT_COUNT_MAX, Kept, LANE_COUNT, Number, OP_COUNT_MAX, PROCESS_COUNT,
    Row, To, Value,
};

/// One process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Process<const K: usize> {
    /// Counts the numbers that it has given; never goes back.
    pub(super) count: u8,
    /// Per directory and process the number below which nothing is open.
    pub(super) floors: [[Number; PROCESS_COUNT]; K],
    pub(super) keys: [Local; K],
}

/// What a process knows of one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Local {
    /// The life of the directory that it has joined, and who lives in it.
    pub(super) life: u8,
    pub(super) living: u8,
    /// The row, if its epoch is one.
    pub(super) row: Row,
    pub(super) kept: List<Kept, KEPT_COUNT_MAX>,
    /// Accesses in flight: one for each lane, or two in a wrong variant.
    pub(super) flights: List<Access, LANE_COUNT>,
    /// The localize that is open, and whether one waits for a number.
    pub(super) localize: Number,
    pub(super) wants_localize: bool,
    /// Localizes and accesses of others that wait here for the row: one per process, and lane.
    pub(super) noted: List<(u8, Number), { PROCESS_COUNT - 1 }>,
    pub(super) remote: List<(u8, Access), { (PROCESS_COUNT - 1) * LANE_COUNT }>,
    /// Its operations, in the order in which they were called. Those that are neither done nor in
    /// flight are queued.
    pub(super) ops: List<Op, OP_COUNT_MAX>,
    /// The life in which it last restored the key from the checkpoint.
    pub(super) restored: u8,
    /// What it last claimed in this life.
    pub(super) claim: Claim,
    /// Whether it intends to use the key, and what it has of it then.
    pub(super) has_intent: bool,
    pub(super) copy: Option<Copy>,
    /// Whether the copy is to be made new, and the clock at which the access in flight was sent.
    pub(super) wants_copy: bool,
    pub(super) sent_at: u8,
    pub(super) clock: u8,
    /// Ghost: the pushes that were answered when each clock began, as a bitmap.
    pub(super) answered: [u16; CLOCK_COUNT],
}

/// Clocks of a model: of the start, and those that follow.
pub(super) const CLOCK_COUNT: usize = 3;

/// A row as it was at its owner, with the own operations since.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Copy {
    pub(super) value: Value,
    /// The clock at which it was asked for.
    pub(super) clock: u8,
}

/// One operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Op {
    pub(super) kind: Kind,
    /// 0 while it is open; then the lineage of the row that answered it.
    pub(super) answered: u8,
    /// What a pull brought.
    pub(super) result: Value,
    /// Whether that was a copy under an intent, and one that is older than the bound.
    pub(super) is_copy: bool,
    pub(super) is_late: bool,
    /// Ghost: what it must come after, as a bitmap of all operations on the key: where accesses
    /// overtake each other, those that were done when it was called; else its process's earlier.
    pub(super) after: u16,
}

impl Op {
    /// True if no row of a lineage before `life` has answered it.
    pub(super) const fn is_open(&self, life: u8) -> bool {
        self.answered == 0 || self.answered >= life
    }
}

/// What an operation does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[expect(missing_docs, reason = "the words of the protocol")]
pub enum Kind {
    Set,
    #[default]
    Push,
    Pull,
}

impl<const K: usize> Process<K> {
    /// Returns what the process may send about `key` at any time.
    pub(super) fn frames(&self, model: &Keys<K>, from: u8, key: u8) -> Vec<Frame> {
        let local = &self.keys[usize::from(key)];
        let to = To::Box { life: local.life, repeat: true };
        let low = self.low(model, key);
        let accesses = local.flights.iter();
        let mut frames: Vec<Frame> =
            accesses.map(|&access| Frame::Access { to, from, access, low }).collect();
        if local.localize.is_some() {
            frames.push(Frame::Localize { to, from, number: local.localize });
        }
        frames.extend(local.kept.iter().map(|&kept| Frame::Row { from, kept }));
        if local.life > 1 {
            frames.push(Frame::Claim { life: local.life, from, claim: local.claim });
        }
        if model.low_frames {
            let others = (0..model.processes).filter(|&to| to != from);
            frames.extend(others.map(|to| Frame::Low { to, from, low }));
        }
        frames
    }

    /// Returns the number below which this process has nothing open at the directory of `key`.
    pub(super) fn low(&self, model: &Keys<K>, key: u8) -> Number {
        let directory = model.floor_index(key);
        let open =
            (0..).zip(&self.keys).filter(|&(other, _)| model.floor_index(other) == directory);
        let open = open.flat_map(|(_, local)| {
            local.flights.as_slice().iter().map(|flight| flight.number).chain([local.localize])
        });
        let next = Number::new(self.keys[usize::from(key)].life, self.count + 1);
        open.filter(|number| number.is_some()).min().unwrap_or(next)
    }
}

impl Local {
    /// Makes a new claim if there is something new to say.
    pub(super) fn renew_claim(&mut self) {
        let mut claim =
            Claim { counter: self.claim.counter, held: self.row.epoch, ..Claim::default() };
        for kept in self.kept.iter() {
            claim.kept.push((kept.to, kept.row.epoch));
        }
        if self.life > 1 && (claim.counter == 0 || claim != self.claim) {
            claim.counter += 1;
        }
        self.claim = claim;
    }

    /// Joins a life of the directory, without the dead.
    pub(super) fn join(&mut self, life: u8, living: u8) {
        self.life = life;
        self.living = living;
        self.claim = Claim::default();
        self.noted.retain(|(from, _)| living >> from & 1 == 1);
        self.remote.retain(|(from, _)| living >> from & 1 == 1);
    }

    /// True if nobody waits for anything here.
    pub(super) fn is_idle(&self) -> bool {
        self.ops.iter().all(|op| op.answered > 0)
            && !self.localize.is_some()
            && !self.wants_localize
            && self.flights.is_empty()
            && self.kept.is_empty()
    }
}
