//! Runs: contributions of one burst to one step, summed in one pass wherever they stand in it.
//!
//! Each is judged and entered in the books when its turn comes, as on the short way; only its
//! payload waits, in its frame, until the step is complete, four wait for it, or the burst ends.
//! What is saved is the sum's way through the slot, which is read and written once, and the
//! answers' copies: the pass that completes a step writes the sum over every payload of the run.
//! A frame that is anything but such a contribution may want what a slot holds, so before it is
//! handled, and when the burst ends, the lane has all runs summed.
//!
//! Invariant: answers, drops, counters and slots are those of the same frames handled one by one
//! (tests/run.rs holds the two against each other).

use core::ops::Range;

use weft_kernel::RUN_MAX;
use weft_wire::Nanos;
use weft_wire::header::{HEADER_LEN, Packet};
use weft_wire::hello::Integrity;

use super::Aggregator;
use super::lease::Lease;
use super::quick::Room;
use crate::admit::expected::{DATAGRAM, LEN, is_marked};
use crate::role::run::{RunIndex, Runs, Taken};
use crate::role::{LeaseIndex, Verdict};
use crate::slot::counter::Transition;
use crate::slot::{Arrival, Bank, BankIndex, Entered, Run};

/// The runs of a lane's windowed leases.
#[derive(Debug)]
pub(super) struct WindowedRuns {
    runs: Runs<Waiting>,
    /// The one that a contribution was taken into last, if that waits.
    last: Option<(Target, RunIndex)>,
}

/// What says which step of which group a datagram is for, to be compared.
type Target = u64;

/// A run that waits to be summed.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    lease: LeaseIndex,
    place: BankIndex,
    /// The first of it is the step's first.
    claims: bool,
    /// The last of it is the step's last.
    completes: bool,
    count: u32,
}

impl WindowedRuns {
    pub(super) fn new() -> Self {
        let (lease, place) = (LeaseIndex(0), BankIndex(0));
        let none = Waiting { lease, place, claims: false, completes: false, count: 0 };
        Self { runs: Runs::new(none), last: None }
    }
}

impl Aggregator {
    /// Decides about a frame whose buffer may become an answer.
    #[inline(always)]
    pub fn take(&mut self, now: Nanos, frame: &[u8]) -> Taken {
        if !self.gather.is_empty()
            && let Some(taken) = self.gather.take(now, frame)
        {
            self.stats.frames += u64::from(taken != Taken::Else);
            if let Taken::Drop(reason) = taken {
                self.stats.drops.count(reason);
            }
            return taken;
        }
        let follower = self.runs.last.filter(|(last, _)| target(frame) == Some(*last));
        let recognised = match follower {
            Some((_, run)) => self.recognise_follower(now, frame, run),
            None => self.recognise(now, frame, frame.len()),
        };
        let Some((index, arrival)) = recognised else { return Taken::Else };
        let lease = &mut self.leases[index.index()];
        if !lease.takes_runs || self.runs.runs.is_full() {
            return Taken::Else;
        }
        self.stats.frames += 1;
        if let Err(reason) =
            lease.admit(&mut self.jobs, &arrival, frame, DATAGRAM..arrival.frame_len)
        {
            self.stats.drops.count(reason);
            return Taken::Drop(reason);
        }
        if arrival.congestion {
            lease.job(&mut self.jobs).stats.contributions_marked += 1;
        }
        let (bank, Entered { completes, lag, .. }) = lease.slots.enter(&arrival, lease.mask);
        lease.members[arrival.rank.index()].lag.count(lag);
        let number = if bank.run() == Bank::NO_RUN {
            let (place, claims) = (arrival.place, arrival.first);
            let waiting = Waiting { lease: index, place, claims, completes, count: 1 };
            let number = self.runs.runs.begin(waiting);
            bank.begin_run(number);
            number
        } else {
            let number = bank.run();
            let run = self.runs.runs.get_mut(number);
            run.count += 1;
            run.completes = completes;
            if run.count as usize == RUN_MAX {
                return Taken::Sum(RunIndex::windowed(number));
            }
            number
        };
        let run = RunIndex::windowed(number);
        if completes {
            return Taken::Sum(run);
        }
        if follower.is_none() {
            self.runs.last = target(frame).map(|target| (target, run));
        }
        Taken::Wait(run)
    }

