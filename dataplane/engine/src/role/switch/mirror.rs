//! What the switch must hold, and what it holds: the writes between the two, in the right order.
//!
//! Decides which entries are written when. A row comes in after its members, copies and seeds, and
//! goes out before them: delete row, support, seeds (echoed), row. What is wanted may change while
//! writes are under way; then they are waited for first. Invariant: a frame that a row admits finds
//! members, copies and banks of the same installation. Nothing here sees frames of members.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::String;
use alloc::vec::Vec;

use super::entry::{Entry, EntryKey, RowKey, Write};
use super::op::{Op, Seed};
use super::ops::{For, Lost, Ops, Question};
use super::room::Room;
use super::scope::{HeldRow, Owner, Scope, Stage, Wish};
use super::target::Target;

/// What became of a row that was wished for.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Told {
    /// The switch serves it.
    Ready(RowKey),
    /// The switch does not take it.
    Refused(RowKey, String),
    /// What had this place among the counters is out of the switch.
    Gone(u16),
}

/// A switch's entries.
#[derive(Debug)]
pub(super) struct Mirror {
    scopes: Vec<Option<Scope>>,
    /// What belongs to no lease.
    base: Scope,
    banks: Room,
    row_indices: Room,
    pub(super) ops: Ops,
    writes: VecDeque<(u64, Write)>,
    /// Writes under way.
    pending: BTreeMap<u64, Pending>,
    next_number: u64,
    next_epoch: u32,
    told: VecDeque<Told>,
}

/// What a write was for.
#[derive(Clone, Copy, Debug)]
enum Pending {
    /// The entries of a scope beside its rows.
    Support {
        scope: usize,
        key: EntryKey,
        is_delete: bool,
    },
    Insert {
        scope: usize,
        row: u16,
    },
    Modify {
        scope: usize,
        row: u16,
    },
    Delete {
        scope: usize,
        row: u16,
    },
}

impl Mirror {
    /// `first_epoch` must differ from start to start.
    pub(super) fn new(target: &Target, ops: Ops, first_epoch: u32) -> Self {
        Self {
            scopes: core::iter::repeat_with(|| None).take(usize::from(target.scopes)).collect(),
            base: Scope::new(Owner::Base),
            banks: Room::new(target.banks),
            row_indices: Room::new(u32::from(target.rows)),
            ops,
            writes: VecDeque::new(),
            pending: BTreeMap::new(),
            next_number: 0,
            next_epoch: first_epoch.max(1),
            told: VecDeque::new(),
        }
    }

    /// The scope of an owner; takes one for it. `None` when all are taken.
    pub(super) fn scope_of(&mut self, owner: Owner) -> Option<u16> {
        let is_owners = |scope: &Option<Scope>| matches!(scope, Some(it) if it.owner == owner);
        let at = self.scopes.iter().position(is_owners).or_else(|| {
            let free = self.scopes.iter().position(Option::is_none)?;
            self.scopes[free] = Some(Scope::new(owner));
            Some(free)
        })?;
        u16::try_from(at).ok()
    }

    /// What a scope is to hold from now on.
    pub(super) fn want(&mut self, scope: u16, support: Vec<Entry>, wishes: Vec<Wish>) {
        if let Some(Some(scope)) = self.scopes.get_mut(usize::from(scope)) {
            scope.want(support, wishes);
        }
        self.advance(usize::from(scope));
    }

    /// What belongs to no lease.
    pub(super) fn want_base(&mut self, support: Vec<Entry>) {
        self.base.want(support, Vec::new());
        self.advance(BASE);
    }

    /// Empties the scopes whose owners are not among these.
    pub(super) fn keep(&mut self, is_there: impl Fn(Owner) -> bool) {
        for at in 0..self.scopes.len() {
            let Some(scope) = &mut self.scopes[at] else { continue };
            if !is_there(scope.owner) {
                scope.want(Vec::new(), Vec::new());
                self.advance(at);
            }
        }
    }

    /// Number and first bank of the installation that the switch serves for a row.
    pub(super) fn serves(&self, key: RowKey) -> Option<(u32, u32)> {
        let held = self.row(key)?;
        let is_there = held.stage == Stage::There && held.is_as_wished();
        is_there.then_some((held.lease_epoch, held.banks?.first))
    }

    /// Row and rank's place among the counters of progress.
    pub(super) fn row_index(&self, key: RowKey) -> Option<u16> {
        u16::try_from(self.row(key)?.index?.first).ok()
    }

    fn row(&self, key: RowKey) -> Option<&HeldRow> {
        let mut scopes = self.scopes.iter().flatten();
        scopes
            .find(|scope| scope.owner.job() == Some(key.job) && scope.rows.contains_key(&key.row))
            .and_then(|scope| scope.rows.get(&key.row))
    }

    /// The owner of a scope.
    pub(super) fn owner(&self, scope: usize) -> Option<Owner> {
        self.scopes.get(scope)?.as_ref().map(|scope| scope.owner)
    }

