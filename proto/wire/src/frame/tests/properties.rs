//! Laws over generated frames, and etherparse as an oracle.

use proptest::prelude::*;

use super::*;

fn any_encap() -> impl Strategy<Value = Encap> {
    let ipv4 = (any::<[u8; 4]>(), any::<[u8; 4]>())
        .prop_map(|(source, target)| (IpAddr::from(source), IpAddr::from(target)));
    let ipv6 = (any::<[u8; 16]>(), any::<[u8; 16]>())
        .prop_map(|(source, target)| (IpAddr::from(source), IpAddr::from(target)));
    (prop_oneof![ipv4, ipv6], any::<(u16, u16)>(), any::<([u8; 6], [u8; 6])>()).prop_map(
        |((source, target), (source_port, target_port), (source_mac, target_mac))| {
            Encap::new(
                Endpoint { mac: MacAddr(source_mac), addr: SocketAddr::new(source, source_port) },
                Endpoint { mac: MacAddr(target_mac), addr: SocketAddr::new(target, target_port) },
            )
            .expect("one family")
        },
    )
}

proptest! {
    #[test]
    fn oracle_reads_what_encap_writes(
        encap in any_encap(),
        payload in proptest::collection::vec(any::<u8>(), 0..600),
        dirt in any::<u8>(),
    ) {
        let mut frame = vec![dirt; encap.header_len()];
        frame.extend_from_slice(&payload);
        prop_assert_eq!(encap.emit(&mut frame, payload.len()), frame.len());
        let bare = Udp::parse(&frame).expect("own frames parse");
        prop_assert_eq!(bare.checksum, 0);
        encap.finish(&mut frame);

        let sliced = SlicedPacket::from_ethernet(&frame).expect("the oracle parses it");
        let Some(TransportSlice::Udp(udp)) = sliced.transport else {
            return Err(TestCaseError::fail("the oracle sees no UDP"));
        };
        prop_assert_eq!(udp.payload(), &payload[..]);
        let ports = (encap.source().addr.port(), encap.target().addr.port());
        prop_assert_eq!((udp.source_port(), udp.destination_port()), ports);
        let checksum = match sliced.net {
            Some(NetSlice::Ipv4(ip)) => {
                let header = ip.header().to_header();
                prop_assert_eq!(header.header_checksum, header.calc_header_checksum());
                prop_assert_eq!((header.identification, header.dont_fragment), (0, true));
                prop_assert_eq!(header.ecn.value(), 0b10);
                prop_assert_eq!(IpAddr::from(header.source), encap.source().addr.ip());
                prop_assert_eq!(IpAddr::from(header.destination), encap.target().addr.ip());
                udp.to_header().calc_checksum_ipv4(&header, &payload)
            }
            Some(NetSlice::Ipv6(ip)) => {
                let header = ip.header().to_header();
                prop_assert_eq!(frame[15] & 0x30, 0x20, "ECT(0)");
                prop_assert_eq!(IpAddr::from(header.source), encap.source().addr.ip());
                prop_assert_eq!(IpAddr::from(header.destination), encap.target().addr.ip());
                udp.to_header().calc_checksum_ipv6(&header, &payload)
            }
            _ => return Err(TestCaseError::fail("the oracle sees no IP")),
        };
        prop_assert_eq!(Ok(udp.checksum()), checksum);

        let parsed = Udp::parse(&frame).expect("own frames parse");
        prop_assert!(parsed.checksum_ok(&frame));
        prop_assert_eq!(Udp { checksum: 0, ..parsed }, bare);
        prop_assert_eq!((parsed.source, parsed.target), (encap.source().addr, encap.target().addr));
        prop_assert_eq!(&frame[parsed.payload_range()], &payload[..]);
    }

    #[test]
    fn we_read_what_the_oracle_writes(
        ipv6 in any::<bool>(),
        ports in any::<(u16, u16)>(),
        payload in proptest::collection::vec(any::<u8>(), 0..600),
        padding in 0..64_usize,
    ) {
        let ends = PacketBuilder::ethernet2(SOURCE_MAC, TARGET_MAC);
        let mut frame = Vec::new();
        if ipv6 {
            ends.ipv6([0xfd; 16], [0xfe; 16], 3).udp(ports.0, ports.1)
        } else {
            ends.ipv4([10, 1, 2, 3], [10, 4, 5, 6], 3).udp(ports.0, ports.1)
        }
        .write(&mut frame, &payload)
        .expect("writing to memory succeeds");
        let header_len = frame.len() - payload.len();
        frame.resize(frame.len() + padding, 0xee);
        let udp = Udp::parse(&frame).expect("a whole datagram");
        prop_assert_eq!((udp.source.port(), udp.target.port()), ports);
        prop_assert_eq!(udp.payload_range(), header_len..header_len + payload.len());
        prop_assert!(udp.checksum_ok(&frame));
        for byte in 14 + 20..header_len + payload.len() {
            frame[byte] ^= 0x10;
            let spoilt = Udp::parse(&frame).is_ok_and(|udp| udp.checksum_ok(&frame));
            prop_assert!(!spoilt, "byte {} is not covered", byte);
            frame[byte] ^= 0x10;
        }
    }

    #[test]
    fn a_header_checksum_is_judged_as_by_the_rfc(
        // Carries come from bytes that are all ones.
        mut ip in proptest::array::uniform20(prop_oneof![Just(0xff), Just(0), any::<u8>()]),
        is_sealed in any::<bool>(),
    ) {
        // RFC 1071 by the letter: words of 16 bits, each carry added at once.
        let sum_of = |ip: &[u8; IPV4_LEN]| {
            ip.chunks(2).fold(0_u32, |sum, word| {
                let sum = sum + u32::from(u16::from_be_bytes([word[0], word[1]]));
                (sum & 0xffff) + (sum >> 16)
            })
        };
        if is_sealed {
            ip[10..12].fill(0);
            let checksum = u16::try_from(sum_of(&ip)).map(|sum| !sum).expect("16 bits are left");
            ip[10..12].copy_from_slice(&checksum.to_be_bytes());
            prop_assert!(ipv4_checksum_ok(&ip));
        }
        prop_assert_eq!(ipv4_checksum_ok(&ip), sum_of(&ip) == 0xffff);
        prop_assert!(!ipv4_checksum_ok(&[0; IPV4_LEN]));
    }

    #[test]
    fn arbitrary_bytes_never_panic(frame in proptest::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(udp) = Udp::parse(&frame) {
            let _ = udp.checksum_ok(&frame);
            prop_assert!(frame.get(udp.payload_range()).is_some());
        }
    }

    /// Arbitrary bytes rarely get past the Ethernet type, so spoil good frames too; what we accept
    /// as a datagram must then be one for the oracle.
    #[test]
    fn spoilt_frames_never_panic_and_agree_with_the_oracle(
        ipv6 in any::<bool>(),
        spoils in proptest::collection::vec((12..66_usize, any::<u8>()), 0..4),
        len in 0..80_usize,
        seal in any::<bool>(),
    ) {
        let mut frame = if ipv6 { IPV6_FRAME.to_vec() } else { IPV4_FRAME.to_vec() };
        for (byte, value) in spoils {
            if let Some(spoilt) = frame.get_mut(byte) {
                *spoilt = value;
            }
        }
        if seal && !ipv6 {
            frame[24..26].fill(0);
            let checksum = !sum_words(&frame[14..34], 0);
            frame[24..26].copy_from_slice(&checksum.to_be_bytes());
        }
        frame.resize(len, 0);
        let Ok(udp) = Udp::parse(&frame) else { return Ok(()) };
        let _ = udp.checksum_ok(&frame);
        let sliced = SlicedPacket::from_ethernet(&frame);
        let Ok(SlicedPacket { transport: Some(TransportSlice::Udp(oracle)), .. }) = sliced else {
            return Err(TestCaseError::fail("accepted what the oracle refuses"));
        };
        prop_assert_eq!(oracle.payload(), &frame[udp.payload_range()]);
        prop_assert_eq!(oracle.checksum(), udp.checksum);
    }

    /// A readdressed frame is what the other encapsulation would have written itself.
    #[test]
    fn readdressing_equals_emitting_anew(
        encap in any_encap(),
        port in any::<u16>(),
        last in any::<u8>(),
        payload in proptest::collection::vec(any::<u8>(), 0..100),
        finished in any::<bool>(),
    ) {
        let mut target = encap.target();
        target.mac = MacAddr([2, 0, 0, 0, 0, last]);
        target.addr = match target.addr.ip() {
            IpAddr::V4(_) => SocketAddr::new(Ipv4Addr::new(10, 0, 0, last).into(), port),
            IpAddr::V6(_) => {
                SocketAddr::new(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, last.into()).into(), port)
            }
        };
        let other = Encap::new(encap.source(), target).expect("one family");
        let write = |encap: &Encap| {
            let mut frame = vec![0; encap.header_len()];
            frame.extend_from_slice(&payload);
            encap.emit(&mut frame, payload.len());
            if finished {
                encap.finish(&mut frame);
            }
            frame
        };
        let mut frame = write(&encap);
        let header_len = encap.header_len();
        other.readdress(&encap, &mut frame[..header_len], payload.len());
        prop_assert_eq!(frame, write(&other));
    }
}

