//! A port around a port whose frames leave in the order of their jobs' bands (TensorLights in the
//! dataplane): eight strict-priority queues behind a pacer at the port's rate, and before them one
//! for frames without elements.
//!
//! The pacer is what makes bands mean something: a port that takes all that it is given has its
//! queue beyond it, in the kernel or the NIC, where bands are not known. It sends at most the rate,
//! and no more than [`BURST_NS`] of it at once, or two frames.
//!
//! Invariants: a frame leaves before every frame of a later band that came before it, but for those
//! without elements, which ask for what the other direction is free for, and for those that waited
//! longer than the age limit: these go first, the oldest first, so that nobody starves; within a
//! band the order stays; a queue holds at most its maximum, and what finds it full is freed and
//! counted; nothing is allocated once the port is made.

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
    /// Bytes of them.
    pub sent_bytes: u64,
    /// Frames freed because their queue was full.
    pub full: u64,
    /// Of those sent: past the age limit.
    pub aged: u64,
    /// The longest that one waited.
    pub wait_max_ns: u64,
    /// Frames that wait now.
    pub waiting: u64,
    /// Bytes of them.
    pub waiting_bytes: u64,
    /// How long the oldest of them has waited.
    pub oldest_ns: u64,
}

/// A port whose frames leave by bands.
#[derive(Debug)]
pub struct Banded<P: Port> {
    port: P,
    config: BandsConfig,
    marks: Arc<JobMarks>,
    queues: [VecDeque<Waiting<P::Frame>>; QUEUES],
    /// What the port below did not take.
    leaving: Burst<P::Frame>,
    /// When the link has sent all that it was given.
    free_at: Nanos,
    /// How long the last frame takes; the next one will take about as long.
    next_ns: u64,
    /// The last time that anybody told.
    now: Nanos,
    counts: [BandCounts; QUEUES],
}

#[derive(Debug)]
struct Waiting<F> {
    frame: F,
    since: Nanos,
}

impl<P: Port> Banded<P> {
    /// Around a port. Takes the memory of all queues: for each of [`QUEUES`] `queue_frames_max`
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
            next_ns: 0,
            now: Nanos(0),
            counts: [BandCounts::default(); QUEUES],
        }
    }

    /// The port below.
    #[must_use]
    pub const fn port(&self) -> &P {
        &self.port
    }

    /// What became of each band's frames, as of the last time that anybody told; of those without
    /// elements at [`BARE`].
    #[must_use]
    pub fn counts(&self) -> [BandCounts; QUEUES] {
        array::from_fn(|at| {
            let oldest = self.queues[at].front();
            BandCounts {
                waiting: self.queues[at].len() as u64,
                oldest_ns: oldest.map_or(0, |oldest| self.now.since(oldest.since).0),
                ..self.counts[at]
            }
        })
    }

    /// Frames that wait, by band.
    #[must_use]
    pub fn backlog(&self) -> [usize; QUEUES] {
        array::from_fn(|queue| self.queues[queue].len())
    }

    fn offer(&mut self, now: Nanos, tx: &mut Burst<P::Frame>) {
        for frame in tx.drain(..) {
            let band = self.marks.band_of(frame.as_ref());
            let at = band.map_or(BARE, |band| usize::from(band).min(BANDS - 1));
            let queue = &mut self.queues[at];
            if queue.len() < self.config.queue_frames_max {
                self.counts[at].waiting_bytes += frame.as_ref().len() as u64;
                queue.push_back(Waiting { frame, since: now });
            } else {
                self.counts[at].full += 1;
            }
        }
    }

    /// Sends what the link has time for.
    fn drain(&mut self, now: Nanos) {
        self.now = now;
        loop {
            while !self.leaving.is_full() {
                let Some(at) = self.next_queue(now) else { break };
                let Some(first) = self.queues[at].front() else { break };
                let len = first.frame.as_ref().len() as u64;
                let takes_ns =
                    (len * 1_000_000_000).div_ceil(self.config.rate_bytes_per_sec.max(1));
                let busy_ns = self.free_at.since(now).0;
                if busy_ns > 0 && busy_ns + takes_ns > burst_ns(takes_ns) {
                    break;
                }
                let Some(waiting) = self.queues[at].pop_front() else { break };
                self.note_sent(at, len, now.since(waiting.since).0);
                self.free_at = self.free_at.max(now).saturating_add(Nanos(takes_ns));
                self.next_ns = takes_ns;
                self.leaving.push(waiting.frame);
            }
            if self.leaving.is_empty() || self.port.tx_burst(now, &mut self.leaving) == 0 {
                return;
            }
        }
    }

    fn note_sent(&mut self, at: usize, len: u64, waited_ns: u64) {
        let counts = &mut self.counts[at];
        counts.sent += 1;
        counts.sent_bytes += len;
        counts.waiting_bytes -= len;
        counts.aged += u64::from(waited_ns >= self.config.age_max_ns);
        counts.wait_max_ns = counts.wait_max_ns.max(waited_ns);
    }

    /// The queue whose turn it is: that of frames without elements, else that of the oldest frame
    /// beyond the age limit, else the first.
    fn next_queue(&self, now: Nanos) -> Option<usize> {
        if !self.queues[BARE].is_empty() {
            return Some(BARE);
        }
        let heads = self.queues[..BANDS].iter().enumerate().filter_map(|(band, queue)| {
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
            false => {
                let busy_ns = self.free_at.since(self.now).0 + self.next_ns;
                busy_ns.saturating_sub(burst_ns(self.next_ns)).max(1)
            }
        };
        self.port.wait(timeout_ns.min(until_free));
    }

    forward_port!(port: alloc, copy, recycles, merges, free, info, stats, carried, is_open, waker);
    forward_port!(port: complaint);
}

/// What may leave at once, where a frame takes so long.
fn burst_ns(takes_ns: u64) -> u64 {
    BURST_NS.max(2 * takes_ns)
}

/// Bands: seven of jobs, and the rest.
pub const BANDS: usize = 8;
/// The queue of frames without elements, after those of the bands.
pub const BARE: usize = BANDS;
/// Queues.
pub const QUEUES: usize = BANDS + 1;
/// What may leave at once, in time of the link: as long as a lane may be away without the link's
/// being idle, and as long as a band may be held up by a later one.
pub const BURST_NS: u64 = 200_000;
