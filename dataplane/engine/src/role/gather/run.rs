//! Runs of whole leases: contributions of one burst to one slot, summed in one pass wherever they
//! stand in it, as for windowed leases (`aggregator/run.rs`).
//!
//! Each is judged and entered in the books when its turn comes; its payload waits in its frame
//! until four wait for the slot, or all members' are there, or the burst ends, or a frame comes
//! that is anything else. Then each frame becomes its own acknowledgement. A slot whose credit has
//! come takes no runs, for its last contribution becomes the sum; neither do the chunks of a train,
//! whose arrivals are measured.
//!
//! Invariant: answers, drops, counters and slots are those of the same frames handled one by one
//! (tests/run.rs holds the two against each other).

use weft_kernel::RUN_MAX;
use weft_wire::header::{Header, Outcome, Packet};
use weft_wire::hello::Integrity;
use weft_wire::{ChunkIndex, GroupId, Members, Nanos};

use super::Gather;
use super::have::HaveTemplate;
use super::job::Job;
use super::stats::Transition;
use crate::admit::expected::{DATAGRAM, LEN};
use crate::role::PushIndex;
use crate::role::channel::Peer;
use crate::role::run::{RunIndex, Taken};
use crate::slot::Bank;
use crate::slot::whole::Place;

/// A run that waits to be summed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting {
    push: PushIndex,
    count: u8,
    group: GroupId,
    chunk: ChunkIndex,
    place: Place,
    /// Whose contributions the slot held before it.
    before: Members,
}

impl Waiting {
    /// Of no slot.
    pub(super) const NONE: Self = Self {
        push: PushIndex(0),
        count: 0,
        group: GroupId(0),
        chunk: ChunkIndex(0),
        place: Place::NONE,
        before: Members::EMPTY,
    };
}

impl Gather {
    /// Decides about a frame whose buffer may become an answer; `None` when it is of no push job.
    #[inline]
    pub(crate) fn take(&mut self, now: Nanos, frame: &[u8]) -> Option<Taken> {
        let head: &[u8; LEN] = frame.first_chunk()?;
        let push = self.find(Packet::new_unchecked(&head[DATAGRAM..]).job())?;
        let job = self.places[push.index()].job.as_mut()?;
        if !job.takes_runs || self.runs.is_full() {
            return Some(Taken::Else);
        }
        let Some((from, group)) = job.recognise(now, head, frame.len()) else {
            return Some(Taken::Else);
        };
        let place = group.place(from.chunk.0);
        let is_in_train = from.chunk.0 < u32::from(group.train_chunks);
        if is_in_train || job.arena.slot(place).has_credit() {
            return Some(Taken::Else);
        }
        self.outbox.trains.on_frame(now, from.frame_len);
        self.may_be_in_train = false;
        if let Err(reason) = job.admit(&from, frame) {
            return Some(Taken::Drop(reason));
        }
        let slot = job.arena.slot_mut(place);
        let before = slot.members();
        let entered = slot.enter(from.rank.bit(), group.mask, from.all_flags());
        let number = slot.run();
        let (number, count) = if number == Bank::NO_RUN {
            let waiting =
                Waiting { push, count: 1, group: group.id, chunk: from.chunk, place, before };
            let number = self.runs.begin(waiting);
            slot.begin_run(number);
            (number, 1)
        } else {
            let run = self.runs.get_mut(number);
            run.count += 1;
            (number, run.count)
        };
        job.stats.contributions_marked += u64::from(from.is_marked);
        job.stats.chunks_completed += u64::from(entered.completes);
        job.advance(&from, &group, &mut self.outbox);
        let run = RunIndex::whole(number);
        let is_full = entered.completes || usize::from(count) == RUN_MAX;
        Some(if is_full { Taken::Sum(run) } else { Taken::Wait(run) })
    }

    /// A run that waits.
    #[inline]
    pub(crate) fn waiting_run(&self) -> Option<RunIndex> {
        self.runs.first().map(RunIndex::whole)
    }

    /// Sums a run, whose frames these are, in the order that they came in, and makes each the
    /// acknowledgement of what it was; returns its length.
    pub fn sum_run<F: AsRef<[u8]> + AsMut<[u8]>>(
        &mut self,
        run: RunIndex,
        frames: &mut [F],
    ) -> usize {
        let Waiting { push, group, chunk, place, before, .. } = self.runs.end(run.number());
        let Some(job) = self.places[push.index()].job.as_mut() else { return 0 };
        let frame_len = LEN + job.payload_len;
        let claims = before.is_empty();
        job.arena.sum_run(place, claims, frames, LEN..frame_len);
        let count = frames.len() as u64;
        job.stats.contributions_added += count;
        job.stats.bytes_accepted += count * frame_len as u64;
        job.stats.count_many(Transition::Store, u64::from(claims));
        job.stats.count_many(Transition::Add, count - u64::from(claims));
        let is_sealed = job.config.integrity == Integrity::Crc32c;
        let crc32c: Option<fn(&[u8]) -> u32> = is_sealed.then_some(weft_kernel::crc32c);
        let mut members = before;
        for frame in frames {
            let buffer = frame.as_mut();
            let bit = Packet::new_unchecked(&buffer[DATAGRAM..]).members();
            members = members.union(bit);
            // It was recognised by its channel, which is open.
            if let Some(Some(have)) = job.haves.get(bit.0.trailing_zeros() as usize) {
                have.emit(buffer, group, chunk, members, crc32c);
            }
        }
        LEN
    }
}

impl Job {
    /// True when contributions are summed in runs. An answer with a UDP checksum is no matter of
    /// headers.
    pub(super) fn may_take_runs(&self) -> bool {
        self.config.integrity != Integrity::Checksum16 && self.arena.adds_runs()
    }

    /// What acknowledgements to a worker are made of; `None` while it has no channel.
    pub(super) fn have_template(&self, peer: Peer) -> Option<HaveTemplate> {
        let (encap, cookie) = self.workers.path(peer)?;
        let header = self.state(Outcome::Have, GroupId(0), Members::EMPTY);
        Some(HaveTemplate::new(encap, &Header { cookie, ..header }))
    }
}
