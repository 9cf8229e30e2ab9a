//! A multi-layer perceptron trained on real images of hand-written digits, one worker at a time.
//!
//! A [`Trainer`] is one worker: it owns a copy of the model and a shard of the training images,
//! turns a step number into a gradient, and applies the mean gradient that came back. It never
//! learns how gradients travel.
//!
//! Invariants: a gradient depends only on (configuration, seed, rank, step, model), so a repeated
//! step gives the same bits (DESIGN I10); sums run in a fixed order on one thread, and the only
//! transcendental function is our own (`mlp::exp_nonpositive`), so a model has the same bits on
//! every IEEE 754 machine and at every optimisation level; workers that start from one seed and
//! apply the same means hold the same model.

mod dataset;
mod mlp;
mod rng;

use std::fmt::Write as _;

use sha2::{Digest, Sha256};

pub use dataset::{CLASSES, Dataset, DatasetError, PIXELS, Split};
pub use mlp::Mlp;
pub use rng::SplitMix64;

/// What a training run fixes for all its workers.
#[derive(Clone, Debug, PartialEq)]
pub struct TrainerConfig {
    /// Sizes of the hidden layers, from input to output.
    pub hidden: Vec<usize>,
    /// Images per worker and round.
    pub batch: usize,
    /// Step size of stochastic gradient descent.
    pub learning_rate: f32,
    /// Share of the previous step that is kept, 0 to below 1.
    pub momentum: f32,
}

impl Default for TrainerConfig {
    /// 102,090 parameters, so that a round has hundreds of chunks; 0.97 held-out accuracy after
    /// 150 rounds of 4 workers.
    fn default() -> Self {
        Self { hidden: vec![256, 320], batch: 32, learning_rate: 0.1, momentum: 0.9 }
    }
}

/// One worker of the training run.
#[derive(Clone, Debug)]
pub struct Trainer {
    rank: usize,
    seed: u64,
    config: TrainerConfig,
    split: Split,
    shard: Vec<usize>,
    order: EpochOrder,
    model: Mlp,
    velocity: Vec<f32>,
}

impl Trainer {
    /// Builds worker `rank` of `workers`. Every worker of a run passes the same `seed` and
    /// `config`, and so starts from the same model and the same split.
    ///
    /// # Errors
    /// When the rank is outside the job, a hyper-parameter makes no sense, or a worker's shard
    /// holds less than one batch.
    pub fn new(
        rank: usize,
        workers: usize,
        seed: u64,
        config: &TrainerConfig,
    ) -> Result<Self, TrainerError> {
        config.validate(workers)?;
        if rank >= workers {
            return Err(TrainerError::Rank { rank, workers });
        }
        let split = Dataset::embedded()?.split(seed);
        let shard: Vec<usize> = (rank..split.train.len()).step_by(workers).collect();
        let mut sizes = vec![PIXELS];
        sizes.extend(&config.hidden);
        sizes.push(CLASSES);
        let model = Mlp::new(&sizes, SplitMix64::keyed(seed, STREAM_INIT, 0));
        let velocity = vec![0.0; model.parameters().len()];
        let order = EpochOrder::default();
        Ok(Self { rank, seed, config: config.clone(), split, shard, order, model, velocity })
    }

    /// The number of parameters, which is the length of a gradient.
    #[must_use]
    pub fn parameter_count(&self) -> usize {
        self.model.parameters().len()
    }

    /// How many elements each tensor of a gradient has, in their order: of every layer its weights
    /// and its biases.
    #[must_use]
    pub fn tensor_lens(&self) -> Vec<usize> {
        self.model.tensor_lens()
    }

    /// The model's parameters, in the order of a gradient's elements.
    #[must_use]
    pub fn parameters(&self) -> &[f32] {
        self.model.parameters()
    }

    /// Writes the mean gradient over this worker's minibatch of `step`; returns the mean loss.
    ///
    /// # Panics
    /// If `gradient` does not have [`parameter_count`](Self::parameter_count) elements.
    pub fn gradient(&mut self, step: u64, gradient: &mut [f32]) -> f32 {
        gradient.fill(0.0);
        let batch = self.config.batch;
        let batches_per_epoch = self.shard.len() / batch;
        let epoch = step / batches_per_epoch as u64;
        let first = usize::try_from(step % batches_per_epoch as u64).unwrap_or(0) * batch;
        self.order.select(epoch, self.seed, self.rank, &self.shard);
        let weight = 1.0 / batch as f32;
        let mut loss = 0.0;
        for &index in &self.order.images[first..first + batch] {
            let image = &self.split.train[index];
            loss += self.model.accumulate(&image.pixels, image.label, weight, gradient);
        }
        loss * weight
    }

    /// Applies the mean of all workers' gradients: one step of descent with momentum.
    ///
    /// # Panics
    /// If `mean` does not have [`parameter_count`](Self::parameter_count) elements.
    pub fn apply(&mut self, mean: &[f32]) {
        assert_eq!(mean.len(), self.velocity.len(), "gradient and model differ in length");
        let TrainerConfig { learning_rate, momentum, .. } = self.config;
        let parameters = self.model.parameters_mut();
        for ((parameter, velocity), gradient) in
            parameters.iter_mut().zip(&mut self.velocity).zip(mean)
        {
            *velocity = momentum * *velocity + gradient;
            *parameter -= learning_rate * *velocity;
        }
    }

    /// Puts a model in the place of this worker's: one that a server sent.
    ///
    /// # Panics
    /// If `parameters` does not have [`parameter_count`](Self::parameter_count) elements.
    pub fn load(&mut self, parameters: &[f32]) {
        self.model.parameters_mut().copy_from_slice(parameters);
    }

