//! A set of steps near a low mark: which sums a member holds, or which a box wants handed over.
//!
//! On the wire it is `low_step` and a bitmap: bit `j` is bit `j % 8`, most significant first, of
//! byte `j / 8`, and stands for step `low + j` (SPEC#handshake). Every step below `low` is in a
//! *held* set by definition; a *wanted* set has none there.

use alloc::vec;
use alloc::vec::Vec;

use weft_wire::header::HEADER_LEN;
use weft_wire::hello::{BODY_LEN, STEP_BITS_MAX};

use crate::table::WINDOW_MAX;

/// How many windows a member may run ahead of its lowest missing step.
pub const AHEAD_WINDOWS: u32 = 4;

/// Bytes of the bitmap that goes with a lane of `window` slots.
const fn bitmap_len(window: u32) -> usize {
    (window * AHEAD_WINDOWS).div_ceil(8) as usize
}

/// Longest UDP payload of a handshake over a lane of `window` slots, probes aside: a JOIN or a
/// WELCOME with the whole bitmap.
#[must_use]
pub const fn handshake_len(window: u32) -> usize {
    HEADER_LEN + BODY_LEN + bitmap_len(window)
}

const _: () = assert!(WINDOW_MAX * AHEAD_WINDOWS as usize <= STEP_BITS_MAX);

/// Bits for steps `low .. low + capacity`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct StepSet {
    low: u32,
    bytes: Vec<u8>,
}

impl StepSet {
    /// An empty set with room for [`AHEAD_WINDOWS`] windows above `low`.
    #[must_use]
    pub fn new(window: u32) -> Self {
        Self { low: 0, bytes: vec![0; bitmap_len(window)] }
    }

    /// The same memory as an empty set of another window, which must not be larger than that it
    /// was made for.
    pub(crate) fn renew(&mut self, window: u32) {
        debug_assert!(bitmap_len(window) <= self.bytes.capacity(), "no allocation");
        self.low = 0;
        self.bytes.clear();
        self.bytes.resize(bitmap_len(window), 0);
    }

    /// The low mark.
    #[must_use]
    pub fn low(&self) -> u32 {
        self.low
    }

    /// Steps above `low` that the set can tell of.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        u32::try_from(self.bytes.len() * 8).expect("a set covers at most 8192 steps")
    }

    /// The bitmap as it goes on the wire.
    #[must_use]
    pub fn bitmap(&self) -> &[u8] {
        &self.bytes
    }

    /// Empties the set and moves the low mark.
    pub fn reset(&mut self, low: u32) {
        self.low = low;
        self.bytes.fill(0);
    }

    /// Takes a set from the wire; false (and unchanged) when it does not fit.
    pub fn load(&mut self, low: u32, bitmap: &[u8]) -> bool {
        if bitmap.len() > self.bytes.len() {
            return false;
        }
        self.reset(low);
        self.bytes[..bitmap.len()].copy_from_slice(bitmap);
        true
    }

    /// True when the step's bit is set; steps outside the bitmap are not.
    #[must_use]
    pub fn has_bit(&self, step: u32) -> bool {
        self.offset(step).is_some_and(|(byte, bit)| self.bytes[byte] & bit != 0)
    }

    /// As a held set: below `low`, or with its bit set.
    #[must_use]
    pub fn holds(&self, step: u32) -> bool {
        step < self.low || self.has_bit(step)
    }

    /// Sets a step's bit; false when it is out of reach.
    pub fn insert(&mut self, step: u32) -> bool {
        self.offset(step).is_some_and(|(byte, bit)| {
            self.bytes[byte] |= bit;
            true
        })
    }

    /// Clears a step's bit; true when it was set.
    pub fn remove(&mut self, step: u32) -> bool {
        self.offset(step).is_some_and(|(byte, bit)| {
            let had = self.bytes[byte] & bit != 0;
            self.bytes[byte] &= !bit;
            had
        })
    }

    /// True when no bit is set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.iter().all(|byte| *byte == 0)
    }

    /// The steps whose bits are set, in increasing order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.capacity()).map(|j| self.low.wrapping_add(j)).filter(|step| self.has_bit(*step))
    }

    fn offset(&self, step: u32) -> Option<(usize, u8)> {
        let j = step.checked_sub(self.low)?;
        (j < self.capacity()).then(|| place(j))
    }
}

/// True when bit `j` of a bitmap from the wire is set; bits behind its end are not.
#[must_use]
pub fn step_bit(bitmap: &[u8], j: u16) -> bool {
    let (byte, bit) = place(u32::from(j));
    bitmap.get(byte).is_some_and(|octet| octet & bit != 0)
}

/// Sets bit `j` of a bitmap for the wire.
///
/// # Panics
/// If the bitmap is shorter than that.
pub fn set_step_bit(bitmap: &mut [u8], j: u16) {
    let (byte, bit) = place(u32::from(j));
    bitmap[byte] |= bit;
}

/// The byte and the mask of bit `j`.
const fn place(j: u32) -> (usize, u8) {
    ((j / 8) as usize, 0x80 >> (j % 8))
}
