//! How far apart a server and its replica are: for tests and reports, where both are at hand.

/// Euclidean distance of two models, computed in f64.
///
/// # Panics
/// If they differ in length.
#[must_use]
pub fn distance(a: &[f32], b: &[f32]) -> f64 {
    assert_eq!(a.len(), b.len(), "two models of one job");
    let square = |(a, b): (&f32, &f32)| {
        let difference = f64::from(*a) - f64::from(*b);
        difference * difference
    };
    weft_kernel::sqrt(a.iter().zip(b).map(square).sum())
}
