//! Places: the memory of push jobs, taken when the lane is made, in which jobs come and go.
//!
//! Decides which place a job gets. Every lane of a box keeps the same account of who has which
//! place, so that all come to the same answers; lane 0 alone has the memory, and serves. Invariant:
//! of a job that has gone nothing is left that a later one could take for its own: its channels
//! were of an epoch and of cookies that are no more, and what its slots and its relay held counts
//! as nothing (PROTOCOL section 6). Nothing here allocates but [`Place::new`] (I8).

use alloc::vec::Vec;

use weft_control::{HoldingError, PushConfig};
use weft_kernel::Kernels;
use weft_wire::frame::Endpoint;
use weft_wire::{JobId, Nanos};

use super::Gather;
use super::job::Job;
use super::memory::{Memory, Room};
use crate::random::Owner;
use crate::role::PushIndex;
use crate::table::Table;

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
        let random = self.random.child(Owner::Push(push.job.0));
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
