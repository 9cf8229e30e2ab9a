//! The loops themselves, one per operation, written so that the compiler vectorises them.
//!
//! Nothing here names an instruction. Every function is `inline(always)`: `table.rs` compiles
//! each once per instruction set, inside a function that enables the set's features. The
//! invariants that make vectorisation work are "exact slices in, `as_chunks` on the wire side,
//! no early exit, flags gathered as integers"; the bench and the assembly show when it stops.
//!
//! Lengths are checked by the caller ([`crate::Kernels`]); a wrong length here would only shorten
//! a loop, never read outside a slice.
//!
//! Numbers: PROTOCOL section 9.

mod ahead;
mod run;

pub(crate) use ahead::{
    dequantise_i32, emit_bf16_ahead, emit_f32_ahead, emit_i32_ahead, quantise_f32,
    store_bf16_ahead, store_f32_ahead, store_i32_ahead,
};
pub(crate) use run::{add_run_f32, add_run_f32_emit, add_run_i32, add_run_i32_emit};

/// The one NaN that sums produce. Which operand's payload survives an addition depends on the
/// processor and on how the compiler orders the operands, so without this the same contributions
/// would give different bytes on different instruction sets (DESIGN I10).
const NAN_BITS: u32 = 0x7fc0_0000;
const SIGN_BIT: u32 = 0x8000_0000;
const INFINITY_BITS: u32 = 0x7f80_0000;

#[inline(always)]
fn words(wire: &[u8]) -> &[[u8; 4]] {
    wire.as_chunks().0
}

#[inline(always)]
fn words_mut(wire: &mut [u8]) -> &mut [[u8; 4]] {
    wire.as_chunks_mut().0
}

#[inline(always)]
fn halves(wire: &[u8]) -> &[[u8; 2]] {
    wire.as_chunks().0
}

#[inline(always)]
fn halves_mut(wire: &mut [u8]) -> &mut [[u8; 2]] {
    wire.as_chunks_mut().0
}

#[inline(always)]
fn clamp(value: i32, limit: i32) -> i32 {
    value.min(limit).max(-limit)
}

#[inline(always)]
fn sum_f32(a: f32, b: f32) -> f32 {
    let sum = a + b;
    f32::from_bits(if sum.is_nan() { NAN_BITS } else { sum.to_bits() })
}

#[inline(always)]
fn from_bf16(wire: [u8; 2]) -> f32 {
    f32::from_bits(u32::from(u16::from_be_bytes(wire)) << 16)
}

/// Rounds to nearest even; a NaN keeps its sign and upper payload and becomes quiet.
#[inline(always)]
fn to_bf16(value: f32) -> [u8; 2] {
    let bits = value.to_bits();
    let rounded = bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) >> 16;
    let quiet = (bits >> 16) | 0x40;
    let upper = if value.is_nan() { quiet } else { rounded };
    #[expect(clippy::cast_possible_truncation, reason = "both were shifted right by 16")]
    let half = upper as u16;
    half.to_be_bytes()
}

#[inline(always)]
pub(crate) fn store_i32(slot: &mut [i32], wire: &[u8]) {
    for (s, w) in slot.iter_mut().zip(words(wire)) {
        *s = i32::from_be_bytes(*w);
    }
}

#[inline(always)]
pub(crate) fn add_i32(slot: &mut [i32], wire: &[u8]) {
    for (s, w) in slot.iter_mut().zip(words(wire)) {
        *s = s.wrapping_add(i32::from_be_bytes(*w));
    }
}

#[inline(always)]
pub(crate) fn add_i32_emit(slot: &mut [i32], wire: &mut [u8]) {
    for (s, w) in slot.iter_mut().zip(words_mut(wire)) {
        *s = s.wrapping_add(i32::from_be_bytes(*w));
        *w = s.to_be_bytes();
    }
}

#[inline(always)]
pub(crate) fn store_i32_clamped(slot: &mut [i32], wire: &[u8], limit: i32) -> bool {
    let mut differing_bits = 0;
    for (s, w) in slot.iter_mut().zip(words(wire)) {
        let value = i32::from_be_bytes(*w);
        *s = clamp(value, limit);
        differing_bits |= value ^ *s;
    }
    differing_bits != 0
}

