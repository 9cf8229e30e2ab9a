//! Fixed-point numbers with one exponent per block, and bf16 (PROTOCOL section 9).
//!
//! A block of values travels as integers: `value = integer * 2^exponent`. The exponent is agreed
//! before any contribution: every member offers [`exponent_for`] its largest magnitude, the
//! greatest offer wins (an allreduce asks with MAX chunks of [`encode_exponent`]), and all use it.
//!
//! Invariants:
//! - With [`clamp_limit`] no sum of `fan_in` contributions overflows an i32, in any order.
//! - A value of magnitude at most the `max_abs` that was offered is never clamped.
//! - The sum of n contributions differs from the exact sum by at most
//!   [`error_bound`] = n * 2^(exponent - 1), half a quantum each, and then by the one rounding of
//!   the integer sum to f32 when it is read.
//! - Both `2^exponent` and `2^-exponent` are normal f32, so scaling is exact until a product
//!   becomes subnormal, and such a product rounds to the integer 0.

/// The smallest legal exponent: what an all-zero block offers, the neutral element of MAX.
pub const EXPONENT_MIN: i8 = -126;

/// The largest legal exponent. With up to 2^28 contributions every finite f32 fits below it.
pub const EXPONENT_MAX: i8 = 126;

/// True for the exponents that mean something, [`EXPONENT_MIN`]`..=`[`EXPONENT_MAX`]: `2^exponent`
/// and `2^-exponent` are normal. Others are refused where they come in, in headers, handshakes and
/// configurations alike (`proto/SPEC.md`, section "Header").
#[inline]
#[must_use]
pub const fn is_exponent(exponent: i8) -> bool {
    EXPONENT_MIN <= exponent && exponent <= EXPONENT_MAX
}

/// Elements that share an exponent: those of one chunk in a 1500-byte MTU.
pub const BLOCK_ELEMENTS: usize = 256;

const MANTISSA_BITS: u32 = 23;
const EXPONENT_BIAS: i32 = 127;

/// Returns floor((2^31 - 1) / `fan_in`), the largest magnitude that a contribution may have.
///
/// A fan-in of 0 counts as 1; beyond 2^31 - 1 nothing but 0 fits.
#[must_use]
pub const fn clamp_limit(fan_in: u32) -> i32 {
    let parts = if fan_in == 0 { 1 } else { fan_in };
    (i32::MAX.cast_unsigned() / parts).cast_signed()
}

/// Returns the smallest exponent at which values of magnitude up to `max_abs` fit
/// [`clamp_limit`]`(fan_in)`.
///
/// Zero and NaN offer [`EXPONENT_MIN`]: they ask for nothing. So do subnormals that need less.
/// Infinity is treated as the greatest finite value. What would need more than [`EXPONENT_MAX`]
/// (a fan-in beyond 2^28 with values near f32's limit) gets that, and is clamped and reported.
#[must_use]
pub fn exponent_for(max_abs: f32, fan_in: u32) -> i8 {
    if max_abs.is_nan() || max_abs == 0.0 {
        return EXPONENT_MIN;
    }
    let limit = clamp_limit(fan_in).unsigned_abs();
    if limit == 0 {
        return EXPONENT_MAX;
    }
    // Both numbers as mantissa * 2^power with the mantissa in [1, 2): the powers give the
    // exponent, the mantissas decide whether one more is needed. All exact, in integers.
    let (mantissa, power) = decompose(max_abs.abs().min(f32::MAX));
    let limit_power = limit.ilog2();
    let fits = u64::from(mantissa) << limit_power <= u64::from(limit) << MANTISSA_BITS;
    let exponent = power - limit_power.cast_signed() + i32::from(!fits);
    let within = exponent.clamp(i32::from(EXPONENT_MIN), i32::from(EXPONENT_MAX));
    i8::try_from(within).unwrap_or(EXPONENT_MAX)
}

/// Returns `2^exponent`: what an integer is multiplied with to give its value.
///
/// Exponents that are not legal ([`is_exponent`]) count as the nearest that is; none comes in.
#[must_use]
pub const fn quantum(exponent: i8) -> f32 {
    power_of_two(within_range(exponent))
}

/// Returns `2^-exponent`: what a value is multiplied with before it is rounded.
#[must_use]
pub const fn inverse_quantum(exponent: i8) -> f32 {
    power_of_two(-within_range(exponent))
}

/// Returns the most by which the integer sum of `fan_in` unclamped contributions, scaled back,
/// differs from the exact sum: half a quantum each. Saturates at infinity.
#[must_use]
pub fn error_bound(exponent: i8, fan_in: u32) -> f64 {
    f64::from(quantum(exponent)) * 0.5 * f64::from(fan_in)
}

/// Returns the element of a MAX chunk that stands for `exponent`; greater exponents have greater
/// elements.
#[must_use]
pub const fn encode_exponent(exponent: i8) -> i32 {
    within_range(exponent)
}

/// Reads an element of a MAX chunk, or nothing when it is not an exponent.
#[must_use]
pub fn decode_exponent(element: i32) -> Option<i8> {
    let exponent = i8::try_from(element).ok()?;
    is_exponent(exponent).then_some(exponent)
}

/// Rounds to bf16, to nearest even. NaN stays NaN, with its sign and the upper payload.
#[must_use]
pub const fn bf16_from_f32(value: f32) -> u16 {
    half::bf16::from_f32_const(value).to_bits()
}

/// Widens bf16 to f32, bit for bit.
#[must_use]
pub const fn f32_from_bf16(bits: u16) -> f32 {
    f32::from_bits((bits as u32) << 16)
}

const fn within_range(exponent: i8) -> i32 {
    let bounded = if exponent < EXPONENT_MIN {
        EXPONENT_MIN
    } else if exponent > EXPONENT_MAX {
        EXPONENT_MAX
    } else {
        exponent
    };
    bounded as i32
}

/// `power` within -126..=127.
const fn power_of_two(power: i32) -> f32 {
    f32::from_bits((power + EXPONENT_BIAS).cast_unsigned() << MANTISSA_BITS)
}

/// Splits a positive finite number into a mantissa with bit 23 set and a power:
/// `value = mantissa * 2^(power - 23)`.
const fn decompose(value: f32) -> (u32, i32) {
    let bits = value.to_bits();
    let biased = (bits >> MANTISSA_BITS).cast_signed();
    let fraction = bits & ((1 << MANTISSA_BITS) - 1);
    if biased == 0 {
        let shift = fraction.leading_zeros() - (u32::BITS - 1 - MANTISSA_BITS);
        (fraction << shift, 1 - EXPONENT_BIAS - shift.cast_signed())
    } else {
        (fraction | 1 << MANTISSA_BITS, biased - EXPONENT_BIAS)
    }
}

#[cfg(test)]
mod tests;
