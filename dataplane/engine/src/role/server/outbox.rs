//! Header-only frames that wait to be sent: acknowledgements and decisions.

use alloc::collections::VecDeque;

use weft_wire::header::Header;

use crate::role::channel::Peer;

/// A bounded queue of frames; what does not fit is lost and counted, and asked for again.
#[derive(Debug)]
pub(super) struct Outbox {
    queue: VecDeque<(Peer, Header)>,
    max: usize,
}

impl Outbox {
    pub(super) fn new(max: usize) -> Self {
        Self { queue: VecDeque::with_capacity(max), max }
    }

    /// Adds a frame; counts it as `lost` when there is no room.
    pub(super) fn push(&mut self, peer: Peer, header: Header, lost: &mut u64) {
        if self.queue.len() < self.max {
            self.queue.push_back((peer, header));
        } else {
            *lost += 1;
        }
    }

    pub(super) fn pop(&mut self) -> Option<(Peer, Header)> {
        self.queue.pop_front()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }
}
