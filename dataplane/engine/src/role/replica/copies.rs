//! Copies of updates that are not decided yet: what of every installed group has come, and the sum
//! that is fetched from the server's log.
//!
//! Invariants: a contributor is in a chunk at most once ([`StagePool`]); a stage is kept back for
//! the repair, so that groups that wait never stop the sequence.

use alloc::vec::Vec;

use weft_control::{BoxIndex, GroupDescriptor, InstallError};
use weft_kernel::Kernels;
use weft_wire::header::{ElementType, Header};
use weft_wire::{GroupId, Members};

use super::config::ReplicaJobConfig;
use crate::role::model::{StageIndex, StagePool, Staged};

/// The groups whose copies are staged, and the repair.
#[derive(Debug)]
pub(super) struct Copies {
    chunks: u32,
    pool: StagePool,
    groups: Vec<Option<StagedGroup>>,
    /// The sum of the next decision, while it is fetched.
    repair: Option<StageIndex>,
}

/// A group whose copies are staged.
#[derive(Debug)]
pub(super) struct StagedGroup {
    id: GroupId,
    order: u64,
    pub(super) mask: Members,
    pub(super) element_type: ElementType,
    pub(super) exponent: i8,
    pub(super) via: Option<BoxIndex>,
    stage: StageIndex,
    /// A chunk was put together from parts here.
    pub(super) is_composed: bool,
    chunks_staged: u32,
}

/// What became of a copy.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Copied {
    pub(super) staged: Staged,
    /// All chunks of its group hold all members now.
    pub(super) is_whole: bool,
}

impl Copies {
    pub(super) fn new(config: &ReplicaJobConfig, kernels: &'static Kernels) -> Self {
        let chunks = config.model.chunks();
        let groups = core::iter::repeat_with(|| None).take(usize::from(config.groups_open_max));
        let elements = usize::from(config.model.elements);
        // One stage more than may be open, for the sum that is repaired.
        let stages = config.stages_open() + 1;
        Self {
            chunks,
            pool: StagePool::new(kernels, stages, chunks as usize, elements),
            groups: groups.collect(),
            repair: None,
        }
    }

    /// Begins to stage the copies of a group, whose shape was checked. `next_order` is decided
    /// next.
    pub(super) fn install(
        &mut self,
        descriptor: &GroupDescriptor,
        next_order: u64,
    ) -> Result<(), InstallError> {
        if let Some(known) = self.get(descriptor.group) {
            // A controller that lost the answer asks again.
            let is_same = known.order == descriptor.order.0;
            return if is_same { Ok(()) } else { Err(InstallError::RowTaken) };
        }
        if descriptor.order.0 < next_order {
            return Err(InstallError::Order);
        }
        let place = self.groups.iter_mut().find(|place| place.is_none());
        let place = place.ok_or(InstallError::Full)?;
        let kept_back = usize::from(self.repair.is_none());
        if self.pool.free_count() <= kept_back {
            return Err(InstallError::Full);
        }
        *place = Some(StagedGroup {
            id: descriptor.group,
            order: descriptor.order.0,
            mask: descriptor.mask(),
            element_type: descriptor.element_type,
            exponent: descriptor.exponent,
            via: descriptor.via,
            stage: self.pool.take().ok_or(InstallError::Full)?,
            is_composed: false,
            chunks_staged: 0,
        });
        Ok(())
    }

    /// A group that is staged.
    pub(super) fn get(&self, id: GroupId) -> Option<&StagedGroup> {
        self.groups.iter().flatten().find(|group| group.id == id)
    }

    /// Lets go of the groups that are done with.
    fn remove(&mut self, is_over: impl Fn(&StagedGroup) -> bool) {
        for place in &mut self.groups {
            if let Some(group) = place.take_if(|group| is_over(group)) {
                self.pool.give_back(group.stage);
            }
        }
    }

    /// Lets go of a group.
    pub(super) fn remove_group(&mut self, id: GroupId) {
        self.remove(|group| group.id == id);
    }

    /// Lets go of all groups that are decided.
    pub(super) fn remove_below(&mut self, next_order: u64) {
        self.remove(|group| group.order < next_order);
    }

    /// Takes a copy of a chunk, whose shape was checked; none if the group is not staged.
    pub(super) fn add(&mut self, header: &Header, wire: &mut [u8]) -> Option<Copied> {
        let group = self.groups.iter_mut().flatten().find(|group| group.id == header.group)?;
        let (chunk, from) = (header.chunk.0, header.members);
        let before = self.pool.holders(group.stage, chunk);
        let (kind, mask) = (group.element_type, group.mask);
        let staged = self.pool.add(group.stage, chunk, kind, mask, from, wire);
        let is_new = matches!(staged, Staged::Added(_));
        group.is_composed |= is_new && !before.is_empty() && from.without(before) == from;
        group.chunks_staged += u32::from(staged == Staged::Added(true));
        Some(Copied { staged, is_whole: is_new && group.chunks_staged == self.chunks })
    }

    /// The stage of a group, if every chunk holds just these members.
    pub(super) fn whole(&self, id: GroupId, members: Members) -> Option<StageIndex> {
        self.if_whole(self.get(id)?.stage, members)
    }

    /// All sums of a stage, chunk by chunk.
    pub(super) fn sums(&self, stage: StageIndex) -> &[u8] {
        self.pool.sums(stage)
    }

    /// Makes room for a sum that is fetched, with what the copies of `id` have of it already. False
    /// while there is no stage for it.
    pub(super) fn begin_repair(&mut self, id: Option<GroupId>, members: Members) -> bool {
        let copies = id.and_then(|id| self.get(id)).map(|group| group.stage);
        let Some(stage) = self.pool.take() else { return false };
        if let Some(copies) = copies {
            self.pool.adopt(stage, copies, members);
        }
        self.repair = Some(stage);
        true
    }

    /// Who is in a chunk of the sum that is fetched.
    pub(super) fn repaired(&self, chunk: u32) -> Members {
        self.repair.map_or(Members::EMPTY, |stage| self.pool.holders(stage, chunk))
    }

    /// The stage of the sum that is fetched, if all of it is here.
    pub(super) fn whole_repair(&self, members: Members) -> Option<StageIndex> {
        self.if_whole(self.repair?, members)
    }

    /// Takes a chunk of the sum that is fetched. False when it was here.
    pub(super) fn add_repair(
        &mut self,
        chunk: u32,
        element_type: ElementType,
        members: Members,
        wire: &mut [u8],
    ) -> bool {
        let Some(stage) = self.repair else { return false };
        let staged = self.pool.add(stage, chunk, element_type, members, members, wire);
        matches!(staged, Staged::Added(_))
    }

    /// Lets go of the sum that is fetched.
    pub(super) fn end_repair(&mut self) {
        if let Some(stage) = self.repair.take() {
            self.pool.give_back(stage);
        }
    }

    fn if_whole(&self, stage: StageIndex, members: Members) -> Option<StageIndex> {
        let is_whole = (0..self.chunks).all(|chunk| self.pool.holders(stage, chunk) == members);
        is_whole.then_some(stage)
    }
}