#[inline(always)]
pub(crate) fn add_i32_clamped(slot: &mut [i32], wire: &[u8], limit: i32) -> bool {
    let mut differing_bits = 0;
    for (s, w) in slot.iter_mut().zip(words(wire)) {
        let value = i32::from_be_bytes(*w);
        let clamped = clamp(value, limit);
        differing_bits |= value ^ clamped;
        *s = s.wrapping_add(clamped);
    }
    differing_bits != 0
}

#[inline(always)]
pub(crate) fn add_i32_clamped_emit(slot: &mut [i32], wire: &mut [u8], limit: i32) -> bool {
    let mut differing_bits = 0;
    for (s, w) in slot.iter_mut().zip(words_mut(wire)) {
        let value = i32::from_be_bytes(*w);
        let clamped = clamp(value, limit);
        differing_bits |= value ^ clamped;
        *s = s.wrapping_add(clamped);
        *w = s.to_be_bytes();
    }
    differing_bits != 0
}

#[inline(always)]
pub(crate) fn max_i32(slot: &mut [i32], wire: &[u8]) {
    for (s, w) in slot.iter_mut().zip(words(wire)) {
        *s = (*s).max(i32::from_be_bytes(*w));
    }
}

#[inline(always)]
pub(crate) fn max_i32_emit(slot: &mut [i32], wire: &mut [u8]) {
    for (s, w) in slot.iter_mut().zip(words_mut(wire)) {
        *s = (*s).max(i32::from_be_bytes(*w));
        *w = s.to_be_bytes();
    }
}

#[inline(always)]
pub(crate) fn emit_i32(slot: &[i32], wire: &mut [u8]) {
    for (s, w) in slot.iter().zip(words_mut(wire)) {
        *w = s.to_be_bytes();
    }
}

#[inline(always)]
pub(crate) fn store_f32(slot: &mut [f32], wire: &[u8]) {
    for (s, w) in slot.iter_mut().zip(words(wire)) {
        *s = f32::from_be_bytes(*w);
    }
}

#[inline(always)]
pub(crate) fn add_f32(slot: &mut [f32], wire: &[u8]) {
    for (s, w) in slot.iter_mut().zip(words(wire)) {
        *s = sum_f32(*s, f32::from_be_bytes(*w));
    }
}

#[inline(always)]
pub(crate) fn add_f32_emit(slot: &mut [f32], wire: &mut [u8]) {
    for (s, w) in slot.iter_mut().zip(words_mut(wire)) {
        *s = sum_f32(*s, f32::from_be_bytes(*w));
        *w = s.to_be_bytes();
    }
}

#[inline(always)]
pub(crate) fn emit_f32(slot: &[f32], wire: &mut [u8]) {
    for (s, w) in slot.iter().zip(words_mut(wire)) {
        *w = s.to_be_bytes();
    }
}

/// Row by row into the slot, which stays in L1: one load and one store more per element than a
/// tile of registers, but a loop that every instruction set vectorises.
#[inline(always)]
pub(crate) fn sum_rows_f32_emit(rows: &[f32], stride: usize, slot: &mut [f32], wire: &mut [u8]) {
    let elements = slot.len();
    slot.copy_from_slice(&rows[..elements]);
    for row in rows[stride..].chunks_exact(stride) {
        for (s, r) in slot.iter_mut().zip(row) {
            *s = sum_f32(*s, *r);
        }
    }
    emit_f32(slot, wire);
}

#[inline(always)]
pub(crate) fn store_bf16(slot: &mut [f32], wire: &[u8]) {
    for (s, w) in slot.iter_mut().zip(halves(wire)) {
        *s = from_bf16(*w);
    }
}

#[inline(always)]
pub(crate) fn add_bf16(slot: &mut [f32], wire: &[u8]) {
    for (s, w) in slot.iter_mut().zip(halves(wire)) {
        *s = sum_f32(*s, from_bf16(*w));
    }
}

#[inline(always)]
pub(crate) fn add_bf16_emit(slot: &mut [f32], wire: &mut [u8]) {
    for (s, w) in slot.iter_mut().zip(halves_mut(wire)) {
        *s = sum_f32(*s, from_bf16(*w));
        *w = to_bf16(*s);
    }
}

#[inline(always)]
pub(crate) fn emit_bf16(slot: &[f32], wire: &mut [u8]) {
    for (s, w) in slot.iter().zip(halves_mut(wire)) {
        *w = to_bf16(*s);
    }
}

