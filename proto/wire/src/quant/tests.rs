use proptest::prelude::*;

use super::*;

extern crate std;
use std::vec::Vec;

/// What a worker does to a value: scale, round to nearest even, clamp; and whether it clamped.
fn quantise(value: f32, exponent: i8, fan_in: u32) -> (i32, bool) {
    let rounded = f64::from(value * inverse_quantum(exponent)).round_ties_even();
    let limit = f64::from(clamp_limit(fan_in));
    #[expect(clippy::cast_possible_truncation, reason = "clamped to an i32's range")]
    let integer = rounded.clamp(-limit, limit) as i32;
    (integer, rounded.abs() > limit)
}

fn fan_in() -> impl Strategy<Value = u32> {
    prop_oneof![1..=64u32, 1..=4096u32, 1..=1u32 << 28]
}

fn finite() -> impl Strategy<Value = f32> {
    prop_oneof![
        prop::num::f32::NORMAL | prop::num::f32::SUBNORMAL | prop::num::f32::ZERO,
        -1.0f32..1.0,
        // Powers of two and their neighbours, where the exponent changes.
        (-126..=127i32, -1..=1i32).prop_map(|(power, step)| {
            let bits = power_of_two(power).to_bits();
            f32::from_bits(bits.wrapping_add_signed(step))
        }),
    ]
}

#[test]
fn limits_are_exact() {
    assert_eq!(clamp_limit(0), i32::MAX);
    assert_eq!(clamp_limit(1), i32::MAX);
    assert_eq!(clamp_limit(2), 1_073_741_823);
    assert_eq!(clamp_limit(64), 33_554_431);
    assert_eq!(clamp_limit(u32::MAX), 0);
}

#[test]
fn exponents_at_the_edges() {
    // 2^31 - 1 for one contributor: 1.0 takes 2^30 quanta of 2^-30, 2.0 as many of 2^-29.
    assert_eq!(exponent_for(1.0, 1), -30);
    assert_eq!(exponent_for(1.999_999_9, 1), -30);
    assert_eq!(exponent_for(2.0, 1), -29);
    // Four contributors: 2^29 - 1 each, so 2^28 quanta are the largest power of two.
    assert_eq!(exponent_for(1.0, 4), -28);
    // Three: 715827882 = 1.333... * 2^29, so the mantissa decides.
    assert_eq!(exponent_for(1.25, 3), -29);
    assert_eq!(exponent_for(1.5, 3), -28);
    assert_eq!(exponent_for(-1.5, 3), -28);
}

#[test]
fn every_input_has_a_defined_exponent() {
    for fan_in in [0, 1, 64, u32::MAX] {
        assert_eq!(exponent_for(0.0, fan_in), EXPONENT_MIN);
        assert_eq!(exponent_for(-0.0, fan_in), EXPONENT_MIN);
        assert_eq!(exponent_for(f32::NAN, fan_in), EXPONENT_MIN);
    }
    assert_eq!(exponent_for(f32::from_bits(1), 1), EXPONENT_MIN);
    assert_eq!(exponent_for(f32::MIN_POSITIVE, 64), EXPONENT_MIN);
    assert_eq!(exponent_for(f32::INFINITY, 4), exponent_for(f32::MAX, 4));
    assert_eq!(exponent_for(f32::MAX, 1), 97);
    assert_eq!(exponent_for(f32::MAX, 1 << 28), 126);
    assert_eq!(exponent_for(f32::MAX, u32::MAX), EXPONENT_MAX);
}

#[test]
fn quanta_are_exact_normal_powers_of_two() {
    for exponent in EXPONENT_MIN..=EXPONENT_MAX {
        let exact = 2f64.powi(i32::from(exponent));
        assert_eq!(f64::from(quantum(exponent)).to_bits(), exact.to_bits());
        assert_eq!(f64::from(inverse_quantum(exponent)).to_bits(), exact.recip().to_bits());
        assert!(quantum(exponent).is_normal() && inverse_quantum(exponent).is_normal());
    }
    assert_eq!(quantum(i8::MIN).to_bits(), quantum(EXPONENT_MIN).to_bits());
    assert_eq!(inverse_quantum(i8::MAX).to_bits(), inverse_quantum(EXPONENT_MAX).to_bits());
}

