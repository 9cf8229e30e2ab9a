//! The data path of a lane: contributions, questions, hand-overs, and the root's answers.

use core::ops::Range;

use weft_wire::header::{HEADER_LEN, Header, Kind, Outcome};
use weft_wire::{Members, Nanos, Rank};

use super::lease::{Lease, Phase};
use super::{Aggregator, Incoming, Job, JobStats};
use crate::admit::quota::Payer;
use crate::drops::DropReason;
use crate::role::{LeaseIndex, Verdict};
use crate::send::datagram::is_intact;
use crate::slot::bitmap::{Seen, look};
use crate::slot::counter::{Transition, TransitionCounters};
use crate::slot::next_step::{Event, LeaseKind, NextStep, transition};
use crate::slot::{Arrival, Length};

impl Aggregator {
    /// CONTRIB and STATUS of a member.
    pub(super) fn handle_step(
        &mut self,
        index: LeaseIndex,
        incoming: &mut Incoming<'_>,
    ) -> Result<Verdict, DropReason> {
        let lease = &self.leases[index.index()];
        let rank = lease.named_by(&incoming.header)?;
        let is_status = incoming.header.kind == Kind::Status;
        // A question costs what it may be answered with.
        let answer_len = if is_status { lease.answer_len_bytes() } else { 0 };
        if let Err(reason) = self.identify(index, rank, incoming) {
            return self.refuse_stale(index, rank, reason, incoming);
        }
        self.pay(answer_len.max(incoming.len_bytes()), incoming)?;
        let lease = &self.leases[index.index()];
        let step = self.check_chunk(lease, incoming)?;
        let length = Length::new(incoming.header.count, incoming.header.outcome);
        if !is_status {
            lease.check_elements(&incoming.header)?;
            if incoming.udp.payload_len() != HEADER_LEN + lease.payload_len {
                return Err(DropReason::Length);
            }
        }
        lease.check_integrity(rank, incoming.buffer, incoming.udp.payload_range())?;
        let seen = look(&lease.slots, step, rank.bit());
        let bank = lease.slots.bank(lease.slots.locate(step));
        let completed_it = usize::from(bank.completed_by()) == rank.index();
        let event = match is_status {
            true => Event::Status(seen),
            false if seen == Seen::New && bank.length() != length && bank.has_data() => {
                Event::Differing
            }
            false => Event::Contribution(seen),
        };
        let next = transition(bank.state(), event, completed_it);
        match next {
            NextStep::Claim | NextStep::Add => {
                let arrival = Arrival {
                    rank,
                    step,
                    place: lease.slots.locate(step),
                    first: next == NextStep::Claim,
                    exponent: incoming.header.exponent,
                    length,
                    flags: incoming.header.flags,
                    congestion: incoming.udp.congestion(),
                    payload_start: incoming.udp.payload_start() + HEADER_LEN,
                    frame_len: incoming.udp.payload_range().end,
                    now: incoming.now,
                };
                let lease = &mut self.leases[index.index()];
                let job = &mut lease.job(&mut self.jobs).stats;
                let transitions = &mut self.stats.transitions;
                let complete = lease.take(arrival, incoming.buffer, job, transitions)?;
                Ok(if complete {
                    self.complete(index, step, incoming.buffer)
                } else {
                    Verdict::Hold
                })
            }
            NextStep::Stale => {
                self.stats.transitions.count(Transition::RefuseForeign);
                let reason = DropReason::StaleStep;
                self.stats.drops.count(reason);
                Ok(self.state(index, rank, Outcome::Stale, Members::EMPTY, None, incoming))
            }
            NextStep::KeptAnswer => self.repeat_answer(index, rank, step, incoming),
            NextStep::Have | NextStep::HaveAndResend => {
                Ok(self.have(index, rank, step, seen, next, incoming))
            }
            NextStep::Refuse | NextStep::Mismatch => {
                let slots = &mut self.leases[index.index()].slots;
                let place = slots.locate(step);
                if next == NextStep::Refuse {
                    slots.refuse(place, length);
                } else if !is_status {
                    slots.note_agreement(place, rank.bit(), length);
                }
                Ok(self.mismatch(index, rank, step, incoming))
            }
            NextStep::Drop(reason) => Err(reason),
            // Comes of other kinds.
            NextStep::Keep | NextStep::SumUp | NextStep::SumUpAgain => Err(DropReason::Kind),
        }
    }

