//! Elastic jobs: how wide each runs, while they come and go (arXiv 1908.08082; Optimus, EuroSys'18).
//!
//! | name | widths |
//! | --- | --- |
//! | `fixed-N` | N GPUs each, or the most below that on which the job runs; in order of arrival |
//! | `doubling` | the doubling heuristic, with speeds known beforehand ("precompute") |
//! | `doubling-explore` | the same, with speeds that each job's first minutes tell ([`explore`]) |
//! | `optimus` | one GPU more where it gains most |
//!
//! Widths are chosen anew whenever a job comes or ends, and cost [`Knobs::restart_ns`](super::Knobs::restart_ns) each time
//! that one changes; what is left of a job is taken for known, as a loss curve would tell it
//! ([`crate::model::loss`]). A job that runs at the width that it asked for and at no other gets
//! that width or nothing. Knobs: [`Knobs::restart_ns`](super::Knobs::restart_ns).
//!
//! Invariant: no more GPUs than there are, those that an exploring job keeps for itself included.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::{
    Change, Decision, Delta, Family, Jobs, Policy, PolicyError, Scheduler, Setting, Widths,
};
use crate::job::{Job, JobId, NS_PER_S};

pub mod explore;
pub mod widths;

use explore::Exploration;
use widths::{Demand, Growth, Speedups};

/// The doubling heuristic; speeds are known beforehand.
#[derive(Clone, Copy, Debug)]
pub struct Doubling;

/// The doubling heuristic; speeds are measured in each job's first minutes.
#[derive(Clone, Copy, Debug)]
pub struct DoublingExplore;

/// One GPU more where it gains most.
#[derive(Clone, Copy, Debug)]
pub struct Optimus;

/// The same width for all jobs.
#[derive(Clone, Debug)]
pub struct Fixed {
    name: String,
    gpus: u32,
}

/// `fixed-N`.
pub const FIXED: Family<Jobs> = Family { pattern: "fixed-N", member: fixed };

fn fixed(name: &str) -> Option<Arc<dyn Policy<Jobs>>> {
    let gpus = name.strip_prefix("fixed-")?.parse::<u32>().ok().filter(|gpus| *gpus > 0)?;
    Some(Arc::new(Fixed { name: format!("fixed-{gpus}"), gpus }))
}

impl Policy<Jobs> for Doubling {
    fn name(&self) -> &str {
        "doubling"
    }

    fn plan(&self, setting: &Setting) -> Result<Box<dyn Scheduler>, PolicyError> {
        Ok(Box::new(Elastic::new(setting, Rule::Grow(Growth::Doubling))))
    }
}

impl Policy<Jobs> for DoublingExplore {
    fn name(&self) -> &str {
        "doubling-explore"
    }

    fn plan(&self, setting: &Setting) -> Result<Box<dyn Scheduler>, PolicyError> {
        Ok(Box::new(Elastic::new(setting, Rule::Explore)))
    }
}

impl Policy<Jobs> for Optimus {
    fn name(&self) -> &str {
        "optimus"
    }

    fn plan(&self, setting: &Setting) -> Result<Box<dyn Scheduler>, PolicyError> {
        Ok(Box::new(Elastic::new(setting, Rule::Grow(Growth::One))))
    }
}

impl Policy<Jobs> for Fixed {
    fn name(&self) -> &str {
        &self.name
    }

    fn plan(&self, setting: &Setting) -> Result<Box<dyn Scheduler>, PolicyError> {
        Ok(Box::new(Elastic::new(setting, Rule::Fixed(self.gpus))))
    }
}

/// How widths are chosen.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Rule {
    Fixed(u32),
    Grow(Growth),
    Explore,
}

/// A policy at work.
#[derive(Debug)]
struct Elastic {
    rule: Rule,
    gpus: u32,
    restart_ns: u64,
    widths: Arc<dyn Widths>,
    /// By [`JobId`].
    jobs: Vec<Option<Known>>,
    /// All jobs that there are, in order of arrival.
    order: Vec<JobId>,
    /// Whether anything happened since widths were chosen.
    is_stale: bool,
}

