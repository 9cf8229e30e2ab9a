//! Ethernet, IPv4, IPv6 and UDP around a Weft datagram: just what the data path needs.
//!
//! [`Datagram::find`] decides whether a frame is a whole UDP datagram, [`Udp::parse`] reads all of it; everything else (ARP, NDP,
//! ping) belongs to the host side of the port. [`Encap`] writes the headers of a datagram to one
//! destination, with the IPv4 checksum prepared in advance. Options, fragments and VLAN tags are
//! refused by name, not guessed at. A padded frame is fine: the IP length decides.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::types::MacAddr;

mod datagram;
#[cfg(test)]
mod tests;

pub use datagram::{Datagram, UdpAddr, ipv4_checksum_ok};

/// Length of an Ethernet header in bytes.
pub const ETHERNET_LEN: usize = 14;
/// Length of an IPv4 header without options.
pub const IPV4_LEN: usize = 20;
/// Length of an IPv6 header.
pub const IPV6_LEN: usize = 40;
/// Length of a UDP header.
pub const UDP_LEN: usize = 8;

const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_IPV6: u16 = 0x86dd;
const ETHERTYPE_VLAN: u16 = 0x8100;
const ETHERTYPE_QINQ: u16 = 0x88a8;
const PROTOCOL_UDP: u8 = 17;
const NEXT_HEADER_FRAGMENT: u8 = 44;
/// RFC 3168: ECN-capable transport, codepoint 0.
const ECT0: u8 = 0b10;
const ECN_CE: u8 = 0b11;
const HOP_LIMIT: u8 = 64;
const HEADERS_LEN_MAX: usize = ETHERNET_LEN + IPV6_LEN + UDP_LEN;

/// Why a frame is not a whole UDP datagram for the data path.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum FrameError {
    /// Ends before its headers do, or before its own lengths say.
    Truncated,
    /// Carries an 802.1Q or 802.1ad tag.
    Vlan,
    /// Not IPv4 or IPv6 (ARP among them): for the host side.
    NotIp,
    /// An IP fragment.
    Fragment,
    /// IPv4 options or a wrong version nibble.
    IpHeader,
    /// The IPv4 header checksum is wrong.
    IpChecksum,
    /// IP, but not UDP (ICMP among them): for the host side.
    NotUdp,
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Truncated => "frame shorter than its headers say",
            Self::Vlan => "VLAN-tagged frame",
            Self::NotIp => "neither IPv4 nor IPv6",
            Self::Fragment => "IP fragment",
            Self::IpHeader => "IPv4 options or wrong IP version",
            Self::IpChecksum => "IPv4 header checksum is wrong",
            Self::NotUdp => "not UDP",
        })
    }
}

impl core::error::Error for FrameError {}

/// A UDP datagram found in a frame.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Udp {
    /// Sender's Ethernet address.
    pub source_mac: MacAddr,
    /// Sender.
    pub source: SocketAddr,
    /// Addressee.
    pub target: SocketAddr,
    /// Where the payload starts in the frame: 42 (IPv4) or 62 (IPv6).
    pub payload_start: usize,
    /// Bytes of payload.
    pub payload_len: usize,
    /// The UDP checksum as carried; 0 means none (IPv4 only).
    pub checksum: u16,
    /// A router on the way marked congestion (ECN CE, RFC 3168).
    pub congestion: bool,
}

impl Udp {
    /// Finds the datagram in an Ethernet frame.
    ///
    /// # Errors
    /// [`FrameError`] saying what the frame is instead.
    pub fn parse(frame: &[u8]) -> Result<Self, FrameError> {
        let datagram = Datagram::find(frame)?;
        let start = datagram.payload_start() - UDP_LEN;
        let port = |at: usize| u16::from_be_bytes([frame[start + at], frame[start + at + 1]]);
        let (source, target) = if datagram.is_ipv6() {
            let address = |at: usize| {
                let mut octets = [0; 16];
                octets.copy_from_slice(&frame[ETHERNET_LEN + at..ETHERNET_LEN + at + 16]);
                IpAddr::V6(Ipv6Addr::from(octets))
            };
            (address(8), address(24))
        } else {
            let address = |at: usize| {
                let mut octets = [0; 4];
                octets.copy_from_slice(&frame[ETHERNET_LEN + at..ETHERNET_LEN + at + 4]);
                IpAddr::V4(Ipv4Addr::from(octets))
            };
            (address(12), address(16))
        };
        Ok(Self {
            source_mac: datagram.source_mac(frame),
            source: SocketAddr::new(source, port(0)),
            target: SocketAddr::new(target, port(2)),
            payload_start: datagram.payload_start(),
            payload_len: datagram.payload_len(),
            checksum: port(6),
            congestion: datagram.congestion(),
        })
    }

