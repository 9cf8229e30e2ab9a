//! Where a UDP datagram lies in a frame: what the data path asks of every frame, in a few bytes.
//!
//! [`Datagram::find`] makes all checks; addresses are read only when asked for, and compared as
//! [`UdpAddr`], two words, instead of the enums of `core::net`.

use core::net::{IpAddr, Ipv6Addr, SocketAddr};

use super::{
    ECN_CE, ETHERNET_LEN, ETHERTYPE_IPV4, ETHERTYPE_IPV6, ETHERTYPE_QINQ, ETHERTYPE_VLAN,
    FrameError, IPV4_LEN, IPV6_LEN, NEXT_HEADER_FRAGMENT, PROTOCOL_UDP, UDP_LEN,
};
use crate::types::MacAddr;

/// A UDP datagram's place in the frame in which it was found.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Datagram {
    payload_start: u16,
    payload_len: u16,
    is_ipv6: bool,
    congestion: bool,
}

impl Datagram {
    /// Finds the datagram in an Ethernet frame.
    ///
    /// # Errors
    /// [`FrameError`] saying what the frame is instead.
    #[inline]
    pub fn find(frame: &[u8]) -> Result<Self, FrameError> {
        let ethernet: &[u8; ETHERNET_LEN] = frame.first_chunk().ok_or(FrameError::Truncated)?;
        match u16::from_be_bytes([ethernet[12], ethernet[13]]) {
            ETHERTYPE_IPV4 => Self::find_ipv4(frame),
            ETHERTYPE_IPV6 => Self::find_ipv6(frame),
            ETHERTYPE_VLAN | ETHERTYPE_QINQ => Err(FrameError::Vlan),
            _ => Err(FrameError::NotIp),
        }
    }

    #[inline]
    fn find_ipv4(frame: &[u8]) -> Result<Self, FrameError> {
        let ip: &[u8; IPV4_LEN] =
            frame[ETHERNET_LEN..].first_chunk().ok_or(FrameError::Truncated)?;
        if ip[0] != 0x45 {
            return Err(FrameError::IpHeader);
        }
        if !ipv4_checksum_ok(ip) {
            return Err(FrameError::IpChecksum);
        }
        let ip_len = usize::from(u16::from_be_bytes([ip[2], ip[3]]));
        if u16::from_be_bytes([ip[6], ip[7]]) & 0x3fff != 0 {
            return Err(FrameError::Fragment);
        }
        if ip[9] != PROTOCOL_UDP {
            return Err(FrameError::NotUdp);
        }
        let udp_len = ip_len.checked_sub(IPV4_LEN).ok_or(FrameError::Truncated)?;
        let congestion = ip[1] & 0b11 == ECN_CE;
        Self::find_udp(frame, ETHERNET_LEN + IPV4_LEN, udp_len, false, congestion)
    }

    fn find_ipv6(frame: &[u8]) -> Result<Self, FrameError> {
        let ip: &[u8; IPV6_LEN] =
            frame[ETHERNET_LEN..].first_chunk().ok_or(FrameError::Truncated)?;
        if ip[0] >> 4 != 6 {
            return Err(FrameError::IpHeader);
        }
        match ip[6] {
            PROTOCOL_UDP => {}
            NEXT_HEADER_FRAGMENT => return Err(FrameError::Fragment),
            _ => return Err(FrameError::NotUdp),
        }
        let udp_len = usize::from(u16::from_be_bytes([ip[4], ip[5]]));
        let congestion = (ip[1] >> 4) & 0b11 == ECN_CE;
        Self::find_udp(frame, ETHERNET_LEN + IPV6_LEN, udp_len, true, congestion)
    }

    #[inline]
    fn find_udp(
        frame: &[u8],
        start: usize,
        ip_payload_len: usize,
        is_ipv6: bool,
        congestion: bool,
    ) -> Result<Self, FrameError> {
        let packet = frame[start..].get(..ip_payload_len).ok_or(FrameError::Truncated)?;
        let udp: &[u8; UDP_LEN] = packet.first_chunk().ok_or(FrameError::Truncated)?;
        let udp_len = u16::from_be_bytes([udp[4], udp[5]]);
        if usize::from(udp_len) > packet.len() {
            return Err(FrameError::Truncated);
        }
        let payload_len = udp_len.checked_sub(UDP_LEN_U16).ok_or(FrameError::Truncated)?;
        let payload_start = if is_ipv6 { PAYLOAD_START_IPV6 } else { PAYLOAD_START_IPV4 };
        Ok(Self { payload_start, payload_len, is_ipv6, congestion })
    }

    /// Where the payload starts in the frame: 42 (IPv4) or 62 (IPv6).
    #[inline]
    #[must_use]
    pub fn payload_start(self) -> usize {
        usize::from(self.payload_start)
    }

    /// Bytes of payload.
    #[inline]
    #[must_use]
    pub fn payload_len(self) -> usize {
        usize::from(self.payload_len)
    }

