//! CRC32C (Castagnoli) of a frame's header and payload, PROTOCOL section 8.
//!
//! Datagrams with a payload take the loop of `x86.rs` where the processor has AVX-512 with
//! VPCLMULQDQ, and that of `words.rs` where it has the `crc32` instruction; everything else is the
//! crc-fast crate's, which chooses at run time too, but spends 30 ns of each call on other things
//! than the sum. `benches/kernel.rs` has the figures.

use crc_fast::{CrcAlgorithm, Digest};

#[cfg(target_arch = "x86_64")]
mod words;
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
    if let Some(crc) = with_instructions::<NO_BLANK>(crc, bytes) {
        return crc;
    }
    any_length(crc, bytes)
}

/// Returns the CRC32C of `bytes` with the four from `AT` on as 0, which are among the first 32.
///
/// So a datagram's own CRC can be checked without writing to it: a field that was just zeroed makes
/// the wider reads that follow wait until it has reached the cache.
///
/// # Panics
/// If `bytes` are fewer than 32.
#[inline]
#[must_use]
pub fn crc32c_blank<const AT: usize>(bytes: &[u8]) -> u32 {
    const { assert!(AT.is_multiple_of(4) && AT < HEAD) };
    #[cfg(target_arch = "x86_64")]
    if bytes.len() >= HEAD
        && let Some(crc) = with_instructions::<AT>(0, bytes)
    {
        return crc;
    }
    let (head, rest) = bytes.split_first_chunk::<HEAD>().expect("a datagram has a header");
    let mut head = *head;
    head[AT..AT + 4].fill(0);
    any_length(any_length(0, &head), rest)
}

/// The CRC32C by the processor's own instructions, if it has them.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn with_instructions<const BLANK: usize>(crc: u32, bytes: &[u8]) -> Option<u32> {
    if bytes.len() >= x86::LEN_MIN && x86::is_supported() {
        // SAFETY: the processor has just been asked for the function's features.
        return Some(unsafe { x86::crc32c::<BLANK>(crc, bytes) });
    }
    // SAFETY: as above.
    words::is_supported().then(|| unsafe { words::crc32c::<BLANK>(crc, bytes) })
}

/// Weft's header goes ahead by itself: its sender or checker has just written fields of it, and a
/// wide load would wait for those stores.
const HEAD: usize = 32;
/// No field is blank.
#[cfg(target_arch = "x86_64")]
const NO_BLANK: usize = HEAD;

fn any_length(crc: u32, bytes: &[u8]) -> u32 {
    let state = u64::from(!crc);
    let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, state);
    digest.update(bytes);
    low_half(digest.finalize())
}

/// How a change in front of `len` bytes changes the CRC32C of the whole, without those bytes.
///
/// A CRC is linear: of two messages of one length, the CRCs differ by what their difference alone
/// makes of them. So a datagram's header can be rewritten and its CRC be mended in some 40 steps,
/// however long the payload is, and wherever it lies.
///
/// ```
/// use weft_kernel::{CrcPatch, crc32c};
///
/// let patch = CrcPatch::before(3);
/// assert_eq!(patch.apply(crc32c(b"one, two"), b"one, ", b"1111,"), crc32c(b"1111,two"));
/// ```
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct CrcPatch {
    /// x to the power of the bits behind the change, modulo the polynomial, bits reflected.
    shift: u32,
}

impl CrcPatch {
    /// Prepares for changes in front of `len` bytes. Takes time with the logarithm of `len`.
    #[must_use]
    pub fn before(len: usize) -> Self {
        let (mut shift, mut square, mut rest) = (ONE, ONE >> 8, len);
        while rest > 0 {
            if rest & 1 == 1 {
                shift = multiply(shift, square);
            }
            square = multiply(square, square);
            rest >>= 1;
        }
        Self { shift }
    }

    /// The CRC32C of a message that began with `old` and had the CRC `crc`, once it begins with
    /// `new`.
    ///
    /// # Panics
    /// If the two are not equally long, or longer than 64 bytes.
    #[must_use]
    pub fn apply(self, crc: u32, old: &[u8], new: &[u8]) -> u32 {
        assert_eq!(old.len(), new.len(), "a change keeps the length");
        let mut difference = [0; 64];
        for (out, (old, new)) in difference.iter_mut().zip(old.iter().zip(new)) {
            *out = old ^ new;
        }
        // What the CRC's initial value and final complement make of zeros cancels out.
        let alone = crc32c(&difference[..old.len()]) ^ crc32c(&[0; 64][..old.len()]);
        crc ^ multiply(alone, self.shift)
    }
}

/// The polynomial 1: bits are reflected, so it is the topmost.
const ONE: u32 = 1 << 31;
/// x^32 modulo the polynomial, bits reflected (RFC 3720).
const POLYNOMIAL: u32 = 0x82f6_3b78;

/// The product of two polynomials modulo CRC32C's.
const fn multiply(a: u32, mut b: u32) -> u32 {
    let mut product = 0;
    let mut bit = 0;
    while bit < 32 {
        if a & (ONE >> bit) != 0 {
            product ^= b;
        }
        b = (b >> 1) ^ (POLYNOMIAL * (b & 1));
        bit += 1;
    }
    product
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

        #[cfg(target_arch = "x86_64")]
        #[test]
        fn three_chains_equal_one(
            crc: u32,
            mut bytes in proptest::collection::vec(any::<u8>(), 0..4000),
        ) {
            if words::is_supported() {
                // SAFETY: the processor has just been asked.
                let whole = unsafe { words::crc32c::<NO_BLANK>(crc, &bytes) };
                prop_assert_eq!(whole, any_length(crc, &bytes));
                if bytes.len() >= HEAD {
                    // SAFETY: as above.
                    let blank = unsafe { words::crc32c::<20>(crc, &bytes) };
                    bytes[20..24].fill(0);
                    prop_assert_eq!(blank, any_length(crc, &bytes));
                }
            }
        }

        #[test]
        fn a_blank_field_counts_as_zeros(
            mut bytes in proptest::collection::vec(any::<u8>(), 32..1200),
        ) {
            let blank = [crc32c_blank::<20>(&bytes), crc32c_blank::<0>(&bytes)];
            let mut first = bytes.clone();
            first[..4].fill(0);
            bytes[20..24].fill(0);
            prop_assert_eq!(blank, [bitwise(&bytes), bitwise(&first)]);
        }

        #[test]
        fn a_patched_crc_is_the_crc_of_the_patched_message(
            mut bytes in proptest::collection::vec(any::<u8>(), 64..1200),
            new in proptest::collection::vec(any::<u8>(), 0..64),
        ) {
            let crc = crc32c(&bytes);
            let patch = CrcPatch::before(bytes.len() - new.len());
            let patched = patch.apply(crc, &bytes[..new.len()], &new);
            bytes[..new.len()].copy_from_slice(&new);
            prop_assert_eq!(patched, bitwise(&bytes));
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