    /// What is kept of the steps before, one for each parameter.
    #[must_use]
    pub fn velocity(&self) -> &[f32] {
        &self.velocity
    }

    /// Goes on from a model and its momentum, which another worker kept.
    ///
    /// # Panics
    /// If either does not have [`parameter_count`](Self::parameter_count) elements.
    pub fn restore(&mut self, parameters: &[f32], velocity: &[f32]) {
        self.load(parameters);
        self.velocity.copy_from_slice(velocity);
    }

    /// The mean loss over the held-out images, and the share of them labelled correctly.
    pub fn evaluate(&mut self) -> (f64, f64) {
        let model = &mut self.model;
        let (mut loss, mut correct) = (0.0, 0_u32);
        for image in &self.split.held_out {
            let (one, is_correct) = model.judge(&image.pixels, image.label);
            loss += f64::from(one);
            correct += u32::from(is_correct);
        }
        let count = self.split.held_out.len() as f64;
        (loss / count, f64::from(correct) / count)
    }

    /// The share of held-out images that the model labels correctly.
    pub fn accuracy(&mut self) -> f64 {
        let model = &mut self.model;
        let correct =
            self.split.held_out.iter().filter(|i| model.classify(&i.pixels) == i.label).count();
        correct as f64 / self.split.held_out.len() as f64
    }

    /// The parameters as little-endian IEEE 754 single precision, in order.
    #[must_use]
    pub fn model_bytes(&self) -> Vec<u8> {
        model_bytes(self.parameters())
    }

    /// The SHA-256 of [`model_bytes`](Self::model_bytes), in hexadecimal.
    #[must_use]
    pub fn model_sha256(&self) -> String {
        sha256_hex(&self.model_bytes())
    }
}

/// Writes parameters as a run's model file does: little-endian, in order.
#[must_use]
pub fn model_bytes(parameters: &[f32]) -> Vec<u8> {
    parameters.iter().flat_map(|p| p.to_le_bytes()).collect()
}

/// The SHA-256 of `bytes` in hexadecimal.
#[must_use]
pub fn sha256_hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(64);
    for byte in Sha256::digest(bytes) {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

impl TrainerConfig {
    /// Checks the configuration against a number of workers.
    ///
    /// # Errors
    /// Names the first field that makes no sense.
    pub fn validate(&self, workers: usize) -> Result<(), TrainerError> {
        if workers == 0 {
            return Err(TrainerError::NoWorkers);
        }
        if self.hidden.is_empty() || self.hidden.contains(&0) {
            return Err(TrainerError::Hidden);
        }
        if !(self.learning_rate.is_finite() && self.learning_rate > 0.0) {
            return Err(TrainerError::LearningRate { value: self.learning_rate });
        }
        if !(0.0..1.0).contains(&self.momentum) {
            return Err(TrainerError::Momentum { value: self.momentum });
        }
        let shard = Split::TRAIN_COUNT / workers;
        if self.batch == 0 || self.batch > shard {
            return Err(TrainerError::Batch { batch: self.batch, workers, shard });
        }
        Ok(())
    }
}

/// The order in which a worker reads its shard during one epoch.
#[derive(Clone, Debug, Default)]
struct EpochOrder {
    epoch: Option<u64>,
    images: Vec<usize>,
}

impl EpochOrder {
    fn select(&mut self, epoch: u64, seed: u64, rank: usize, shard: &[usize]) {
        if self.epoch == Some(epoch) {
            return;
        }
        self.images.clear();
        self.images.extend_from_slice(shard);
        let key = epoch.wrapping_mul(RANKS_MAX).wrapping_add(rank as u64);
        SplitMix64::keyed(seed, STREAM_EPOCH, key).shuffle(&mut self.images);
        self.epoch = Some(epoch);
    }
}

/// Why a trainer cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum TrainerError {
    /// The rank is outside the job.
    #[error("rank {rank} is outside a job of {workers} workers; ranks start at 0")]
    Rank {
        /// The rank asked for.
        rank: usize,
        /// Workers in the job.
        workers: usize,
    },
    /// The job has no workers.
    #[error("a job needs at least one worker")]
    NoWorkers,
    /// A hidden layer is missing or empty.
    #[error("`hidden` must name at least one layer, each with at least one unit")]
    Hidden,
    /// The learning rate is not a positive number.
    #[error("learning_rate is {value}; it must be a positive number")]
    LearningRate {
        /// The value given.
        value: f32,
    },
    /// The momentum is outside [0, 1).
    #[error("momentum is {value}; it must be at least 0 and below 1")]
    Momentum {
        /// The value given.
        value: f32,
    },
    /// The batch is empty or larger than a worker's shard.
    #[error(
        "batch is {batch}, but each of {workers} workers has {shard} training images; lower it"
    )]
    Batch {
        /// The batch asked for.
        batch: usize,
        /// Workers in the job.
        workers: usize,
        /// Images that the smallest shard holds.
        shard: usize,
    },
    /// The built-in data set is damaged.
    #[error("reading the built-in data set testbed/data/digits.csv")]
    Dataset(#[from] DatasetError),
}

/// Keeps (epoch, rank) pairs apart in the shuffle's key.
const RANKS_MAX: u64 = 1 << 16;

/// Streams of randomness drawn from one seed; a new use takes a new number.
const STREAM_SPLIT: u64 = 1;
const STREAM_INIT: u64 = 2;
const STREAM_EPOCH: u64 = 3;

#[cfg(test)]
mod tests;
