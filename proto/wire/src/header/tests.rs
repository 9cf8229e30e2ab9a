use std::string::ToString;
use std::vec::Vec;
use std::{format, vec};

use proptest::prelude::*;

use super::*;
use crate::hello::{BODY_LEN, Phase};

/// A contribution of rank 2 of job 0x0102: two i32 elements.
const CONTRIB: [u8; 40] = [
    0x11, 0x88, // version 1, CONTRIB; RETRANSMIT, CONGESTION; NONE
    0x01, 0x02, // job
    0xe1, 0xaa, 0xbb, 0xcc, // cookie
    0x00, 0x07, 0x00, 0x02, // group 7, generation 2
    0x00, 0x01, 0x00, 0x03, // chunk
    0x11, 0xf8, 0x00, 0x02, // i32, SUM, exponent -8, two elements
    0x00, 0x00, 0x00, 0x00, // no CRC
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x04, // rank 2
    0x00, 0x00, 0x00, 0x01, 0xff, 0xff, 0xff, 0xff, // 1, -1
];

/// CRC32C (Castagnoli, RFC 3720) bit by bit: slow and hard to get wrong.
fn crc32c(octets: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for octet in octets {
        crc ^= u32::from(*octet);
        for _ in 0..8 {
            crc = (crc >> 1) ^ if crc & 1 == 1 { 0x82f6_3b78 } else { 0 };
        }
    }
    !crc
}

fn contrib() -> Header {
    Header {
        kind: Kind::Contrib,
        flags: Flags::RETRANSMIT.union(Flags::CONGESTION),
        outcome: Outcome::None,
        job: JobId(0x0102),
        cookie: Cookie(0xe1aa_bbcc),
        group: GroupId::new(7, 2),
        chunk: ChunkIndex(0x0001_0003),
        element_type: ElementType::I32,
        operation: Operation::Sum,
        exponent: -8,
        count: 2,
        members: Members(4),
    }
}

/// A valid datagram of this kind, with the payload that it must have.
fn datagram(kind: Kind) -> Vec<u8> {
    let mut octets = CONTRIB.to_vec();
    octets[0] = 0x10 | kind as u8;
    match kind {
        Kind::Contrib | Kind::Answer => {}
        Kind::Hello => {
            octets.resize(HEADER_LEN + BODY_LEN, 0);
            octets[HEADER_LEN..].fill(0);
            octets[HEADER_LEN] = Phase::Hello as u8;
        }
        Kind::Ack | Kind::State | Kind::Pull | Kind::Status => octets.truncate(HEADER_LEN),
    }
    octets
}

#[test]
fn deconstructs() {
    let packet = Packet::new_checked(&CONTRIB).unwrap();
    assert_eq!(packet.version(), VERSION);
    assert_eq!(packet.kind(), Some(Kind::Contrib));
    assert_eq!(packet.flags(), Flags(0x88));
    assert_eq!(packet.outcome(), Outcome::None);
    assert_eq!(packet.job(), JobId(0x0102));
    assert_eq!(packet.cookie(), Cookie(0xe1aa_bbcc));
    assert_eq!((packet.group().row(), packet.group().generation()), (7, 2));
    assert_eq!(packet.chunk(), ChunkIndex(0x0001_0003));
    assert_eq!(packet.element_type(), Some(ElementType::I32));
    assert_eq!(packet.operation(), Some(Operation::Sum));
    assert_eq!(packet.exponent(), -8);
    assert_eq!(packet.count(), 2);
    assert_eq!(packet.crc(), 0);
    assert_eq!(packet.members(), Members(4));
    assert_eq!(packet.payload(), [0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff]);
    assert_eq!(Header::parse(&packet), Ok(contrib()));
}

#[test]
fn constructs_into_a_dirty_buffer() {
    for dirt in [0x00, 0xa5, 0xff] {
        let mut octets = [dirt; 40];
        let mut packet = Packet::new_unchecked(&mut octets[..]);
        contrib().emit(&mut packet);
        assert_eq!(packet.payload(), [dirt; 8], "the payload is not the header's to write");
        packet.payload_mut().copy_from_slice(&CONTRIB[HEADER_LEN..]);
        assert_eq!(octets, CONTRIB);
    }
}

