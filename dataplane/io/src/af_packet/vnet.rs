//! Decides what the header says that packet sockets with `PACKET_VNET_HDR` put in front of each
//! packet, and how a packet that is a run of frames is cut.
//!
//! Source: the kernel's include/uapi/linux/virtio_net.h and virtio_net.h (`virtio_net_hdr_to_skb`,
//! `virtio_net_hdr_from_skb`). The header is in the machine's byte order. What it says came through
//! the kernel, but is judged all the same: whoever has a packet socket or a tap may write it.

use weft_wire::frame::{UDP_LEN, run};

/// Bytes of the header (`struct virtio_net_hdr`).
pub(super) const VNET_LEN: usize = 10;
/// Bytes of the longest headers of a run: Ethernet, IPv6, UDP.
pub(super) const HEADERS_LEN_MAX: usize = 62;

/// `VIRTIO_NET_HDR_F_NEEDS_CSUM`: the checksum field holds the pseudo header's sum only.
const NEEDS_CHECKSUM: u8 = 1;
/// `VIRTIO_NET_HDR_F_DATA_VALID`: the kernel or the card has verified the checksum.
const IS_VERIFIED: u8 = 2;
/// `VIRTIO_NET_HDR_GSO_NONE`.
const ONE_FRAME: u8 = 0;
/// `VIRTIO_NET_HDR_GSO_UDP_L4`, since kernel 6.2.
const RUN_OF_UDP: u8 = 5;
/// Where the checksum lies in a UDP header.
const CHECKSUM_OFFSET: u16 = 6;

/// `struct virtio_net_hdr`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct VnetHeader {
    flags: u8,
    gso_type: u8,
    header_len: u16,
    segment_len: u16,
    checksum_start: u16,
    checksum_offset: u16,
}

impl VnetHeader {
    /// Of a frame that leaves as it is.
    pub(super) const PLAIN: [u8; VNET_LEN] = [0; VNET_LEN];

    /// Of a run with `header_len` bytes of headers, to be cut after every `segment_len` bytes.
    pub(super) fn of_run(header_len: usize, segment_len: usize) -> [u8; VNET_LEN] {
        let word = |value: usize| u16::try_from(value).unwrap_or(u16::MAX).to_ne_bytes();
        let mut bytes = [NEEDS_CHECKSUM, RUN_OF_UDP, 0, 0, 0, 0, 0, 0, 0, 0];
        bytes[2..4].copy_from_slice(&word(header_len));
        bytes[4..6].copy_from_slice(&word(segment_len));
        bytes[6..8].copy_from_slice(&word(header_len - UDP_LEN));
        bytes[8..10].copy_from_slice(&CHECKSUM_OFFSET.to_ne_bytes());
        bytes
    }

    pub(super) fn read(bytes: [u8; VNET_LEN]) -> Self {
        let word = |at: usize| u16::from_ne_bytes([bytes[at], bytes[at + 1]]);
        Self {
            flags: bytes[0],
            gso_type: bytes[1],
            header_len: word(2),
            segment_len: word(4),
            checksum_start: word(6),
            checksum_offset: word(8),
        }
    }

    /// The packet is one frame.
    pub(super) fn is_one_frame(self) -> bool {
        self.gso_type == ONE_FRAME
    }

    /// The sender left the checksum to its NIC.
    pub(super) fn lacks_checksum(self) -> bool {
        self.flags & NEEDS_CHECKSUM != 0
    }
}

/// How a packet is cut into frames.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Cut {
    /// Bytes of the headers: 42 or 62.
    pub(super) header_len: usize,
    /// Bytes of payload of each frame, but the last.
    pub(super) segment_len: usize,
    /// Bytes of payload of all.
    pub(super) payload_len: usize,
    /// The frames had a UDP checksum, or would have got one.
    pub(super) has_checksum: bool,
}

impl Cut {
    /// How a packet of `len` bytes is cut, which begins with `head` (all of it, or at least its
    /// headers). `None`: it is no run of UDP, or what is said of it does not fit.
    pub(super) fn new(vnet: VnetHeader, head: &[u8], len: usize) -> Option<Self> {
        let header_len = run::header_len(head, len).filter(|_| vnet.gso_type == RUN_OF_UDP)?;
        let payload_len = len - header_len;
        let segment_len = usize::from(vnet.segment_len);
        let (start, offset) = (usize::from(vnet.checksum_start), vnet.checksum_offset);
        let checksum = head.get(header_len - 2..header_len)?;
        let has_checksum = if vnet.lacks_checksum() {
            if start != header_len - UDP_LEN || offset != CHECKSUM_OFFSET {
                return None;
            }
            true
        } else {
            let is_carried = checksum != [0, 0];
            if is_carried && vnet.flags & IS_VERIFIED == 0 {
                return None;
            }
            is_carried
        };
        let fits = segment_len > 0 && payload_len > 0;
        fits.then_some(Self { header_len, segment_len, payload_len, has_checksum })
    }

    /// Bytes of payload of the frame whose payload begins `taken` bytes into that of all.
    pub(super) fn len_at(&self, taken: usize) -> usize {
        self.segment_len.min(self.payload_len - taken)
    }
}

#[cfg(test)]
mod tests;
