//! How long operations take, counted by length.
//!
//! A histogram has eight classes for each power of two of nanoseconds, so that what is read from it
//! is at most an eighth too long. Threads count without a lock. Operations on rows that are here
//! are shorter than a clock's reading: one in [`SAMPLE_EVERY`] of a thread's is timed.

use std::array;
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use weft_wire::Nanos;

/// How long operations took, by kind. Sets count as pushes.
#[derive(Clone, Debug)]
pub struct KeyLatencies {
    /// Pulls of rows that were here: one in [`SAMPLE_EVERY`].
    pub pull_local: Histogram,
    /// Pushes to rows that were here: one in [`SAMPLE_EVERY`].
    pub push_local: Histogram,
    /// Pulls of rows that were elsewhere or on their way here, by key: from the call to its answer.
    pub pull_remote: Histogram,
    /// Pushes to such rows.
    pub push_remote: Histogram,
    /// From a localize to the row, by key that was not here.
    pub localize: Histogram,
}

/// Counts by length.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Histogram {
    counts: Vec<u64>,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: vec![0; CLASSES] }
    }
}

impl Histogram {
    /// How many were counted.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The length, in nanoseconds, that so many of a thousand do not exceed; `None` of nothing.
    #[must_use]
    pub fn per_mille(&self, share: u64) -> Option<u64> {
        let wanted = (self.count() * share.min(1000)).div_ceil(1000).max(1);
        let mut seen = 0;
        let place = self.counts.iter().position(|count| {
            seen += count;
            seen >= wanted
        });
        place.map(end_of)
    }

    /// The classes that have any: their longest length in nanoseconds, and how many.
    pub fn classes(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let all = self.counts.iter().enumerate().filter(|(_, count)| **count > 0);
        all.map(|(class, count)| (end_of(class), *count))
    }

    /// Adds a class as [`Histogram::classes`] tells it: of another process, say.
    pub fn add(&mut self, longest_ns: u64, count: u64) {
        self.counts[class_of(longest_ns)] += count;
    }
}

/// What is timed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Timed {
    PullLocal,
    PushLocal,
    PullRemote,
    PushRemote,
    Localize,
}

/// The histograms in the making.
#[derive(Debug)]
pub(super) struct Latencies([Counters; 5]);

#[derive(Debug)]
struct Counters([AtomicU64; CLASSES]);

impl Latencies {
    pub(super) fn new() -> Self {
        Self(array::from_fn(|_| Counters(array::from_fn(|_| AtomicU64::new(0)))))
    }

    pub(super) fn count(&self, what: Timed, length: Nanos) {
        self.0[what as usize].0[class_of(length.0)].fetch_add(1, Ordering::Relaxed);
    }

    /// Runs a local operation, and times it if it is its turn.
    #[inline]
    pub(super) fn time<R>(&self, what: Timed, work: impl FnOnce() -> Option<R>) -> Option<R> {
        let turn = TURN.get().wrapping_add(1);
        TURN.set(turn);
        if turn.is_multiple_of(SAMPLE_EVERY) { self.sample(what, work) } else { work() }
    }

    #[cold]
    fn sample<R>(&self, what: Timed, work: impl FnOnce() -> Option<R>) -> Option<R> {
        let begun = Instant::now();
        let result = work();
        if result.is_some() {
            let length = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
            self.count(what, Nanos(length));
        }
        result
    }

    pub(super) fn read(&self) -> KeyLatencies {
        let of = |what: Timed| Histogram {
            counts: self.0[what as usize].0.iter().map(|it| it.load(Ordering::Relaxed)).collect(),
        };
        KeyLatencies {
            pull_local: of(Timed::PullLocal),
            push_local: of(Timed::PushLocal),
            pull_remote: of(Timed::PullRemote),
            push_remote: of(Timed::PushRemote),
            localize: of(Timed::Localize),
        }
    }
}

thread_local! {
    /// Local operations of this thread.
    static TURN: Cell<u32> = const { Cell::new(0) };
}

/// The class of a length: below 16 ns each has its own, then eight a power of two.
fn class_of(length_ns: u64) -> usize {
    let exponent = length_ns.max(1).ilog2().saturating_sub(CLASS_BITS);
    let class = (length_ns >> exponent) + (u64::from(exponent) << CLASS_BITS);
    usize::try_from(class).unwrap_or(usize::MAX).min(CLASSES - 1)
}

/// The longest length of a class.
fn end_of(class: usize) -> u64 {
    let class = class as u64;
    let exponent = (class >> CLASS_BITS).saturating_sub(1);
    let first = class - (exponent << CLASS_BITS);
    ((first + 1) << exponent) - 1
}

/// One in so many local operations of a thread is timed: a prime, so that what a loop calls in turn
/// is timed in turn.
pub const SAMPLE_EVERY: u32 = 251;
/// Eight classes a power of two.
const CLASS_BITS: u32 = 3;
/// Up to 2^40 ns, more than a quarter of an hour; what is longer counts as that.
const CLASSES: usize = 8 * 38;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_is_read_at_most_an_eighth_too_long() {
        let mut before = None;
        for length in (0..4096).chain((12..40).map(|bit| (1 << bit) + 12_345)) {
            let class = class_of(length);
            let end = end_of(class);
            assert!(end >= length && end - length <= length / 8, "{length} is read as {end}");
            assert!(before.is_none_or(|before| before <= class), "longer is no lower class");
            before = Some(class);
        }
        assert_eq!(class_of(u64::MAX), CLASSES - 1);
    }

    #[test]
    fn shares_are_found_among_what_was_counted() {
        let latencies = Latencies::new();
        for length in [10, 11, 12, 13, 5_000] {
            latencies.count(Timed::Localize, Nanos(length));
        }
        let read = latencies.read();
        assert_eq!(read.localize.count(), 5);
        assert_eq!(read.localize.per_mille(500), Some(12));
        assert!(read.localize.per_mille(990).is_some_and(|ns| (5_000..5_700).contains(&ns)));
        assert_eq!(read.pull_local.per_mille(500), None);
        let mut other = Histogram::default();
        read.localize.classes().for_each(|(ns, count)| other.add(ns, count));
        assert_eq!(other, read.localize);
    }
}