    /// A sum that a member hands over after a restart (SPEC#resync).
    pub(super) fn handle_hand_over(
        &mut self,
        index: LeaseIndex,
        incoming: &mut Incoming<'_>,
    ) -> Result<Verdict, DropReason> {
        let lease = &self.leases[index.index()];
        let rank = lease.member_at(incoming.source()).ok_or(DropReason::WrongSource)?;
        if let Err(reason) = self.identify(index, rank, incoming) {
            return self.refuse_stale(index, rank, reason, incoming);
        }
        self.pay(incoming.len_bytes(), incoming)?;
        let lease = &self.leases[index.index()];
        if incoming.header.members != lease.mask {
            return Err(DropReason::BadMembers);
        }
        let step = self.check_chunk(lease, incoming)?;
        lease.check_elements(&incoming.header)?;
        lease.check_integrity(rank, incoming.buffer, incoming.udp.payload_range())?;
        if !lease.wanted.has_bit(step) || !lease.members[rank.index()].held.holds(step) {
            return Err(DropReason::Unwanted);
        }
        let seen = look(&lease.slots, step, rank.bit());
        let state = lease.slots.bank(lease.slots.locate(step)).state();
        match transition(state, Event::HandOver(seen), false) {
            NextStep::Drop(reason) => return Err(reason),
            NextStep::KeptAnswer => {
                self.stats.drops.count(DropReason::Duplicate);
                return self.repeat_answer(index, rank, step, incoming);
            }
            _ => {}
        }
        self.stats.transitions.count(Transition::HandOver);
        self.job_mut(index).stats.hand_overs += 1;
        Ok(self.install_answer(index, step, incoming))
    }

    /// The root's answer to a leaf.
    pub(super) fn handle_answer_from_root(
        &mut self,
        index: LeaseIndex,
        incoming: &mut Incoming<'_>,
    ) -> Result<Verdict, DropReason> {
        let lease = &mut self.leases[index.index()];
        let step = incoming.header.chunk.0 >> self.shards_log2;
        if step >= lease.step_count {
            return Err(DropReason::ChunkOutOfRange);
        }
        lease.check_elements(&incoming.header)?;
        if !is_intact(lease.row.integrity, incoming.buffer, incoming.udp.payload_range()) {
            return Err(DropReason::Integrity);
        }
        if let Some(upstream) = &mut lease.upstream {
            upstream.hand_over_done(step);
        }
        let seen = look(&lease.slots, step, Members::EMPTY);
        let state = lease.slots.bank(lease.slots.locate(step)).state();
        let next = transition(state, Event::Answer(seen), false);
        // While the lease is not open its slots are of the session before.
        match next {
            NextStep::Drop(reason) => return Err(reason),
            _ if lease.phase != Phase::Open => return Err(DropReason::StaleStep),
            _ => {}
        }
        self.stats.transitions.count(Transition::AnswerFromRoot);
        Ok(self.install_answer(index, step, incoming))
    }

    /// Epoch, life, generation, address and lane: who is speaking (SPEC#checks). What carries the
    /// member's cookie and comes from its host is its job's to pay, whatever else is wrong with it.
    fn identify(
        &self,
        index: LeaseIndex,
        rank: Rank,
        incoming: &mut Incoming<'_>,
    ) -> Result<(), DropReason> {
        let lease = &self.leases[index.index()];
        let header = &incoming.header;
        let peer = &lease.members[rank.index()].peer;
        peer.check_cookie(header.cookie, lease.epoch, lease.phase == Phase::Open)?;
        let is_stale = header.group != lease.group;
        let lane = self.check_lane(lease, rank, incoming);
        if lane != Err(DropReason::WrongSource) {
            incoming.payer = Payer::Job;
        }
        if is_stale { Err(DropReason::StaleGroup) } else { lane }
    }

    fn check_chunk(&self, lease: &Lease, incoming: &Incoming<'_>) -> Result<u32, DropReason> {
        let chunk = incoming.header.chunk.0;
        if chunk & (u32::from(self.shards) - 1) != u32::from(self.lane) {
            return Err(DropReason::WrongShard);
        }
        let step = chunk >> self.shards_log2;
        if step < lease.step_count { Ok(step) } else { Err(DropReason::ChunkOutOfRange) }
    }

    /// The bank of `step` holds the full sum and so does the frame's payload: send it on.
    pub(super) fn complete(&mut self, index: LeaseIndex, step: u32, buffer: &mut [u8]) -> Verdict {
        let lease = &mut self.leases[index.index()];
        let place = lease.slots.locate(step);
        if lease.upstream.is_some() {
            lease.slots.complete(place, LeaseKind::Leaf);
            self.stats.transitions.count(Transition::CompleteLeaf);
            return match self.emit_up(index, step, buffer, true) {
                Some(len) => Verdict::Send { len },
                // The root is not there yet; a repeat of the completing rank will try again.
                None => Verdict::Hold,
            };
        }
        lease.slots.complete(place, LeaseKind::Root);
        self.stats.transitions.count(Transition::CompleteRoot);
        self.multicast(index, step, buffer)
    }

