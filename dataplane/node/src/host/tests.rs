//! The host side on a memory port, with frames built and read by etherparse.

use std::net::Ipv6Addr;

use etherparse::{
    ArpHardwareId, ArpOperation, ArpPacket, EtherType, IcmpEchoHeader, Icmpv4Type, Icmpv6Type,
    LinkHeader, NetHeaders, PacketBuilder, PacketHeaders, TransportHeader,
};
use weft_io::memory::{MemoryPort, link};
use weft_io::pool::PoolFrame;

use super::*;

const BOX_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
const PEER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
const BOX: [u8; 4] = [10, 0, 0, 1];
const PEER: [u8; 4] = [10, 0, 0, 2];

fn host(addr: &str) -> Host {
    Host::answering(addr.parse().expect("an address"), MacAddr(BOX_MAC), 1500, 7)
}

fn port() -> MemoryPort {
    link(16, 1500, ["box", "peer"]).0
}

/// What the host side answers to `bytes`.
fn ask(host: &mut Host, port: &mut MemoryPort, now: Nanos, bytes: &[u8]) -> Option<Vec<u8>> {
    let mut frame: PoolFrame = port.alloc().expect("the pool has a frame");
    frame.set_len(bytes.len());
    frame.as_mut().copy_from_slice(bytes);
    host.handle(now, port, frame).map(|frame| frame.as_ref().to_vec())
}

fn arp_request(target: [u8; 4]) -> Vec<u8> {
    arp_frame(ArpOperation::REQUEST, [0xff; 6], [0; 6], target)
}

fn arp_frame(
    operation: ArpOperation,
    destination: [u8; 6],
    target_mac: [u8; 6],
    target: [u8; 4],
) -> Vec<u8> {
    let arp = ArpPacket::new(
        ArpHardwareId::ETHERNET,
        EtherType::IPV4,
        operation,
        &PEER_MAC,
        &PEER,
        &target_mac,
        &target,
    )
    .expect("lengths agree");
    let builder = PacketBuilder::ethernet2(PEER_MAC, destination).arp(arp);
    let mut frame = Vec::new();
    builder.write(&mut frame).expect("memory takes it");
    frame
}

fn ping(payload: &[u8]) -> Vec<u8> {
    let builder = PacketBuilder::ethernet2(PEER_MAC, BOX_MAC).ipv4(PEER, BOX, 64);
    let mut frame = Vec::new();
    builder.icmpv4_echo_request(1, 2).write(&mut frame, payload).expect("memory takes it");
    frame
}

#[test]
fn arp_is_answered_for_the_boxs_address_alone() {
    let (mut host, mut port) = (host("10.0.0.1/24"), port());
    let answer = ask(&mut host, &mut port, Nanos(0), &arp_request(BOX)).expect("an answer");
    let headers = PacketHeaders::from_ethernet_slice(&answer).expect("it is whole");
    let Some(NetHeaders::Arp(arp)) = headers.net else { panic!("no ARP: {headers:?}") };
    assert_eq!(arp.operation, ArpOperation::REPLY);
    assert_eq!((arp.sender_hw_addr(), arp.sender_protocol_addr()), (&BOX_MAC[..], &BOX[..]));
    assert_eq!((arp.target_hw_addr(), arp.target_protocol_addr()), (&PEER_MAC[..], &PEER[..]));
    let Some(LinkHeader::Ethernet2(ethernet)) = headers.link else { panic!("no Ethernet") };
    assert_eq!((ethernet.source, ethernet.destination), (BOX_MAC, PEER_MAC));

    assert_eq!(ask(&mut host, &mut port, Nanos(0), &arp_request([10, 0, 0, 3])), None);
    assert_eq!(host.stats(), HostStats { frames: 2, answered: 1, over_rate: 0 });
}

#[test]
fn ping_is_answered_with_its_payload() {
    let (mut host, mut port) = (host("10.0.0.1/24"), port());
    ask(&mut host, &mut port, Nanos(0), &arp_request(BOX)).expect("now it knows the peer");
    let payload: Vec<u8> = (0..=255).cycle().take(1400).collect();
    let answer = ask(&mut host, &mut port, Nanos(0), &ping(&payload)).expect("an answer");
    let headers = PacketHeaders::from_ethernet_slice(&answer).expect("it is whole");
    let Some(NetHeaders::Ipv4(ip, _)) = headers.net else { panic!("no IPv4") };
    assert_eq!((ip.source, ip.destination), (BOX, PEER));
    let Some(TransportHeader::Icmpv4(icmp)) = headers.transport else { panic!("no ICMP") };
    assert_eq!(icmp.icmp_type, Icmpv4Type::EchoReply(IcmpEchoHeader { id: 1, seq: 2 }));
    assert_eq!(headers.payload.slice(), payload);
    assert_eq!(icmp.checksum, icmp.icmp_type.calc_checksum(&payload));
}