    /// The payload's place in the frame.
    #[must_use]
    pub fn payload_range(&self) -> core::ops::Range<usize> {
        self.payload_start..self.payload_start + self.payload_len
    }

    /// True when the UDP checksum is carried and right.
    #[must_use]
    pub fn checksum_ok(&self, frame: &[u8]) -> bool {
        let datagram = &frame[self.payload_start - UDP_LEN..self.payload_range().end];
        self.checksum != 0
            && sum_words(datagram, pseudo_sum(self.source.ip(), self.target.ip(), datagram.len()))
                == 0xffff
    }
}

/// One end of a path: where frames go, or where they come from.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
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
    /// The headers of an empty datagram, checksums zero; 42 or 62 bytes of it.
    headers: [u8; HEADERS_LEN_MAX],
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
        let mut encap = Self { source, target, headers: [0; HEADERS_LEN_MAX], ipv4_sum: 0 };
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

    /// Bytes of the headers: 42 or 62. The payload starts there.
    #[inline]
    #[must_use]
    pub fn header_len(&self) -> usize {
        let ip_len = if self.target.addr.is_ipv4() { IPV4_LEN } else { IPV6_LEN };
        ETHERNET_LEN + ip_len + UDP_LEN
    }

    /// Writes the headers of a datagram with `payload_len` bytes of payload over the start of
    /// `frame`, and returns the frame's length. The UDP checksum is left 0.
    ///
    /// # Panics
    /// If `frame` is shorter than the headers, or the IP length field cannot say the datagram's.
    #[inline]
    pub fn emit(&self, frame: &mut [u8], payload_len: usize) -> usize {
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
    pub fn readdress(&self, previous: &Self, header: &mut [u8], payload_len: usize) {
        let at = self.header_len() - UDP_LEN + 6;
        let carried = u16::from_be_bytes([header[at], header[at + 1]]);
        self.emit(header, payload_len);
        if carried == 0 {
            return;
        }
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

/// Ones-complement sum of a UDP pseudo-header (RFC 768, RFC 8200).
fn pseudo_sum(source: IpAddr, target: IpAddr, udp_len: usize) -> u16 {
    let mut sum = fold(udp_len as u64 + u64::from(PROTOCOL_UDP));
    for address in [source, target] {
        sum = match address {
            IpAddr::V4(address) => sum_words(&address.octets(), sum),
            IpAddr::V6(address) => sum_words(&address.octets(), sum),
        };
    }
    sum
}

/// Ones-complement sum of big-endian 16-bit words, starting from `seed`.
fn sum_words(bytes: &[u8], seed: u16) -> u16 {
    let mut sum = u64::from(seed);
    let mut quads = bytes.chunks_exact(4);
    for quad in &mut quads {
        sum += u64::from(u32::from_be_bytes([quad[0], quad[1], quad[2], quad[3]]));
    }
    let mut tail = [0u8; 4];
    tail[..quads.remainder().len()].copy_from_slice(quads.remainder());
    sum += u64::from(u32::from_be_bytes(tail));
    fold(sum)
}

/// Folds the carries of a ones-complement sum back in.
#[expect(clippy::cast_possible_truncation, reason = "four folds leave at most 16 bits")]
const fn fold(sum: u64) -> u16 {
    let sum = (sum & 0xffff_ffff) + (sum >> 32);
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = (sum & 0xffff) + (sum >> 16);
    ((sum & 0xffff) + (sum >> 16)) as u16
}
