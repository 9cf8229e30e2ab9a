use std::string::ToString;
use std::vec;

use proptest::prelude::*;

use super::*;
use crate::header::HEADER_LEN;

/// A WELCOME whose bitmap wants steps 5 and 14 by hand-over.
const WELCOME: [u8; 74] = [
    0x04, 0x00, 0x05, 0xc0, // WELCOME, no reason, 1472 bytes of UDP payload
    0x00, 0x00, 0x01, 0xe1, // epoch
    0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef, // life
    0xfe, 0xdc, 0xba, 0x98, 0x76, 0x54, 0x32, 0x10, // token
    0x00, 0x00, 0x00, 0x00, 0x5e, 0x55, 0x10, 0x17, // session
    0xe1, 0x00, 0x00, 0x01, // cookie_up
    0xe1, 0x00, 0x00, 0x02, // cookie_down
    0x00, 0x40, 0x00, 0x02, // window, shards
    0x01, 0x00, 0x01, 0x01, // elements, crc32c, clamp
    0x00, 0x00, 0x00, 0x10, // fan_in
    0x00, 0x0f, 0x42, 0x40, // step_count
    0x00, 0x00, 0x00, 0x05, // low_step
    0x00, 0x0a, 0xf8, 0x01, // 10 bits, exponent -8, fixed
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x0f, // mask
    0x80, 0x40, // bitmap
];

fn welcome() -> Hello {
    Hello {
        phase: Phase::Welcome,
        reason: Reason::None,
        probe_len: 1472,
        epoch: Epoch(0x1e1),
        life: 0x0123_4567_89ab_cdef,
        token: 0xfedc_ba98_7654_3210,
        session: 0x5e55_1017,
        cookie_up: Cookie(0xe100_0001),
        cookie_down: Cookie(0xe100_0002),
        window: 64,
        shards: 2,
        elements: 256,
        integrity: Integrity::Crc32c,
        overflow: Overflow::Clamp,
        fan_in: 16,
        step_count: 1_000_000,
        low_step: 5,
        step_bits: 10,
        exponent: -8,
        exponent_fixed: true,
        mask: Members(0xf),
    }
}

#[test]
fn deconstructs() {
    let (hello, bitmap) = Hello::parse(&WELCOME).unwrap();
    assert_eq!(hello, welcome());
    assert_eq!(bitmap, [0x80, 0x40]);
}

#[test]
fn constructs_into_a_dirty_buffer_and_pads_with_zeros() {
    let hello = welcome();
    assert_eq!(hello.body_len(), 1472 - HEADER_LEN);
    let mut body = vec![0xa5; hello.body_len()];
    hello.emit(&[0x80, 0x40], &mut body);
    assert_eq!(body[..74], WELCOME);
    assert!(body[74..].iter().all(|padding| *padding == 0));
    assert_eq!(Hello::parse(&body), Ok((hello, &[0x80, 0x40][..])));
}

#[test]
fn constructs_every_phase_from_empty() {
    for &(phase, name) in Phase::ALL {
        let hello = Hello::new(phase);
        assert_eq!(hello.body_len(), BODY_LEN);
        let mut body = [0xff; BODY_LEN];
        hello.emit(&[], &mut body);
        let mut expected = [0; BODY_LEN];
        expected[0] = phase as u8;
        // The defaults are the safe ones: CRC32C and clamping.
        expected[46..48].fill(1);
        assert_eq!(body, expected, "{name}");
        assert_eq!(Hello::parse(&body), Ok((hello, &[][..])), "{name}");
    }
}

#[test]
fn padding_that_asks_for_less_than_the_body_changes_nothing() {
    for probe_len in [0, 31, 32, 104, 105, 106] {
        let hello = Hello { probe_len, ..welcome() };
        assert_eq!(hello.body_len(), 74, "probe_len {probe_len}");
    }
    assert_eq!(Hello { probe_len: 107, ..welcome() }.body_len(), 75);
    assert_eq!(Hello { probe_len: u16::MAX, ..welcome() }.body_len(), 65_535 - HEADER_LEN);
}

#[test]
fn every_truncation_is_refused() {
    for len in 0..WELCOME.len() {
        assert_eq!(Hello::parse(&WELCOME[..len]), Err(HelloError), "{len} bytes");
    }
}

#[test]
fn impossible_bitmaps_are_refused() {
    let with_bits = |step_bits: u16, bitmap_len: usize| {
        let mut body = vec![0; BODY_LEN + bitmap_len];
        body[..BODY_LEN].copy_from_slice(&WELCOME[..BODY_LEN]);
        body[60..62].copy_from_slice(&step_bits.to_be_bytes());
        Hello::parse(&body).map(|(hello, bitmap)| (hello.step_bits, bitmap.len()))
    };
    assert_eq!(with_bits(0, 0), Ok((0, 0)));
    assert_eq!(with_bits(1, 1), Ok((1, 1)));
    assert_eq!(with_bits(8, 1), Ok((8, 1)));
    assert_eq!(with_bits(9, 1), Err(HelloError));
    assert_eq!(with_bits(8192, 1024), Ok((8192, 1024)));
    assert_eq!(with_bits(8192, 1023), Err(HelloError));
    assert_eq!(with_bits(8193, 2000), Err(HelloError));
    assert_eq!(with_bits(u16::MAX, 8192), Err(HelloError));
}

