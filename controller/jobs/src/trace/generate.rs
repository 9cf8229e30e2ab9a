//! Makes traces up from a seed: Poisson arrivals, and sizes with a heavy tail.
//!
//! Invariant: the same recipe and seed give the same jobs.

use alloc::string::ToString as _;
use alloc::sync::Arc;
use alloc::vec::Vec;

use libm::exp;
use weft_plan::float::{floor, ln};
use weft_plan::sample::Numbers;

use crate::job::{Job, NS_PER_S};
use crate::text::{SECONDS_MAX, ns_of};

/// What a made-up trace is like.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Recipe {
    /// How many jobs.
    pub jobs: u32,
    /// GPUs of the cluster that the trace is for; no job is larger.
    pub gpus: u32,
    /// The GPU time of all jobs over that of the cluster while they come. Above 0; 1 is as much as
    /// the cluster can do.
    pub load: f64,
    /// Their sizes.
    pub sizes: Sizes,
}

/// How sizes are drawn.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Sizes {
    /// Two kinds of width and of duration, as [`mixed`] has them.
    Mixed,
    /// Durations by a Pareto law of shape 1 between a minute and three days: half take less than
    /// two minutes, and the longest hundredth has half of all the time. Widths are powers of two,
    /// each half as frequent as the one before.
    HeavyTailed,
}

impl Recipe {
    /// The jobs of a seed, the first at 0.
    #[must_use]
    pub fn generate(&self, seed: u64) -> Vec<Job> {
        let mut jobs = match self.sizes {
            Sizes::Mixed => mixed(self.jobs, 1.0, seed),
            Sizes::HeavyTailed => heavy_tailed(self.jobs, seed),
        };
        for job in &mut jobs {
            job.gpus = job.gpus.min(self.gpus);
        }
        arrive(&mut jobs, self.gpus, self.load, seed);
        jobs
    }
}

/// Lets jobs come anew, in their order, by a Poisson process with the mean gap that makes a load of
/// `load` on `gpus` GPUs. The first comes at 0, and who would come after a century comes then.
pub fn arrive(jobs: &mut [Job], gpus: u32, load: f64, seed: u64) {
    let work_ns: f64 = jobs.iter().map(|job| job.duration_ns as f64 * f64::from(job.gpus)).sum();
    let gap_ns = work_ns / jobs.len() as f64 / (load * f64::from(gpus));
    // Not the stream that the sizes came from.
    let mut numbers = Numbers::new(!seed);
    let mut now_s = 0.0;
    for job in jobs {
        job.submit_ns = ns_of(now_s).min(SECONDS_MAX * NS_PER_S);
        now_s -= ln(numbers.unit()) * gap_ns / NS_PER_S as f64;
    }
}

/// Jobs of two kinds of width and two of duration, `gap_s` seconds apart on average.
///
/// 76 of 100 are small (1, 2 or 4 GPUs; else 8, 16 or 32); short ones take 120 s to 800 s, long
/// ones 800 s to 3 h, by the logarithm. Seeds 7 and 1, with gaps of 60 s and 120 s, are the traces
/// `syn60` and `syn480_a` that the public simulator of Tiresias was run on; therefore the numbers
/// come from the congruential generator of those. Who would come after a century comes then.
#[must_use]
pub fn mixed(count: u32, gap_s: f64, seed: u64) -> Vec<Job> {
    let names = MIXED_MODELS.map(Arc::<str>::from);
    let mut state = seed;
    let mut draw = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005);
        state = state.wrapping_add(1_442_695_040_888_963_407);
        ((state >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
    };
    let mut now_ns = 0;
    let job = |name: u32| {
        let kind = draw();
        let is_small = kind < 0.76;
        let is_short = kind < 0.635 || (0.76..0.925).contains(&kind);
        let width = draw();
        let gpus = match is_small {
            true => 1 << index(width * 3.0),
            false => 8 << index(-ln(width)).min(2),
        };
        let long = draw();
        let duration_s = match is_short {
            true => 120.0 + 680.0 * long,
            false => exp(ln(800.0) + long * ln(13.5)),
        };
        let submit_ns = now_ns;
        let gap_ns = ns_of(floor(-ln(draw()) * gap_s + 0.5));
        now_ns = gap_ns.saturating_add(now_ns).min(SECONDS_MAX * NS_PER_S);
        let duration_ns = ns_of(floor(duration_s));
        Job {
            name: name.to_string().into(),
            gpus,
            submit_ns,
            duration_ns,
            model: Arc::clone(&names[index(draw() * 10.0).min(9)]),
            iterations: duration_ns / NS_PER_S,
            global_batch: 0,
        }
    };
    (0..count).map(job).collect()
}

