//! The jobs of a simulation that wait or run.

use alloc::collections::{BTreeSet, BinaryHeap};
use alloc::vec::Vec;
use core::cmp::Reverse;

use super::Usage;
use super::rows::Row;
use super::speed::Start;
use crate::job::{Job, JobId};
use crate::place::Share;
use crate::policy::{Delta, EndOrder, Manner};
use weft_plan::float;

/// A job that waits or runs.
#[derive(Debug)]
pub(super) struct Live {
    pub(super) job: Job,
    /// Its number by arrival.
    arrival: u64,
    /// Its width; 0 while it waits.
    pub(super) gpus: u32,
    pub(super) place: Vec<Share>,
    pub(super) speed: f64,
    /// Since when it works, or will; what it did before is counted below.
    work_from_ns: u64,
    remaining_ns: u64,
    executed_ns: u64,
    gpu_ns: u64,
    first_start_ns: Option<u64>,
    waits_from_ns: u64,
    pending_ns: u64,
    overhead_ns: u64,
    preemptions: u32,
    pub(super) starts: u32,
    pub(super) promotes: u32,
    resizes: u32,
    /// There was no place for it when it was last to start.
    pub(super) is_unplaced: bool,
    /// Its place among the ends.
    end: Option<(u64, Tie)>,
}

/// Which of two ends at one time comes first.
type Tie = (u64, u64);

impl Live {
    pub(super) fn row(&self, end_ns: u64, manner: Manner) -> Row<'_> {
        Row {
            job: &self.job,
            start_ns: self.first_start_ns.unwrap_or(end_ns),
            end_ns,
            executed_ns: self.executed_ns,
            gpu_ns: self.gpu_ns,
            pending_ns: self.pending_ns,
            overhead_ns: self.overhead_ns,
            preemptions: self.preemptions,
            resumes: if manner.counts_no_resumes { 0 } else { self.starts },
            promotes: self.promotes,
            resizes: self.resizes,
        }
    }

    /// What the policy is told when it stops.
    pub(super) const fn served(&self, id: JobId) -> Delta<'static> {
        Delta::Served {
            id,
            executed_ns: self.executed_ns,
            gpu_ns: self.gpu_ns,
            remaining_ns: self.remaining_ns,
        }
    }
}

/// All of them, by id, and what comes next.
#[derive(Debug, Default)]
pub(super) struct Jobs {
    jobs: Vec<Option<Live>>,
    free_ids: BinaryHeap<Reverse<u32>>,
    ends: BTreeSet<(u64, Tie, JobId)>,
    usage: Usage,
    arrivals: u64,
    starts: u64,
    end_order: EndOrder,
}

impl Jobs {
    pub(super) fn new(end_order: EndOrder) -> Self {
        Self { end_order, ..Self::default() }
    }

    pub(super) fn get(&self, id: JobId) -> &Live {
        self.jobs[id.index()].as_ref().expect("only jobs that are there are named")
    }

    pub(super) fn get_mut(&mut self, id: JobId) -> Option<&mut Live> {
        self.jobs.get_mut(id.index())?.as_mut()
    }

    fn there(&mut self, id: JobId) -> &mut Live {
        self.get_mut(id).expect("only jobs that are there are named")
    }

    pub(super) const fn usage(&self) -> Usage {
        self.usage
    }

    pub(super) const fn count(&self) -> u32 {
        self.usage.running + self.usage.waiting
    }

    /// How many ids were ever given.
    #[cfg(test)]
    pub(super) const fn ids(&self) -> usize {
        self.jobs.len()
    }

    pub(super) fn next_end_ns(&self) -> Option<u64> {
        self.ends.first().map(|(end_ns, _, _)| *end_ns)
    }

    /// A job that ends at that time.
    pub(super) fn ends_at(&self, now_ns: u64) -> Option<JobId> {
        self.ends.first().filter(|(end_ns, _, _)| *end_ns == now_ns).map(|(_, _, id)| *id)
    }

    /// The job that waits longest, of those.
    pub(super) fn longest_waiting(&self, of_those: impl Fn(&Live) -> bool) -> Option<&Job> {
        let waiting = self.jobs.iter().flatten().filter(|live| live.gpus == 0);
        waiting.filter(|live| of_those(live)).min_by_key(|live| live.arrival).map(|live| &live.job)
    }

    pub(super) fn arrive(&mut self, job: Job) -> JobId {
        let live = Live {
            arrival: self.arrivals,
            gpus: 0,
            place: Vec::new(),
            speed: 0.0,
            work_from_ns: job.submit_ns,
            remaining_ns: job.duration_ns,
            executed_ns: 0,
            gpu_ns: 0,
            first_start_ns: None,
            waits_from_ns: job.submit_ns,
            pending_ns: 0,
            overhead_ns: 0,
            preemptions: 0,
            starts: 0,
            promotes: 0,
            resizes: 0,
            is_unplaced: false,
            end: None,
            job,
        };
        self.arrivals += 1;
        self.usage.waiting += 1;
        match self.free_ids.pop() {
            Some(Reverse(index)) => {
                self.jobs[index as usize] = Some(live);
                JobId(index)
            }
            None => {
                let index = u32::try_from(self.jobs.len()).expect("fewer jobs at once");
                self.jobs.push(Some(live));
                JobId(index)
            }
        }
    }

