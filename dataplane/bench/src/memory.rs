//! A device made of memory: delivers what a [`Source`] says, and keeps what is sent for the frames
//! that come. It takes no time but for that, and the same run executes the same instructions,
//! whatever the machine does meanwhile, so they can be counted.

use weft_io::pool::{Pool, PoolFrame};
use weft_io::{BURST_MAX, Burst, Frame, Port, PortInfo, PortStats};
use weft_wire::Nanos;

use super::frames::Frames;

/// What a device of memory delivers.
pub(super) trait Source {
    /// True when frames have arrived by `now`: those of a whole burst.
    fn has_arrived(&mut self, now: Nanos) -> bool;

    /// The next of them.
    fn deliver(&mut self, frame: &mut PoolFrame);
}

/// The device.
pub(super) struct MemoryDevice<S> {
    pub(super) source: S,
    /// Frames that were sent or are of no more use.
    done: Vec<PoolFrame>,
    pool: Pool,
    stats: PortStats,
}

impl<S> MemoryDevice<S> {
    pub(super) fn new(source: S) -> Self {
        let pool = Pool::new(8 * BURST_MAX, FRAME_LEN_MAX);
        let done = Vec::with_capacity(pool.frame_count());
        Self { source, done, pool, stats: PortStats::default() }
    }
}

impl<S: Source> Port for MemoryDevice<S> {
    type Frame = PoolFrame;

    fn rx_burst(&mut self, now: Nanos, rx: &mut Burst<PoolFrame>) -> usize {
        if !self.source.has_arrived(now) {
            return 0;
        }
        let before = rx.len();
        while rx.len() < RX_BURST_MAX
            && let Some(mut frame) = self.alloc()
        {
            self.source.deliver(&mut frame);
            rx.push(frame);
        }
        self.stats.rx_packets += (rx.len() - before) as u64;
        rx.len() - before
    }

    fn tx_burst(&mut self, _now: Nanos, tx: &mut Burst<PoolFrame>) -> usize {
        let count = tx.len();
        self.stats.tx_packets += count as u64;
        self.free(tx);
        count
    }

    fn alloc(&mut self) -> Option<PoolFrame> {
        match self.done.pop() {
            Some(mut frame) => {
                frame.set_len(0);
                Some(frame)
            }
            None => self.pool.alloc(),
        }
    }

    fn recycles(&self, _frame_len: usize) -> bool {
        true
    }

    fn free(&mut self, frames: &mut Burst<PoolFrame>) {
        self.done.extend(frames.drain(..));
    }

    fn info(&self) -> PortInfo {
        PortInfo {
            name: "loop".to_owned(),
            driver: "memory".to_owned(),
            mtu: FRAME_LEN_MAX - weft_wire::frame::ETHERNET_LEN,
            ..PortInfo::default()
        }
    }

    fn stats(&self) -> PortStats {
        self.stats
    }
}

/// The same frames over and over, as net_pcap's `infinite_rx` delivers them.
pub(super) struct Endless<'a> {
    frames: &'a Frames,
    next: usize,
}

impl<'a> Endless<'a> {
    pub(super) fn new(frames: &'a Frames) -> Self {
        Self { frames, next: 0 }
    }
}

impl Source for Endless<'_> {
    fn has_arrived(&mut self, _now: Nanos) -> bool {
        true
    }

    fn deliver(&mut self, frame: &mut PoolFrame) {
        let bytes = self.frames.nth(self.next);
        frame.set_len(bytes.len());
        frame.as_mut().copy_from_slice(bytes);
        self.next = if self.next + 1 < self.frames.len() { self.next + 1 } else { 0 };
    }
}

const FRAME_LEN_MAX: usize = 2048;

/// What the device gives at once: as much as DPDK's do.
const RX_BURST_MAX: usize = 32;
