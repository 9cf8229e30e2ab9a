//! The frame that a line sends: a good one, but for the fields that the line names.

use std::net::SocketAddr;

use weft_wire::frame::{ETHERNET_LEN, Encap, Endpoint, IPV4_LEN, UDP_LEN};
use weft_wire::header::{ElementType, Flags, HEADER_LEN, Header, Operation, Packet};
use weft_wire::hello::{Hello, Integrity};
use weft_wire::{ChunkIndex, Cookie, GroupId, JobId, Members};

use super::parse::box_endpoint;
use super::script::{Checksum, Fields, LeaseDecl, LeaseKind};

/// Element fields of a lease's chunks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Elements {
    pub(super) element_type: ElementType,
    pub(super) operation: Operation,
    pub(super) exponent: i8,
    pub(super) count: u16,
}

impl Elements {
    pub(super) const NONE: Self =
        Self { element_type: ElementType::None, operation: Operation::None, exponent: 0, count: 0 };

    pub(super) fn of(lease: &LeaseDecl) -> Self {
        let (element_type, operation, exponent) = match &lease.kind {
            LeaseKind::Row(row) => (row.element_type, row.operation, row.exponent),
            LeaseKind::Push(push) => (push.element_type, Operation::Sum, push.exponent),
        };
        let exponent = exponent.unwrap_or(0);
        Self { element_type, operation, exponent, count: lease.elements() }
    }

    pub(super) fn with(self, fields: &Fields) -> Self {
        Self {
            element_type: fields.element_type.unwrap_or(self.element_type),
            operation: fields.operation.unwrap_or(self.operation),
            exponent: fields.exponent.unwrap_or(self.exponent),
            count: fields.count.unwrap_or(self.count),
        }
    }
}

/// The header of a frame with these element fields.
pub(super) fn header_of(
    kind: weft_wire::header::Kind,
    job: JobId,
    group: GroupId,
    (cookie, members): (Cookie, Members),
    elements: Elements,
    fields: &Fields,
) -> Header {
    Header {
        kind,
        flags: fields.flags,
        outcome: weft_wire::header::Outcome::None,
        job,
        cookie,
        group,
        chunk: ChunkIndex(fields.chunk.unwrap_or(0)),
        element_type: elements.element_type,
        operation: elements.operation,
        exponent: elements.exponent,
        count: elements.count,
        members,
    }
}

/// A chunk of so many elements; where there are fewer values the last goes on.
pub(super) fn payload(values: &[i32], count: u16) -> Vec<u8> {
    let last = values.last().copied().unwrap_or(0);
    let all = values.iter().copied().chain(std::iter::repeat(last)).take(usize::from(count));
    all.flat_map(i32::to_be_bytes).collect()
}

/// A handshake datagram's payload.
pub(super) fn hello_payload(body: &Hello, bitmap: &[u8]) -> Vec<u8> {
    let mut payload = vec![0; body.body_len()];
    body.emit(bitmap, &mut payload);
    payload
}

/// A datagram from `source` to the box, as good as `fields` lets it be.
pub(super) fn build(
    source: Endpoint,
    integrity: Integrity,
    header: &Header,
    payload: &[u8],
    fields: &Fields,
) -> Vec<u8> {
    let mut target = box_endpoint();
    if let Some(port) = fields.udp_port {
        target.addr.set_port(port);
    }
    let encap = Encap::new(source, target).expect("both ends are IPv4");
    let mut payload = payload.to_vec();
    if let Some(len) = fields.cut {
        payload.resize(len.saturating_sub(HEADER_LEN), 0);
    }
    let datagram_len = fields.cut.unwrap_or(HEADER_LEN + payload.len());
    let start = encap.header_len();
    let mut frame = vec![0; start + HEADER_LEN + payload.len()];
    let mut packet = Packet::new_unchecked(&mut frame[start..]);
    header.emit(&mut packet);
    packet.payload_mut().copy_from_slice(&payload);
    let bytes = &mut frame[start..];
    if let Some(version) = fields.version {
        bytes[0] = version << 4 | bytes[0] & 0x0f;
    }
    if let Some(kind) = fields.kind {
        bytes[0] = bytes[0] & 0xf0 | kind & 0x0f;
    }
    if let Some(outcome) = fields.outcome {
        bytes[1] = bytes[1] & 0xf8 | outcome;
    }
    if let Some(type_op) = fields.type_op {
        bytes[16] = type_op;
    }
    let has_crc = integrity == Integrity::Crc32c;
    if has_crc && fields.checksum != Checksum::Missing {
        Packet::new_unchecked(&mut frame[start..]).seal(weft_kernel::crc32c);
    }
    if has_crc && fields.checksum == Checksum::Wrong {
        frame[start + 20] ^= 1;
    }
    frame.truncate(start + datagram_len);
    encap.emit(&mut frame, datagram_len);
    if fields.congestion {
        frame[ETHERNET_LEN + 1] |= 3;
        mend_ip(&mut frame);
    }
    if integrity == Integrity::Checksum16 && fields.checksum != Checksum::Missing {
        encap.finish(&mut frame);
        if fields.checksum == Checksum::Wrong {
            // A checksum that is neither right nor 0, which would be none.
            let at = ETHERNET_LEN + IPV4_LEN + UDP_LEN - 1;
            frame[at] ^= if frame[at] == 1 && frame[at - 1] == 0 { 2 } else { 1 };
        }
    }
    if fields.checksum == Checksum::Zero {
        // What the checksum has, the low half of the first element takes over.
        let (udp, element) = (ETHERNET_LEN + IPV4_LEN, start + HEADER_LEN + 2);
        let sum = ones_sum(&[&frame[udp + 6..udp + 8], &frame[element..element + 2]]);
        frame[element..element + 2].copy_from_slice(&sum.to_be_bytes());
        encap.finish(&mut frame);
    }
    if fields.checksum == Checksum::WrongIp {
        frame[ETHERNET_LEN + 10] ^= 1;
    }
    if let Some(len) = fields.truncate {
        frame.truncate(len);
    }
    frame
}

fn mend_ip(frame: &mut [u8]) {
    let header = &mut frame[ETHERNET_LEN..ETHERNET_LEN + IPV4_LEN];
    header[10..12].fill(0);
    let sum = !ones_sum(&[header]);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
}

/// The ones-complement sum of all 16-bit words.
pub(super) fn ones_sum(parts: &[&[u8]]) -> u16 {
    let words = parts.iter().flat_map(|part| part.chunks_exact(2));
    let mut sum: u32 = words.map(|word| u32::from(u16::from_be_bytes([word[0], word[1]]))).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    u16::try_from(sum).expect("folded")
}

/// The endpoint with another address.
pub(super) fn moved(endpoint: Endpoint, addr: SocketAddr) -> Endpoint {
    Endpoint { addr, ..endpoint }
}

/// Flags as a script spells them.
pub(super) fn flag_names(flags: Flags) -> String {
    let named = Flags::ALL.iter().filter(|(flag, _)| flags.contains(*flag));
    let names: Vec<&str> = named.map(|(_, name)| *name).collect();
    if names.is_empty() { "none".to_owned() } else { names.join(",") }
}

/// Members as a script spells them.
pub(super) fn member_names(members: Members) -> String {
    let ranks: Vec<String> = members.iter().map(|rank| rank.number().to_string()).collect();
    if ranks.is_empty() { "none".to_owned() } else { ranks.join(",") }
}