    pub(super) fn remove(&mut self, id: JobId) {
        let live = self.jobs[id.index()].take().expect("only jobs that are there are named");
        if let Some((end_ns, tie)) = live.end {
            self.ends.remove(&(end_ns, tie, id));
        }
        self.usage.gpus -= live.gpus;
        match live.gpus {
            0 => self.usage.waiting -= 1,
            _ => self.usage.running -= 1,
        }
        self.free_ids.push(Reverse(id.0));
    }

    /// Counts what a job did until now; says whether it did anything.
    pub(super) fn settle(&mut self, id: JobId, now_ns: u64) -> bool {
        let live = self.there(id);
        let worked_ns = now_ns.saturating_sub(live.work_from_ns);
        if live.gpus == 0 || worked_ns == 0 {
            return false;
        }
        live.work_from_ns = now_ns;
        live.executed_ns += worked_ns;
        live.gpu_ns = live.gpu_ns.saturating_add(worked_ns.saturating_mul(live.gpus.into()));
        live.remaining_ns = live.remaining_ns.saturating_sub(done_ns(worked_ns, live.speed));
        true
    }

    pub(super) fn lacks_place(&mut self, id: JobId) {
        self.there(id).is_unplaced = true;
    }

    pub(super) fn start(
        &mut self,
        id: JobId,
        gpus: u32,
        place: Vec<Share>,
        now_ns: u64,
        overhead_ns: u64,
        start: Start,
    ) {
        self.starts += 1;
        self.usage.gpus += gpus;
        self.usage.running += 1;
        self.usage.waiting -= 1;
        let live = self.there(id);
        live.gpus = gpus;
        live.place = place;
        live.pending_ns += now_ns - live.waits_from_ns;
        live.is_unplaced = false;
        live.work_from_ns = now_ns.saturating_add(overhead_ns);
        live.overhead_ns = live.overhead_ns.saturating_add(overhead_ns);
        live.first_start_ns.get_or_insert(now_ns);
        match start {
            Start::Resized => live.resizes += 1,
            Start::First | Start::Again => live.starts += 1,
        }
        let arrival = live.arrival;
        let tie = match self.end_order {
            EndOrder::Arrival => (0, arrival),
            EndOrder::Start => (0, self.starts),
            EndOrder::Narrow => (gpus.into(), arrival),
        };
        self.there(id).end = Some((u64::MAX, tie));
        self.ends.insert((u64::MAX, tie, id));
    }

    /// Takes a job off its GPUs. What it did is counted already.
    pub(super) fn stop(&mut self, id: JobId, now_ns: u64) {
        let live = self.there(id);
        let gpus = core::mem::take(&mut live.gpus);
        live.place.clear();
        live.waits_from_ns = now_ns;
        // What it did not use of its start is no cost.
        live.overhead_ns -= live.work_from_ns.saturating_sub(now_ns);
        live.speed = 0.0;
        if let Some((end_ns, tie)) = live.end.take() {
            self.ends.remove(&(end_ns, tie, id));
        }
        self.usage.gpus -= gpus;
        self.usage.running -= 1;
        self.usage.waiting += 1;
    }

    pub(super) fn count_preemption(&mut self, id: JobId) {
        self.there(id).preemptions += 1;
    }

    /// Gives a running job another speed from now on; says nothing of one that does not run.
    pub(super) fn change_speed(&mut self, id: JobId, speed: f64, now_ns: u64) {
        if self.get_mut(id).is_none_or(|live| live.gpus == 0) {
            return;
        }
        self.settle(id, now_ns);
        let live = self.there(id);
        live.speed = if speed.is_finite() { speed.max(0.0) } else { 0.0 };
        let end_ns = live.work_from_ns.saturating_add(needs_ns(live.remaining_ns, live.speed));
        let Some((before_ns, tie)) = live.end.replace((end_ns, live.end.map_or((0, 0), |e| e.1)))
        else {
            return;
        };
        self.ends.remove(&(before_ns, tie, id));
        self.ends.insert((end_ns, tie, id));
    }
}

/// What is done of a job's work in that time.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "casts of floats clamp"
)]
fn done_ns(worked_ns: u64, speed: f64) -> u64 {
    // The usual case, exactly.
    if is_one(speed) {
        return worked_ns;
    }
    (worked_ns as f64 * speed) as u64
}

/// How long that much of a job's work takes.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "casts of floats clamp"
)]
fn needs_ns(remaining_ns: u64, speed: f64) -> u64 {
    if is_one(speed) {
        return remaining_ns;
    }
    match speed > 0.0 {
        true => float::ceil(remaining_ns as f64 / speed) as u64,
        false => u64::MAX,
    }
}

#[expect(clippy::float_cmp, reason = "1 is what a speed is set to, not what comes out of a sum")]
fn is_one(speed: f64) -> bool {
    speed == 1.0
}
