//! Elastic jobs: how wide each runs, while they come and go (arXiv 1908.08082; Optimus,
//! EuroSys'18).
//!
//! | name | widths |
//! | --- | --- |
//! | `fixed-N` | N GPUs each, or the most below that on which the job runs; in order of arrival |
//! | `doubling` | the doubling heuristic, with speeds known beforehand ("precompute") |
//! | `doubling-explore` | the same, with speeds that each job's first minutes tell ([`explore`]) |
//! | `optimus` | one GPU more where it gains most |
//!
//! Widths are chosen anew whenever a job comes or ends, and cost
//! [`Knobs::restart_ns`](super::Knobs::restart_ns) each time that one changes; what is left of a
//! job is taken for known, as a loss curve would tell it ([`crate::model::loss`]). A job that runs
//! at the width that it asked for and at no other gets that width or nothing. Knobs:
//! [`Knobs::restart_ns`](super::Knobs::restart_ns).
//!
//! Invariant: no more GPUs than there are, those that an exploring job keeps for itself included.
//! A choice costs the jobs that get GPUs, by the kinds of least widths, and not those that wait.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
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
    /// Jobs that came so far.
    arrived: u64,
    /// Jobs whose width follows from the others', in order of arrival, by the least width that they
    /// need; by none under [`Rule::Fixed`].
    waiting: BTreeMap<u32, BTreeSet<Place>>,
    /// Jobs that have begun to explore, and those that have not.
    exploring: [BTreeSet<Place>; 2],
    /// Jobs that have a width.
    running: BTreeSet<Place>,
    /// Jobs for which there was no place.
    unplaced: Vec<Place>,
    /// Whether anything happened since widths were chosen.
    is_stale: bool,
}

/// A job's place in the order of arrival.
type Place = (u64, JobId);

/// What is known of a job.
#[derive(Debug)]
struct Known {
    place: Place,
    /// What is left of its duration at the width that it asked for, at `since_ns`.
    remaining_ns: f64,
    since_ns: u64,
    /// When it works again after it changed its width.
    works_from_ns: u64,
    width: u32,
    has_run: bool,
    /// How much faster it is than at the width that it asked for, as far as the policy knows.
    speeds: Speedups,
    /// While its speeds are being measured, or before.
    exploration: Option<Exploration>,
    /// How fast it really is, for what has been done meanwhile.
    real: Speedups,
}

impl Known {
    fn new(now_ns: u64, (place, job): (Place, &Job), real: Speedups, explores: bool) -> Self {
        // A job that cannot run at every width that is tried is not tried.
        let can_explore = explore::WIDTHS.iter().all(|width| real.at(*width) > 0.0);
        let exploration = (explores && can_explore).then(Exploration::default);
        Self {
            place,
            remaining_ns: job.duration_ns as f64,
            since_ns: now_ns,
            works_from_ns: now_ns,
            width: 0,
            has_run: false,
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
            arrived: 0,
            waiting: BTreeMap::new(),
            exploring: Default::default(),
            running: BTreeSet::new(),
            unplaced: Vec::new(),
            is_stale: false,
        }
    }

    fn known(&mut self, id: JobId) -> &mut Known {
        self.jobs[id.index()].as_mut().expect("in a list, so known")
    }

    /// Puts a job that has a place into the list that it belongs to.
    fn list(&mut self, id: JobId) {
        let rule = self.rule;
        let known = self.known(id);
        let (place, least) = (known.place, known.speeds.least());
        let begun = known.exploration.as_ref().map(Exploration::has_begun);
        match begun {
            Some(begun) => self.exploring[usize::from(!begun)].insert(place),
            None => {
                let least = if let Rule::Fixed(_) = rule { 0 } else { least };
                self.waiting.entry(least).or_default().insert(place)
            }
        };
    }

    /// Takes a job out of its list.
    fn unlist(&mut self, place: Place) {
        let mut lists = self.exploring.iter_mut().chain(self.waiting.values_mut());
        let _ = lists.any(|list| list.remove(&place));
    }

    /// The jobs that shall run now, with their widths.
    fn choose(&mut self, now_ns: u64) -> BTreeMap<Place, u32> {
        match self.rule {
            Rule::Fixed(gpus) => self.fixed(gpus),
            Rule::Grow(growth) => self.grown(now_ns, self.gpus, growth),
            Rule::Explore => {
                let (mut widths, kept) = self.explored(now_ns);
                widths.extend(self.grown(now_ns, self.gpus - kept, Growth::Doubling));
                widths
            }
        }
    }

    /// In order of arrival, none before the one that came earlier.
    fn fixed(&self, gpus: u32) -> BTreeMap<Place, u32> {
        let mut free = self.gpus;
        let mut widths = BTreeMap::new();
        for place in self.waiting.values().flatten() {
            let known = self.jobs[place.1.index()].as_ref().expect("in a list, so known");
            let wanted = known.speeds.widest_below(gpus);
            if wanted > free {
                break;
            }
            widths.insert(*place, wanted);
            free -= wanted;
        }
        widths
    }

