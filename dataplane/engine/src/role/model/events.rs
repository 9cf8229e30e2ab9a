//! Events of a job, until somebody takes them.

use alloc::collections::VecDeque;

use weft_control::Event;

/// A bounded queue of events; what does not fit is lost and counted.
#[derive(Debug)]
pub(crate) struct Events {
    queue: VecDeque<Event>,
}

impl Events {
    pub(crate) fn new() -> Self {
        Self { queue: VecDeque::with_capacity(EVENTS_MAX) }
    }

    /// Adds an event; counts it as `lost` when there is no room.
    pub(crate) fn push(&mut self, event: Event, lost: &mut u64) {
        if self.queue.len() < EVENTS_MAX {
            self.queue.push_back(event);
        } else {
            *lost += 1;
        }
    }

    pub(crate) fn pop(&mut self) -> Option<Event> {
        self.queue.pop_front()
    }
}

/// Events kept until somebody takes them.
const EVENTS_MAX: usize = 4096;
