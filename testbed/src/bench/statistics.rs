//! What a few rounds say together.

/// The median; 0 of nothing.
#[must_use]
pub(super) fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => 0.0,
        n if n % 2 == 1 => values[n / 2],
        n => f64::midpoint(values[n / 2 - 1], values[n / 2]),
    }
}

#[cfg(test)]
mod tests {
    use super::median;

    #[test]
    fn the_median_is_the_middle_whatever_the_order() {
        let near = |values: &[f64], expected: f64| (median(values) - expected).abs() < 1e-12;
        assert!(near(&[3.0, 1.0, 2.0], 2.0));
        assert!(near(&[4.0, 1.0, 2.0, 3.0], 2.5));
        assert!(near(&[], 0.0));
    }
}
