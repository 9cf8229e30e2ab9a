//! The box's end: a port around another, which serves workers over shared memory beside those that
//! the other reaches.
//!
//! Frames are copied into buffers of the inner port, and frames for an address that a worker has
//! claimed go to its ring, all others to the inner port. Invariants: neither side can starve the
//! other, for they take turns to come first; one worker's full ring holds up nobody else: its frame
//! is lost, as at a switch, and counted; only what came through memory has its source address
//! ([`MacAddr::MEMORY`]).

mod send;

use std::net::{IpAddr, SocketAddr};
use std::ops::Range;

use weft_wire::frame::{Datagram, ETHERNET_LEN};
use weft_wire::{MacAddr, Nanos};

use super::cast::CastWriter;
use super::entrance::{Entrance, Link};
use super::ring::{Broken, Taken};
use super::{LINKS_MAX, LOOK_NS, ShmCounts, ShmError, count};
use crate::port::{BURST_BYTES, Burst, Frame, Port, PortInfo, PortStats};
use crate::rest::Yielding;
use crate::wake::{Waker, yield_core};

/// A port with shared memory beside it.
#[derive(Debug)]
pub struct ShmHost<P: Port> {
    inner: P,
    /// None: it is the inner port alone.
    entrance: Option<Entrance>,
    /// What goes to all workers, and whether the inner port's are to hear it, too.
    casts: Option<CastWriter>,
    has_inner_casts: bool,
    links: Vec<Link>,
    counts: ShmCounts,
    stats: PortStats,
    info: PortInfo,
    /// Received frames may become answers.
    is_recycling: bool,
    /// Ends waits of a port that has no waker.
    waker: Option<Waker>,
    /// Bursts since the inner port last had something while the links had.
    inner_silent: u32,
    /// Who comes first in the next burst.
    is_inner_first: bool,
    /// The link that comes first in the next burst.
    next_link: usize,
    look_due: Nanos,
    looks: u64,
    yielding: Yielding,
}

impl<P: Port> ShmHost<P> {
    /// Opens the rendezvous of a box, or of one of its lanes, at `addr`, whose other workers come
    /// through `inner`. Multicast addresses of its rows are those that stay in memory
    /// ([`memory_base`]).
    ///
    /// [`memory_base`]: weft_wire::frame::multicast::memory_base
    ///
    /// # Errors
    /// [`ShmError`], one line that says what to do.
    pub fn open(inner: P, addr: SocketAddr) -> Result<Self, ShmError> {
        Self::open_for(inner, addr, &[])
    }

    /// As [`ShmHost::open`], also for workers of these users.
    ///
    /// # Errors
    /// As [`ShmHost::open`].
    pub fn open_for(inner: P, addr: SocketAddr, users: &[u32]) -> Result<Self, ShmError> {
        let mut host = Self::closed(inner);
        let own = host.inner.waker();
        let has_own = own.is_some();
        let waker = own.or_else(Waker::new).ok_or_else(|| ShmError::System {
            addr,
            attempt: "make an eventfd",
            source: std::io::ErrorKind::Other.into(),
        })?;
        let (mtu, counts) = (host.info.mtu, host.counts.clone());
        host.waker = (!has_own).then(|| waker.clone());
        let (entrance, casts) = Entrance::open(addr, mtu, users, waker, counts)?;
        (host.entrance, host.casts) = (Some(entrance), Some(casts));
        host.info.driver.push_str("+shm");
        host.links.reserve(LINKS_MAX);
        Ok(host)
    }

    /// The inner port alone, without a rendezvous.
    #[must_use]
    pub fn closed(inner: P) -> Self {
        Self {
            info: inner.info(),
            inner,
            entrance: None,
            casts: None,
            has_inner_casts: false,
            links: Vec::new(),
            counts: ShmCounts::default(),
            stats: PortStats::default(),
            is_recycling: false,
            waker: None,
            inner_silent: 0,
            is_inner_first: false,
            next_link: 0,
            look_due: Nanos(0),
            looks: 0,
            yielding: Yielding::default(),
        }
    }

    /// Lets received frames become answers ([`Port::recycles`]) while there are workers: for an
    /// inner port whose frames are all of its one pool, and whose arrival times nobody wants.
    #[must_use]
    pub fn recycling(mut self, is_recycling: bool) -> Self {
        self.is_recycling = is_recycling;
        self
    }

    /// Multicast addresses of rows begin with `base`, if there is one, and what goes there also
    /// leaves by the inner port.
    #[must_use]
    pub fn with_multicast(mut self, base: Option<IpAddr>) -> Self {
        if let (Some(base), Some(entrance)) = (base, &mut self.entrance) {
            entrance.base = base;
            self.has_inner_casts = true;
        }
        self
    }