#[test]
fn every_short_length_is_refused() {
    for len in 0..HEADER_LEN {
        let short = Packet::new_unchecked(&CONTRIB[..len]);
        assert_eq!(short.check_len(), Err(HeaderError::Length), "{len} bytes");
        assert_eq!(Header::parse(&short), Err(HeaderError::Length), "{len} bytes");
        assert!(Packet::new_checked(&CONTRIB[..len]).is_err(), "{len} bytes");
    }
    assert!(Packet::new_checked(&CONTRIB[..HEADER_LEN]).is_ok());
}

#[test]
fn every_kind_has_its_payload_length() {
    for &(kind, name) in Kind::ALL {
        let octets = datagram(kind);
        let header = Header::parse(&Packet::new_unchecked(&octets)).expect(name);
        assert_eq!(header.kind, kind);
        let shorter = Packet::new_unchecked(&octets[..octets.len() - 1]);
        assert_eq!(Header::parse(&shorter), Err(HeaderError::Length), "{name}");
        let mut longer = octets.clone();
        longer.push(0);
        let longer = Header::parse(&Packet::new_unchecked(&longer));
        // A handshake may be padded: that is the MTU probe. So may a credit: that is room for a
        // sum.
        if matches!(kind, Kind::Hello | Kind::Pull) {
            assert!(longer.is_ok());
        } else {
            assert_eq!(longer, Err(HeaderError::Length), "{name}");
        }
    }
}

#[test]
fn counts_elements_of_every_type() {
    for &(element_type, name) in ElementType::ALL {
        for count in [0, 1, 256, 512, u16::MAX] {
            let header = Header { element_type, count, ..contrib() };
            let mut octets = vec![0; HEADER_LEN + header.payload_len()];
            header.emit(&mut Packet::new_unchecked(&mut octets));
            assert_eq!(Header::parse(&Packet::new_unchecked(&octets)), Ok(header), "{name}");
        }
    }
    assert_eq!(Header { count: u16::MAX, ..contrib() }.payload_len(), 4 * 65_535);
}

#[test]
fn codes_without_meaning_are_refused() {
    for version in (0..16).filter(|version| *version != VERSION) {
        let mut octets = CONTRIB;
        octets[0] = (version << 4) | 1;
        let parsed = Header::parse(&Packet::new_unchecked(&octets));
        assert_eq!(parsed, Err(HeaderError::Version), "version {version}");
    }
    for kind in [0, 8, 9, 10, 11, 12, 13, 14, 15] {
        let mut octets = CONTRIB;
        octets[0] = 0x10 | kind;
        let parsed = Header::parse(&Packet::new_unchecked(&octets));
        assert_eq!(parsed, Err(HeaderError::Kind), "kind {kind}");
    }
    for element in (0x41..=0xf1).step_by(0x10).chain(0x13..=0x1f) {
        let mut octets = CONTRIB;
        octets[16] = element;
        let parsed = Header::parse(&Packet::new_unchecked(&octets));
        assert_eq!(parsed, Err(HeaderError::Kind), "element {element:#x}");
    }
}

#[test]
fn exponents_without_a_normal_power_of_two_are_refused() {
    for exponent in i8::MIN..=i8::MAX {
        let mut octets = CONTRIB;
        octets[17] = exponent.to_be_bytes()[0];
        let parsed = Header::parse(&Packet::new_unchecked(&octets));
        let powers = [1, -1].map(|sign| 2_f32.powi(sign * i32::from(exponent)));
        let is_legal = powers.iter().all(|power| power.is_normal());
        let error = parsed.map(|header| header.exponent);
        let expected = if is_legal { Ok(exponent) } else { Err(HeaderError::Exponent) };
        assert_eq!(error, expected);
    }
}

#[test]
fn faults_are_reported_in_order() {
    let mut octets = CONTRIB;
    octets[0] = 0x2f;
    octets[19] = 3;
    let parse = |octets: &[u8]| Header::parse(&Packet::new_unchecked(octets));
    assert_eq!(parse(&octets[..31]), Err(HeaderError::Length));
    assert_eq!(parse(&octets), Err(HeaderError::Version));
    octets[0] = 0x1f;
    octets[17] = 0x80;
    assert_eq!(parse(&octets), Err(HeaderError::Kind));
    octets[0] = 0x11;
    assert_eq!(parse(&octets), Err(HeaderError::Exponent));
    octets[17] = 0;
    assert_eq!(parse(&octets), Err(HeaderError::Length));
}

