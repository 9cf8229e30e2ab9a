//! What push jobs take: how much memory each, and the memory itself.

use alloc::vec::Vec;
use core::net::SocketAddr;

use weft_control::{PushConfig, SumOrder};
use weft_kernel::Kernels;
use weft_wire::MEMBERS_MAX;
use weft_wire::header::Operation;

use super::group::Groups;
use super::have::HaveTemplate;
use super::relay::Relay;
use crate::admit::expected::Expected;
use crate::role::channel::PeersMemory;
use crate::slot::accumulate::Arithmetic;
use crate::slot::whole::Arena;
use crate::table::{ArenaConfig, pull_slot_count, push_slot_count};

/// What a place has room for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    pub(super) workers: usize,
    slots: usize,
    pub(super) words: usize,
    pull_slots: usize,
    pull_bytes: usize,
}

impl Room {
    /// Just enough for a job.
    pub(super) fn of_push(push: &PushConfig) -> Self {
        let elements = usize::from(push.elements);
        let slots = push_slot_count(push) as usize;
        let pull_slots = pull_slot_count(push) as usize;
        Self {
            workers: push.workers.len(),
            slots,
            words: arithmetic(push).word_count(elements, 1, slots),
            pull_slots,
            pull_bytes: pull_slots * elements * 4,
        }
    }

    /// For any job that wants no more than an arena keeps for each.
    pub(super) fn of_arena(arena: &ArenaConfig) -> Self {
        let size = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        let (bytes, pull_bytes) = (size(arena.push_bytes), size(arena.pull_cache_bytes));
        Self {
            workers: MEMBERS_MAX,
            // A cache line and what a slot knows are the least that it takes.
            slots: bytes / size(Arena::slot_len_bytes(1)),
            words: bytes / 4,
            pull_slots: pull_bytes / PULL_SLOT_BYTES_MIN,
            pull_bytes,
        }
    }

    pub(super) fn has_room_for(&self, push: &PushConfig) -> bool {
        let Self { workers, slots, words, pull_slots, pull_bytes } = Self::of_push(push);
        workers <= self.workers
            && slots <= self.slots
            && words <= self.words
            && pull_slots <= self.pull_slots
            && pull_bytes <= self.pull_bytes
    }
}

/// What a push job takes.
#[derive(Debug)]
pub(super) struct Memory {
    pub(super) workers: Vec<SocketAddr>,
    pub(super) peers: PeersMemory,
    pub(super) expected: Vec<Expected>,
    pub(super) haves: Vec<Option<HaveTemplate>>,
    pub(super) arena: Arena,
    pub(super) groups: Groups,
    pub(super) relay: Relay,
}

impl Memory {
    pub(super) fn new(room: &Room, kernels: &'static Kernels) -> Self {
        Self {
            workers: Vec::with_capacity(room.workers),
            peers: PeersMemory::new(room.workers),
            expected: Vec::with_capacity(room.workers),
            haves: Vec::with_capacity(room.workers),
            arena: Arena::vacant(room.slots, room.words, kernels),
            groups: Groups::vacant(room.workers),
            relay: Relay::vacant(room.pull_slots, room.pull_bytes),
        }
    }
}

/// How a job's slots are summed.
pub(super) fn arithmetic(config: &PushConfig) -> Arithmetic {
    Arithmetic {
        element_type: config.element_type,
        operation: Operation::Sum,
        sum_order: SumOrder::Arrival,
        overflow: config.overflow,
    }
}

/// What a chunk of the model counts as at least, when an arena is made: each takes some words more.
const PULL_SLOT_BYTES_MIN: usize = 64;
