//! The operations between a caller's vector and the wire. Each asks, while it works, for what lies
//! behind its numbers in memory, for that is what most often goes next.

use super::{HALF, WORD};
use crate::table::Kernels;

/// Writes the two operations of one type.
macro_rules! both_ways {
    ($element:ty, $width:ident, $emit:ident, $store:ident, $as:literal) => {
        impl Kernels {
            #[doc = concat!("Writes numbers to the wire as [`Self::emit_", $as, "`] does.")]
            ///
            /// # Panics
            ///
            /// If `wire` is not as many bytes per element of `values` as there.
            #[inline]
            pub fn $emit(&self, values: &[$element], wire: &mut [u8]) {
                assert_eq!(wire.len(), values.len() * $width, "payload and values differ");
                // SAFETY: holding a `Kernels` proves that the processor has the function's
                // features.
                unsafe { (self.$emit)(values, wire) };
            }

            #[doc = concat!("Reads numbers from the wire as [`Self::store_", $as, "`] does.")]
            ///
            /// # Panics
            ///
            /// If `wire` is not as many bytes per element of `values` as there.
            #[inline]
            pub fn $store(&self, values: &mut [$element], wire: &[u8]) {
                assert_eq!(wire.len(), values.len() * $width, "payload and values differ");
                // SAFETY: holding a `Kernels` proves that the processor has the function's
                // features.
                unsafe { (self.$store)(values, wire) };
            }
        }
    };
}

both_ways!(i32, WORD, emit_i32_ahead, store_i32_ahead, "i32");
both_ways!(f32, WORD, emit_f32_ahead, store_f32_ahead, "f32");
both_ways!(f32, HALF, emit_bf16_ahead, store_bf16_ahead, "bf16");

impl Kernels {
    /// Writes `value * inverse_quantum` as an integer: nearest, ties to even, within ±`limit`.
    ///
    /// Returns how many elements were clamped. NaN becomes 0 and counts as clamped: no integer
    /// stands for it, and a gradient with a NaN in it should not pass unnoticed.
    ///
    /// # Panics
    ///
    /// If `wire` is not 4 bytes per element of `values`, or `limit` is negative.
    #[inline]
    pub fn quantise_f32(
        &self,
        values: &[f32],
        inverse_quantum: f32,
        limit: i32,
        wire: &mut [u8],
    ) -> u32 {
        assert_eq!(wire.len(), values.len() * WORD, "payload and values differ in length");
        assert!(limit >= 0, "a negative clamp limit");
        // SAFETY: holding a `Kernels` proves that the processor has the function's features.
        unsafe { (self.quantise_f32)(values, inverse_quantum, limit, wire) }
    }

    /// Reads integers and multiplies each by `quantum`.
    ///
    /// The integer is rounded once to f32 (to nearest even); a power of two as quantum adds no
    /// further error unless the result is subnormal.
    ///
    /// # Panics
    ///
    /// If `wire` is not 4 bytes per element of `values`.
    #[inline]
    pub fn dequantise_i32(&self, wire: &[u8], quantum: f32, values: &mut [f32]) {
        assert_eq!(wire.len(), values.len() * WORD, "payload and values differ in length");
        // SAFETY: holding a `Kernels` proves that the processor has the function's features.
        unsafe { (self.dequantise_i32)(wire, quantum, values) };
    }
}
