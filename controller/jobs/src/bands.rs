//! Decides in which priority band each job's model updates travel, when several jobs' parameter
//! servers share one host.
//!
//! Invariant: bands are 0 to 6, whatever the number of jobs and models; smaller models never
//! travel below larger ones; no band has more than `ceil(2 n / 7)` of n jobs, nor more than
//! `ceil(n / 7)` where all models are alike; over as many rotations as a model has jobs, each of
//! them has each place once.
//! Source: TensorLights (HPBDC'19), as its agent computes it (`tools/tc_agent.py` of
//! TensorLights/TensorLights, commit 624596c). Two things differ: the agent groups only jobs that
//! stand side by side, which [`Grouping::Neighbours`] keeps, and with many models it exceeds
//! band 6, which nothing keeps.

use alloc::vec::Vec;

pub use weft_control::BandPolicy;

/// Bands that jobs may have; one more is for the rest of the traffic.
pub const BANDS: u8 = weft_control::JOB_BANDS;

/// How often [`BandPolicy::RoundRobin`] rotates, where nothing else is said.
pub const ROTATE_NS: u64 = 20_000_000_000;

/// Models from small to large, as the agent orders them; unknown models come last.
pub const MODELS: [&str; 17] = [
    "resnet20",
    "resnet32",
    "resnet44",
    "resnet56",
    "resnet110",
    "densenet40_k12",
    "densenet100_k12",
    "densenet100_k24",
    "vgg11",
    "vgg16",
    "vgg19",
    "resnet50",
    "resnet101",
    "resnet152",
    "googlenet",
    "inception3",
    "inception4",
];

/// Which jobs share the bands of a model.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Grouping {
    /// All that train it.
    #[default]
    Models,
    /// Those side by side in the list, as the published agent does: each such group starts at the
    /// model's first band, so where models alternate, no job ever rotates.
    Neighbours,
}

/// The band of every job on one host, in the order of `models`; none under
/// [`BandPolicy::Fifo`].
///
/// `rotations` counts those since the start; only [`BandPolicy::RoundRobin`] looks at it. Costs
/// O(jobs x models).
#[must_use]
pub fn bands(
    policy: BandPolicy,
    models: &[&str],
    rotations: u64,
    grouping: Grouping,
) -> Option<Vec<u8>> {
    let rotations = match policy {
        BandPolicy::Fifo => return None,
        BandPolicy::One => 0,
        BandPolicy::RoundRobin => rotations,
    };
    let kinds = kinds(models);
    let kind_of = |job: &usize| kinds.iter().position(|kind| kind.name == models[*job]);
    let mut raw = vec![0; models.len()];
    for group in groups(models, &kinds, grouping) {
        let Some(kind) = group.first().and_then(kind_of) else { continue };
        let Kind { first, bands, .. } = kinds[kind];
        let per_band = group.len().div_ceil(bands);
        let shift = usize::try_from(rotations % group.len() as u64).unwrap_or(0);
        for (place, job) in group.iter().enumerate() {
            raw[*job] = first + (place + shift) % group.len() / per_band;
        }
    }
    let merged = merged(&kinds);
    Some(raw.into_iter().map(|band| merged[band]).collect())
}

/// A model and the bands that it was allotted, counted without a limit.
#[derive(Clone, Copy, Debug)]
struct Kind<'a> {
    name: &'a str,
    jobs: usize,
    first: usize,
    bands: usize,
}

/// The models, small to large: each has its share of the bands, rounded down, but at least one.
fn kinds<'a>(models: &[&'a str]) -> Vec<Kind<'a>> {
    let mut names = models.to_vec();
    names.sort_by_key(|name| (size_rank(name), *name));
    names.dedup();
    let mut first = 0;
    let kinds = names.into_iter().map(|name| {
        let jobs = models.iter().filter(|model| **model == name).count();
        let bands = (usize::from(BANDS) * jobs / models.len()).max(1);
        let kind = Kind { name, jobs, first, bands };
        first += bands;
        kind
    });
    kinds.collect()
}

fn size_rank(name: &str) -> usize {
    MODELS.iter().position(|model| *model == name).unwrap_or(MODELS.len())
}

/// The jobs that share a model's bands.
fn groups(models: &[&str], kinds: &[Kind<'_>], grouping: Grouping) -> Vec<Vec<usize>> {
    let jobs: Vec<usize> = (0..models.len()).collect();
    match grouping {
        Grouping::Models => {
            let of = |kind: &Kind<'_>| {
                jobs.iter().copied().filter(|job| models[*job] == kind.name).collect()
            };
            kinds.iter().map(of).collect()
        }
        Grouping::Neighbours => {
            jobs.chunk_by(|a, b| models[*a] == models[*b]).map(<[usize]>::to_vec).collect()
        }
    }
}

/// The band of each allotted one. While there are too many, the two neighbours with the fewest
/// jobs become one.
fn merged(kinds: &[Kind<'_>]) -> Vec<u8> {
    // (allotted bands, jobs) of each band.
    let mut bands: Vec<(usize, usize)> = Vec::new();
    for kind in kinds {
        let per_band = kind.jobs.div_ceil(kind.bands);
        let jobs = |band| kind.jobs.saturating_sub(band * per_band).min(per_band);
        bands.extend((0..kind.bands).map(|band| (1, jobs(band))));
    }
    while bands.len() > usize::from(BANDS) {
        let pairs = bands.windows(2).enumerate();
        let Some((at, _)) = pairs.min_by_key(|(_, pair)| pair[0].1 + pair[1].1) else { break };
        let (allotted, jobs) = bands.remove(at + 1);
        bands[at].0 += allotted;
        bands[at].1 += jobs;
    }
    let numbered = (0..BANDS).zip(bands);
    numbered.flat_map(|(band, (allotted, _))| core::iter::repeat_n(band, allotted)).collect()
}

#[cfg(test)]
mod tests;
