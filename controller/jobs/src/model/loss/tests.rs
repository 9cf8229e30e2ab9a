use proptest::prelude::*;
use weft_plan::sample::Numbers;

use super::*;

fn curve(b0: f64, b1: f64, b2: f64) -> LossCurve {
    LossCurve { b0, b1, b2, residual_rms: 0.0, residuals: Vec::new() }
}

fn samples(of: &LossCurve, count: u32, noise: &mut dyn FnMut() -> f64) -> Vec<(f64, f64)> {
    (1..=count).map(|k| (f64::from(k), of.loss(f64::from(k)) * noise())).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_curve_is_found_from_its_own_points(
        b0 in 0.01..1.0_f64, b1 in 0.1..2.0_f64, b2 in 0.0..0.5_f64
    ) {
        let made = curve(b0, b1, b2);
        let fit = LossCurve::fit(&samples(&made, 30, &mut || 1.0), Weighting::Equal).expect("a fit");
        prop_assert!(fit.residual_rms < 1e-4, "{fit:?}");
        prop_assert!((fit.loss(60.0) - made.loss(60.0)).abs() < 0.01 * made.loss(60.0) + 1e-3);
    }

    /// With one percent of noise a third of the way predicts the end within a tenth.
    #[test]
    fn noise_leaves_a_prediction(seed in 0..64_u64) {
        let mut numbers = Numbers::new(seed);
        let mut noise = || 0.99 + numbers.within(0, 20_000) as f64 * 1e-6;
        let made = curve(0.05, 0.4, 0.2);
        for weighting in [Weighting::Equal, Weighting::LateThirds] {
            let fit = LossCurve::fit(&samples(&made, 40, &mut noise), weighting).expect("a fit");
            prop_assert_eq!(fit.residuals.len(), 40);
            prop_assert!(fit.residual_rms > 0.0 && fit.residual_rms < 0.02, "{:?}", fit);
            let [seen, real] = [fit.loss(120.0), made.loss(120.0)];
            prop_assert!((seen - real).abs() < 0.1 * real, "{seen} where it is {real}");
        }
    }
}

#[test]
fn late_samples_decide_where_they_weigh_more() {
    // Its first third falls as another job's would.
    let [early, late] = [curve(1.0, 0.2, 0.6), curve(0.05, 0.4, 0.2)];
    let of = |k: u32| if k <= 10 { early.loss(k.into()) } else { late.loss(k.into()) };
    let samples: Vec<_> = (1..=30).map(|k| (f64::from(k), of(k))).collect();
    let miss = |weighting| {
        let fit = LossCurve::fit(&samples, weighting).expect("a fit");
        (fit.loss(60.0) - late.loss(60.0)).abs()
    };
    assert!(miss(Weighting::LateThirds) < miss(Weighting::Equal) / 2.0);
}

#[test]
fn steps_and_convergence_follow_from_the_curve() {
    let curve = curve(0.05, 0.4, 0.2);
    let steps = curve.steps_to(0.7).expect("reachable");
    assert!((steps - 32.0).abs() < 1e-9 && (curve.loss(steps) - 0.7).abs() < 1e-12);
    assert_eq!(curve.steps_to(0.2), None, "it comes near its floor and never there");
    assert_eq!(curve.steps_to(9.0), Some(0.0), "it is below from the start");
    let at = curve.converges_at(10.0, 0.05);
    let fall = |k: f64| curve.loss(k) - curve.loss(k + 10.0);
    assert!(fall(at) <= 0.05 && fall(at - 1.0) > 0.05, "at {at}");
}

#[test]
fn what_has_no_curve_is_refused() {
    let fit = |samples: &[(f64, f64)]| LossCurve::fit(samples, Weighting::Equal);
    assert_eq!(fit(&[(1.0, 1.0), (2.0, 0.9)]), Err(LossError::TooFew(2)));
    let bad = [(1.0, 1.0), (2.0, f64::NAN), (3.0, 0.5)];
    assert_eq!(fit(&bad), Err(LossError::BadSample(1)));
    let level = [(1.0, 1.0), (2.0, 1.0), (3.0, 1.0), (4.0, 1.0)];
    assert_eq!(fit(&level), Err(LossError::DoesNotFall));
}
