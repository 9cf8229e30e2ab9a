//! What each operation means, one element at a time, as plainly as it can be said.
//!
//! Shares no code with `loops.rs`: wide integers instead of wrapping, f64 instead of rounding
//! tricks, and the half crate to round to bf16. The tests compare every instruction set with this.

use half::bf16;

/// The payload as elements of four bytes.
pub(crate) fn read_i32(wire: &[u8]) -> Vec<i32> {
    wire.chunks(4).map(|b| i32::from_be_bytes([b[0], b[1], b[2], b[3]])).collect()
}

pub(crate) fn write_i32(values: &[i32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_be_bytes()).collect()
}

pub(crate) fn read_f32(wire: &[u8]) -> Vec<f32> {
    wire.chunks(4).map(|b| f32::from_be_bytes([b[0], b[1], b[2], b[3]])).collect()
}

pub(crate) fn write_f32(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_be_bytes()).collect()
}

pub(crate) fn read_bf16(wire: &[u8]) -> Vec<f32> {
    wire.chunks(2).map(|b| f32::from_be_bytes([b[0], b[1], 0, 0])).collect()
}

pub(crate) fn write_bf16(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| bf16::from_f32(*v).to_be_bytes()).collect()
}

/// The sum modulo 2^32.
pub(crate) fn add_i32(a: i32, b: i32) -> i32 {
    let sum = (i64::from(a) + i64::from(b)).rem_euclid(1 << 32);
    let wrapped = if sum >= 1 << 31 { sum - (1 << 32) } else { sum };
    i32::try_from(wrapped).expect("reduced modulo 2^32")
}

pub(crate) fn clamp_i32(value: i32, limit: i32) -> i32 {
    if value > limit {
        limit
    } else if i64::from(value) < -i64::from(limit) {
        -limit
    } else {
        value
    }
}

/// The rounded sum; every NaN is the same NaN.
pub(crate) fn add_f32(a: f32, b: f32) -> f32 {
    let sum = a + b;
    if sum.is_nan() { f32::from_bits(0x7fc0_0000) } else { sum }
}

/// The integer to send, and whether it was clamped.
pub(crate) fn quantise(value: f32, scale: f32, limit: i32) -> (i32, bool) {
    let exact = f64::from(value * scale);
    if exact.is_nan() {
        return (0, true);
    }
    let rounded = exact.round_ties_even();
    if rounded > f64::from(limit) {
        (limit, true)
    } else if rounded < -f64::from(limit) {
        (-limit, true)
    } else {
        #[expect(clippy::cast_possible_truncation, reason = "within ±limit, and an integer")]
        let integer = rounded as i32;
        (integer, false)
    }
}

pub(crate) fn max_abs(values: &[f32]) -> f32 {
    values.iter().filter(|v| v.is_finite()).fold(0.0, |max, v| f32::max(max, v.abs()))
}

/// One element of a model: `(h, w, u)` after an update of `x`, with no product fused into a sum.
pub(crate) fn momentum_step(x: f32, scale: f32, momentum: f32, h: f32, w: f32) -> (f32, f32, f32) {
    let u = x * scale;
    let h = add_f32(momentum * h, u);
    (h, add_f32(w, h), u)
}

/// A sum of squares, in an order that does not matter when the squares are exact.
pub(crate) fn sum_squares(values: impl Iterator<Item = f32>) -> f64 {
    values.map(|v| f64::from(v) * f64::from(v)).fold(0.0, |sum, square| sum + square)
}
