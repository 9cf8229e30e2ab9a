//! A port around a port whose frames leave in the order of their jobs' bands (TensorLights in the
//! dataplane): eight strict-priority queues behind a pacer at the port's rate.
//!
//! The pacer is what makes bands mean something: a port that takes all that it is given has its
//! queue beyond it, in the kernel or the NIC, where bands are not known. It sends at most the rate,
//! and no more than [`BURST_NS`] of it at once.
//!
//! Invariants: a frame leaves before every frame of a later band that came before it, but for those
//! that waited longer than the age limit: these go first, the oldest first, so that nobody starves;
//! within a band the order stays; a queue holds at most its maximum, and what finds it full is
//! freed and counted; nothing is allocated once the port is made.

use std::array;
use std::collections::VecDeque;
use std::sync::Arc;

use weft_wire::Nanos;

use crate::marks::JobMarks;
use crate::{Burst, Port, forward_port};

/// How a [`Banded`] port sends.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct BandsConfig {
    /// What the link behind the port sends, bytes of Ethernet frames per second; above 0.
    pub rate_bytes_per_sec: u64,
    /// Frames of each band that may wait.
    pub queue_frames_max: usize,
    /// A frame that has waited for so long goes before all bands.
    pub age_max_ns: u64,
}

/// What became of a band's frames.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct BandCounts {
    /// Frames sent.
    pub sent: u64,
    /// Frames freed because their queue was full.
    pub full: u64,
    /// Of those sent: past the age limit.
    pub aged: u64,
    /// The longest that one waited.
    pub wait_max_ns: u64,
}

/// A port whose frames leave by bands.
#[derive(Debug)]
pub struct Banded<P: Port> {
    port: P,
    config: BandsConfig,
    marks: Arc<JobMarks>,
    queues: [VecDeque<Waiting<P::Frame>>; BANDS],
    /// What the port below did not take.
    leaving: Burst<P::Frame>,
    /// When the link has sent all that it was given.
    free_at: Nanos,
    /// The last time that anybody told.
    now: Nanos,
    counts: [BandCounts; BANDS],
}

#[derive(Debug)]
struct Waiting<F> {
    frame: F,
    since: Nanos,
}

impl<P: Port> Banded<P> {
    /// Around a port. Takes the memory of all queues: for each of eight bands `queue_frames_max`
    /// frames of the port's.
    #[must_use]
    pub fn new(port: P, config: BandsConfig, marks: Arc<JobMarks>) -> Self {
        Self {
            port,
            config,
            marks,
            queues: array::from_fn(|_| VecDeque::with_capacity(config.queue_frames_max)),
            leaving: Burst::new_const(),
            free_at: Nanos(0),
            now: Nanos(0),
            counts: [BandCounts::default(); BANDS],
        }
    }

    /// The port below.
    #[must_use]
    pub const fn port(&self) -> &P {
        &self.port
    }

    /// What became of each band's frames.
    #[must_use]
    pub const fn counts(&self) -> &[BandCounts; BANDS] {
        &self.counts
    }

    /// Frames that wait, by band.
    #[must_use]
    pub fn backlog(&self) -> [usize; BANDS] {
        array::from_fn(|band| self.queues[band].len())
    }

    fn offer(&mut self, now: Nanos, tx: &mut Burst<P::Frame>) {
        for frame in tx.drain(..) {
            let band = usize::from(self.marks.band_of(frame.as_ref())).min(BANDS - 1);
            let queue = &mut self.queues[band];
            if queue.len() < self.config.queue_frames_max {
                queue.push_back(Waiting { frame, since: now });
            } else {
                self.counts[band].full += 1;
            }
        }
    }

    /// Sends what the link has time for.
    fn drain(&mut self, now: Nanos) {
        self.now = now;
        loop {
            while !self.leaving.is_full() && self.free_at.since(now).0 <= BURST_NS {
                let Some(band) = self.next_band(now) else { break };
                let Some(waiting) = self.queues[band].pop_front() else { break };
                self.note_sent(band, now.since(waiting.since).0);
                let len = waiting.frame.as_ref().len() as u64;
                let takes_ns =
                    (len * 1_000_000_000).div_ceil(self.config.rate_bytes_per_sec.max(1));
                self.free_at = self.free_at.max(now).saturating_add(Nanos(takes_ns));
                self.leaving.push(waiting.frame);
            }
            if self.leaving.is_empty() || self.port.tx_burst(now, &mut self.leaving) == 0 {
                return;
            }
        }
    }

    fn note_sent(&mut self, band: usize, waited_ns: u64) {
        let counts = &mut self.counts[band];
        counts.sent += 1;
        counts.aged += u64::from(waited_ns >= self.config.age_max_ns);
        counts.wait_max_ns = counts.wait_max_ns.max(waited_ns);
    }

    /// The band whose turn it is: that of the oldest frame beyond the age limit, else the first.
    fn next_band(&self, now: Nanos) -> Option<usize> {
        let heads = self.queues.iter().enumerate().filter_map(|(band, queue)| {
            let since = queue.front()?.since;
            Some((band, since))
        });
        let aged = heads.clone().filter(|(_, since)| now.since(*since).0 >= self.config.age_max_ns);
        let oldest = aged.min_by_key(|(_, since)| *since);
        oldest.or_else(|| heads.clone().next()).map(|(band, _)| band)
    }

    fn is_empty(&self) -> bool {
        self.leaving.is_empty() && self.queues.iter().all(VecDeque::is_empty)
    }
}

impl<P: Port> Port for Banded<P> {
    type Frame = P::Frame;

    fn rx_burst(&mut self, now: Nanos, rx: &mut Burst<P::Frame>) -> usize {
        self.drain(now);
        self.port.rx_burst(now, rx)
    }

    /// Takes all frames; those whose queue is full are freed and counted.
    fn tx_burst(&mut self, now: Nanos, tx: &mut Burst<P::Frame>) -> usize {
        let offered = tx.len();
        self.offer(now, tx);
        self.drain(now);
        offered
    }

    /// Wakes up when the link is free for the next frame.
    fn wait(&mut self, timeout_ns: u64) {
        let until_free = match self.is_empty() {
            true => u64::MAX,
            false => self.free_at.since(self.now).0.saturating_sub(BURST_NS).max(1),
        };
        self.port.wait(timeout_ns.min(until_free));
    }

    forward_port!(port: alloc, copy, recycles, merges, free, info, stats, carried, is_open, waker);
}

/// Bands: seven of jobs, and the rest.
pub const BANDS: usize = 8;
/// What may leave at once, in time of the link: as long as a lane may be away without the link's
/// being idle, and as long as a band may be held up by a later one.
pub const BURST_NS: u64 = 200_000;
