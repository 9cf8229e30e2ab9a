use alloc::vec::Vec;

use proptest::prelude::*;

use super::*;

/// The two examples of SciPy's manual for `scipy.optimize.nnls`; its norm is not divided by rows.
#[test]
fn the_examples_of_another_solver_come_out() {
    let of = |values: [f64; 3]| {
        let columns = [[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]];
        let rows: Vec<_> = columns.into_iter().zip(values).collect();
        solve(&rows).expect("a fit")
    };
    let fit = of([2.0, 1.0, 1.0]);
    assert!((fit.coefficients[0] - 1.5).abs() < 1e-12 && (fit.coefficients[1] - 1.0).abs() < 1e-12);
    assert!((fit.residual_rms * sqrt(3.0) - 0.707_106_781_186_547_5).abs() < 1e-12);
    let fit = of([-1.0, -1.0, -1.0]);
    assert_eq!(fit.coefficients, [0.0, 0.0]);
    assert!((fit.residual_rms * sqrt(3.0) - 1.732_050_807_568_877_2).abs() < 1e-12);
}

#[test]
fn columns_that_say_the_same_count_once() {
    let rows: Vec<_> =
        (1..5).map(|i| ([f64::from(i), 2.0 * f64::from(i)], f64::from(6 * i))).collect();
    let fit = solve(&rows).expect("a fit");
    assert_eq!(fit.coefficients, [6.0, 0.0]);
    assert!(fit.residual_rms < 1e-12);
}

#[test]
fn nothing_and_what_is_no_number_have_no_fit() {
    assert_eq!(solve::<1>(&[]), None);
    assert_eq!(solve(&[([f64::NAN], 1.0)]), None);
    assert_eq!(solve(&[([1.0], f64::INFINITY)]), None);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Karush, Kuhn and Tucker: where a coefficient is positive the squares are level, where it is
    /// 0 they grow with it. For a convex problem that is the minimum.
    #[test]
    fn no_other_coefficients_are_better(
        rows in prop::collection::vec((prop::array::uniform4(-3.0..3.0_f64), -5.0..5.0_f64), 1..9)
    ) {
        let fit = solve(&rows).expect("a fit");
        for (column, coefficient) in fit.coefficients.into_iter().enumerate() {
            prop_assert!(coefficient >= 0.0);
            let slope: f64 =
                rows.iter().map(|(row, value)| row[column] * (fit.predict(row) - value)).sum();
            if coefficient > 0.0 {
                prop_assert!(slope.abs() < 1e-6, "slope {slope} of column {column}: {fit:?}");
            } else {
                prop_assert!(slope > -1e-6, "slope {slope} of column {column}: {fit:?}");
            }
        }
    }

    #[test]
    fn coefficients_that_made_the_values_are_found(
        made in prop::array::uniform4(0.0..10.0_f64), seed in 0..1000_u64
    ) {
        let mut numbers = weft_plan::sample::Numbers::new(seed);
        let mut entry = || numbers.within(1, 1 << 20) as f64 / f64::from(1 << 20);
        let rows: Vec<_> = (0..12)
            .map(|_| {
                let row = [entry(), entry(), entry(), entry()];
                (row, row.iter().zip(made).map(|(x, c)| x * c).sum())
            })
            .collect();
        let fit = solve(&rows).expect("a fit");
        for (found, made) in fit.coefficients.into_iter().zip(made) {
            prop_assert!((found - made).abs() < 1e-6, "{fit:?}");
        }
    }
}
