//! A run: contributions to one step that stand one behind another in a burst, summed in one pass.
//!
//! Each is checked by itself, as on the short way; what is saved is their sum's way through the
//! slot, which is read and written once, and the answers' copies: the pass that completes a step
//! writes the sum over every payload of the run. A run ends where a frame is anything but a further
//! ordinary contribution to the step, and that frame is handled by itself.
//!
//! Invariant: answers, drops, counters and slots are those of the same frames handled one by one
//! (tests/run.rs holds the two against each other).

use weft_kernel::RUN_MAX;
use weft_wire::frame::{ETHERNET_LEN, IPV4_LEN, ipv4_checksum_ok};
use weft_wire::header::{Flags, HEADER_LEN, Packet};
use weft_wire::hello::Integrity;
use weft_wire::{Members, Nanos, Rank};

use super::data::{Arrival, INHERITED};
use super::lease::Lease;
use super::quick::{DATAGRAM, LEN};
use super::{Aggregator, JobStats, LeaseIndex, Verdict};
use crate::slot::counter::{Transition, TransitionCounters};
use crate::slot::{Bank, State};

/// What became of a run.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Run {
    /// Frames of the run, at least two: the first of the burst.
    pub count: usize,
    /// What to do with the last; the others are free, as after [`Verdict::Hold`]. But with
    /// [`Verdict::Multicast`] they have become its copies to the members from 1 on, in order, to
    /// be sent as they are.
    pub verdict: Verdict,
}

/// The contributions of a run, accepted but not added yet. Plain numbers, which stay in registers:
/// what is put together in memory can only be read when all stores before it are done.
struct Accepted {
    count: usize,
    /// Whose contributions they are.
    members: Members,
    /// Whose is the last.
    last: Rank,
    /// Whose contributions the bank holds already.
    before: Members,
    flags: Flags,
    /// How many carry a congestion mark.
    marked: u64,
}

impl Aggregator {
    /// Takes the run at the start of a burst. `None`, and nothing has changed, if there is none:
    /// then [`Aggregator::handle_frame`] decides about the first frame.
    #[inline(always)]
    pub fn handle_run<F: AsRef<[u8]> + AsMut<[u8]>>(
        &mut self,
        now: Nanos,
        frames: &mut [F],
    ) -> Option<Run> {
        let [first, second, ..] = &*frames else { return None };
        if target(first.as_ref())? != target(second.as_ref())? {
            return None;
        }
        let (index, arrival) = self.recognise(now, first.as_ref(), first.as_ref().len())?;
        let lease = &mut self.leases[index.index()];
        let job = lease.job(&mut self.jobs);
        // A bucket that runs dry would have to refuse the frames behind; an answer with a UDP
        // checksum is no matter of headers.
        if job.bucket.is_some()
            || lease.row.integrity == Integrity::Checksum16
            || !lease.slots.store.adds_runs()
        {
            return None;
        }
        let run = lease.accept_run(&arrival, frames);
        let count = run.count;
        if count < 2 {
            return None;
        }
        let transitions = &mut self.stats.transitions;
        let complete = lease.enter_run(&run, &arrival, &mut job.stats, transitions);
        self.stats.frames += count as u64;
        let verdict = self.add_run(index, arrival, complete, &mut frames[..count]);
        Some(Run { count, verdict })
    }

    /// Sums the payloads, and sends the sum on where it is complete.
    #[inline(always)]
    fn add_run<F: AsRef<[u8]> + AsMut<[u8]>>(
        &mut self,
        index: LeaseIndex,
        arrival: Arrival,
        complete: bool,
        frames: &mut [F],
    ) -> Verdict {
        let Arrival { place, first, step, frame_len, .. } = arrival;
        let lease = &mut self.leases[index.index()];
        let store = &mut lease.slots.store;
        let count = frames.len();
        if complete {
            let mut wires: [&mut [u8]; RUN_MAX] = Default::default();
            for (wire, frame) in wires.iter_mut().zip(&mut *frames) {
                *wire = &mut frame.as_mut()[LEN..frame_len];
            }
            store.add_run_emit(place, first, &mut wires[..count]);
            return self.complete_run(index, step, frames);
        }
        let mut wires: [&[u8]; RUN_MAX] = Default::default();
        for (wire, frame) in wires.iter_mut().zip(&*frames) {
            *wire = &frame.as_ref()[LEN..frame_len];
        }
        store.add_run(place, first, &wires[..count]);
        Verdict::Hold
    }

