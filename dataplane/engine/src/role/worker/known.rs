//! What the frames of an open lane begin with: the sums that come and the contributions that go.
//!
//! Decides whether a sum is an ordinary one, which `quick.rs` then takes.

use weft_wire::frame::{ETHERNET_LEN, IPV4_LEN, ipv4_checksum_ok};
use weft_wire::header::{HEADER_LEN, Packet, Template};
use weft_wire::hello::Integrity;
use weft_wire::quant::is_exponent;

use crate::admit::expected::{DATAGRAM, Expected, LEN, Masks};

/// What is known of a lane's frames while it is open.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) masks: Masks,
    /// Of a sum to this member, and of one to all.
    pub(super) sums: [Expected; 2],
    /// Of a contribution.
    pub(super) contribution: Template,
    pub(super) integrity: Integrity,
    /// Bytes of a frame with a whole chunk.
    pub(super) frame_len: usize,
}

impl Known {
    /// True for an ordinary sum.
    #[inline(always)]
    pub(super) fn is_ordinary(
        &self,
        frame: &[u8],
        head: &[u8; LEN],
        crc32c: fn(&[u8]) -> u32,
    ) -> bool {
        let Some(ip) = head[ETHERNET_LEN..].first_chunk() else { return false };
        let by_multicast = is_multicast(ip);
        // A checksum there is, where nothing else is asked for, wants a look.
        let has_checksum = || head[DATAGRAM - 2..DATAGRAM] != [0, 0];
        self.sums[usize::from(by_multicast)].matches(&self.masks, head)
            && frame.len() >= self.frame_len
            && ipv4_checksum_ok(ip)
            && (self.integrity != Integrity::None || !has_checksum())
            && self.is_whole(&frame[DATAGRAM..self.frame_len], crc32c)
    }

    /// The body of an ordinary sum, of a datagram whose addresses were looked at.
    #[inline(always)]
    pub(super) fn ordinary_sum<'a>(
        &self,
        datagram: &'a [u8],
        header: &[u8; HEADER_LEN],
        by_multicast: bool,
        crc32c: fn(&[u8]) -> u32,
    ) -> Option<&'a [u8]> {
        let is_ordinary = self.sums[usize::from(by_multicast)]
            .matches_datagram(&self.masks, header)
            && datagram.len() == self.frame_len - DATAGRAM
            && self.is_whole(datagram, crc32c);
        is_ordinary.then(|| &datagram[HEADER_LEN..])
    }

    /// What is left to be checked of a datagram whose header is as expected.
    #[inline(always)]
    fn is_whole(&self, datagram: &[u8], crc32c: fn(&[u8]) -> u32) -> bool {
        let packet = Packet::new_unchecked(datagram);
        is_exponent(packet.exponent())
            && match self.integrity {
                // The comparison has seen that there is none.
                Integrity::None => true,
                _ => packet.has_crc(crc32c(datagram)),
            }
    }
}

/// True of an IPv4 header whose target is a multicast address (RFC 5771).
pub(super) fn is_multicast(ip: &[u8; IPV4_LEN]) -> bool {
    ip[16] >> 4 == 0b1110
}
