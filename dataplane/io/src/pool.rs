//! A fixed set of frame buffers, all allocated at the start.
//!
//! Every software port takes its frames from a [`Pool`] and a dropped [`PoolFrame`] returns to the
//! pool it came from, on whichever thread that happens. Invariant: after [`Pool::new`] nothing
//! here allocates, and `free + in use = capacity`, so returning a buffer cannot fail. An empty
//! pool is a defined outcome, counted by the port (DESIGN I8). O(1) per frame, lock-free.

use std::sync::Arc;

use crossbeam_queue::ArrayQueue;

use crate::port::Frame;

/// A pool of frame buffers of one size. Clones share the buffers.
#[derive(Clone, Debug)]
pub struct Pool {
    free: Arc<ArrayQueue<Box<[u8]>>>,
    frame_len_max: usize,
}

impl Pool {
    /// Allocates `frame_count` buffers of `frame_len_max` bytes each (at least one buffer).
    ///
    /// # Panics
    ///
    /// If a buffer is to have 4 GiB or more.
    #[must_use]
    pub fn new(frame_count: usize, frame_len_max: usize) -> Self {
        assert!(u32::try_from(frame_len_max).is_ok(), "a frame is far shorter than 4 GiB");
        let free = ArrayQueue::new(frame_count.max(1));
        for _ in 0..free.capacity() {
            free.push(vec![0; frame_len_max].into_boxed_slice()).expect("a slot per buffer");
        }
        Self { free: Arc::new(free), frame_len_max }
    }

    /// Takes an empty frame; `None` when all are in use. Its buffer holds what was there before.
    pub fn alloc(&self) -> Option<PoolFrame> {
        let buffer = self.free.pop()?;
        Some(PoolFrame {
            buffer,
            len: 0,
            arrived_ns: 0,
            is_apart: false,
            home: Arc::clone(&self.free),
        })
    }

    /// Buffers not in use at this moment.
    #[must_use]
    pub fn free_count(&self) -> usize {
        self.free.len()
    }

    /// All buffers, in use or not.
    #[must_use]
    pub fn frame_count(&self) -> usize {
        self.free.capacity()
    }

    /// Bytes of each buffer.
    #[must_use]
    pub fn frame_len_max(&self) -> usize {
        self.frame_len_max
    }
}

/// A frame whose buffer belongs to a [`Pool`].
#[derive(Debug)]
pub struct PoolFrame {
    buffer: Box<[u8]>,
    /// With the flag in one word, for frames are moved a few times each.
    len: u32,
    is_apart: bool,
    /// 0: not known.
    arrived_ns: u64,
    home: Arc<ArrayQueue<Box<[u8]>>>,
}

impl PoolFrame {
    /// Notes when the kernel got it; 0: not known.
    pub(crate) fn set_arrived_ns(&mut self, arrived_ns: u64) {
        self.arrived_ns = arrived_ns;
    }

    /// It was asked to stay apart.
    pub(crate) fn is_apart(&self) -> bool {
        self.is_apart
    }
}

impl Frame for PoolFrame {
    fn buffer_mut(&mut self) -> &mut [u8] {
        &mut self.buffer
    }

    fn set_len(&mut self, len: usize) {
        assert!(len <= self.buffer.len(), "a frame fits its buffer");
        #[expect(clippy::cast_possible_truncation, reason = "a pool's buffers are shorter")]
        let len = len as u32;
        self.len = len;
    }

    fn keep_apart(&mut self, is_apart: bool) {
        self.is_apart = is_apart;
    }

    fn arrived_ns(&self) -> Option<u64> {
        (self.arrived_ns > 0).then_some(self.arrived_ns)
    }
}

impl AsRef<[u8]> for PoolFrame {
    fn as_ref(&self) -> &[u8] {
        &self.buffer[..self.len as usize]
    }
}

impl AsMut<[u8]> for PoolFrame {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.buffer[..self.len as usize]
    }
}

impl Drop for PoolFrame {
    fn drop(&mut self) {
        let returned = self.home.push(std::mem::take(&mut self.buffer));
        debug_assert!(returned.is_ok(), "a pool has room for each of its buffers");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_pool_gives_nothing_until_a_frame_returns() {
        let pool = Pool::new(2, 64);
        let first = pool.alloc().expect("two buffers");
        let second = pool.alloc().expect("two buffers");
        assert!(pool.alloc().is_none());
        drop(first);
        assert_eq!(pool.free_count(), 1);
        assert!(pool.alloc().is_some());
        drop(second);
        assert_eq!(pool.free_count(), 2);
    }

    #[test]
    fn frames_return_home_from_another_thread() {
        let pool = Pool::new(8, 64);
        let frames: Vec<_> = std::iter::from_fn(|| pool.alloc()).collect();
        assert_eq!(frames.len(), 8);
        std::thread::spawn(move || drop(frames)).join().expect("the thread ends");
        assert_eq!(pool.free_count(), 8);
    }

    #[test]
    fn a_new_frame_is_empty_and_grows_to_its_buffer() {
        let pool = Pool::new(1, 64);
        let mut frame = pool.alloc().expect("one buffer");
        assert!(frame.as_ref().is_empty());
        frame.set_len(64);
        frame.as_mut().fill(7);
        assert_eq!(frame.as_ref(), [7; 64]);
    }

    #[test]
    #[should_panic(expected = "a frame fits its buffer")]
    fn a_frame_longer_than_its_buffer_is_a_bug() {
        Pool::new(1, 64).alloc().expect("one buffer").set_len(65);
    }
}
