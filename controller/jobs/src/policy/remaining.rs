//! By size: fewest GPUs first, shortest remaining time first, shortest remaining service first.
//!
//! All stop a job for one that is ahead of it. They know durations; what they answer for a job that
//! is slower than its trace says is only as good as that knowledge.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::greedy::{Greedy, Rank};
use super::{Decision, Delta, Jobs, Policy, PolicyError, Scheduler, Setting};

/// A policy that goes by size.
#[derive(Clone, Copy, Debug)]
pub struct BySize {
    name: &'static str,
    measure: Measure,
}

impl BySize {
    /// Fewest GPUs first: SJF.
    pub const NARROWEST: Self = Self { name: "sjf", measure: Measure::Gpus };
    /// Shortest remaining time first: SRTF.
    pub const TIME: Self = Self { name: "shortest", measure: Measure::Time };
    /// Shortest remaining service, that is time x GPUs, first: SRSF.
    pub const SERVICE: Self = Self { name: "shortest-gpu", measure: Measure::Service };
}

#[derive(Clone, Copy, Debug)]
enum Measure {
    Gpus,
    Time,
    Service,
}

impl Measure {
    fn of(self, gpus: u32, remaining_ns: u64) -> Rank {
        match self {
            Self::Gpus => gpus.into(),
            Self::Time => remaining_ns.into(),
            Self::Service => Rank::from(remaining_ns) * Rank::from(gpus),
        }
    }

    /// What of it goes by in a nanosecond on the GPUs.
    const fn drift(self) -> fn(u32) -> Rank {
        match self {
            Self::Gpus => |_| 0,
            Self::Time => |_| -1,
            Self::Service => |gpus| -(gpus as Rank),
        }
    }
}

impl Policy<Jobs> for BySize {
    fn name(&self) -> &str {
        self.name
    }

    fn plan(&self, setting: &Setting) -> Result<Box<dyn Scheduler>, PolicyError> {
        let greedy = Greedy::new(setting.cluster.gpus(), self.measure.drift());
        Ok(Box::new(Sizes { measure: self.measure, greedy, arrivals: 0, jobs: Vec::new() }))
    }
}

#[derive(Debug)]
struct Sizes {
    measure: Measure,
    greedy: Greedy,
    arrivals: u64,
    /// GPUs and arrival, by id.
    jobs: Vec<(u32, u64)>,
}

impl Scheduler for Sizes {
    fn handle(&mut self, now_ns: u64, delta: Delta<'_>) -> Result<(), PolicyError> {
        match delta {
            Delta::Arrived { id, job } => {
                self.jobs.resize(self.jobs.len().max(id.index() + 1), (0, 0));
                self.jobs[id.index()] = (job.gpus, self.arrivals);
                let rank = self.measure.of(job.gpus, job.duration_ns);
                self.greedy.add(id, job.gpus, rank, self.arrivals);
                self.arrivals += 1;
            }
            Delta::Ended { id } => self.greedy.remove(id),
            Delta::Served { id, remaining_ns, .. } => {
                let (gpus, arrival) = self.jobs[id.index()];
                self.greedy.rank(id, now_ns, self.measure.of(gpus, remaining_ns), arrival);
            }
            Delta::Unplaced { id } => self.greedy.unplaced(id, now_ns),
        }
        Ok(())
    }

    fn poll(&mut self, now_ns: u64, decision: &mut Decision) -> Result<(), PolicyError> {
        self.greedy.settle(now_ns, true, decision);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
