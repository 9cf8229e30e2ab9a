//! Decides a link's capacity from samples that came by different peers.
//!
//! A sample is the rate of the slowest link of its path, so a link can do what its fastest peers
//! have shown: the median over all samples of those peers whose own median comes close to the best
//! one. What only one sample has shown is not believed, unless it is all there is.
//! When a change is found, samples from before it are forgotten.

use alloc::vec::Vec;

use super::change::{Cusum, SPREAD_MIN, Shift};
use crate::case::HostId;

/// The capacity of one direction of a link.
#[derive(Clone, Debug, Default)]
pub struct Capacity {
    /// In the order in which they came.
    samples: Vec<Sample>,
    cusum: Cusum,
    /// The peer of the last suspect, where one peer's word is not enough.
    suspect: Option<HostId>,
    level: Option<Level>,
}

#[derive(Clone, Copy, Debug)]
struct Sample {
    at_ns: u64,
    peer: HostId,
    rate: f64,
}

#[derive(Clone, Copy, Debug)]
struct Level {
    rate: f64,
    /// Relative: 1.48 times the median deviation over the median.
    spread: f64,
    /// Samples that it rests on.
    count: usize,
}

/// What a sample did.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Judgement {
    /// Agreed, or was among the first.
    InLine,
    /// Was off, or the first of its peer and more than any other; awaits confirmation.
    Suspect,
    /// Confirmed that the level is another one now.
    Changed,
}

impl Capacity {
    /// Takes in a sample by way of `peer`. With `distinct`, suspects of one peer in a row count
    /// once: what is shared must be missed by several.
    pub fn handle(&mut self, now_ns: u64, peer: HostId, rate: f64, distinct: bool) -> Judgement {
        let shift = match self.level {
            Some(level) if level.count >= LEVEL_SAMPLES_MIN => {
                let repeated = distinct && self.suspect == Some(peer);
                let mut cusum = self.cusum;
                let shift = cusum.handle(rate, level.rate, level.spread);
                if !(repeated && shift != Shift::None) {
                    self.cusum = cusum;
                }
                if repeated && shift != Shift::None { Shift::Suspected } else { shift }
            }
            _ => Shift::None,
        };
        self.suspect = (shift == Shift::Suspected).then_some(peer);
        self.samples.push(Sample { at_ns: now_ns, peer, rate });
        if let Shift::Found { samples } = shift {
            let keep = samples.min(self.samples.len());
            self.samples.drain(..self.samples.len() - keep);
            // Where the change began within a slow drift, the first samples may be of either level.
            self.samples.retain(|sample| (sample.rate / rate - 1.0).abs() < CHANGE_KEPT);
        }
        self.forget(now_ns, peer);
        self.level = self.measure();
        let doubted = self.level.is_some_and(|level| rate > level.rate * (1.0 + CHANGE_KEPT));
        match shift {
            Shift::None if doubted => Judgement::Suspect,
            Shift::None => Judgement::InLine,
            Shift::Suspected => Judgement::Suspect,
            Shift::Found { .. } => Judgement::Changed,
        }
    }

    /// The capacity; `None` before the first sample.
    #[must_use]
    pub fn bytes_per_sec(&self) -> Option<f64> {
        self.level.map(|level| level.rate)
    }

    /// 0 to 1: grows with the samples that agree, falls with their spread and their age.
    #[must_use]
    pub fn confidence(&self, now_ns: u64) -> f64 {
        let (Some(level), Some(last)) = (self.level, self.samples.last()) else { return 0.0 };
        let count = level.count as f64;
        let age = now_ns.saturating_sub(last.at_ns) as f64 / AGE_HALF_NS;
        let spread = (1.0 - level.spread * SPREAD_WEIGHT).clamp(0.0, 1.0);
        count / (count + 1.0) * spread / (1.0 + age)
    }

    fn forget(&mut self, now_ns: u64, peer: HostId) {
        self.samples.retain(|sample| now_ns.saturating_sub(sample.at_ns) <= AGE_NS_MAX);
        let mut of_peer = self.samples.iter().filter(|sample| sample.peer == peer).count();
        let full = self.samples.len() > SAMPLES_MAX;
        let mut excess = usize::from(full);
        self.samples.retain(|sample| {
            if sample.peer == peer && of_peer > PEER_SAMPLES_MAX {
                of_peer -= 1;
                return false;
            }
            excess == 0 || {
                excess -= 1;
                false
            }
        });
    }

    fn measure(&self) -> Option<Level> {
        let of = |peer: HostId| self.samples.iter().filter(move |s| s.peer == peer);
        let first_of = |index: usize| {
            let peer = self.samples[index].peer;
            !self.samples[..index].iter().any(|sample| sample.peer == peer)
        };
        let peers = (0..self.samples.len()).filter(|i| first_of(*i)).map(|i| self.samples[i].peer);
        let medians: Vec<(HostId, f64)> = peers
            .filter_map(|peer| {
                let mut rates: Vec<f64> = of(peer).map(|sample| sample.rate).collect();
                Some((peer, lower_median(&mut rates)?))
            })
            .collect();
        // What two samples have shown can be believed, by whichever peers; without, the most.
        let supported = |rate: f64| {
            self.samples.iter().filter(|sample| sample.rate >= rate * POOLED).count() >= 2
        };
        let rates = || medians.iter().map(|(_, rate)| *rate);
        let best = rates().filter(|rate| supported(*rate)).reduce(f64::max);
        let best = best.or_else(|| rates().reduce(f64::max))?;
        let counts = |(_, rate): &(HostId, f64)| *rate >= best * POOLED && *rate <= best / POOLED;
        let pooled: Vec<HostId> = medians.iter().filter(|m| counts(m)).map(|m| m.0).collect();
        let mut rates: Vec<f64> = self
            .samples
            .iter()
            .filter(|sample| pooled.contains(&sample.peer))
            .map(|sample| sample.rate)
            .collect();
        let rate = median(&mut rates)?;
        let mut deviations: Vec<f64> = rates.iter().map(|other| (other - rate).abs()).collect();
        let spread = 1.4826 * median(&mut deviations)? / rate;
        Some(Level { rate, spread: spread.clamp(SPREAD_MIN, SPREAD_MAX), count: rates.len() })
    }
}

/// The middle one, or the lower of the two.
fn lower_median(values: &mut [f64]) -> Option<f64> {
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len().checked_sub(1)? / 2).copied()
}

/// The middle one, or the mean of the two.
pub(super) fn median(values: &mut [f64]) -> Option<f64> {
    let low = lower_median(values)?;
    Some((low + values[values.len() / 2]) / 2.0)
}

/// Fewer samples are a first impression, from which nothing can deviate.
const LEVEL_SAMPLES_MIN: usize = 3;
const PEER_SAMPLES_MAX: usize = 9;
const SAMPLES_MAX: usize = 64;
const AGE_NS_MAX: u64 = 30_000_000_000;
/// Medians of peers this close to the best are of the same link.
const POOLED: f64 = 0.95;
/// Samples this far from the one that confirmed a change are not of its level.
const CHANGE_KEPT: f64 = 0.15;
/// A wider spread would make the detector blind.
const SPREAD_MAX: f64 = 0.1;
const SPREAD_WEIGHT: f64 = 5.0;
/// Age at which a sample is worth half.
const AGE_HALF_NS: f64 = 10e9;