#[test]
fn the_greatest_element_is_the_greatest_exponent() {
    for a in EXPONENT_MIN..=EXPONENT_MAX {
        for b in EXPONENT_MIN..=EXPONENT_MAX {
            let max = encode_exponent(a).max(encode_exponent(b));
            assert_eq!(decode_exponent(max), Some(a.max(b)));
        }
    }
    for element in [i32::MIN, -128, -127, 127, 128, i32::MAX] {
        assert_eq!(decode_exponent(element), None);
    }
}

#[test]
fn bf16_rounds_to_the_nearest_and_ties_to_even() {
    for upper in 0..=u16::MAX {
        let below = f32_from_bf16(upper);
        assert_eq!(below.to_bits(), u32::from(upper) << 16);
        if below.is_nan() {
            let rounded = bf16_from_f32(f32::from_bits(below.to_bits() | 1));
            assert_eq!(rounded, upper | 0x40, "a NaN keeps its sign and payload, and is quiet");
            continue;
        }
        assert_eq!(bf16_from_f32(below), upper);
        if below.is_infinite() {
            continue;
        }
        let above = upper + 1;
        let even = if upper & 1 == 0 { upper } else { above };
        for (lower, expected) in [(1, upper), (0x7fff, upper), (0x8000, even), (0x8001, above)] {
            let value = f32::from_bits(below.to_bits() | lower);
            assert_eq!(bf16_from_f32(value), expected, "{upper:#x} {lower:#x}");
        }
    }
    assert!(f32_from_bf16(bf16_from_f32(f32::from_bits(0x7f80_0001))).is_nan());
}

proptest! {
    #[test]
    fn the_exponent_fits_and_is_the_smallest(max_abs in finite(), fan_in in fan_in()) {
        let exponent = exponent_for(max_abs, fan_in);
        let limit = f64::from(clamp_limit(fan_in));
        let quanta = |exponent: i8| f64::from(max_abs.abs()) * 2f64.powi(-i32::from(exponent));
        prop_assert!(quanta(exponent) <= limit);
        prop_assert!(exponent == EXPONENT_MIN || quanta(exponent - 1) > limit);
    }

    #[test]
    fn no_sum_overflows_or_strays(
        values in prop::collection::vec(finite(), 1..40),
        spare in 0..4096u32,
    ) {
        let members = u32::try_from(values.len()).unwrap();
        let fan_in = members + spare;
        // The exponents are agreed by MAX, as the members of an allreduce do it.
        let offers: Vec<i32> =
            values.iter().map(|v| encode_exponent(exponent_for(*v, fan_in))).collect();
        let exponent = decode_exponent(*offers.iter().max().unwrap()).unwrap();

        let mut sum = 0i32;
        for value in &values {
            let (integer, clamped) = quantise(*value, exponent, fan_in);
            prop_assert!(!clamped);
            let quantum = f64::from(quantum(exponent));
            let error = (f64::from(integer) * quantum - f64::from(*value)).abs();
            prop_assert!(error <= error_bound(exponent, 1), "{value} {exponent}");
            sum = sum.checked_add(integer).expect("the limit keeps every sum inside i32");
        }
        // In quanta, of which there are at most 2^31: f64 sums them to well below 1e-3.
        let quanta = |v: &f32| f64::from(*v) * f64::from(inverse_quantum(exponent));
        let exact: f64 = values.iter().map(quanta).sum();
        let bound = error_bound(exponent, members) / f64::from(quantum(exponent)) + 1e-3;
        prop_assert!((exact - f64::from(sum)).abs() <= bound, "{exact} {sum}");
    }

    #[test]
    fn clamped_contributions_never_overflow(
        values in prop::collection::vec(any::<f32>(), 1..64),
        exponent in EXPONENT_MIN..=EXPONENT_MAX,
    ) {
        let fan_in = u32::try_from(values.len()).unwrap();
        let sum = values.iter().filter(|v| !v.is_nan()).try_fold(0i32, |sum, value| {
            sum.checked_add(quantise(*value, exponent, fan_in).0)
        });
        prop_assert!(sum.is_some());
    }
}
