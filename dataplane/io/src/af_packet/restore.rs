//! Makes of what the kernel gives the frame that was on the wire, or would have been.

use weft_wire::MacAddr;
use weft_wire::frame::{ETHERNET_LEN, Encap, Endpoint, Udp};

use super::ring::Captured;
use crate::pool::PoolFrame;
use crate::port::Frame;

/// A VLAN tag that the kernel took off: its protocol, if known, and control information.
pub(super) type VlanTag = (Option<u16>, u16);

pub(super) const VLAN_TAG_LEN: usize = 4;
const ETHERTYPE_VLAN: u16 = 0x8100;
/// Where the Ethernet addresses end and a VLAN tag would be.
const ADDRESSES_LEN: usize = 12;

/// Copies a frame out of the ring. False when it does not fit or was cut.
pub(super) fn copy(captured: &Captured<'_>, frame: &mut PoolFrame, ipv4_checksum: bool) -> bool {
    let bytes = captured.bytes;
    if captured.cut || bytes.len() > frame.buffer_mut().len() {
        return false;
    }
    frame.buffer_mut()[..bytes.len()].copy_from_slice(bytes);
    let checksum = if captured.checksum_missing { Checksum::Missing } else { Checksum::Carried };
    frame.set_arrived_ns(captured.arrived_ns);
    finish(frame, bytes.len(), captured.vlan, checksum, ipv4_checksum)
}

/// What the UDP checksum field of a frame holds.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Checksum {
    /// What it had on the wire.
    Carried,
    /// The sender left it to hardware.
    Missing,
}

/// Makes a frame of the first `len` bytes of a buffer. False when that is none, or the tag has no
/// room.
pub(super) fn finish(
    frame: &mut PoolFrame,
    len: usize,
    vlan: Option<VlanTag>,
    checksum: Checksum,
    ipv4_checksum: bool,
) -> bool {
    let tag_len = if vlan.is_some() { VLAN_TAG_LEN } else { 0 };
    if len < ETHERNET_LEN || len + tag_len > frame.buffer_mut().len() {
        return false;
    }
    frame.set_len(len);
    if checksum == Checksum::Missing {
        complete_checksum(frame.as_mut(), ipv4_checksum);
    }
    if let Some((tpid, tci)) = vlan {
        frame.set_len(len + tag_len);
        let bytes = frame.as_mut();
        bytes.copy_within(ADDRESSES_LEN..len, ADDRESSES_LEN + tag_len);
        bytes[ADDRESSES_LEN..][..2].copy_from_slice(&tpid.unwrap_or(ETHERTYPE_VLAN).to_be_bytes());
        bytes[ADDRESSES_LEN + 2..][..2].copy_from_slice(&tci.to_be_bytes());
    }
    true
}

/// Writes the UDP checksum that a local sender left to hardware that was not there; without
/// `ipv4_checksum`, none over IPv4.
fn complete_checksum(frame: &mut [u8], ipv4_checksum: bool) {
    let Ok(udp) = Udp::parse(frame) else { return };
    if udp.source.is_ipv4() && !ipv4_checksum {
        frame[udp.payload_start - 2..udp.payload_start].fill(0);
        return;
    }
    let end = |addr| Endpoint { mac: MacAddr::default(), addr };
    if let Some(encap) = Encap::new(end(udp.source), end(udp.target)) {
        encap.finish(&mut frame[..udp.payload_range().end]);
    }
}
