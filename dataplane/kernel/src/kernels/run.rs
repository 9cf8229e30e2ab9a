//! The operations on a run: two to [`RUN_MAX`] contributions to one slot, in order, in one pass.
//!
//! The bits in the slot are those of the same contributions added one by one. Cost: one load and
//! one store of the slot for the whole run.

use super::WORD;
use crate::table::Kernels;

/// Contributions that one pass adds at most.
pub const RUN_MAX: usize = 4;

/// Writes the two operations on runs of one element type.
macro_rules! runs {
    ($element:ty, $add:ident, $emit:ident, $numbers:literal) => {
        impl Kernels {
            #[doc = concat!("Adds a run; ", $numbers, ".")]
            ///
            /// With `stores` the first contribution is a slot's first, and what the slot held is
            /// forgotten.
            ///
            /// # Panics
            ///
            /// If a payload is not 4 bytes per element of `slot`, or if there are fewer than two
            /// or more than [`RUN_MAX`].
            #[inline]
            pub fn $add(&self, slot: &mut [$element], stores: bool, wires: &[&[u8]]) {
                check(slot.len(), wires);
                // SAFETY: holding a `Kernels` proves that the processor has the function's
                // features.
                unsafe { (self.$add)(slot, stores, wires) };
            }

            #[doc = concat!("Adds a run that completes the slot; ", $numbers, ".")]
            ///
            /// Writes the sum over every payload of the run, so that each frame can be an answer.
            ///
            /// # Panics
            ///
            /// If a payload is not 4 bytes per element of `slot`, or if there are fewer than two
            /// or more than [`RUN_MAX`].
            #[inline]
            pub fn $emit(&self, slot: &mut [$element], stores: bool, wires: &mut [&mut [u8]]) {
                check(slot.len(), wires);
                // SAFETY: holding a `Kernels` proves that the processor has the function's
                // features.
                unsafe { (self.$emit)(slot, stores, wires) };
            }
        }
    };
}

runs!(i32, add_run_i32, add_run_i32_emit, "sums wrap");
runs!(
    f32,
    add_run_f32,
    add_run_f32_emit,
    "in their order, and a sum that is NaN is the one NaN `7fc00000`"
);

#[inline(always)]
fn check(len: usize, wires: &[impl AsRef<[u8]>]) {
    assert!((2..=RUN_MAX).contains(&wires.len()), "a run is two to four contributions");
    let fits = wires.iter().all(|wire| wire.as_ref().len() == len * WORD);
    assert!(fits, "payload and slot differ in length");
}
