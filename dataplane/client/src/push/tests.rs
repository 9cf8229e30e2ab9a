use super::norm;

#[test]
fn the_norm_is_summed_in_double_precision() {
    // In f32 the ones would vanish beside 2^12 squared.
    let mut values = vec![1.0; 1 << 16];
    values[0] = 4096.0;
    let exact = (4096.0_f64 * 4096.0 + f64::from((1 << 16) - 1)).sqrt();
    assert!((norm(&values) - exact).abs() < 1e-9);
    assert!(norm(&[f32::MAX, f32::MAX]).is_finite());
    assert!(!norm(&[1.0, f32::NAN]).is_finite());
    assert!(!norm(&[f32::INFINITY]).is_finite());
}
