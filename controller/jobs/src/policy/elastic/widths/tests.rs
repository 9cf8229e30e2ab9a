use proptest::prelude::*;
use weft_plan::sample::Numbers;

use super::*;
use crate::experiment::distance;
use crate::model::collective::{Collective, Network, Shared};
use crate::model::speed::Curve;

const TEN_GIGABIT: Network =
    Network { latency_s: 30e-6, transfer_s_per_byte: 1.0 / 1.25e9, reduce_s_per_byte: 1.0 / 8e9 };

fn job(iterations: f64, compute_s: f64, bytes: f64) -> Demand<Shared> {
    let collective = Collective::HalvingDoubling(TEN_GIGABIT);
    Demand { iterations, speed: Shared { compute_s, bytes, collective }, least: 1 }
}

/// The contrast of the two greedy rules, computed apart from this code: bytes, compute seconds,
/// iterations of the jobs, GPUs, then widths and seconds of +1 and of doubling.
#[test]
fn doubling_passes_the_widths_at_which_one_more_is_slower() {
    type Row = (f64, f64, &'static [f64], u32, (&'static [u32], f64), (&'static [u32], f64));
    const ONE: &[f64] = &[1000.0];
    const THREE: &[f64] = &[1000.0, 500.0, 250.0];
    let rows: [Row; 8] = [
        (100e6, 6.4, ONE, 16, (&[8], 951.1), (&[16], 562.0)),
        (100e6, 6.4, ONE, 64, (&[8], 951.1), (&[64], 270.2)),
        (100e6, 6.4, THREE, 64, (&[8, 8, 8], 1664.5), (&[32, 16, 16], 788.9)),
        (25e6, 6.4, ONE, 16, (&[16], 440.7), (&[16], 440.7)),
        (25e6, 6.4, ONE, 64, (&[16], 440.7), (&[64], 142.8)),
        (25e6, 6.4, THREE, 64, (&[16, 16, 16], 771.2), (&[32, 16, 16], 572.6)),
        (100e6, 40.0, ONE, 64, (&[16], 2662.0), (&[64], 795.2)),
        (100e6, 40.0, THREE, 64, (&[16, 16, 16], 4658.4), (&[32, 16, 16], 3413.9)),
    ];
    for (bytes, compute_s, iterations, gpus, one, doubling) in rows {
        let jobs: Vec<_> = iterations.iter().map(|q| job(*q, compute_s, bytes)).collect();
        for (growth, (widths, seconds)) in [(Growth::One, one), (Growth::Doubling, doubling)] {
            let ours = grow(&jobs, gpus, growth);
            assert_eq!(ours, widths, "{growth:?}: {bytes} bytes, {iterations:?} on {gpus}");
            let total = total_s(&jobs, &ours);
            assert!((total - seconds).abs() <= 0.0501, "{growth:?}: {total}, not {seconds}");
        }
    }
}

#[test]
fn every_job_gets_a_gpu_before_any_gets_two() {
    let jobs = [1.0, 1e6, 1e6].map(|iterations| job(iterations, 6.4, 25e6));
    assert_eq!(grow(&jobs, 2, Growth::Doubling), [1, 1, 0]);
    assert_eq!(grow(&jobs, 3, Growth::One), [1, 1, 1]);
    assert_eq!(grow(&jobs, 0, Growth::One), [0, 0, 0]);
}

/// A step that does not fit leaves its GPUs to a smaller one of another job.
#[test]
fn gpus_that_are_too_few_for_one_go_to_another() {
    let linear = |iterations| {
        let speed = Curve::new((1..=8).map(|width| (width, f64::from(width))));
        Demand { iterations, speed, least: 1 }
    };
    // 8 GPUs: the large job has 4, the small one 2, and 2 are left, too few to double the large.
    let widths = grow(&[linear(1000.0), linear(10.0)], 8, Growth::Doubling);
    assert_eq!(widths, [4, 4]);
}

/// Of 5 GPUs two are left when the large job has 2. Its next step gains 250 s on two GPUs, the small
/// one's 200 s on one.
#[test]
fn a_gain_counts_for_each_gpu_that_is_added() {
    let linear = |iterations| {
        let speed = Curve::new((1..=8).map(|width| (width, f64::from(width))));
        Demand { iterations, speed, least: 1 }
    };
    assert_eq!(grow(&[linear(1000.0), linear(400.0)], 5, Growth::Doubling), [2, 2]);
}

/// A job that needs 4 waits for them, and what it cannot use is not kept from those after it.
#[test]
fn a_job_starts_at_the_least_that_it_needs() {
    let rigid = Demand { iterations: 10.0, speed: Curve::new([(4, 1.0)]), least: 4 };
    let narrow = Demand { iterations: 10.0, speed: Curve::new([(1, 1.0), (2, 1.5)]), least: 1 };
    assert_eq!(grow(&[rigid.clone(), narrow.clone()], 8, Growth::Doubling), [4, 2]);
    assert_eq!(grow(&[narrow.clone(), rigid, narrow], 4, Growth::Doubling), [2, 0, 2]);
}

#[test]
fn the_learning_rate_follows_the_width() {
    assert_eq!(learning_rate(0.1, 1, 4), 0.4);
    assert_eq!(learning_rate(0.4, 4, 8), 0.8);
    assert_eq!(learning_rate(0.8, 8, 1), 0.1);
}

/// A case that can be tried out, with any of the collectives.
fn any_case(seed: u64) -> (Vec<Demand<Shared>>, u32) {
    let collectives = distance::collectives();
    distance::case(seed, collectives[Numbers::new(!seed).index(collectives.len())])
}

/// All widths of all jobs, one after the other.
fn brute(jobs: &[Demand<Shared>], gpus: u32) -> f64 {
    let Some((first, others)) = jobs.split_first() else { return 0.0 };
    let others_need = u32::try_from(others.len()).expect("few");
    let widths = 1..=gpus.saturating_sub(others_need);
    let totals = widths.map(|width| first.seconds(width) + brute(others, gpus - width));
    totals.fold(f64::INFINITY, f64::min)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn the_optimum_is_that_of_trying_everything(seed in any::<u64>()) {
        let (jobs, gpus) = any_case(seed);
        let (widths, total) = optimum(&jobs, gpus).expect("as many GPUs as jobs");
        prop_assert!(widths.iter().sum::<u32>() <= gpus && widths.iter().all(|width| *width > 0));
        prop_assert!((total_s(&jobs, &widths) - total).abs() < 1e-9 * total);
        prop_assert!((brute(&jobs, gpus) - total).abs() < 1e-9 * total);
    }

    #[test]
    fn no_greedy_rule_beats_the_optimum_or_overdraws(seed in any::<u64>()) {
        let (jobs, gpus) = any_case(seed);
        let (_, best) = optimum(&jobs, gpus).expect("as many GPUs as jobs");
        for growth in [Growth::Doubling, Growth::One] {
            let widths = grow(&jobs, gpus, growth);
            prop_assert!(widths.iter().sum::<u32>() <= gpus);
            prop_assert!(total_s(&jobs, &widths) >= best * (1.0 - 1e-12), "{growth:?}");
        }
    }
}

#[test]
fn more_jobs_than_gpus_have_no_optimum() {
    assert_eq!(optimum(&[job(1.0, 1.0, 1.0), job(1.0, 1.0, 1.0)], 1), None);
}
