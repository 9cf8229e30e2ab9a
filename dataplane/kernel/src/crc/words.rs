//! CRC32C with the `crc32` instruction, for processors without VPCLMULQDQ on 64 bytes: three
//! chains, for each instruction waits three cycles for the one before it.
//!
//! A stretch of bytes is cut into three pieces of equal length, each with a register of its own.
//! What stands in front of `n` bits counts x^n times; so one multiplication a piece, by constants
//! of its length, puts the three together. Method: Gopal et al., "Fast CRC computation for iSCSI
//! polynomial using CRC32 instruction", Intel 2011.

use std::arch::x86_64::{
    _mm_clmulepi64_si128, _mm_crc32_u8, _mm_crc32_u64, _mm_cvtsi64_si128, _mm_cvtsi128_si64,
    _mm_xor_si128,
};

use super::{HEAD, ONE, POLYNOMIAL};

/// True when the processor has all that [`crc32c`] needs.
#[inline]
pub(super) fn is_supported() -> bool {
    use std::arch::is_x86_feature_detected as has;
    has!("sse4.2") && has!("pclmulqdq")
}

/// The CRC32C of `bytes`, going on from `crc`; the four bytes from `BLANK` on count as 0 if they
/// are in the head.
#[target_feature(enable = "sse4.2,pclmulqdq")]
pub(super) fn crc32c<const BLANK: usize>(crc: u32, bytes: &[u8]) -> u32 {
    let (head, rest) = bytes.split_at(HEAD.min(bytes.len()));
    let (words, odd) = head.as_chunks();
    let state = blanked::<BLANK>(u64::from(!crc), words);
    let (words, tail) = rest.as_chunks();
    let state = in_three(state, words);
    // One of the two is empty.
    let state =
        odd.iter().chain(tail).fold(low_half(state), |state, byte| _mm_crc32_u8(state, *byte));
    !state
}

/// Goes on from `state` over the words of a head.
#[inline]
#[target_feature(enable = "sse4.2")]
pub(super) fn blanked<const BLANK: usize>(state: u64, head: &[[u8; 8]]) -> u64 {
    head.iter().enumerate().fold(state, |state, (index, word)| {
        let word = u64::from_le_bytes(*word);
        let blank = 0xffff_ffff << (BLANK % 8 * 8);
        _mm_crc32_u64(state, if index == BLANK / 8 { word & !blank } else { word })
    })
}

#[inline]
#[target_feature(enable = "sse4.2,pclmulqdq")]
fn in_three(mut state: u64, mut words: &[[u8; 8]]) -> u64 {
    while words.len() >= WORTH_IT {
        let len = (words.len() / 3).min(PIECE_MAX);
        let (first, behind) = words.split_at(len);
        let (second, behind) = behind.split_at(len);
        let (third, behind) = behind.split_at(len);
        let (mut b, mut c) = (0, 0);
        for ((first, second), third) in first.iter().zip(second).zip(third) {
            state = _mm_crc32_u64(state, u64::from_le_bytes(*first));
            b = _mm_crc32_u64(b, u64::from_le_bytes(*second));
            c = _mm_crc32_u64(c, u64::from_le_bytes(*third));
        }
        let [one, two] = PIECES[len];
        let moved = _mm_xor_si128(
            _mm_clmulepi64_si128::<0>(register(state), register(two)),
            _mm_clmulepi64_si128::<0>(register(b), register(one)),
        );
        state = c ^ _mm_crc32_u64(0, _mm_cvtsi128_si64(moved).cast_unsigned());
        words = behind;
    }
    words.iter().fold(state, |state, word| _mm_crc32_u64(state, u64::from_le_bytes(*word)))
}

#[inline]
#[target_feature(enable = "sse2")]
fn register(word: u64) -> std::arch::x86_64::__m128i {
    _mm_cvtsi64_si128(word.cast_signed())
}

/// For pieces of so many words: what moves a register over one piece, and over two. A product of
/// reflected numbers comes out one power too high, and is then reduced with 32 more: so 33 less.
const PIECES: [[u64; 2]; PIECE_MAX + 1] = {
    let mut pieces = [[0; 2]; PIECE_MAX + 1];
    // x^31 stands for the 64 bits of one word.
    let (mut one, mut two) = (times_x(ONE, 31), times_x(ONE, 95));
    let mut len = 1;
    while len <= PIECE_MAX {
        pieces[len] = [one as u64, two as u64];
        (one, two) = (times_x(one, 64), times_x(two, 128));
        len += 1;
    }
    pieces
};

/// `n` times x, modulo the polynomial, bits reflected.
pub(super) const fn times_x(mut polynomial: u32, n: u32) -> u32 {
    let mut power = 0;
    while power < n {
        polynomial = (polynomial >> 1) ^ (POLYNOMIAL * (polynomial & 1));
        power += 1;
    }
    polynomial
}

/// The 32 bits that a CRC register has.
#[expect(clippy::cast_possible_truncation, reason = "the instruction clears the upper half")]
pub(super) const fn low_half(state: u64) -> u32 {
    state as u32
}

/// Words of a piece at most: what a frame of 1500 bytes has in three.
const PIECE_MAX: usize = 64;
/// Fewer words are faster in one chain.
const WORTH_IT: usize = 12;
