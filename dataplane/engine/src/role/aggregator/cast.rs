//! Answers to all members as one datagram (SPEC#answers-by-multicast).
//!
//! Decides whether a sum goes to the row's multicast address or to each member's own: to the first
//! when there is one and every member has said, in this epoch, that it hears it. Repeats go to who
//! asked in any case, so a member that hears nothing there is slow and never wrong (I1, I9).

use core::net::{IpAddr, SocketAddr};

use weft_wire::frame::multicast::{group_of, mac_of};
use weft_wire::frame::{Encap, Endpoint};
use weft_wire::{Members, Rank};

use crate::table::BoxShape;

/// A lease's multicast address, and who hears it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cast {
    /// The headers of what goes there.
    encap: Option<Encap>,
    /// Who has said so in this epoch.
    pub(super) hearing: Members,
}

impl Cast {
    /// For a row with answers of `datagram_len` bytes, whose box has addresses from `base` on.
    pub(super) fn of(
        row: u16,
        datagram_len: usize,
        shape: &BoxShape,
        lane: u16,
        base: Option<IpAddr>,
    ) -> Self {
        let group = base.and_then(|base| group_of(base, row));
        let encap = group.and_then(|group| {
            let mut source = shape.local;
            source.addr.set_port(shape.local.addr.port() + lane);
            // A member knows the lane by the port that its box's lane has.
            let addr = SocketAddr::new(group, source.addr.port());
            let target = Endpoint { mac: mac_of(group), addr };
            Encap::new(source, target)
        });
        let encap = encap.map(|encap| encap.with_payload_len(datagram_len));
        Self { encap, hearing: Members::EMPTY }
    }

    /// The headers of one answer to all members of `mask`, when every one of them hears it.
    #[inline(always)]
    pub(super) fn for_all(&self, mask: Members) -> Option<&Encap> {
        self.encap.as_ref().filter(|_| self.hearing == mask)
    }

    /// A member hears the multicast address, or does not.
    pub(super) fn note_hearing(&mut self, rank: Rank, hears: bool) {
        let others = self.hearing.without(rank.bit());
        self.hearing = if hears { others.union(rank.bit()) } else { others };
    }
}
