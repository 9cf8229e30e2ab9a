//! First come, first served, without stopping a job: strict, and with backfill.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use super::{Change, Decision, Delta, Jobs, Policy, PolicyError, Scheduler, Setting};
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

/// In order of arrival whatever fits.
#[derive(Clone, Copy, Debug, Default)]
pub struct Backfill;

impl Policy<Jobs> for Backfill {
    fn name(&self) -> &str {
        "fjf"
    }

    fn plan(&self, setting: &Setting) -> Result<Box<dyn Scheduler>, PolicyError> {
        Ok(Box::new(Filling { free: setting.cluster.gpus(), ..Filling::default() }))
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

#[derive(Debug, Default)]
struct Filling {
    free: u32,
    arrivals: u64,
    held: Widths,
    /// Jobs that wait, by how many GPUs they ask for and then by arrival.
    waiting: BTreeMap<u32, BTreeSet<(u64, JobId)>>,
    /// Arrival numbers of all, by id.
    arrived: Vec<u64>,
    /// Found no place; nothing changes that until a job ends.
    unplaced: Vec<JobId>,
}

impl Filling {
    fn wait(&mut self, id: JobId) {
        let arrived = self.arrived[id.index()];
        self.waiting.entry(self.held.of(id)).or_default().insert((arrived, id));
    }
}

impl Scheduler for Filling {
    fn handle(&mut self, _: u64, delta: Delta<'_>) -> Result<(), PolicyError> {
        match delta {
            Delta::Arrived { id, job } => {
                self.held.set(id, job.gpus);
                self.arrived.resize(self.arrived.len().max(id.index() + 1), 0);
                self.arrived[id.index()] = self.arrivals;
                self.arrivals += 1;
                self.wait(id);
            }
            Delta::Ended { id } => {
                self.free += self.held.of(id);
                for id in core::mem::take(&mut self.unplaced) {
                    self.wait(id);
                }
            }
            Delta::Unplaced { id } => {
                self.free += self.held.of(id);
                self.unplaced.push(id);
            }
            Delta::Served { .. } => {}
        }
        Ok(())
    }

    fn poll(&mut self, _: u64, decision: &mut Decision) -> Result<(), PolicyError> {
        loop {
            let fit = self.waiting.range(..=self.free);
            let Some((_, id)) = fit.filter_map(|(_, queue)| queue.first()).min().copied() else {
                return Ok(());
            };
            let gpus = self.held.of(id);
            self.free -= gpus;
            let queue = self.waiting.get_mut(&gpus).expect("it was found there");
            queue.pop_first();
            if queue.is_empty() {
                self.waiting.remove(&gpus);
            }
            decision.changes.push(Change { id, gpus });
        }
    }
}
