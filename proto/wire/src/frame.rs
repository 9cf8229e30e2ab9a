//! Ethernet, IPv4, IPv6 and UDP around a Weft datagram: just what the data path needs.
//!
//! [`Datagram::find`] decides whether a frame is a whole UDP datagram, [`Udp::parse`] reads all of
//! it; everything else (ARP, NDP, ping) belongs to the host side of the port. [`Encap`] writes the
//! headers of a datagram to one destination, with the IPv4 checksum prepared in advance. Options,
//! fragments and VLAN tags are refused by name, not guessed at. A padded frame is fine: the IP
//! length decides.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::types::MacAddr;

mod datagram;
mod encap;
pub mod label;
pub mod multicast;
pub mod run;
#[cfg(test)]
mod tests;

pub use datagram::{Datagram, UdpAddr, ipv4_checksum_ok};
pub use encap::{Encap, Endpoint};

/// True for an address of one host: neither multicast, nor broadcast, nor unspecified.
#[must_use]
pub const fn is_host(ip: IpAddr) -> bool {
    let is_broadcast = matches!(ip, IpAddr::V4(ip) if ip.is_broadcast());
    !(ip.is_unspecified() || ip.is_multicast() || is_broadcast)
}

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

    /// True when the checksum field holds the sum of the pseudo-header alone: the frame was seen
    /// before the card that computes the rest.
    #[must_use]
    pub fn checksum_is_left(&self) -> bool {
        let udp_len = UDP_LEN + self.payload_len;
        self.checksum == pseudo_sum(self.source.ip(), self.target.ip(), udp_len)
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
