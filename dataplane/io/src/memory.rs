//! In-process ports: a cable between two, or a switch among many.
//!
//! [`link`] joins two ports; [`hub`] joins up to [`HUB_PORTS_MAX`] behind a switch that delivers by
//! destination address and floods what it does not know. There is no switch thread: the sender
//! places the frame in the receiver's ring, so ports may live on different threads, or on one for
//! a simulation. Frames move without a copy and return to the pool of the port that made them.
//!
//! Invariants: rings and pools are bounded and made at the start; nothing allocates later. A full
//! ring refuses a unicast frame, which stays with the caller; a flooded frame cannot be refused
//! for one receiver alone, so that copy counts as [`PortStats::rx_missed`] there, as on a switch.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::time::Duration;

use crossbeam_queue::ArrayQueue;
use crossbeam_utils::CachePadded;
use crossbeam_utils::sync::{Parker, Unparker};
use weft_wire::frame::ETHERNET_LEN;
use weft_wire::{MacAddr, Nanos};

use crate::pool::{Pool, PoolFrame};
use crate::port::{BURST_MAX, Burst, Frame, Port, PortInfo, PortStats};

/// Most ports of one hub.
pub const HUB_PORTS_MAX: usize = 256;

/// Joins two ports by a cable: what one sends, the other receives, whatever its addresses.
///
/// `capacity` is the number of frames that each direction's ring holds. Each port's pool has
/// `2 * capacity + 4 * BURST_MAX` buffers of `mtu + 14` bytes.
#[must_use]
pub fn link(capacity: usize, mtu: usize, names: [&str; 2]) -> (MemoryPort, MemoryPort) {
    let mut ports = Fabric::assemble(Layout::Cable, &names, capacity, mtu);
    let (right, left) = (ports.pop(), ports.pop());
    (left.expect("two ports"), right.expect("two ports"))
}

/// Joins ports by a switch, one for each name, in that order. Sizes as in [`link`].
///
/// A port owns the address in its [`PortInfo`], and the last other source address that it sent
/// from: enough for a host that picks its own, and bounded by construction.
///
/// # Panics
/// If there are more than [`HUB_PORTS_MAX`] names.
#[must_use]
pub fn hub(capacity: usize, mtu: usize, names: &[&str]) -> Vec<MemoryPort> {
    assert!(names.len() <= HUB_PORTS_MAX, "a hub has at most {HUB_PORTS_MAX} ports");
    Fabric::assemble(Layout::Switch, names, capacity, mtu)
}

/// One end of a [`link`] or one port of a [`hub`].
#[derive(Debug)]
pub struct MemoryPort {
    fabric: Arc<Fabric>,
    index: usize,
    pool: Pool,
    parker: Parker,
    info: PortInfo,
    stats: PortStats,
}

impl MemoryPort {
    /// Buffers of this port's pool that are not in use.
    #[must_use]
    pub fn free_count(&self) -> usize {
        self.pool.free_count()
    }

    fn inbox(&self) -> &Inbox {
        &self.fabric.inboxes[self.index]
    }

    /// Places `frame` in the ring it belongs to; gives it back when that ring is full.
    fn forward(&mut self, frame: PoolFrame) -> Result<(), PoolFrame> {
        let len = frame.as_ref().len();
        match self.fabric.route(self.index, frame.as_ref()) {
            Route::Malformed => self.stats.tx_errors += 1,
            Route::One(target) => {
                let inbox = &self.fabric.inboxes[target];
                if inbox.gone.load(Ordering::Acquire) {
                    self.stats.tx_errors += 1;
                    return Ok(());
                }
                inbox.deliver(frame)?;
                self.count_sent(len);
            }
            Route::Flood => {
                self.flood(&frame);
                self.count_sent(len);
            }
        }
        Ok(())
    }

