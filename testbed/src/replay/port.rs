//! A port whose frames come from a script and go to it: no clock, no other end.

use std::cell::RefCell;
use std::rc::Rc;

use weft_io::pool::{Pool, PoolFrame};
use weft_io::{Burst, Frame as _, Port, PortInfo, PortStats};
use weft_wire::Nanos;

/// What a lane meets on its port within a breath.
pub(super) trait Script {
    /// Writes the next frame of this breath that arrives, and returns its length; `None` when all
    /// have.
    fn arrive(&mut self, buffer: &mut [u8]) -> Option<usize>;

    /// The engine sends a frame.
    fn leave(&mut self, now: Nanos, frame: &[u8]);

    /// True when the pool was empty at the next call for a frame.
    fn is_empty_pool(&mut self) -> bool;
}

/// A port that follows a script.
#[derive(Debug)]
pub(super) struct ScriptPort<S> {
    script: Rc<RefCell<S>>,
    pool: Pool,
    info: PortInfo,
    recycled_len_max: Option<usize>,
    merges: bool,
    stats: PortStats,
}

impl<S: Script> ScriptPort<S> {
    /// A port with buffers of this length, of which frames up to some length may become copies, and
    /// which may want them sorted.
    pub(super) fn new(
        script: Rc<RefCell<S>>,
        info: PortInfo,
        buffer_len: usize,
        recycled_len_max: Option<usize>,
        merges: bool,
    ) -> Self {
        let pool = Pool::new(FRAMES, buffer_len);
        Self { script, pool, info, recycled_len_max, merges, stats: PortStats::default() }
    }

    fn take(&mut self) -> Option<PoolFrame> {
        if self.script.borrow_mut().is_empty_pool() {
            self.stats.rx_nombuf += 1;
            return None;
        }
        self.pool.alloc()
    }
}

impl<S: Script> Port for ScriptPort<S> {
    type Frame = PoolFrame;

    fn rx_burst(&mut self, _now: Nanos, rx: &mut Burst<PoolFrame>) -> usize {
        let mut script = self.script.borrow_mut();
        let before = rx.len();
        while !rx.is_full() {
            let Some(mut frame) = self.pool.alloc() else { break };
            let Some(len) = script.arrive(frame.buffer_mut()) else { break };
            frame.set_len(len);
            self.stats.rx_packets += 1;
            self.stats.rx_bytes += len as u64;
            rx.push(frame);
        }
        rx.len() - before
    }

    fn tx_burst(&mut self, now: Nanos, tx: &mut Burst<PoolFrame>) -> usize {
        let mut script = self.script.borrow_mut();
        let count = tx.len();
        for frame in tx.drain(..) {
            let bytes = frame.as_ref();
            self.stats.tx_packets += 1;
            self.stats.tx_bytes += bytes.len() as u64;
            script.leave(now, bytes);
        }
        count
    }

    fn alloc(&mut self) -> Option<PoolFrame> {
        self.take()
    }

    fn copy(&mut self, frame: &PoolFrame, _header_len: usize) -> Option<PoolFrame> {
        let mut copy = self.take()?;
        let bytes = frame.as_ref();
        copy.set_len(bytes.len());
        copy.as_mut().copy_from_slice(bytes);
        Some(copy)
    }

    fn recycles(&self, frame_len: usize) -> bool {
        self.recycled_len_max.is_some_and(|max| frame_len <= max)
    }

    fn merges(&self) -> bool {
        self.merges
    }

    fn info(&self) -> PortInfo {
        self.info.clone()
    }

    fn stats(&self) -> PortStats {
        self.stats
    }

    fn wait(&mut self, _timeout_ns: u64) {}
}

/// Buffers: what a breath can receive, hold in runs and send, several times over.
const FRAMES: usize = 4096;