proptest! {
    #[test]
    fn prepared_headers_are_those_of_every_length(
        encap in any_encap(),
        prepared in 0_usize..9000,
        len in 0_usize..9000,
        last in any::<[u8; 6]>(),
    ) {
        let write = |encap: &Encap, len| {
            let mut headers = vec![0xaa; encap.header_len()];
            let frame_len = encap.emit(&mut headers, len);
            (frame_len, headers)
        };
        let plain = encap.with_target_mac(MacAddr(last));
        let ready = encap.with_payload_len(prepared).with_target_mac(MacAddr(last));
        prop_assert_eq!(write(&ready, prepared), write(&plain, prepared));
        prop_assert_eq!(write(&ready, len), write(&plain, len));
    }
}

proptest! {
    #[test]
    fn a_mended_checksum_is_the_one_that_finish_computes(
        payload in prop::collection::vec(any::<u8>(), 32..200),
        new in prop::collection::vec(any::<[u8; 2]>(), 0..16),
    ) {
        let encap = encap_ipv6();
        let new = new.concat();
        let mut frame = vec![0; encap.header_len()];
        frame.extend_from_slice(&payload);
        encap.emit(&mut frame, payload.len());
        encap.finish(&mut frame);
        let mut finished = frame.clone();
        finished[62..62 + new.len()].copy_from_slice(&new);
        encap.finish(&mut finished);
        encap.mend(&mut frame[..62], &payload[..new.len()], &new);
        prop_assert_eq!(&frame[..62], &finished[..62]);
    }
}

