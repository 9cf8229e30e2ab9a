use std::vec;
use std::vec::Vec;

use etherparse::{
    IpFragOffset, IpHeaders, IpNumber, Ipv4Extensions, Ipv4Header, Ipv4Options, Ipv6Extensions,
    Ipv6FragmentHeader, Ipv6Header, Ipv6RawExtHeader, NetSlice, PacketBuilder, SlicedPacket,
    TransportSlice, VlanId,
};

use super::*;

mod properties;

const SOURCE_MAC: [u8; 6] = [2, 0, 0, 0, 0, 0x0a];
const TARGET_MAC: [u8; 6] = [2, 0, 0, 0, 0, 0x0b];

/// 10.0.0.10:22341 to 10.0.0.11:22342, payload "weft".
const IPV4_FRAME: [u8; 46] = [
    0x02, 0x00, 0x00, 0x00, 0x00, 0x0b, // target
    0x02, 0x00, 0x00, 0x00, 0x00, 0x0a, // source
    0x08, 0x00, // IPv4
    0x45, 0x02, 0x00, 0x20, // version, ECT(0), 32 bytes
    0x00, 0x00, 0x40, 0x00, // identification 0, DF
    0x40, 0x11, 0x26, 0xb7, // hop limit, UDP, checksum
    0x0a, 0x00, 0x00, 0x0a, // source
    0x0a, 0x00, 0x00, 0x0b, // target
    0x57, 0x45, 0x57, 0x46, 0x00, 0x0c, 0x00, 0x00, // UDP without checksum
    b'w', b'e', b'f', b't',
];

/// fd00::a to fd00::b, same ports and payload, with checksum.
const IPV6_FRAME: [u8; 66] = [
    0x02, 0x00, 0x00, 0x00, 0x00, 0x0b, // target
    0x02, 0x00, 0x00, 0x00, 0x00, 0x0a, // source
    0x86, 0xdd, // IPv6
    0x60, 0x20, 0x00, 0x00, // version, ECT(0)
    0x00, 0x0c, 0x11, 0x40, // 12 bytes, UDP, hop limit
    0xfd, 0x00, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x0a, // source
    0xfd, 0x00, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x0b, // target
    0x57, 0x45, 0x57, 0x46, 0x00, 0x0c, 0x79, 0x5a, // UDP
    b'w', b'e', b'f', b't',
];

fn endpoint(mac: [u8; 6], addr: &str) -> Endpoint {
    Endpoint { mac: MacAddr(mac), addr: addr.parse().expect("a literal address") }
}

fn encap_ipv4() -> Encap {
    let source = endpoint(SOURCE_MAC, "10.0.0.10:22341");
    Encap::new(source, endpoint(TARGET_MAC, "10.0.0.11:22342")).expect("one family")
}

fn encap_ipv6() -> Encap {
    let source = endpoint(SOURCE_MAC, "[fd00::a]:22341");
    Encap::new(source, endpoint(TARGET_MAC, "[fd00::b]:22342")).expect("one family")
}

/// An IPv4 header between the usual ends, for UDP with `payload_len` bytes.
fn ipv4_header(payload_len: u16) -> Ipv4Header {
    Ipv4Header::new(payload_len + 8, 64, IpNumber::UDP, [10, 0, 0, 10], [10, 0, 0, 11])
        .expect("the length fits")
}

fn ipv6_header() -> Ipv6Header {
    Ipv6Header {
        traffic_class: Default::default(),
        flow_label: Default::default(),
        payload_length: 0,
        next_header: IpNumber::UDP,
        hop_limit: 64,
        source: [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 10],
        destination: [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 11],
    }
}

/// Writes a UDP frame behind the given IP headers with the oracle.
fn oracle_frame(ip: IpHeaders, payload: &[u8]) -> Vec<u8> {
    let builder = PacketBuilder::ethernet2(SOURCE_MAC, TARGET_MAC).ip(ip).udp(22341, 22342);
    let mut frame = Vec::new();
    builder.write(&mut frame, payload).expect("writing to memory succeeds");
    frame
}

fn oracle_ipv4(header: Ipv4Header, payload: &[u8]) -> Vec<u8> {
    oracle_frame(IpHeaders::Ipv4(header, Ipv4Extensions::default()), payload)
}

fn oracle_ipv6(extensions: Ipv6Extensions, payload: &[u8]) -> Vec<u8> {
    oracle_frame(IpHeaders::Ipv6(ipv6_header(), extensions), payload)
}

