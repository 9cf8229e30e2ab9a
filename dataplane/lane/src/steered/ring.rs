//! A bounded ring of bursts between lanes: one operation hands over what a burst held for a lane,
//! for each costs two lcores a cache line of the other.

use std::sync::atomic::{AtomicUsize, Ordering};

use crossbeam_queue::ArrayQueue;
use weft_io::Burst;

/// The ring. Any lane puts in and takes out.
#[derive(Debug)]
pub struct Ring<F> {
    bursts: ArrayQueue<Burst<F>>,
    /// Frames in `bursts`, or about to be.
    frames: AtomicUsize,
    frames_max: usize,
}

impl<F> Ring<F> {
    /// A ring for `frames_max` frames, in bursts of one or of many.
    #[must_use]
    pub fn new(frames_max: usize) -> Self {
        Self { bursts: ArrayQueue::new(frames_max), frames: AtomicUsize::new(0), frames_max }
    }

    /// Puts frames in, in order; what there is no room for stays in `burst`. Returns how many went.
    pub fn push(&self, burst: &mut Burst<F>) -> usize {
        let offered = burst.len();
        // Relaxed: the queue orders what the frames hold; this only counts them.
        let before = self.frames.fetch_add(offered, Ordering::Relaxed);
        let count = offered.min(self.frames_max.saturating_sub(before));
        if count < offered {
            self.frames.fetch_sub(offered - count, Ordering::Relaxed);
        }
        if count == 0 {
            return 0;
        }
        let mut left: Burst<F> = burst.drain(count..).collect();
        std::mem::swap(burst, &mut left);
        if let Err(refused) = self.bursts.push(left) {
            // Not while each burst has a frame, but then nothing may be lost.
            self.frames.fetch_sub(count, Ordering::Relaxed);
            let behind = std::mem::replace(burst, refused);
            burst.extend(behind);
            return 0;
        }
        count
    }

    /// Takes out what was put in together.
    pub fn pop(&self) -> Option<Burst<F>> {
        let burst = self.bursts.pop()?;
        self.frames.fetch_sub(burst.len(), Ordering::Relaxed);
        Some(burst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_holds_so_many_frames_however_they_come() {
        let ring = Ring::new(40);
        let mut burst: Burst<u32> = (0..32).collect();
        assert_eq!(ring.push(&mut burst), 32);
        assert!(burst.is_empty());
        burst.extend(32..52);
        assert_eq!(ring.push(&mut burst), 8);
        assert_eq!(burst[..], (40..52).collect::<Vec<_>>()[..], "the rest stays, in order");
        assert_eq!(ring.push(&mut burst), 0);
        assert_eq!(ring.pop().unwrap()[..], (0..32).collect::<Vec<_>>()[..]);
        assert_eq!(ring.push(&mut burst), 12);
        let left: Vec<u32> = std::iter::from_fn(|| ring.pop()).flatten().collect();
        assert_eq!(left, (32..52).collect::<Vec<_>>());
        for frame in 0..40 {
            assert_eq!(ring.push(&mut Burst::from_iter([frame])), 1, "single frames too");
        }
        assert_eq!(ring.push(&mut Burst::from_iter([40])), 0);
    }

    #[test]
    fn lanes_at_once_lose_nothing_and_never_hold_more() {
        let ring = Ring::new(64);
        let (sent, mut taken) = (AtomicUsize::new(0), 0);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for round in 0..20_000_u32 {
                        let mut burst: Burst<u32> = (0..=round % 32).collect();
                        sent.fetch_add(ring.push(&mut burst), Ordering::Relaxed);
                    }
                    sent.fetch_add(1 << 40, Ordering::Release);
                });
            }
            while sent.load(Ordering::Acquire) >> 40 < 2 {
                taken += ring.pop().map_or(0, |burst| burst.len());
            }
        });
        taken += std::iter::from_fn(|| ring.pop()).map(|burst| burst.len()).sum::<usize>();
        assert_eq!(taken, sent.into_inner() & ((1 << 40) - 1));
        assert_eq!(ring.frames.into_inner(), 0);
    }
}