fn heavy_tailed(count: u32, seed: u64) -> Vec<Job> {
    let names = MIXED_MODELS.map(Arc::<str>::from);
    let mut numbers = Numbers::new(seed);
    let job = |name: u32| {
        // The inverse of the law that is cut off at both ends.
        let (least_s, most_s) = (60.0, 3.0 * 86_400.0);
        let duration_s = least_s / (1.0 - numbers.unit() * (1.0 - least_s / most_s));
        let halvings = index(-ln(numbers.unit()) / ln(2.0)).min(6);
        Job {
            name: name.to_string().into(),
            gpus: 1 << halvings,
            submit_ns: 0,
            duration_ns: ns_of(floor(duration_s)),
            model: Arc::clone(&names[numbers.index(names.len())]),
            iterations: 0,
            global_batch: 0,
        }
    };
    (0..count).map(job).collect()
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "small, and at least 0"
)]
const fn index(value: f64) -> usize {
    value as usize
}

const MIXED_MODELS: [&str; 10] = [
    "vgg19",
    "vgg16",
    "vgg11",
    "alexnet",
    "resnet152",
    "resnet101",
    "resnet50",
    "inception4",
    "inception3",
    "googlenet",
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::tiresias;

    #[test]
    fn the_public_simulators_synthetic_traces_come_out() {
        for (name, text, gap_s, seed) in [
            ("syn60", include_str!("../../tests/tiresias/traces/syn60_job.csv"), 60.0, 7),
            ("syn480_a", include_str!("../../tests/tiresias/traces/syn480_a_job.csv"), 120.0, 1),
        ] {
            let expected = tiresias::read(name, text, None).expect("a trace").jobs;
            let ours = mixed(u32::try_from(expected.len()).unwrap(), gap_s, seed);
            assert_eq!(ours, expected, "{name}");
        }
    }

    #[test]
    fn load_and_tail_are_as_asked_for() {
        let recipe = Recipe { jobs: 20_000, gpus: 64, load: 0.8, sizes: Sizes::HeavyTailed };
        let jobs = recipe.generate(3);
        assert_eq!(jobs, recipe.generate(3));
        assert_ne!(jobs, recipe.generate(4));
        let work: f64 = jobs.iter().map(|job| job.gpu_ns() as f64).sum();
        let span = jobs.last().unwrap().submit_ns as f64;
        let load = work / span / 64.0;
        assert!((0.77..0.83).contains(&load), "{load}");
        let mut durations: Vec<u64> = jobs.iter().map(|job| job.duration_ns / NS_PER_S).collect();
        durations.sort_unstable();
        assert!((110..130).contains(&durations[10_000]), "median {}", durations[10_000]);
        let sum: u64 = durations.iter().sum();
        let longest: u64 = durations[19_800..].iter().sum();
        let share = longest as f64 / sum as f64;
        assert!((0.4..0.6).contains(&share), "the longest hundredth has {share}");
        assert!(durations[0] >= 60 && durations[19_999] <= 3 * 86_400);
    }

    #[test]
    fn gaps_are_those_of_a_poisson_process() {
        let mut jobs = mixed(20_000, 1.0, 5);
        arrive(&mut jobs, 100, 1.0, 5);
        let gaps: Vec<f64> =
            jobs.windows(2).map(|pair| (pair[1].submit_ns - pair[0].submit_ns) as f64).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|gap| (gap - mean) * (gap - mean)).sum::<f64>();
        let deviation = weft_plan::float::sqrt(variance / gaps.len() as f64);
        assert!((0.97..1.03).contains(&(deviation / mean)), "mean {mean}, deviation {deviation}");
        let above = gaps.iter().filter(|gap| **gap > mean).count() as f64 / gaps.len() as f64;
        assert!((0.35..0.39).contains(&above), "{above} of all, not 1/e, are above the mean");
    }
}
