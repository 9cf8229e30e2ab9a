//! What goes back to members: answers, kept answers, HAVE and STALE, each written over the frame
//! that asked for it. Replies go to the address in the table, never to the packet's source.

use weft_wire::frame::Encap;
use weft_wire::header::{Flags, HEADER_LEN, Header, Kind, Outcome, Packet, Prepared};
use weft_wire::{ChunkIndex, Cookie, Members, Rank};

use super::lease::Lease;
use super::{Aggregator, Incoming, dispatch_out};
use crate::admit::quota::Payer;
use crate::drops::DropReason;
use crate::role::{LeaseIndex, Verdict};
use crate::slot::bitmap::Seen;
use crate::slot::counter::Transition;
use crate::slot::next_step::NextStep;
use crate::slot::{Bank, INHERITED, State};

impl Aggregator {
    /// Turns the frame, whose payload is the answer, into the answer to all members, or to member 0
    /// where each gets one of its own.
    pub(super) fn multicast(&mut self, index: LeaseIndex, step: u32, buffer: &mut [u8]) -> Verdict {
        let lease = &self.leases[index.index()];
        let cast = lease.casts();
        let is_cast = cast.is_some();
        let len = self.emit_answer(lease, cast.unwrap_or(&lease.members[0].encap), step, buffer);
        let stats = &mut self.job_mut(index).stats;
        stats.answers_sent += 1;
        stats.answers_cast += u64::from(is_cast);
        if is_cast { Verdict::Send { len } } else { Verdict::Multicast { len, lease: index } }
    }

    /// Gives the sender the kept answer again.
    pub(super) fn repeat_answer(
        &mut self,
        index: LeaseIndex,
        rank: Rank,
        step: u32,
        incoming: &mut Incoming<'_>,
    ) -> Result<Verdict, DropReason> {
        let lease = &self.leases[index.index()];
        let place = lease.slots.locate(step);
        if !lease.slots.bank(place).has_data() {
            // The virtual predecessor: every member said that it holds this sum.
            self.stats.drops.count(DropReason::StaleStep);
            return Ok(self.state(index, rank, Outcome::Stale, Members::EMPTY, None, incoming));
        }
        let start = lease.members[rank.index()].encap.header_len() + HEADER_LEN;
        let wire =
            incoming.buffer.get_mut(start..start + lease.payload_len).ok_or(DropReason::Length)?;
        lease.slots.store().emit(place, wire);
        self.stats.transitions.count(Transition::RepeatAnswered);
        let is_contribution = incoming.header.kind == Kind::Contrib;
        let stats = &mut self.job_mut(index).stats;
        stats.answers_repeated += 1;
        if is_contribution {
            stats.duplicates += 1;
            self.stats.drops.count(DropReason::Duplicate);
        }
        let lease = &self.leases[index.index()];
        let encap = &lease.members[rank.index()].encap;
        let len = self.emit_answer(lease, encap, step, incoming.buffer);
        Ok(Verdict::Send { len })
    }

    /// Writes the headers of the answer to `step`, whose payload is already in place.
    pub(super) fn emit_answer(
        &self,
        lease: &Lease,
        encap: &Encap,
        step: u32,
        buffer: &mut [u8],
    ) -> usize {
        self.answer_header(lease, step, 0).emit(encap.payload_mut(buffer));
        dispatch_out(encap, lease.integrity_down, buffer, HEADER_LEN + lease.payload_len)
    }

    /// The header of the answers to `step`, which is the same for every member.
    #[inline(always)]
    pub(super) fn answer_header(&self, lease: &Lease, step: u32, crc: u32) -> Prepared {
        let bank = lease.slots.bank(lease.slots.locate(step));
        let chunk = ChunkIndex(bank.step() * u32::from(self.shards) + u32::from(self.lane));
        lease.answer.with(bank.flags().only(INHERITED), chunk, bank.exponent(), crc)
    }

    /// Header fields that every datagram with elements of this bank has.
    pub(super) fn data_header(&self, lease: &Lease, kind: Kind, bank: &Bank) -> Header {
        let lane = u32::from(self.lane);
        Header {
            kind,
            flags: bank.flags().only(INHERITED),
            outcome: Outcome::None,
            job: lease.row.job,
            cookie: Cookie::default(),
            group: lease.group,
            chunk: ChunkIndex(bank.step() * u32::from(self.shards) + lane),
            element_type: lease.row.element_type,
            operation: lease.row.operation,
            exponent: bank.exponent(),
            count: lease.row.elements,
            members: Members::EMPTY,
        }
    }

