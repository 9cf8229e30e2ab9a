//! What a kernel does beside a worker's UDP sockets, on a port without them: it finds the Ethernet
//! address of the next hop, and answers for the worker's own.
//!
//! Frames wait in the caller's burst until the next hop is known, and go to whatever address it
//! said last; it is asked again when nothing comes from anybody. So a box that begins anew with
//! another card is found. What is not UDP is looked at here and goes no further; how much of it is
//! answered a bucket bounds (I8). Where a kernel has the address too, that answers, and this port
//! keeps the kernel's UDP ports from anybody else ([`ReservedPorts`]).
//!
//! Who sends to many ([`HostedPort::to_many`]) has a next hop for each of them. A frame whose next
//! hop is not known is lost there, as kernels lose what waits too long, so that one host that is
//! gone keeps nothing from the others; it is counted, and what sent it sends it again.

use std::fmt;
use std::net::IpAddr;

use weft_engine::send::pacer::TokenBucket;
use weft_io::host::{FRAMES_BURST_MAX, FRAMES_PER_SEC_MAX, HostStack, Neighbour};
use weft_io::udp::ReservedPorts;
use weft_io::{Burst, Frame, Port, PortInfo, PortStats, forward_port};
use weft_wire::{MacAddr, Nanos};

use crate::error::Error;

/// The host that a worker is on its port.
#[derive(Clone, Copy, Debug)]
pub struct HostConfig {
    /// Its address.
    pub ip: IpAddr,
    /// Whose Ethernet address its frames go to: a router's, or the aggregator's.
    pub next_hop: IpAddr,
    /// Largest IP packet.
    pub mtu: u16,
    /// Whether it answers ARP, neighbour discovery and ping, for there is no kernel that does.
    pub answers: bool,
}

/// A worker's port with the host's part done.
#[derive(Debug)]
pub struct HostedPort<P: Port> {
    port: P,
    /// The one next hop, or one for each address that was sent to.
    ways: Vec<Way>,
    many: Option<Many>,
    stack: Option<(HostStack, TokenBucket)>,
    /// Questions and answers that have not left yet.
    waiting: Burst<P::Frame>,
    _reserved: Option<ReservedPorts>,
}

/// How frames come to an address.
#[derive(Debug)]
struct Way {
    /// The address.
    to: IpAddr,
    neighbour: Neighbour,
    /// The next hop's, once it is known.
    mac: Option<MacAddr>,
    asked_at: Option<Nanos>,
    /// When the last datagram came from there.
    heard_at: Nanos,
}

/// What finds next hops for many.
struct Many {
    mac: MacAddr,
    ip: IpAddr,
    next_hop: NextHop,
    /// Frames without a next hop.
    lost: u64,
}

/// The next hop to an address; called once for each.
pub type NextHop = Box<dyn Fn(IpAddr) -> IpAddr + Send>;

impl fmt::Debug for Many {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Many").field("ip", &self.ip).field("lost", &self.lost).finish()
    }
}

impl Way {
    fn new(to: IpAddr, neighbour: Neighbour) -> Self {
        Self { to, neighbour, mac: None, asked_at: None, heard_at: Nanos(0) }
    }

    /// Whether a question is due that was not asked within `period`.
    fn is_due(&self, now: Nanos, period: Nanos) -> bool {
        self.asked_at.is_none_or(|asked_at| now.since(asked_at) >= period)
    }

    /// The next hop's address, and whether to ask for it.
    fn look(&self, now: Nanos) -> (Option<MacAddr>, bool) {
        let asks = match self.mac {
            None => self.is_due(now, ASK_AGAIN),
            Some(_) => now.since(self.heard_at) >= SILENCE && self.is_due(now, SILENCE),
        };
        (self.mac, asks)
    }
}

impl<P: Port> HostedPort<P> {
    /// The port, to adjust it.
    pub fn port_mut(&mut self) -> &mut P {
        &mut self.port
    }

    /// Makes `port` that of a host that sends to one next hop.
    ///
    /// # Errors
    /// [`Error::Config`] when the host's address and the next hop's are of two families.
    pub fn new(port: P, config: &HostConfig) -> Result<Self, Error> {
        let mac = port.info().mac;
        let neighbour = Neighbour::new(mac, config.ip, config.next_hop).ok_or(Error::Config {
            field: "aggregator",
            problem: "and the router must have addresses of the family of `local`",
        })?;
        Ok(Self::with(port, config, vec![Way::new(config.next_hop, neighbour)], None))
    }