    /// What it has seen, readable from anywhere.
    #[must_use]
    pub fn counts(&self) -> ShmCounts {
        self.counts.clone()
    }

    /// The port that it is around.
    #[must_use]
    pub fn inner(&self) -> &P {
        &self.inner
    }

    /// Lets workers in, and lets go of those that have ended.
    fn look(&mut self, now: Nanos) {
        let Some(entrance) = &mut self.entrance else {
            self.look_due = Nanos::MAX;
            return;
        };
        self.look_due = now.saturating_add(Nanos(LOOK_NS));
        entrance.look(now, &mut self.links);
        self.looks += 1;
        if self.looks.is_multiple_of(LOOKS_PER_ROUND) {
            let before = self.links.len();
            // What they sent before they ended is still taken.
            self.links.retain_mut(|link| link.up.has_frames() == Ok(true) || !link.is_over());
            let ended = (before - self.links.len()) as u64;
            self.counts.0.ended.fetch_add(ended, std::sync::atomic::Ordering::Relaxed);
        }
        self.note_links();
    }

    fn note_links(&self) {
        let links = self.links.len() as u64;
        self.counts.0.links.store(links, std::sync::atomic::Ordering::Relaxed);
    }

    /// Gives up a connection whose memory makes no sense.
    fn give_up(&mut self, index: usize) {
        self.links.swap_remove(index);
        count(&self.counts.0.broken);
        self.note_links();
    }

    /// Takes frames of all links, one of each in turn: those for one sum then follow each other,
    /// and are still in cache when they are added.
    fn receive(&mut self, rx: &mut Burst<P::Frame>) -> usize {
        let before = rx.len();
        let mut silent = 0;
        let enough_bytes = self.stats.rx_bytes + BURST_BYTES;
        while silent < self.links.len() && !rx.is_full() && self.stats.rx_bytes < enough_bytes {
            let index = self.next_link % self.links.len();
            self.next_link = index + 1;
            match self.receive_from(index, rx) {
                Ok(true) => silent = 0,
                Ok(false) => silent += 1,
                Err(Broken) => self.give_up(index),
            }
        }
        for link in &mut self.links {
            link.up.release();
        }
        rx.len() - before
    }

    /// Takes frames of the inner port, but for those that claim to have come through memory: on a
    /// wire anybody may, and would be believed to need no CRC.
    fn receive_inner(&mut self, now: Nanos, rx: &mut Burst<P::Frame>) -> usize {
        let before = rx.len();
        self.inner.rx_burst(now, rx);
        if rx[before..].iter().any(claims_memory) {
            self.refuse_claims(before, rx);
        }
        rx.len() - before
    }

    #[cold]
    fn refuse_claims(&mut self, before: usize, rx: &mut Burst<P::Frame>) {
        let mut refused = Burst::new();
        for index in (before..rx.len()).rev() {
            if claims_memory(&rx[index]) {
                refused.push(rx.remove(index));
            }
        }
        self.stats.rx_errors += refused.len() as u64;
        self.inner.free(&mut refused);
    }

    /// Takes a frame of a link; false when nothing was there, or no buffer for it.
    fn receive_from(&mut self, index: usize, rx: &mut Burst<P::Frame>) -> Result<bool, Broken> {
        let link = &mut self.links[index];
        if !link.up.has_frames()? {
            return Ok(false);
        }
        // The inner port counts that it has none.
        let Some(mut frame) = self.inner.alloc() else { return Ok(false) };
        let Taken::Frame(len) = link.up.take(frame.buffer_mut())? else {
            count(&self.counts.0.bad_length);
            self.stats.rx_errors += 1;
            return Ok(true);
        };
        frame.set_len(len);
        let bytes = frame.as_ref();
        if Datagram::find(bytes).is_ok_and(|it| link.owns(it.source(bytes))) {
            self.stats.rx_packets += 1;
            self.stats.rx_bytes += len as u64;
            rx.push(frame);
        } else {
            count(&self.counts.0.bad_source);
            self.stats.rx_errors += 1;
        }
        Ok(true)
    }

    /// Wakes the workers that have something to do.
    fn wake_owed(&mut self) {
        for link in &mut self.links {
            link.wake();
        }
    }
}

impl<P: Port> Port for ShmHost<P> {
    type Frame = P::Frame;