#[test]
fn deconstructs_ipv4() {
    let udp = Udp::parse(&IPV4_FRAME).unwrap();
    assert_eq!(udp.source_mac, MacAddr(SOURCE_MAC));
    assert_eq!(udp.source, "10.0.0.10:22341".parse().unwrap());
    assert_eq!(udp.target, "10.0.0.11:22342".parse().unwrap());
    assert_eq!(udp.payload_range(), 42..46);
    assert_eq!(udp.checksum, 0);
    assert!(!udp.checksum_ok(&IPV4_FRAME), "no checksum is not a right checksum");
    assert!(!udp.congestion);
}

#[test]
fn deconstructs_ipv6() {
    let udp = Udp::parse(&IPV6_FRAME).unwrap();
    assert_eq!(udp.source, "[fd00::a]:22341".parse().unwrap());
    assert_eq!(udp.target, "[fd00::b]:22342".parse().unwrap());
    assert_eq!(udp.payload_range(), 62..66);
    assert_eq!(udp.checksum, 0x795a);
    assert!(udp.checksum_ok(&IPV6_FRAME));
    assert!(!udp.congestion);
}

#[test]
fn constructs_ipv4_into_a_dirty_buffer() {
    let mut frame = [0xa5; 46];
    frame[42..].copy_from_slice(b"weft");
    assert_eq!(encap_ipv4().emit(&mut frame, 4), 46);
    assert_eq!(frame, IPV4_FRAME);
}

#[test]
fn constructs_ipv6_into_a_dirty_buffer() {
    let mut frame = [0xa5; 66];
    frame[62..].copy_from_slice(b"weft");
    assert_eq!(encap_ipv6().emit(&mut frame, 4), 66);
    encap_ipv6().finish(&mut frame);
    assert_eq!(frame, IPV6_FRAME);
}

#[test]
fn finish_covers_the_datagram_and_not_the_buffer_behind_it() {
    let mut buffer = [0xa5; 128];
    buffer[62..66].copy_from_slice(b"weft");
    let len = encap_ipv6().emit(&mut buffer, 4);
    encap_ipv6().finish(&mut buffer);
    assert_eq!(buffer[..len], IPV6_FRAME);
}

#[test]
fn sends_a_computed_checksum_of_zero_as_all_ones() {
    // The payload word is the complement of everything else's sum, so the sum is 0xffff.
    let encap = encap_ipv6();
    let mut frame = [0; 64];
    encap.emit(&mut frame, 2);
    encap.finish(&mut frame);
    let missing = [frame[60], frame[61]];
    frame[62..64].copy_from_slice(&missing);
    encap.finish(&mut frame);
    assert_eq!(frame[60..62], [0xff, 0xff]);
    assert!(Udp::parse(&frame).unwrap().checksum_ok(&frame));
    let sliced = SlicedPacket::from_ethernet(&frame).unwrap();
    let (Some(NetSlice::Ipv6(ip)), Some(TransportSlice::Udp(udp))) = (sliced.net, sliced.transport)
    else {
        panic!("the oracle sees no UDP over IPv6")
    };
    let sum = udp.to_header().calc_checksum_ipv6(&ip.header().to_header(), udp.payload());
    assert_eq!(sum, Ok(0xffff));
}

#[test]
fn refuses_two_families() {
    let ipv4 = endpoint(SOURCE_MAC, "10.0.0.10:1");
    let ipv6 = endpoint(TARGET_MAC, "[fd00::b]:1");
    assert_eq!(Encap::new(ipv4, ipv6), None);
    assert_eq!(Encap::new(ipv6, ipv4), None);
}

#[test]
fn changes_only_the_target_mac() {
    let mut frame = IPV4_FRAME;
    let router = MacAddr([2, 0, 0, 0, 0, 0xfe]);
    let encap = encap_ipv4().with_target_mac(router);
    encap.emit(&mut frame, 4);
    assert_eq!(frame[..6], router.0);
    assert_eq!(frame[6..], IPV4_FRAME[6..]);
    assert_eq!((encap.target().mac, encap.source()), (router, encap_ipv4().source()));
}

#[test]
#[should_panic(expected = "fits its length")]
fn refuses_to_write_an_ipv4_datagram_of_more_than_65535_bytes() {
    let mut frame = vec![0; 70_000];
    encap_ipv4().emit(&mut frame, 65_535 - UDP_LEN - IPV4_LEN + 1);
}

#[test]
fn writes_the_longest_ipv4_datagram() {
    let mut frame = vec![0; 70_000];
    let payload_len = 65_535 - UDP_LEN - IPV4_LEN;
    let len = encap_ipv4().emit(&mut frame, payload_len);
    assert_eq!(Udp::parse(&frame[..len]).unwrap().payload_len, payload_len);
}

#[test]
fn every_truncation_is_refused() {
    for frame in [&IPV4_FRAME[..], &IPV6_FRAME[..]] {
        for len in 0..frame.len() {
            assert_eq!(Udp::parse(&frame[..len]), Err(FrameError::Truncated), "{len} bytes");
        }
    }
}

