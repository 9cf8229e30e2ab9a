//! Places: the memory of push jobs, taken when the lane is made, in which jobs come and go.
//!
//! Decides which place a job gets. Every lane of a box keeps the same account of who has which
//! place, so that all come to the same answers; lane 0 alone has the memory, and serves. Invariant:
//! of a job that has gone nothing is left that a later one could take for its own: its channels
//! were of an epoch and of cookies that are no more, and what its slots and its relay held counts
//! as nothing (PROTOCOL section 6). Nothing here allocates but [`Place::new`] (I8).

use alloc::vec::Vec;
use core::net::SocketAddr;

use weft_control::{HoldingError, PushConfig};
use weft_kernel::Kernels;
use weft_wire::frame::Endpoint;
use weft_wire::{JobId, MEMBERS_MAX, Nanos};

use super::Gather;
use super::group::Groups;
use super::have::HaveTemplate;
use super::job::{Job, arithmetic};
use super::relay::Relay;
use crate::admit::expected::Expected;
use crate::random::SplitMix64;
use crate::role::PushIndex;
use crate::role::channel::PeersMemory;
use crate::slot::whole::Arena;
use crate::table::{ArenaConfig, Table, pull_slot_count, push_slot_count};

/// What a place has room for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    workers: usize,
    slots: usize,
    words: usize,
    pull_slots: usize,
    pull_bytes: usize,
}

impl Room {
    /// Just enough for a job.
    fn of_push(push: &PushConfig) -> Self {
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
    fn of_arena(arena: &ArenaConfig) -> Self {
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

    fn has_room_for(&self, push: &PushConfig) -> bool {
        let Self { workers, slots, words, pull_slots, pull_bytes } = Self::of_push(push);
        workers <= self.workers
            && slots <= self.slots
            && words <= self.words
            && pull_slots <= self.pull_slots
            && pull_bytes <= self.pull_bytes
    }
}

/// The place of one push job.
#[derive(Debug)]
pub(super) struct Place {
    room: Room,
    /// The job that has it, as it was installed.
    pub(super) held: Option<PushConfig>,
    /// The same as it is served, in lane 0.
    pub(super) job: Option<Job>,
    /// In lane 0, while no job has it.
    memory: Option<Memory>,
}

impl Place {
    fn new(room: Room, has_memory: bool, kernels: &'static Kernels) -> Self {
        let memory = has_memory.then(|| Memory::new(&room, kernels));
        Self { room, held: None, job: None, memory }
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
    fn new(room: &Room, kernels: &'static Kernels) -> Self {
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

/// The places of a box: one for each push job of its table, and what its arena keeps free. Lane 0
/// takes their memory.
pub(super) fn of_table(table: &Table, lane: u16, kernels: &'static Kernels) -> Vec<Place> {
    let of_file = table.config().pushes.iter().map(Room::of_push);
    let spare = core::iter::repeat_n(Room::of_arena(&table.arena()), table.arena().pushes.into());
    of_file.chain(spare).map(|room| Place::new(room, lane == 0, kernels)).collect()
}

impl Gather {
    /// Takes a job in that was judged: into the smallest place that it fits.
    pub(crate) fn install(
        &mut self,
        local: Endpoint,
        push: PushConfig,
    ) -> Result<(), HoldingError> {
        let places = self.places.iter().zip(0..=u8::MAX);
        let fitting = places.filter(|(it, _)| it.held.is_none() && it.room.has_room_for(&push));
        let smallest = fitting.min_by_key(|(it, place)| (it.room.words, *place));
        let (_, place) = smallest.ok_or(HoldingError::Full)?;
        self.put(place, local, push);
        Ok(())
    }

    /// Puts a job that was judged into a free place that has room for it.
    pub(super) fn put(&mut self, place: u8, local: Endpoint, push: PushConfig) {
        let index = PushIndex(place);
        let random = SplitMix64::new(self.random.next_u64());
        let place = &mut self.places[index.index()];
        if let Some(memory) = place.memory.take() {
            place.job = Some(Job::new(memory, local, index, &push, random));
            self.index[usize::from(push.job.0)] = Some(index);
            self.served += 1;
        }
        place.held = Some(push);
        self.renew_timer(index.index());
    }

    /// Takes a job out. What it still owes its workers is owed no more.
    pub(crate) fn remove(&mut self, job: JobId) -> Result<(), HoldingError> {
        debug_assert!(self.waiting_run().is_none(), "commands come between bursts");
        let is_it = |place: &Place| place.held.as_ref().is_some_and(|push| push.job == job);
        let number = self.places.iter().position(is_it).ok_or(HoldingError::Missing)?;
        let place = &mut self.places[number];
        place.held = None;
        if let Some(job) = place.job.take() {
            place.memory = Some(job.into_memory());
            self.served -= 1;
        }
        self.index[usize::from(job.0)] = None;
        self.outbox.haves.retain(|have| have.push.index() != number);
        self.outbox.trains.forget(job);
        self.timers.set(number, Nanos::MAX);
        Ok(())
    }

    /// The jobs that the box holds, as they were installed.
    pub(crate) fn held(&self) -> impl Iterator<Item = &PushConfig> {
        self.places.iter().filter_map(|place| place.held.as_ref())
    }

    /// How many addresses its jobs may have in this lane.
    pub(crate) fn addresses_max(&self) -> usize {
        let here = self.places.iter().filter(|place| place.job.is_some() || place.memory.is_some());
        // Beside the workers a server and a replica.
        here.map(|place| place.room.workers + 2).sum()
    }
}

/// What a chunk of the model counts as at least, when an arena is made: each takes some words more.
const PULL_SLOT_BYTES_MIN: usize = 64;
