//! Frame to class, or to a drop reason: everything that can be decided without a table.

use weft_wire::frame::{Datagram, FrameError};
use weft_wire::header::{Header, HeaderError, Packet};

use crate::drops::DropReason;

/// What a frame is.
#[derive(Clone, Copy, Debug)]
pub enum Class {
    /// A Weft datagram: where it lies, and its header.
    Weft(Datagram, Header),
    /// For the host side of the port: ARP, ICMP and the like, or another UDP port.
    Host,
    /// Refused.
    Drop(DropReason),
}

/// Classifies a frame that came in on a box; `listens` says on which UDP ports it does.
#[expect(clippy::redundant_closure, reason = "the function itself is of one lifetime")]
#[inline]
#[must_use]
pub fn classify(frame: &[u8], listens: impl FnOnce(u16) -> bool) -> Class {
    classify_by(frame, listens, |packet| Header::parse_exact(packet))
}

/// As [`classify`], where a contribution may have padding.
#[expect(clippy::redundant_closure, reason = "the function itself is of one lifetime")]
#[inline]
#[must_use]
pub(crate) fn classify_padded(frame: &[u8], listens: impl FnOnce(u16) -> bool) -> Class {
    classify_by(frame, listens, |packet| Header::parse(packet))
}

#[inline]
fn classify_by(
    frame: &[u8],
    listens: impl FnOnce(u16) -> bool,
    parse: impl FnOnce(&Packet<&[u8]>) -> Result<Header, HeaderError>,
) -> Class {
    let udp = match Datagram::find(frame) {
        Ok(udp) => udp,
        Err(error) => return of_frame_error(error),
    };
    if !listens(udp.target(frame).port()) {
        return Class::Host;
    }
    match parse(&Packet::new_unchecked(&frame[udp.payload_range()])) {
        Ok(header) => Class::Weft(udp, header),
        Err(HeaderError::Length) => Class::Drop(DropReason::Length),
        Err(HeaderError::Version) => Class::Drop(DropReason::Version),
        Err(HeaderError::Kind) => Class::Drop(DropReason::Kind),
        Err(HeaderError::Exponent) => Class::Drop(DropReason::Exponent),
    }
}

const fn of_frame_error(error: FrameError) -> Class {
    match error {
        FrameError::Truncated => Class::Drop(DropReason::Length),
        FrameError::Vlan => Class::Drop(DropReason::Vlan),
        FrameError::Fragment => Class::Drop(DropReason::Fragment),
        FrameError::IpHeader => Class::Drop(DropReason::IpHeader),
        FrameError::IpChecksum => Class::Drop(DropReason::IpChecksum),
        // The host side sees these; what it does not answer, it counts.
        FrameError::NotIp | FrameError::NotUdp => Class::Host,
    }
}
