//! Gathering: the aggregator of push jobs (SPEC#push, SPEC#pull; PROTOCOL sections 2, 4 and 5).
//!
//! A group gathers whole updates in a *whole lease*, one slot per chunk, before its turn at the
//! server; the server's credits then release the sums. Model pulls are relayed: one request up, the
//! answer down to all who asked. Beside the allreduce rows of the same box, on the same port.
//!
//! | file | decides |
//! | --- | --- |
//! | `memory.rs` | how much memory a job takes |
//! | `places.rs` | which jobs are here, and in whose memory |
//! | `group.rs` | which groups are open, with whom |
//! | `admit.rs` | whose a frame is, and who pays for it |
//! | `job.rs` | what a controller's word and the server's decisions change |
//! | `upstream.rs` | which server and replica sums go to |
//! | `channels.rs` | how a channel to them is opened |
//! | `quick.rs` | whether a frame is an ordinary contribution |
//! | `have.rs` | what a worker's acknowledgements are made of |
//! | `run.rs` | which contributions are summed in one pass |
//! | `data.rs` | what a contribution or a credit does to its slot |
//! | `relay.rs`, `pull.rs` | who gets which chunk of the model |
//! | `copies.rs` | what a copy's header says |
//!
//! Nothing here has a timer but the channels' own handshakes: members repeat what is not
//! acknowledged, the server repeats its credits, pullers their requests. All memory is taken at the
//! start; a frame and an installed group allocate nothing (I7, I8). Jobs share nothing (I6).

mod admit;
mod behind;
mod channels;
mod copies;
mod data;
mod group;
mod have;
mod job;
mod memory;
mod places;
mod pull;
mod quick;
mod relay;
mod run;
mod stats;
mod upstream;

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

pub use weft_control::PushConfig;
use weft_control::{Command, Event, GROUPS_OPEN_MAX, InstallError, TRAIN_CHUNKS_MAX, Train};
use weft_kernel::Kernels;
use weft_wire::frame::{Datagram, UdpAddr};
use weft_wire::header::{Header, Kind, Packet};
use weft_wire::{ChunkIndex, GroupId, JobId, Members, Nanos};

pub(crate) use behind::PushView;
pub use copies::Copies;
pub use job::PushReport;
pub use stats::{PushStats, Transition};

use crate::admit::quota::{Payer, Strangers};
use crate::drops::{DropCounters, DropReason};
use crate::random::{Owner, Random, Seed};
use crate::role::PushIndex;
use crate::role::Verdict;
use crate::role::channel::Peer;
use crate::role::run::Runs;
use crate::send::train::Trains;
use crate::table::{JOBS_MAX, Table};
use crate::timers::Timers;
use job::Job;
use places::Place;

/// The push jobs of one aggregator.
#[derive(Debug)]
pub struct Gather {
    places: Vec<Place>,
    /// By job id, of those that this lane serves.
    index: Vec<Option<PushIndex>>,
    /// How many it serves.
    served: usize,
    random: Random,
    outbox: Outbox,
    /// When each job has something to say to its server or replica.
    timers: Timers,
    runs: Runs<run::Waiting>,
    may_be_in_train: bool,
}

/// A frame under examination.
#[derive(Debug)]
pub(crate) struct Arrival<'a> {
    pub(crate) udp: Datagram,
    pub(crate) header: Header,
    pub(crate) buffer: &'a mut [u8],
    pub(crate) now: Nanos,
    pub(crate) payer: Payer,
}

impl Arrival<'_> {
    /// Bytes of the frame, up to the end of its datagram.
    fn len_bytes(&self) -> usize {
        self.udp.payload_range().end
    }

    fn source(&self) -> UdpAddr {
        self.udp.source(self.buffer)
    }
}

/// What goes out or up besides a frame's own verdict.
#[derive(Debug)]
struct Outbox {
    /// Acknowledgements of contributions whose buffer became the sum.
    haves: VecDeque<Have>,
    events: VecDeque<(JobId, Event)>,
    trains: Trains,
}

