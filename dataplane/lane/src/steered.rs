//! Lanes that hand each other frames: each frame is handled by the lane of its source port,
//! whichever queue it came in on.
//!
//! A [`SteeredPort`] is one lane's. What its own port receives it sorts by [`LaneMap`]; what
//! belongs to another lane goes into that lane's ring, all that a burst held for it at once. On a
//! device with one receive queue lane 0 does all of this; on one that spreads frames by a hash of
//! its own every lane does, and it need not be known which hash that is. A lane sends through its
//! own port, which may be a [`RelayPort`]: then lane 0 sends for it.
//!
//! Invariants: rings are bounded and made at the start; a frame for a full ring is freed and
//! counted, as a full receive ring of a NIC would; no frame is handled on a lane that it does not
//! belong to. Nothing blocks and nothing allocates per burst.

use std::sync::Arc;
use std::time::Duration;

use crossbeam_utils::sync::{Parker, Unparker};
use weft_io::pool::{Pool, PoolFrame};
use weft_io::record::Recorded;
use weft_io::{Burst, Frame, Port, PortInfo, PortStats, Waker, forward_port};
use weft_wire::Nanos;

use crate::steer::LaneMap;
use crate::wrap::Wrapped;

mod ring;

pub use ring::Ring;

/// What steering did.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct SteerStats {
    /// Frames handed to another lane.
    pub handed_over: u64,
    /// Frames lost because the other lane's ring was full.
    pub ring_full: u64,
}

/// A lane's port with all that a configuration puts around it, whose frames may be kept.
pub type LanePort<P> = Recorded<SteeredPort<Wrapped<P>>>;

/// Frames from lanes without a port of their own, for lane 0 to send.
pub type Relay<F> = Arc<Ring<F>>;

/// A lane's port.
#[derive(Debug)]
pub struct SteeredPort<P: Port> {
    inner: P,
    lane: usize,
    /// Alone: nothing to sort.
    mesh: Option<Mesh<P::Frame>>,
    relay: Option<Relay<P::Frame>>,
    arrived: Burst<P::Frame>,
    relay_dropped: u64,
    stats: SteerStats,
}

/// What joins a lane to the others.
#[derive(Debug)]
struct Mesh<F> {
    map: LaneMap,
    ways: Arc<[Way<F>]>,
    /// What this burst holds for each lane.
    sorted: Box<[Burst<F>]>,
    /// What was taken out of the ring, and had no room in the last burst.
    early: Burst<F>,
    parker: Parker,
    /// This lane's port receives nothing, so waiting means waiting for the ring.
    is_fed: bool,
}

/// The way to a lane.
#[derive(Debug)]
struct Way<F> {
    ring: Ring<F>,
    unparker: Unparker,
    /// Wakes a lane that waits for its port.
    waker: Option<Waker>,
}

/// Makes the lanes of a node: lane 0 on `first`, each further one on one of `others`, which receive
/// by themselves if `others_receive`. Lane 0 sends what comes through `relay`.
pub fn steer<P, S>(
    mut first: P,
    mut others: Vec<S>,
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
    let waker = |port: &mut S| port.waker().filter(|_| others_receive);
    let wakers = std::iter::once(first.waker()).chain(others.iter_mut().map(waker));
    let way = |(parker, waker): (&Parker, _)| Way {
        ring: Ring::new(ring_frames),
        unparker: parker.unparker().clone(),
        waker,
    };
    let ways: Arc<[Way<P::Frame>]> = parkers.iter().zip(wakers).map(way).collect();
    let mesh = |parker, is_fed| {
        let (map, ways) = (map.clone(), Arc::clone(&ways));
        let sorted = ways.iter().map(|_| Burst::new()).collect();
        Some(Mesh { map, ways, sorted, early: Burst::new(), parker, is_fed })
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
            relay_dropped: 0,
            stats: SteerStats::default(),
        }
    }

    /// The lane's own port.
    #[must_use]
    pub fn inner(&self) -> &P {
        &self.inner
    }

    /// What steering did.
    #[must_use]
    pub fn steer_counts(&self) -> SteerStats {
        self.stats
    }

    /// Sends what other lanes cannot.
    fn send_relayed(&mut self, now: Nanos) {
        let Some(relay) = &self.relay else { return };
        for _ in 0..RELAYED_MAX {
            let Some(mut leaving) = relay.pop() else { return };
            self.inner.tx_burst(now, &mut leaving);
            self.relay_dropped += leaving.len() as u64;
            self.inner.free(&mut leaving);
        }
    }
}

impl<F> Way<F> {
    fn wake(&self) {
        match &self.waker {
            Some(waker) => waker.wake(),
            None => self.unparker.unpark(),
        }
    }
}

impl<F> Mesh<F> {
    fn take_own(&mut self, lane: usize, rx: &mut Burst<F>) {
        while !rx.is_full() {
            if self.early.is_empty() {
                let Some(burst) = self.ways[lane].ring.pop() else { return };
                self.early = burst;
            }
            let count = self.early.len().min(rx.remaining_capacity());
            rx.extend(self.early.drain(..count));
        }
    }

    /// Hands the sorted frames over; those for a full ring are left to be freed.
    fn hand_over(&mut self, stats: &mut SteerStats, free: &mut impl FnMut(&mut Burst<F>)) {
        for (way, frames) in self.ways.iter().zip(&mut self.sorted) {
            if frames.is_empty() {
                continue;
            }
            stats.handed_over += way.ring.push(frames) as u64;
            stats.ring_full += frames.len() as u64;
            free(frames);
            way.wake();
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
                    lane => mesh.sorted[lane].push(frame),
                }
            }
            mesh.hand_over(&mut self.stats, &mut |frames| self.inner.free(frames));
        }
        rx.len() - before
    }

    fn tx_burst(&mut self, now: Nanos, tx: &mut Burst<P::Frame>) -> usize {
        self.inner.tx_burst(now, tx)
    }

    /// What is sorted are datagrams.
    fn join_runs(&mut self, is_on: bool) -> bool {
        self.mesh.is_none() && self.inner.join_runs(is_on)
    }

    fn stats(&self) -> PortStats {
        let stats = self.inner.stats();
        PortStats { tx_errors: stats.tx_errors + self.relay_dropped, ..stats }
    }

    /// A lane that is fed sleeps until it is fed. One that receives as well as is fed waits for its
    /// port; where nothing wakes that, or where it sends for others, it looks into its rings often.
    fn wait(&mut self, timeout_ns: u64) {
        match &self.mesh {
            None => self.inner.wait(timeout_ns),
            Some(mesh) if mesh.is_fed => {
                mesh.parker.park_timeout(Duration::from_nanos(timeout_ns));
            }
            Some(mesh) if mesh.ways[self.lane].waker.is_some() && self.relay.is_none() => {
                self.inner.wait(timeout_ns);
            }
            Some(_) => self.inner.wait(timeout_ns.min(PAUSE_MAX_NS)),
        }
    }

    forward_port!(inner: alloc, copy, recycles, free, info, carried, is_open, waker);
    forward_port!(inner: merges);
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
        self.relay.push(tx)
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

/// Bursts of other lanes that lane 0 sends before it receives again.
const RELAYED_MAX: usize = 4;
/// Longest sleep of a lane that others hand frames to while it waits for its port.
const PAUSE_MAX_NS: u64 = 100_000;

#[cfg(test)]
mod tests;