#[test]
fn padding_after_the_datagram_is_ignored() {
    for frame in [&IPV4_FRAME[..], &IPV6_FRAME[..]] {
        let whole = Udp::parse(frame).unwrap();
        let mut padded = frame.to_vec();
        padded.resize(128, 0x5a);
        assert_eq!(Udp::parse(&padded), Ok(whole));
        assert_eq!(whole.checksum_ok(&padded), whole.checksum != 0);
    }
}

#[test]
fn impossible_lengths_are_refused() {
    let ip_len = |len: u16| {
        let mut header = ipv4_header(4);
        header.total_len = len;
        header.header_checksum = header.calc_header_checksum();
        let mut frame = IPV4_FRAME;
        frame[14..34].copy_from_slice(&header.to_bytes());
        frame[15] = 0;
        frame
    };
    assert!(Udp::parse(&ip_len(32)).is_ok());
    // Less than its own header, less than the UDP header, less than the UDP length, more than
    // the frame.
    for len in [0, 19, 20, 27, 31, 33, 0xffff] {
        assert_eq!(Udp::parse(&ip_len(len)), Err(FrameError::Truncated), "IP length {len}");
    }
    for (frame, udp) in [(&IPV4_FRAME[..], 34), (&IPV6_FRAME[..], 54)] {
        for len in [0, 7, 13, 0xffff_u16] {
            let mut frame = frame.to_vec();
            frame[udp + 4..udp + 6].copy_from_slice(&len.to_be_bytes());
            assert_eq!(Udp::parse(&frame), Err(FrameError::Truncated), "UDP length {len}");
        }
    }
    for len in [0, 7, 11, 13, 0xffff_u16] {
        let mut frame = IPV6_FRAME;
        frame[18..20].copy_from_slice(&len.to_be_bytes());
        assert_eq!(Udp::parse(&frame), Err(FrameError::Truncated), "IPv6 length {len}");
    }
}

#[test]
fn a_udp_datagram_may_end_before_the_ip_packet() {
    let mut frame = IPV6_FRAME.to_vec();
    frame.extend_from_slice(b"surplus");
    frame[19] += 7;
    assert_eq!(Udp::parse(&frame).unwrap().payload_range(), 62..66);
}

#[test]
fn every_corrupted_ipv4_header_byte_is_refused() {
    for byte in 14..34 {
        for bit in 0..8 {
            let mut frame = IPV4_FRAME;
            frame[byte] ^= 1 << bit;
            assert!(Udp::parse(&frame).is_err(), "byte {byte} bit {bit}");
        }
    }
    let mut frame = IPV4_FRAME;
    frame[22] ^= 1;
    assert_eq!(Udp::parse(&frame), Err(FrameError::IpChecksum));
}

#[test]
fn vlan_tags_are_refused() {
    let mut single = Vec::new();
    PacketBuilder::ethernet2(SOURCE_MAC, TARGET_MAC)
        .single_vlan(VlanId::try_new(7).unwrap())
        .ipv4([10, 0, 0, 10], [10, 0, 0, 11], 64)
        .udp(1, 2)
        .write(&mut single, b"weft")
        .unwrap();
    let mut double = Vec::new();
    PacketBuilder::ethernet2(SOURCE_MAC, TARGET_MAC)
        .double_vlan(VlanId::try_new(7).unwrap(), VlanId::try_new(8).unwrap())
        .ipv4([10, 0, 0, 10], [10, 0, 0, 11], 64)
        .udp(1, 2)
        .write(&mut double, b"weft")
        .unwrap();
    assert_eq!(single[12..14], [0x81, 0x00]);
    assert_eq!(double[12..14], [0x88, 0xa8]);
    assert_eq!(Udp::parse(&single), Err(FrameError::Vlan));
    assert_eq!(Udp::parse(&double), Err(FrameError::Vlan));
}

#[test]
fn ipv4_fragments_are_refused() {
    for (more, offset) in [(true, 0), (true, 185), (false, 185), (false, 1), (false, 8191)] {
        let mut header = ipv4_header(4);
        header.dont_fragment = false;
        header.more_fragments = more;
        header.fragment_offset = IpFragOffset::try_new(offset).unwrap();
        let frame = oracle_ipv4(header, b"weft");
        assert_eq!(Udp::parse(&frame), Err(FrameError::Fragment), "{more} {offset}");
    }
    let mut header = ipv4_header(4);
    header.dont_fragment = false;
    assert!(Udp::parse(&oracle_ipv4(header, b"weft")).is_ok(), "DF is not required");
}

