//! The headers in front of a datagram to one destination, prepared once and copied for each frame.

use core::net::{IpAddr, SocketAddr};

use super::label::set_traffic_class;
use super::{
    ECT0, ETHERNET_LEN, ETHERTYPE_IPV4, ETHERTYPE_IPV6, HEADERS_LEN_MAX, HOP_LIMIT, IPV4_LEN,
    IPV6_LEN, PROTOCOL_UDP, UDP_LEN, fold, pseudo_sum, sum_words,
};
use crate::types::MacAddr;

/// One end of a path: where frames go, or where they come from.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Endpoint {
    /// Ethernet address of the host, or of the router towards it.
    pub mac: MacAddr,
    /// Address and UDP port.
    pub addr: SocketAddr,
}

/// The headers of datagrams from one endpoint to another.
///
/// IPv4 datagrams leave without a UDP checksum unless [`Encap::finish`] is called (the header's
/// CRC32C is stronger); IPv6 demands one. Packets are ECN-capable (ECT(0)) and not fragmentable.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Encap {
    source: Endpoint,
    target: Endpoint,
    /// The headers of a datagram with `ready_len` bytes of payload, UDP checksum zero; 42 or 62
    /// bytes of it.
    headers: [u8; HEADERS_LEN_MAX],
    /// The payload that the lengths in `headers` are of; `None` before there are any.
    ready_len: Option<u16>,
    /// Ones-complement sum of the IPv4 header with length and checksum zero.
    ipv4_sum: u16,
}

impl Encap {
    /// Prepares the headers; `None` when the two addresses are of different families.
    #[must_use]
    pub fn new(source: Endpoint, target: Endpoint) -> Option<Self> {
        if source.addr.is_ipv4() != target.addr.is_ipv4() {
            return None;
        }
        let headers = [0; HEADERS_LEN_MAX];
        let mut encap = Self { source, target, headers, ready_len: None, ipv4_sum: 0 };
        if source.addr.is_ipv4() {
            encap.write_ipv4();
            encap.ipv4_sum = sum_words(&encap.headers[ETHERNET_LEN..ETHERNET_LEN + IPV4_LEN], 0);
        } else {
            encap.write_ipv6();
        }
        let start = encap.header_len() - UDP_LEN;
        encap.headers[start..start + 2].copy_from_slice(&source.addr.port().to_be_bytes());
        encap.headers[start + 2..start + 4].copy_from_slice(&target.addr.port().to_be_bytes());
        Some(encap)
    }

    /// Where the datagrams go.
    #[must_use]
    pub fn target(&self) -> Endpoint {
        self.target
    }

    /// Where the datagrams come from.
    #[must_use]
    pub fn source(&self) -> Endpoint {
        self.source
    }

    /// The same headers towards another Ethernet address.
    #[must_use]
    pub fn with_target_mac(mut self, mac: MacAddr) -> Self {
        self.target.mac = mac;
        self.headers[..6].copy_from_slice(&mac.0);
        self
    }

    /// The same headers with this DSCP and ECN, where they otherwise have DSCP 0 and ECT(0).
    #[must_use]
    pub fn with_traffic_class(mut self, class: u8) -> Self {
        let word =
            |headers: &[u8]| u16::from_be_bytes([headers[ETHERNET_LEN], headers[ETHERNET_LEN + 1]]);
        let before = word(&self.headers);
        set_traffic_class(&mut self.headers, class);
        if self.target.addr.is_ipv4() {
            let after = word(&self.headers);
            let changed = u64::from(self.ipv4_sum) + u64::from(!before) + u64::from(after);
            self.ipv4_sum = fold(changed);
        }
        self
    }

    /// The same headers, prepared for datagrams with `payload_len` bytes of payload: those are
    /// emitted in fewer steps.
    #[must_use]
    pub fn with_payload_len(mut self, payload_len: usize) -> Self {
        let mut headers = [0; HEADERS_LEN_MAX];
        self.emit(&mut headers, payload_len);
        self.headers = headers;
        self.ready_len = u16::try_from(payload_len).ok();
        self
    }

