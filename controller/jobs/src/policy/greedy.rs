//! Chooses who runs, from the first rank on, whatever fits; at the cost of what changes.
//!
//! The answer is that of a scan over all jobs in order of rank, where a running job is ahead of one
//! that waits with the same rank: a job runs if what those ahead of it leave is enough for it. So
//! nobody is stopped for a job of the same rank. Instead of all jobs, only the first that waits of
//! each width is looked at, and the running ones from the last rank on until there is room.
//!
//! A running job's rank may drift with time, the same for all jobs of one width: remaining time
//! falls, attained service grows.
//!
//! A job that found no place is left out until GPUs were given back since, and never asked for
//! twice at one time, unless nothing runs: so at one time there are at most as many answers as
//! jobs, however much the places matter. Who was stopped for it may start again at that time.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use super::{Change, Decision};
use crate::job::JobId;

/// Who is ahead: the smaller first.
pub(super) type Rank = i128;

/// Jobs, and who of them runs.
#[derive(Debug)]
pub(super) struct Greedy {
    free: u32,
    drift: fn(u32) -> Rank,
    entries: Vec<Option<Entry>>,
    waiting: ByWidth,
    /// Ranks as they would have been at time 0.
    running: ByWidth,
    /// Found no place: who, when, and how often GPUs had been given back by then.
    unplaced: Vec<(JobId, u64, u64)>,
    /// How often GPUs were given back.
    frees: u64,
}

type ByWidth = BTreeMap<u32, BTreeSet<Key>>;

/// Rank, tie and job.
type Key = (Rank, u64, JobId);

#[derive(Clone, Copy, Debug)]
struct Entry {
    gpus: u32,
    rank: Rank,
    tie: u64,
    state: State,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    Waiting,
    Running,
    Unplaced,
}

impl Greedy {
    /// Nobody yet, on so many GPUs. `drift` is what a running job's rank gains in a nanosecond, by
    /// its width.
    pub(super) fn new(gpus: u32, drift: fn(u32) -> Rank) -> Self {
        Self {
            free: gpus,
            drift,
            entries: Vec::new(),
            waiting: ByWidth::new(),
            running: ByWidth::new(),
            unplaced: Vec::new(),
            frees: 0,
        }
    }

    /// A job waits from now on.
    pub(super) fn add(&mut self, id: JobId, gpus: u32, rank: Rank, tie: u64) {
        let len = self.entries.len().max(id.index() + 1);
        self.entries.resize(len, None);
        self.entries[id.index()] = Some(Entry { gpus, rank, tie, state: State::Waiting });
        insert(&mut self.waiting, gpus, (rank, tie, id));
    }

    /// A job is gone.
    pub(super) fn remove(&mut self, id: JobId) {
        let Some(entry) = self.entries[id.index()].take() else { return };
        let key = (entry.rank, entry.tie, id);
        match entry.state {
            State::Waiting => remove(&mut self.waiting, entry.gpus, key),
            State::Unplaced => self.unplaced.retain(|(other, ..)| *other != id),
            State::Running => {
                remove(&mut self.running, entry.gpus, key);
                self.free += entry.gpus;
                self.frees += 1;
            }
        }
    }

    /// A job that was to run found no place.
    pub(super) fn unplaced(&mut self, id: JobId, now_ns: u64) {
        if self.is_running(id) {
            self.stop(id, now_ns);
        }
        let entry = self.entry(id);
        let key = (entry.rank, entry.tie, id);
        remove(&mut self.waiting, entry.gpus, key);
        self.entry_mut(id).state = State::Unplaced;
        self.unplaced.push((id, now_ns, self.frees));
    }

    /// Whether a job runs.
    pub(super) fn is_running(&self, id: JobId) -> bool {
        self.entry(id).state == State::Running
    }

    /// Whether some job waits while another runs.
    pub(super) fn has_rivals(&self) -> bool {
        let has_waiting = !self.waiting.is_empty() || !self.unplaced.is_empty();
        has_waiting && !self.running.is_empty()
    }

    /// The jobs that run.
    pub(super) fn running(&self) -> impl Iterator<Item = JobId> {
        self.running.values().flatten().map(|(_, _, id)| *id)
    }

    /// Gives a job another rank, as it is now.
    pub(super) fn rank(&mut self, id: JobId, now_ns: u64, rank: Rank, tie: u64) {
        let entry = self.entry(id);
        let before = (entry.rank, entry.tie, id);
        let rank = match entry.state {
            State::Running => rank - self.drifted(entry.gpus, now_ns),
            State::Waiting | State::Unplaced => rank,
        };
        let after = (rank, tie, id);
        if before == after {
            return;
        }
        match entry.state {
            State::Waiting => {
                remove(&mut self.waiting, entry.gpus, before);
                insert(&mut self.waiting, entry.gpus, after);
            }
            State::Running => {
                remove(&mut self.running, entry.gpus, before);
                insert(&mut self.running, entry.gpus, after);
            }
            State::Unplaced => {}
        }
        let entry = self.entry_mut(id);
        (entry.rank, entry.tie) = (rank, tie);
    }

