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

#[cfg(test)]
mod tests {
    use crate::sample::Numbers;

    /// Here, where `std` is linked, a method is its function.
    #[test]
    fn they_are_the_functions_that_std_has() {
        let mut numbers = Numbers::new(1);
        for _ in 0..20_000 {
            let [a, b] = [1, 2].map(|_| numbers.within(1, 1 << 40) as f64 / (1u64 << 30) as f64);
            assert_eq!(super::floor(a).to_bits(), a.floor().to_bits(), "floor of {a}");
            assert_eq!(super::ceil(a).to_bits(), a.ceil().to_bits(), "ceil of {a}");
            assert_eq!(super::sqrt(a).to_bits(), a.sqrt().to_bits(), "sqrt of {a}");
            let share = b / 1024.0;
            let power = u16::try_from(numbers.within(0, 3_000)).expect("small");
            let [powi, of_std] = [super::powi(share, power.into()), share.powi(power.into())];
            assert_eq!(powi.to_bits(), of_std.to_bits(), "{share} to {power}");
            // Of these each library may round the last bit its own way.
            let ln = [super::ln(a), a.ln()];
            let powf = [super::powf(share, a / 1024.0), share.powf(a / 1024.0)];
            for [ours, of_std] in [ln, powf] {
                let apart = ours.to_bits().abs_diff(of_std.to_bits());
                assert!(apart <= 1, "of {a} and {share}: {ours} and {of_std}");
            }
        }
    }
}