    pub(super) fn have(
        &mut self,
        index: LeaseIndex,
        rank: Rank,
        step: u32,
        seen: Seen,
        next: NextStep,
        incoming: &mut Incoming<'_>,
    ) -> Verdict {
        let lease = &mut self.leases[index.index()];
        let bank = lease.slots.bank(lease.slots.locate(step));
        let (state, known) = (bank.state(), bank.members());
        let members = if seen == Seen::Claimable { Members::EMPTY } else { known };
        if next == NextStep::HaveAndResend
            && let Some(upstream) = &mut lease.upstream
        {
            upstream.queue_resend(step);
            self.stats.transitions.count(Transition::ResendUp);
        }
        if seen == Seen::Claimable {
            self.stats.transitions.count(Transition::StatusUnclaimed);
        } else if state == State::Sent {
            self.stats.transitions.count(Transition::RepeatSent);
        } else if seen == Seen::Repeat {
            self.stats.transitions.count(Transition::RepeatCollecting);
        }
        if incoming.header.kind == Kind::Contrib {
            self.stats.drops.count(DropReason::Duplicate);
            self.job_mut(index).stats.duplicates += 1;
        }
        let lease = &self.leases[index.index()];
        let gone = lease.closed.without(members);
        // A closed member contributes nothing, but may hand over.
        let is_in_vain = !gone.is_empty()
            && lease.closed != lease.mask
            && state != State::Sent
            && !lease.wanted.has_bit(step);
        match is_in_vain {
            true => self.state(index, rank, Outcome::LEFT, gone, None, incoming),
            false => self.state(index, rank, Outcome::Have, members, None, incoming),
        }
    }

    /// Answers MISMATCH: contributions to the step differ in length (SPEC#lengths).
    pub(super) fn mismatch(
        &mut self,
        index: LeaseIndex,
        rank: Rank,
        step: u32,
        incoming: &mut Incoming<'_>,
    ) -> Verdict {
        if incoming.header.kind == Kind::Contrib {
            self.stats.drops.count(DropReason::ElementCount);
        }
        let slots = &self.leases[index.index()].slots;
        let bank = slots.bank(slots.locate(step));
        incoming.header.count = bank.other_count(rank.bit());
        let members = bank.members();
        self.state(index, rank, Outcome::MISMATCH, members, None, incoming)
    }

    /// Refuses a frame of another epoch, life or generation, and tells the member if the frame
    /// really came from its address: that is how it learns of a restart. The wrong cookie is
    /// echoed, which shows that this box saw the frame.
    pub(super) fn refuse_stale(
        &mut self,
        index: LeaseIndex,
        rank: Rank,
        reason: DropReason,
        incoming: &mut Incoming<'_>,
    ) -> Result<Verdict, DropReason> {
        let lease = &self.leases[index.index()];
        let stale = matches!(
            reason,
            DropReason::StaleEpoch | DropReason::BadCookie | DropReason::StaleGroup
        );
        let answers = stale && self.check_lane(lease, rank, incoming).is_ok();
        if answers || incoming.payer == Payer::Job {
            self.pay(incoming.len_bytes(), incoming)?;
        }
        if !answers {
            return Err(reason);
        }
        self.stats.drops.count(reason);
        let cookie = incoming.header.cookie;
        Ok(self.state(index, rank, Outcome::Stale, Members::EMPTY, Some(cookie), incoming))
    }

    /// Turns the frame into a header-only STATE to the member.
    pub(super) fn state(
        &self,
        index: LeaseIndex,
        rank: Rank,
        outcome: Outcome,
        members: Members,
        echo: Option<Cookie>,
        incoming: &mut Incoming<'_>,
    ) -> Verdict {
        let lease = &self.leases[index.index()];
        let header = Header {
            kind: Kind::State,
            flags: Flags::NONE,
            outcome,
            cookie: echo.unwrap_or(lease.cookie_down),
            members,
            ..incoming.header
        };
        let member = &lease.members[rank.index()];
        // A restarted box has not learnt the member's Ethernet address yet.
        let encap = member.encap.with_target_mac(incoming.udp.source_mac(incoming.buffer));
        let start = encap.header_len();
        let buffer = &mut *incoming.buffer;
        header.emit(&mut Packet::new_unchecked(&mut buffer[start..start + HEADER_LEN]));
        Verdict::Send { len: dispatch_out(&encap, lease.integrity_down, buffer, HEADER_LEN) }
    }
}
