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

/// The headers of the datagrams of one message.
pub(super) struct Headers {
    encap: Encap,
    traffic_class: u8,
    arrived_ns: u64,
    has_checksum: bool,
    /// Those of a datagram of this length, as they are written.
    ready: Option<(usize, [u8; LEN_MAX])>,
}

impl Headers {
    /// Of a message to `target`. `None` when it is unusable: truncated, or without a sender.
    pub(super) fn of(message: &Received, target: SocketAddr, ipv4_checksum: bool) -> Option<Self> {
        let end = |addr: SocketAddr| Endpoint { mac: pseudo_mac(addr.ip()), addr };
        let encap = message.source.and_then(|source| Encap::new(end(source), end(target)));
        let encap = encap.filter(|_| !message.truncated)?;
        let Received { traffic_class, arrived_ns, .. } = *message;
        let has_checksum = ipv4_checksum || target.is_ipv6();
        Some(Self { encap, traffic_class, arrived_ns, has_checksum, ready: None })
    }

    /// The same, for many datagrams of `payload_len` bytes.
    pub(super) fn prepared(self, payload_len: usize) -> Self {
        let mut headers = [0; LEN_MAX];
        self.encap.emit(&mut headers, payload_len);
        set_traffic_class(&mut headers, self.traffic_class);
        Self { ready: Some((payload_len, headers)), ..self }
    }

    /// Writes them in front of a payload that lies at its place in `frame` already, and sets the
    /// frame's length.
    pub(super) fn write(&self, mut frame: PoolFrame, payload_len: usize) -> PoolFrame {
        match &self.ready {
            Some((ready_len, headers)) if *ready_len == payload_len => {
                copy_headers(headers, frame.buffer_mut(), self.encap.header_len());
                frame.set_len(self.encap.header_len() + payload_len);
            }
            _ => {
                let frame_len = self.encap.emit(frame.buffer_mut(), payload_len);
                frame.set_len(frame_len);
                set_traffic_class(frame.as_mut(), self.traffic_class);
            }
        }
        frame.set_arrived_ns(self.arrived_ns);
        if self.has_checksum {
            self.encap.finish(frame.as_mut());
        }
        frame
    }
}

/// Copies the first `len` bytes; those of IPv4 in registers.
fn copy_headers(headers: &[u8; LEN_MAX], frame: &mut [u8], len: usize) {
    let ipv4: Option<(&mut [u8; IPV4_START], _)> = frame.split_first_chunk_mut();
    let (ipv4, more) = ipv4.expect("a frame has room for its headers");
    ipv4.copy_from_slice(&headers[..IPV4_START]);
    more[..len - IPV4_START].copy_from_slice(&headers[IPV4_START..len]);
}

const IPV4_START: usize = ETHERNET_LEN + IPV4_LEN + UDP_LEN;
const LEN_MAX: usize = ETHERNET_LEN + IPV6_LEN + UDP_LEN;
