//! Many seeds of every kind of scenario, on all processors: what tests and `weft soak` run.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::str::FromStr;
use std::sync::Mutex;
use std::thread;

use weft_wire::Nanos;
use weft_wire::words::word_of;

use crate::coverage::Coverage;
use crate::transcript::Fingerprint;
use crate::{allreduce, hash, push};

/// A kind of scenario.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Kind {
    /// Workers and aggregators that reduce.
    Allreduce(allreduce::scenario::Kind),
    /// A parameter server.
    Push(push::scenario::Kind),
}

/// What came of one seed.
#[derive(Debug)]
pub struct Outcome {
    /// Of all frames, events and messages, with their times.
    pub fingerprint: Fingerprint,
    /// What was provoked.
    pub coverage: Coverage,
    /// When the run ended.
    pub ended_at: Nanos,
    /// What the invariants say against it; empty is good.
    pub violations: Vec<String>,
}

/// Every kind with its name.
pub const KINDS: [(Kind, &str); 15] = {
    use allreduce::scenario::Kind as Reduce;
    use push::scenario::Kind as Push;
    [
        (Kind::Allreduce(Reduce::Faults), "allreduce/faults"),
        (Kind::Allreduce(Reduce::Restart), "allreduce/restarts"),
        (Kind::Allreduce(Reduce::Death), "allreduce/deaths"),
        (Kind::Allreduce(Reduce::Return), "allreduce/returns"),
        (Kind::Allreduce(Reduce::Late), "allreduce/late"),
        (Kind::Allreduce(Reduce::Greedy), "allreduce/greedy"),
        (Kind::Allreduce(Reduce::Killed), "allreduce/killed"),
        (Kind::Push(Push::Faults), "push/faults"),
        (Kind::Push(Push::Aggregators), "push/aggregators"),
        (Kind::Push(Push::Workers), "push/workers"),
        (Kind::Push(Push::Replica), "push/replicas"),
        (Kind::Push(Push::Server), "push/servers"),
        (Kind::Push(Push::Controller), "push/controllers"),
        (Kind::Push(Push::Direct), "push/without_a_controller"),
        (Kind::Push(Push::Promotion), "push/promotions"),
    ]
};

impl Kind {
    /// Runs a seed. `log` prints the scenario and every frame.
    #[must_use]
    pub fn run(self, seed: u64, log: bool) -> Outcome {
        match self {
            Self::Allreduce(kind) => {
                let scenario = allreduce::scenario::Scenario::new(kind, seed);
                if log {
                    println!("{scenario:#?}");
                }
                let allreduce::Report { fingerprint, coverage, ended_at, violations, .. } =
                    allreduce::run(&scenario, log);
                Outcome { fingerprint, coverage, ended_at, violations }
            }
            Self::Push(kind) => {
                let scenario = push::scenario::Scenario::new(kind, seed);
                if log {
                    println!("{scenario:#?}");
                }
                let push::Report { fingerprint, coverage, ended_at, violations, .. } =
                    push::run(&scenario, log);
                Outcome { fingerprint, coverage, ended_at, violations }
            }
        }
    }

    /// [`Kind::run`] of which a panic is a violation too.
    fn try_run(self, seed: u64, log: bool) -> Result<Outcome, String> {
        catch_unwind(AssertUnwindSafe(|| self.run(seed, log))).map_err(|panic| {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
            format!("it panicked: {}", text.unwrap_or("without a word"))
        })
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(word_of(&KINDS, self))
    }
}

/// A seed of a kind, such as `push/workers:7`.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Seed {
    /// The kind.
    pub kind: Kind,
    /// The seed.
    pub seed: u64,
}

impl fmt::Display for Seed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.kind, self.seed)
    }
}

impl FromStr for Seed {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parsed = text.rsplit_once(':').and_then(|(kind, seed)| {
            let (kind, _) = KINDS.iter().find(|(_, name)| *name == kind)?;
            Some(Self { kind: *kind, seed: seed.parse().ok()? })
        });
        let names = KINDS.map(|(_, name)| name);
        parsed.ok_or_else(|| format!("expected KIND:SEED; kinds are {}", names.join(", ")))
    }
}

/// What came of many seeds.
#[derive(Debug, Default)]
pub struct Found {
    /// What was provoked, over all of them.
    pub coverage: Coverage,
    /// Virtual time, over all of them, in nanoseconds.
    pub virtual_ns: u64,
    /// What the invariants say against each seed of which they say something.
    pub failures: BTreeMap<Seed, Vec<String>>,
    /// Of all fingerprints, whatever the sequence.
    pub fingerprint: u64,
}

impl Found {
    /// Adds what came of a seed.
    fn add(&mut self, seed: Seed, outcome: Result<Outcome, String>) {
        match outcome {
            Ok(Outcome { fingerprint, coverage, ended_at, violations }) => {
                let words = [seed.seed, fingerprint.frames, fingerprint.events, ended_at.0];
                self.fingerprint = self.fingerprint.wrapping_add(hash(&words));
                self.coverage.merge(&coverage);
                self.virtual_ns = self.virtual_ns.saturating_add(ended_at.0);
                if !violations.is_empty() {
                    self.failures.insert(seed, violations);
                }
            }
            Err(panic) => {
                self.coverage.seeds += 1;
                self.failures.insert(seed, vec![panic]);
            }
        }
    }
}

/// Runs seeds on so many threads, until there are no more or `is_over`. What was begun is ended, so
/// that what was run is the beginning of `seeds`. `log` prints scenarios and frames.
pub fn run_all(
    seeds: impl Iterator<Item = Seed> + Send,
    threads: usize,
    log: bool,
    is_over: &(dyn Fn() -> bool + Sync),
) -> Found {
    let (seeds, found) = (Mutex::new(seeds), Mutex::new(Found::default()));
    let work = || {
        while !is_over() {
            let next = seeds.lock().expect("nobody panics with it").next();
            let Some(seed) = next else { return };
            let outcome = seed.kind.try_run(seed.seed, log);
            found.lock().expect("nobody panics with it").add(seed, outcome);
        }
    };
    thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    found.into_inner().expect("nobody panics with it")
}

/// Every seed from `first` on, of every kind in turn, without end.
pub fn every(first: u64) -> impl Iterator<Item = Seed> + Send {
    (first..).flat_map(|seed| KINDS.map(|(kind, _)| Seed { kind, seed }))
}
