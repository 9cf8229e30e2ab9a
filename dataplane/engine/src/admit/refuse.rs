//! What a HELLO of a job or row that the box does not serve is answered (SPEC#handshake).
//!
//! REFUSED (UNKNOWN_GROUP), to the address that it came from, with no more bytes than came, so that
//! a wrong number in a configuration is an error in seconds. Nothing else of a sender that is in no
//! table is answered. Decides and writes; keeps nothing.

use weft_wire::GroupId;
use weft_wire::frame::{Datagram, Encap, Endpoint, Udp};
use weft_wire::header::{HEADER_LEN, Header, Kind};
use weft_wire::hello::{Hello, Integrity, Phase, Reason};

use crate::send::datagram::{is_intact, plain_header, write_hello};

/// Turns a HELLO into its refusal, sent from the lane that it names of a box of `shards` lanes at
/// `local`; returns the frame's length. `None` for anything else, and for a HELLO that is spoilt.
pub(crate) fn refuse_unknown(
    local: Endpoint,
    shards: u16,
    udp: &Datagram,
    header: &Header,
    buffer: &mut [u8],
) -> Option<usize> {
    let lane = u16::try_from(header.chunk.0).ok().filter(|lane| *lane < shards)?;
    let asked = hello_in(udp, header, buffer)?;
    if !is_intact(Integrity::Crc32c, buffer, udp.payload_range()) {
        return None;
    }
    let source = Udp::parse(&buffer[..udp.payload_range().end]).ok()?.source;
    let target = Endpoint { mac: udp.source_mac(buffer), addr: source };
    let mut from = local;
    from.addr.set_port(local.addr.port() + lane);
    let encap = Encap::new(from, target)?;
    let group = GroupId::new(header.group.row(), 0);
    let answer = Header {
        chunk: header.chunk,
        ..plain_header(Kind::Hello, header.job, group, header.members)
    };
    let mut body = Hello::new(Phase::Refused);
    body.reason = Reason::UnknownGroup;
    body.life = asked.life;
    write_hello(&encap, &answer, &body, &[], buffer)
}

/// The body of a handshake datagram of phase HELLO, the only frame that anybody may send.
pub(crate) fn hello_in(udp: &Datagram, header: &Header, buffer: &[u8]) -> Option<Hello> {
    if header.kind != Kind::Hello {
        return None;
    }
    let (hello, _) = Hello::parse(buffer[udp.payload_range()].get(HEADER_LEN..)?).ok()?;
    (hello.phase == Phase::Hello).then_some(hello)
}
