//! Frames as simulations and fuzzing make them.

use weft_kernel::crc32c;
use weft_wire::frame::Encap;
use weft_wire::header::{HEADER_LEN, Header, Packet};

/// A whole frame between two ends, with a right CRC.
#[must_use]
pub fn sealed(encap: &Encap, header: &Header, payload: &[u8]) -> Vec<u8> {
    let start = encap.header_len();
    let datagram_len = HEADER_LEN + payload.len();
    let mut frame = vec![0; start + datagram_len];
    let mut packet = Packet::new_unchecked(&mut frame[start..]);
    header.emit(&mut packet);
    packet.payload_mut().copy_from_slice(payload);
    packet.seal(crc32c);
    encap.emit(&mut frame, datagram_len);
    frame
}
