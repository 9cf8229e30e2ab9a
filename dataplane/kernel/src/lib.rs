//! Slice arithmetic of the aggregator, dispatched at run time.
//!
//! A slot is a slice of host-order numbers, a packet's payload a slice of big-endian bytes; the
//! operations between them are methods of [`Kernels`]. An engine takes one `&'static Kernels` at
//! its start ([`Kernels::detect`]) and keeps it; a test or a gate that needs a fixed instruction
//! set asks [`Kernels::for_isa`].
//!
//! ```
//! let kernels = weft_kernel::Kernels::detect();
//! let mut slot = [0i32; 2];
//! kernels.store_i32(&mut slot, &[0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff]);
//! let mut last = [0, 0, 0, 2, 0, 0, 0, 3];
//! kernels.add_i32_emit(&mut slot, &mut last);
//! assert_eq!(slot, [3, 2]);
//! assert_eq!(last, [0, 0, 0, 3, 0, 0, 0, 2]);
//! ```
//!
//! This is one of the crates where `unsafe` is allowed: to call a function compiled for an
//! instruction set that was found at run time, to issue a prefetch, to compare a header in vector
//! registers, and to read words as another type of number. The loops themselves are safe code,
//! which the compiler vectorises.

mod crc;
mod kernels;
mod loops;
mod pattern;
mod prefetch;
mod table;
mod words;

#[cfg(test)]
mod reference;
#[cfg(test)]
mod tests;

pub use crc::{CrcPatch, crc32c, crc32c_append, crc32c_blank};
pub use kernels::RUN_MAX;
pub use loops::squares;
pub use pattern::{PATTERN_LEN, Pattern};
pub use prefetch::{prefetch_line, prefetch_write};
pub use table::{Isa, Kernels};
pub use words::{as_f32, as_f32_mut};

/// The square root, for crates without `std`.
#[inline]
#[must_use]
pub fn sqrt(value: f64) -> f64 {
    value.sqrt()
}
