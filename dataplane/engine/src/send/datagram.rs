//! How a datagram leaves and what a datagram that came is checked for: CRC32C, UDP checksum, and
//! the headers around it. The same for every role.

use core::ops::Range;

use weft_wire::frame::{Encap, Udp};
use weft_wire::header::{
    CRC_AT, ElementType, Flags, HEADER_LEN, Header, Kind, Operation, Outcome, Packet,
};
use weft_wire::hello::{Hello, Integrity};
use weft_wire::{ChunkIndex, Cookie, GroupId, JobId, Members};

/// Seals the datagram that stands in `buffer` behind the place of its headers, and completes
/// those. Returns the frame's length.
pub(crate) fn dispatch_out(
    encap: &Encap,
    integrity: Integrity,
    buffer: &mut [u8],
    datagram_len: usize,
) -> usize {
    let start = encap.header_len();
    if integrity == Integrity::Crc32c {
        let datagram = &mut buffer[start..start + datagram_len];
        let computed = weft_kernel::crc32c_blank::<CRC_AT>(datagram);
        Packet::new_unchecked(datagram).store_crc(computed);
    }
    let len = encap.emit(buffer, datagram_len);
    if has_udp_checksum(encap, integrity) {
        encap.finish(&mut buffer[..len]);
    }
    len
}

/// Writes `header` before a payload that is in place, seals and wraps both. Returns the frame's
/// length.
pub(crate) fn write(
    encap: &Encap,
    integrity: Integrity,
    header: &Header,
    buffer: &mut [u8],
    payload_len: usize,
) -> usize {
    let start = encap.header_len();
    let datagram_len = HEADER_LEN + payload_len;
    header.emit(&mut Packet::new_unchecked(&mut buffer[start..start + datagram_len]));
    dispatch_out(encap, integrity, buffer, datagram_len)
}

/// Writes a handshake datagram with its bitmap of steps; `None` when the buffer is too short.
pub(crate) fn write_hello(
    encap: &Encap,
    header: &Header,
    body: &Hello,
    bitmap: &[u8],
    buffer: &mut [u8],
) -> Option<usize> {
    let start = encap.header_len() + HEADER_LEN;
    let body_len = body.body_len();
    body.emit(bitmap, buffer.get_mut(start..start + body_len)?);
    Some(write(encap, Integrity::Crc32c, header, buffer, body_len))
}

/// True when datagrams leave with a UDP checksum: IPv6 demands one.
#[inline]
pub(crate) fn has_udp_checksum(encap: &Encap, integrity: Integrity) -> bool {
    encap.target().addr.is_ipv6() || integrity == Integrity::Checksum16
}

/// True when the datagram in `buffer[range]` is as it was sent, as far as `integrity` can tell.
/// Where none is asked for, a CRC that is carried counts all the same.
#[inline(always)]
pub(crate) fn is_intact(integrity: Integrity, buffer: &[u8], range: Range<usize>) -> bool {
    if integrity == Integrity::Checksum16 {
        return Udp::parse(buffer).is_ok_and(|udp| udp.checksum_ok(buffer));
    }
    let datagram = &buffer[range];
    let packet = Packet::new_unchecked(datagram);
    match packet.crc() {
        0 => integrity == Integrity::None,
        _ => packet.has_crc(weft_kernel::crc32c_blank::<CRC_AT>(datagram)),
    }
}

/// The header of a datagram without elements.
#[must_use]
pub fn plain_header(kind: Kind, job: JobId, group: GroupId, members: Members) -> Header {
    Header {
        kind,
        flags: Flags::NONE,
        outcome: Outcome::None,
        job,
        cookie: Cookie::default(),
        group,
        chunk: ChunkIndex(0),
        element_type: ElementType::None,
        operation: Operation::None,
        exponent: 0,
        count: 0,
        members,
    }
}
