//! How wide each of several jobs runs: the doubling heuristic, the +1 greedy, and the optimum.
//!
//! The problem (arXiv 1908.08082): `sum t_j` shall be small, where job `j` takes `t_j = Q_j /
//! f_j(w_j)` seconds for what is left of it at width `w_j`, and all widths are at most the GPUs.
//!
//! Invariant: no more GPUs than there are; every job gets the least that it needs before any gets
//! more, in order, as far as they go.

use alloc::collections::BinaryHeap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cmp::Ordering;

use crate::job::Job;
use crate::model::speed::Speed;
use crate::policy::Widths;

/// What is left of a job, and how fast it runs.
#[derive(Clone, Copy, Debug)]
pub struct Demand<S> {
    /// Iterations that are left.
    pub iterations: f64,
    /// Iterations per second by width.
    pub speed: S,
    /// The narrowest width at which it runs; mostly 1.
    pub least: u32,
}

impl<S: Speed> Demand<S> {
    /// Seconds that are left at `width`.
    #[must_use]
    pub fn seconds(&self, width: u32) -> f64 {
        self.speed.seconds(self.iterations, width)
    }
}

/// How much faster a job is at each width than at the one that it asked for, from 1 on; shared.
#[derive(Clone, Debug, Default)]
pub struct Speedups(Arc<[f64]>);

impl Speedups {
    /// From the widths 1, 2, 3 and so on.
    #[must_use]
    pub fn new(speedups: impl Iterator<Item = f64>) -> Self {
        Self(speedups.collect())
    }

    /// Of a job on a cluster of so many GPUs, up to the widest at which it runs.
    #[must_use]
    pub fn of(widths: &dyn Widths, job: &Job, gpus: u32) -> Self {
        let fastest = widths.gpus_max(job);
        let all = (1..=gpus).map(|width| (width, widths.speedup(job, width)));
        let runs = all.take_while(|(width, speedup)| *width <= fastest || *speedup > 0.0);
        Self::new(runs.map(|(_, speedup)| speedup))
    }

    /// The widest width that it has.
    #[must_use]
    pub fn widest(&self) -> u32 {
        u32::try_from(self.0.len()).unwrap_or(u32::MAX)
    }

    /// At a width; 0 where it does not run.
    #[must_use]
    pub fn at(&self, width: u32) -> f64 {
        let index = (width as usize).checked_sub(1);
        index.and_then(|index| self.0.get(index)).copied().unwrap_or(0.0)
    }

    /// The narrowest width at which it runs; beyond all of them if there is none.
    #[must_use]
    pub fn least(&self) -> u32 {
        let runs = self.0.iter().position(|speedup| *speedup > 0.0);
        u32::try_from(runs.unwrap_or(self.0.len())).unwrap_or(u32::MAX).saturating_add(1)
    }

    /// The widest that is at most `gpus` wide and at which it runs, else the narrowest.
    #[must_use]
    pub fn widest_below(&self, gpus: u32) -> u32 {
        let runs = |width: &u32| self.at(*width) > 0.0;
        (1..=gpus).rev().find(runs).unwrap_or_else(|| self.least())
    }
}

impl Speed for Speedups {
    fn iterations_per_s(&self, width: u32) -> f64 {
        self.at(width)
    }
}

/// How a job's next width follows.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Growth {
    /// Twice as wide; the gain is that of a GPU of those that are added (equation 6).
    Doubling,
    /// One more, as Optimus; where a step gains nothing the job stays, though a longer one would.
    One,
}

impl Growth {
    const fn after(self, width: u32) -> u32 {
        match self {
            Self::Doubling => width.saturating_mul(2),
            Self::One => width.saturating_add(1),
        }
    }
}

/// A step that a job could take.
#[derive(Clone, Copy, Debug)]
struct Step {
    /// Seconds less, for each GPU that is added.
    gain_s: f64,
    job: usize,
}

impl Ord for Step {
    /// The largest gain first; of two the job that comes first.
    fn cmp(&self, other: &Self) -> Ordering {
        self.gain_s.total_cmp(&other.gain_s).then(other.job.cmp(&self.job))
    }
}

impl PartialOrd for Step {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Step {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Step {}

/// The widths of all jobs, in their order; 0 for those for which there is no GPU. Takes the step
/// that gains most, over and over, until none gains or none fits. Costs a heap of the jobs.
#[must_use]
pub fn grow<S: Speed>(jobs: &[Demand<S>], gpus: u32, growth: Growth) -> Vec<u32> {
    let mut free = gpus;
    let mut widths: Vec<u32> = Vec::with_capacity(jobs.len());
    for job in jobs {
        let least = if job.least <= free { job.least } else { 0 };
        widths.push(least);
        free -= least;
    }
    let step = |job: usize, width: u32| {
        let wider = growth.after(width);
        let added = wider - width;
        let less_s = jobs[job].seconds(width) - jobs[job].seconds(wider);
        let gain_s = less_s / f64::from(added);
        (width > 0 && gain_s > 0.0).then_some(Step { gain_s, job })
    };
    let mut steps: BinaryHeap<Step> =
        (0..jobs.len()).filter_map(|job| step(job, widths[job])).collect();
    while free > 0 {
        let Some(Step { job, .. }) = steps.pop() else { break };
        let added = growth.after(widths[job]) - widths[job];
        // What is free only shrinks, so a step that does not fit now never will.
        if added > free {
            continue;
        }
        free -= added;
        widths[job] += added;
        steps.extend(step(job, widths[job]));
    }
    widths
}

/// The learning rate after a change of width: it grows with the batch (equation 7).
#[must_use]
pub fn learning_rate(old: f64, old_width: u32, new_width: u32) -> f64 {
    old * f64::from(new_width) / f64::from(old_width)
}

/// Seconds of all jobs together at these widths; infinite where one does not run.
#[must_use]
pub fn total_s<S: Speed>(jobs: &[Demand<S>], widths: &[u32]) -> f64 {
    jobs.iter().zip(widths).map(|(job, width)| job.seconds(*width)).sum()
}

/// The best widths there are, one of them for every job, and their [`total_s`]; `None` where there
/// are more jobs than GPUs. Job by job over all that the ones before it may leave: jobs x gpus²
/// steps, for small cases and as an oracle.
#[must_use]
pub fn optimum<S: Speed>(jobs: &[Demand<S>], gpus: u32) -> Option<(Vec<u32>, f64)> {
    let count = gpus as usize + 1;
    // The least seconds of the jobs so far with at most so many GPUs, and the last one's width.
    let mut least = vec![0.0; count];
    let mut chosen: Vec<Vec<u32>> = Vec::with_capacity(jobs.len());
    for job in jobs {
        let seconds: Vec<f64> = (0..=gpus).map(|width| job.seconds(width)).collect();
        let mut with = vec![f64::INFINITY; count];
        let mut widths = vec![0; count];
        for used in 1..count {
            for width in 1..=used {
                let total = least[used - width] + seconds[width];
                if total < with[used] {
                    with[used] = total;
                    widths[used] = u32::try_from(width).unwrap_or(u32::MAX);
                }
            }
        }
        least = with;
        chosen.push(widths);
    }
    let mut left = gpus as usize;
    let total = least[left];
    let mut widths = vec![0; jobs.len()];
    for (job, of_left) in chosen.iter().enumerate().rev() {
        widths[job] = of_left[left];
        left -= widths[job] as usize;
    }
    total.is_finite().then_some((widths, total))
}

#[cfg(test)]
mod tests;
