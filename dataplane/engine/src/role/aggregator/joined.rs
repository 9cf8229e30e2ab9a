//! Contributions of one message, taken where they stand in it (SPEC#checks).
//!
//! Invariant: what is taken here `handle_frame` would have taken, to the same effect (tests/run.rs
//! holds the two against each other).

use weft_wire::frame::Udp;
use weft_wire::header::{HEADER_LEN, Packet};
use weft_wire::hello::Integrity;
use weft_wire::{Members, Nanos, Rank};

use super::Aggregator;
use super::lease::{Lease, Phase};
use crate::admit::expected::{DATAGRAM, LEN};
use crate::drops::DropReason;
use crate::role::LeaseIndex;
use crate::slot::Arrival;

impl Aggregator {
    /// True while [`Aggregator::handle_run`] may take something.
    #[must_use]
    pub fn takes_joined(&self) -> bool {
        self.gather.is_empty()
    }

    /// Takes ordinary contributions from the front of `datagrams`, each `datagram_len` bytes long
    /// but for the last, which may be shorter, all with these headers; returns how many. The next
    /// one is for [`Aggregator::handle_frame`], with headers of its own: it is something else, or
    /// completes its step, and so becomes an answer. No run may wait ([`Aggregator::waiting_run`]).
    pub fn handle_run(
        &mut self,
        now: Nanos,
        udp: &Udp,
        datagrams: &mut [u8],
        datagram_len: usize,
    ) -> usize {
        if !self.takes_joined() {
            return 0;
        }
        let mut count = 0;
        for datagram in datagrams.chunks_mut(datagram_len.max(1)) {
            let recognised = self.recognise_datagram(now, udp, datagram);
            let Some((index, arrival)) = recognised else { break };
            if let Err(reason) = self.take_datagram(index, &arrival, datagram) {
                self.stats.drops.count(reason);
            }
            count += 1;
        }
        self.stats.frames += count as u64;
        count
    }

    /// Takes a recognised contribution, which does not complete its step.
    #[inline(always)]
    fn take_datagram(
        &mut self,
        index: LeaseIndex,
        arrival: &Arrival,
        datagram: &mut [u8],
    ) -> Result<(), DropReason> {
        let lease = &mut self.leases[index.index()];
        lease.admit(&mut self.jobs, arrival, datagram, 0..datagram.len())?;
        let job = &mut lease.job(&mut self.jobs).stats;
        let wire = &mut datagram[HEADER_LEN..];
        lease.take_payload(arrival, wire, job, &mut self.stats.transitions)?;
        Ok(())
    }

    /// As [`Aggregator::recognise`], of a contribution that does not complete its step. Changes
    /// nothing.
    #[inline(always)]
    fn recognise_datagram(
        &self,
        now: Nanos,
        udp: &Udp,
        datagram: &[u8],
    ) -> Option<(LeaseIndex, Arrival)> {
        let header: &[u8; HEADER_LEN] = datagram.first_chunk()?;
        let packet = Packet::new_unchecked(&header[..]);
        let index: LeaseIndex = (*self.rows.get(usize::from(packet.group().row()))?)?;
        let lease = self.leases.get(index.index())?;
        let rank = lease.recognise_sender(udp, datagram, header)?;
        let room = self.find_room(lease, rank, header)?;
        let bank = lease.slots.bank(room.place);
        let others = if room.first { Members::EMPTY } else { bank.members() };
        if others.union(rank.bit()) == lease.mask {
            return None;
        }
        Some((index, lease.arrival(now, header, udp.congestion, rank, room)))
    }
}

impl Lease {
    /// Recognises whose a datagram to this row is; all but its chunk and exponent is as it should
    /// be.
    #[inline(always)]
    fn recognise_sender(
        &self,
        udp: &Udp,
        datagram: &[u8],
        header: &[u8; HEADER_LEN],
    ) -> Option<Rank> {
        let rank = Packet::new_unchecked(&header[..]).members().0.trailing_zeros();
        let member = self.members.get(rank as usize)?;
        let rank = Rank::new(u8::try_from(rank).ok()?)?;
        let (from, own) = (member.encap.target().addr, member.encap.source().addr);
        let is_expected = member.expected.matches_datagram(&self.masks, header)
            && self.phase == Phase::Open
            && datagram.len() == LEN - DATAGRAM + self.payload_len
            && udp.source == from
            && udp.target.ip() == own.ip()
            && udp.target.port() == self.box_port
            && self.row.integrity != Integrity::Checksum16;
        is_expected.then_some(rank)
    }
}