    /// As [`Aggregator::recognise`], for a further contribution to a step whose run waits: of the
    /// row and the bank all is known.
    #[inline(always)]
    fn recognise_follower(
        &self,
        now: Nanos,
        frame: &[u8],
        run: RunIndex,
    ) -> Option<(LeaseIndex, Arrival)> {
        let Waiting { lease: index, place, .. } = self.runs.runs.get(run.number());
        let lease = self.leases.get(index.index())?;
        let (head, rank) = lease.recognise_member(frame, frame.len())?;
        let bank = lease.slots.bank(place);
        if bank.members().contains(rank.bit()) {
            return None;
        }
        let room = Room { place, step: bank.step(), first: false };
        let header: &[u8; HEADER_LEN] = head.last_chunk()?;
        let arrival = lease.arrival(now, header, is_marked(head), rank, room);
        let agrees = arrival.exponent == bank.exponent() && arrival.length == bank.length();
        agrees.then_some((index, arrival))
    }

    /// A run that waits.
    #[inline(always)]
    #[must_use]
    pub fn waiting_run(&self) -> Option<RunIndex> {
        match self.runs.runs.first() {
            Some(number) => Some(RunIndex::windowed(number)),
            None => self.gather.waiting_run(),
        }
    }

    /// Sums a windowed lease's run, whose frames these are, in the order that they came in: from
    /// one to [`RUN_MAX`]. Says what to do with the last; the others are free, as after
    /// [`Verdict::Hold`]. But with [`Verdict::Multicast`] they have become its copies to the
    /// members from 1 on, from the last but one back to the first, to be sent as they are.
    #[inline(always)]
    pub fn sum_run<F: AsRef<[u8]> + AsMut<[u8]>>(
        &mut self,
        run: RunIndex,
        frames: &mut [F],
    ) -> Verdict {
        let Waiting { lease: index, place, claims, completes, .. } =
            self.runs.runs.end(run.number());
        self.runs.last = None;
        let lease = &mut self.leases[index.index()];
        let frame_len = LEN + lease.payload_len;
        let len = frames.len();
        let count = len as u64;
        let job = &mut lease.job(&mut self.jobs).stats;
        job.contributions_added += count;
        job.bytes_accepted += count * frame_len as u64;
        job.chunks_completed += u64::from(completes);
        let first = u64::from(claims);
        self.stats.transitions.count_many(Transition::Claim, first);
        self.stats.transitions.count_many(Transition::Add, count - first);
        let run = Run { claims, completes };
        let step = match completes && lease.casts().is_some() {
            true => lease.sum_into_last(place, claims, frames, LEN..frame_len),
            false => lease.slots.sum_run(place, run, frames, LEN..frame_len),
        };
        if completes { self.complete_run(index, step, frames) } else { Verdict::Hold }
    }

    /// Each frame's payload is the sum: makes them answers.
    #[inline(always)]
    fn complete_run<F: AsRef<[u8]> + AsMut<[u8]>>(
        &mut self,
        index: LeaseIndex,
        step: u32,
        frames: &mut [F],
    ) -> Verdict {
        let (last, others) = frames.split_last_mut().expect("a run has a frame");
        let verdict = self.complete(index, step, last.as_mut());
        if !others.is_empty() && matches!(verdict, Verdict::Multicast { .. }) {
            let crc = Packet::new_unchecked(&last.as_ref()[DATAGRAM..]).crc();
            let lease = &self.leases[index.index()];
            let header = self.answer_header(lease, step, crc);
            let datagram_len = HEADER_LEN + lease.payload_len;
            for (member, frame) in lease.members[1..].iter().zip(others.iter_mut().rev()) {
                let buffer = frame.as_mut();
                header.emit(member.encap.payload_mut(buffer));
                member.encap.emit(buffer, datagram_len);
            }
        }
        verdict
    }
}

impl Lease {
    /// True when a row's contributions are summed in runs. An answer with a UDP checksum is no
    /// matter of headers.
    pub(super) fn may_take_runs(&self) -> bool {
        self.row.integrity != Integrity::Checksum16 && self.slots.store().adds_runs()
    }

    /// Sums a run that completes its step, of which the last frame alone becomes an answer; returns
    /// the step. Apart, for most leases never get here.
    #[inline(never)]
    fn sum_into_last<F: AsRef<[u8]> + AsMut<[u8]>>(
        &mut self,
        place: BankIndex,
        claims: bool,
        frames: &mut [F],
        payload: Range<usize>,
    ) -> u32 {
        let (others, last) = frames.split_at_mut(frames.len() - 1);
        if !others.is_empty() {
            let run = Run { claims, completes: false };
            self.slots.sum_run(place, run, others, payload.clone());
        }
        let run = Run { claims: claims && others.is_empty(), completes: true };
        self.slots.sum_run(place, run, last, payload)
    }
}

#[inline(always)]
fn target(frame: &[u8]) -> Option<Target> {
    frame.get(TARGET..)?.first_chunk().map(|bytes| u64::from_ne_bytes(*bytes))
}

/// Group and chunk (SPEC#header).
const TARGET: usize = DATAGRAM + 8;
