//! The operations as the engine calls them: methods that check lengths, then jump.
//!
//! Each method checks its lengths with one assertion; they are our own invariants, for the engine
//! has compared the element count with the group's row before it touches a slot.
//!
//! The packet side (`wire`) is big-endian at any alignment, the slot side in host order. `store_*`
//! is a slot's first contribution, so slots are never zeroed. `*_emit` completes a slot: the sum
//! stays in the slot, to be kept, and goes into the packet, to be sent (PROTOCOL section 10). For
//! the same inputs in the same order every instruction set gives the same bits (DESIGN I2, I10).
//!
//! Cost per packet: one pass over slot and payload, and one indirect call.

use crate::table::Kernels;

mod ahead;
mod run;

pub use run::RUN_MAX;

impl Kernels {
    /// Stores a slot's first contribution.
    ///
    /// # Panics
    ///
    /// If `wire` is not 4 bytes per element of `slot`.
    #[inline]
    pub fn store_i32(&self, slot: &mut [i32], wire: &[u8]) {
        assert_eq!(wire.len(), slot.len() * WORD, "payload and slot differ in length");
        // SAFETY: holding a `Kernels` proves that the processor has the function's features.
        unsafe { (self.store_i32)(slot, wire) };
    }

    /// Adds a contribution; sums wrap.
    ///
    /// # Panics
    ///
    /// If `wire` is not 4 bytes per element of `slot`.
    #[inline]
    pub fn add_i32(&self, slot: &mut [i32], wire: &[u8]) {
        assert_eq!(wire.len(), slot.len() * WORD, "payload and slot differ in length");
        // SAFETY: holding a `Kernels` proves that the processor has the function's features.
        unsafe { (self.add_i32)(slot, wire) };
    }

    /// Adds the last contribution and writes the sum over it in the packet.
    ///
    /// # Panics
    ///
    /// If `wire` is not 4 bytes per element of `slot`.
    #[inline]
    pub fn add_i32_emit(&self, slot: &mut [i32], wire: &mut [u8]) {
        assert_eq!(wire.len(), slot.len() * WORD, "payload and slot differ in length");
        // SAFETY: holding a `Kernels` proves that the processor has the function's features.
        unsafe { (self.add_i32_emit)(slot, wire) };
    }

    /// Stores a slot's first contribution with every element clamped to ±`limit`.
    ///
    /// Returns whether an element was clamped. With the limit of the group's fan-in
    /// (`weft_wire::quant::clamp_limit`) no sum can overflow, whatever the arrival order.
    ///
    /// # Panics
    ///
    /// If `wire` is not 4 bytes per element of `slot`, or `limit` is negative.
    #[inline]
    pub fn store_i32_clamped(&self, slot: &mut [i32], wire: &[u8], limit: i32) -> bool {
        assert_eq!(wire.len(), slot.len() * WORD, "payload and slot differ in length");
        assert!(limit >= 0, "a negative clamp limit");
        // SAFETY: holding a `Kernels` proves that the processor has the function's features.
        unsafe { (self.store_i32_clamped)(slot, wire, limit) }
    }

    /// Clamps a contribution's elements to ±`limit` and adds them.
    ///
    /// Returns whether an element was clamped.
    ///
    /// # Panics
    ///
    /// If `wire` is not 4 bytes per element of `slot`, or `limit` is negative.
    #[inline]
    pub fn add_i32_clamped(&self, slot: &mut [i32], wire: &[u8], limit: i32) -> bool {
        assert_eq!(wire.len(), slot.len() * WORD, "payload and slot differ in length");
        assert!(limit >= 0, "a negative clamp limit");
        // SAFETY: holding a `Kernels` proves that the processor has the function's features.
        unsafe { (self.add_i32_clamped)(slot, wire, limit) }
    }

    /// Clamps and adds the last contribution and writes the sum over it in the packet.
    ///
    /// Returns whether an element was clamped.
    ///
    /// # Panics
    ///
    /// If `wire` is not 4 bytes per element of `slot`, or `limit` is negative.
    #[inline]
    pub fn add_i32_clamped_emit(&self, slot: &mut [i32], wire: &mut [u8], limit: i32) -> bool {
        assert_eq!(wire.len(), slot.len() * WORD, "payload and slot differ in length");
        assert!(limit >= 0, "a negative clamp limit");
        // SAFETY: holding a `Kernels` proves that the processor has the function's features.
        unsafe { (self.add_i32_clamped_emit)(slot, wire, limit) }
    }

    /// Keeps the greater of slot and contribution; the first contribution is stored.
    ///
    /// # Panics
    ///
    /// If `wire` is not 4 bytes per element of `slot`.
    #[inline]
    pub fn max_i32(&self, slot: &mut [i32], wire: &[u8]) {
        assert_eq!(wire.len(), slot.len() * WORD, "payload and slot differ in length");
        // SAFETY: holding a `Kernels` proves that the processor has the function's features.
        unsafe { (self.max_i32)(slot, wire) };
    }

