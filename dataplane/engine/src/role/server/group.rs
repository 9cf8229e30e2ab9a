//! An open group at the server: what it was opened as, and how far it is staged. Only
//! [`super::staging`] changes one.

use arrayvec::ArrayVec;
use weft_control::{BoxIndex, GroupDescriptor, GroupMember, TRAIN_CHUNKS_MAX};
use weft_wire::header::ElementType;
use weft_wire::{GroupId, MEMBERS_MAX, Members, Nanos};

use crate::role::model::StageIndex;

/// Place of an open group in the job's table.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct OpenIndex(pub(super) u16);

impl OpenIndex {
    pub(super) fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// What a group is opened as: a controller's descriptor, or what a worker said of its update.
#[derive(Clone, Copy, Debug)]
pub(super) struct Opening<'a> {
    pub(super) id: GroupId,
    pub(super) members: &'a [GroupMember],
    pub(super) element_type: ElementType,
    pub(super) exponent: i8,
    pub(super) via: Option<BoxIndex>,
    pub(super) rate_bytes_per_sec: Option<u64>,
    pub(super) train_chunks: u16,
    pub(super) after: Option<GroupId>,
    pub(super) lateness_ns: u64,
}

impl<'a> From<&'a GroupDescriptor> for Opening<'a> {
    fn from(descriptor: &'a GroupDescriptor) -> Self {
        Self {
            id: descriptor.group,
            members: &descriptor.members,
            element_type: descriptor.element_type,
            exponent: descriptor.exponent,
            via: descriptor.via,
            rate_bytes_per_sec: descriptor.rate_bytes_per_sec,
            train_chunks: descriptor.train_chunks.min(TRAIN_CHUNKS_MAX),
            after: descriptor.after,
            lateness_ns: descriptor.lateness_ns,
        }
    }
}

/// An open group.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) id: GroupId,
    /// Position in the plan. With [`super::CommitMode::Arrival`] the order of installation.
    pub(super) order: u64,
    pub(super) members: ArrayVec<GroupMember, MEMBERS_MAX>,
    /// All members, as granted.
    pub(super) granted: Members,
    /// Members that have not been closed.
    pub(super) mask: Members,
    /// Closed members that are told with the decision.
    pub(super) closed: Members,
    pub(super) element_type: ElementType,
    pub(super) exponent: i8,
    pub(super) via: Option<BoxIndex>,
    pub(super) after: Option<GroupId>,
    pub(super) lateness_ns: u64,
    pub(super) stage: StageIndex,
    /// Chunks that hold exactly the mask.
    pub(super) chunks_staged: u32,
    pub(super) is_staged: bool,
    /// A chunk was put together from parts.
    pub(super) is_composed: bool,
    pub(super) installed_at: Nanos,
    /// Since when it could be decided next.
    pub(super) head_since: Option<Nanos>,
    /// When its first chunk came.
    pub(super) first_at: Option<Nanos>,
    /// How long no chunk of any group had come by then.
    pub(super) idle_ns: u64,
    pub(super) bytes: u64,
}

impl Group {
    /// Something of it has come.
    pub(super) fn is_flowing(&self) -> bool {
        self.first_at.is_some()
    }

    /// Members that may still be committed, in the group's order.
    pub(super) fn remaining(&self) -> impl Iterator<Item = &GroupMember> {
        self.members.iter().filter(|member| self.mask.contains(member.rank.bit()))
    }

    /// The delay that scales the group: the greatest of its members'.
    pub(super) fn delay(&self, version: u64) -> u16 {
        let delays = self.delays(version).filter_map(|(_, delay)| delay);
        u16::try_from(delays.max().unwrap_or(0)).unwrap_or(u16::MAX)
    }

    /// The delays that the remaining members would have if the group were committed now, in order:
    /// the i-th comes i versions later. `None` for a version that the model has not had.
    pub(super) fn delays(&self, version: u64) -> impl Iterator<Item = (Members, Option<u64>)> {
        (version..).zip(self.remaining()).map(move |(position, member)| {
            let delay = position.checked_sub(member.version.0);
            (member.rank.bit(), delay.filter(|_| member.version.0 <= version))
        })
    }
}
