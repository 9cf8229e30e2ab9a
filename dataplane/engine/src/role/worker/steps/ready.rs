//! Steps that wait to go, lowest first.
//!
//! Answers come in the order in which steps become complete, so what a slot wants next is higher
//! than all that waits: it is appended, in O(1). Where answers come in another order it is put in
//! its place, which moves a part of the list.

use alloc::collections::VecDeque;

/// A list of steps in their order.
#[derive(Debug)]
pub(super) struct Ready(VecDeque<u32>);

impl Ready {
    /// Takes memory for so many.
    pub(super) fn with_capacity(count: usize) -> Self {
        Self(VecDeque::with_capacity(count))
    }

    pub(super) fn push(&mut self, step: u32) {
        match self.0.back() {
            Some(&highest) if step < highest => {
                let place = self.0.partition_point(|waiting| *waiting < step);
                self.0.insert(place, step);
            }
            _ => self.0.push_back(step),
        }
    }

    pub(super) fn lowest(&self) -> Option<u32> {
        self.0.front().copied()
    }

    pub(super) fn pop(&mut self) -> Option<u32> {
        self.0.pop_front()
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many it can hold without more memory.
    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.0.capacity()
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn steps_come_out_in_their_order_however_they_went_in(
            steps in proptest::collection::vec(any::<u32>(), 0..40),
        ) {
            let mut ready = Ready::with_capacity(40);
            steps.iter().for_each(|step| ready.push(*step));
            prop_assert_eq!(ready.len(), steps.len());
            let lowest = ready.lowest();
            let out: Vec<u32> = core::iter::from_fn(|| ready.pop()).collect();
            prop_assert_eq!(lowest, out.first().copied());
            let mut sorted = steps;
            sorted.sort_unstable();
            prop_assert_eq!(out, sorted);
        }
    }
}
