//! CRC32C (Castagnoli) of a frame's header and payload, PROTOCOL section 8.
//!
//! Datagrams with a payload take the loop of `x86.rs` where the processor has AVX-512 with
//! VPCLMULQDQ; everything else is the crc-fast crate's, which chooses at run time too, but spends
//! 30 ns of each call on other things than the sum. `benches/kernel.rs` has the figures.

use crc_fast::{CrcAlgorithm, Digest};

#[cfg(target_arch = "x86_64")]
mod x86;

/// Returns the CRC32C of `bytes`; 0xe3069283 for `"123456789"`.
#[inline]
#[must_use]
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc32c_append(0, bytes)
}

/// Returns the CRC32C of the bytes that `crc` covers, followed by `bytes`.
///
/// `crc` is what [`crc32c`] or this function returned, 0 for nothing yet.
#[inline]
#[must_use]
pub fn crc32c_append(crc: u32, bytes: &[u8]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if bytes.len() >= x86::LEN_MIN && x86::is_supported() {
        // SAFETY: the processor has just been asked for the function's features.
        return unsafe { x86::crc32c(crc, bytes) };
    }
    any_length(crc, bytes)
}

fn any_length(crc: u32, bytes: &[u8]) -> u32 {
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

    #[test]
    fn every_length_up_to_a_jumbo_payload() {
        let bytes: Vec<u8> =
            (0..2200_u32).map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()[3]).collect();
        for len in 0..bytes.len() {
            assert_eq!(crc32c(&bytes[..len]), bitwise(&bytes[..len]), "{len} bytes");
        }
    }

    proptest! {
        #[test]
        fn equals_the_polynomial(bytes in proptest::collection::vec(any::<u8>(), 0..1200)) {
            prop_assert_eq!(crc32c(&bytes), bitwise(&bytes));
            // What other processors run.
            prop_assert_eq!(any_length(0, &bytes), bitwise(&bytes));
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
