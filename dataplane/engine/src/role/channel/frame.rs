//! Frames of a channel on their way out, the same for both ends.

use weft_wire::frame::Encap;
use weft_wire::header::{HEADER_LEN, Header, Packet};
use weft_wire::hello::{Hello, Integrity};

use crate::send::datagram::dispatch_out;

/// Writes `header` before a payload that is in place, seals and wraps both.
pub(super) fn write(
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

/// Writes a handshake datagram; `None` when the buffer is too short for it.
pub(super) fn write_hello(
    encap: &Encap,
    header: &Header,
    body: &Hello,
    buffer: &mut [u8],
) -> Option<usize> {
    let start = encap.header_len() + HEADER_LEN;
    let body_len = body.body_len();
    body.emit(&[], buffer.get_mut(start..start + body_len)?);
    Some(write(encap, Integrity::Crc32c, header, buffer, body_len))
}
