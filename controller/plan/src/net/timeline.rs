//! What is left of one link over time, as a piecewise-constant function.
//!
//! Invariants: steps are sorted by time, neighbours differ, the last one holds for ever. So equal
//! functions are equal vectors, and taking a promise back restores the bytes that were there before.
//! Finding an instant costs O(log n), a promise that, the steps it covers, and a move of those behind.

use crate::case::Segment;

#[cfg(test)]
mod tests;

/// The residual of a link.
#[derive(Debug, Eq, PartialEq)]
pub struct Timeline {
    steps: Vec<Step>,
}

impl Clone for Timeline {
    fn clone(&self) -> Self {
        // A copy is promised from next: without room, the first promise on every link would move it.
        let mut steps = Vec::with_capacity(self.steps.len() + ROOM);
        steps.extend_from_slice(&self.steps);
        Self { steps }
    }
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
        index_from(&self.steps, 0, at_ns)
    }

    /// The step that holds from an instant on, or the first behind it, that has something left;
    /// none if there is none.
    pub(crate) fn free_from(&self, at_ns: u64) -> Option<usize> {
        let index = self.index_at(at_ns);
        let ahead = self.steps[index..].iter().position(|s| s.bytes_per_sec > 0)?;
        Some(index + ahead)
    }

    /// What is left at an instant.
    #[must_use]
    pub fn residual_at(&self, at_ns: u64) -> u64 {
        self.steps[self.index_at(at_ns)].bytes_per_sec
    }

    /// The first instant from `from_ns` on with something left; none if there is none.
    #[must_use]
    pub fn first_free_ns(&self, from_ns: u64) -> Option<u64> {
        Some(self.steps[self.free_from(from_ns)?].from_ns.max(from_ns))
    }

    /// The first instant from `from_ns` on after which nothing changes any more.
    #[must_use]
    pub fn constant_from_ns(&self) -> u64 {
        self.steps[self.steps.len() - 1].from_ns
    }

    /// Promises segments, which are sorted and apart. `scratch` is room to work in.
    ///
    /// # Panics
    /// If less than that is left: a planner that asks has a fault.
    pub fn reserve(&mut self, segments: &[Segment], scratch: &mut Vec<Step>) {
        self.change(segments, scratch, |left, rate| {
            left.checked_sub(rate).expect("a plan promised more than a link has left")
        });
    }

    /// Takes promises back.
    pub fn release(&mut self, segments: &[Segment], scratch: &mut Vec<Step>) {
        self.change(segments, scratch, |left, rate| left + rate);
    }

    /// Notes bandwidth that others take; more than there is leaves nothing.
    pub fn occupy(&mut self, segment: Segment) {
        self.change(&[segment], &mut Vec::new(), u64::saturating_sub);
    }

    /// Rewrites the steps from the one before the first segment to the one that the last ends in.
    fn change(
        &mut self,
        segments: &[Segment],
        scratch: &mut Vec<Step>,
        apply: impl Fn(u64, u64) -> u64,
    ) {
        let Some(first) = segments.first() else { return };
        let start = self.index_at(first.from_ns).saturating_sub(1);
        let mut index = start;
        let mut at_ns = self.steps[start].from_ns;
        scratch.clear();
        for Segment { from_ns, to_ns, bytes_per_sec } in segments {
            debug_assert!(at_ns <= *from_ns && from_ns < to_ns, "segments in order");
            while at_ns < *to_ns {
                let left = self.steps[index].bytes_per_sec;
                let (until_ns, left) = if at_ns < *from_ns {
                    (*from_ns, left)
                } else {
                    (*to_ns, apply(left, *bytes_per_sec))
                };
                push(scratch, at_ns, left);
                at_ns = until_ns;
                if let Some(next) = self.steps.get(index + 1)
                    && next.from_ns <= until_ns
                {
                    at_ns = next.from_ns;
                    index += 1;
                }
            }
        }
        push(scratch, at_ns, self.steps[index].bytes_per_sec);
        let (old_end, new_end, len) = (index + 1, start + scratch.len(), self.steps.len());
        if new_end > old_end {
            let last = self.steps[len - 1];
            self.steps.resize(len + new_end - old_end, last);
        }
        if new_end != old_end {
            self.steps.copy_within(old_end..len, new_end);
            self.steps.truncate(len - old_end + new_end);
        }
        self.steps[start..new_end].copy_from_slice(scratch);
    }
}

/// Index of the step that holds at an instant, which is not before that of index `first`.
#[inline]
pub(super) fn index_from(steps: &[Step], first: usize, at_ns: u64) -> usize {
    let mut index = first;
    // Plans ask mostly about the next steps.
    while let Some(next) = steps.get(index + 1)
        && next.from_ns <= at_ns
    {
        index += 1;
        if index - first == NEAR {
            return index + steps[index + 1..].partition_point(|s| s.from_ns <= at_ns);
        }
    }
    index
}

/// Steps that are looked at one by one before the rest is halved.
const NEAR: usize = 4;

/// Steps that a copy has room for.
const ROOM: usize = 16;

fn push(steps: &mut Vec<Step>, from_ns: u64, bytes_per_sec: u64) {
    if steps.last().is_none_or(|last| last.bytes_per_sec != bytes_per_sec) {
        steps.push(Step { from_ns, bytes_per_sec });
    }
}
