//! First come, first served, without stopping a job: strict, and with backfill.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::greedy::Greedy;
use super::{Change, Decision, Delta, Jobs, Manner, Policy, PolicyError, Scheduler, Setting};
use crate::job::JobId;

/// The job that came first, and nobody ahead of it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fifo;

impl Policy<Jobs> for Fifo {
    fn name(&self) -> &str {
        "fifo"
    }

    fn plan(&self, setting: &Setting) -> Result<Box<dyn Scheduler>, PolicyError> {
        let free = setting.cluster.gpus();
        Ok(Box::new(Strict { free, held: Widths::default(), queue: VecDeque::new(), stuck: false }))
    }
}

/// As [`Fifo`], placed as YARN places: the capacity scheduler that Tiresias is compared with.
#[derive(Clone, Copy, Debug, Default)]
pub struct YarnCs;

impl Policy<Jobs> for YarnCs {
    fn name(&self) -> &str {
        "yarn-cs"
    }

    fn manner(&self) -> Manner {
        Manner { placement: Some("yarn"), ..Manner::default() }
    }

    fn plan(&self, setting: &Setting) -> Result<Box<dyn Scheduler>, PolicyError> {
        Fifo.plan(setting)
    }
}

/// In order of arrival whatever fits.
#[derive(Clone, Copy, Debug, Default)]
pub struct Backfill;

impl Policy<Jobs> for Backfill {
    fn name(&self) -> &str {
        "fjf"
    }

    fn plan(&self, setting: &Setting) -> Result<Box<dyn Scheduler>, PolicyError> {
        let greedy = Greedy::new(setting.cluster.gpus(), |_| 0);
        Ok(Box::new(Filling { greedy, arrivals: 0 }))
    }
}

/// How many GPUs each job asks for, by id.
#[derive(Debug, Default)]
struct Widths(Vec<u32>);

impl Widths {
    fn set(&mut self, id: JobId, gpus: u32) {
        if self.0.len() <= id.index() {
            self.0.resize(id.index() + 1, 0);
        }
        self.0[id.index()] = gpus;
    }

    fn of(&self, id: JobId) -> u32 {
        self.0[id.index()]
    }
}

#[derive(Debug)]
struct Strict {
    free: u32,
    held: Widths,
    queue: VecDeque<JobId>,
    /// The first found no place; nothing changes that until a job ends.
    stuck: bool,
}

impl Scheduler for Strict {
    fn handle(&mut self, _: u64, delta: Delta<'_>) -> Result<(), PolicyError> {
        match delta {
            Delta::Arrived { id, job } => {
                self.held.set(id, job.gpus);
                self.queue.push_back(id);
            }
            Delta::Ended { id } => {
                self.free += self.held.of(id);
                self.stuck = false;
            }
            Delta::Unplaced { id } => {
                self.free += self.held.of(id);
                self.queue.push_front(id);
                self.stuck = true;
            }
            Delta::Served { .. } => {}
        }
        Ok(())
    }

    /// One at a time: the next may only go when this one has found its place.
    fn poll(&mut self, now_ns: u64, decision: &mut Decision) -> Result<(), PolicyError> {
        let first = self.queue.front().filter(|_| !self.stuck).copied();
        let Some((id, free)) =
            first.and_then(|id| Some((id, self.free.checked_sub(self.held.of(id))?)))
        else {
            return Ok(());
        };
        self.queue.pop_front();
        self.free = free;
        decision.changes.push(Change { id, gpus: self.held.of(id) });
        decision.again_at_ns = Some(now_ns);
        Ok(())
    }
}

#[derive(Debug)]
struct Filling {
    greedy: Greedy,
    arrivals: u64,
}

impl Scheduler for Filling {
    fn handle(&mut self, now_ns: u64, delta: Delta<'_>) -> Result<(), PolicyError> {
        match delta {
            Delta::Arrived { id, job } => {
                self.greedy.add(id, job.gpus, 0, self.arrivals);
                self.arrivals += 1;
            }
            Delta::Ended { id } => self.greedy.remove(id),
            Delta::Unplaced { id } => self.greedy.unplaced(id, now_ns),
            Delta::Served { .. } => {}
        }
        Ok(())
    }

    fn poll(&mut self, now_ns: u64, decision: &mut Decision) -> Result<(), PolicyError> {
        self.greedy.settle(now_ns, false, decision);
        Ok(())
    }
}
