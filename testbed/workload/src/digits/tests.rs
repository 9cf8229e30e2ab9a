use super::*;

/// Sums the workers' gradients as a job with a fixed scale does, in the plainest way.
fn fixed_point_mean(gradients: &[Vec<f32>], exponent: i32) -> Vec<f32> {
    let scale = f64::from(2.0_f32.powi(exponent));
    let count = gradients.len() as f64;
    let sum = |i: usize| gradients.iter().map(|g| (f64::from(g[i]) / scale).round()).sum::<f64>();
    #[expect(clippy::cast_possible_truncation, reason = "the mean is wanted in single precision")]
    let mean = |i| (sum(i) * scale / count) as f32;
    (0..gradients[0].len()).map(mean).collect()
}

fn train(workers: usize, rounds: u64, seed: u64, config: &TrainerConfig) -> Vec<Trainer> {
    let mut trainers: Vec<Trainer> =
        (0..workers).map(|rank| Trainer::new(rank, workers, seed, config).unwrap()).collect();
    let mut gradients = vec![vec![0.0; trainers[0].parameter_count()]; workers];
    for step in 0..rounds {
        for (trainer, gradient) in trainers.iter_mut().zip(&mut gradients) {
            trainer.gradient(step, gradient);
        }
        let mean = fixed_point_mean(&gradients, -20);
        trainers.iter_mut().for_each(|trainer| trainer.apply(&mean));
    }
    trainers
}

#[test]
fn four_workers_reach_the_required_accuracy_with_one_model() {
    let config = TrainerConfig::default();
    let mut trainers = train(4, 150, 7, &config);
    assert!(trainers[0].parameter_count() >= 100_000);
    let accuracy = trainers[0].accuracy();
    assert!(accuracy >= 0.95, "held-out accuracy {accuracy}");
    let hash = trainers[0].model_sha256();
    assert!(trainers.iter().all(|trainer| trainer.model_sha256() == hash));
}

#[test]
fn model_is_the_same_on_every_machine_and_at_every_optimisation_level() {
    let config = TrainerConfig { hidden: vec![24, 20], ..TrainerConfig::default() };
    let trainer = &train(2, 5, 42, &config)[0];
    assert_eq!(trainer.model_sha256(), GOLDEN_SHA256);
}

#[test]
fn gradient_is_a_function_of_the_step_not_of_the_history() {
    let config = TrainerConfig { hidden: vec![16], ..TrainerConfig::default() };
    let mut trainer = Trainer::new(1, 4, 5, &config).unwrap();
    let mut gradient_of = |step| {
        let mut gradient = vec![1.0; trainer.parameter_count()];
        trainer.gradient(step, &mut gradient);
        gradient
    };
    let first = gradient_of(3);
    let far = gradient_of(400);
    assert_eq!(gradient_of(3), first);
    assert_ne!(first, far);
    // 359 images make 11 batches, so step 14 is the same position of the next epoch.
    assert_ne!(gradient_of(14), first, "every epoch has its own order");
    let mut fresh = Trainer::new(1, 4, 5, &config).unwrap();
    let mut gradient = vec![0.0; far.len()];
    fresh.gradient(400, &mut gradient);
    assert_eq!(gradient, far);
}

#[test]
fn an_epoch_reads_each_image_of_the_shard_at_most_once_and_shards_are_disjoint() {
    let config = TrainerConfig { hidden: vec![4], ..TrainerConfig::default() };
    let mut owner = vec![None; Split::TRAIN_COUNT];
    for rank in 0..4 {
        let mut trainer = Trainer::new(rank, 4, 5, &config).unwrap();
        let mut gradient = vec![0.0; trainer.parameter_count()];
        trainer.gradient(0, &mut gradient);
        for &image in &trainer.order.images {
            assert_eq!(owner[image].replace(rank), None, "image {image} has two owners");
        }
    }
    assert!(owner.iter().all(Option::is_some));
}

#[test]
fn nonsense_is_refused_by_name() {
    let base = TrainerConfig::default();
    let refused = |config: TrainerConfig, workers, rank| {
        Trainer::new(rank, workers, 1, &config).unwrap_err().to_string()
    };
    assert!(refused(base.clone(), 4, 4).contains("rank 4"));
    assert!(refused(base.clone(), 0, 0).contains("at least one worker"));
    assert!(refused(TrainerConfig { batch: 360, ..base.clone() }, 4, 0).contains("359"));
    assert!(refused(TrainerConfig { batch: 0, ..base.clone() }, 4, 0).contains("batch is 0"));
    assert!(refused(TrainerConfig { momentum: 1.0, ..base.clone() }, 4, 0).contains("momentum"));
    assert!(refused(TrainerConfig { hidden: vec![], ..base.clone() }, 4, 0).contains("hidden"));
    assert!(refused(TrainerConfig { learning_rate: f32::NAN, ..base }, 4, 0).contains("learning_"));
}

/// 2 workers, 5 rounds, seed 42, hidden layers 24 and 20, scale 2^-20. Changes only with the
/// algorithm, and then every recorded run hash changes too.
const GOLDEN_SHA256: &str = "0cb5c245a01a3466b4df0e3d320c61a2b7a2686217aa4ec26d4e0bfbed1a960f";