#[test]
fn every_code_keeps_its_bits() {
    for &(kind, _) in Kind::ALL {
        assert_eq!(Packet::new_unchecked(datagram(kind)).kind(), Some(kind));
    }
    for &(flags, name) in Flags::ALL {
        for &(outcome, _) in Outcome::ALL {
            let header = Header { flags, outcome, ..contrib() };
            let mut octets = CONTRIB;
            header.emit(&mut Packet::new_unchecked(&mut octets[..]));
            assert_eq!(octets[1], flags.0 | outcome as u8, "{name}");
            let packet = Packet::new_unchecked(&octets);
            assert_eq!((packet.flags(), packet.outcome()), (flags, outcome));
        }
    }
    for &(operation, name) in Operation::ALL {
        let mut octets = CONTRIB;
        octets[16] = 0x10 | operation as u8;
        assert_eq!(Packet::new_unchecked(&octets).operation(), Some(operation), "{name}");
    }
}

#[test]
fn flags_are_a_set() {
    let both = Flags::CLAMPED.union(Flags::DIRECT);
    assert!(both.contains(Flags::CLAMPED) && both.contains(Flags::DIRECT));
    assert!(!both.contains(Flags::CLAMPED.union(Flags::REPLICA)));
    assert!(both.contains(Flags::NONE));
    assert_eq!(both.only(Flags::CLAMPED.union(Flags::CONGESTION)), Flags::CLAMPED);
    let all = Flags::ALL.iter().fold(Flags::NONE, |all, (flag, _)| all.union(*flag));
    assert_eq!(all, Flags(0xf8), "the flags fill their bits and no others");
}

#[test]
fn set_flags_leaves_the_outcome() {
    let mut octets = CONTRIB;
    octets[1] = 0x80 | Outcome::Have as u8;
    let mut packet = Packet::new_unchecked(&mut octets[..]);
    packet.set_flags(Flags(0xff));
    assert_eq!((packet.flags(), packet.outcome()), (Flags(0xf8), Outcome::Have));
    packet.set_flags(Flags::NONE);
    assert_eq!((packet.flags(), packet.outcome()), (Flags::NONE, Outcome::Have));
}

#[test]
fn crc_reference_matches_the_published_check_value() {
    assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa, "RFC 3720 B.4");
}

#[test]
fn seals_and_verifies() {
    let mut packet = Packet::new_unchecked(CONTRIB);
    assert!(!packet.verify_crc(crc32c), "a CRC of 0 is none");
    packet.seal(crc32c);
    assert_eq!(packet.crc(), 0x8fca_d5e3);
    assert!(packet.verify_crc(crc32c));
    assert_eq!(packet.crc(), 0x8fca_d5e3, "verifying puts the field back");
    packet.seal(crc32c);
    assert_eq!(packet.crc(), 0x8fca_d5e3, "sealing again ignores what the field held");
    assert!(packet.has_crc(0x8fca_d5e3) && !packet.has_crc(0x8fca_d5e2));

    let sealed = packet.into_inner();
    for byte in 0..sealed.len() {
        for bit in 0..8 {
            let mut spoilt = sealed;
            spoilt[byte] ^= 1 << bit;
            let mut packet = Packet::new_unchecked(spoilt);
            assert!(!packet.verify_crc(crc32c), "byte {byte} bit {bit}");
            assert_eq!(packet.into_inner(), spoilt);
        }
    }
}

#[test]
fn a_computed_crc_of_zero_is_sent_as_all_ones() {
    let mut packet = Packet::new_unchecked(CONTRIB);
    packet.seal(|octets| {
        assert_eq!(octets[20..24], [0; 4], "the CRC is over a zeroed field");
        0
    });
    assert_eq!(packet.crc(), 0xffff_ffff);
    assert!(packet.has_crc(0) && packet.has_crc(u32::MAX) && !packet.has_crc(1));
    assert!(packet.verify_crc(|_| 0));
    assert!(packet.verify_crc(|_| u32::MAX));
    assert!(!packet.verify_crc(|_| 1));
    packet.set_crc(0);
    assert!(!packet.has_crc(0), "0 is no CRC");
    assert!(!packet.verify_crc(|_| 0), "0 stays \"not used\" whatever is computed");
}

