//! What a peer's ordinary contributions begin with: one masked comparison instead of a parse and a
//! dozen checks. A frame that equals it has passed SPEC#checks but for what the masks leave out,
//! its length and its IP checksum. IPv4 only: nothing of IPv6 is expected.

use weft_kernel::{PATTERN_LEN, Pattern};
use weft_wire::frame::{ETHERNET_LEN, Encap, Endpoint, IPV4_LEN};
use weft_wire::header::{CRC_AT, HEADER_LEN, Header, Packet};
use weft_wire::hello::Integrity;

/// Bytes of Ethernet, IPv4, UDP and Weft header.
pub(crate) const LEN: usize = 42 + HEADER_LEN;
/// Of the Ethernet addresses nothing counts, so the comparison may start among them.
const START: usize = LEN - PATTERN_LEN;
const _: () = assert!(START <= 12);
pub(crate) const DATAGRAM: usize = LEN - HEADER_LEN;

/// What a member's contributions begin with, under the lease's [`Masks`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expected(Pattern);

/// Which bits of a contribution's headers count.
#[derive(Debug)]
pub(crate) struct Masks(Pattern);

impl Expected {
    /// Matches nothing, for no mask is all ones: for IPv6, and while a lease is not open.
    pub(crate) const NOTHING: Self = Self(Pattern([0xff; PATTERN_LEN]));

    /// What comes from `from` to `to` under such a header.
    pub(crate) fn new(from: Endpoint, to: Endpoint, header: &Header, masks: &Masks) -> Self {
        if !from.addr.is_ipv4() {
            return Self::NOTHING;
        }
        let Some(encap) = Encap::new(from, to) else { return Self::NOTHING };
        let mut bytes = [0; LEN];
        header.emit(&mut Packet::new_unchecked(&mut bytes[DATAGRAM..]));
        encap.emit(&mut bytes, HEADER_LEN + header.payload_len());
        let mut pattern = *compared(&bytes);
        for (byte, mask) in pattern.iter_mut().zip(&masks.0.0) {
            *byte &= mask;
        }
        Self(Pattern(pattern))
    }

    #[inline(always)]
    pub(crate) fn matches(&self, masks: &Masks, head: &[u8; LEN]) -> bool {
        self.0.matches(&masks.0, compared(head))
    }

    /// As [`Expected::matches`], of a datagram whose addresses were looked at.
    #[inline(always)]
    pub(crate) fn matches_datagram(&self, masks: &Masks, header: &[u8; HEADER_LEN]) -> bool {
        let own = of_datagram(&self.0.0);
        let mask = of_datagram(&masks.0.0);
        let mut differ = 0;
        for ((word, own), mask) in words(header).zip(words(own)).zip(words(mask)) {
            differ |= word & mask ^ own;
        }
        differ == 0
    }
}

impl Masks {
    /// The masks of a row with this exponent and integrity. The exponent's field counts where it is
    /// fixed. The CRC's counts where none is asked for: it is 0 then, and no further check is due.
    pub(crate) const fn of(exponent: Option<i8>, integrity: Integrity) -> Self {
        // Ethernet addresses; type of service; identification; hop limit; IP and UDP checksums;
        // flags and outcome; chunk; CRC. (start, length)
        const IGNORED: [(usize, usize); 9] = [
            (0, 12),
            (ETHERNET_LEN + 1, 1),
            (ETHERNET_LEN + 4, 2),
            (ETHERNET_LEN + 8, 1),
            (ETHERNET_LEN + 10, 2),
            (ETHERNET_LEN + IPV4_LEN + 6, 2),
            (DATAGRAM + 1, 1),
            (DATAGRAM + 12, 4),
            (DATAGRAM + 20, 4),
        ];
        let mut mask = [0xff_u8; LEN];
        let mut range = 0;
        while range < IGNORED.len() {
            let (start, len) = IGNORED[range];
            let mut at = start;
            while at < start + len {
                mask[at] = 0;
                at += 1;
            }
            range += 1;
        }
        if exponent.is_none() {
            mask[DATAGRAM + 17] = 0;
        }
        if matches!(integrity, Integrity::None) {
            let mut at = CRC_AT;
            while at < CRC_AT + 4 {
                mask[DATAGRAM + at] = 0xff;
                at += 1;
            }
        }
        // Of the fragment field the reserved bit and "don't fragment" are free.
        mask[ETHERNET_LEN + 6] = 0x3f;
        Self(Pattern(*compared(&mask)))
    }

    /// The same where the group does not count.
    pub(crate) const fn with_any_group(mut self) -> Self {
        let mut at = DATAGRAM + 8 - START;
        while at < DATAGRAM + 12 - START {
            self.0.0[at] = 0;
            at += 1;
        }
        self
    }
}

/// True when a router on the way has marked the frame (ECN CE, RFC 3168).
#[inline(always)]
pub(crate) const fn is_marked(head: &[u8; LEN]) -> bool {
    head[ETHERNET_LEN + 1] & 0b11 == 0b11
}

/// The Weft header's share of a pattern.
#[inline(always)]
fn of_datagram(pattern: &[u8; PATTERN_LEN]) -> &[u8; HEADER_LEN] {
    pattern.last_chunk().expect("a pattern ends with the Weft header")
}

#[inline(always)]
fn words(header: &[u8; HEADER_LEN]) -> impl Iterator<Item = u64> {
    header.as_chunks::<8>().0.iter().map(|word| u64::from_ne_bytes(*word))
}

#[inline(always)]
const fn compared(head: &[u8; LEN]) -> &[u8; PATTERN_LEN] {
    match head.last_chunk() {
        Some(bytes) => bytes,
        None => unreachable!(),
    }
}