#[test]
fn codes_without_meaning_are_refused() {
    let spoilt = |byte: usize, value: u8| {
        let mut body = WELCOME;
        body[byte] = value;
        Hello::parse(&body).is_ok()
    };
    for value in 0..=u8::MAX {
        assert_eq!(spoilt(0, value), (1..=10).contains(&value), "phase {value}");
        assert_eq!(spoilt(1, value), value <= 4, "reason {value}");
        assert_eq!(spoilt(46, value), value <= 2, "integrity {value}");
        assert_eq!(spoilt(47, value), value <= 1, "overflow {value}");
        let is_exponent = value <= 126 || value >= 130;
        assert_eq!(spoilt(62, value), is_exponent, "exponent {value}");
        assert_eq!(spoilt(63, value), value <= 1, "exponent_mode {value}");
    }
}

#[test]
fn the_largest_body_fits_a_1500_byte_mtu() {
    let hello = Hello { step_bits: 8192, probe_len: 0, ..welcome() };
    assert!(HEADER_LEN + hello.body_len() <= 1500 - 40 - 8);
}

#[test]
fn displays_one_line() {
    assert_eq!(
        welcome().to_string(),
        "phase=WELCOME life=0123456789abcdef session=000000005e551017 epoch=481 window=64 \
         low_step=5 step_bits=10"
    );
    let refused = Hello { reason: Reason::MemberLost, ..Hello::new(Phase::Refused) };
    assert!(refused.to_string().starts_with("phase=REFUSED reason=MEMBER_LOST life="));
}

#[test]
fn layout_covers_every_byte_once() {
    let mut next = 0;
    for &(name, byte, bytes) in LAYOUT {
        assert_eq!(byte, next, "{name}");
        next += bytes;
    }
    assert_eq!(next, BODY_LEN);
}

fn code<T: Copy + fmt::Debug>(all: &'static [(T, &str)]) -> impl Strategy<Value = T> {
    (0..all.len()).prop_map(|index| all[index].0)
}

fn any_hello() -> impl Strategy<Value = Hello> {
    let codes = (code(Phase::ALL), code(Reason::ALL), code(Integrity::ALL), code(Overflow::ALL));
    let shorts = any::<(u16, u16, u16)>();
    let words = any::<(u32, u32, u32, u32, u32, u32)>();
    let longs = any::<(u64, u64, u64, u64)>();
    let rest = (0..2000_u16, 0..=8192_u16, -126..=126_i8, any::<bool>());
    (codes, shorts, words, longs, rest).prop_map(|(codes, shorts, words, longs, rest)| Hello {
        phase: codes.0,
        reason: codes.1,
        integrity: codes.2,
        overflow: codes.3,
        window: shorts.0,
        shards: shorts.1,
        elements: shorts.2,
        epoch: Epoch(words.0),
        cookie_up: Cookie(words.1),
        cookie_down: Cookie(words.2),
        fan_in: words.3,
        step_count: words.4,
        low_step: words.5,
        life: longs.0,
        token: longs.1,
        session: longs.2,
        mask: Members(longs.3),
        probe_len: rest.0,
        step_bits: rest.1,
        exponent: rest.2,
        exponent_fixed: rest.3,
    })
}

proptest! {
    #[test]
    fn parse_undoes_emit(hello in any_hello(), step in any::<u8>(), dirt in any::<u8>()) {
        let bitmap = [step; 1024];
        let mut body = vec![dirt; hello.body_len()];
        hello.emit(&bitmap, &mut body);
        let bitmap_len = usize::from(hello.step_bits).div_ceil(8);
        prop_assert_eq!(Hello::parse(&body), Ok((hello, &bitmap[..bitmap_len])));
    }

    #[test]
    fn arbitrary_bytes_never_panic(body in proptest::collection::vec(any::<u8>(), 0..1200)) {
        let _ = Hello::parse(&body).map(|(hello, _)| hello.to_string());
    }

    #[test]
    fn spoilt_bodies_never_panic(
        spoils in proptest::collection::vec((0..74_usize, any::<u8>()), 0..4),
        len in 0..=74_usize,
    ) {
        let mut body = WELCOME;
        for (byte, value) in spoils {
            body[byte] = value;
        }
        if let Ok((hello, bitmap)) = Hello::parse(&body[..len]) {
            prop_assert_eq!(bitmap.len(), usize::from(hello.step_bits).div_ceil(8));
            let mut again = vec![0xa5; hello.body_len()];
            hello.emit(bitmap, &mut again);
            prop_assert_eq!(&again[..BODY_LEN + bitmap.len()], &body[..BODY_LEN + bitmap.len()]);
        }
    }
}
