//! The functions of floats that `core` lacks: the same bits on every machine.
//!
//! They are functions and not methods: where `std` is linked, as in tests, a method would be its
//! own, and not what ships. Source: the C library musl, as the crate `libm` has it.

pub use libm::{ceil, floor, log as ln, pow as powf, sqrt};

/// `base` to a power, by squaring.
#[must_use]
pub fn powi(mut base: f64, mut power: u32) -> f64 {
    let mut product = 1.0;
    loop {
        if power & 1 == 1 {
            product *= base;
        }
        power >>= 1;
        if power == 0 {
            return product;
        }
        base *= base;
    }
}
