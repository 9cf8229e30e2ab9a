//! Frames for a port on sockets: those of its pool, of which some are at hand.

use crate::pool::{Pool, PoolFrame};

/// Frames kept beside the pool: a message's, and the answers to a burst for a few members.
const SPARE_FRAMES_MAX: usize = 256;

/// A pool, and frames that were taken from it ahead of a receive or used last: their bytes are
/// still in cache, and what the pool gives next was used longest ago.
#[derive(Debug)]
pub(crate) struct Supply {
    spare: Vec<PoolFrame>,
    pool: Pool,
}

impl Supply {
    pub(crate) fn new(frame_count: usize, frame_len_max: usize) -> Self {
        let spare = Vec::with_capacity(SPARE_FRAMES_MAX.min(frame_count));
        Self { spare, pool: Pool::new(frame_count, frame_len_max) }
    }

    pub(crate) fn frame_len_max(&self) -> usize {
        self.pool.frame_len_max()
    }

    pub(crate) fn alloc(&mut self) -> Option<PoolFrame> {
        self.spare.pop().or_else(|| self.pool.alloc())
    }

    /// Has up to `wanted` empty frames at hand; returns how many.
    pub(crate) fn offer(&mut self, wanted: usize) -> usize {
        let wanted = wanted.min(self.spare.capacity());
        while self.spare.len() < wanted {
            let Some(frame) = self.pool.alloc() else { break };
            self.spare.push(frame);
        }
        wanted.min(self.spare.len())
    }

    /// The last `count` frames at hand.
    pub(crate) fn offered(&mut self, count: usize) -> &mut [PoolFrame] {
        let first = self.spare.len() - count;
        &mut self.spare[first..]
    }

    /// Takes the first `taken` of the last `count` frames at hand.
    pub(crate) fn take(
        &mut self,
        count: usize,
        taken: usize,
    ) -> impl DoubleEndedIterator<Item = PoolFrame> {
        let first = self.spare.len() - count;
        self.spare.drain(first..first + taken)
    }

    /// True of a frame that belongs here.
    pub(crate) fn owns(&self, frame: &PoolFrame) -> bool {
        self.pool.owns(frame)
    }

    /// Keeps a frame of no further use for the next one, where there is room.
    pub(crate) fn keep(&mut self, frame: PoolFrame) {
        if self.spare.len() < self.spare.capacity()
            && let Some(frame) = self.pool.renew(frame)
        {
            self.spare.push(frame);
        }
    }
}
