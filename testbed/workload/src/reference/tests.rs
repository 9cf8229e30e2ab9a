use super::*;
use crate::digits::{Trainer, TrainerConfig};

fn config(workers: usize) -> ReferenceConfig {
    ReferenceConfig {
        workers,
        block_elements: 2,
        clamp_limit: i32::MAX,
        learning_rate: 0.5,
        momentum: 0.5,
    }
}

#[test]
fn quantisation_by_hand() {
    // (value, exponent, limit) -> (integer, clamped)
    let table = [
        ((0.5, 0, 100), (0, false)),
        ((1.5, 0, 100), (2, false)),
        ((2.5, 0, 100), (2, false)),
        ((-2.5, 0, 100), (-2, false)),
        ((-0.75, -2, 100), (-3, false)),
        ((12.0, 2, 100), (3, false)),
        ((100.4, 0, 100), (100, false)),
        ((100.6, 0, 100), (100, true)),
        ((-1e30, -20, 100), (-100, true)),
        ((f32::INFINITY, 0, 7), (7, true)),
        ((f32::NEG_INFINITY, 0, 7), (-7, true)),
        ((f32::NAN, 0, 7), (0, false)),
        ((1e-40, -20, 7), (0, false)),
        ((2_147_483_520.0, 0, i32::MAX), (2_147_483_520, false)),
        ((2_147_483_648.0, 0, i32::MAX), (i32::MAX, true)),
    ];
    for ((value, exponent, limit), expected) in table {
        assert_eq!(quantise(value, exponent, limit), expected, "{value} at 2^{exponent}");
    }
}

#[test]
fn dequantisation_is_exact_powers_of_two() {
    assert_eq!(dequantise(3, -2), 0.75);
    assert_eq!(dequantise(-3, 4), -48.0);
    assert_eq!(dequantise(16_777_217, 0), 16_777_216.0);
    assert_eq!(dequantise(1, -126), f32::MIN_POSITIVE);
}

#[test]
fn a_round_by_hand() {
    let mut reference = Reference::new(config(2), &[1.0, 1.0, 1.0]);
    let gradients = [vec![1.0, 0.25, 8.0], vec![0.5, -0.75, 4.0]];
    let result = reference.round(&gradients, &[-2, 1]).unwrap();
    assert_eq!(result.sum, [6, -2, 6]);
    assert_eq!(result.mean, [0.75, -0.25, 6.0]);
    assert_eq!(reference.parameters(), [0.625, 1.125, -2.0]);
    reference.round(&gradients, &[-2, 1]).unwrap();
    // v = 0.5 * v + mean: 1.125, -0.375, 9.0
    assert_eq!(reference.parameters(), [0.0625, 1.3125, -6.5]);
}

#[test]
fn sums_wrap_and_clamping_is_counted() {
    let mut reference = Reference::new(config(2), &[0.0]);
    let huge = vec![2_147_483_520.0_f32];
    let result = reference.round(&[huge.clone(), huge.clone()], &[0]).unwrap();
    assert_eq!((result.sum[0], result.clamped_elements), (-256, 0));
    let limited = ReferenceConfig { clamp_limit: (i32::MAX) / 2, ..config(2) };
    let result = Reference::new(limited, &[0.0]).round(&[huge.clone(), huge], &[0]).unwrap();
    assert_eq!((result.sum[0], result.clamped_elements), (i32::MAX - 1, 2));
}

#[test]
fn differences_are_counted_by_bits_and_by_length() {
    let mut reference = Reference::new(config(1), &[0.0, 0.0]);
    let result = reference.round(&[vec![1.0, 0.0]], &[0]).unwrap();
    assert_eq!(result.wrong_sums(&[1, 0]), 0);
    assert_eq!(result.wrong_sums(&[1, 1]), 1);
    assert_eq!(result.wrong_sums(&[1]), 1);
    assert_eq!(result.wrong_means(&[1.0, -0.0]), 1);
    assert_eq!(reference.wrong_parameters(&[-0.5, 0.0]), 0);
    assert_eq!(reference.wrong_parameters(&[-0.5, -0.0, 0.0]), 2);
}

#[test]
fn a_misfit_is_named() {
    let mut reference = Reference::new(config(2), &[0.0; 3]);
    let two = [vec![0.0; 3], vec![0.0; 3]];
    let found = reference.round(&two[..1], &[0]).unwrap_err();
    assert_eq!(found, ReferenceError::Gradients { found: 1, expected: 2 });
    let found = reference.round(&[vec![0.0; 3], vec![0.0; 2]], &[0]).unwrap_err();
    assert_eq!(found, ReferenceError::Length { rank: 1, found: 2, expected: 3 });
    let found = reference.round(&two, &[0, 0, 0]).unwrap_err();
    assert_eq!(found, ReferenceError::Exponents { found: 3, expected: 2 });
}

#[test]
fn trainers_fed_with_reference_means_end_with_the_reference_model() {
    let job = TrainerConfig { hidden: vec![12], ..TrainerConfig::default() };
    let mut trainers: Vec<Trainer> =
        (0..3).map(|rank| Trainer::new(rank, 3, 11, &job).unwrap()).collect();
    let count = trainers[0].parameter_count();
    let limit = i32::MAX / 3;
    let config = ReferenceConfig {
        workers: 3,
        block_elements: 256,
        clamp_limit: limit,
        learning_rate: job.learning_rate,
        momentum: job.momentum,
    };
    let mut reference = Reference::new(config, trainers[0].parameters());
    for step in 0..20 {
        let mut gradients = vec![vec![0.0; count]; 3];
        for (trainer, gradient) in trainers.iter_mut().zip(&mut gradients) {
            trainer.gradient(step, gradient);
        }
        let result = reference.round(&gradients, &[-18]).unwrap();
        assert_eq!(result.clamped_elements, 0);
        trainers.iter_mut().for_each(|trainer| trainer.apply(&result.mean));
    }
    for trainer in &trainers {
        assert_eq!(reference.wrong_parameters(trainer.parameters()), 0);
    }
}
