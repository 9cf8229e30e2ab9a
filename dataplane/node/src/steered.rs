//! Lanes that hand each other frames: each frame is handled by the lane of its source port,
//! whichever queue it came in on.
//!
//! A [`SteeredPort`] is one lane's. What its own port receives it sorts by [`LaneMap`]; what
//! belongs to another lane goes into that lane's ring. On a device with one receive queue lane 0
//! does all of this; on one that spreads frames by a hash of its own every lane does, and it need
//! not be known which hash that is. A lane sends through its own port, which may be a
//! [`RelayPort`]: then lane 0 sends for it.
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
use weft_io::{Burst, Frame, Port, PortInfo, PortStats, forward_port};
use weft_wire::Nanos;

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
    fn fault_counts(&self) -> Option<[FaultCounts; 2]>;
}

/// Frames from lanes without a port of their own, for lane 0 to send.
pub type Relay<F> = Arc<ArrayQueue<F>>;

/// A lane's port.
#[derive(Debug)]
pub struct SteeredPort<P: Port> {
    inner: P,
    lane: usize,
    /// Alone: nothing to sort.
    mesh: Option<Mesh<P::Frame>>,
    relay: Option<Relay<P::Frame>>,
    arrived: Burst<P::Frame>,
    leaving: Burst<P::Frame>,
    relay_dropped: u64,
    stats: SteerStats,
}

/// What joins a lane to the others.
#[derive(Debug)]
struct Mesh<F> {
    map: LaneMap,
    rings: Arc<[Ring<F>]>,
    parker: Parker,
    /// This lane's port receives nothing, so waiting means waiting for the ring.
    is_fed: bool,
    /// Lanes that got a frame in this burst.
    woken: u64,
}

/// The way to a lane.
#[derive(Debug)]
struct Ring<F> {
    queue: ArrayQueue<F>,
    unparker: Unparker,
}

/// Makes the lanes of a node: lane 0 on `first`, each further one on one of `others`, which receive
/// by themselves if `others_receive`. Lane 0 sends what comes through `relay`.
pub fn steer<P, S>(
    first: P,
    others: Vec<S>,
    others_receive: bool,
    map: &LaneMap,
    ring_frames: usize,
    relay: Option<Relay<P::Frame>>,
) -> (SteeredPort<P>, Vec<SteeredPort<S>>)
where
    P: Port,
    S: Port<Frame = P::Frame>,
{
    if others.is_empty() {
        return (SteeredPort::new(first, 0, None, None), Vec::new());
    }
    let parkers: Vec<Parker> = (0..=others.len()).map(|_| Parker::new()).collect();
    let ring = |parker: &Parker| Ring {
        queue: ArrayQueue::new(ring_frames),
        unparker: parker.unparker().clone(),
    };
    let rings: Arc<[Ring<P::Frame>]> = parkers.iter().map(ring).collect();
    let mesh = |parker, is_fed| {
        Some(Mesh { map: map.clone(), rings: Arc::clone(&rings), parker, is_fed, woken: 0 })
    };
    let mut parkers = parkers.into_iter();
    let front_mesh = parkers.next().and_then(|parker| mesh(parker, false));
    let front = SteeredPort::new(first, 0, front_mesh, relay);
    let sides = others.into_iter().zip(parkers).zip(1..);
    let side = |((inner, parker), lane)| {
        SteeredPort::new(inner, lane, mesh(parker, !others_receive), None)
    };
    (front, sides.map(side).collect())
}

impl<P: Port> SteeredPort<P> {
    fn new(
        inner: P,
        lane: usize,
        mesh: Option<Mesh<P::Frame>>,
        relay: Option<Relay<P::Frame>>,
    ) -> Self {
        Self {
            inner,
            lane,
            mesh,
            relay,
            arrived: Burst::new(),
            leaving: Burst::new(),
            relay_dropped: 0,
            stats: SteerStats::default(),
        }
    }

    /// What steering did.
    #[must_use]
    pub fn steer_counts(&self) -> SteerStats {
        self.stats
    }

    /// Sends what other lanes cannot.
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

impl<F> Mesh<F> {
    fn take_own(&self, lane: usize, rx: &mut Burst<F>) {
        while !rx.is_full() {
            let Some(frame) = self.rings[lane].queue.pop() else { break };
            rx.push(frame);
        }
    }

