//! The worker's end: a port of its own.
//!
//! Invariants: no allocation and no system call per burst while the box is awake; a full ring
//! leaves the unsent frames with the caller. When the box's process ends the port says nothing
//! wrong and calls again, for the worker's engine knows what to do about a box that is silent, and
//! about one that has begun anew.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use arrayvec::ArrayVec;
use weft_wire::frame::ETHERNET_LEN;
use weft_wire::frame::multicast::group_of;
use weft_wire::{MacAddr, Nanos};

use super::ShmError;
#[cfg(doc)]
use super::ShmHost;
use super::connection::{self, Shared, call, hear, join, sleep};
use super::door;
use super::hello::{Hello, Message, ROWS_MAX};
use super::ring::{Broken, FRAME_LEN_MAX, Taken, Taker};
use crate::pool::PoolFrame;
use crate::port::{BURST_BYTES, Burst, Frame, Port, PortInfo, PortStats};
use crate::rest::Yielding;
use crate::supply::Supply;
use crate::udp::SOCKETS_MAX;
use crate::wake::{self, yield_core};

/// What a worker's end is opened with.
#[derive(Clone, Debug)]
pub struct ShmConfig {
    /// The worker's configured address, that of lane 0, as the box's row has it.
    pub local: SocketAddr,
    /// UDP ports from there on that are this worker's: one for each lane of the box.
    pub lanes: usize,
    /// The box's address.
    pub target: SocketAddr,
    /// Largest IP packet in bytes; the box's must be as large.
    pub mtu: usize,
    /// Buffers in the pool, each of `mtu + 14` bytes.
    pub frame_count: usize,
    /// Rows whose sums for all this worker hears, eight at most: those of its job.
    pub rows: Vec<u16>,
    /// How long the box may take to answer at its rendezvous.
    pub timeout: Duration,
}

impl ShmConfig {
    /// One lane, Ethernet's MTU of 1500, 256 frames, no rows, an answer within 2 s.
    #[must_use]
    pub fn new(local: SocketAddr, target: SocketAddr) -> Self {
        let timeout = Duration::from_secs(2);
        Self { local, lanes: 1, target, mtu: 1500, frame_count: 256, rows: Vec::new(), timeout }
    }

    fn problem(&self) -> Option<&'static str> {
        if self.local.ip().is_unspecified() || self.local.port() == 0 {
            Some("give the worker the address and the port that the box's row has")
        } else if self.local.is_ipv4() != self.target.is_ipv4() {
            Some("worker and box must have addresses of one family")
        } else if !(1..=SOCKETS_MAX).contains(&self.lanes) {
            Some("the number of lanes must be 1 to 64")
        } else if usize::from(self.local.port()) + self.lanes > 1 << 16 {
            Some("its lanes would pass port 65535: choose a lower port")
        } else if !(576..=FRAME_LEN_MAX - ETHERNET_LEN).contains(&self.mtu) {
            Some("the MTU must be from 576 to 65535")
        } else if self.rows.len() > ROWS_MAX {
            Some("a worker hears eight rows at most")
        } else {
            None
        }
    }

    pub(super) fn hello(&self) -> Message {
        let number = |value: usize| u32::try_from(value).unwrap_or(u32::MAX);
        let lanes = u16::try_from(self.lanes).unwrap_or(u16::MAX);
        let rows = self.rows.iter().copied().take(ROWS_MAX).collect();
        Hello { local: self.local, lanes, mtu: number(self.mtu), rows }.emit()
    }
}

/// A worker's port over memory that it shares with the box of its host ([`ShmHost`]).
#[derive(Debug)]
pub struct ShmPort {
    config: ShmConfig,
    state: State,
    supply: Supply,
    info: PortInfo,
    stats: PortStats,
    yielding: Yielding,
    /// Times that the box was found again.
    rejoined: u64,
    /// Where the multicast addresses of the box's rows began when it was found first.
    base: IpAddr,
}

/// How far the way to the box is.
#[derive(Debug)]
enum State {
    /// There is memory to share.
    Joined(Box<Shared>),
    /// The box was called and has not answered.
    Calling(UnixStream, Instant),
    /// There is no box, or none that lets this worker in; it is called again then.
    Apart(Instant),
}

impl ShmPort {
    /// Calls the box and maps the memory that it shares.
    ///
    /// # Errors
    /// [`ShmError`], one line that says what to do.
    pub fn open(config: &ShmConfig) -> Result<Self, ShmError> {
        Self::open_until(config, Instant::now() + config.timeout)
    }

