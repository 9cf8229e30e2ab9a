//! What is left of one link over time, as a piecewise-constant function.
//!
//! Invariants: steps are sorted by time, neighbours differ, the last one holds for ever. So equal
//! functions are equal vectors, and taking a promise back restores the bytes that were there before.
//! Finding an instant costs O(log n), a promise O(log n) and a move of the steps behind it.

use crate::case::Segment;

/// The residual of a link.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Timeline {
    steps: Vec<Step>,
}

/// From an instant on, this much is left.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Step {
    /// First instant.
    pub from_ns: u64,
    /// What is left.
    pub bytes_per_sec: u64,
}

impl Timeline {
    /// A link with nothing promised.
    #[must_use]
    pub fn new(capacity_bytes_per_sec: u64) -> Self {
        Self { steps: vec![Step { from_ns: 0, bytes_per_sec: capacity_bytes_per_sec }] }
    }

    /// All steps.
    #[must_use]
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Index of the step that holds at an instant.
    #[must_use]
    pub fn index_at(&self, at_ns: u64) -> usize {
        // Plans ask mostly about the first steps.
        if self.steps.get(1).is_none_or(|s| s.from_ns > at_ns) {
            return 0;
        }
        self.steps.partition_point(|s| s.from_ns <= at_ns) - 1
    }

    /// What is left at an instant.
    #[must_use]
    pub fn residual_at(&self, at_ns: u64) -> u64 {
        self.steps[self.index_at(at_ns)].bytes_per_sec
    }

    /// The first instant from `from_ns` on with something left; none if there is none.
    #[must_use]
    pub fn first_free_ns(&self, from_ns: u64) -> Option<u64> {
        let index = self.index_at(from_ns);
        let free = self.steps[index..].iter().find(|s| s.bytes_per_sec > 0)?;
        Some(free.from_ns.max(from_ns))
    }

    /// The first instant from `from_ns` on after which nothing changes any more.
    #[must_use]
    pub fn constant_from_ns(&self) -> u64 {
        self.steps[self.steps.len() - 1].from_ns
    }

    /// Promises a segment.
    ///
    /// # Panics
    /// If less than that is left: a planner that asks has a fault.
    pub fn reserve(&mut self, segment: Segment) {
        self.change(segment, |left, rate| {
            left.checked_sub(rate).expect("a plan promised more than a link has left")
        });
    }

    /// Takes a promise back.
    pub fn release(&mut self, segment: Segment) {
        self.change(segment, |left, rate| left + rate);
    }

    /// Notes bandwidth that others take; more than there is leaves nothing.
    pub fn occupy(&mut self, segment: Segment) {
        self.change(segment, u64::saturating_sub);
    }

    fn change(&mut self, segment: Segment, apply: impl Fn(u64, u64) -> u64) {
        let Segment { from_ns, to_ns, bytes_per_sec } = segment;
        debug_assert!(from_ns < to_ns, "an empty promise");
        let first = self.split(self.index_at(from_ns), from_ns);
        let mut last = first;
        while self.steps.get(last + 1).is_some_and(|s| s.from_ns < to_ns) {
            last += 1;
        }
        self.split(last, to_ns);
        for step in &mut self.steps[first..=last] {
            step.bytes_per_sec = apply(step.bytes_per_sec, bytes_per_sec);
        }
        // Saturation can level neighbours inside; otherwise only the two ends can have met.
        self.merge(last + 1);
        for index in (first..=last).rev() {
            self.merge(index);
        }
    }

    /// Makes a step start at `at_ns`, which lies in step `index`, and returns it.
    fn split(&mut self, index: usize, at_ns: u64) -> usize {
        if self.steps[index].from_ns == at_ns {
            return index;
        }
        if self.steps.get(index + 1).is_some_and(|s| s.from_ns == at_ns) {
            return index + 1;
        }
        let bytes_per_sec = self.steps[index].bytes_per_sec;
        self.steps.insert(index + 1, Step { from_ns: at_ns, bytes_per_sec });
        index + 1
    }

    /// Joins a step with the one before it if they are equal.
    fn merge(&mut self, index: usize) {
        if index > 0
            && index < self.steps.len()
            && self.steps[index].bytes_per_sec == self.steps[index - 1].bytes_per_sec
        {
            self.steps.remove(index);
        }
    }
}
