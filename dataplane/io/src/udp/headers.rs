//! Decides what the headers of a received payload look like: those that its sender's
//! `weft_wire::frame::Encap` would have put on a wire, with the ECN mark that it arrived with.

use std::net::{IpAddr, SocketAddr};

use weft_wire::frame::label::set_traffic_class;
use weft_wire::frame::{ETHERNET_LEN, Encap, Endpoint, IPV4_LEN, IPV6_LEN, UDP_LEN};

use super::mmsg::Received;
use super::pseudo_mac;
use crate::pool::PoolFrame;
use crate::port::Frame;

/// Bytes in front of a payload: 42 or 62.
pub(super) const fn len(ip: IpAddr) -> usize {
    ETHERNET_LEN + UDP_LEN + if ip.is_ipv4() { IPV4_LEN } else { IPV6_LEN }
}

/// Writes the headers of a payload that lies at its place in `frame` already, and sets the
/// frame's length. `None` when the message is unusable: truncated, or without a sender.
pub(super) fn write(
    mut frame: PoolFrame,
    message: &Received,
    target: SocketAddr,
    ipv4_checksum: bool,
) -> Option<PoolFrame> {
    let end = |addr: SocketAddr| Endpoint { mac: pseudo_mac(addr.ip()), addr };
    let encap = message.source.and_then(|source| Encap::new(end(source), end(target)));
    let encap = encap.filter(|_| !message.truncated)?;
    let frame_len = encap.emit(frame.buffer_mut(), message.payload_len);
    frame.set_len(frame_len);
    frame.set_arrived_ns(message.arrived_ns);
    set_traffic_class(frame.as_mut(), message.traffic_class);
    if ipv4_checksum || target.is_ipv6() {
        encap.finish(frame.as_mut());
    }
    Some(frame)
}