    /// Decides. Without `stops`, those that run go on.
    pub(super) fn settle(&mut self, now_ns: u64, stops: bool, decision: &mut Decision) {
        self.retry_unplaced(now_ns);
        let mut passed: Vec<u32> = Vec::new();
        // Taken off, with their ranks of now; most of them may go on.
        let mut off: BTreeSet<Key> = BTreeSet::new();
        let mut stopped: Vec<JobId> = Vec::new();
        let mut started: Vec<JobId> = Vec::new();
        loop {
            let fresh = self.first_waiting(&passed);
            let went_off = off.first().copied();
            // Of one rank, those that ran are ahead.
            if let Some(key) = went_off
                && fresh.is_none_or(|(_, fresh)| key.0 <= fresh.0)
            {
                off.remove(&key);
                let gpus = self.entry(key.2).gpus;
                match gpus <= self.free {
                    true => self.start(key.2, now_ns),
                    false => stopped.push(key.2),
                }
                continue;
            }
            let Some((gpus, key)) = fresh else { break };
            if gpus > self.free && !(stops && self.make_room(gpus, key.0, now_ns, &mut off)) {
                passed.push(gpus);
                continue;
            }
            self.start(key.2, now_ns);
            started.push(key.2);
        }
        for id in &stopped {
            let Entry { gpus, rank, tie, .. } = self.entry(*id);
            insert(&mut self.waiting, gpus, (rank, tie, *id));
        }
        self.frees += u64::from(!stopped.is_empty());
        let stops = stopped.into_iter().map(|id| Change { id, gpus: 0 });
        decision.changes.extend(stops);
        let starts = started.into_iter().map(|id| Change { id, gpus: self.entry(id).gpus });
        decision.changes.extend(starts);
    }

    /// Takes running jobs off, the last first, until so many GPUs are free. Only those behind
    /// `rank`; if that is not enough, none.
    fn make_room(&mut self, gpus: u32, rank: Rank, now_ns: u64, off: &mut BTreeSet<Key>) -> bool {
        let mut taken: Vec<Key> = Vec::new();
        while self.free < gpus {
            let Some(key) = self.last_running(now_ns).filter(|key| key.0 > rank) else {
                for key in taken {
                    self.start(key.2, now_ns);
                }
                return false;
            };
            self.take_off(key.2, now_ns);
            taken.push(key);
        }
        off.extend(taken);
        true
    }

    /// The first job that waits, of the widths that were not passed over.
    fn first_waiting(&self, passed: &[u32]) -> Option<(u32, Key)> {
        let widths = self.waiting.iter().filter(|(gpus, _)| !passed.contains(gpus));
        let heads = widths.filter_map(|(gpus, queue)| Some((*gpus, *queue.first()?)));
        heads.min_by_key(|(_, key)| *key)
    }

    /// The running job of the last rank, with its rank of now.
    fn last_running(&self, now_ns: u64) -> Option<Key> {
        let last = |(gpus, queue): (&u32, &BTreeSet<Key>)| {
            let (rank, tie, id) = *queue.last()?;
            Some((rank + self.drifted(*gpus, now_ns), tie, id))
        };
        self.running.iter().filter_map(last).max()
    }

    fn drifted(&self, gpus: u32, now_ns: u64) -> Rank {
        (self.drift)(gpus) * Rank::from(now_ns)
    }

    /// Starts a job that is among the waiting, or off.
    fn start(&mut self, id: JobId, now_ns: u64) {
        let Entry { gpus, rank, tie, .. } = self.entry(id);
        remove(&mut self.waiting, gpus, (rank, tie, id));
        let rank = rank - self.drifted(gpus, now_ns);
        insert(&mut self.running, gpus, (rank, tie, id));
        let entry = self.entry_mut(id);
        (entry.rank, entry.state) = (rank, State::Running);
        self.free -= gpus;
    }

    /// Takes a running job off its GPUs. It is in no queue then.
    fn take_off(&mut self, id: JobId, now_ns: u64) {
        let Entry { gpus, rank, tie, .. } = self.entry(id);
        remove(&mut self.running, gpus, (rank, tie, id));
        let rank = rank + self.drifted(gpus, now_ns);
        let entry = self.entry_mut(id);
        (entry.rank, entry.state) = (rank, State::Waiting);
        self.free += gpus;
    }

    fn stop(&mut self, id: JobId, now_ns: u64) {
        self.take_off(id, now_ns);
        let Entry { gpus, rank, tie, .. } = self.entry(id);
        insert(&mut self.waiting, gpus, (rank, tie, id));
    }

    fn retry_unplaced(&mut self, now_ns: u64) {
        let (frees, is_idle) = (self.frees, self.running.is_empty());
        let may_fit = |(_, at_ns, before): &mut (JobId, u64, u64)| {
            *before < frees && (*at_ns < now_ns || is_idle)
        };
        if self.unplaced.is_empty() {
            return;
        }
        for (id, ..) in self.unplaced.extract_if(.., may_fit).collect::<Vec<_>>() {
            let entry = self.entry_mut(id);
            entry.state = State::Waiting;
            let Entry { gpus, rank, tie, .. } = *entry;
            insert(&mut self.waiting, gpus, (rank, tie, id));
        }
    }

    fn entry(&self, id: JobId) -> Entry {
        self.entries[id.index()].expect("only jobs that are there are named")
    }

    fn entry_mut(&mut self, id: JobId) -> &mut Entry {
        self.entries[id.index()].as_mut().expect("only jobs that are there are named")
    }
}

fn insert(queues: &mut ByWidth, gpus: u32, key: Key) {
    queues.entry(gpus).or_default().insert(key);
}

fn remove(queues: &mut ByWidth, gpus: u32, key: Key) {
    if let Some(queue) = queues.get_mut(&gpus) {
        queue.remove(&key);
        if queue.is_empty() {
            queues.remove(&gpus);
        }
    }
}

#[cfg(test)]
mod tests;