    /// Makes `port` that of a host that sends to as many as [`WAYS_MAX`] addresses, each by the
    /// next hop that `next_hop` says; that of `config` is not looked at.
    #[must_use]
    pub fn to_many(port: P, config: &HostConfig, next_hop: NextHop) -> Self {
        let many = Many { mac: port.info().mac, ip: config.ip, next_hop, lost: 0 };
        Self::with(port, config, Vec::with_capacity(WAYS_MAX), Some(many))
    }

    fn with(port: P, config: &HostConfig, ways: Vec<Way>, many: Option<Many>) -> Self {
        let &HostConfig { ip, mtu, answers, .. } = config;
        let mac = port.info().mac;
        let stack = answers.then(|| {
            // It answers who asks, whatever network that is in; it never looks for a route.
            let stack = HostStack::new(ip, 0, mac, mtu, u64::from(mac.0[5]));
            (stack, TokenBucket::new(FRAMES_PER_SEC_MAX, FRAMES_BURST_MAX))
        });
        Self { port, ways, many, stack, waiting: Burst::new_const(), _reserved: None }
    }

    /// Keeps these ports of the kernel's for as long as it lives.
    #[must_use]
    pub fn beside(mut self, reserved: ReservedPorts) -> Self {
        self._reserved = Some(reserved);
        self
    }

    /// Asks for the next hop of a way.
    fn ask(&mut self, now: Nanos, way: usize) {
        if self.waiting.is_full() {
            return;
        }
        let Some(mut frame) = self.port.alloc() else { return };
        let way = &mut self.ways[way];
        if let Some(len) = way.neighbour.write_question(frame.buffer_mut()) {
            frame.set_len(len);
            self.waiting.push(frame);
            way.asked_at = Some(now);
        }
        self.flush(now);
    }

    /// The way to an address among many; none when there are too many.
    fn way_to(&mut self, to: IpAddr) -> Option<usize> {
        if let Some(known) = self.ways.iter().position(|way| way.to == to) {
            return Some(known);
        }
        let many = self.many.as_ref().filter(|_| self.ways.len() < WAYS_MAX)?;
        let neighbour = Neighbour::new(many.mac, many.ip, (many.next_hop)(to))?;
        self.ways.push(Way::new(to, neighbour));
        Some(self.ways.len() - 1)
    }

    /// The Ethernet address that a frame to one of many goes to.
    fn mac_to(&mut self, now: Nanos, frame: &[u8]) -> Option<MacAddr> {
        let way = self.way_to(addresses(frame)?.1)?;
        let (mac, asks) = self.ways[way].look(now);
        if asks {
            self.ask(now, way);
        }
        mac
    }

    fn send_to_many(&mut self, now: Nanos, tx: &mut Burst<P::Frame>) -> usize {
        let mut lost = Burst::new();
        let mut index = 0;
        while index < tx.len() {
            match self.mac_to(now, tx[index].as_ref()) {
                Some(mac) => {
                    set_target(&mut tx[index], mac);
                    index += 1;
                }
                None => lost.push(tx.remove(index)),
            }
        }
        let count = lost.len();
        self.port.free(&mut lost);
        if let Some(many) = &mut self.many {
            many.lost += count as u64;
        }
        count + self.port.tx_burst(now, tx)
    }

    fn flush(&mut self, now: Nanos) {
        if !self.waiting.is_empty() {
            self.port.tx_burst(now, &mut self.waiting);
        }
    }

    /// Takes note of whom a datagram came from; of one next hop the first of a burst is enough.
    fn hear(&mut self, now: Nanos, is_first: bool, frame: &[u8]) {
        if self.many.is_none() {
            if is_first {
                self.ways[0].heard_at = now;
            }
            return;
        }
        let Some((source, _)) = addresses(frame) else { return };
        if let Some(way) = self.ways.iter_mut().find(|way| way.to == source) {
            way.heard_at = now;
        }
    }

