//! The entries of one lease or push job in a switch: what is wanted, and what was written.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use weft_wire::{JobId, Members};

use super::entry::{Entry, EntryKey, Row, RowKey, Write};
use super::room::Part;
use crate::role::aggregator::Seeded;

/// Whom a scope is for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Owner {
    /// No lease.
    Base,
    /// A windowed lease.
    Lease(RowKey),
    /// A push job.
    Push(JobId),
}

impl Owner {
    pub(super) fn job(self) -> Option<JobId> {
        match self {
            Self::Base => None,
            Self::Lease(key) => Some(key.job),
            Self::Push(job) => Some(job),
        }
    }
}

/// A row that the switch is to serve.
#[derive(Clone, Debug)]
pub(super) struct Wish {
    pub(super) key: RowKey,
    /// Another one is another lease in the same row.
    pub(super) installation: u64,
    pub(super) generation: u16,
    pub(super) mask: Members,
    pub(super) banks: u32,
    pub(super) chunks: u32,
    pub(super) type_op: u8,
    pub(super) kind: WishKind,
    pub(super) seeds: Vec<Seeded>,
}

/// Which kind of lease.
#[derive(Clone, Copy, Debug)]
pub(super) enum WishKind {
    Windowed { exponent: Option<i8> },
    Whole { exponent: i8, replicate: bool },
}

/// How far a row has come.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Stage {
    Absent,
    /// Its seeds are not all echoed.
    Seeding,
    /// Only the row is missing.
    Seeded,
    Inserting,
    There,
    Modifying,
    Deleting,
    /// The switch does not take it as it is wished for.
    Refused,
}

/// A row in the switch, or on its way in or out.
#[derive(Debug)]
pub(super) struct HeldRow {
    pub(super) wish: Option<Wish>,
    pub(super) stage: Stage,
    /// Which wish it has come this far for.
    pub(super) installation: Option<u64>,
    pub(super) lease_epoch: u32,
    pub(super) entry: Option<Entry>,
    pub(super) banks: Option<Part>,
    pub(super) index: Option<Part>,
}

impl HeldRow {
    /// True when it is for what is wished now.
    pub(super) fn is_as_wished(&self) -> bool {
        self.installation.is_some()
            && self.wish.as_ref().map(|wish| wish.installation) == self.installation
    }

    /// The row's entry, as it should be.
    pub(super) fn wished_entry(&self, scope: usize) -> Option<Entry> {
        let (wish, banks) = (self.wish.as_ref()?, self.banks?);
        let row = Row {
            lease_epoch: self.lease_epoch,
            generation: wish.generation,
            scope: u16::try_from(scope).ok()?,
            mask: wish.mask,
            base: banks.first,
            chunks: wish.chunks,
            type_op: wish.type_op,
        };
        let key = wish.key;
        Some(match wish.kind {
            WishKind::Windowed { exponent } => {
                Entry::Windowed { key, row, window: wish.banks / 2, exponent }
            }
            WishKind::Whole { exponent, replicate } => {
                let row_index = u16::try_from(self.index?.first).ok()?;
                Entry::Whole { key, row, exponent, row_index, replicate }
            }
        })
    }
}

/// The entries of one owner.
#[derive(Debug)]
pub(super) struct Scope {
    pub(super) owner: Owner,
    wanted: Vec<Entry>,
    /// Beside its rows; written, or under way.
    pub(super) held: BTreeMap<EntryKey, Entry>,
    /// Writes of these under way.
    pub(super) outstanding: u32,
    /// Why the switch does not take what is wanted.
    pub(super) refused: Option<String>,
    pub(super) rows: BTreeMap<u16, HeldRow>,
}

impl Scope {
    pub(super) fn new(owner: Owner) -> Self {
        Self {
            owner,
            wanted: Vec::new(),
            held: BTreeMap::new(),
            outstanding: 0,
            refused: None,
            rows: BTreeMap::new(),
        }
    }

    pub(super) fn want(&mut self, support: Vec<Entry>, wishes: Vec<Wish>) {
        if self.wanted != support {
            (self.wanted, self.refused) = (support, None);
        }
        for (row, held) in &mut self.rows {
            if !wishes.iter().any(|wish| wish.key.row == *row) {
                held.wish = None;
            }
        }
        for wish in wishes {
            let held = self.rows.entry(wish.key.row).or_insert(HeldRow {
                wish: None,
                stage: Stage::Absent,
                installation: None,
                lease_epoch: 0,
                entry: None,
                banks: None,
                index: None,
            });
            held.wish = Some(wish);
        }
    }

    /// True when no row of before may meet what is written now. The groups of a push job share
    /// their members and copies, which change under them; a windowed lease has them for itself.
    pub(super) fn may_write_support(&self) -> bool {
        let is_busy = |held: &HeldRow| match held.stage {
            Stage::Inserting | Stage::Modifying | Stage::Deleting => true,
            Stage::There => !held.is_as_wished(),
            Stage::Absent | Stage::Seeding | Stage::Seeded | Stage::Refused => false,
        };
        let leaves = self.wanted.is_empty() && !self.rows.is_empty();
        match self.owner {
            Owner::Base => self.outstanding == 0,
            Owner::Lease(_) => !leaves && self.outstanding == 0 && !self.rows.values().any(is_busy),
            Owner::Push(_) => !leaves && self.outstanding == 0,
        }
    }

    /// The writes from what is held to what is wanted, taken as under way.
    pub(super) fn changes(&mut self) -> Vec<(EntryKey, Write)> {
        if self.refused.is_some() {
            return Vec::new();
        }
        let wanted: BTreeMap<EntryKey, Entry> =
            self.wanted.iter().map(|entry| (entry.key(), entry.clone())).collect();
        let mut changes = Vec::new();
        for (key, entry) in &wanted {
            match self.held.get(key) {
                None => changes.push((*key, Write::Insert(entry.clone()))),
                Some(held) if held != entry => changes.push((*key, Write::Modify(entry.clone()))),
                Some(_) => {}
            }
        }
        for (key, entry) in &self.held {
            if !wanted.contains_key(key) {
                changes.push((*key, Write::Delete(entry.clone())));
            }
        }
        self.held = wanted;
        self.outstanding += u32::try_from(changes.len()).expect("few entries");
        changes
    }

    /// True when the switch holds nothing of it and nothing is wanted.
    pub(super) fn is_empty(&self) -> bool {
        self.wanted.is_empty()
            && self.held.is_empty()
            && self.rows.is_empty()
            && self.outstanding == 0
    }
}