    /// Bytes of the headers: 42 or 62. The payload starts there.
    #[inline]
    #[must_use]
    pub fn header_len(&self) -> usize {
        let ip_len = if self.target.addr.is_ipv4() { IPV4_LEN } else { IPV6_LEN };
        ETHERNET_LEN + ip_len + UDP_LEN
    }

    /// The first bytes of the payload in a frame with these headers.
    ///
    /// # Panics
    /// If `frame` has fewer bytes behind the headers.
    #[inline(always)]
    #[must_use]
    pub fn payload_mut<'a, const LEN: usize>(&self, frame: &'a mut [u8]) -> &'a mut [u8; LEN] {
        let payload = &mut frame[self.header_len()..];
        payload.first_chunk_mut().expect("a frame has room for what it carries")
    }

    /// Writes the headers of a datagram with `payload_len` bytes of payload over the start of
    /// `frame`, and returns the frame's length. The UDP checksum is left 0.
    ///
    /// # Panics
    /// If `frame` is shorter than the headers, or the IP length field cannot say the datagram's.
    #[inline]
    pub fn emit(&self, frame: &mut [u8], payload_len: usize) -> usize {
        let is_ready = self.ready_len.is_some_and(|ready| usize::from(ready) == payload_len);
        if is_ready && self.target.addr.is_ipv4() {
            const LEN: usize = ETHERNET_LEN + IPV4_LEN + UDP_LEN;
            let _: &mut [u8; LEN] = self.copy_headers(frame);
            return LEN + payload_len;
        }
        self.emit_len(frame, payload_len)
    }

    /// As [`Encap::emit`], for a length that was not prepared.
    fn emit_len(&self, frame: &mut [u8], payload_len: usize) -> usize {
        let udp_len = u16::try_from(UDP_LEN + payload_len).expect("a datagram fits its length");
        if self.target.addr.is_ipv4() {
            const LEN: usize = ETHERNET_LEN + IPV4_LEN + UDP_LEN;
            let ip_len = udp_len.checked_add(20).expect("a datagram fits its length");
            let checksum = !fold(u64::from(self.ipv4_sum) + u64::from(ip_len));
            let headers: &mut [u8; LEN] = self.copy_headers(frame);
            headers[ETHERNET_LEN + 2..][..2].copy_from_slice(&ip_len.to_be_bytes());
            headers[ETHERNET_LEN + 10..][..2].copy_from_slice(&checksum.to_be_bytes());
            headers[LEN - 4..][..2].copy_from_slice(&udp_len.to_be_bytes());
            LEN + payload_len
        } else {
            const LEN: usize = ETHERNET_LEN + IPV6_LEN + UDP_LEN;
            let headers: &mut [u8; LEN] = self.copy_headers(frame);
            headers[ETHERNET_LEN + 4..][..2].copy_from_slice(&udp_len.to_be_bytes());
            headers[LEN - 4..][..2].copy_from_slice(&udp_len.to_be_bytes());
            LEN + payload_len
        }
    }

    #[inline]
    fn copy_headers<'a, const LEN: usize>(&self, frame: &'a mut [u8]) -> &'a mut [u8; LEN] {
        let headers = frame.first_chunk_mut().expect("a frame has room for its headers");
        *headers = *self.headers.first_chunk().expect("headers have at most 62 bytes");
        headers
    }

    /// Fills in the UDP checksum of the emitted frame: always for IPv6, and for IPv4 when the
    /// group's integrity is the UDP checksum. Bytes of `frame` behind the datagram do not count.
    ///
    /// # Panics
    /// If `frame` is shorter than what [`Encap::emit`] said.
    pub fn finish(&self, frame: &mut [u8]) {
        let start = self.header_len() - UDP_LEN;
        frame[start + 6..start + 8].fill(0);
        let udp_len = usize::from(u16::from_be_bytes([frame[start + 4], frame[start + 5]]));
        let datagram = &frame[start..start + udp_len];
        let seed = pseudo_sum(self.source.addr.ip(), self.target.addr.ip(), udp_len);
        let checksum = match !sum_words(datagram, seed) {
            0 => 0xffff,
            sum => sum,
        };
        frame[start + 6..start + 8].copy_from_slice(&checksum.to_be_bytes());
    }

    /// Rewrites the headers of a frame that `previous` (the same source, another target) emitted
    /// with `payload_len` bytes of payload, in `header`, the frame's first [`Encap::header_len`]
    /// bytes. A UDP checksum, if there is one, is updated (RFC 1624), not computed again, so the
    /// payload need not be there.
    ///
    /// # Panics
    /// If `header` is shorter than the headers.
    #[inline]
    pub fn readdress(&self, previous: &Self, header: &mut [u8], payload_len: usize) {
        let at = self.header_len() - UDP_LEN + 6;
        let carried = u16::from_be_bytes([header[at], header[at + 1]]);
        self.emit(header, payload_len);
        if carried != 0 {
            self.carry_checksum(previous, header, carried);
        }
    }

    /// Makes of the UDP checksum towards `previous` the one towards this target (RFC 1624).
    fn carry_checksum(&self, previous: &Self, header: &mut [u8], carried: u16) {
        let at = self.header_len() - UDP_LEN + 6;
        let words = |end: &Endpoint| {
            let port = end.addr.port();
            match end.addr.ip() {
                IpAddr::V4(address) => sum_words(&address.octets(), port),
                IpAddr::V6(address) => sum_words(&address.octets(), port),
            }
        };
        let sum = u64::from(!carried)
            + u64::from(!words(&previous.target))
            + u64::from(words(&self.target));
        let checksum = match !fold(sum) {
            0 => 0xffff,
            checksum => checksum,
        };
        header[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
    }

    /// Mends the UDP checksum in `header`, the frame's first [`Encap::header_len`] bytes, after the
    /// payload's first bytes changed from `old` to `new` (RFC 1624). One that is 0 stays it.
    ///
    /// # Panics
    /// If `header` is shorter than the headers, or the change is of an odd length.
    pub fn mend(&self, header: &mut [u8], old: &[u8], new: &[u8]) {
        assert!(old.len() == new.len() && old.len().is_multiple_of(2), "whole words change");
        let at = self.header_len() - UDP_LEN + 6;
        let carried = u16::from_be_bytes([header[at], header[at + 1]]);
        if carried == 0 {
            return;
        }
        let sum =
            u64::from(!carried) + u64::from(!sum_words(old, 0)) + u64::from(sum_words(new, 0));
        let checksum = match !fold(sum) {
            0 => 0xffff,
            checksum => checksum,
        };
        header[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
    }

    fn write_ethernet(&mut self, ethertype: u16) {
        self.headers[0..6].copy_from_slice(&self.target.mac.0);
        self.headers[6..12].copy_from_slice(&self.source.mac.0);
        self.headers[12..14].copy_from_slice(&ethertype.to_be_bytes());
    }

    fn write_ipv4(&mut self) {
        let (IpAddr::V4(source), IpAddr::V4(target)) =
            (self.source.addr.ip(), self.target.addr.ip())
        else {
            unreachable!("both ends are IPv4 by construction")
        };
        self.write_ethernet(ETHERTYPE_IPV4);
        let ip = &mut self.headers[ETHERNET_LEN..ETHERNET_LEN + IPV4_LEN];
        ip[0] = 0x45;
        ip[1] = ECT0;
        // Identification 0 and DF: an atomic datagram (RFC 6864).
        ip[4..8].copy_from_slice(&[0, 0, 0x40, 0]);
        ip[8] = HOP_LIMIT;
        ip[9] = PROTOCOL_UDP;
        ip[12..16].copy_from_slice(&source.octets());
        ip[16..20].copy_from_slice(&target.octets());
    }

    fn write_ipv6(&mut self) {
        let (IpAddr::V6(source), IpAddr::V6(target)) =
            (self.source.addr.ip(), self.target.addr.ip())
        else {
            unreachable!("both ends are IPv6 by construction")
        };
        self.write_ethernet(ETHERTYPE_IPV6);
        let ip = &mut self.headers[ETHERNET_LEN..ETHERNET_LEN + IPV6_LEN];
        ip[0..4].copy_from_slice(&[0x60, ECT0 << 4, 0, 0]);
        ip[6] = PROTOCOL_UDP;
        ip[7] = HOP_LIMIT;
        ip[8..24].copy_from_slice(&source.octets());
        ip[24..40].copy_from_slice(&target.octets());
    }
}
