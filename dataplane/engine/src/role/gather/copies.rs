//! Copies of a frame that one more receiver gets: a new header, never a new payload (PROTOCOL
//! section 7).
//!
//! The CRC covers the header too; it is mended for the bytes that differ, so a port may share the
//! payload between the original and its copies, in memory that nobody reads again.

use weft_wire::header::{Flags, HEADER_LEN, Header, Kind, Packet};
use weft_wire::{Cookie, Members};

use super::job::Job;
use crate::role::channel::Peer;

/// Who gets copies of a frame, one after the other.
#[derive(Clone, Copy, Debug)]
pub struct Copies {
    workers: Members,
    replica: Option<Peer>,
}

impl Copies {
    /// Nobody.
    pub(super) const NONE: Self = Self { workers: Members::EMPTY, replica: None };
}

impl Iterator for Copies {
    type Item = Peer;

    fn next(&mut self) -> Option<Peer> {
        let Some(rank) = self.workers.iter().next() else { return self.replica.take() };
        self.workers = self.workers.without(rank.bit());
        Some(Peer::Worker(rank))
    }
}

impl Job {
    /// Who gets copies: the replica of a sum, all but the first of those whom an answer names.
    pub(super) fn copies(&self, frame: &[u8]) -> Copies {
        let header = frame.get(self.encap_len()..).map(Packet::new_unchecked);
        let header = header.and_then(|packet| Header::parse(&packet).ok());
        let Some(header) = header else { return Copies::NONE };
        if header.kind == Kind::Contrib {
            let replica = Some(Peer::Box(self.config.box_index));
            return Copies { workers: Members::EMPTY, replica };
        }
        let first = header.members.iter().next().map_or(Members::EMPTY, weft_wire::Rank::bit);
        Copies { workers: header.members.without(first), replica: None }
    }

    pub(super) fn copy_header_len(&self) -> usize {
        self.encap_len() + HEADER_LEN
    }

    /// Rewrites the head of a copy. A peer that is a box stands for the replica.
    pub(super) fn address_copy(&self, peer: Peer, head: &mut [u8], frame_len: usize) -> bool {
        let encap_len = self.encap_len();
        let Some((encap_head, datagram)) = head.split_at_mut_checked(encap_len) else {
            return false;
        };
        let Some(datagram) = datagram.first_chunk_mut::<HEADER_LEN>() else { return false };
        let packet = Packet::new_unchecked(&*datagram);
        let (flags, members) = (packet.flags(), packet.members());
        let (from, to, flags) = match peer {
            Peer::Box(_) => {
                let from = self.server.path();
                let to = self.replica.as_ref().and_then(|replica| replica.path());
                (from, to, flags.union(Flags::REPLICA))
            }
            Peer::Worker(_) => {
                let first = members.iter().next().map(Peer::Worker);
                let from = first.and_then(|first| self.workers.path(first));
                (from, self.workers.path(peer), flags)
            }
        };
        let (Some((from, _)), Some((to, cookie))) = (from, to) else { return false };
        let payload_len = frame_len - encap_len - HEADER_LEN;
        let (old, new) = self.rewrite(datagram, cookie, flags, payload_len);
        to.readdress(from, encap_head, frame_len - encap_len);
        to.mend(encap_head, &old, &new);
        true
    }

    /// Puts cookie and flags into a sealed header; returns it as it was and as it is.
    fn rewrite(
        &self,
        datagram: &mut [u8; HEADER_LEN],
        cookie: Cookie,
        flags: Flags,
        payload_len: usize,
    ) -> ([u8; HEADER_LEN], [u8; HEADER_LEN]) {
        let sealed = *datagram;
        let mut packet = Packet::new_unchecked(&mut datagram[..]);
        let crc = packet.crc();
        packet.set_flags(flags);
        packet.set_cookie(cookie);
        if crc != 0 {
            packet.set_crc(0);
            let mut before = sealed;
            Packet::new_unchecked(&mut before[..]).set_crc(0);
            let patch = match payload_len {
                0 => weft_kernel::CrcPatch::before(0),
                _ if packet.kind() == Some(Kind::Contrib) => self.sum_patch,
                _ => self.answer_patch,
            };
            let new = *packet.into_inner().first_chunk::<HEADER_LEN>().expect("a whole header");
            // A CRC of 0 is sent as all ones. One of all ones that was no 0 is mended wrongly, once
            // in 2^32 copies, and the copy is lost like any.
            let patched = patch.apply(if crc == u32::MAX { 0 } else { crc }, &before, &new);
            let patched = if patched == 0 { u32::MAX } else { patched };
            Packet::new_unchecked(&mut datagram[..]).set_crc(patched);
        }
        (sealed, *datagram)
    }

    fn encap_len(&self) -> usize {
        self.server.payload_start() - HEADER_LEN
    }
}