    /// The next write, with its number.
    pub(super) fn poll_write(&mut self) -> Option<(u64, Write)> {
        self.writes.pop_front()
    }

    /// The next row that is ready or refused.
    pub(super) fn poll_told(&mut self) -> Option<Told> {
        self.told.pop_front()
    }

    /// A write has been carried out, or refused with these words.
    pub(super) fn handle_written(&mut self, number: u64, result: Result<(), String>) {
        let Some(pending) = self.pending.remove(&number) else { return };
        match pending {
            Pending::Support { scope: at, key, is_delete } => {
                let Some(scope) = self.scope_mut(at) else { return };
                scope.outstanding -= 1;
                match result {
                    Ok(()) => {}
                    Err(_) if is_delete => return self.ops.lose(Lost::Removal),
                    Err(reason) => {
                        scope.held.remove(&key);
                        scope.refused = Some(reason);
                    }
                }
                self.advance(at);
            }
            Pending::Insert { scope: at, row } => {
                let Some(scope) = self.scope_mut(at) else { return };
                let Some(job) = scope.owner.job() else { return };
                let Some(held) = scope.rows.get_mut(&row) else { return };
                let key = RowKey { job, row };
                let told = match result {
                    Ok(()) => {
                        held.stage = Stage::There;
                        held.is_as_wished().then_some(Told::Ready(key))
                    }
                    Err(reason) => {
                        (held.stage, held.entry) = (Stage::Refused, None);
                        Some(Told::Refused(key, reason))
                    }
                };
                self.told.extend(told);
                self.advance(at);
            }
            Pending::Modify { scope: at, row } => {
                if result.is_err() {
                    // The row in the switch is not what is thought of it any more.
                    return self.ops.lose(Lost::Removal);
                }
                if let Some(held) = self.scope_mut(at).and_then(|scope| scope.rows.get_mut(&row)) {
                    held.stage = Stage::There;
                }
                self.advance(at);
            }
            Pending::Delete { scope: at, row } => {
                if result.is_err() {
                    return self.ops.lose(Lost::Removal);
                }
                if let Some(held) = self.scope_mut(at).and_then(|scope| scope.rows.get_mut(&row)) {
                    (held.stage, held.entry) = (Stage::Absent, None);
                    let index = held.index.and_then(|index| u16::try_from(index.first).ok());
                    self.told.extend(index.map(Told::Gone));
                }
                self.advance(at);
            }
        }
    }

    /// The switch holds what a row's installation begins with, or a part of it.
    pub(super) fn handle_seeded(&mut self, lease_epoch: u32) {
        if self.ops.any(|whose| whose == For::Row { lease_epoch }) {
            return;
        }
        for at in 0..self.scopes.len() {
            let Some(scope) = &mut self.scopes[at] else { continue };
            let seeding = scope
                .rows
                .values_mut()
                .find(|held| held.stage == Stage::Seeding && held.lease_epoch == lease_epoch);
            if let Some(held) = seeding {
                held.stage = Stage::Seeded;
                return self.advance(at);
            }
        }
    }

    fn scope_mut(&mut self, at: usize) -> Option<&mut Scope> {
        if at == BASE { Some(&mut self.base) } else { self.scopes.get_mut(at)?.as_mut() }
    }

    /// Writes whatever may be written by now.
    fn advance(&mut self, at: usize) {
        self.remove_rows(at);
        let Some(scope) = self.scope_mut(at) else { return };
        if scope.may_write_support() {
            let changes = scope.changes();
            for (key, write) in changes {
                let is_delete = matches!(write, Write::Delete(_));
                self.write(Pending::Support { scope: at, key, is_delete }, write);
            }
        }
        let Some(scope) = self.scope_mut(at) else { return };
        if let Some(reason) = &scope.refused {
            let reason = reason.clone();
            self.refuse(at, &reason);
        } else if scope.outstanding == 0 {
            self.install_rows(at);
        }
        if at != BASE && self.scopes[at].as_ref().is_some_and(Scope::is_empty) {
            self.scopes[at] = None;
        }
    }

    /// Deletes the rows that are not wished for as they are, and forgets those that are gone.
    fn remove_rows(&mut self, at: usize) {
        let Some(scope) = self.scope_mut(at) else { return };
        let rows: Vec<u16> = scope.rows.keys().copied().collect();
        for row in rows {
            let Some(scope) = self.scope_mut(at) else { return };
            let Some(held) = scope.rows.get_mut(&row) else { continue };
            if held.is_as_wished() {
                continue;
            }
            match held.stage {
                Stage::There => {
                    held.stage = Stage::Deleting;
                    let entry = held.entry.clone().expect("it was written");
                    self.write(Pending::Delete { scope: at, row }, Write::Delete(entry));
                }
                Stage::Inserting | Stage::Modifying | Stage::Deleting => {}
                Stage::Absent | Stage::Seeding | Stage::Seeded | Stage::Refused => {
                    let lease_epoch = core::mem::take(&mut held.lease_epoch);
                    (held.stage, held.installation) = (Stage::Absent, None);
                    if held.wish.is_none() {
                        let gone = scope.rows.remove(&row).expect("it was just there");
                        gone.banks.into_iter().for_each(|banks| self.banks.give_back(banks));
                        gone.index.into_iter().for_each(|it| self.row_indices.give_back(it));
                    }
                    self.ops.forget(lease_epoch);
                }
            }
        }
    }

