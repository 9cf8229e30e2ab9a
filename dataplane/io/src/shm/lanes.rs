//! A worker's end towards a box of several lanes: rings with each of them.
//!
//! Each lane of such a box has a rendezvous at its own UDP port and lets the worker's lane in, so
//! that the box's threads share what there is to copy, and none reads for another. Frames go by
//! their source port, which is the lane's. A lane whose box has begun anew is found again by
//! itself; one whose ring is full keeps back what comes after it, as a port does.
//!
//! A box that has begun anew may have other lanes read, by its file. So whenever its first lane was
//! found again the port looks how many rendezvous there are, and goes by that.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use weft_wire::Nanos;
use weft_wire::frame::Datagram;

use super::ShmError;
use super::worker::{ShmConfig, ShmPort};
use crate::pool::PoolFrame;
use crate::port::{Burst, Port, PortInfo, PortStats};
use crate::rest::Yielding;
use crate::wake::yield_core;

/// A worker's port over memory that it shares with each lane of the box of its host.
#[derive(Debug)]
pub struct ShmLanes {
    /// One a lane, or one for all.
    ports: Vec<ShmPort>,
    config: ShmConfig,
    sorted: Vec<Burst<PoolFrame>>,
    /// Which lane comes first in the next burst.
    next: usize,
    yielding: Yielding,
}

impl ShmLanes {
    /// Calls each lane of the box; one whose first lane reads for all has one rendezvous.
    ///
    /// # Errors
    /// [`ShmError`], one line that says what to do.
    pub fn open(config: &ShmConfig) -> Result<Self, ShmError> {
        let due = Instant::now() + config.timeout;
        let open = |lane| ShmPort::open_until(&of_lane(config, lane), due);
        let each = || (0..lanes_of(config)).map(open);
        let ports: Vec<ShmPort> = match are_apart(config) {
            true => each().collect(),
            false => match vec![ShmPort::open_until(config, due)?] {
                all if are_apart(config) => {
                    drop(all);
                    each().collect()
                }
                all => Ok(all),
            },
        }?;
        Ok(Self {
            sorted: ports.iter().map(|_| Burst::new_const()).collect(),
            ports,
            config: config.clone(),
            next: 0,
            yielding: Yielding::default(),
        })
    }

    /// The lane that a frame is of: any, if it is of none.
    fn lane_of(&self, frame: &[u8]) -> usize {
        let port = Datagram::find(frame).map_or(0, |it| it.source(frame).port());
        usize::from(port.wrapping_sub(self.config.local.port())).min(self.ports.len() - 1)
    }

    /// The box's first lane was found again: seeks the box as it is now, if its lanes have come to
    /// read for themselves, or no longer do.
    #[cold]
    fn look_again(&mut self) {
        let are_apart = are_apart(&self.config);
        if are_apart == (self.ports.len() > 1) {
            return;
        }
        if are_apart {
            self.ports[0].seek_as(of_lane(&self.config, 0));
            let others = (1..lanes_of(&self.config)).map(|lane| of_lane(&self.config, lane));
            let others: Vec<_> = others.map(|config| self.ports[0].beside(config)).collect();
            self.ports.extend(others);
        } else {
            let (first, others) = self.ports.split_first_mut().expect("there is a lane");
            others.iter().for_each(|other| first.count_in(other));
            first.seek_as(self.config.clone());
            self.ports.truncate(1);
        }
        self.sorted.resize_with(self.ports.len(), Burst::new_const);
    }
}

/// Whether the lanes of a box read for themselves. It opens its first lane's rendezvous last, so
/// that one tells of the others.
fn are_apart(config: &ShmConfig) -> bool {
    config.lanes > 1 && ShmPort::is_offered(above(config.target, 1))
}

fn lanes_of(config: &ShmConfig) -> u16 {
    u16::try_from(config.lanes).unwrap_or(u16::MAX)
}

fn above(mut addr: SocketAddr, lane: u16) -> SocketAddr {
    addr.set_port(addr.port().saturating_add(lane));
    addr
}

fn of_lane(config: &ShmConfig, lane: u16) -> ShmConfig {
    ShmConfig {
        local: above(config.local, lane),
        lanes: 1,
        target: above(config.target, lane),
        ..config.clone()
    }
}

impl Port for ShmLanes {
    type Frame = PoolFrame;

    fn rx_burst(&mut self, now: Nanos, rx: &mut Burst<PoolFrame>) -> usize {
        let was_lost = !self.ports[0].is_joined();
        let (count, lanes) = (self.ports.len(), self.next..self.next + self.ports.len());
        let received = lanes.map(|lane| self.ports[lane % count].rx_burst(now, rx)).sum();
        self.next = (self.next + 1) % count;
        if was_lost && self.ports[0].is_joined() {
            self.look_again();
        }
        if received > 0 {
            self.yielding.note_received();
        }
        received
    }

    fn tx_burst(&mut self, now: Nanos, tx: &mut Burst<PoolFrame>) -> usize {
        if let [port] = &mut self.ports[..] {
            return port.tx_burst(now, tx);
        }
        for frame in tx.drain(..) {
            let lane = self.lane_of(frame.as_ref());
            self.sorted[lane].push(frame);
        }
        let mut sent = 0;
        for (port, frames) in self.ports.iter_mut().zip(&mut self.sorted) {
            if !frames.is_empty() {
                sent += port.tx_burst(now, frames);
                tx.extend(frames.drain(..));
            }
        }
        sent
    }

    fn alloc(&mut self) -> Option<PoolFrame> {
        self.ports.iter_mut().find_map(Port::alloc)
    }

    fn free(&mut self, frames: &mut Burst<PoolFrame>) {
        self.ports[0].free(frames);
    }

    fn info(&self) -> PortInfo {
        self.ports[0].info()
    }

    fn stats(&self) -> PortStats {
        self.ports.iter().fold(PortStats::default(), |sum, port| sum.plus(port.stats()))
    }

    fn multicast_base(&self) -> Option<IpAddr> {
        self.ports[0].multicast_base()
    }

    fn hears(&self, group: IpAddr) -> bool {
        self.ports[0].hears(group)
    }

    fn wait(&mut self, timeout_ns: u64) {
        if yield_core(&mut self.yielding) {
            return;
        }
        super::worker::wait_for_any(&mut self.ports, Duration::from_nanos(timeout_ns));
    }
}
