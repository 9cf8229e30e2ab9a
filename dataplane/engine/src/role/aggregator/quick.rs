//! The short way of an ordinary contribution: one masked comparison instead of a parse and a dozen
//! checks.
//!
//! Whoever has joined sends frames that differ in few bytes: chunk, CRC, flags, payload, and what
//! routers change. Each member's other bytes are known when its lease opens, so [`Expected`] holds
//! them, and a frame that equals them has passed every check of SPEC#checks up to the chunk. A
//! frame that does not, or whose slot wants anything but a sum, goes the long way, which names the
//! reason; nothing was changed by then. Invariant: the short way accepts nothing that the long way
//! refuses (tests/quick.rs holds the two against each other).
//!
//! IPv4 only; IPv6 always goes the long way.

use core::ops::Range;

use weft_wire::frame::{ETHERNET_LEN, IPV4_LEN, ipv4_checksum_ok};
use weft_wire::header::{Flags, HEADER_LEN, Header, Kind, Outcome, Packet};
use weft_wire::hello::Integrity;
use weft_wire::quant::is_exponent;
use weft_wire::{ChunkIndex, Members, Nanos, Rank};

use super::lease::{Lease, Phase};
use super::{Aggregator, Job};
use crate::admit::expected::{DATAGRAM, Expected, LEN, is_marked};
use crate::drops::DropReason;
use crate::role::LeaseIndex;
use crate::slot::bitmap::{Seen, look};
use crate::slot::{Arrival, BankIndex, Length, State};

impl Lease {
    /// What a member sends while the lease is open.
    fn expected_of(&self, rank: usize) -> Expected {
        let member = &self.members[rank];
        let (from, mut to) = (member.encap.target(), member.encap.source());
        // The member sends to the box's port whatever the lane.
        to.addr.set_port(self.box_port);
        if self.is_from_root(member.peer.addr()) {
            return Expected::NOTHING;
        }
        let header = Header {
            kind: Kind::Contrib,
            flags: Flags::NONE,
            outcome: Outcome::None,
            job: self.row.job,
            cookie: member.peer.cookie_up(),
            group: self.group,
            chunk: ChunkIndex(0),
            element_type: self.row.element_type,
            operation: self.row.operation,
            exponent: self.row.exponent.unwrap_or(0),
            count: self.row.elements,
            members: Members(1 << rank),
        };
        Expected::new(from, to, &header, &self.masks)
    }

    /// To be called whenever a cookie, the group or the phase has changed.
    pub(super) fn renew_expected(&mut self) {
        for rank in 0..self.members.len() {
            self.members[rank].expected = match self.phase {
                Phase::Open => self.expected_of(rank),
                Phase::Forming | Phase::AwaitingRoot | Phase::AwaitingSwitch => Expected::NOTHING,
            };
        }
    }
}

impl Aggregator {
    /// Takes an ordinary contribution, or leaves everything as it is.
    #[inline(always)]
    pub(super) fn take_quickly(&mut self, now: Nanos, buffer: &mut [u8], len: usize) -> Quick {
        let Some((index, arrival)) = self.recognise(now, buffer, len) else { return Quick::Else };
        let lease = &mut self.leases[index.index()];
        if let Err(reason) =
            lease.admit(&mut self.jobs, &arrival, buffer, DATAGRAM..arrival.frame_len)
        {
            return Quick::Drop(reason);
        }
        let job = lease.job(&mut self.jobs);
        match lease.take(arrival, buffer, &mut job.stats, &mut self.stats.transitions) {
            Ok(false) => Quick::Hold,
            Ok(true) => Quick::Complete(index, arrival.step),
            Err(reason) => Quick::Drop(reason),
        }
    }

    /// Recognises an ordinary contribution that its slot has room for. Changes nothing.
    #[inline(always)]
    pub(super) fn recognise(
        &self,
        now: Nanos,
        buffer: &[u8],
        len: usize,
    ) -> Option<(LeaseIndex, Arrival)> {
        let datagram: &[u8; HEADER_LEN] = buffer.first_chunk::<LEN>()?.last_chunk()?;
        let packet = Packet::new_unchecked(datagram);
        let index: LeaseIndex = (*self.rows.get(usize::from(packet.group().row()))?)?;
        let lease = self.leases.get(index.index())?;
        let (head, rank) = lease.recognise_member(buffer, len)?;
        let room = self.find_room(lease, rank, datagram)?;
        Some((index, lease.arrival(now, datagram, is_marked(head), rank, room)))
    }

