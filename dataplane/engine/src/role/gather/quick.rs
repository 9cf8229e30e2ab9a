//! The short way of an ordinary contribution to a whole lease: one masked comparison instead of a
//! parse and a dozen checks, as for windowed leases. It ends in the same transition.
//!
//! What a worker's contributions begin with is known while its channel is open, but for the group.
//! A frame that is anything else, or whose slot wants anything but a sum, goes the long way;
//! nothing was changed by then. Invariant: the short way accepts nothing that the long way refuses,
//! and both do the same (tests/quick.rs holds them against each other).

use weft_wire::frame::{ETHERNET_LEN, IPV4_LEN, ipv4_checksum_ok};
use weft_wire::header::{HEADER_LEN, Header, Packet};
use weft_wire::{ChunkIndex, GroupId, Nanos, Rank};

use super::Gather;
use super::admit::take;
use super::data::Contributed;
use super::group::Group;
use super::job::Job;
use crate::admit::expected::{DATAGRAM, Expected, LEN, is_marked};
use crate::drops::DropReason;
use crate::role::Verdict;
use crate::role::channel::Peer;
use crate::send::datagram::is_intact;
use crate::slot::next_step::{Event, NextStep, transition};

impl Gather {
    /// Takes an ordinary contribution, or leaves everything as it is.
    #[inline]
    pub(crate) fn take_quickly(
        &mut self,
        now: Nanos,
        buffer: &mut [u8],
        len: usize,
    ) -> Option<Result<Verdict, DropReason>> {
        let head: &[u8; LEN] = buffer.first_chunk()?;
        let push = self.find(Packet::new_unchecked(&head[DATAGRAM..]).job())?;
        let job = self.places[push.index()].job.as_mut()?;
        let (from, group) = job.recognise(now, head, len)?;
        self.outbox.trains.on_frame(now, from.frame_len);
        self.may_be_in_train = false;
        if let Err(reason) = job.admit(&from, buffer) {
            return Some(Err(reason));
        }
        Some(job.take(&from, &group, buffer, &mut self.outbox))
    }
}

impl Job {
    /// To be called when a worker's channel has changed, or who the server is.
    pub(super) fn renew_expected(&mut self) {
        let ends = [Some(self.config.server), self.config.replica];
        let is_end = |addr| ends.iter().flatten().any(|end| end.addr == addr);
        for (worker, addr) in self.config.workers.iter().enumerate() {
            let rank = u8::try_from(worker).ok().and_then(Rank::new);
            let known = rank.and_then(|rank| self.workers.way_in(Peer::Worker(rank)));
            self.haves[worker] = rank.and_then(|rank| self.have_template(Peer::Worker(rank)));
            self.expected[worker] = match (known, rank) {
                // What a server or a replica sends is no worker's.
                (Some((encap, cookie)), Some(rank)) if !is_end(*addr) => {
                    let header = Header {
                        cookie,
                        members: rank.bit(),
                        ..self.data_header(GroupId::default(), ChunkIndex(0), 0)
                    };
                    Expected::new(encap.target(), encap.source(), &header, &self.masks)
                }
                _ => Expected::NOTHING,
            };
        }
    }

    /// Recognises an ordinary contribution that its slot has room for. Changes nothing.
    #[inline(always)]
    pub(super) fn recognise(
        &self,
        now: Nanos,
        head: &[u8; LEN],
        len: usize,
    ) -> Option<(Contributed, Group)> {
        let packet = Packet::new_unchecked(&head[DATAGRAM..]);
        // The comparison holds the other bits against the worker's own.
        let rank = packet.members().0.trailing_zeros();
        let expected = self.expected.get(rank as usize)?;
        let rank = Rank::new(u8::try_from(rank).ok()?)?;
        let ip: &[u8; IPV4_LEN] = head[ETHERNET_LEN..].first_chunk()?;
        let frame_len = LEN + self.payload_len;
        if !expected.matches(&self.masks, head) || len < frame_len || !ipv4_checksum_ok(ip) {
            return None;
        }
        let group = self.groups.find(packet.group()).ok()?;
        let chunk = packet.chunk();
        if !group.mask.contains(rank.bit())
            || chunk.0 >= group.range.len
            || packet.exponent() != group.exponent
        {
            return None;
        }
        let slot = self.arena.slot(group.place(chunk.0));
        let seen = slot.look(rank.bit());
        let next = transition(slot.state(), Event::Contribution(seen), false);
        if !matches!(next, NextStep::Claim | NextStep::Add) {
            return None;
        }
        let from = Contributed {
            rank,
            chunk,
            flags: packet.flags(),
            is_marked: is_marked(head),
            payload_start: DATAGRAM + HEADER_LEN,
            frame_len,
            now,
        };
        Some((from, group))
    }

    /// The checks that are left: the job's quota, and integrity.
    #[inline(always)]
    pub(super) fn admit(&mut self, from: &Contributed, buffer: &[u8]) -> Result<(), DropReason> {
        if let Err(reason) = take(&mut self.bucket, from.now, from.frame_len) {
            self.stats.over_quota += 1;
            return Err(reason);
        }
        let intact = is_intact(self.config.integrity, buffer, DATAGRAM..from.frame_len);
        if intact { Ok(()) } else { Err(DropReason::Integrity) }
    }
}