    /// As [`ShmPort::open`], with an answer by `due`.
    pub(super) fn open_until(config: &ShmConfig, due: Instant) -> Result<Self, ShmError> {
        let addr = config.target;
        if let Some(problem) = config.problem() {
            return Err(ShmError::Config { addr: config.local, problem });
        }
        let stream = loop {
            match call(config) {
                // Its queue is full: as good as no answer.
                Err(ShmError::Silent { .. }) if Instant::now() < due => {
                    std::thread::sleep(RETRY_AFTER);
                }
                outcome => break outcome?,
            }
        };
        let shared = loop {
            if let Some(answer) = hear(config, &stream) {
                break join(config, stream, answer?)?;
            }
            let left = due.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(ShmError::Silent { addr });
            }
            sleep(&[&stream], left);
        };
        Ok(Self {
            base: shared.base,
            state: State::Joined(Box::new(shared)),
            supply: Supply::new(config.frame_count, config.mtu + ETHERNET_LEN),
            info: PortInfo {
                name: config.local.to_string(),
                driver: "shm".to_owned(),
                // Whoever takes its frames knows by this that no bit of them can change on the way.
                mac: MacAddr::MEMORY,
                mtu: config.mtu,
            },
            stats: PortStats::default(),
            yielding: Yielding::default(),
            config: config.clone(),
            rejoined: 0,
        })
    }

    /// True when a box of this host waits for workers at `target`, in this network namespace.
    /// Whether it would let one in only [`ShmPort::open`] can tell.
    #[must_use]
    pub fn is_offered(target: SocketAddr) -> bool {
        use io::ErrorKind::{PermissionDenied, WouldBlock};
        let is_there = |error: io::Error| matches!(error.kind(), PermissionDenied | WouldBlock);
        door::call(target).map_or_else(is_there, |_| true)
    }

    /// Times that the box ended and was found again.
    #[must_use]
    pub fn rejoined(&self) -> u64 {
        self.rejoined
    }

    /// True while there is memory to share, also where the box has ended since.
    pub(super) fn is_joined(&self) -> bool {
        matches!(self.state, State::Joined(_))
    }

    /// Lets go of the box and calls it again, with this configuration.
    pub(super) fn seek_as(&mut self, config: ShmConfig) {
        self.state = State::Apart(Instant::now());
        self.config = config;
    }

    /// One that has still to call its box, beside this one and with this configuration.
    pub(super) fn beside(&self, config: ShmConfig) -> Self {
        Self {
            state: State::Apart(Instant::now()),
            supply: Supply::new(config.frame_count, config.mtu + ETHERNET_LEN),
            info: PortInfo { name: config.local.to_string(), ..self.info.clone() },
            stats: PortStats::default(),
            yielding: Yielding::default(),
            config,
            rejoined: 0,
            base: self.base,
        }
    }

    /// Takes over what another one has counted, which ends.
    pub(super) fn count_in(&mut self, other: &Self) {
        self.stats = self.stats.plus(other.stats);
    }

    /// Goes on with finding a box that was lost.
    fn seek(&mut self) {
        let again = |state: &mut State| *state = State::Apart(Instant::now() + RETRY_AFTER);
        match &self.state {
            State::Joined(shared) if shared.is_over => again(&mut self.state),
            State::Joined(_) => {}
            State::Apart(due) if Instant::now() < *due => {}
            State::Apart(_) => match call(&self.config) {
                Ok(stream) => self.state = State::Calling(stream, Instant::now()),
                Err(_) => again(&mut self.state),
            },
            State::Calling(stream, begun) => match hear(&self.config, stream) {
                None if begun.elapsed() < self.config.timeout => {}
                None | Some(Err(_)) => again(&mut self.state),
                Some(Ok(answer)) => {
                    let calling = std::mem::replace(&mut self.state, State::Apart(Instant::now()));
                    let State::Calling(stream, _) = calling else { return };
                    match join(&self.config, stream, answer) {
                        Ok(shared) => {
                            self.rejoined += 1;
                            self.state = State::Joined(Box::new(shared));
                        }
                        Err(_) => again(&mut self.state),
                    }
                }
            },
        }
    }
}

impl Port for ShmPort {
    type Frame = PoolFrame;