#[derive(Clone, Copy, Debug)]
struct Have {
    push: PushIndex,
    peer: Peer,
    group: GroupId,
    chunk: ChunkIndex,
    members: Members,
}

impl Outbox {
    fn new() -> Self {
        Self {
            haves: VecDeque::with_capacity(HAVES_MAX),
            events: VecDeque::with_capacity(EVENTS_MAX),
            trains: Trains::new(),
        }
    }

    /// Takes an event of the data path; false when there is no room.
    fn report(&mut self, job: JobId, event: Event) -> bool {
        let fits = self.events.len() < EVENTS_MAX - usize::from(GROUPS_OPEN_MAX);
        if fits {
            self.events.push_back((job, event));
        }
        fits
    }

    /// Takes an answer to a command; the data path leaves room for these.
    fn answer(&mut self, job: JobId, event: Event) {
        if self.events.len() < EVENTS_MAX {
            self.events.push_back((job, event));
        }
    }
}

impl Gather {
    /// Takes all memory that push jobs will ever use in this lane: lane 0 serves them. `seed` must
    /// differ from start to start.
    pub(crate) fn new(table: &Table, lane: u16, seed: Seed, kernels: &'static Kernels) -> Self {
        let places = places::of_table(table, lane, kernels);
        let mut gather = Self {
            index: vec![None; JOBS_MAX],
            served: 0,
            random: seed.random(Owner::Lane),
            outbox: Outbox::new(),
            timers: Timers::new(places.len()),
            runs: Runs::new(run::Waiting::NONE),
            may_be_in_train: false,
            places,
        };
        for (push, place) in table.config().pushes.iter().zip(0..=u8::MAX) {
            gather.put(place, table.config().local, push.clone());
        }
        gather
    }