#[test]
fn a_crc_that_was_computed_without_writing_seals_as_well() {
    let mut sealed = Packet::new_unchecked(CONTRIB);
    sealed.seal(crc32c);
    let mut stored = sealed.clone();
    // The field of `CONTRIB` is 0.
    stored.store_crc(crc32c(&CONTRIB));
    assert_eq!(stored.clone().into_inner(), sealed.into_inner());
    stored.store_crc(0);
    assert_eq!(stored.crc(), u32::MAX, "0 means that there is none");
}

#[test]
fn displays_one_line() {
    let line = |octets: &[u8]| Packet::new_unchecked(octets).to_string();
    assert_eq!(
        line(&CONTRIB),
        "WEFT CONTRIB job=258 group=7.2 chunk=65539 members=0x4 count=2 i32 sum \
         [RETRANSMIT,CONGESTION]"
    );
    let mut state = datagram(Kind::State);
    state[1] = Outcome::Have as u8;
    state[16..20].fill(0);
    assert_eq!(line(&state), "WEFT STATE HAVE job=258 group=7.2 chunk=65539 members=0x4");
    assert_eq!(
        line(&datagram(Kind::Hello)[..]),
        "WEFT HELLO job=258 group=7.2 chunk=65539 members=0x4 count=2 i32 sum \
         [RETRANSMIT,CONGESTION] phase=HELLO life=0000000000000000 session=0000000000000000 \
         epoch=0 window=0 low_step=0 step_bits=0"
    );
    let mut nonsense = datagram(Kind::Hello);
    nonsense[32] = 11;
    assert!(line(&nonsense).ends_with("(HELLO body without meaning or shorter than it says)"));
    assert_eq!(line(&CONTRIB[..39]), "WEFT (datagram shorter than its header says)");
    assert_eq!(line(&[0x21; 40]), "WEFT (unknown protocol version)");
    assert_eq!(line(&[0x1f; 40]), "WEFT (unknown kind, element type or operation)");
}

#[test]
fn layout_covers_every_bit_once() {
    let mut next_bit = 0;
    for &(name, byte, bit, bits) in LAYOUT {
        assert_eq!(byte * 8 + bit, next_bit, "{name}");
        next_bit += bits;
    }
    assert_eq!(next_bit, HEADER_LEN * 8);
}

fn code<T: Copy + fmt::Debug>(all: &'static [(T, &str)]) -> impl Strategy<Value = T> {
    (0..all.len()).prop_map(|index| all[index].0)
}

fn any_header() -> impl Strategy<Value = Header> {
    let codes = (
        code(Kind::ALL),
        code(Outcome::ALL),
        code(ElementType::ALL),
        code(Operation::ALL),
        any::<u8>().prop_map(|bits| Flags(bits & 0xf8)),
    );
    let rest = (any::<(u16, u32, u32, u32)>(), -126..=126_i8, any::<u64>());
    (codes, rest, 0..600_u16).prop_map(|(codes, rest, count)| Header {
        kind: codes.0,
        outcome: codes.1,
        element_type: codes.2,
        operation: codes.3,
        flags: codes.4,
        job: JobId(rest.0.0),
        cookie: Cookie(rest.0.1),
        group: GroupId(rest.0.2),
        chunk: ChunkIndex(rest.0.3),
        exponent: rest.1,
        members: Members(rest.2),
        count,
    })
}

fn touch_everything(octets: &[u8]) {
    let mut packet = Packet::new_unchecked(octets.to_vec());
    let _ = format!("{packet} {:?}", Header::parse(&packet));
    if packet.check_len().is_err() {
        return;
    }
    let _ = (packet.version(), packet.kind(), packet.flags(), packet.outcome());
    let _ = (packet.job(), packet.cookie(), packet.group(), packet.chunk());
    let _ = (packet.element_type(), packet.operation(), packet.exponent(), packet.count());
    let _ = (packet.crc(), packet.members(), packet.payload().len());
    packet.set_flags(Flags::REPLICA);
    packet.seal(crc32c);
    assert!(packet.verify_crc(crc32c));
}