    fn hand_over(&mut self, lane: usize, frame: F, stats: &mut SteerStats) {
        match self.rings[lane].queue.push(frame) {
            Ok(()) => stats.handed_over += 1,
            Err(_full) => stats.ring_full += 1,
        }
        self.woken |= 1 << lane;
    }

    fn wake(&mut self) {
        while self.woken != 0 {
            self.rings[self.woken.trailing_zeros() as usize].unparker.unpark();
            self.woken &= self.woken - 1;
        }
    }
}

impl<P: Port> Port for SteeredPort<P> {
    type Frame = P::Frame;

    fn rx_burst(&mut self, now: Nanos, rx: &mut Burst<P::Frame>) -> usize {
        self.send_relayed(now);
        let Some(mesh) = &mut self.mesh else { return self.inner.rx_burst(now, rx) };
        let before = rx.len();
        mesh.take_own(self.lane, rx);
        if !mesh.is_fed {
            self.inner.rx_burst(now, &mut self.arrived);
            for frame in self.arrived.drain(..) {
                match mesh.map.lane_of(frame.as_ref()) {
                    // What no longer fits behind frames of the ring comes with the next burst.
                    lane if lane == self.lane && !rx.is_full() => rx.push(frame),
                    lane => mesh.hand_over(lane, frame, &mut self.stats),
                }
            }
            mesh.wake();
        }
        rx.len() - before
    }

    fn tx_burst(&mut self, now: Nanos, tx: &mut Burst<P::Frame>) -> usize {
        self.inner.tx_burst(now, tx)
    }

    fn stats(&self) -> PortStats {
        let stats = self.inner.stats();
        PortStats { tx_errors: stats.tx_errors + self.relay_dropped, ..stats }
    }

    /// A lane that is fed sleeps until it is fed. One that receives as well as is fed can wait for
    /// its port only, so it looks into its ring often.
    fn wait(&mut self, timeout_ns: u64) {
        match &self.mesh {
            None => self.inner.wait(timeout_ns),
            Some(mesh) if mesh.is_fed => {
                mesh.parker.park_timeout(Duration::from_nanos(timeout_ns));
            }
            Some(_) => self.inner.wait(timeout_ns.min(PAUSE_MAX_NS)),
        }
    }

    forward_port!(inner: alloc, copy, recycles, free, info, carried, is_open, waker);
}

impl<P: Port> LanePort for SteeredPort<Wrapped<P>> {
    fn steer_stats(&self) -> SteerStats {
        self.stats
    }

    fn fault_counts(&self) -> Option<[FaultCounts; 2]> {
        self.inner.fault_counts()
    }
}

/// Where a [`RelayPort`] takes its frames from.
pub trait FramePool {
    /// What it holds.
    type Frame: Frame;

    /// Takes an empty frame; `None` when all are in use.
    fn alloc(&self) -> Option<Self::Frame>;
}

impl FramePool for Pool {
    type Frame = PoolFrame;

    fn alloc(&self) -> Option<PoolFrame> {
        Self::alloc(self)
    }
}

/// Sends by handing frames to lane 0: for ports with one queue for all lanes.
#[derive(Debug)]
pub struct RelayPort<A: FramePool> {
    pool: A,
    relay: Relay<A::Frame>,
    info: PortInfo,
    nombuf: u64,
}

impl<A: FramePool> RelayPort<A> {
    /// A port that sends through `relay` and takes its frames from a pool of its own.
    #[must_use]
    pub fn new(pool: A, relay: Relay<A::Frame>, info: PortInfo) -> Self {
        Self { pool, relay, info, nombuf: 0 }
    }
}

impl<A: FramePool> Port for RelayPort<A> {
    type Frame = A::Frame;

    fn rx_burst(&mut self, _now: Nanos, _rx: &mut Burst<A::Frame>) -> usize {
        0
    }

    fn tx_burst(&mut self, _now: Nanos, tx: &mut Burst<A::Frame>) -> usize {
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

    fn alloc(&mut self) -> Option<A::Frame> {
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

/// Longest sleep of a lane that others hand frames to while it waits for its port.
const PAUSE_MAX_NS: u64 = 100_000;

#[cfg(test)]
mod tests;