    /// Each frame's payload is the sum: makes them answers.
    #[inline(always)]
    fn complete_run<F: AsRef<[u8]> + AsMut<[u8]>>(
        &mut self,
        index: LeaseIndex,
        step: u32,
        frames: &mut [F],
    ) -> Verdict {
        let (last, others) = frames.split_last_mut().expect("a run has two frames");
        let verdict = self.complete(index, step, last.as_mut());
        if matches!(verdict, Verdict::Multicast { .. }) {
            let crc = Packet::new_unchecked(&last.as_ref()[DATAGRAM..]).crc();
            for (member, frame) in (1..).zip(others) {
                self.emit_answer_like(index, member, step, crc, frame.as_mut());
            }
        }
        verdict
    }
}

impl Lease {
    /// The recognised contribution and those behind it that can be summed with it; none where it
    /// is spoilt. Changes nothing.
    #[inline(always)]
    fn accept_run<F: AsRef<[u8]>>(&self, first: &Arrival, frames: &[F]) -> Accepted {
        let held = self.slots.bank(first.place).members;
        let mut run = Accepted {
            count: 0,
            members: first.rank.bit(),
            last: first.rank,
            before: if first.first { Members::EMPTY } else { held },
            flags: first.flags,
            marked: u64::from(first.congestion),
        };
        let Some((head, behind)) = frames.split_first() else { return run };
        if self.check_integrity(head.as_ref(), DATAGRAM..first.frame_len).is_err() {
            return run;
        }
        run.count = 1;
        let wanted = target(head.as_ref());
        for frame in behind.iter().take(RUN_MAX - 1) {
            if target(frame.as_ref()) != wanted || !self.accept(&mut run, first, frame) {
                break;
            }
        }
        run
    }

    /// Judges one frame to the run's step as the short way would.
    #[inline(always)]
    fn accept<F: AsRef<[u8]>>(&self, run: &mut Accepted, first: &Arrival, frame: &F) -> bool {
        let Some(head) = frame.as_ref().first_chunk::<LEN>() else { return false };
        let Some(datagram) = head.last_chunk::<HEADER_LEN>() else { return false };
        let Some(ip) = head[ETHERNET_LEN..].first_chunk::<IPV4_LEN>() else { return false };
        let packet = Packet::new_unchecked(datagram);
        let rank = packet.members().0.trailing_zeros();
        let Some(member) = self.members.get(rank as usize) else { return false };
        let Some(rank) = u8::try_from(rank).ok().and_then(Rank::new) else { return false };
        if !member.expected.matches(&self.masks, head)
            || frame.as_ref().len() < first.frame_len
            || run.before.union(run.members).contains(rank.bit())
            || packet.exponent() != first.exponent
            || !ipv4_checksum_ok(ip)
        {
            return false;
        }
        let flags = packet.flags();
        let is_marked = head[ETHERNET_LEN + 1] & 0b11 == 0b11;
        if self.check_integrity(frame.as_ref(), DATAGRAM..first.frame_len).is_err() {
            return false;
        }
        run.members = run.members.union(rank.bit());
        run.flags = run.flags.union(flags);
        run.marked += u64::from(is_marked);
        run.last = rank;
        run.count += 1;
        true
    }

    /// Does the books of a run, as [`Lease::take`] does those of one contribution. True when it
    /// completes the step.
    #[inline(always)]
    fn enter_run(
        &mut self,
        run: &Accepted,
        arrival: &Arrival,
        job: &mut JobStats,
        transitions: &mut TransitionCounters,
    ) -> bool {
        let count = run.count as u64;
        let bank = self.slots.bank_mut(arrival.place);
        if arrival.first {
            *bank = Bank {
                state: State::Collecting,
                has_data: true,
                exponent: arrival.exponent,
                step: arrival.step,
                claimed_at: arrival.now,
                ..Bank::default()
            };
        }
        bank.members = run.before.union(run.members);
        bank.flags = bank.flags.union(run.flags.only(INHERITED));
        if run.marked > 0 {
            bank.flags = bank.flags.union(Flags::CONGESTION);
        }
        let complete = bank.members == self.mask;
        if complete {
            bank.completed_by = u8::try_from(run.last.index()).expect("a rank is below 64");
        }
        let lag = arrival.now.since(bank.claimed_at);
        let mut left = run.members.0;
        while left != 0 {
            self.members[left.trailing_zeros() as usize].lag.count(lag);
            left &= left - 1;
        }
        let claims = u64::from(arrival.first);
        transitions.count_many(Transition::Claim, claims);
        transitions.count_many(Transition::Add, count - claims);
        job.contributions_added += count;
        job.bytes_accepted += count * arrival.frame_len as u64;
        job.contributions_marked += run.marked;
        job.chunks_completed += u64::from(complete);
        complete
    }
}

/// What says which step of which group a datagram is for, to be compared.
#[inline(always)]
fn target(frame: &[u8]) -> Option<u64> {
    frame.get(TARGET..)?.first_chunk().map(|bytes| u64::from_ne_bytes(*bytes))
}

/// Group and chunk (SPEC#header).
const TARGET: usize = DATAGRAM + 8;
