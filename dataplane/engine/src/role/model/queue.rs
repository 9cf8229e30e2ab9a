//! What a job has to say, until somebody takes it.

use alloc::collections::VecDeque;

/// A bounded queue; what does not fit is lost and counted.
#[derive(Debug)]
pub(crate) struct Queue<T> {
    items: VecDeque<T>,
    max: usize,
}

impl<T> Queue<T> {
    pub(crate) fn new(max: usize) -> Self {
        Self { items: VecDeque::with_capacity(max), max }
    }

    /// Adds an item; counts it as `lost` when there is no room.
    pub(crate) fn push(&mut self, item: T, lost: &mut u64) {
        if self.items.len() < self.max {
            self.items.push_back(item);
        } else {
            *lost += 1;
        }
    }

    pub(crate) fn pop(&mut self) -> Option<T> {
        self.items.pop_front()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }
}

/// Events kept until somebody takes them.
pub(crate) const EVENTS_MAX: usize = 4096;