#[test]
fn ipv6_extension_headers_are_refused() {
    let fragment = |more, offset| Ipv6Extensions {
        fragment: Some(Ipv6FragmentHeader::new(
            IpNumber::UDP,
            IpFragOffset::try_new(offset).unwrap(),
            more,
            7,
        )),
        ..Default::default()
    };
    // The oracle will not write a transport header into a later fragment; the first one will do,
    // and an "atomic" fragment (RFC 6946) is refused alike.
    for extensions in [fragment(true, 0), fragment(false, 0)] {
        assert_eq!(Udp::parse(&oracle_ipv6(extensions, b"weft")), Err(FrameError::Fragment));
    }
    let raw = || Some(Ipv6RawExtHeader::new_raw(IpNumber::UDP, &[0; 6]).unwrap());
    let hop_by_hop = Ipv6Extensions { hop_by_hop_options: raw(), ..Default::default() };
    let destination = Ipv6Extensions { destination_options: raw(), ..Default::default() };
    for extensions in [hop_by_hop, destination] {
        assert_eq!(Udp::parse(&oracle_ipv6(extensions, b"weft")), Err(FrameError::NotUdp));
    }
}

#[test]
fn ipv4_options_are_refused() {
    for words in 1..=10 {
        let mut header = ipv4_header(4);
        header.options = Ipv4Options::try_from(&[1; 40][..4 * words]).unwrap();
        let frame = oracle_ipv4(header, b"weft");
        assert_eq!(Udp::parse(&frame), Err(FrameError::IpHeader), "{words} words");
    }
}

#[test]
fn wrong_ip_versions_are_refused() {
    for (frame, version) in [(&IPV4_FRAME[..], 4), (&IPV6_FRAME[..], 6)] {
        for other in (0..16).filter(|other| *other != version) {
            let mut frame = frame.to_vec();
            frame[14] = (frame[14] & 0x0f) | (other << 4);
            assert_eq!(Udp::parse(&frame), Err(FrameError::IpHeader), "version {other}");
        }
    }
}

#[test]
fn what_is_not_udp_is_left_to_the_host() {
    let mut arp = [0; 60];
    arp[12..14].copy_from_slice(&[0x08, 0x06]);
    assert_eq!(Udp::parse(&arp), Err(FrameError::NotIp));

    let ends = || PacketBuilder::ethernet2(SOURCE_MAC, TARGET_MAC);
    let mut ping = Vec::new();
    let builder = ends().ipv4([10, 0, 0, 10], [10, 0, 0, 11], 64).icmpv4_echo_request(1, 2);
    builder.write(&mut ping, b"weft").unwrap();
    assert_eq!(Udp::parse(&ping), Err(FrameError::NotUdp));

    let mut tcp = Vec::new();
    let builder = ends().ipv6([0xfd; 16], [0xfe; 16], 64).tcp(1, 2, 3, 4);
    builder.write(&mut tcp, b"weft").unwrap();
    assert_eq!(Udp::parse(&tcp), Err(FrameError::NotUdp));
}

#[test]
fn congestion_marks_are_seen() {
    for codepoint in 0..4 {
        let mut header = ipv4_header(4);
        header.ecn = etherparse::IpEcn::try_new(codepoint).unwrap();
        let frame = oracle_ipv4(header, b"weft");
        assert_eq!(Udp::parse(&frame).unwrap().congestion, codepoint == 3, "ECN {codepoint}");

        let mut frame = IPV6_FRAME;
        frame[15] = codepoint << 4;
        assert_eq!(Udp::parse(&frame).unwrap().congestion, codepoint == 3, "ECN {codepoint}");
    }
}

#[test]
fn errors_say_what_the_frame_is() {
    use std::string::ToString;
    assert_eq!(FrameError::Vlan.to_string(), "VLAN-tagged frame");
    assert_eq!(FrameError::Truncated.to_string(), "frame shorter than its headers say");
    assert_eq!(FrameError::IpHeader.to_string(), "IPv4 options or wrong IP version");
}

#[test]
fn headers_with_a_traffic_class_are_those_of_a_frame_that_was_given_it() {
    for encap in [encap_ipv4(), encap_ipv6()] {
        for class in 0..=255 {
            let mut expected = [0; 100];
            let len = encap.emit(&mut expected, 4);
            label::set_traffic_class(&mut expected[..len], class);
            let with = encap.with_traffic_class(class);
            let orders = [
                with,
                with.with_payload_len(4),
                encap.with_payload_len(4).with_traffic_class(class),
            ];
            for (order, encap) in orders.into_iter().enumerate() {
                let mut frame = [0; 100];
                assert_eq!(encap.emit(&mut frame, 4), len);
                assert_eq!(frame, expected, "class {class}, order {order}");
                // A length that was not prepared.
                encap.emit(&mut frame, 5);
                let ip = frame[ETHERNET_LEN..].first_chunk().expect("there are headers");
                assert!(encap.target().addr.is_ipv6() || ipv4_checksum_ok(ip));
            }
        }
    }
}
