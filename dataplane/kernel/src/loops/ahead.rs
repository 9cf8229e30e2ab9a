//! Numbers of a long vector to the wire and back, asking meanwhile for those that come next.
//!
//! A vector is in no cache, and the next numbers most often go next. Asked for between the steps of
//! a loop they are on their way while it works; asked for at once they hold it up, for a core waits
//! for some sixteen lines and no more. `benches/kernel.rs` has the figures ("vector").

use crate::prefetch::{ahead_to_read, ahead_to_write};

use super::{clamp, from_bf16, to_bf16};

/// Numbers of a cache line. The loops over one are over its indices, which the compiler unrolls and
/// vectorises. In builds whose `lto` is "off" it leaves them, and iterators, as they are.
const LINE: usize = 16;

/// Writes numbers to the wire, `W` bytes each; `to_wire` is told a number's place in its line.
#[inline(always)]
fn emit<T: Copy, const W: usize>(
    values: &[T],
    wire: &mut [u8],
    mut to_wire: impl FnMut(usize, T) -> [u8; W],
) {
    let (lines, rest) = values.as_chunks::<LINE>();
    let (wire_lines, wire_rest) = wire.as_chunks_mut::<W>().0.split_at_mut(lines.len() * LINE);
    for (line, wires) in lines.iter().zip(wire_lines.as_chunks_mut::<LINE>().0) {
        ahead_to_read(line);
        for at in 0..LINE {
            wires[at] = to_wire(at, line[at]);
        }
    }
    for (at, (value, wire)) in rest.iter().zip(wire_rest).enumerate() {
        *wire = to_wire(at, *value);
    }
}

/// Reads numbers from the wire; `W` bytes each.
#[inline(always)]
fn store<T, const W: usize>(values: &mut [T], wire: &[u8], from_wire: impl Fn([u8; W]) -> T) {
    let (lines, rest) = values.as_chunks_mut::<LINE>();
    let (wire_lines, wire_rest) = wire.as_chunks::<W>().0.split_at(lines.len() * LINE);
    for (line, wires) in lines.iter_mut().zip(wire_lines.as_chunks::<LINE>().0) {
        ahead_to_write(line);
        for at in 0..LINE {
            line[at] = from_wire(wires[at]);
        }
    }
    for (value, wire) in rest.iter_mut().zip(wire_rest) {
        *value = from_wire(*wire);
    }
}

#[inline(always)]
pub(crate) fn emit_i32_ahead(values: &[i32], wire: &mut [u8]) {
    emit(values, wire, |_, value| value.to_be_bytes());
}

#[inline(always)]
pub(crate) fn store_i32_ahead(values: &mut [i32], wire: &[u8]) {
    store(values, wire, i32::from_be_bytes);
}

#[inline(always)]
pub(crate) fn emit_f32_ahead(values: &[f32], wire: &mut [u8]) {
    emit(values, wire, |_, value| value.to_be_bytes());
}

#[inline(always)]
pub(crate) fn store_f32_ahead(values: &mut [f32], wire: &[u8]) {
    store(values, wire, f32::from_be_bytes);
}

#[inline(always)]
pub(crate) fn emit_bf16_ahead(values: &[f32], wire: &mut [u8]) {
    emit(values, wire, |_, value| to_bf16(value));
}

#[inline(always)]
pub(crate) fn store_bf16_ahead(values: &mut [f32], wire: &[u8]) {
    store(values, wire, from_bf16);
}

/// Rounds to the nearest integer, ties to even, without the SSE4.1 instruction: below 2^23 adding
/// and subtracting 2^23 rounds, from 2^23 on every f32 is an integer already.
#[inline(always)]
fn round_ties_even(value: f32) -> f32 {
    const INTEGERS_FROM: f32 = 8_388_608.0;
    let magic = INTEGERS_FROM.copysign(value);
    let rounded = (value + magic) - magic;
    if value.abs() < INTEGERS_FROM { rounded } else { value }
}

/// Converts without the language's saturating `as`, which the compiler does not vectorise:
/// outside i32's range only the sign counts, and what has no sign (NaN) becomes 0.
#[inline(always)]
fn to_i32_clamped(rounded: f32, limit: i32) -> (i32, bool) {
    const BEYOND_I32: f32 = 2_147_483_648.0;
    let in_range = rounded.abs() < BEYOND_I32;
    let convertible = if in_range { rounded } else { 0.0 };
    // SAFETY: `convertible` is an integer strictly between -2^31 and 2^31, and no NaN.
    let integer: i32 = unsafe { convertible.to_int_unchecked() };
    let beyond = if rounded > 0.0 { limit } else { -limit };
    let beyond = if rounded.is_nan() { 0 } else { beyond };
    let clamped = if in_range { clamp(integer, limit) } else { beyond };
    (clamped, !in_range || clamped != integer)
}

#[inline(always)]
pub(crate) fn quantise_f32(
    values: &[f32],
    inverse_quantum: f32,
    limit: i32,
    wire: &mut [u8],
) -> u32 {
    let mut clamped_counts = [0; LINE];
    emit(values, wire, |at, value| {
        let (integer, clamped) = to_i32_clamped(round_ties_even(value * inverse_quantum), limit);
        clamped_counts[at] += u32::from(clamped);
        integer.to_be_bytes()
    });
    clamped_counts.iter().sum()
}

#[inline(always)]
#[expect(clippy::cast_precision_loss, reason = "an f32 result is what the caller asked for")]
pub(crate) fn dequantise_i32(wire: &[u8], quantum: f32, values: &mut [f32]) {
    store(values, wire, |wire| i32::from_be_bytes(wire) as f32 * quantum);
}
