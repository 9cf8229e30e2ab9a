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
    free: Home,
    frame_len_max: usize,
}

impl Pool {
    /// Allocates `frame_count` buffers of `frame_len_max` bytes each (at least one buffer).
    #[must_use]
    pub fn new(frame_count: usize, frame_len_max: usize) -> Self {
        let free = ArrayQueue::new(frame_count.max(1));
        for _ in 0..free.capacity() {
            let bytes = vec![0; frame_len_max].into_boxed_slice();
            let buffer = Buffer { bytes, len: 0, datagram_len: 0, is_apart: false, arrived_ns: 0 };
            free.push(Box::new(buffer)).expect("a slot per buffer");
        }
        Self { free: Arc::new(free), frame_len_max }
    }

    /// Takes an empty frame; `None` when all are in use. Its buffer holds what was there before.
    pub fn alloc(&self) -> Option<PoolFrame> {
        let mut buffer = self.free.pop()?;
        buffer.clear();
        Some(PoolFrame { buffer: Some(buffer), home: Arc::clone(&self.free) })
    }

    /// Makes a frame of this pool an empty one, as [`Pool::alloc`] would give it; a frame of
    /// another pool goes home.
    pub(crate) fn renew(&self, mut frame: PoolFrame) -> Option<PoolFrame> {
        if !self.owns(&frame) {
            return None;
        }
        frame.held_mut().clear();
        Some(frame)
    }

    /// True of a frame of this pool.
    pub(crate) fn owns(&self, frame: &PoolFrame) -> bool {
        Arc::ptr_eq(&frame.home, &self.free)
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

/// A frame whose buffer belongs to a [`Pool`]. Two words, for frames are moved a few times each.
#[derive(Debug)]
pub struct PoolFrame {
    /// Until it is dropped.
    buffer: Option<Box<Buffer>>,
    home: Home,
}

type Home = Arc<ArrayQueue<Box<Buffer>>>;

/// A buffer, and what is known of the frame in it.
#[derive(Debug)]
struct Buffer {
    bytes: Box<[u8]>,
    len: usize,
    /// Of a run; 0: it is one datagram.
    datagram_len: usize,
    is_apart: bool,
    /// 0: not known.
    arrived_ns: u64,
}

impl Buffer {
    /// Forgets what is known of the frame.
    #[inline]
    fn clear(&mut self) {
        (self.len, self.datagram_len, self.is_apart, self.arrived_ns) = (0, 0, false, 0);
    }
}

impl PoolFrame {
    /// Notes when the kernel got it; 0: not known.
    pub(crate) fn set_arrived_ns(&mut self, arrived_ns: u64) {
        self.held_mut().arrived_ns = arrived_ns;
    }

    /// It was asked to stay apart.
    pub(crate) fn is_apart(&self) -> bool {
        self.held().is_apart
    }

    #[inline]
    fn held(&self) -> &Buffer {
        self.buffer.as_ref().expect("until it is dropped")
    }

    #[inline]
    fn held_mut(&mut self) -> &mut Buffer {
        self.buffer.as_mut().expect("until it is dropped")
    }
}

impl Frame for PoolFrame {
    #[inline]
    fn buffer_mut(&mut self) -> &mut [u8] {
        &mut self.held_mut().bytes
    }

    #[inline]
    fn set_len(&mut self, len: usize) {
        let buffer = self.held_mut();
        assert!(len <= buffer.bytes.len(), "a frame fits its buffer");
        buffer.len = len;
    }

    fn keep_apart(&mut self, is_apart: bool) {
        self.held_mut().is_apart = is_apart;
    }

    #[inline]
    fn datagram_len(&self) -> Option<usize> {
        let datagram_len = self.held().datagram_len;
        (datagram_len > 0).then_some(datagram_len)
    }

    fn set_datagram_len(&mut self, datagram_len: usize) {
        self.held_mut().datagram_len = datagram_len;
    }

    fn arrived_ns(&self) -> Option<u64> {
        let arrived_ns = self.held().arrived_ns;
        (arrived_ns > 0).then_some(arrived_ns)
    }
}

impl AsRef<[u8]> for PoolFrame {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        let buffer = self.held();
        &buffer.bytes[..buffer.len]
    }
}

impl AsMut<[u8]> for PoolFrame {
    #[inline]
    fn as_mut(&mut self) -> &mut [u8] {
        let buffer = self.held_mut();
        &mut buffer.bytes[..buffer.len]
    }
}

impl Drop for PoolFrame {
    fn drop(&mut self) {
        if let Some(buffer) = self.buffer.take() {
            let returned = self.home.push(buffer);
            debug_assert!(returned.is_ok(), "a pool has room for each of its buffers");
        }
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
    fn a_renewed_frame_is_as_new() {
        let pool = Pool::new(1, 64);
        let mut frame = pool.alloc().expect("one buffer");
        frame.set_len(64);
        frame.keep_apart(true);
        frame.set_arrived_ns(7);
        frame.set_datagram_len(9);
        let frame = pool.renew(frame).expect("it is the pool's");
        assert!(frame.as_ref().is_empty() && !frame.is_apart() && frame.arrived_ns().is_none());
        assert_eq!(frame.datagram_len(), None);
    }

    #[test]
    #[should_panic(expected = "a frame fits its buffer")]
    fn a_frame_longer_than_its_buffer_is_a_bug() {
        Pool::new(1, 64).alloc().expect("one buffer").set_len(65);
    }
}