    fn rx_burst(&mut self, _now: Nanos, rx: &mut Burst<PoolFrame>) -> usize {
        let State::Joined(shared) = &mut self.state else {
            self.seek();
            return 0;
        };
        let before = rx.len();
        let taken = take_burst(&mut shared.down, &mut self.supply, &mut self.stats, rx);
        if taken == Err(Broken) {
            shared.is_over = true;
        }
        if shared.is_over && rx.len() == before && !rx.is_full() {
            self.seek();
        }
        if rx.len() > before {
            self.yielding.note_received();
        }
        rx.len() - before
    }

    fn tx_burst(&mut self, _now: Nanos, tx: &mut Burst<PoolFrame>) -> usize {
        let offered = tx.len();
        let State::Joined(shared) = &mut self.state else {
            self.stats.tx_errors += offered as u64;
            tx.clear();
            return offered;
        };
        let mut count = 0;
        for frame in tx.iter() {
            let bytes = frame.as_ref();
            if bytes.len() > shared.frame_len_max {
                self.stats.tx_errors += 1;
                count += 1;
                continue;
            }
            match shared.up.put(bytes) {
                Ok(true) => {
                    self.stats.tx_packets += 1;
                    self.stats.tx_bytes += bytes.len() as u64;
                    count += 1;
                }
                Ok(false) => break,
                Err(Broken) => {
                    shared.is_over = true;
                    self.stats.tx_errors += (offered - count) as u64;
                    count = offered;
                    break;
                }
            }
        }
        if shared.up.publish() {
            wake::ring(shared.bell.as_fd());
        }
        tx.drain(..count).for_each(|frame| self.supply.keep(frame));
        count
    }

    fn alloc(&mut self) -> Option<PoolFrame> {
        let frame = self.supply.alloc();
        self.stats.rx_nombuf += u64::from(frame.is_none());
        frame
    }

    fn free(&mut self, frames: &mut Burst<PoolFrame>) {
        frames.drain(..).for_each(|frame| self.supply.keep(frame));
    }

    fn info(&self) -> PortInfo {
        self.info.clone()
    }

    fn stats(&self) -> PortStats {
        self.stats
    }

    fn multicast_base(&self) -> Option<IpAddr> {
        Some(self.base)
    }

    fn hears(&self, group: IpAddr) -> bool {
        self.config.rows.iter().any(|row| group_of(self.base, *row) == Some(group))
    }

    fn wait(&mut self, timeout_ns: u64) {
        let timeout = Duration::from_nanos(timeout_ns);
        match &mut self.state {
            State::Joined(_) if yield_core(&mut self.yielding) => {}
            State::Joined(shared) => shared.wait(timeout),
            State::Calling(stream, _) => {
                sleep(&[stream], timeout.min(RETRY_AFTER));
            }
            State::Apart(_) => std::thread::sleep(timeout.min(RETRY_AFTER)),
        }
    }
}

/// Sleeps until a box has sent something to one of these ports, or has ended.
pub(super) fn wait_for_any(ports: &mut [ShmPort], timeout: Duration) {
    let count = ports.len();
    let states = ports.iter_mut().map(|port| &mut port.state);
    let joined = states.filter_map(|state| match state {
        State::Joined(shared) => Some(&mut **shared),
        State::Calling(..) | State::Apart(_) => None,
    });
    let mut joined: ArrayVec<&mut Shared, SOCKETS_MAX> = joined.collect();
    // Those that seek their box do so when they are asked for frames.
    let are_all = joined.len() == count;
    let timeout = if are_all { timeout } else { timeout.min(RETRY_AFTER) };
    connection::wait_for_any(&mut joined, timeout);
}

/// Takes frames out until the burst is full, or as long as it may be, or nothing is left.
fn take_burst(
    ring: &mut Taker,
    supply: &mut Supply,
    stats: &mut PortStats,
    rx: &mut Burst<PoolFrame>,
) -> Result<(), Broken> {
    let enough_bytes = stats.rx_bytes + BURST_BYTES;
    while !rx.is_full() && stats.rx_bytes < enough_bytes && ring.has_frames()? {
        let Some(mut frame) = supply.alloc() else {
            stats.rx_nombuf += 1;
            break;
        };
        match ring.take(frame.buffer_mut())? {
            Taken::Frame(len) => {
                frame.set_len(len);
                stats.rx_packets += 1;
                stats.rx_bytes += len as u64;
                rx.push(frame);
            }
            Taken::Refused => {
                stats.rx_errors += 1;
                supply.keep(frame);
            }
            Taken::Empty => break,
        }
    }
    ring.release();
    Ok(())
}

/// How long a worker without its box waits before it calls again.
const RETRY_AFTER: Duration = Duration::from_millis(5);
