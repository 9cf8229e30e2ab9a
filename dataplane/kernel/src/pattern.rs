//! Comparing headers with what is expected of them, some bits left out.

/// Bytes that one comparison takes.
pub const PATTERN_LEN: usize = 64;

/// Bytes to compare with, or a mask of bits that count, aligned for the registers that compare.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(C, align(16))]
pub struct Pattern(pub [u8; PATTERN_LEN]);

impl Pattern {
    /// True when `bytes` are these in all bits that are set in `mask`. Bits that are not must be 0
    /// in `self`. Four registers of 16 bytes and one branch: a compiler makes a branch for every
    /// eight bytes of it.
    #[inline(always)]
    #[must_use]
    pub fn matches(&self, mask: &Self, bytes: &[u8; PATTERN_LEN]) -> bool {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::x86_64::{
                __m128i, _mm_and_si128, _mm_cmpeq_epi8, _mm_load_si128, _mm_loadu_si128,
                _mm_movemask_epi8, _mm_or_si128, _mm_setzero_si128, _mm_xor_si128,
            };
            const ALL_EQUAL: i32 = 0xffff;
            // SAFETY: SSE2 is part of x86_64. Each pointer is to 64 bytes, of which the loop reads
            // four times 16, and `Pattern` is aligned to 16.
            unsafe {
                let mut differ = _mm_setzero_si128();
                for block in 0..PATTERN_LEN / size_of::<__m128i>() {
                    let taken = _mm_loadu_si128(bytes.as_ptr().cast::<__m128i>().add(block));
                    let mask = _mm_load_si128(mask.0.as_ptr().cast::<__m128i>().add(block));
                    let wanted = _mm_load_si128(self.0.as_ptr().cast::<__m128i>().add(block));
                    let differs = _mm_xor_si128(_mm_and_si128(taken, mask), wanted);
                    differ = _mm_or_si128(differ, differs);
                }
                _mm_movemask_epi8(_mm_cmpeq_epi8(differ, _mm_setzero_si128())) == ALL_EQUAL
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        {
            self.matches_portably(mask, bytes)
        }
    }

    #[cfg(any(test, not(target_arch = "x86_64")))]
    fn matches_portably(&self, mask: &Self, bytes: &[u8; PATTERN_LEN]) -> bool {
        let masked = bytes.iter().zip(&mask.0).map(|(byte, mask)| byte & mask);
        masked.eq(self.0.iter().copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn each_bit_counts_as_the_mask_says() {
        let bytes: [u8; PATTERN_LEN] = std::array::from_fn(|at| u8::try_from(at * 3).unwrap());
        for bit in 0..PATTERN_LEN * 8 {
            let (at, bit) = (bit / 8, 1 << (bit % 8));
            let mut other = bytes;
            other[at] ^= bit;
            let all = Pattern([0xff; PATTERN_LEN]);
            assert!(Pattern(bytes).matches(&all, &bytes));
            assert!(!Pattern(bytes).matches(&all, &other));
            let mut mask = all;
            mask.0[at] ^= bit;
            let mut wanted = Pattern(bytes);
            wanted.0[at] &= !bit;
            assert!(wanted.matches(&mask, &bytes) && wanted.matches(&mask, &other));
        }
    }

    proptest! {
        #[test]
        fn registers_and_bytes_agree(
            // Lengths of arrays are bounded in the strategies, so these are halves.
            mask in any::<([u8; 32], [u8; 32])>(),
            bytes in any::<([u8; 32], [u8; 32])>(),
            spoilt in proptest::option::of(0..PATTERN_LEN),
        ) {
            let join = |(a, b): ([u8; 32], [u8; 32])| -> [u8; PATTERN_LEN] {
                [a, b].concat().try_into().unwrap()
            };
            let (mask, bytes) = (Pattern(join(mask)), join(bytes));
            let mut wanted = Pattern(std::array::from_fn(|at| bytes[at] & mask.0[at]));
            if let Some(at) = spoilt {
                wanted.0[at] ^= 0x10;
            }
            prop_assert_eq!(wanted.matches(&mask, &bytes), spoilt.is_none());
            prop_assert_eq!(wanted.matches_portably(&mask, &bytes), spoilt.is_none());
        }
    }
}