    fn rx_burst(&mut self, now: Nanos, rx: &mut Burst<P::Frame>) -> usize {
        if now >= self.look_due {
            self.look(now);
        }
        if self.entrance.is_none() {
            return self.inner.rx_burst(now, rx);
        }
        if self.links.is_empty() {
            return self.receive_inner(now, rx);
        }
        // Each time while the inner port has frames, and else now and then, for asking it may be a
        // system call.
        let is_due = self.inner_silent.is_multiple_of(INNER_EVERY);
        self.is_inner_first ^= is_due;
        let mut of_inner = 0;
        if is_due && self.is_inner_first {
            of_inner = self.receive_inner(now, rx);
        }
        let of_links = self.receive(rx);
        let is_left_out = is_due && !self.is_inner_first && rx.is_full();
        if is_due && !self.is_inner_first && !is_left_out {
            of_inner = self.receive_inner(now, rx);
        }
        if of_links == 0 {
            self.wake_owed();
        } else {
            self.yielding.note_received();
        }
        if of_inner > 0 || of_links == 0 {
            self.inner_silent = 0;
        } else if !is_left_out {
            self.inner_silent = self.inner_silent.wrapping_add(1);
        }
        of_inner + of_links
    }

    fn tx_burst(&mut self, now: Nanos, tx: &mut Burst<P::Frame>) -> usize {
        // What is for memory alone stays there, also after its last worker has left.
        let is_inners = self.links.is_empty() && (self.casts.is_none() || self.has_inner_casts);
        let sent = if is_inners { 0 } else { self.send_shared(tx) };
        if tx.is_empty() {
            return sent;
        }
        sent + self.inner.tx_burst(now, tx)
    }

    fn alloc(&mut self) -> Option<P::Frame> {
        self.inner.alloc()
    }

    fn copy(&mut self, frame: &P::Frame, header_len: usize) -> Option<P::Frame> {
        if self.links.is_empty() {
            return self.inner.copy(frame, header_len);
        }
        // What goes into a ring has to be in one piece.
        let mut copy = self.alloc()?;
        let bytes = frame.as_ref();
        copy.set_len(bytes.len());
        copy.as_mut().copy_from_slice(bytes);
        Some(copy)
    }

    fn recycles(&self, frame_len: usize) -> bool {
        let is_ours = self.is_recycling && !self.links.is_empty();
        (is_ours && frame_len <= self.info.mtu + ETHERNET_LEN) || self.inner.recycles(frame_len)
    }

    fn join_runs(&mut self, is_on: bool) -> bool {
        self.inner.join_runs(is_on)
    }

    fn merges(&self) -> bool {
        self.inner.merges()
    }

    fn free(&mut self, frames: &mut Burst<P::Frame>) {
        self.inner.free(frames);
    }

    fn info(&self) -> PortInfo {
        self.info.clone()
    }

    fn stats(&self) -> PortStats {
        self.stats.plus(self.inner.stats())
    }

    fn carried(&self) -> (u64, u64) {
        let (rx, tx) = self.inner.carried();
        (rx + self.stats.rx_bytes, tx + self.stats.tx_bytes)
    }

    fn is_open(&self) -> bool {
        self.inner.is_open()
    }

    /// Sleeps with the inner port, which a worker's frame wakes if that port can be woken. If it
    /// cannot, a frame waits for the end of the pause, so pauses are short.
    fn wait(&mut self, timeout_ns: u64) {
        self.wake_owed();
        // Workers need not wake a lane that only lets them run.
        if !self.links.is_empty() && yield_core(&mut self.yielding) {
            return;
        }
        let longest = if self.waker.is_some() { PAUSE_NS_MAX } else { timeout_ns };
        if self.links.iter_mut().all(|link| link.up.fall_asleep()) {
            self.inner.wait(timeout_ns.min(longest));
        }
        for link in &mut self.links {
            link.up.wake_up();
        }
    }

    fn waker(&mut self) -> Option<Waker> {
        self.inner.waker()
    }
}

/// True for a frame from the address of members in memory.
fn claims_memory(frame: &impl Frame) -> bool {
    frame.as_ref().get(SOURCE_MAC) == Some(&MacAddr::MEMORY.0[..])
}

/// Where the source stands in an Ethernet header.
const SOURCE_MAC: Range<usize> = 6..12;
/// Looks for workers that come from one look to the next for those that have ended.
const LOOKS_PER_ROUND: u64 = 16;
/// Bursts of the links from one look at a silent inner port to the next.
const INNER_EVERY: u32 = 16;
/// Longest sleep with a port that nothing wakes.
const PAUSE_NS_MAX: u64 = 50_000;

const _: () = assert!(LINKS_MAX <= u64::BITS as usize, "a bit for each link");