    /// Brings in the rows whose scope is in place, seeds first.
    fn install_rows(&mut self, at: usize) {
        let Some(scope) = self.scope_mut(at) else { return };
        let rows: Vec<u16> = scope.rows.keys().copied().collect();
        for row in rows {
            let Some(held) = self.scope_mut(at).and_then(|scope| scope.rows.get_mut(&row)) else {
                continue;
            };
            match held.stage {
                Stage::Absent if held.wish.is_some() => self.begin_row(at, row),
                Stage::There if held.is_as_wished() => self.modify_row(at, row),
                _ => {}
            }
            self.insert_row(at, row);
        }
    }

    /// Gives a row its room, its number, and its seeds.
    fn begin_row(&mut self, at: usize, row: u16) {
        let Some(scope) = self.scopes.get_mut(at).and_then(Option::as_mut) else { return };
        let Some(held) = scope.rows.get_mut(&row) else { return };
        let Some(wish) = &held.wish else { return };
        let banks = held.banks.filter(|banks| banks.len == wish.banks);
        if banks.is_none() {
            held.banks.take().into_iter().for_each(|banks| self.banks.give_back(banks));
        }
        held.banks = banks.or_else(|| self.banks.take(wish.banks));
        held.index = held.index.or_else(|| self.row_indices.take(1));
        let (Some(banks), Some(_)) = (held.banks, held.index) else {
            held.stage = Stage::Refused;
            held.installation = Some(wish.installation);
            if let Some(job) = scope.owner.job() {
                let reason = String::from("the switch has no banks or rows left");
                self.told.push_back(Told::Refused(RowKey { job, row }, reason));
            }
            return;
        };
        held.lease_epoch = self.next_epoch;
        // None is used again, and 0 is no number.
        self.next_epoch = self.next_epoch.wrapping_add(1).max(1);
        held.installation = Some(wish.installation);
        let lease_epoch = held.lease_epoch;
        for seeded in &wish.seeds {
            let seed = Seed {
                index: banks.first + seeded.bank,
                lease_epoch,
                step: seeded.step,
                members: wish.mask,
                exponent: seeded.exponent,
                has_data: false,
            };
            self.ops.ask(Question { op: Op::Seed(seed), whose: For::Row { lease_epoch } });
        }
        held.stage = if wish.seeds.is_empty() { Stage::Seeded } else { Stage::Seeding };
    }

    fn insert_row(&mut self, at: usize, row: u16) {
        let is_kept = self.ops.is_kept();
        let Some(scope) = self.scope_mut(at) else { return };
        let Some(held) = scope.rows.get_mut(&row) else { return };
        // A switch that did not say that it is this box's may be another's by now.
        if held.stage != Stage::Seeded || !is_kept {
            return;
        }
        let Some(entry) = held.wished_entry(at) else { return };
        held.stage = Stage::Inserting;
        held.entry = Some(entry.clone());
        self.write(Pending::Insert { scope: at, row }, Write::Insert(entry));
    }

    fn modify_row(&mut self, at: usize, row: u16) {
        let Some(scope) = self.scope_mut(at) else { return };
        let Some(held) = scope.rows.get_mut(&row) else { return };
        let Some(entry) = held.wished_entry(at).filter(|it| held.entry.as_ref() != Some(it)) else {
            return;
        };
        held.stage = Stage::Modifying;
        held.entry = Some(entry.clone());
        self.write(Pending::Modify { scope: at, row }, Write::Modify(entry));
    }

    /// Tells that the rows of a scope that cannot be are refused.
    fn refuse(&mut self, at: usize, reason: &str) {
        let Some(scope) = self.scopes.get_mut(at).and_then(Option::as_mut) else { return };
        let Some(job) = scope.owner.job() else { return };
        for (row, held) in &mut scope.rows {
            if held.wish.is_some() && held.stage == Stage::Absent {
                held.stage = Stage::Refused;
                held.installation = held.wish.as_ref().map(|wish| wish.installation);
                let key = RowKey { job, row: *row };
                self.told.push_back(Told::Refused(key, String::from(reason)));
            }
        }
    }

    /// The switch is this box's: rows may go in.
    pub(super) fn handle_kept(&mut self) {
        for at in 0..self.scopes.len() {
            self.advance(at);
        }
    }

    fn write(&mut self, pending: Pending, write: Write) {
        let number = self.next_number;
        self.next_number += 1;
        self.pending.insert(number, pending);
        self.writes.push_back((number, write));
    }
}

/// In the place of a scope's number: what belongs to no lease.
const BASE: usize = usize::MAX;