    /// Grows those that wait into `gpus`.
    fn grown(&self, now_ns: u64, gpus: u32, growth: Growth) -> BTreeMap<Place, u32> {
        let mut parts: Vec<Place> = Vec::new();
        let (mut free, mut from) = (gpus, (0, JobId(0)));
        // In order of arrival each gets the least that it needs; what is free only shrinks, so a
        // job that does not fit now never will.
        while let Some((place, least)) = self
            .waiting
            .range(..=free)
            .filter_map(|(least, list)| Some((*list.range(from..).next()?, *least)))
            .min()
        {
            parts.push(place);
            free -= least;
            from = (place.0 + 1, JobId(0));
        }
        let known = |place: &Place| self.jobs[place.1.index()].as_ref().expect("so known");
        let demands: Vec<_> = parts.iter().map(|place| known(place).demand(now_ns)).collect();
        let widths = widths::grow(&demands, gpus, growth);
        parts.into_iter().zip(widths).collect()
    }

    /// The widths of those that explore, and how many GPUs they keep for themselves: those that
    /// began go on, and then the next ones in order of arrival, as far as GPUs go.
    fn explored(&mut self, now_ns: u64) -> (BTreeMap<Place, u32>, u32) {
        let of_each = explore::GPUS.min(self.gpus);
        let places = self.gpus.checked_div(of_each).unwrap_or(0);
        let next = self.exploring.iter().flatten().copied();
        let next: Vec<Place> = next.take(places as usize).collect();
        let mut widths = BTreeMap::new();
        for place in next {
            let exploration = self.known(place.1).exploration.as_mut().expect("it explores");
            widths.insert(place, exploration.begin(now_ns).min(of_each));
            self.exploring[1].remove(&place);
            self.exploring[0].insert(place);
        }
        let kept = u32::try_from(widths.len()).unwrap_or(u32::MAX) * of_each;
        (widths, kept)
    }

    /// Jobs that have begun to explore, and some others.
    fn begun(&self) -> impl Iterator<Item = &Known> {
        let all = self.exploring[0].iter().chain(&self.unplaced);
        all.filter_map(|(_, id)| self.jobs[id.index()].as_ref())
    }

    /// Ends the phases whose time is over; what they measured was told before.
    fn end_phases(&mut self, now_ns: u64) {
        // A job without a place goes on with its phase.
        let explore: Vec<Place> = self.begun().map(|known| known.place).collect();
        for place in explore {
            let known = self.known(place.1);
            let Some(exploration) = &mut known.exploration else { continue };
            if !exploration.is_due(now_ns) {
                continue;
            }
            let worked_ns = now_ns.saturating_sub(known.works_from_ns);
            let speed = known.real.at(known.width);
            let is_last = exploration.measured(now_ns, worked_ns, known.width, speed);
            if is_last {
                let measured = exploration.speeds(known.real.widest());
                known.exploration = None;
                known.speeds = measured;
                if self.exploring[0].remove(&place) {
                    self.list(place.1);
                }
            }
            self.is_stale = true;
        }
    }
}

impl Scheduler for Elastic {
    fn handle(&mut self, now_ns: u64, delta: Delta<'_>) -> Result<(), PolicyError> {
        match delta {
            Delta::Arrived { id, job } => {
                let real = Speedups::of(self.widths.as_ref(), job, self.gpus);
                let place = (self.arrived, id);
                self.arrived += 1;
                let known = Known::new(now_ns, (place, job), real, self.rule == Rule::Explore);
                if self.jobs.len() <= id.index() {
                    self.jobs.resize_with(id.index() + 1, || None);
                }
                self.jobs[id.index()] = Some(known);
                self.list(id);
                self.is_stale = true;
            }
            Delta::Ended { id } => {
                if let Some(known) = self.jobs[id.index()].take() {
                    self.unlist(known.place);
                    self.running.remove(&known.place);
                    self.unplaced.retain(|place| *place != known.place);
                }
                for (_, id) in core::mem::take(&mut self.unplaced) {
                    self.list(id);
                }
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
                    known.width = 0;
                    let place = known.place;
                    self.unlist(place);
                    self.running.remove(&place);
                    self.unplaced.push(place);
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
            let mut chosen: BTreeMap<Place, u32> =
                self.running.iter().map(|place| (*place, 0)).collect();
            chosen.extend(self.choose(now_ns));
            for ((at, id), gpus) in chosen {
                let restart_ns = self.restart_ns;
                let known = self.known(id);
                if known.width == gpus {
                    continue;
                }
                known.remaining_ns = known.remaining_at(now_ns);
                known.since_ns = now_ns;
                let pause_ns = if known.has_run { restart_ns } else { 0 };
                known.works_from_ns = now_ns.saturating_add(pause_ns);
                known.has_run |= gpus > 0;
                known.width = gpus;
                match gpus {
                    0 => self.running.remove(&(at, id)),
                    _ => self.running.insert((at, id)),
                };
                decision.changes.push(Change { id, gpus });
            }
        }
        decision.again_at_ns = None;
        if self.rule == Rule::Explore {
            let ends = |known: &Known| known.exploration.as_ref().and_then(Exploration::ends_ns);
            decision.again_at_ns = self.begun().filter_map(ends).min();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
