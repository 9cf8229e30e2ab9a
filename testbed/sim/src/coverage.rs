//! What the seeds provoked: faults by kind, slot transitions, drop reasons, refusals of workers.
//! A simulation that never hit one of them proves too little, so the tests fail on a zero.

use std::collections::BTreeMap;
use std::fmt;

use weft_engine::drops::{DropCounters, DropReason};
use weft_engine::role::aggregator::Stats;
use weft_engine::role::worker::{Refusal, WorkerStats};
use weft_engine::slot::counter::Transition;

/// Counts by kind and name.
#[derive(Clone, Debug, Default)]
pub struct Coverage {
    counts: BTreeMap<(&'static str, &'static str), u64>,
    /// Seeds run.
    pub seeds: u64,
    /// Frames that reached a node.
    pub frames: u64,
}

impl Coverage {
    /// Of one run that has not begun.
    #[must_use]
    pub fn of_one_seed() -> Self {
        Self { seeds: 1, ..Self::default() }
    }

    /// Counts one fault that fired.
    pub fn fault(&mut self, name: &'static str) {
        self.add("fault", name, 1);
    }

    /// Adds a lane's counters, when it stops.
    pub fn lane(&mut self, stats: &Stats) {
        for ((_, count), (_, name)) in stats.transitions.iter().zip(Transition::ALL) {
            self.add("transition", name, count);
        }
        for ((_, count), (_, name)) in stats.drops.iter().zip(DropReason::ALL) {
            self.add("drop", name, count);
        }
    }

    /// Adds a worker's counters, when it stops.
    pub fn worker(&mut self, stats: &WorkerStats) {
        for (count, (_, name)) in stats.refused.iter().zip(Refusal::ALL) {
            self.add("refusal", name, *count);
        }
        let counts = [
            ("retransmissions", stats.retransmissions),
            ("status_probes", stats.status_probes),
            ("duplicate_answers", stats.duplicate_answers),
            ("have_without_us", stats.have_without_us),
            ("stale", stats.stale),
            ("resyncs", stats.resyncs),
            ("handovers_sent", stats.handovers_sent),
            ("handovers_done", stats.handovers_done),
        ];
        for (name, count) in counts {
            self.add("worker", name, count);
        }
    }

    /// Adds what another run provoked.
    pub fn merge(&mut self, other: &Self) {
        for ((kind, name), count) in &other.counts {
            self.add(kind, name, *count);
        }
        self.seeds += other.seeds;
        self.frames += other.frames;
    }

    /// The names of a kind that were never hit.
    #[must_use]
    pub fn missing(&self, kind: &str) -> Vec<&'static str> {
        self.all(kind).filter(|(_, count)| *count == 0).map(|(name, _)| name).collect()
    }

    /// The names of a kind, and how often each was hit.
    pub fn all<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = (&'static str, u64)> + 'a {
        let all = self.counts.iter().filter(move |((k, _), _)| *k == kind);
        all.map(|((_, name), count)| (*name, *count))
    }

    /// How often a name of a kind was hit.
    #[must_use]
    pub fn of(&self, kind: &'static str, name: &'static str) -> u64 {
        self.counts.get(&(kind, name)).copied().unwrap_or(0)
    }

    /// Adds drop counters under a kind of their own.
    pub fn drops(&mut self, kind: &'static str, drops: &DropCounters) {
        for ((_, count), (_, name)) in drops.iter().zip(DropReason::ALL) {
            self.add(kind, name, count);
        }
    }

    /// Adds to the count of a name of a kind.
    pub fn add(&mut self, kind: &'static str, name: &'static str, count: u64) {
        *self.counts.entry((kind, name)).or_default() += count;
    }
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} seeds, {} frames", self.seeds, self.frames)?;
        for ((kind, name), count) in &self.counts {
            writeln!(f, "  {kind:<10} {name:<20} {count:>12}")?;
        }
        Ok(())
    }
}