proptest! {
    #[test]
    fn a_run_has_the_headers_of_its_frames_with_other_lengths(
        encap in any_encap(),
        lens in (1..1400_usize, 1..60_000_usize),
        payload in proptest::collection::vec(any::<u8>(), 1..600),
    ) {
        let header_len = encap.header_len();
        let mut headers = vec![0xa5; header_len];
        encap.emit(&mut headers, lens.0);
        let mut expected = vec![0x5a; header_len];
        encap.emit(&mut expected, lens.1);
        prop_assert!(run::are_alike(&headers, &expected, header_len));
        run::set_payload_len(&mut headers, lens.1);
        prop_assert_eq!(&headers, &expected);
        prop_assert_eq!(run::header_len(&headers, header_len + lens.1), Some(header_len));
        prop_assert_eq!(run::header_len(&headers, header_len + lens.1 + 1), None);
        prop_assert_eq!(run::header_len(&headers[..header_len - 1], header_len + lens.1), None);

        // Whoever adds the payload to what was left has the checksum.
        let mut frame = headers.clone();
        run::set_payload_len(&mut frame, payload.len());
        frame.extend_from_slice(&payload);
        let mut finished = frame.clone();
        encap.finish(&mut finished);
        run::leave_checksum(&mut frame[..header_len]);
        let checksum = match !sum_words(&frame[header_len - UDP_LEN..], 0) {
            0 => 0xffff,
            checksum => checksum,
        };
        frame[header_len - 2..header_len].copy_from_slice(&checksum.to_be_bytes());
        prop_assert_eq!(frame, finished);
    }

    #[test]
    fn frames_that_differ_beside_their_lengths_are_not_alike(
        encap in any_encap(),
        at in any::<proptest::sample::Index>(),
        bit in 0..8_u8,
    ) {
        let header_len = encap.header_len();
        let mut headers = vec![0; header_len];
        encap.emit(&mut headers, 7);
        let mut other = headers.clone();
        let at = at.index(header_len);
        other[at] ^= 1 << bit;
        let follows = match header_len {
            42 => (16..18).contains(&at) || (24..26).contains(&at) || at >= 38,
            _ => (18..20).contains(&at) || at >= 58,
        };
        prop_assert_eq!(run::are_alike(&headers, &other, header_len), follows);
    }
}