    fn flood(&self, frame: &PoolFrame) {
        for (target, inbox) in self.fabric.inboxes.iter().enumerate() {
            if target == self.index || inbox.gone.load(Ordering::Acquire) {
                continue;
            }
            let delivered = self.duplicate(frame).is_some_and(|copy| inbox.deliver(copy).is_ok());
            if !delivered {
                inbox.missed.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    fn duplicate(&self, frame: &PoolFrame) -> Option<PoolFrame> {
        let mut copy = self.pool.alloc()?;
        copy.set_len(frame.as_ref().len());
        copy.as_mut().copy_from_slice(frame.as_ref());
        Some(copy)
    }

    fn count_sent(&mut self, len: usize) {
        self.stats.tx_packets += 1;
        self.stats.tx_bytes += len as u64;
    }
}

impl Port for MemoryPort {
    type Frame = PoolFrame;

    fn rx_burst(&mut self, _now: Nanos, rx: &mut Burst<PoolFrame>) -> usize {
        let mut count = 0;
        while !rx.is_full() {
            let Some(frame) = self.fabric.inboxes[self.index].ring.pop() else { break };
            self.stats.rx_packets += 1;
            self.stats.rx_bytes += frame.as_ref().len() as u64;
            rx.push(frame);
            count += 1;
        }
        count
    }

    fn tx_burst(&mut self, _now: Nanos, tx: &mut Burst<PoolFrame>) -> usize {
        let mut refused = Burst::new();
        let mut sent = 0;
        for frame in tx.drain(..) {
            if !refused.is_empty() {
                refused.push(frame);
            } else if let Err(frame) = self.forward(frame) {
                refused.push(frame);
            } else {
                sent += 1;
            }
        }
        *tx = refused;
        sent
    }

    fn alloc(&mut self) -> Option<PoolFrame> {
        let frame = self.pool.alloc();
        self.stats.rx_nombuf += u64::from(frame.is_none());
        frame
    }

    fn info(&self) -> PortInfo {
        self.info.clone()
    }

    fn stats(&self) -> PortStats {
        PortStats { rx_missed: self.inbox().missed.load(Ordering::Relaxed), ..self.stats }
    }

    fn is_open(&self) -> bool {
        let others_live = self
            .fabric
            .inboxes
            .iter()
            .enumerate()
            .any(|(index, inbox)| index != self.index && !inbox.gone.load(Ordering::Acquire));
        // In this order: what a peer sent before it went is still in the ring.
        others_live || !self.inbox().ring.is_empty()
    }

    fn wait(&mut self, timeout_ns: u64) {
        let inbox = &self.fabric.inboxes[self.index];
        inbox.sleeping.store(true, Ordering::Relaxed);
        // Pairs with the fence in `deliver`: the sender sees the sleeper or we see its frame.
        fence(Ordering::SeqCst);
        if inbox.ring.is_empty() {
            self.parker.park_timeout(Duration::from_nanos(timeout_ns));
        }
        inbox.sleeping.store(false, Ordering::Relaxed);
    }
}

impl Drop for MemoryPort {
    fn drop(&mut self) {
        self.inbox().gone.store(true, Ordering::Release);
        while self.inbox().ring.pop().is_some() {}
        for inbox in &self.fabric.inboxes {
            inbox.wake();
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Layout {
    Cable,
    Switch,
}

enum Route {
    One(usize),
    Flood,
    Malformed,
}

/// What the ports of one link or hub share.
#[derive(Debug)]
struct Fabric {
    layout: Layout,
    inboxes: Box<[CachePadded<Inbox>]>,
}

impl Fabric {
    fn assemble(layout: Layout, names: &[&str], capacity: usize, mtu: usize) -> Vec<MemoryPort> {
        let parkers: Vec<Parker> = names.iter().map(|_| Parker::new()).collect();
        let inboxes = parkers.iter().enumerate().map(|(index, parker)| {
            CachePadded::new(Inbox::new(capacity, port_mac(index), parker.unparker().clone()))
        });
        let fabric = Arc::new(Self { layout, inboxes: inboxes.collect() });
        let port = |(index, (name, parker)): (usize, (&&str, Parker))| MemoryPort {
            fabric: Arc::clone(&fabric),
            index,
            pool: Pool::new(2 * capacity + 4 * BURST_MAX, mtu + ETHERNET_LEN),
            parker,
            info: PortInfo {
                name: (*name).to_owned(),
                driver: "memory".to_owned(),
                mac: port_mac(index),
                mtu,
            },
            stats: PortStats::default(),
        };
        names.iter().zip(parkers).enumerate().map(port).collect()
    }

    /// Decides which ring a frame from port `from` belongs to, and learns its source address.
    fn route(&self, from: usize, frame: &[u8]) -> Route {
        let Some(ethernet) = frame.first_chunk::<ETHERNET_LEN>() else { return Route::Malformed };
        if let Layout::Cable = self.layout {
            return Route::One(1 - from);
        }
        let [t0, t1, t2, t3, t4, t5, s0, s1, s2, s3, s4, s5, ..] = *ethernet;
        let target = mac_word(MacAddr([t0, t1, t2, t3, t4, t5]));
        let source = mac_word(MacAddr([s0, s1, s2, s3, s4, s5]));
        let own = &self.inboxes[from];
        if source != own.mac && source != own.learned.load(Ordering::Relaxed) {
            own.learned.store(source, Ordering::Relaxed);
        }
        let group_bit = t0 & 1 != 0;
        let owner = |inbox: &CachePadded<Inbox>| {
            inbox.mac == target || inbox.learned.load(Ordering::Relaxed) == target
        };
        match self.inboxes.iter().position(owner) {
            _ if group_bit => Route::Flood,
            // A frame to its own sender goes nowhere, as on a switch.
            Some(index) if index == from => Route::Malformed,
            Some(index) => Route::One(index),
            None => Route::Flood,
        }
    }
}

/// What a port has been sent and not yet received.
#[derive(Debug)]
struct Inbox {
    ring: ArrayQueue<PoolFrame>,
    mac: u64,
    /// Last source address other than `mac`; 0 before the first.
    learned: AtomicU64,
    missed: AtomicU64,
    /// The port was dropped.
    gone: AtomicBool,
    sleeping: AtomicBool,
    unparker: Unparker,
}

impl Inbox {
    fn new(capacity: usize, mac: MacAddr, unparker: Unparker) -> Self {
        Self {
            ring: ArrayQueue::new(capacity.max(1)),
            mac: mac_word(mac),
            learned: AtomicU64::new(0),
            missed: AtomicU64::new(0),
            gone: AtomicBool::new(false),
            sleeping: AtomicBool::new(false),
            unparker,
        }
    }

    fn deliver(&self, frame: PoolFrame) -> Result<(), PoolFrame> {
        self.ring.push(frame)?;
        self.wake();
        Ok(())
    }

    fn wake(&self) {
        fence(Ordering::SeqCst);
        if self.sleeping.load(Ordering::Relaxed) && self.sleeping.swap(false, Ordering::Relaxed) {
            self.unparker.unpark();
        }
    }
}

/// The address of a hub's port: locally administered, "WE" and the index.
#[expect(clippy::cast_possible_truncation, reason = "a hub has at most 256 ports")]
const fn port_mac(index: usize) -> MacAddr {
    MacAddr([0x02, b'W', b'E', 0, 0, index as u8])
}

fn mac_word(mac: MacAddr) -> u64 {
    let [a, b, c, d, e, f] = mac.0;
    u64::from_be_bytes([0, 0, a, b, c, d, e, f])
}
