//! What is left of one link over time, as a piecewise-constant function.
//!
//! Invariants: steps are sorted by time, neighbours differ, the last one holds for ever. So equal
//! functions are equal vectors, and taking a promise back restores the bytes that were there
//! before. Finding an instant costs O(log n), a promise that, the steps it covers, and a move of
//! those behind.

use alloc::vec::Vec;
use core::ops::Range;

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
        // A copy is promised from next: without room, the first promise on every link would move
        // it.
        let mut steps = Vec::with_capacity(self.steps.len() + ROOM);
        steps.extend_from_slice(&self.steps);
        Self { steps }
    }
}

/// From an instant on, others take so much more of a link, or less.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Edge {
    /// First instant.
    pub at_ns: u64,
    /// In bytes per second.
    pub change: i64,
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

    /// Notes what others take of a link that is all free, sorted by instant; more than there is
    /// leaves nothing.
    pub fn take(&mut self, edges: impl Iterator<Item = Edge>) {
        let capacity = i128::from(self.residual_at(0));
        let mut taken: i128 = 0;
        for Edge { at_ns, change } in edges {
            taken += i128::from(change);
            let left = u64::try_from((capacity - taken).max(0)).unwrap_or(u64::MAX);
            if self.constant_from_ns() == at_ns {
                self.steps.pop();
            }
            push(&mut self.steps, at_ns, left);
        }
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

    /// The same of a late instant: most steps are before.
    pub(crate) fn late_index_at(&self, at_ns: u64) -> usize {
        let mut late = self.steps.iter().rev().take(NEAR);
        match late.position(|step| step.from_ns <= at_ns) {
            Some(behind) => self.steps.len() - 1 - behind,
            None => self.index_at(at_ns),
        }
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

    /// Promises segments, which are sorted and apart. `scratch` is room to work in; `old` gets the
    /// steps that were there before. Returns where the new ones are, for [`Timeline::replace`].
    ///
    /// # Panics
    /// If less than that is left: a planner that asks has a fault.
    pub fn reserve(
        &mut self,
        segments: &[Segment],
        scratch: &mut Vec<Step>,
        old: Option<&mut Vec<Step>>,
    ) -> Range<usize> {
        let start = self.steps.len() - 1;
        let last = self.steps[start];
        if segments.first().is_some_and(|first| last.from_ns <= first.from_ns) {
            if let Some(old) = old {
                old.push(last);
            }
            self.split_last(segments);
            return start..self.steps.len();
        }
        let replaced = self.changed(segments, scratch, less);
        if let Some(old) = old {
            old.extend_from_slice(&self.steps[replaced.clone()]);
        }
        let new = replaced.start..replaced.start + scratch.len();
        self.replace(replaced, scratch);
        new
    }

    /// Promises segments after the last change: mostly that is where an uplink's next one goes.
    fn split_last(&mut self, segments: &[Segment]) {
        let Some(Step { from_ns: mut at_ns, bytes_per_sec: left }) = self.steps.pop() else {
            return;
        };
        for Segment { from_ns, to_ns, bytes_per_sec } in segments {
            if at_ns < *from_ns {
                push(&mut self.steps, at_ns, left);
            }
            push(&mut self.steps, *from_ns, less(left, *bytes_per_sec));
            at_ns = *to_ns;
        }
        push(&mut self.steps, at_ns, left);
    }

    /// Takes promises back.
    pub fn release(&mut self, segments: &[Segment], scratch: &mut Vec<Step>) {
        let replaced = self.changed(segments, scratch, |left, rate| left + rate);
        self.replace(replaced, scratch);
    }

    /// Writes what the steps become, from the one before the first segment to the one that the last
    /// ends in; returns which those are.
    fn changed(
        &self,
        segments: &[Segment],
        scratch: &mut Vec<Step>,
        apply: impl Fn(u64, u64) -> u64,
    ) -> Range<usize> {
        scratch.clear();
        let Some(first) = segments.first() else { return 0..0 };
        let start = self.index_at(first.from_ns).saturating_sub(1);
        let mut walk = Walk::new(&self.steps, start);
        for Segment { from_ns, to_ns, bytes_per_sec } in segments {
            debug_assert!(walk.at_ns <= *from_ns && from_ns < to_ns, "segments in order");
            while walk.at_ns < *from_ns {
                push(scratch, walk.at_ns, walk.left);
                walk.advance(*from_ns);
            }
            while walk.at_ns < *to_ns {
                push(scratch, walk.at_ns, apply(walk.left, *bytes_per_sec));
                walk.advance(*to_ns);
            }
        }
        push(scratch, walk.at_ns, walk.left);
        start..self.steps.len() - walk.rest.len()
    }

    /// Puts steps in the place of others.
    pub fn replace(&mut self, old: Range<usize>, new: &[Step]) {
        let (len, new_end) = (self.steps.len(), old.start + new.len());
        if old.end == len {
            self.steps.truncate(old.start);
            self.steps.extend_from_slice(new);
            return;
        }
        if new_end > old.end {
            let last = self.steps[len - 1];
            self.steps.resize(len + new_end - old.end, last);
        }
        if new_end != old.end {
            self.steps.copy_within(old.end..len, new_end);
            self.steps.truncate(len - old.end + new_end);
        }
        self.steps[old.start..new_end].copy_from_slice(new);
    }
}

/// What a promise leaves.
fn less(left: u64, rate: u64) -> u64 {
    left.checked_sub(rate).expect("a plan promised more than a link has left")
}

/// An instant on a timeline, on the way to later ones.
struct Walk<'a> {
    at_ns: u64,
    left: u64,
    /// The steps behind.
    rest: &'a [Step],
}

impl<'a> Walk<'a> {
    /// The beginning of a step.
    fn new(steps: &'a [Step], index: usize) -> Self {
        let Step { from_ns, bytes_per_sec } = steps[index];
        Self { at_ns: from_ns, left: bytes_per_sec, rest: &steps[index + 1..] }
    }

    /// On to the next step, or to an instant before it.
    #[inline]
    fn advance(&mut self, to_ns: u64) {
        match self.rest.split_first() {
            Some((next, rest)) if next.from_ns <= to_ns => {
                (self.at_ns, self.left, self.rest) = (next.from_ns, next.bytes_per_sec, rest);
            }
            _ => self.at_ns = to_ns,
        }
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