    /// The payload's place in the frame.
    #[inline]
    #[must_use]
    pub fn payload_range(self) -> core::ops::Range<usize> {
        self.payload_start()..self.payload_start() + self.payload_len()
    }

    /// A router on the way marked congestion (ECN CE, RFC 3168).
    #[inline]
    #[must_use]
    pub fn congestion(self) -> bool {
        self.congestion
    }

    /// True for a datagram over IPv6.
    #[must_use]
    pub fn is_ipv6(self) -> bool {
        self.is_ipv6
    }

    /// The sender, read from the frame.
    #[inline]
    #[must_use]
    pub fn source(self, frame: &[u8]) -> UdpAddr {
        self.end::<0>(frame)
    }

    /// The addressee, read from the frame.
    #[inline]
    #[must_use]
    pub fn target(self, frame: &[u8]) -> UdpAddr {
        self.end::<1>(frame)
    }

    /// The sender's Ethernet address, read from the frame.
    #[must_use]
    pub fn source_mac(self, frame: &[u8]) -> MacAddr {
        frame
            .get(6..12)
            .and_then(|bytes| bytes.first_chunk())
            .map_or(MacAddr([0; 6]), |bytes| MacAddr(*bytes))
    }

    /// Source (0) or target (1): addresses and ports are neighbours in their headers. A frame that
    /// the datagram was not found in gives an address of nobody.
    #[inline]
    fn end<const END: usize>(self, frame: &[u8]) -> UdpAddr {
        if self.is_ipv6 {
            return self.end_ipv6::<END>(frame);
        }
        let Some(head) = frame.first_chunk::<42>() else { return UdpAddr::default() };
        let (ip, port) = (26 + 4 * END, 34 + 2 * END);
        let octets = [head[ip], head[ip + 1], head[ip + 2], head[ip + 3]];
        UdpAddr {
            ip: IPV4_MAPPED | u128::from(u32::from_be_bytes(octets)),
            port: u16::from_be_bytes([head[port], head[port + 1]]),
        }
    }

    fn end_ipv6<const END: usize>(self, frame: &[u8]) -> UdpAddr {
        let Some(head) = frame.first_chunk::<62>() else { return UdpAddr::default() };
        let (ip, port) = (22 + 16 * END, 54 + 2 * END);
        let mut octets = [0; 16];
        octets.copy_from_slice(&head[ip..ip + 16]);
        UdpAddr {
            ip: u128::from_be_bytes(octets),
            port: u16::from_be_bytes([head[port], head[port + 1]]),
        }
    }
}

/// An IP address and a UDP port, cheap to compare. IPv4 addresses are IPv4-mapped IPv6 addresses.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct UdpAddr {
    ip: u128,
    port: u16,
}

impl UdpAddr {
    /// The UDP port.
    #[inline]
    #[must_use]
    pub fn port(self) -> u16 {
        self.port
    }

    /// True when both are at the same IP address, whatever the ports.
    #[inline]
    #[must_use]
    pub fn is_same_host(self, other: Self) -> bool {
        self.ip == other.ip
    }

    /// True when it is no host's address.
    #[must_use]
    pub fn is_multicast(self) -> bool {
        Ipv6Addr::from_bits(self.ip).to_canonical().is_multicast()
    }
}

impl From<SocketAddr> for UdpAddr {
    fn from(addr: SocketAddr) -> Self {
        let ip = match addr.ip() {
            IpAddr::V4(ip) => IPV4_MAPPED | u128::from(u32::from(ip)),
            IpAddr::V6(ip) => u128::from(ip),
        };
        Self { ip, port: addr.port() }
    }
}

/// True when the checksum of an IPv4 header without options is right.
#[inline(always)]
#[must_use]
pub fn ipv4_checksum_ok(ip: &[u8; IPV4_LEN]) -> bool {
    // In any byte order, the sum of all words folds to 0xffff.
    let (words, _) = ip.as_chunks::<8>();
    let last = ip.last_chunk::<4>().map_or(0, |word| u64::from(u32::from_ne_bytes(*word)));
    let (sum, carry) = u64::from_ne_bytes(words[0]).overflowing_add(u64::from_ne_bytes(words[1]));
    let sum = (sum >> 32) + (sum & 0xffff_ffff) + last + u64::from(carry);
    let sum = (sum >> 16) + (sum & 0xffff);
    (sum >> 16) + (sum & 0xffff) == 0xffff
}

const IPV4_MAPPED: u128 = 0xffff << 32;
const UDP_LEN_U16: u16 = 8;
const PAYLOAD_START_IPV4: u16 = 42;
const PAYLOAD_START_IPV6: u16 = 62;
const _: () = assert!(ETHERNET_LEN + IPV4_LEN + UDP_LEN == PAYLOAD_START_IPV4 as usize);
const _: () = assert!(ETHERNET_LEN + IPV6_LEN + UDP_LEN == PAYLOAD_START_IPV6 as usize);
const _: () = assert!(UDP_LEN == UDP_LEN_U16 as usize);
