//! What received frames are made of and counted with.

use crate::pool::PoolFrame;
use crate::port::{Burst, PortStats};
use crate::supply::Supply;

/// The frames and counters of a port.
#[derive(Debug)]
pub(super) struct Intake {
    pub(super) supply: Supply,
    pub(super) stats: PortStats,
    /// Frames that were longer than the interface's MTU allows.
    pub(super) oversize: u64,
    /// IPv4 frames whose checksum was left to hardware get one.
    pub(super) ipv4_checksum: bool,
}

impl Intake {
    pub(super) fn new(supply: Supply, ipv4_checksum: bool) -> Self {
        Self { supply, stats: PortStats::default(), oversize: 0, ipv4_checksum }
    }

    /// Counts a frame into `rx`, which has room.
    pub(super) fn pass(&mut self, frame: PoolFrame, rx: &mut Burst<PoolFrame>) -> usize {
        self.stats.take(Some(frame), rx)
    }

    /// Refuses something of `len` bytes.
    pub(super) fn refuse(&mut self, len: usize) {
        self.stats.rx_errors += 1;
        self.oversize += u64::from(len > self.supply.frame_len_max());
    }

    /// A frame; `None` when there is none, which counts.
    pub(super) fn alloc(&mut self) -> Option<PoolFrame> {
        let frame = self.supply.alloc();
        self.stats.rx_nombuf += u64::from(frame.is_none());
        frame
    }

    /// Has up to `wanted` empty frames at hand; returns how many. None counts.
    pub(super) fn offer(&mut self, wanted: usize) -> usize {
        let count = self.supply.offer(wanted);
        self.stats.rx_nombuf += u64::from(count == 0);
        count
    }
}
