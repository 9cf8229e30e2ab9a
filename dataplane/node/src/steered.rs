//! Several lanes on a port with one receive queue: lane 0 hands the others their frames.
//!
//! [`FrontPort`] is lane 0's: it owns the receiving port and sorts what arrives by [`LaneMap`].
//! [`SidePort`] is another lane's: it receives from its ring and sends through its own port, which
//! is a transmit queue of the device, or a [`RelayPort`] whose frames lane 0 sends for it.
//!
//! Invariants: rings are bounded and made at the start; a frame for a full ring is freed and
//! counted, as a full receive ring of a NIC would; no frame is handled on a lane that it does not
//! belong to. Nothing blocks and nothing allocates per burst.

use std::sync::Arc;
use std::time::Duration;

use crossbeam_queue::ArrayQueue;
use crossbeam_utils::sync::{Parker, Unparker};
use weft_io::fault::FaultCounts;
use weft_io::pool::{Pool, PoolFrame};
use weft_io::{Burst, Port, PortInfo, PortStats};
use weft_wire::Nanos;
use weft_wire::frame::ETHERNET_LEN;

use crate::steer::LaneMap;
use crate::wrap::Wrapped;

/// What steering did.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct SteerStats {
    /// Frames handed to another lane.
    pub handed_over: u64,
    /// Frames lost because the other lane's ring was full.
    pub ring_full: u64,
}

/// A port of a lane.
pub trait LanePort: Port {
    /// What steering did at this lane.
    fn steer_stats(&self) -> SteerStats;

    /// Faults of received and of sent frames, where a wrapper makes some.
    fn fault_counts(&self) -> Option<[FaultCounts; 2]> {
        None
    }
}

/// Lane 0's port.
#[derive(Debug)]
pub struct FrontPort<P: Port> {
    inner: P,
    map: LaneMap,
    sides: Vec<Side<P::Frame>>,
    /// Frames that other lanes want sent.
    relay: Option<Arc<ArrayQueue<P::Frame>>>,
    arrived: Burst<P::Frame>,
    leaving: Burst<P::Frame>,
    relay_dropped: u64,
    stats: SteerStats,
}

#[derive(Debug)]
struct Side<F> {
    ring: Arc<ArrayQueue<F>>,
    unparker: Unparker,
    woken: bool,
}

/// The port of a lane other than 0.
#[derive(Debug)]
pub struct SidePort<S: Port> {
    inner: S,
    ring: Arc<ArrayQueue<S::Frame>>,
    parker: Parker,
}

/// Puts lane 0 on `inner` and each further lane on one of `senders`. Frames in `relay`, if there
/// is one, leave through `inner`.
pub fn steer<P, S>(
    inner: P,
    senders: Vec<S>,
    map: LaneMap,
    ring_frames: usize,
    relay: Option<Arc<ArrayQueue<P::Frame>>>,
) -> (FrontPort<P>, Vec<SidePort<S>>)
where
    P: Port,
    S: Port<Frame = P::Frame>,
{
    let mut sides = Vec::new();
    let ports = senders
        .into_iter()
        .map(|inner| {
            let (ring, parker) = (Arc::new(ArrayQueue::new(ring_frames)), Parker::new());
            let unparker = parker.unparker().clone();
            sides.push(Side { ring: Arc::clone(&ring), unparker, woken: false });
            SidePort { inner, ring, parker }
        })
        .collect();
    let front = FrontPort {
        inner,
        map,
        sides,
        relay,
        arrived: Burst::new(),
        leaving: Burst::new(),
        relay_dropped: 0,
        stats: SteerStats::default(),
    };
    (front, ports)
}

impl<P: Port> FrontPort<P> {
    fn distribute(&mut self, rx: &mut Burst<P::Frame>) -> usize {
        let mut own = 0;
        for frame in self.arrived.drain(..) {
            let lane = self.map.lane_of(frame.as_ref());
            if lane == 0 {
                rx.push(frame);
                own += 1;
                continue;
            }
            let side = &mut self.sides[lane - 1];
            match side.ring.push(frame) {
                Ok(()) => self.stats.handed_over += 1,
                Err(_full) => self.stats.ring_full += 1,
            }
            side.woken = true;
        }
        for side in self.sides.iter_mut().filter(|side| side.woken) {
            side.unparker.unpark();
            side.woken = false;
        }
        own
    }

    fn send_relayed(&mut self, now: Nanos) {
        let Some(relay) = &self.relay else { return };
        while !self.leaving.is_full() {
            let Some(frame) = relay.pop() else { break };
            self.leaving.push(frame);
        }
        if !self.leaving.is_empty() {
            self.inner.tx_burst(now, &mut self.leaving);
            self.relay_dropped += self.leaving.len() as u64;
            self.inner.free(&mut self.leaving);
        }
    }
}

impl<P: Port> Port for FrontPort<P> {
    type Frame = P::Frame;

