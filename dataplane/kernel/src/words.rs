//! Words of memory, read as either kind of number: what a slot holds is its lease's affair.

/// The same words as floating-point numbers.
#[inline(always)]
#[must_use]
pub fn as_f32(words: &[i32]) -> &[f32] {
    // SAFETY: both types have four bytes and the same alignment, and every bit pattern is a value
    // of each; the length is the same, and the borrow goes on in the result.
    // JUSTIFICATION: memory that is taken once serves leases of either type.
    unsafe { core::slice::from_raw_parts(words.as_ptr().cast(), words.len()) }
}

/// The same words as floating-point numbers, writable.
#[inline(always)]
#[must_use]
pub fn as_f32_mut(words: &mut [i32]) -> &mut [f32] {
    // SAFETY: as in `as_f32`; the exclusive borrow goes on in the result.
    // JUSTIFICATION: as there.
    unsafe { core::slice::from_raw_parts_mut(words.as_mut_ptr().cast(), words.len()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_are_the_same_bits() {
        let mut words = [0, 1.5f32.to_bits().cast_signed(), -1];
        assert_eq!(as_f32(&words)[1], 1.5);
        as_f32_mut(&mut words)[0] = -2.0;
        assert_eq!(words[0].cast_unsigned(), (-2.0f32).to_bits());
        assert!(as_f32(&words)[2].is_nan());
        assert!(as_f32(&[]).is_empty() && as_f32_mut(&mut []).is_empty());
    }
}