    /// Keeps an answer that was computed elsewhere and sends it to all members.
    fn install_answer(
        &mut self,
        index: LeaseIndex,
        step: u32,
        incoming: &mut Incoming<'_>,
    ) -> Verdict {
        let header = incoming.header;
        let lease = &mut self.leases[index.index()];
        let sum = &incoming.datagram()[HEADER_LEN..];
        lease.slots.keep_answer(step, &header, lease.mask, sum);
        self.multicast(index, step, incoming.buffer)
    }
}

impl Job {
    /// Takes the frame's bytes from the job's token bucket, so that a greedy job cannot eat the
    /// lcore (PROTOCOL section 10).
    /// Charges for work that is done already: what the bucket lacks is a debt.
    pub(super) fn charge_for(&mut self, now: Nanos, bytes: u64) {
        if let Some(bucket) = &mut self.bucket {
            bucket.charge(now, bytes);
        }
    }

    /// Apart, so that its 128-bit arithmetic does not crowd the registers of jobs without limit.
    #[inline(never)]
    pub(super) fn charge(&mut self, now: Nanos, frame_len: usize) -> Result<(), DropReason> {
        if self.bucket.as_mut().is_none_or(|bucket| bucket.take(now, frame_len as u64)) {
            return Ok(());
        }
        self.stats.over_quota += 1;
        Err(DropReason::OverQuota)
    }
}

impl Lease {
    /// The job that this lease belongs to.
    #[inline]
    pub(super) fn job<'a>(&self, jobs: &'a mut [Option<Job>]) -> &'a mut Job {
        let job = usize::from(self.row.job.0);
        jobs[job].as_mut().expect("the table gives every row a job")
    }

    /// Puts a contribution into its bank. True when that completes the step; then the frame's
    /// payload is the sum too.
    #[inline(always)]
    pub(super) fn take(
        &mut self,
        arrival: Arrival,
        buffer: &mut [u8],
        job: &mut JobStats,
        transitions: &mut TransitionCounters,
    ) -> Result<bool, DropReason> {
        let wire = &mut buffer[arrival.payload_start..arrival.frame_len];
        self.take_payload(&arrival, wire, job, transitions)
    }

    /// As [`Lease::take`], of a payload wherever it stands.
    #[inline(always)]
    pub(super) fn take_payload(
        &mut self,
        arrival: &Arrival,
        wire: &mut [u8],
        job: &mut JobStats,
        transitions: &mut TransitionCounters,
    ) -> Result<bool, DropReason> {
        let member = &mut self.members[arrival.rank.index()];
        let entered = self.slots.take(arrival, self.mask, member.limit, wire)?;
        member.lag.count(entered.lag);
        job.contributions_added += 1;
        job.bytes_accepted += arrival.frame_len as u64;
        transitions.count(if arrival.first { Transition::Claim } else { Transition::Add });
        job.contributions_clamped += u64::from(entered.clamped);
        job.contributions_marked += u64::from(arrival.congestion);
        job.chunks_completed += u64::from(entered.completes);
        Ok(entered.completes)
    }

    fn check_elements(&self, header: &Header) -> Result<(), DropReason> {
        let is_tail = header.kind == Kind::Contrib && header.outcome == Outcome::LAST;
        if header.count != self.row.elements && !(is_tail && header.count < self.row.elements) {
            return Err(DropReason::ElementCount);
        }
        if header.element_type != self.row.element_type {
            return Err(DropReason::ElementType);
        }
        if header.operation != self.row.operation {
            return Err(DropReason::Operation);
        }
        if self.row.exponent.is_some_and(|exponent| exponent != header.exponent) {
            return Err(DropReason::Exponent);
        }
        Ok(())
    }

    /// Checks a member's datagram, which lies in `range` of the frame at the start of `buffer`.
    #[inline(always)]
    pub(super) fn check_integrity(
        &self,
        rank: Rank,
        buffer: &[u8],
        range: Range<usize>,
    ) -> Result<(), DropReason> {
        let ok = is_intact(self.members[rank.index()].integrity, buffer, range);
        if ok { Ok(()) } else { Err(DropReason::Integrity) }
    }
}