    /// Takes the maximum with the last contribution and writes it over it in the packet.
    ///
    /// # Panics
    ///
    /// If `wire` is not 4 bytes per element of `slot`.
    #[inline]
    pub fn max_i32_emit(&self, slot: &mut [i32], wire: &mut [u8]) {
        assert_eq!(wire.len(), slot.len() * WORD, "payload and slot differ in length");
        // SAFETY: holding a `Kernels` proves that the processor has the function's features.
        unsafe { (self.max_i32_emit)(slot, wire) };
    }

    /// Writes a kept answer into a packet.
    ///
    /// # Panics
    ///
    /// If `wire` is not 4 bytes per element of `slot`.
    #[inline]
    pub fn emit_i32(&self, slot: &[i32], wire: &mut [u8]) {
        assert_eq!(wire.len(), slot.len() * WORD, "payload and slot differ in length");
        // SAFETY: holding a `Kernels` proves that the processor has the function's features.
        unsafe { (self.emit_i32)(slot, wire) };
    }

    /// Stores a slot's first contribution, bit for bit.
    ///
    /// # Panics
    ///
    /// If `wire` is not 4 bytes per element of `slot`.
    #[inline]
    pub fn store_f32(&self, slot: &mut [f32], wire: &[u8]) {
        assert_eq!(wire.len(), slot.len() * WORD, "payload and slot differ in length");
        // SAFETY: holding a `Kernels` proves that the processor has the function's features.
        unsafe { (self.store_f32)(slot, wire) };
    }

    /// Adds a contribution in arrival order; a sum that is NaN is the one NaN `7fc00000`.
    ///
    /// # Panics
    ///
    /// If `wire` is not 4 bytes per element of `slot`.
    #[inline]
    pub fn add_f32(&self, slot: &mut [f32], wire: &[u8]) {
        assert_eq!(wire.len(), slot.len() * WORD, "payload and slot differ in length");
        // SAFETY: holding a `Kernels` proves that the processor has the function's features.
        unsafe { (self.add_f32)(slot, wire) };
    }

    /// Adds the last contribution and writes the sum over it in the packet.
    ///
    /// # Panics
    ///
    /// If `wire` is not 4 bytes per element of `slot`.
    #[inline]
    pub fn add_f32_emit(&self, slot: &mut [f32], wire: &mut [u8]) {
        assert_eq!(wire.len(), slot.len() * WORD, "payload and slot differ in length");
        // SAFETY: holding a `Kernels` proves that the processor has the function's features.
        unsafe { (self.add_f32_emit)(slot, wire) };
    }

    /// Writes a kept answer into a packet, bit for bit.
    ///
    /// # Panics
    ///
    /// If `wire` is not 4 bytes per element of `slot`.
    #[inline]
    pub fn emit_f32(&self, slot: &[f32], wire: &mut [u8]) {
        assert_eq!(wire.len(), slot.len() * WORD, "payload and slot differ in length");
        // SAFETY: holding a `Kernels` proves that the processor has the function's features.
        unsafe { (self.emit_f32)(slot, wire) };
    }

    /// Sums one row per rank from left to right, into the slot and into the packet.
    ///
    /// `rows` holds the rows back to back, each `stride` elements long, of which the first
    /// `slot.len()` count. This is the bit-reproducible mode: the order is the ranks', not the
    /// packets'.
    ///
    /// # Panics
    ///
    /// If `wire` is not 4 bytes per element of `slot`, or `rows` is not one or more whole rows
    /// that are at least as long as `slot`.
    #[inline]
    pub fn sum_rows_f32_emit(
        &self,
        rows: &[f32],
        stride: usize,
        slot: &mut [f32],
        wire: &mut [u8],
    ) {
        assert_eq!(wire.len(), slot.len() * WORD, "payload and slot differ in length");
        assert!(stride > 0 && stride >= slot.len(), "rows shorter than the slot");
        assert!(!rows.is_empty() && rows.len().is_multiple_of(stride), "a part of a row");
        // SAFETY: holding a `Kernels` proves that the processor has the function's features.
        unsafe { (self.sum_rows_f32_emit)(rows, stride, slot, wire) };
    }

    /// Stores a slot's first bf16 contribution, widened to f32.
    ///
    /// # Panics
    ///
    /// If `wire` is not 2 bytes per element of `slot`.
    #[inline]
    pub fn store_bf16(&self, slot: &mut [f32], wire: &[u8]) {
        assert_eq!(wire.len(), slot.len() * HALF, "payload and slot differ in length");
        // SAFETY: holding a `Kernels` proves that the processor has the function's features.
        unsafe { (self.store_bf16)(slot, wire) };
    }

