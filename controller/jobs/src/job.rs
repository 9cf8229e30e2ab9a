//! What is known of a job before it runs.

use alloc::sync::Arc;
use core::fmt;

/// Nanoseconds in a second: the public formats are in seconds, everything inside in nanoseconds.
pub const NS_PER_S: u64 = 1_000_000_000;

/// A job that is on the cluster or waits for it: the index of its row in tables.
///
/// Whoever drives a policy gives the lowest that is free, so tables are as long as the most jobs
/// that there were at once. It is free again once the policy was told that the job ended.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct JobId(pub u32);

impl JobId {
    /// As an index.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A job as a trace has it.
///
/// Its work is given by `duration_ns`: how long it takes on the `gpus` that it asked for, when it
/// runs as fast as the trace says. A policy that must not know that does not look.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    /// Its name in the trace; no two are alike.
    pub name: Arc<str>,
    /// GPUs that it asks for; at least 1.
    pub gpus: u32,
    /// When it comes, in nanoseconds after the trace's zero.
    pub submit_ns: u64,
    /// How long it runs on those GPUs.
    pub duration_ns: u64,
    /// Its model's name, small letters; empty where the trace has none.
    pub model: Arc<str>,
    /// Its steps; 0 where the trace has none.
    pub iterations: u64,
    /// Examples of one step over all GPUs; 0 where the trace has none.
    pub global_batch: u32,
}

impl Job {
    /// Its GPU time at the width that it asked for, in GPU-nanoseconds.
    #[must_use]
    pub fn gpu_ns(&self) -> u64 {
        self.duration_ns.saturating_mul(self.gpus.into())
    }
}