    /// Takes in a frame that is no datagram.
    fn take_in(&mut self, now: Nanos, mut frame: P::Frame) {
        for way in &mut self.ways {
            if let Some(mac) = way.neighbour.read_answer(frame.as_ref()) {
                way.mac = Some(mac);
            }
        }
        let Some((stack, bucket)) = &mut self.stack else { return };
        if self.waiting.is_full() || !bucket.take(now, 1) {
            return;
        }
        let Some(answer) = stack.answer(now, frame.as_ref()) else { return };
        if answer.len() <= frame.buffer_mut().len() {
            frame.set_len(answer.len());
            frame.as_mut().copy_from_slice(answer);
            self.waiting.push(frame);
        }
    }
}

impl<P: Port> Port for HostedPort<P> {
    type Frame = P::Frame;

    fn rx_burst(&mut self, now: Nanos, rx: &mut Burst<P::Frame>) -> usize {
        let before = rx.len();
        self.port.rx_burst(now, rx);
        let mut index = before;
        while let Some(frame) = rx.get(index) {
            if is_udp(frame.as_ref()) {
                self.hear(now, index == before, frame.as_ref());
                index += 1;
            } else {
                let frame = rx.remove(index);
                self.take_in(now, frame);
            }
        }
        self.flush(now);
        rx.len() - before
    }

    fn tx_burst(&mut self, now: Nanos, tx: &mut Burst<P::Frame>) -> usize {
        if self.many.is_some() {
            return self.send_to_many(now, tx);
        }
        let (mac, asks) = self.ways[0].look(now);
        if asks {
            self.ask(now, 0);
        }
        let Some(mac) = mac else { return 0 };
        for frame in tx.iter_mut() {
            set_target(frame, mac);
        }
        self.port.tx_burst(now, tx)
    }

    fn stats(&self) -> PortStats {
        let mut stats = self.port.stats();
        stats.tx_errors += self.many.as_ref().map_or(0, |many| many.lost);
        stats
    }

    fn complaint(&self) -> Option<String> {
        let PortInfo { name, .. } = self.port.info();
        let mut silent = self.ways.iter().filter(|way| way.mac.is_none() && way.asked_at.is_some());
        let Some(Way { neighbour, .. }) = silent.next() else { return self.port.complaint() };
        let (next_hop, protocol) = (neighbour.next_hop(), neighbour.protocol());
        let own =
            format!("nobody on {name} answers for {next_hop} ({protocol}): is it on this link?");
        Some(match self.port.complaint() {
            Some(port) => format!("{own} {port}"),
            None => own,
        })
    }

    forward_port!(port: alloc, copy, recycles, merges, free, info, carried, is_open);
    forward_port!(port: wait, waker);
}

fn set_target<F: Frame>(frame: &mut F, mac: MacAddr) {
    if let Some(target) = frame.as_mut().get_mut(..6) {
        target.copy_from_slice(&mac.0);
    }
}

/// Source and destination of an IP packet, as far as one look tells.
fn addresses(frame: &[u8]) -> Option<(IpAddr, IpAddr)> {
    fn at<const LEN: usize>(frame: &[u8], from: usize) -> Option<[u8; LEN]> {
        frame.get(from..from + LEN)?.try_into().ok()
    }
    match frame.get(12..14)? {
        [0x08, 0x00] => Some((at::<4>(frame, 26)?.into(), at::<4>(frame, 30)?.into())),
        [0x86, 0xdd] => Some((at::<16>(frame, 22)?.into(), at::<16>(frame, 38)?.into())),
        _ => None,
    }
}

/// True for a UDP datagram, as far as one look tells.
fn is_udp(frame: &[u8]) -> bool {
    match frame.get(12..14) {
        Some([0x08, 0x00]) => frame.get(23) == Some(&UDP),
        Some([0x86, 0xdd]) => frame.get(20) == Some(&UDP),
        _ => false,
    }
}

/// Most addresses that a host sends to.
pub const WAYS_MAX: usize = 256;
const UDP: u8 = 17;
/// Between two questions for a next hop that is not known.
const ASK_AGAIN: Nanos = Nanos(100_000_000);
/// How long nothing may come before the next hop is asked again.
const SILENCE: Nanos = Nanos(1_000_000_000);

#[cfg(test)]
mod tests;
