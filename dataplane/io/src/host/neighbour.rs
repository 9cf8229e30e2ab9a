//! Which Ethernet address a next hop has: the question as a frame, and what an answer says.
//!
//! Decides nothing about when to ask. An answer is an ARP reply or a neighbour advertisement; a
//! next hop that asks or announces itself says its address too. Source: RFC 826, RFC 4861.

use std::net::IpAddr;

use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{
    ArpOperation, ArpPacket, ArpRepr, EthernetAddress, EthernetFrame, EthernetProtocol,
    EthernetRepr, Icmpv6Packet, Icmpv6Repr, IpProtocol, Ipv4Address, Ipv6Address, Ipv6Packet,
    Ipv6Repr, NdiscRepr, RawHardwareAddress,
};
use weft_wire::MacAddr;

/// A host, and the next hop on its link whose Ethernet address it wants to know.
#[derive(Clone, Copy, Debug)]
pub struct Neighbour {
    mac: MacAddr,
    ip: IpAddr,
    next_hop: IpAddr,
}

impl Neighbour {
    /// The host `ip` at `mac`, which looks for `next_hop`. `None` unless both addresses are of one
    /// family.
    #[must_use]
    pub fn new(mac: MacAddr, ip: IpAddr, next_hop: IpAddr) -> Option<Self> {
        (ip.is_ipv4() == next_hop.is_ipv4()).then_some(Self { mac, ip, next_hop })
    }

    /// Whose address is looked for.
    #[must_use]
    pub fn next_hop(&self) -> IpAddr {
        self.next_hop
    }

    /// What asks, in words: `ARP`, or `neighbour discovery`.
    #[must_use]
    pub fn protocol(&self) -> &'static str {
        if self.ip.is_ipv4() { "ARP" } else { "neighbour discovery" }
    }

    /// Writes the question; returns its length, or `None` when the buffer is too small.
    pub fn write_question(&self, buffer: &mut [u8]) -> Option<usize> {
        match (self.ip, self.next_hop) {
            (IpAddr::V4(ip), IpAddr::V4(next_hop)) => self.write_arp(ip, next_hop, buffer),
            (IpAddr::V6(ip), IpAddr::V6(next_hop)) => self.write_solicit(ip, next_hop, buffer),
            _ => None,
        }
    }

    /// The next hop's Ethernet address, if this frame is its own word about it.
    #[must_use]
    pub fn read_answer(&self, frame: &[u8]) -> Option<MacAddr> {
        let frame = EthernetFrame::new_checked(frame).ok()?;
        match (frame.ethertype(), self.next_hop) {
            (EthernetProtocol::Arp, IpAddr::V4(next_hop)) => read_arp(frame.payload(), next_hop),
            (EthernetProtocol::Ipv6, IpAddr::V6(next_hop)) => read_ndisc(frame.payload(), next_hop),
            _ => None,
        }
        .filter(EthernetAddress::is_unicast)
        .map(|mac| MacAddr(mac.0))
    }

    fn write_arp(
        &self,
        ip: Ipv4Address,
        next_hop: Ipv4Address,
        buffer: &mut [u8],
    ) -> Option<usize> {
        let source = EthernetAddress(self.mac.0);
        let repr = ArpRepr::EthernetIpv4 {
            operation: ArpOperation::Request,
            source_hardware_addr: source,
            source_protocol_addr: ip,
            target_hardware_addr: EthernetAddress([0; 6]),
            target_protocol_addr: next_hop,
        };
        let len = EthernetFrame::<&[u8]>::buffer_len(repr.buffer_len());
        let mut frame = EthernetFrame::new_unchecked(buffer.get_mut(..len)?);
        let ethertype = EthernetProtocol::Arp;
        EthernetRepr { src_addr: source, dst_addr: EthernetAddress::BROADCAST, ethertype }
            .emit(&mut frame);
        repr.emit(&mut ArpPacket::new_unchecked(frame.payload_mut()));
        Some(len)
    }

    fn write_solicit(
        &self,
        ip: Ipv6Address,
        next_hop: Ipv6Address,
        buffer: &mut [u8],
    ) -> Option<usize> {
        let source = EthernetAddress(self.mac.0);
        let group = solicited_node(next_hop);
        let [.., a, b, c, d] = group.octets();
        let lladdr = Some(RawHardwareAddress::from(source));
        let solicit =
            Icmpv6Repr::Ndisc(NdiscRepr::NeighborSolicit { target_addr: next_hop, lladdr });
        let header = Ipv6Repr {
            src_addr: ip,
            dst_addr: group,
            next_header: IpProtocol::Icmpv6,
            payload_len: solicit.buffer_len(),
            hop_limit: NDISC_HOP_LIMIT,
        };
        let ip_len = header.buffer_len() + solicit.buffer_len();
        let len = EthernetFrame::<&[u8]>::buffer_len(ip_len);
        let mut frame = EthernetFrame::new_unchecked(buffer.get_mut(..len)?);
        let dst_addr = EthernetAddress([0x33, 0x33, a, b, c, d]);
        EthernetRepr { src_addr: source, dst_addr, ethertype: EthernetProtocol::Ipv6 }
            .emit(&mut frame);
        let mut packet = Ipv6Packet::new_unchecked(frame.payload_mut());
        header.emit(&mut packet);
        let mut body = Icmpv6Packet::new_unchecked(packet.payload_mut());
        solicit.emit(&ip, &group, &mut body, &ChecksumCapabilities::default());
        Some(len)
    }
}