    /// True when no job is pushed here.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.served == 0
    }

    /// The job's place here, if it is pushed.
    #[inline]
    pub(crate) fn find(&self, job: JobId) -> Option<PushIndex> {
        self.index.get(usize::from(job.0)).copied().flatten()
    }

    /// Decides the fate of a frame of a push job.
    pub(crate) fn handle(
        &mut self,
        push: PushIndex,
        arrival: &mut Arrival<'_>,
        strangers: &mut Strangers,
        drops: &mut DropCounters,
    ) -> Result<Verdict, DropReason> {
        let frame_len = arrival.len_bytes();
        self.outbox.trains.on_frame(arrival.now, frame_len);
        let job = self.places[push.index()].job.as_mut().ok_or(DropReason::UnknownJob)?;
        let outcome = job.handle(arrival, &mut self.outbox, strangers, drops);
        self.renew_timer(push.index());
        // A credit is answered by a longer frame with a sum only.
        let is_sum = match outcome {
            Ok(Verdict::Send { len } | Verdict::Fan { len, .. }) => len > frame_len,
            _ => false,
        };
        let is_credit = arrival.header.kind == Kind::Pull;
        let may_be_in_train = arrival.header.chunk.0 < u32::from(TRAIN_CHUNKS_MAX);
        self.may_be_in_train = is_sum && is_credit && may_be_in_train;
        outcome
    }

    /// True when what was decided last may be a sum of a train, of which the network alone may
    /// space the frames: the server has not told this box how many chunks that has.
    #[inline]
    pub fn may_be_in_train(&self) -> bool {
        self.may_be_in_train
    }

    /// Takes a controller's word. Answered by events.
    pub fn handle_command(&mut self, command: &Command) {
        let job = command.job();
        let push = self.find(job).map_or(usize::MAX, PushIndex::index);
        match self.places.get_mut(push).and_then(|place| place.job.as_mut()) {
            Some(job) => {
                job.handle_command(command, &mut self.outbox);
                self.renew_timer(push);
            }
            None => {
                if let Command::Install(group) = command {
                    let error = InstallError::UnknownJob;
                    self.outbox.answer(job, Event::Refused { group: group.group, error });
                }
            }
        }
    }

    /// Takes an answer to a command about what the box holds.
    pub(crate) fn answer(&mut self, job: JobId, event: Event) {
        self.outbox.answer(job, event);
    }

    /// When the frame that is handled next arrived ([`Trains::note_arrival`]).
    #[inline]
    pub fn note_arrival(&mut self, at_ns: u64) {
        self.outbox.trains.note_arrival(at_ns);
    }

    /// The next train that has arrived.
    pub fn poll_train(&mut self) -> Option<Train> {
        self.outbox.trains.poll()
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<(JobId, Event)> {
        self.outbox.events.pop_front()
    }

    /// Writes the next frame that no incoming frame asked for; returns its length.
    pub(crate) fn poll_transmit(&mut self, now: Nanos, frame: &mut [u8]) -> Option<usize> {
        while let Some(have) = self.outbox.haves.pop_front() {
            let job = self.job(have.push);
            if let Some(len) = job.and_then(|job| job.write_have(&have, frame)) {
                return Some(len);
            }
        }
        while let Some(place) = self.timers.due(now) {
            let job = self.places[place].job.as_mut();
            let len = job.and_then(|job| job.poll_transmit(now, frame));
            self.renew_timer(place);
            if len.is_some() {
                return len;
            }
        }
        None
    }

    /// When [`Gather::poll_transmit`] will have something; [`Nanos::MAX`]: never.
    pub(crate) fn poll_timeout(&self) -> Nanos {
        if !self.outbox.haves.is_empty() {
            return Nanos(0);
        }
        self.timers.earliest()
    }

    fn renew_timer(&mut self, place: usize) {
        let at = self.places[place].job.as_ref().map_or(Nanos::MAX, Job::poll_timeout);
        self.timers.set(place, at);
    }

    fn job(&self, push: PushIndex) -> Option<&Job> {
        self.places[push.index()].job.as_ref()
    }

    fn jobs(&self) -> impl Iterator<Item = &Job> {
        self.places.iter().filter_map(|place| place.job.as_ref())
    }

    /// Where workers, servers and replicas speak from.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = UdpAddr> + '_ {
        self.jobs().flat_map(Job::addresses)
    }

    /// Touches the slot that a frame of a push job will need.
    #[inline]
    pub(crate) fn prefetch(&self, push: PushIndex, packet: &Packet<&[u8]>) {
        if let Some(job) = self.job(push) {
            job.prefetch(packet.group(), packet.chunk());
        }
    }

    /// Who gets a copy of a frame that a [`Verdict::Fan`] is about.
    #[must_use]
    pub fn copies(&self, push: PushIndex, frame: &[u8]) -> Copies {
        self.job(push).map_or(Copies::NONE, |job| job.copies(frame))
    }

    /// Bytes at a frame's start that [`Gather::address_copy`] rewrites.
    #[must_use]
    pub fn copy_header_len(&self, push: PushIndex) -> usize {
        self.job(push).map_or(0, Job::copy_header_len)
    }

    /// Rewrites `head`, the first [`Gather::copy_header_len`] bytes of a copy of a frame of
    /// `frame_len` bytes, for `peer`. The payload need not be there. False when the peer has no
    /// channel any more: the copy is not to be sent.
    #[must_use]
    pub fn address_copy(
        &self,
        push: PushIndex,
        peer: Peer,
        head: &mut [u8],
        frame_len: usize,
    ) -> bool {
        self.job(push).is_some_and(|job| job.address_copy(peer, head, frame_len))
    }

    /// State and counters of every job.
    pub fn reports(&self) -> impl Iterator<Item = PushReport<'_>> {
        self.jobs().map(Job::report)
    }
}

/// Acknowledgements owed at one time: a burst of contributions that all complete their slots.
const HAVES_MAX: usize = 64;
/// Events kept until they are polled.
const EVENTS_MAX: usize = 4096;

#[cfg(test)]
mod tests;
