//! Policies whose choice holds for a quantum: continuous 2D-LAS, continuous 2D-Gittins, and taking
//! turns as in Gandiva.
//!
//! At every multiple of the quantum all jobs are ranked anew and may stop each other; in between
//! free GPUs are filled. Least attained service goes by arrival where services are equal; a higher
//! Gittins index stops a lower one, an equal one does not. A quantum's end costs O(jobs that run).
//! Sources: Tiresias, NSDI'19, sections 3.2 and 3.3; Gandiva, OSDI'18, section 4.1 for the turns.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::gittins::Index;
use super::greedy::{Greedy, Rank};
use super::{Decision, Delta, Jobs, Manner, Policy, PolicyError, Scheduler, Setting};
use crate::job::{JobId, NS_PER_S};

/// A policy with a quantum. Looks at the knob `quantum_ns`; with an index also at
/// `history_gpu_ns` and `gittins_table`.
#[derive(Clone, Copy, Debug)]
pub struct Sliced {
    name: &'static str,
    rule: Rule,
}

impl Sliced {
    /// Least attained service first: 2D-LAS.
    pub const LEAST_SERVED: Self = Self { name: "2d-las", rule: Rule::LeastServed };
    /// Highest Gittins index first: 2D-Gittins.
    pub const GITTINS: Self = Self { name: "2d-gittins", rule: Rule::Gittins };
    /// In turn, placed by trial: like Gandiva.
    pub const TURNS: Self = Self { name: "gandiva", rule: Rule::Turns };
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Rule {
    LeastServed,
    Gittins,
    Turns,
}

impl Policy<Jobs> for Sliced {
    fn name(&self) -> &str {
        self.name
    }

    fn manner(&self) -> Manner {
        let placement = (self.rule == Rule::Turns).then_some("trial");
        Manner { placement, ..Manner::default() }
    }

    fn plan(&self, setting: &Setting) -> Result<Box<dyn Scheduler>, PolicyError> {
        let quantum_ns = setting.knobs.quantum_ns;
        Ok(Box::new(Slices {
            rule: self.rule,
            greedy: Greedy::new(setting.cluster.gpus(), |_| 0),
            index: (self.rule == Rule::Gittins).then(|| Index::new(&setting.knobs)),
            quantum_ns: if quantum_ns == 0 { QUANTUM_DEFAULT_NS } else { quantum_ns },
            ticked_ns: None,
            jobs: Vec::new(),
            arrivals: 0,
        }))
    }
}

/// How long a choice holds unless told otherwise.
pub const QUANTUM_DEFAULT_NS: u64 = 60 * NS_PER_S;

#[derive(Debug)]
struct Slices {
    rule: Rule,
    greedy: Greedy,
    index: Option<Index>,
    quantum_ns: u64,
    ticked_ns: Option<u64>,
    jobs: Vec<Entry>,
    arrivals: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    gpus: u32,
    arrival: u64,
    runs_from_ns: Option<u64>,
    waits_from_ns: u64,
    executed_ns: u64,
}

impl Slices {
    fn rank(&self, id: JobId, now_ns: u64) -> Rank {
        let entry = &self.jobs[id.index()];
        let now = entry.runs_from_ns.map_or(0, |from_ns| now_ns - from_ns);
        let served_ns = (entry.executed_ns + now).saturating_mul(entry.gpus.into());
        match &self.index {
            Some(index) => index.rank(index.at(served_ns)),
            None if self.rule == Rule::Turns => {
                entry.runs_from_ns.map_or(entry.waits_from_ns, |_| now_ns).into()
            }
            // The arrival is part of the rank: of equal services the earlier stops the later.
            None => (Rank::from(served_ns) << 63) | Rank::from(entry.arrival),
        }
    }

    fn rank_anew(&mut self, id: JobId, now_ns: u64) {
        let rank = self.rank(id, now_ns);
        self.greedy.rank(id, now_ns, rank, self.jobs[id.index()].arrival);
    }

    fn stopped(&mut self, id: JobId, now_ns: u64) {
        let entry = &mut self.jobs[id.index()];
        if let Some(from_ns) = entry.runs_from_ns.take() {
            entry.executed_ns += now_ns - from_ns;
            entry.waits_from_ns = now_ns;
        }
        self.rank_anew(id, now_ns);
    }
}

impl Scheduler for Slices {
    fn handle(&mut self, now_ns: u64, delta: Delta<'_>) -> Result<(), PolicyError> {
        match delta {
            Delta::Arrived { id, job } => {
                self.jobs.resize(self.jobs.len().max(id.index() + 1), Entry::default());
                let (gpus, arrival) = (job.gpus, self.arrivals);
                self.arrivals += 1;
                let waits_from_ns = now_ns;
                self.jobs[id.index()] = Entry { gpus, arrival, waits_from_ns, ..Entry::default() };
                self.greedy.add(id, gpus, self.rank(id, now_ns), arrival);
            }
            Delta::Ended { id } => self.greedy.remove(id),
            Delta::Served { id, executed_ns, .. } => {
                let entry = &mut self.jobs[id.index()];
                entry.executed_ns = executed_ns;
                entry.runs_from_ns = entry.runs_from_ns.map(|_| now_ns);
                self.rank_anew(id, now_ns);
            }
            Delta::Unplaced { id } => {
                self.greedy.unplaced(id, now_ns);
                self.stopped(id, now_ns);
            }
        }
        Ok(())
    }

    fn poll(&mut self, now_ns: u64, decision: &mut Decision) -> Result<(), PolicyError> {
        let is_tick = now_ns.is_multiple_of(self.quantum_ns) && self.ticked_ns != Some(now_ns);
        if is_tick {
            self.ticked_ns = Some(now_ns);
            let running: Vec<JobId> = self.greedy.running().collect();
            running.into_iter().for_each(|id| self.rank_anew(id, now_ns));
        }
        self.greedy.settle(now_ns, is_tick, decision);
        for change in &decision.changes {
            match change.gpus {
                0 => self.stopped(change.id, now_ns),
                _ => self.jobs[change.id.index()].runs_from_ns = Some(now_ns),
            }
        }
        let next_ns = now_ns - now_ns % self.quantum_ns + self.quantum_ns;
        decision.again_at_ns = self.greedy.has_rivals().then_some(next_ns);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