proptest! {
    #[test]
    fn parse_undoes_emit(header in any_header(), dirt in any::<u8>()) {
        let payload_len = match header.kind {
            Kind::Contrib | Kind::Answer => header.payload_len(),
            Kind::Hello => BODY_LEN,
            _ if rows::is_of_keys(header.group.row()) => header.payload_len(),
            Kind::Ack | Kind::State | Kind::Pull | Kind::Status => 0,
        };
        let mut octets = vec![dirt; HEADER_LEN + payload_len];
        let mut packet = Packet::new_unchecked(&mut octets[..]);
        header.emit(&mut packet);
        prop_assert_eq!(packet.crc(), 0);
        prop_assert_eq!(Header::parse(&packet), Ok(header));
    }

    #[test]
    fn emit_undoes_parse(
        octets in proptest::collection::vec(any::<u8>(), HEADER_LEN..HEADER_LEN + 1),
    ) {
        let mut octets = octets;
        octets[0] = 0x17;
        octets[16] &= 0x32;
        // No row of keys, which would have a body.
        octets[8] &= 0x6f;
        if (127..=129).contains(&octets[17]) {
            octets[17] = 0;
        }
        octets[20..24].fill(0);
        let packet = Packet::new_unchecked(&octets[..]);
        let header = Header::parse(&packet).expect("any STATUS with known codes and a legal exponent parses");
        let mut again = [0xa5; HEADER_LEN];
        header.emit(&mut Packet::new_unchecked(&mut again[..]));
        prop_assert_eq!(&again[..], &octets[..]);
    }

    #[test]
    fn arbitrary_bytes_never_panic(octets in proptest::collection::vec(any::<u8>(), 0..300)) {
        touch_everything(&octets);
    }

    #[test]
    fn spoilt_datagrams_never_panic(
        kind in code(Kind::ALL),
        spoils in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        len in any::<prop::sample::Index>(),
    ) {
        let mut octets = datagram(kind);
        for (byte, value) in spoils {
            let byte = byte.index(octets.len());
            octets[byte] = value;
        }
        octets.truncate(len.index(octets.len() + 1));
        touch_everything(&octets);
    }
}

#[test]
fn frames_about_keys_have_a_body_of_any_kind() {
    let of = |kind, row, count, payload_len| {
        let header = Header { kind, group: GroupId::new(row, 1), count, ..contrib() };
        let mut octets = vec![0; HEADER_LEN + payload_len];
        header.emit(&mut Packet::new_unchecked(&mut octets[..]));
        Header::parse(&Packet::new_unchecked(&octets[..])).map(|header| header.count)
    };
    for kind in [Kind::Contrib, Kind::Ack, Kind::State, Kind::Pull, Kind::Status] {
        assert_eq!(of(kind, rows::ROW_KEYS, 6, 24), Ok(6), "{kind}");
        assert_eq!(of(kind, rows::ROW_KEYS, 6, 28), Err(HeaderError::Length), "{kind}");
        assert_eq!(of(kind, rows::ROW_KEYS, 6, 0), Err(HeaderError::Length), "{kind}");
    }
    assert_eq!(of(Kind::State, rows::ROW_KEYS - 1, 6, 24), Err(HeaderError::Length));
    assert_eq!(of(Kind::State, rows::ROW_KEYS - 1, 6, 0), Ok(6));
}

#[test]
fn a_template_writes_what_its_header_would() {
    for (flags, chunk, exponent, crc) in [
        (Flags::NONE, 0, 0, 0),
        (Flags::CLAMPED.union(Flags::CONGESTION), 0xdead_beef, -126, 0x1234_5678),
        (Flags::CONGESTION, u32::MAX, 126, u32::MAX),
    ] {
        let header = Header { flags, chunk: ChunkIndex(chunk), exponent, ..contrib() };
        let mut wanted = [0; HEADER_LEN];
        let mut packet = Packet::new_unchecked(&mut wanted);
        header.emit(&mut packet);
        packet.set_crc(crc);
        let mut written = [0xee; HEADER_LEN];
        Template::of(&contrib()).with(flags, header.chunk, exponent, crc).emit(&mut written);
        assert_eq!(written, wanted);
    }
}