    /// Adds a bf16 contribution to the f32 slot in arrival order.
    ///
    /// # Panics
    ///
    /// If `wire` is not 2 bytes per element of `slot`.
    #[inline]
    pub fn add_bf16(&self, slot: &mut [f32], wire: &[u8]) {
        assert_eq!(wire.len(), slot.len() * HALF, "payload and slot differ in length");
        // SAFETY: holding a `Kernels` proves that the processor has the function's features.
        unsafe { (self.add_bf16)(slot, wire) };
    }

    /// Adds the last bf16 contribution and writes the rounded sum over it in the packet.
    ///
    /// The slot keeps the f32 sum. The bytes are those of [`Self::emit_bf16`], so a kept answer
    /// that is sent again is the same answer.
    ///
    /// # Panics
    ///
    /// If `wire` is not 2 bytes per element of `slot`.
    #[inline]
    pub fn add_bf16_emit(&self, slot: &mut [f32], wire: &mut [u8]) {
        assert_eq!(wire.len(), slot.len() * HALF, "payload and slot differ in length");
        // SAFETY: holding a `Kernels` proves that the processor has the function's features.
        unsafe { (self.add_bf16_emit)(slot, wire) };
    }

    /// Writes f32 values as bf16, rounded once to nearest even; NaN stays NaN.
    ///
    /// # Panics
    ///
    /// If `wire` is not 2 bytes per element of `slot`.
    #[inline]
    pub fn emit_bf16(&self, slot: &[f32], wire: &mut [u8]) {
        assert_eq!(wire.len(), slot.len() * HALF, "payload and slot differ in length");
        // SAFETY: holding a `Kernels` proves that the processor has the function's features.
        unsafe { (self.emit_bf16)(slot, wire) };
    }

    /// Returns the greatest magnitude among the finite values, 0 when there is none.
    ///
    /// Infinities and NaN are left out so that one bad element does not cost its block all
    /// precision; [`Self::quantise_f32`] clamps and counts them.
    #[inline]
    #[must_use]
    pub fn max_abs_f32(&self, values: &[f32]) -> f32 {
        // SAFETY: holding a `Kernels` proves that the processor has the function's features.
        unsafe { (self.max_abs_f32)(values) }
    }

    /// Applies a fixed-point update to a part of a model: `u = scale * wire`, `h = momentum * h +
    /// u`, `w = w + h`, each rounded once to f32.
    ///
    /// Returns the sums of the squares of `u` and of the new `h`, which are the same on every
    /// instruction set.
    ///
    /// # Panics
    ///
    /// If `wire` is not 4 bytes per element of `h`, or `w` is not as long as `h`.
    #[inline]
    pub fn momentum_step_i32(
        &self,
        wire: &[u8],
        scale: f32,
        momentum: f32,
        h: &mut [f32],
        w: &mut [f32],
    ) -> [f64; 2] {
        assert_eq!(wire.len(), h.len() * WORD, "payload and momentum differ in length");
        assert_eq!(w.len(), h.len(), "model and momentum differ in length");
        // SAFETY: holding a `Kernels` proves that the processor has the function's features.
        unsafe { (self.momentum_step_i32)(wire, scale, momentum, h, w) }
    }

    /// As [`Self::momentum_step_i32`], for an update in f32. What is NaN becomes the one NaN.
    ///
    /// # Panics
    ///
    /// As [`Self::momentum_step_i32`].
    #[inline]
    pub fn momentum_step_f32(
        &self,
        wire: &[u8],
        scale: f32,
        momentum: f32,
        h: &mut [f32],
        w: &mut [f32],
    ) -> [f64; 2] {
        assert_eq!(wire.len(), h.len() * WORD, "payload and momentum differ in length");
        assert_eq!(w.len(), h.len(), "model and momentum differ in length");
        // SAFETY: holding a `Kernels` proves that the processor has the function's features.
        unsafe { (self.momentum_step_f32)(wire, scale, momentum, h, w) }
    }

    /// Returns the sum of the squares of `scale * wire`, as [`Self::momentum_step_i32`] would.
    #[inline]
    #[must_use]
    pub fn sum_squares_i32(&self, wire: &[u8], scale: f32) -> f64 {
        // SAFETY: holding a `Kernels` proves that the processor has the function's features.
        unsafe { (self.sum_squares_i32)(wire, scale) }
    }

    /// Returns the sum of the squares of `scale * wire`, as [`Self::momentum_step_f32`] would.
    #[inline]
    #[must_use]
    pub fn sum_squares_f32(&self, wire: &[u8], scale: f32) -> f64 {
        // SAFETY: holding a `Kernels` proves that the processor has the function's features.
        unsafe { (self.sum_squares_f32)(wire, scale) }
    }
}

/// Bytes of an i32 or f32 element on the wire.
const WORD: usize = 4;
/// Bytes of a bf16 element on the wire.
const HALF: usize = 2;
