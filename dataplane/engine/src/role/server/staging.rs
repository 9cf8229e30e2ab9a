//! Staging: updates that have come, or are to come, and are not committed (PROTOCOL section 4).
//!
//! Owns the open groups and the memory of their sums. A decided group leaves with its stage, which
//! may pass to the log; that gives it back. Invariants: each contributor of a chunk is in its sum
//! exactly once (I1, [`StagePool`]); every open group has a stage, one place in its row and one in
//! the sequence; a group is staged when all its chunks hold just its members. Others see a group by
//! reference only.

use alloc::vec;
use alloc::vec::Vec;

use arrayvec::ArrayVec;
use weft_control::{GROUPS_OPEN_MAX, GroupMember, InstallError};
use weft_kernel::Kernels;
use weft_wire::header::Header;
use weft_wire::rows::ROW_DIRECT;
use weft_wire::{GroupId, MEMBERS_MAX, Members, Nanos, Rank};

use super::config::ServerJobConfig;
use super::group::{Group, OpenIndex, Opening};
use crate::role::model::{StageIndex, StagePool, Staged};

/// The open groups of a job, and what of them has come.
#[derive(Debug)]
pub(super) struct Staging {
    chunks: u32,
    open_max: usize,
    pool: StagePool,
    groups: Vec<Option<Group>>,
    /// By [`place_of`] their ids.
    places: Vec<Option<OpenIndex>>,
    /// Open groups in the order of their numbers.
    plan: Vec<OpenIndex>,
    /// When the last chunk came.
    chunk_at: Option<Nanos>,
}

/// What became of a chunk that arrived.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Arrival {
    pub(super) staged: Staged,
    /// It was added to what was there.
    pub(super) is_composed: bool,
    /// All of its group is staged with it.
    pub(super) is_last: bool,
}

impl Staging {
    /// Takes the memory of a job whose configuration was checked.
    pub(super) fn new(config: &ServerJobConfig, kernels: &'static Kernels) -> Self {
        let (chunks, elements) = (config.model.chunks(), usize::from(config.model.elements));
        // A sum that the log does not keep waits for the journal.
        let waiting = u32::from(config.is_durable && config.stages_logged() == 0);
        let stages = config.stages_open() + config.stages_logged() + waiting;
        let groups_max = usize::from(config.groups_open_max);
        Self {
            chunks,
            open_max: config.stages_open() as usize,
            pool: StagePool::new(kernels, stages, chunks as usize, elements),
            groups: core::iter::repeat_with(|| None).take(groups_max).collect(),
            places: vec![None; ROWS + config.workers.len() * DIRECT_OPEN_MAX],
            plan: Vec::with_capacity(groups_max),
            chunk_at: None,
        }
    }

    /// The group that is open in the row of this id, whatever its generation.
    pub(super) fn in_place(&self, id: GroupId) -> Option<OpenIndex> {
        self.places.get(place_of(id)?).copied().flatten()
    }

    /// The open group with this id.
    pub(super) fn find(&self, id: GroupId) -> Option<OpenIndex> {
        self.in_place(id).filter(|index| self.get(*index).id == id)
    }

    /// An open group.
    pub(super) fn get(&self, index: OpenIndex) -> &Group {
        self.groups[index.index()].as_ref().expect("indices of open groups only")
    }

    fn get_mut(&mut self, index: OpenIndex) -> &mut Group {
        self.groups[index.index()].as_mut().expect("indices of open groups only")
    }

    /// Open groups in the order of their numbers.
    pub(super) fn plan(&self) -> &[OpenIndex] {
        &self.plan
    }

    /// A place for a group, and the group that is open there.
    pub(super) fn at(&self, place: usize) -> Option<(OpenIndex, Option<&Group>)> {
        let group = self.groups.get(place)?.as_ref();
        let index = OpenIndex(u16::try_from(place).expect("at most 1024 groups"));
        Some((index, group))
    }

    /// The order number of a group that is decided after all that are open.
    pub(super) fn order_after_all(&self, next_order: u64) -> u64 {
        let last = self.plan.last().map_or(0, |index| self.get(*index).order + 1);
        last.max(next_order)
    }

    /// Opens a group that passed all checks under a free order number; `told` are members that were
    /// told what became of their updates in it.
    pub(super) fn open(
        &mut self,
        now: Nanos,
        opening: &Opening<'_>,
        order: u64,
        told: Members,
    ) -> Result<OpenIndex, InstallError> {
        let free = self.groups.iter().position(Option::is_none).ok_or(InstallError::Full)?;
        if self.plan.len() >= self.open_max {
            return Err(InstallError::Full);
        }
        let stage = self.pool.take().ok_or(InstallError::Full)?;
        let index = OpenIndex(u16::try_from(free).expect("at most 1024 groups"));
        if let Some(place) = place_of(opening.id) {
            debug_assert!(self.places[place].is_none(), "the caller found the place free");
            self.places[place] = Some(index);
        }
        let members: ArrayVec<_, MEMBERS_MAX> = opening.members.iter().copied().collect();
        let granted = mask_of(opening.members);
        self.groups[free] = Some(Group {
            id: opening.id,
            order,
            members,
            granted,
            mask: granted.without(told),
            closed: Members::EMPTY,
            element_type: opening.element_type,
            exponent: opening.exponent,
            via: opening.via,
            after: opening.after,
            lateness_ns: opening.lateness_ns,
            stage,
            chunks_staged: 0,
            is_staged: false,
            is_composed: false,
            installed_at: now,
            head_since: None,
            first_at: None,
            idle_ns: 0,
            bytes: 0,
        });
        let at = self.plan.partition_point(|index| self.get(*index).order < order);
        self.plan.insert(at, index);
        Ok(index)
    }