fn read_arp(bytes: &[u8], next_hop: Ipv4Address) -> Option<EthernetAddress> {
    let said = ArpRepr::parse(&ArpPacket::new_checked(bytes).ok()?).ok()?;
    match said {
        ArpRepr::EthernetIpv4 { source_hardware_addr, source_protocol_addr, .. }
            if source_protocol_addr == next_hop =>
        {
            Some(source_hardware_addr)
        }
        _ => None,
    }
}

fn read_ndisc(bytes: &[u8], next_hop: Ipv6Address) -> Option<EthernetAddress> {
    let packet = Ipv6Packet::new_checked(bytes).ok()?;
    let header = Ipv6Repr::parse(&packet).ok()?;
    // A router between would have taken one off: what came from elsewhere is no neighbour's word.
    if header.next_header != IpProtocol::Icmpv6 || header.hop_limit != NDISC_HOP_LIMIT {
        return None;
    }
    let body = Icmpv6Packet::new_checked(packet.payload()).ok()?;
    let checks = ChecksumCapabilities::default();
    let said = Icmpv6Repr::parse(&header.src_addr, &header.dst_addr, &body, &checks).ok()?;
    let lladdr = match said {
        Icmpv6Repr::Ndisc(NdiscRepr::NeighborAdvert { target_addr, lladdr, .. })
            if target_addr == next_hop =>
        {
            lladdr?
        }
        Icmpv6Repr::Ndisc(NdiscRepr::NeighborSolicit { lladdr, .. })
            if header.src_addr == next_hop =>
        {
            lladdr?
        }
        _ => return None,
    };
    <[u8; 6]>::try_from(lladdr.as_bytes().get(..6)?).ok().map(EthernetAddress)
}

/// The multicast group of those whose addresses end like this one.
fn solicited_node(addr: Ipv6Address) -> Ipv6Address {
    let [.., a, b, c] = addr.octets();
    let (high, low) = (0xff00 | u16::from(a), u16::from_be_bytes([b, c]));
    Ipv6Address::new(0xff02, 0, 0, 0, 0, 1, high, low)
}

/// RFC 4861, section 7.1.
const NDISC_HOP_LIMIT: u8 = 255;

#[cfg(test)]
mod tests {
    use super::super::HostStack;
    use super::*;
    use weft_wire::Nanos;

    const OURS: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
    const THEIRS: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);

    fn neighbour(ip: &str, next_hop: &str) -> Neighbour {
        Neighbour::new(OURS, ip.parse().unwrap(), next_hop.parse().unwrap()).unwrap()
    }

    /// What a host at `answering` says to the question of `asker`.
    fn answer(asker: &Neighbour, answering: &str) -> Option<Vec<u8>> {
        let mut stack = HostStack::new(answering.parse().unwrap(), 24, THEIRS, 1500, 7);
        let mut question = [0; 128];
        let len = asker.write_question(&mut question).unwrap();
        stack.answer(Nanos(0), &question[..len]).map(<[u8]>::to_vec)
    }

    #[test]
    fn a_host_stack_answers_the_question_of_another_in_both_families() {
        for (ip, next_hop) in [("10.0.0.1", "10.0.0.2"), ("fd00::1", "fd00::2")] {
            let asker = neighbour(ip, next_hop);
            let said = answer(&asker, next_hop).expect("it is asked for");
            assert_eq!(asker.read_answer(&said), Some(THEIRS), "{next_hop}");
            for len in 0..said.len() - 1 {
                assert_eq!(asker.read_answer(&said[..len]), None, "cut to {len}");
            }
        }
    }

    #[test]
    fn nobody_speaks_for_another() {
        for (ip, next_hop, other) in [
            ("10.0.0.1", "10.0.0.2", "10.0.0.3"),
            // Ends alike, so that the question reaches it.
            ("fd00::1", "fd00::2", "fd00::1:0:0:2"),
        ] {
            assert_eq!(answer(&neighbour(ip, next_hop), other), None, "{other} was not asked");
            let asker = neighbour(ip, other);
            let said = answer(&asker, other).expect("it is asked for");
            assert_eq!(neighbour(ip, next_hop).read_answer(&said), None);
        }
        let ipv6 = "fd00::2".parse().unwrap();
        assert!(Neighbour::new(OURS, "10.0.0.1".parse().unwrap(), ipv6).is_none());
    }

    #[test]
    fn an_advertisement_from_behind_a_router_or_spoilt_says_nothing() {
        let asker = neighbour("fd00::1", "fd00::2");
        let said = answer(&asker, "fd00::2").unwrap();
        for (at, byte) in [(21, 254), (said.len() - 1, !said[said.len() - 1])] {
            let mut said = said.clone();
            said[at] = byte;
            assert_eq!(asker.read_answer(&said), None, "byte {at}");
        }
    }
}
