use super::*;

fn hex(text: &str) -> Value {
    Value::from_hex(text).unwrap()
}

#[test]
fn arithmetic_is_exact_where_128_bits_end() {
    let top = hex("0xffffffffffffffffffffffffffffffff");
    assert_eq!(top.add(&Value::Small(1)), hex("0x100000000000000000000000000000000"));
    assert_eq!(top.add(&Value::Small(1)).cut(128), Value::ZERO);
    assert_eq!(top.add(&Value::Small(2)).sub(&top), Value::Small(2));
    assert_eq!(top.mul(&top).cut(128), Value::Small(1));
    assert_eq!(Value::Small(1).shl(2047).shr(2047), Value::Small(1));
    assert_eq!(Value::Small(-1).shl(100).shr(100), Value::Small(-1));
}

#[test]
fn a_negative_number_is_cut_to_its_complement() {
    assert_eq!(Value::Small(-1).cut(32), Value::Small(0xffff_ffff));
    assert_eq!(Value::Small(-1).cut(128), hex("0xffffffffffffffffffffffffffffffff"));
    assert_eq!(Value::Small(0xffff_ffff).cut_signed(32), Value::Small(-1));
    assert_eq!(Value::Small(0x7fff_ffff).cut_signed(32), Value::Small(i128::from(i32::MAX)));
    assert_eq!(Value::ZERO.not().cut(9), Value::Small(511));
    assert_eq!(hex("-0x02"), Value::Small(-2));
}

#[test]
fn bits_are_read_and_written_at_any_place() {
    let mut bytes = vec![0; 40];
    for (skip, width) in [(0, 4), (3, 13), (5, 64), (7, 121), (1, 128), (0, 320), (9, 300)] {
        bytes.fill(0);
        let value = Value::Small(-1).cut(width).sub(&Value::Small(2));
        value.put_bits(&mut bytes, skip, width);
        assert_eq!(Value::from_bits(&bytes, skip, width), value, "{width} bits behind {skip}");
        let set: u32 = bytes.iter().map(|byte| byte.count_ones()).sum();
        assert_eq!(set as usize, width - 1, "nothing is written beside");
    }
}

#[test]
fn an_index_is_the_low_64_bits() {
    assert_eq!(Value::Small(-1).low_u64(), u64::MAX);
    assert_eq!(Value::Small(1).shl(64).low_u64(), 0);
    assert_eq!(Value::Small(5).add(&Value::Small(1).shl(300)).low_u64(), 5);
}
