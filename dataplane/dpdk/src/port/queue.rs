//! One receive and one transmit queue of a device: what a polling lcore holds.
//!
//! Moves frames, decides nothing. A handle is the only user of its two queues, so bursts take no
//! lock. Counters of frames and bytes are kept per handle; what the device itself counts (missed
//! frames, its errors) exists per device and is reported by handle 0, so that a sum over handles
//! counts nothing twice.

use super::{DpdkPort, Steering, text};
use crate::mbuf::burst_len;
use crate::{Mbuf, Mempool, sys};
use std::ffi::c_uint;
use std::sync::Arc;
use weft_io::{Burst, Port, PortInfo, PortStats};
use weft_wire::Nanos;

/// One queue pair of an open device, for one lcore.
#[derive(Debug)]
pub struct DpdkQueue {
    port: Arc<DpdkPort>,
    queue: u16,
    receives: bool,
    pool: Mempool,
    clones: Option<Mempool>,
    copy_break_bytes: usize,
    stats: PortStats,
}

impl DpdkQueue {
    pub(super) fn new(
        port: Arc<DpdkPort>,
        queue: u16,
        pool: Mempool,
        clones: Option<Mempool>,
        copy_break_bytes: usize,
    ) -> Self {
        let receives = queue < port.rx_queues;
        Self { port, queue, receives, pool, clones, copy_break_bytes, stats: PortStats::default() }
    }

    /// This handle's queue number.
    #[must_use]
    pub fn queue(&self) -> u16 {
        self.queue
    }

    /// True if the device delivers frames to this handle; handles beyond `rx_queues` only send.
    #[must_use]
    pub fn receives(&self) -> bool {
        self.receives
    }

    /// Who distributes frames over the receive queues.
    #[must_use]
    pub fn steering(&self) -> Steering {
        self.port.steering
    }

    /// The pool that this handle receives into and allocates from.
    #[must_use]
    pub fn pool(&self) -> &Mempool {
        &self.pool
    }

    /// The pool of descriptors that shared payloads need; `None` if every copy is whole.
    #[must_use]
    pub fn clone_pool(&self) -> Option<&Mempool> {
        self.clones.as_ref()
    }

    /// True once the device has a link; a memif has one while its peer is connected.
    #[must_use]
    pub fn is_link_up(&self) -> bool {
        let _alone = self.port.control();
        // SAFETY: the port is open.
        unsafe { sys::weft_port_link(self.port.index) == 1 }
    }

    /// The device's extended statistics by DPDK's names; empty if it has none. Slow.
    #[must_use]
    pub fn xstats(&self) -> Vec<(String, u64)> {
        let mut names = vec![[0; sys::NAME_MAX]; XSTATS_MAX];
        let mut values = vec![0_u64; XSTATS_MAX];
        let room = c_uint::try_from(XSTATS_MAX).expect("XSTATS_MAX is small");
        let _alone = self.port.control();
        // SAFETY: the port is open, and both arrays have `room` elements.
        let n = unsafe {
            sys::weft_port_xstats(self.port.index, names.as_mut_ptr(), values.as_mut_ptr(), room)
        };
        let n = usize::try_from(n).ok().filter(|n| *n <= XSTATS_MAX).unwrap_or(0);
        names.iter().map(|name| text(name)).zip(values).take(n).collect()
    }
}

impl Port for DpdkQueue {
    type Frame = Mbuf;

    #[inline]
    fn rx_burst(&mut self, _now: Nanos, rx: &mut Burst<Mbuf>) -> usize {
        let (len, room) = (rx.len(), rx.remaining_capacity());
        if !self.receives || room == 0 {
            return 0;
        }
        let mut count = sys::RxCount::default();
        // SAFETY: the port is started and this handle alone polls the queue; the vector has space
        // for `room` frames behind its `len`, and `Mbuf` is a transparent pointer to a
        // `sys::Frame`.
        let got = usize::from(unsafe {
            let got = sys::weft_rx_burst(
                self.port.index,
                self.queue,
                self.pool.raw(),
                rx.as_mut_ptr().add(len).cast(),
                burst_len(room),
                &raw mut count,
            );
            rx.set_len(len + usize::from(got));
            got
        });
        self.stats.rx_packets += got as u64;
        self.stats.rx_bytes += count.bytes;
        self.stats.rx_errors += count.errors;
        self.stats.rx_nombuf += count.nombuf;
        got
    }

    #[inline]
    fn tx_burst(&mut self, _now: Nanos, tx: &mut Burst<Mbuf>) -> usize {
        let len = tx.len();
        if len == 0 {
            return 0;
        }
        let mut bytes = 0;
        // SAFETY: the port is started and this handle alone sends on the queue. The first `sent`
        // frames now belong to DPDK: those behind them move to the front, and the length is set
        // so that no frame is dropped that was sent, and each of the others once.
        let sent = usize::from(unsafe {
            let first = tx.as_mut_ptr();
            let sent = sys::weft_tx_burst(
                self.port.index,
                self.queue,
                first.cast(),
                burst_len(len),
                &raw mut bytes,
            );
            let rest = len - usize::from(sent);
            std::ptr::copy(first.add(usize::from(sent)), first, rest);
            tx.set_len(rest);
            sent
        });
        self.stats.tx_packets += sent as u64;
        self.stats.tx_bytes += bytes;
        sent
    }

    #[inline]
    fn alloc(&mut self) -> Option<Mbuf> {
        let frame = self.pool.alloc();
        self.stats.rx_nombuf += u64::from(frame.is_none());
        frame
    }

    /// Copies whole up to `copy_break_bytes`; above, the result shares the payload behind
    /// `header_len`, shows the header alone, and `frame` must not be written behind its header
    /// again (see [`Mbuf`]). `None` when a pool is exhausted.
    #[inline]
    fn copy(&mut self, frame: &Mbuf, header_len: usize) -> Option<Mbuf> {
        let shown = frame.as_ref().len();
        let copy = match &self.clones {
            Some(clones) if frame.frame_len() > self.copy_break_bytes && header_len <= shown => {
                self.pool.share(clones, frame, u16::try_from(header_len).ok()?)
            }
            _ => self.pool.copy(frame),
        };
        self.stats.rx_nombuf += u64::from(copy.is_none());
        copy
    }

    #[inline]
    fn recycles(&self, frame_len: usize) -> bool {
        self.clones.is_none() || frame_len <= self.copy_break_bytes
    }

    #[inline]
    fn free(&mut self, frames: &mut Burst<Mbuf>) {
        Mbuf::free_bulk(frames);
    }

    fn info(&self) -> PortInfo {
        PortInfo {
            name: self.port.name.clone(),
            driver: self.port.driver.clone(),
            mac: self.port.mac,
            mtu: usize::from(self.port.mtu),
        }
    }

    fn stats(&self) -> PortStats {
        let mut stats = self.stats;
        if self.queue == 0 {
            let mut device = sys::PortStats::default();
            let _alone = self.port.control();
            // SAFETY: the port is open, `device` is writable.
            if unsafe { sys::weft_port_stats(self.port.index, &raw mut device) } == 0 {
                stats.rx_missed += device.imissed;
                stats.rx_errors += device.ierrors;
                stats.rx_nombuf += device.rx_nombuf;
                stats.tx_errors += device.oerrors;
            }
        }
        stats
    }
}

const XSTATS_MAX: usize = 512;
