use proptest::prelude::*;

use super::*;

proptest! {
    #[test]
    fn a_model_is_found_from_its_own_speeds(
        theta in (1e-4..1e-2_f64, 1e-4..1e-2_f64, 1e-11..1e-9_f64, 1e-3..1e-1_f64)
    ) {
        let made = SpeedModel {
            theta: [theta.0, theta.1, theta.2, theta.3],
            batch: Batch::Global(512.0),
            model_bytes: 1e8,
            residual_rms_s: 0.0,
            relative_residuals: Vec::new(),
        };
        let samples: Vec<_> =
            [1, 2, 3, 4, 6, 8, 12, 16].map(|w| (w, made.iterations_per_s(w))).to_vec();
        let fit = SpeedModel::fit(&samples, made.batch, made.model_bytes).expect("a fit");
        prop_assert!(fit.relative_residuals.iter().all(|r| r.abs() < 1e-6), "{fit:?}");
        let [seen, real] = [fit.iteration_s(32), made.iteration_s(32)];
        prop_assert!((seen - real).abs() < 1e-4 * real);
    }
}

/// The scaling that the doubling paper measured: ResNet-110, 128 images per GPU, 1 to 8 K40m.
#[test]
fn the_measured_scaling_of_the_paper_fits() {
    let images_per_s = [(1, 318.0), (2, 576.2), (4, 1152.4), (8, 2177.8)];
    let samples = images_per_s.map(|(w, images)| (w, images / 128.0 / f64::from(w)));
    let fit = SpeedModel::fit(&samples, Batch::PerWorker(128.0), 6.9e6).expect("a fit");
    assert!(fit.theta.iter().all(|theta| *theta >= 0.0));
    let worst = fit.relative_residuals.iter().map(|r| r.abs()).fold(0.0, f64::max);
    assert!(worst > 0.0 && worst < 0.05, "{:?}", fit.relative_residuals);
}

#[test]
fn samples_that_cannot_be_are_refused() {
    let fit = |samples: &[(u32, f64)]| SpeedModel::fit(samples, Batch::Global(1.0), 1.0);
    assert_eq!(fit(&[(2, 1.0), (2, 1.1)]), Err(SpeedError::TooFew(1)));
    assert_eq!(fit(&[(1, 1.0), (0, 1.0)]), Err(SpeedError::BadSample(1)));
    assert_eq!(fit(&[(1, 0.0), (2, 1.0)]), Err(SpeedError::BadSample(0)));
}

#[test]
fn a_curve_joins_what_was_measured_and_ends_there() {
    let curve = Curve::new([(4, 3.0), (1, 1.0), (2, 2.0), (8, 2.5)]);
    let speeds = [0, 1, 2, 3, 4, 6, 8, 9].map(|w| curve.iterations_per_s(w));
    assert_eq!(speeds, [0.0, 1.0, 2.0, 2.5, 3.0, 2.75, 2.5, 0.0]);
    assert_eq!(curve.fastest(64), Some((4, 3.0)));
    assert_eq!(curve.fastest(2), Some((2, 2.0)));
    assert_eq!(curve.seconds(6.0, 4), 2.0);
    assert_eq!(curve.seconds(6.0, 9), f64::INFINITY);
}