/// Compares bit patterns, which order like the magnitudes: an integer maximum vectorises, a
/// floating-point one does not.
#[inline(always)]
pub(crate) fn max_abs_f32(values: &[f32]) -> f32 {
    let mut max = 0;
    for v in values {
        let magnitude = v.to_bits() & !SIGN_BIT;
        max = max.max(if magnitude < INFINITY_BITS { magnitude } else { 0 });
    }
    f32::from_bits(max)
}

/// Sums of squares are gathered in this many lanes, whatever the width of the registers, so that
/// every instruction set rounds alike.
const SQUARE_LANES: usize = 8;

#[inline(always)]
fn add_square(lane: &mut f64, value: f32) {
    let value = f64::from(value);
    *lane += value * value;
}

#[inline(always)]
fn momentum_step(
    wire: &[u8],
    momentum: f32,
    h: &mut [f32],
    w: &mut [f32],
    update: impl Fn([u8; 4]) -> f32,
) -> [f64; 2] {
    let mut squares = [[0f64; SQUARE_LANES]; 2];
    let mut step = |lane: usize, x: [u8; 4], h: &mut f32, w: &mut f32| {
        let u = update(x);
        *h = sum_f32(momentum * *h, u);
        *w = sum_f32(*w, *h);
        add_square(&mut squares[0][lane], u);
        add_square(&mut squares[1][lane], *h);
    };
    let (x8, x) = words(wire).as_chunks::<SQUARE_LANES>();
    let (h8, h) = h.as_chunks_mut::<SQUARE_LANES>();
    let (w8, w) = w.as_chunks_mut::<SQUARE_LANES>();
    for ((x, h), w) in x8.iter().zip(h8).zip(w8) {
        for lane in 0..SQUARE_LANES {
            step(lane, x[lane], &mut h[lane], &mut w[lane]);
        }
    }
    for (lane, ((x, h), w)) in x.iter().zip(h).zip(w).enumerate() {
        step(lane, *x, h, w);
    }
    squares.map(|lanes| lanes.iter().sum())
}

#[inline(always)]
fn sum_squares(wire: &[u8], update: impl Fn([u8; 4]) -> f32) -> f64 {
    let mut squares = [0f64; SQUARE_LANES];
    let (x8, x) = words(wire).as_chunks::<SQUARE_LANES>();
    for x in x8 {
        for lane in 0..SQUARE_LANES {
            add_square(&mut squares[lane], update(x[lane]));
        }
    }
    for (lane, x) in squares.iter_mut().zip(x) {
        add_square(lane, update(*x));
    }
    squares.iter().sum()
}

/// The sum of squares in f64, with the bits that a momentum step gives for the same values.
#[must_use]
pub fn squares(values: &[f32]) -> f64 {
    let mut squares = [0f64; SQUARE_LANES];
    let (eights, rest) = values.as_chunks::<SQUARE_LANES>();
    for eight in eights {
        for lane in 0..SQUARE_LANES {
            add_square(&mut squares[lane], eight[lane]);
        }
    }
    for (lane, value) in squares.iter_mut().zip(rest) {
        add_square(lane, *value);
    }
    squares.iter().sum()
}

#[inline(always)]
#[expect(clippy::cast_precision_loss, reason = "a model is f32")]
fn from_fixed(wire: [u8; 4], scale: f32) -> f32 {
    i32::from_be_bytes(wire) as f32 * scale
}

#[inline(always)]
pub(crate) fn momentum_step_i32(
    wire: &[u8],
    scale: f32,
    momentum: f32,
    h: &mut [f32],
    w: &mut [f32],
) -> [f64; 2] {
    momentum_step(wire, momentum, h, w, |x| from_fixed(x, scale))
}

#[inline(always)]
pub(crate) fn momentum_step_f32(
    wire: &[u8],
    scale: f32,
    momentum: f32,
    h: &mut [f32],
    w: &mut [f32],
) -> [f64; 2] {
    momentum_step(wire, momentum, h, w, |x| f32::from_be_bytes(x) * scale)
}

#[inline(always)]
pub(crate) fn sum_squares_i32(wire: &[u8], scale: f32) -> f64 {
    sum_squares(wire, |x| from_fixed(x, scale))
}

#[inline(always)]
pub(crate) fn sum_squares_f32(wire: &[u8], scale: f32) -> f64 {
    sum_squares(wire, |x| f32::from_be_bytes(x) * scale)
}
