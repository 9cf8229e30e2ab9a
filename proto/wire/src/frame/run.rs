//! The headers of a run: datagrams with one payload length, the last perhaps shorter, that a kernel
//! takes and gives as one, and that are alike in all that does not follow from their lengths.
//!
//! Source: the kernel's generic segmentation of UDP (`UDP_SEGMENT`, `VIRTIO_NET_HDR_GSO_UDP_L4`):
//! the headers of the whole are those of its first datagram, with the lengths of all, and the UDP
//! checksum field holds the sum of the pseudo-header alone.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{
    ETHERNET_LEN, ETHERTYPE_IPV4, ETHERTYPE_IPV6, IPV4_LEN, IPV6_LEN, PROTOCOL_UDP, UDP_LEN,
    ipv4_checksum_ok, pseudo_sum, sum_words,
};

/// Bytes of the headers in front of a UDP payload over IPv4.
const IPV4_HEADERS: usize = ETHERNET_LEN + IPV4_LEN + UDP_LEN;
/// As [`IPV4_HEADERS`], over IPv6.
const IPV6_HEADERS: usize = ETHERNET_LEN + IPV6_LEN + UDP_LEN;

/// Bytes of the headers of the run that `frame` is or begins, of `frame_len` bytes in all: 42 or
/// 62. `None` when they are no such headers, or say another length.
#[must_use]
pub fn header_len(frame: &[u8], frame_len: usize) -> Option<usize> {
    let ethernet: &[u8; ETHERNET_LEN] = frame.first_chunk()?;
    let word = |at: usize| frame.get(at..at + 2).map(|word| u16::from_be_bytes([word[0], word[1]]));
    let ip_len = frame_len.checked_sub(ETHERNET_LEN)?;
    match u16::from_be_bytes([ethernet[12], ethernet[13]]) {
        ETHERTYPE_IPV4 => {
            let ip: &[u8; IPV4_LEN] = frame.get(ETHERNET_LEN..)?.first_chunk()?;
            let is_whole = u16::from_be_bytes([ip[6], ip[7]]) & 0x3fff == 0;
            let fits = ip[0] == 0x45
                && is_whole
                && ip[9] == PROTOCOL_UDP
                && ipv4_checksum_ok(ip)
                && usize::from(word(16)?) == ip_len
                && usize::from(word(IPV4_HEADERS - 4)?) + IPV4_LEN == ip_len;
            (fits && frame.len() >= IPV4_HEADERS).then_some(IPV4_HEADERS)
        }
        ETHERTYPE_IPV6 => {
            let ip: &[u8; IPV6_LEN] = frame.get(ETHERNET_LEN..)?.first_chunk()?;
            let fits = ip[0] >> 4 == 6
                && ip[6] == PROTOCOL_UDP
                && usize::from(word(18)?) + IPV6_LEN == ip_len
                && usize::from(word(IPV6_HEADERS - 4)?) + IPV6_LEN == ip_len;
            (fits && frame.len() >= IPV6_HEADERS).then_some(IPV6_HEADERS)
        }
        _ => None,
    }
}

/// True when two frames, with the same number of bytes of headers, differ in these only by what
/// follows from their payloads.
#[must_use]
pub fn are_alike(left: &[u8], right: &[u8], header_len: usize) -> bool {
    let (Some(left), Some(right)) = (left.get(..header_len), right.get(..header_len)) else {
        return false;
    };
    let same = |range: core::ops::Range<usize>| left.get(range.clone()) == right.get(range);
    match header_len {
        // Without total length, header checksum, and the UDP length and checksum.
        IPV4_HEADERS => same(0..16) && same(18..24) && same(26..IPV4_HEADERS - 4),
        IPV6_HEADERS => same(0..18) && same(20..IPV6_HEADERS - 4),
        _ => false,
    }
}

/// Makes `headers` those of a datagram with `payload_len` bytes of payload, without a UDP checksum.
///
/// # Panics
/// If these are not 42 or 62 bytes, or the length fields cannot say the datagram's.
pub fn set_payload_len(headers: &mut [u8], payload_len: usize) {
    let udp_len = u16::try_from(UDP_LEN + payload_len).expect("a datagram fits its length");
    let start = headers.len() - UDP_LEN;
    headers[start + 4..start + 6].copy_from_slice(&udp_len.to_be_bytes());
    headers[start + 6..].fill(0);
    if headers.len() == IPV6_HEADERS {
        headers[18..20].copy_from_slice(&udp_len.to_be_bytes());
        return;
    }
    assert_eq!(headers.len(), IPV4_HEADERS, "headers of UDP over IPv4 or IPv6");
    let ip_len = udp_len.checked_add(20).expect("a datagram fits its length");
    headers[16..18].copy_from_slice(&ip_len.to_be_bytes());
    headers[24..26].fill(0);
    let checksum = !sum_words(&headers[ETHERNET_LEN..ETHERNET_LEN + IPV4_LEN], 0);
    headers[24..26].copy_from_slice(&checksum.to_be_bytes());
}

/// Writes what the UDP checksum field holds while the checksum is left to whoever sends it on.
///
/// # Panics
/// If these are not 42 or 62 bytes.
pub fn leave_checksum(headers: &mut [u8]) {
    let start = headers.len() - UDP_LEN;
    let udp_len = usize::from(u16::from_be_bytes([headers[start + 4], headers[start + 5]]));
    let (source, target): (IpAddr, IpAddr) = if headers.len() == IPV6_HEADERS {
        let address = |at: usize| -> Ipv6Addr {
            headers[at..].first_chunk::<16>().map(|octets| Ipv6Addr::from(*octets)).expect("there")
        };
        (address(22).into(), address(38).into())
    } else {
        let address = |at: usize| -> Ipv4Addr {
            headers[at..].first_chunk::<4>().map(|octets| Ipv4Addr::from(*octets)).expect("there")
        };
        (address(26).into(), address(30).into())
    };
    let sum = pseudo_sum(source, target, udp_len);
    headers[start + 6..].copy_from_slice(&sum.to_be_bytes());
}
