//! Decides what the headers of a received payload look like: those that its sender's
//! `weft_wire::frame::Encap` would have put on a wire, with the ECN mark that it arrived with.

use std::net::{IpAddr, SocketAddr};

use weft_wire::frame::{ETHERNET_LEN, Encap, Endpoint, IPV4_LEN, IPV6_LEN, UDP_LEN};

use super::mmsg::Received;
use super::pseudo_mac;
use crate::pool::PoolFrame;
use crate::port::Frame;

/// Bytes in front of a payload: 42 or 62.
pub(super) const fn len(ip: IpAddr) -> usize {
    ETHERNET_LEN + UDP_LEN + if ip.is_ipv4() { IPV4_LEN } else { IPV6_LEN }
}

/// The headers of the datagrams of one message.
pub(super) struct Headers {
    encap: Encap,
    arrived_ns: u64,
    has_checksum: bool,
}

impl Headers {
    /// Of a message to `target`. `None` when it is unusable: truncated, or without a sender.
    pub(super) fn of(message: &Received, target: SocketAddr, ipv4_checksum: bool) -> Option<Self> {
        let end = |addr: SocketAddr| Endpoint { mac: pseudo_mac(addr.ip()), addr };
        let encap = message.source.and_then(|source| Encap::new(end(source), end(target)));
        let encap = encap.filter(|_| !message.truncated)?;
        let Received { traffic_class, arrived_ns, .. } = *message;
        let encap = encap.with_traffic_class(traffic_class);
        let has_checksum = ipv4_checksum || target.is_ipv6();
        Some(Self { encap, arrived_ns, has_checksum })
    }

    /// The same, for many datagrams of `payload_len` bytes.
    pub(super) fn prepared(self, payload_len: usize) -> Self {
        Self { encap: self.encap.with_payload_len(payload_len), ..self }
    }

    /// Writes them in front of a payload that lies at its place in `frame` already, and sets the
    /// frame's length.
    #[inline]
    pub(super) fn write(&self, mut frame: PoolFrame, payload_len: usize) -> PoolFrame {
        let frame_len = self.encap.emit(frame.buffer_mut(), payload_len);
        frame.set_len(frame_len);
        frame.set_arrived_ns(self.arrived_ns);
        if self.has_checksum {
            self.encap.finish(frame.as_mut());
        }
        frame
    }
}