#[test]
fn a_neighbour_solicitation_is_answered() {
    let (box_ip, peer_ip): (Ipv6Addr, Ipv6Addr) =
        ("fd00::1".parse().expect("v6"), "fd00::2".parse().expect("v6"));
    let (mut host, mut port) = (host("fd00::1/64"), port());
    // RFC 4861, section 4.3: type 135, the target, and the source's link-layer address.
    let mut body = vec![0; 4];
    body.extend(box_ip.octets());
    body.extend([1, 1]);
    body.extend(PEER_MAC);
    let solicited = "ff02::1:ff00:1".parse::<Ipv6Addr>().expect("v6");
    let builder = PacketBuilder::ethernet2(PEER_MAC, [0x33, 0x33, 0xff, 0, 0, 1])
        .ipv6(peer_ip.octets(), solicited.octets(), 255)
        .icmpv6_raw(135, 0, [0; 4]);
    let mut frame = Vec::new();
    builder.write(&mut frame, &body[4..]).expect("memory takes it");
    let answer = ask(&mut host, &mut port, Nanos(0), &frame).expect("an answer");
    let headers = PacketHeaders::from_ethernet_slice(&answer).expect("it is whole");
    let Some(NetHeaders::Ipv6(ip, _)) = headers.net else { panic!("no IPv6") };
    assert_eq!((ip.source, ip.destination), (box_ip.octets(), peer_ip.octets()));
    let Some(TransportHeader::Icmpv6(icmp)) = headers.transport else { panic!("no ICMPv6") };
    assert!(matches!(icmp.icmp_type, Icmpv6Type::NeighborAdvertisement(_)), "{icmp:?}");
    let target = headers.payload.slice();
    assert_eq!(target[..16], box_ip.octets());
    assert_eq!(target[18..24], BOX_MAC);
}

#[test]
fn a_flood_is_bounded_and_the_next_second_is_served() {
    let (mut host, mut port) = (host("10.0.0.1/24"), port());
    let request = arp_request(BOX);
    let answered =
        (0..3000).filter(|_| ask(&mut host, &mut port, Nanos(0), &request).is_some()).count();
    assert_eq!(answered as u64, FRAMES_BURST_MAX);
    assert_eq!(host.stats().over_rate, 3000 - FRAMES_BURST_MAX);
    assert!(ask(&mut host, &mut port, Nanos::from_millis(1000), &request).is_some());
}

#[test]
fn damaged_frames_are_taken_in_silence() {
    let (mut host, mut port) = (host("10.0.0.1/24"), port());
    ask(&mut host, &mut port, Nanos(0), &arp_request(BOX)).expect("now it knows the peer");
    let whole = ping(&[7; 100]);
    for len in 0..whole.len() {
        assert_eq!(ask(&mut host, &mut port, Nanos(0), &whole[..len]), None, "cut at {len}");
    }
    let mut wrong = whole;
    wrong[40] ^= 1;
    assert_eq!(ask(&mut host, &mut port, Nanos(0), &wrong), None, "bad checksum");
}

#[test]
fn behind_a_kernel_it_only_counts() {
    let (mut host, mut port) = (Host::silent(), port());
    assert_eq!(ask(&mut host, &mut port, Nanos(0), &arp_request(BOX)), None);
    assert_eq!(host.stats(), HostStats { frames: 1, answered: 0, over_rate: 0 });
}

/// A node that restarted is known to its peers, but does not know them.
#[test]
fn the_first_ping_of_a_stranger_is_answered_once_its_address_is_known() {
    let (mut host, mut port) = (host("10.0.0.1/24"), port());
    let question = ask(&mut host, &mut port, Nanos(0), &ping(&[9; 32])).expect("a question");
    let headers = PacketHeaders::from_ethernet_slice(&question).expect("it is whole");
    let Some(NetHeaders::Arp(arp)) = headers.net else { panic!("no ARP: {headers:?}") };
    assert_eq!(arp.operation, ArpOperation::REQUEST);
    assert_eq!(arp.target_protocol_addr(), &PEER);

    let known = arp_frame(ArpOperation::REPLY, BOX_MAC, BOX_MAC, BOX);
    let answer = ask(&mut host, &mut port, Nanos(0), &known).expect("the echo");
    let headers = PacketHeaders::from_ethernet_slice(&answer).expect("it is whole");
    let Some(TransportHeader::Icmpv4(icmp)) = headers.transport else { panic!("no ICMP") };
    assert!(matches!(icmp.icmp_type, Icmpv4Type::EchoReply(_)));
    assert_eq!(headers.payload.slice(), [9; 32]);
    assert_eq!(ask(&mut host, &mut port, Nanos(0), &known), None, "answered once");
}
