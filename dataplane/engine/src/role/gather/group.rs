//! The groups of a job: installed, narrowed, freed. Rows are indices, never searched.
//!
//! Invariant: a group that is open has a range of the arena of its own, and a mask that only ever
//! shrinks (PROTOCOL section 4).

use alloc::vec;
use alloc::vec::Vec;

use weft_control::{GROUPS_OPEN_MAX, GroupDescriptor, InstallError, PushConfig};
use weft_wire::quant::is_exponent;
use weft_wire::{GroupId, Members, Nanos, Rank};

use crate::drops::DropReason;
use crate::slot::whole::{Arena, Place, Range};

/// An open group.
#[derive(Clone, Copy, Debug)]
pub(super) struct Group {
    pub(super) id: GroupId,
    /// Whose updates are still to be summed.
    pub(super) mask: Members,
    /// Whose updates were to be summed when it was installed.
    installed: Members,
    pub(super) exponent: i8,
    /// Largest magnitude of an element where contributions are clamped: their sum cannot overflow.
    pub(super) limit: i32,
    /// A copy of each sum goes to the replica.
    pub(super) replicate: bool,
    /// Chunks of the train that each member's transfer begins with.
    pub(super) train_chunks: u16,
    pub(super) range: Range,
    pub(super) installation: u32,
}

impl Group {
    /// The slot of one of its chunks.
    #[inline]
    pub(super) const fn place(&self, chunk: u32) -> Place {
        self.range.place(self.installation, chunk)
    }
}

/// How far a member's update has come.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Progress {
    /// Chunks in.
    pub(super) chunks: u32,
    /// When the first came.
    pub(super) first_at: Nanos,
}

/// The groups of a job.
#[derive(Debug)]
pub(super) struct Groups {
    rows: Vec<Option<Group>>,
    /// By row and rank.
    progress: Vec<Progress>,
    worker_count: usize,
    open: usize,
}

impl Groups {
    /// Takes the memory of the groups of a job with so many workers.
    pub(super) fn vacant(workers_max: usize) -> Self {
        let rows = usize::from(GROUPS_OPEN_MAX);
        Self {
            rows: vec![None; rows],
            progress: vec![Progress::default(); rows * workers_max],
            worker_count: 0,
            open: 0,
        }
    }

    /// Begins anew for another job: none is open.
    pub(super) fn renew(&mut self, worker_count: usize) {
        debug_assert!(self.rows.len() * worker_count <= self.progress.len());
        self.rows.fill(None);
        (self.worker_count, self.open) = (worker_count, 0);
    }

    /// The open group in a row, whatever its generation.
    #[inline]
    pub(super) fn in_row(&self, row: u16) -> Option<&Group> {
        self.rows.get(usize::from(row))?.as_ref()
    }

    /// The group with this id.
    ///
    /// # Errors
    /// [`DropReason::UnknownGroup`] when its row has none, [`DropReason::StaleGroup`] when the row
    /// has another one.
    #[inline(always)]
    pub(super) fn find(&self, id: GroupId) -> Result<Group, DropReason> {
        let group = self.in_row(id.row()).ok_or(DropReason::UnknownGroup)?;
        if group.id == id { Ok(*group) } else { Err(DropReason::StaleGroup) }
    }

    #[inline]
    pub(super) fn progress_mut(&mut self, id: GroupId, rank: Rank) -> &mut Progress {
        &mut self.progress[usize::from(id.row()) * self.worker_count + rank.index()]
    }

    /// Takes a group in. One that is open already under the same id stays as it is.
    pub(super) fn install(
        &mut self,
        config: &PushConfig,
        arena: &mut Arena,
        group: &GroupDescriptor,
    ) -> Result<(), InstallError> {
        let mask = group.mask();
        if group.group.row() >= GROUPS_OPEN_MAX {
            return Err(InstallError::Shape);
        }
        if let Some(open) = self.in_row(group.group.row()) {
            let is_same = open.id == group.group
                && open.installed == mask
                && open.range.len == group.chunks
                && open.exponent == group.exponent;
            return if is_same { Ok(()) } else { Err(InstallError::RowTaken) };
        }
        let fits = group.via == Some(config.box_index)
            && group.element_type == config.element_type
            && group.elements == config.elements
            && is_exponent(group.exponent)
            && (1..=config.chunks).contains(&group.chunks)
            && !mask.is_empty()
            && mask.len() == group.members.len()
            && Members::first(self.worker_count).contains(mask);
        if !fits {
            return Err(InstallError::Shape);
        }
        let (range, installation) = arena.take(group.chunks).ok_or(InstallError::Full)?;
        for rank in mask.iter() {
            *self.progress_mut(group.group, rank) = Progress::default();
        }
        self.open += 1;
        self.rows[usize::from(group.group.row())] = Some(Group {
            id: group.group,
            mask,
            installed: mask,
            exponent: group.exponent,
            limit: i32::MAX / i32::try_from(mask.len()).map_or(1, |members| members.max(1)),
            replicate: group.replicate,
            train_chunks: group.train_chunks,
            range,
            installation,
        });
        Ok(())
    }

    /// Frees a group's lease; false when it is not open.
    pub(super) fn remove(&mut self, arena: &mut Arena, id: GroupId) -> bool {
        let Ok(group) = self.find(id) else { return false };
        self.rows[usize::from(id.row())] = None;
        self.open -= 1;
        arena.give_back(group.range);
        true
    }

    /// Takes members out of a group's mask. True when that changed it.
    pub(super) fn narrow(&mut self, id: GroupId, to: Members) -> bool {
        let Some(Some(group)) = self.rows.get_mut(usize::from(id.row())) else { return false };
        let narrowed = Members(group.mask.0 & to.0);
        let changes = group.id == id && narrowed != group.mask;
        if changes {
            group.mask = narrowed;
        }
        changes
    }

    /// Takes a member out of the groups that `which` names; returns how many it left.
    pub(super) fn close_member(
        &mut self,
        rank: Rank,
        which: impl Fn(GroupId, Progress, u32) -> bool,
    ) -> u32 {
        let mut left = 0;
        for row in 0..self.rows.len() {
            let Some(group) = &mut self.rows[row] else { continue };
            let progress = self.progress[row * self.worker_count + rank.index()];
            if group.mask.contains(rank.bit()) && which(group.id, progress, group.range.len) {
                group.mask = group.mask.without(rank.bit());
                left += 1;
            }
        }
        left
    }

    /// Groups that are open.
    pub(super) fn open(&self) -> usize {
        self.open
    }

    /// The open groups.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Group> {
        self.rows.iter().flatten()
    }
}