    /// Where a member's contribution goes, if its slot has room for it.
    #[inline(always)]
    pub(super) fn find_room(
        &self,
        lease: &Lease,
        rank: Rank,
        header: &[u8; HEADER_LEN],
    ) -> Option<Room> {
        let packet = Packet::new_unchecked(&header[..]);
        let chunk = packet.chunk().0;
        let step = chunk >> self.shards_log2;
        if chunk & (u32::from(self.shards) - 1) != u32::from(self.lane) || step >= lease.step_count
        {
            return None;
        }
        let place = lease.slots.locate(step);
        let bank = lease.slots.bank(place);
        let exponent = packet.exponent();
        let length = Length::new(packet.count(), packet.outcome());
        let first = if bank.state() == State::Collecting && bank.step() == step {
            let agrees = bank.exponent() == exponent && bank.length() == length;
            if bank.members().contains(rank.bit()) || !agrees {
                return None;
            }
            false
        } else if look(&lease.slots, step, rank.bit()) == Seen::Claimable && is_exponent(exponent) {
            true
        } else {
            return None;
        };
        Some(Room { place, step, first })
    }
}

impl Lease {
    /// Recognises whose a frame to this row is; all but its chunk and exponent is as it should be.
    #[inline(always)]
    pub(super) fn recognise_member<'a>(
        &self,
        buffer: &'a [u8],
        len: usize,
    ) -> Option<(&'a [u8; LEN], Rank)> {
        let head: &[u8; LEN] = buffer.first_chunk()?;
        let datagram: &[u8; HEADER_LEN] = head.last_chunk()?;
        // The comparison holds the other bits against the member's own.
        let rank = Packet::new_unchecked(datagram).members().0.trailing_zeros();
        let member = self.members.get(rank as usize)?;
        let rank = Rank::new(u8::try_from(rank).ok()?)?;
        let ip: &[u8; IPV4_LEN] = head[ETHERNET_LEN..].first_chunk()?;
        let is_expected = member.expected.matches(&self.masks, head)
            && self.phase == Phase::Open
            && len >= LEN + self.payload_len
            && ipv4_checksum_ok(ip);
        is_expected.then_some((head, rank))
    }

    /// The checks that are left of a recognised contribution, whose datagram lies in `range` of
    /// `bytes`: its job's quota, and its integrity where more than its pattern tells it.
    #[inline(always)]
    pub(super) fn admit(
        &self,
        jobs: &mut [Option<Job>],
        arrival: &Arrival,
        bytes: &[u8],
        range: Range<usize>,
    ) -> Result<(), DropReason> {
        if self.has_quota {
            self.job(jobs).charge(arrival.now, arrival.frame_len)?;
        }
        match self.row.integrity {
            Integrity::None => Ok(()),
            _ => self.check_integrity(arrival.rank, bytes, range),
        }
    }

    #[inline(always)]
    pub(super) fn arrival(
        &self,
        now: Nanos,
        header: &[u8; HEADER_LEN],
        congestion: bool,
        rank: Rank,
        Room { place, step, first }: Room,
    ) -> Arrival {
        let packet = Packet::new_unchecked(&header[..]);
        Arrival {
            rank,
            step,
            place,
            first,
            exponent: packet.exponent(),
            length: Length::new(packet.count(), packet.outcome()),
            flags: packet.flags(),
            congestion,
            payload_start: LEN,
            frame_len: LEN + self.payload_len,
            now,
        }
    }
}

/// Where a contribution goes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    pub(super) place: BankIndex,
    pub(super) step: u32,
    /// It is the step's first.
    pub(super) first: bool,
}

/// What became of a frame on the short way. Small, so that it travels in registers.
#[derive(Clone, Copy, Debug)]
pub(super) enum Quick {
    /// Taken in.
    Hold,
    /// Taken in, and this step is complete: bank and frame hold its sum.
    Complete(LeaseIndex, u32),
    /// Refused at the last checks.
    Drop(DropReason),
    /// Not ordinary; nothing has changed.
    Else,
}

#[cfg(test)]
impl Aggregator {
    /// True when the short way takes the frame as it is.
    pub(super) fn is_ordinary(&self, frame: &[u8]) -> bool {
        self.recognise(Nanos(0), frame, frame.len()).is_some()
    }

    /// What [`Aggregator::handle_frame`] did if there were no short way.
    pub(crate) fn handle_frame_the_long_way(
        &mut self,
        now: Nanos,
        buffer: &mut [u8],
        len: usize,
    ) -> super::Verdict {
        self.stats.frames += 1;
        self.take_slowly(now, buffer, len).unwrap_or_else(|reason| self.refuse(reason))
    }
}
