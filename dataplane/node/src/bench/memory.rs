//! A device made of memory: delivers the same frames over and over, as net_pcap's `infinite_rx`
//! does, and frees what is sent. The same run executes the same instructions, whatever the machine
//! does meanwhile, so they can be counted.

use weft_io::pool::{Pool, PoolFrame};
use weft_io::{BURST_MAX, Burst, Frame, Port, PortInfo, PortStats};
use weft_wire::Nanos;

use super::frames::Frames;

/// The device.
pub(super) struct MemoryLoop<'a> {
    frames: &'a Frames,
    next: usize,
    pool: Pool,
    stats: PortStats,
}

impl<'a> MemoryLoop<'a> {
    pub(super) fn new(frames: &'a Frames) -> Self {
        let pool = Pool::new(8 * BURST_MAX, FRAME_LEN_MAX);
        Self { frames, next: 0, pool, stats: PortStats::default() }
    }
}

impl Port for MemoryLoop<'_> {
    type Frame = PoolFrame;

    fn rx_burst(&mut self, _now: Nanos, rx: &mut Burst<PoolFrame>) -> usize {
        let before = rx.len();
        while !rx.is_full() {
            let Some(mut frame) = self.pool.alloc() else { break };
            let bytes = self.frames.nth(self.next);
            frame.set_len(bytes.len());
            frame.as_mut().copy_from_slice(bytes);
            rx.push(frame);
            self.next = if self.next + 1 < self.frames.len() { self.next + 1 } else { 0 };
        }
        self.stats.rx_packets += (rx.len() - before) as u64;
        rx.len() - before
    }

    fn tx_burst(&mut self, _now: Nanos, tx: &mut Burst<PoolFrame>) -> usize {
        let count = tx.len();
        self.stats.tx_packets += count as u64;
        tx.clear();
        count
    }

    fn alloc(&mut self) -> Option<PoolFrame> {
        self.pool.alloc()
    }

    fn recycles(&self, _frame_len: usize) -> bool {
        true
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

const FRAME_LEN_MAX: usize = 2048;