/// What is known of a job.
#[derive(Debug)]
struct Known {
    /// What is left of its duration at the width that it asked for, at `since_ns`.
    remaining_ns: f64,
    since_ns: u64,
    /// When it works again after it changed its width.
    works_from_ns: u64,
    width: u32,
    has_run: bool,
    /// There was no place for it; it waits until another ends.
    is_unplaced: bool,
    /// How much faster it is than at the width that it asked for, as far as the policy knows.
    speeds: Speedups,
    /// While its speeds are being measured, or before.
    exploration: Option<Exploration>,
    /// How fast it really is, for what has been done meanwhile.
    real: Speedups,
}

impl Known {
    fn new(now_ns: u64, job: &Job, real: Speedups, explores: bool) -> Self {
        // Who cannot run at every width that is tried is not tried.
        let can_explore = explore::WIDTHS.iter().all(|width| real.at(*width) > 0.0);
        let exploration = (explores && can_explore).then(Exploration::default);
        Self {
            remaining_ns: job.duration_ns as f64,
            since_ns: now_ns,
            works_from_ns: now_ns,
            width: 0,
            has_run: false,
            is_unplaced: false,
            speeds: real.clone(),
            exploration,
            real,
        }
    }

    /// What is left of its duration now.
    fn remaining_at(&self, now_ns: u64) -> f64 {
        let worked_ns = now_ns.saturating_sub(self.works_from_ns.max(self.since_ns)) as f64;
        (self.remaining_ns - worked_ns * self.real.at(self.width)).max(0.0)
    }

    fn demand(&self, now_ns: u64) -> Demand<&Speedups> {
        let iterations = self.remaining_at(now_ns) / NS_PER_S as f64;
        Demand { iterations, speed: &self.speeds, least: self.speeds.least() }
    }
}

impl Elastic {
    fn new(setting: &Setting, rule: Rule) -> Self {
        Self {
            rule,
            gpus: setting.cluster.gpus(),
            restart_ns: setting.knobs.restart_ns,
            widths: Arc::clone(&setting.widths),
            jobs: Vec::new(),
            order: Vec::new(),
            is_stale: false,
        }
    }

    fn known(&self, id: JobId) -> &Known {
        self.jobs[id.index()].as_ref().expect("in the order, so known")
    }

    /// The widths that the jobs of `order` shall have now, in that order.
    fn choose(&mut self, now_ns: u64) -> Vec<u32> {
        match self.rule {
            Rule::Fixed(gpus) => self.fixed(gpus),
            Rule::Grow(growth) => self.grown(now_ns, self.gpus, growth, |known| !known.is_unplaced),
            Rule::Explore => {
                let (mut widths, kept) = self.exploring(now_ns);
                let left = self.gpus - kept;
                let known = |known: &Known| !known.is_unplaced && known.exploration.is_none();
                let grown = self.grown(now_ns, left, Growth::Doubling, known);
                for (width, grown) in widths.iter_mut().zip(grown) {
                    *width += grown;
                }
                widths
            }
        }
    }

    /// In order of arrival, none before the one that came earlier.
    fn fixed(&self, gpus: u32) -> Vec<u32> {
        let mut free = self.gpus;
        let mut widths = vec![0; self.order.len()];
        for (width, id) in widths.iter_mut().zip(&self.order) {
            let known = self.known(*id);
            let wanted = known.speeds.widest_below(gpus);
            if known.is_unplaced {
                continue;
            }
            if wanted > free {
                break;
            }
            *width = wanted;
            free -= wanted;
        }
        widths
    }

    /// Grows those that `takes_part` names into `gpus`; 0 for the others.
    fn grown(
        &self,
        now_ns: u64,
        gpus: u32,
        growth: Growth,
        takes_part: impl Fn(&Known) -> bool,
    ) -> Vec<u32> {
        let parts: Vec<usize> =
            (0..self.order.len()).filter(|at| takes_part(self.known(self.order[*at]))).collect();
        let demands: Vec<_> =
            parts.iter().map(|at| self.known(self.order[*at]).demand(now_ns)).collect();
        let mut all = vec![0; self.order.len()];
        for (at, width) in parts.into_iter().zip(widths::grow(&demands, gpus, growth)) {
            all[at] = width;
        }
        all
    }