    /// Takes a chunk whose sender and shape were checked; `wire` is scratch afterwards.
    pub(super) fn add(
        &mut self,
        now: Nanos,
        index: OpenIndex,
        header: &Header,
        frame_len: u64,
        wire: &mut [u8],
    ) -> Arrival {
        let group = self.groups[index.index()].as_mut().expect("indices of open groups only");
        if group.first_at.is_none() {
            group.first_at = Some(now);
            group.idle_ns = now.since(self.chunk_at.unwrap_or(now)).0;
        }
        self.chunk_at = Some(now);
        group.bytes += frame_len;
        let (chunk, from) = (header.chunk.0, header.members);
        let held = self.pool.holders(group.stage, chunk);
        let (kind, mask) = (group.element_type, group.mask);
        let staged = self.pool.add(group.stage, chunk, kind, mask, from, wire);
        let is_new = matches!(staged, Staged::Added(_));
        let is_composed = is_new && !held.is_empty() && from.without(held) == from;
        group.is_composed |= is_composed;
        group.chunks_staged += u32::from(staged == Staged::Added(true));
        let is_last = is_new && group.chunks_staged == self.chunks && !group.is_staged;
        group.is_staged |= is_last;
        Arrival { staged, is_composed, is_last }
    }

    /// Takes a member out of an open group: chunks that hold it are staged afresh. It hears of its
    /// VOID with the group's decision if `is_told`; before that is durable, a server that begins
    /// anew may be given the group with all its members. None if it is no member; else whether the
    /// group is staged without it and was not staged with it.
    pub(super) fn close_member(
        &mut self,
        index: OpenIndex,
        rank: Rank,
        is_told: bool,
    ) -> Option<bool> {
        let group = self.groups[index.index()].as_mut().expect("indices of open groups only");
        if !group.mask.contains(rank.bit()) {
            return None;
        }
        group.mask = group.mask.without(rank.bit());
        if is_told {
            group.closed = group.closed.union(rank.bit());
        }
        group.chunks_staged = self.pool.restage(group.stage, rank.bit(), group.mask);
        let is_staged = !group.mask.is_empty() && group.chunks_staged == self.chunks;
        let was_staged = core::mem::replace(&mut group.is_staged, is_staged);
        Some(is_staged && !was_staged)
    }

    /// A worker's new life is not told what became of the old one's updates.
    pub(super) fn forget_closed(&mut self, rank: Rank) {
        for group in self.groups.iter_mut().flatten() {
            group.closed = group.closed.without(rank.bit());
        }
    }

    /// The group could be decided next: when it is late.
    pub(super) fn note_head(&mut self, now: Nanos, index: OpenIndex) -> Nanos {
        let group = self.get_mut(index);
        group.head_since.get_or_insert(now).saturating_add(Nanos(group.lateness_ns))
    }

    /// Takes a group that is decided out of all tables. Its stage is the caller's to give back.
    pub(super) fn shut(&mut self, index: OpenIndex) -> Group {
        let group = self.groups[index.index()].take().expect("only open groups are decided");
        self.plan.retain(|other| *other != index);
        if let Some(place) = place_of(group.id) {
            self.places[place] = None;
        }
        group
    }

    /// Who is in a chunk of an open group.
    pub(super) fn holders(&self, group: &Group, chunk: u32) -> Members {
        self.pool.holders(group.stage, chunk)
    }

    /// True when all chunks of an open group hold this member.
    pub(super) fn has_all_of(&self, group: &Group, rank: Rank) -> bool {
        (0..self.chunks).all(|chunk| self.holders(group, chunk).contains(rank.bit()))
    }

    /// A chunk's sum, as it goes on the wire.
    pub(super) fn data(&self, stage: StageIndex, chunk: u32) -> &[u8] {
        self.pool.data(stage, chunk)
    }

    /// All sums of a stage, chunk by chunk.
    pub(super) fn sums(&self, stage: StageIndex) -> &[u8] {
        self.pool.sums(stage)
    }

    /// Takes back the stage of a group that is decided, and that is kept no more.
    pub(super) fn give_back(&mut self, stage: StageIndex) {
        self.pool.give_back(stage);
    }
}

/// The members of a list, as a bitmap.
pub(super) fn mask_of(members: &[GroupMember]) -> Members {
    members.iter().fold(Members::EMPTY, |mask, member| mask.union(member.rank.bit()))
}

/// Where groups with this id stand: installed ones by their row, then each worker's direct ones by
/// the low bits of their generation.
fn place_of(id: GroupId) -> Option<usize> {
    let Some(rank) = id.row().checked_sub(ROW_DIRECT) else {
        return Some(usize::from(id.row())).filter(|row| *row < ROWS);
    };
    let direct = usize::from(id.generation()) % DIRECT_OPEN_MAX;
    Some(ROWS + usize::from(rank) * DIRECT_OPEN_MAX + direct)
}

/// Rows of installed groups.
const ROWS: usize = GROUPS_OPEN_MAX as usize;
/// Direct updates that one worker may have open.
const DIRECT_OPEN_MAX: usize = 4;
