//! CRC32C (Castagnoli) of a frame's header and payload, PROTOCOL section 8.
//!
//! The polynomial arithmetic is the crc-fast crate's, which picks AVX-512 VPCLMULQDQ or SSE4.2
//! with PCLMULQDQ at run time. On 1056 bytes it took two thirds of the time of the crc32c crate
//! on Zen 4; `benches/kernel.rs` has the figure.

use crc_fast::{CrcAlgorithm, Digest};

/// Returns the CRC32C of `bytes`; 0xe3069283 for `"123456789"`.
#[inline]
#[must_use]
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

/// Returns the CRC32C of the bytes that `crc` covers, followed by `bytes`.
///
/// `crc` is what [`crc32c`] or this function returned, 0 for nothing yet.
#[inline]
#[must_use]
pub fn crc32c_append(crc: u32, bytes: &[u8]) -> u32 {
    let state = u64::from(!crc);
    let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, state);
    digest.update(bytes);
    low_half(digest.finalize())
}

#[expect(clippy::cast_possible_truncation, reason = "a 32-bit CRC in a 64-bit result")]
const fn low_half(crc: u64) -> u32 {
    crc as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// One bit at a time, straight from the polynomial (RFC 3720 appendix B.4 has the vectors).
    fn bitwise(bytes: &[u8]) -> u32 {
        const POLYNOMIAL_REFLECTED: u32 = 0x82f6_3b78;
        let mut crc = !0u32;
        for byte in bytes {
            crc ^= u32::from(*byte);
            for _ in 0..8 {
                crc = if crc & 1 == 1 { (crc >> 1) ^ POLYNOMIAL_REFLECTED } else { crc >> 1 };
            }
        }
        !crc
    }

    #[test]
    fn known_vectors() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
        assert_eq!(crc32c(b""), 0);
    }

    proptest! {
        #[test]
        fn equals_the_polynomial(bytes in proptest::collection::vec(any::<u8>(), 0..1200)) {
            prop_assert_eq!(crc32c(&bytes), bitwise(&bytes));
        }

        #[test]
        fn appending_equals_one_pass(
            bytes in proptest::collection::vec(any::<u8>(), 0..1200),
            cut in 0.0..1.0,
        ) {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0..=len")]
            let (head, tail) = bytes.split_at((bytes.len() as f64 * cut) as usize);
            prop_assert_eq!(crc32c_append(crc32c(head), tail), bitwise(&bytes));
        }
    }
}
