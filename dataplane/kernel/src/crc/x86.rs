//! CRC32C with carry-less multiplication, for datagrams: one pass, four accumulators of 64 bytes.
//!
//! A block of 64 bytes is four polynomials of degree 127, one per lane, whose lowest byte holds the
//! highest powers. Moving a lane `n` bits up is one multiplication of each of its halves by a
//! constant ([`fold_by`]), so blocks are folded onto each other until one lane of 16 bytes is left;
//! `crc32` instructions bring that, and what did not fill a block, down to 32 bits. Method: Gopal
//! et al., "Fast CRC computation using PCLMULQDQ", Intel 2009, in its bit-reflected form.

use std::arch::x86_64::{
    __m128i, __m512i, _mm_crc32_u8, _mm_crc32_u64, _mm_cvtsi32_si128, _mm_cvtsi128_si64,
    _mm_extract_epi64, _mm_xor_si128, _mm512_clmulepi64_epi128, _mm512_extracti32x4_epi32,
    _mm512_loadu_si512, _mm512_set_epi64, _mm512_ternarylogic_epi64, _mm512_xor_si512,
    _mm512_zextsi128_si512,
};

use super::words::{blanked, low_half, times_x};
use super::{HEAD, ONE};

/// Shorter than this, words are as fast.
pub(super) const LEN_MIN: usize = HEAD + 4 * BLOCK;

const BLOCK: usize = 64;

/// True when the processor has all that [`crc32c`] needs.
#[inline]
pub(super) fn is_supported() -> bool {
    use std::arch::is_x86_feature_detected as has;
    has!("avx512f") && has!("vpclmulqdq") && has!("sse4.2")
}

/// The CRC32C of `bytes`, of which there are at least [`LEN_MIN`], going on from `crc`; the four
/// bytes from `BLANK` on count as 0 if they are in the head.
#[target_feature(enable = "avx512f,vpclmulqdq,pclmulqdq,sse4.2")]
pub(super) fn crc32c<const BLANK: usize>(crc: u32, bytes: &[u8]) -> u32 {
    let (head, rest) = bytes.split_at(HEAD);
    let (words, _) = head.as_chunks();
    let state = blanked::<BLANK>(u64::from(!crc), words);
    let (blocks, tail) = rest.as_chunks::<BLOCK>();
    let (four, mut blocks) = blocks.split_at(4);
    let mut sums = [load(&four[0]), load(&four[1]), load(&four[2]), load(&four[3])];
    let state = _mm_cvtsi32_si128(low_half(state).cast_signed());
    sums[0] = _mm512_xor_si512(sums[0], _mm512_zextsi128_si512(state));
    while let Some((next, left)) = blocks.split_first_chunk::<4>() {
        for (sum, block) in sums.iter_mut().zip(next) {
            *sum = fold(*sum, constants(const { [fold_by(4 * 512); 4] }), load(block));
        }
        blocks = left;
    }
    // Each accumulator onto the last, at once.
    let mut sum = sums[3];
    sum = fold(sums[0], constants(const { [fold_by(3 * 512); 4] }), sum);
    sum = fold(sums[1], constants(const { [fold_by(2 * 512); 4] }), sum);
    sum = fold(sums[2], constants(const { [fold_by(512); 4] }), sum);
    for block in blocks {
        sum = fold(sum, constants(const { [fold_by(512); 4] }), load(block));
    }
    let mut state = last_lane(sum);
    let (whole, bytes) = tail.as_chunks::<8>();
    for word in whole {
        state = _mm_crc32_u64(state, u64::from_le_bytes(*word));
    }
    let mut state = low_half(state);
    for byte in bytes {
        state = _mm_crc32_u8(state, *byte);
    }
    !state
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load(block: &[u8; BLOCK]) -> __m512i {
    // SAFETY: the block has the 64 bytes that are read, and any alignment will do.
    unsafe { _mm512_loadu_si512(block.as_ptr().cast()) }
}

/// `sum` moved up by what `by` stands for, plus `onto`.
#[inline]
#[target_feature(enable = "avx512f,vpclmulqdq")]
fn fold(sum: __m512i, by: __m512i, onto: __m512i) -> __m512i {
    /// Of three operands, the exclusive or.
    const XOR: i32 = 0x96;
    let high = _mm512_clmulepi64_epi128::<0x00>(sum, by);
    let low = _mm512_clmulepi64_epi128::<0x11>(sum, by);
    _mm512_ternarylogic_epi64::<XOR>(high, low, onto)
}

/// Folds the four lanes onto the last, and that down to a CRC register.
#[inline]
#[target_feature(enable = "avx512f,vpclmulqdq,pclmulqdq,sse4.2")]
fn last_lane(sum: __m512i) -> u64 {
    const BY: [[u64; 2]; 4] = [fold_by(384), fold_by(256), fold_by(128), [0, 0]];
    let moved = fold(sum, constants(BY), _mm512_zextsi128_si512(_mm_cvtsi32_si128(0)));
    let lanes: [__m128i; 4] = [
        _mm512_extracti32x4_epi32::<0>(moved),
        _mm512_extracti32x4_epi32::<1>(moved),
        _mm512_extracti32x4_epi32::<2>(moved),
        _mm512_extracti32x4_epi32::<3>(sum),
    ];
    let lane = _mm_xor_si128(_mm_xor_si128(lanes[0], lanes[1]), _mm_xor_si128(lanes[2], lanes[3]));
    let state = _mm_crc32_u64(0, _mm_cvtsi128_si64(lane).cast_unsigned());
    _mm_crc32_u64(state, _mm_extract_epi64::<1>(lane).cast_unsigned())
}

#[inline]
#[target_feature(enable = "avx512f")]
fn constants(lanes: [[u64; 2]; 4]) -> __m512i {
    let word = |lane: usize, half: usize| lanes[lane][half].cast_signed();
    _mm512_set_epi64(
        word(3, 1),
        word(3, 0),
        word(2, 1),
        word(2, 0),
        word(1, 1),
        word(1, 0),
        word(0, 1),
        word(0, 0),
    )
}

/// What moves the two halves of a lane up by `bits`. The first half stands 64 powers higher; a
/// reflected product comes out one power too high, and a constant in the low 32 bits of a word
/// stands 32 powers higher than it says: together 33.
const fn fold_by(bits: u32) -> [u64; 2] {
    [times_x(ONE, bits + 64 - 33) as u64, times_x(ONE, bits - 33) as u64]
}