    fn rx_burst(&mut self, now: Nanos, rx: &mut Burst<P::Frame>) -> usize {
        if self.sides.is_empty() {
            return self.inner.rx_burst(now, rx);
        }
        self.send_relayed(now);
        if rx.remaining_capacity() < self.arrived.capacity() {
            return 0;
        }
        self.inner.rx_burst(now, &mut self.arrived);
        self.distribute(rx)
    }

    fn tx_burst(&mut self, now: Nanos, tx: &mut Burst<P::Frame>) -> usize {
        self.inner.tx_burst(now, tx)
    }

    fn alloc(&mut self) -> Option<P::Frame> {
        self.inner.alloc()
    }

    fn copy(&mut self, frame: &P::Frame, header_len: usize) -> Option<P::Frame> {
        self.inner.copy(frame, header_len)
    }

    fn free(&mut self, frames: &mut Burst<P::Frame>) {
        self.inner.free(frames);
    }

    fn info(&self) -> PortInfo {
        self.inner.info()
    }

    fn stats(&self) -> PortStats {
        let stats = self.inner.stats();
        PortStats { tx_errors: stats.tx_errors + self.relay_dropped, ..stats }
    }

    fn is_open(&self) -> bool {
        self.inner.is_open()
    }

    fn wait(&mut self, timeout_ns: u64) {
        let longest_ns = if self.relay.is_some() { RELAY_PAUSE_MAX_NS } else { u64::MAX };
        self.inner.wait(timeout_ns.min(longest_ns));
    }
}

impl<P: Port> LanePort for FrontPort<Wrapped<P>> {
    fn steer_stats(&self) -> SteerStats {
        self.stats
    }

    fn fault_counts(&self) -> Option<[FaultCounts; 2]> {
        self.inner.fault_counts()
    }
}

impl<S: Port> Port for SidePort<S> {
    type Frame = S::Frame;

    fn rx_burst(&mut self, _now: Nanos, rx: &mut Burst<S::Frame>) -> usize {
        let before = rx.len();
        while !rx.is_full() {
            let Some(frame) = self.ring.pop() else { break };
            rx.push(frame);
        }
        rx.len() - before
    }

    fn tx_burst(&mut self, now: Nanos, tx: &mut Burst<S::Frame>) -> usize {
        self.inner.tx_burst(now, tx)
    }

    fn alloc(&mut self) -> Option<S::Frame> {
        self.inner.alloc()
    }

    fn copy(&mut self, frame: &S::Frame, header_len: usize) -> Option<S::Frame> {
        self.inner.copy(frame, header_len)
    }

    fn free(&mut self, frames: &mut Burst<S::Frame>) {
        self.inner.free(frames);
    }

    fn info(&self) -> PortInfo {
        self.inner.info()
    }

    fn stats(&self) -> PortStats {
        self.inner.stats()
    }

    fn wait(&mut self, timeout_ns: u64) {
        self.parker.park_timeout(Duration::from_nanos(timeout_ns));
    }
}

impl<S: Port> LanePort for SidePort<S> {
    fn steer_stats(&self) -> SteerStats {
        SteerStats::default()
    }
}

/// Sends by handing frames to lane 0: for ports that are one socket.
#[derive(Debug)]
pub struct RelayPort {
    pool: Pool,
    relay: Arc<ArrayQueue<PoolFrame>>,
    info: PortInfo,
    nombuf: u64,
}

impl RelayPort {
    /// A port that sends through `relay`, with a pool of its own.
    #[must_use]
    pub fn new(frame_count: usize, relay: Arc<ArrayQueue<PoolFrame>>, info: PortInfo) -> Self {
        let pool = Pool::new(frame_count, info.mtu + ETHERNET_LEN);
        Self { pool, relay, info, nombuf: 0 }
    }
}

impl Port for RelayPort {
    type Frame = PoolFrame;

    fn rx_burst(&mut self, _now: Nanos, _rx: &mut Burst<PoolFrame>) -> usize {
        0
    }

    fn tx_burst(&mut self, _now: Nanos, tx: &mut Burst<PoolFrame>) -> usize {
        let offered = tx.len();
        let mut refused = Burst::new();
        for frame in tx.drain(..) {
            if let Err(frame) = self.relay.push(frame) {
                refused.push(frame);
            }
        }
        tx.extend(refused);
        offered - tx.len()
    }

    fn alloc(&mut self) -> Option<PoolFrame> {
        let frame = self.pool.alloc();
        self.nombuf += u64::from(frame.is_none());
        frame
    }

    fn info(&self) -> PortInfo {
        self.info.clone()
    }

    /// Only what lane 0 cannot know: it counts the frames when it sends them.
    fn stats(&self) -> PortStats {
        PortStats { rx_nombuf: self.nombuf, ..PortStats::default() }
    }
}

/// Longest sleep of a lane 0 that others send through.
const RELAY_PAUSE_MAX_NS: u64 = 100_000;

#[cfg(test)]
mod tests;