    /// The widths of those that explore, and how many GPUs they keep for themselves: those that
    /// began go on, and then the next ones in order of arrival, as far as GPUs go.
    fn exploring(&mut self, now_ns: u64) -> (Vec<u32>, u32) {
        let of_each = explore::GPUS.min(self.gpus);
        let mut kept = 0;
        let mut widths = vec![0; self.order.len()];
        for begun in [true, false] {
            for (width, id) in widths.iter_mut().zip(&self.order) {
                let known = self.jobs[id.index()].as_mut().expect("in the order, so known");
                let Some(exploration) = &mut known.exploration else { continue };
                let fits = kept + of_each <= self.gpus && !known.is_unplaced;
                if exploration.has_begun() != begun || *width > 0 || !fits {
                    continue;
                }
                *width = exploration.begin(now_ns).min(of_each);
                kept += of_each;
            }
        }
        (widths, kept)
    }

    /// Ends the phases whose time is over; what they measured was told before.
    fn end_phases(&mut self, now_ns: u64) {
        for id in &self.order {
            let known = self.jobs[id.index()].as_mut().expect("in the order, so known");
            let Some(exploration) = &mut known.exploration else { continue };
            if !exploration.is_due(now_ns) {
                continue;
            }
            self.is_stale = true;
            let worked_ns = now_ns.saturating_sub(known.works_from_ns);
            let speed = known.real.at(known.width);
            if exploration.measured(now_ns, worked_ns, known.width, speed) {
                let measured = exploration.speeds(known.real.widest());
                known.exploration = None;
                known.speeds = measured;
            }
        }
    }
}

impl Scheduler for Elastic {
    fn handle(&mut self, now_ns: u64, delta: Delta<'_>) -> Result<(), PolicyError> {
        match delta {
            Delta::Arrived { id, job } => {
                let real = Speedups::of(self.widths.as_ref(), job, self.gpus);
                let known = Known::new(now_ns, job, real, self.rule == Rule::Explore);
                if self.jobs.len() <= id.index() {
                    self.jobs.resize_with(id.index() + 1, || None);
                }
                self.jobs[id.index()] = Some(known);
                self.order.push(id);
                self.is_stale = true;
            }
            Delta::Ended { id } => {
                self.jobs[id.index()] = None;
                self.order.retain(|other| *other != id);
                self.jobs.iter_mut().flatten().for_each(|known| known.is_unplaced = false);
                self.is_stale = true;
            }
            Delta::Served { id, remaining_ns, .. } => {
                if let Some(known) = &mut self.jobs[id.index()] {
                    known.remaining_ns = remaining_ns as f64;
                    known.since_ns = now_ns;
                }
            }
            Delta::Unplaced { id } => {
                if let Some(known) = &mut self.jobs[id.index()] {
                    known.is_unplaced = true;
                    known.width = 0;
                    self.is_stale = true;
                }
            }
        }
        Ok(())
    }

    fn poll(&mut self, now_ns: u64, decision: &mut Decision) -> Result<(), PolicyError> {
        if self.rule == Rule::Explore {
            self.end_phases(now_ns);
        }
        if self.is_stale {
            self.is_stale = false;
            let chosen = self.choose(now_ns);
            for (id, gpus) in self.order.iter().zip(chosen) {
                let known = self.jobs[id.index()].as_mut().expect("in the order, so known");
                if known.width == gpus {
                    continue;
                }
                known.remaining_ns = known.remaining_at(now_ns);
                known.since_ns = now_ns;
                let pause_ns = if known.has_run { self.restart_ns } else { 0 };
                known.works_from_ns = now_ns.saturating_add(pause_ns);
                known.has_run |= gpus > 0;
                known.width = gpus;
                decision.changes.push(Change { id: *id, gpus });
            }
        }
        let ends = |id: &JobId| self.known(*id).exploration.as_ref().and_then(Exploration::ends_ns);
        decision.again_at_ns = self.order.iter().filter_map(ends).min();
        Ok(())
    }
}

#[cfg(test)]
mod tests;
