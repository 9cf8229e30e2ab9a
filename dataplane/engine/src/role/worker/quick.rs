//! The short way of an ordinary sum: one masked comparison instead of a parse and a dozen checks,
//! as the box has for contributions.
//!
//! What the sums of a lease begin with is known once the lane is open, but for chunk, CRC, flags
//! and what routers change. A frame that is anything else goes the long way, which names the
//! reason; nothing was changed by then. Invariant: the short way accepts nothing that the long way
//! refuses, and both do the same (tests/quick.rs holds them against each other).
//!
//! IPv4 only; IPv6 always goes the long way, and so does `checksum16`.

use core::net::SocketAddr;

use weft_wire::Nanos;
use weft_wire::frame::{ETHERNET_LEN, Endpoint, IPV4_LEN};
use weft_wire::header::{Header, Kind, Packet, Template};
use weft_wire::hello::Integrity;

use super::config::{LeaseInfo, Payload};
use super::data::{Arrived, data_header};
use super::event::Refusal;
use super::known::{Known, is_multicast};
use super::lane::{Lane, Shared};
use super::{Worker, WorkerState};
use crate::admit::expected::{DATAGRAM, Expected, LEN, Masks, is_marked};
use crate::session::terms::Terms;

impl Lane {
    /// To be called when terms or addresses may have changed.
    pub(super) fn renew_known(&mut self, ctx: &Shared) {
        let agreed = ctx.lease.as_ref().zip(self.session.terms());
        self.known = agreed.map(|(lease, terms)| self.known_of(ctx, lease, terms));
    }

    fn known_of(&self, ctx: &Shared, lease: &LeaseInfo, terms: Terms) -> Known {
        let contribution = data_header(ctx, lease, terms);
        let sum = Header {
            kind: Kind::Answer,
            cookie: terms.cookie_down,
            members: lease.mask,
            ..contribution
        };
        let masks = Masks::of(lease.exponent, lease.integrity);
        let (own, target) = (self.encap.source(), self.encap.target());
        let from = Endpoint { addr: self.box_addr(), ..target };
        let all = ctx.config.multicast.map(|ip| {
            let port = target.addr.port().wrapping_add(self.index);
            Endpoint { addr: SocketAddr::new(ip, port), ..own }
        });
        let has_more_checks = lease.integrity == Integrity::Checksum16;
        let expected = |to: Option<Endpoint>| match to.filter(|_| !has_more_checks) {
            Some(to) => Expected::new(from, to, &sum, &masks),
            None => Expected::NOTHING,
        };
        Known {
            sums: [expected(Some(own)), expected(all)],
            contribution: Template::of(&contribution),
            integrity: lease.integrity,
            frame_len: LEN + lease.chunk_len(),
            masks,
        }
    }
}

impl Worker {
    /// Takes an ordinary sum, or leaves everything as it is.
    pub(super) fn take_quickly(
        &mut self,
        now: Nanos,
        frame: &[u8],
        payload: &mut dyn Payload,
    ) -> Option<Result<(), Refusal>> {
        if self.state == WorkerState::Stopped {
            return None;
        }
        let head: &[u8; LEN] = frame.first_chunk()?;
        let chunk = Packet::new_unchecked(&head[DATAGRAM..]).chunk().0;
        let ctx = &self.shared;
        let shards = u32::from(ctx.lease.as_ref()?.shards);
        let lane = self.lanes.get_mut((chunk % shards) as usize)?;
        let known = lane.known.as_ref().filter(|_| lane.is_open())?;
        if !known.is_ordinary(frame, head, ctx.crc32c) {
            return None;
        }
        let sum = &frame[LEN..known.frame_len];
        let ip: &[u8; IPV4_LEN] = head[ETHERNET_LEN..].first_chunk()?;
        let packet = Packet::new_unchecked(&head[DATAGRAM..]);
        // Passed where it stands: to move what was just written in bytes waits for all stores.
        let arrived = Arrived {
            now,
            chunk: packet.chunk(),
            exponent: packet.exponent(),
            flags: packet.flags(),
            by_multicast: is_multicast(ip),
            is_marked: is_marked(head),
        };
        lane.take_word(now);
        let taken = lane.take_answer(&arrived, ctx, chunk / shards, sum, payload, &mut self.stats);
        Some(taken.map(|event| self.take_data_event(now, event, payload)))
    }
}
