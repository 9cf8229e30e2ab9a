//! What a kernel does beside a worker's UDP sockets, on a port without them: it finds the Ethernet
//! address of the next hop, and answers for the worker's own.
//!
//! Frames wait in the caller's burst until the next hop is known, and go to whatever address it
//! said last; it is asked again when nothing comes from anybody. So a box that begins anew with
//! another card is found. What is not UDP is looked at here and goes no further; how much of it is
//! answered a bucket bounds (I8). Where a kernel has the address too, that answers, and this port
//! keeps the kernel's UDP ports from anybody else ([`ReservedPorts`]).

use std::net::IpAddr;

use weft_engine::send::pacer::TokenBucket;
use weft_io::host::{FRAMES_BURST_MAX, FRAMES_PER_SEC_MAX, HostStack, Neighbour};
use weft_io::udp::ReservedPorts;
use weft_io::{Burst, Frame, Port, PortInfo, forward_port};
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
    neighbour: Neighbour,
    /// The next hop's, once it is known.
    mac: Option<MacAddr>,
    asked_at: Option<Nanos>,
    /// When the last datagram came.
    heard_at: Nanos,
    stack: Option<(HostStack, TokenBucket)>,
    /// Questions and answers that have not left yet.
    waiting: Burst<P::Frame>,
    _reserved: Option<ReservedPorts>,
}

impl<P: Port> HostedPort<P> {
    /// The port, to adjust it.
    pub fn port_mut(&mut self) -> &mut P {
        &mut self.port
    }

    /// Makes `port` that of a host.
    ///
    /// # Errors
    /// [`Error::Config`] when the host's address and the next hop's are of two families.
    pub fn new(port: P, config: &HostConfig) -> Result<Self, Error> {
        let &HostConfig { ip, next_hop, mtu, answers } = config;
        let mac = port.info().mac;
        let neighbour = Neighbour::new(mac, ip, next_hop).ok_or(Error::Config {
            field: "aggregator",
            problem: "and the router must have addresses of the family of `local`",
        })?;
        let stack = answers.then(|| {
            // It answers who asks, whatever network that is in; it never looks for a route.
            let stack = HostStack::new(ip, 0, mac, mtu, u64::from(mac.0[5]));
            (stack, TokenBucket::new(FRAMES_PER_SEC_MAX, FRAMES_BURST_MAX))
        });
        let (asked_at, heard_at, waiting) = (None, Nanos(0), Burst::new_const());
        Ok(Self { port, neighbour, mac: None, asked_at, heard_at, stack, waiting, _reserved: None })
    }

    /// Keeps these ports of the kernel's for as long as it lives.
    #[must_use]
    pub fn beside(mut self, reserved: ReservedPorts) -> Self {
        self._reserved = Some(reserved);
        self
    }

    /// Asks for the next hop, unless that was done within `period`.
    fn ask(&mut self, now: Nanos, period: Nanos) {
        if self.asked_at.is_some_and(|asked_at| now.since(asked_at) < period)
            || self.waiting.is_full()
        {
            return;
        }
        let Some(mut frame) = self.port.alloc() else { return };
        if let Some(len) = self.neighbour.write_question(frame.buffer_mut()) {
            frame.set_len(len);
            self.waiting.push(frame);
            self.asked_at = Some(now);
        }
        self.flush(now);
    }

    fn flush(&mut self, now: Nanos) {
        if !self.waiting.is_empty() {
            self.port.tx_burst(now, &mut self.waiting);
        }
    }

    /// Takes in a frame that is no datagram.
    fn take_in(&mut self, now: Nanos, mut frame: P::Frame) {
        if let Some(mac) = self.neighbour.read_answer(frame.as_ref()) {
            self.mac = Some(mac);
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
                index += 1;
            } else {
                let frame = rx.remove(index);
                self.take_in(now, frame);
            }
        }
        if rx.len() > before {
            self.heard_at = now;
        }
        self.flush(now);
        rx.len() - before
    }

    fn tx_burst(&mut self, now: Nanos, tx: &mut Burst<P::Frame>) -> usize {
        let Some(mac) = self.mac else {
            self.ask(now, ASK_AGAIN);
            return 0;
        };
        if now.since(self.heard_at) >= SILENCE {
            self.ask(now, SILENCE);
        }
        for frame in tx.iter_mut() {
            if let Some(target) = frame.as_mut().get_mut(..6) {
                target.copy_from_slice(&mac.0);
            }
        }
        self.port.tx_burst(now, tx)
    }

    fn complaint(&self) -> Option<String> {
        let PortInfo { name, .. } = self.port.info();
        if self.mac.is_some() || self.asked_at.is_none() {
            return self.port.complaint();
        }
        let (next_hop, protocol) = (self.neighbour.next_hop(), self.neighbour.protocol());
        Some(format!("nobody on {name} answers for {next_hop} ({protocol}): is it on this link?"))
    }

    forward_port!(port: alloc, copy, recycles, merges, free, info, stats, carried, is_open);
    forward_port!(port: wait, waker);
}

/// True for a UDP datagram, as far as one look tells.
fn is_udp(frame: &[u8]) -> bool {
    match frame.get(12..14) {
        Some([0x08, 0x00]) => frame.get(23) == Some(&UDP),
        Some([0x86, 0xdd]) => frame.get(20) == Some(&UDP),
        _ => false,
    }
}

const UDP: u8 = 17;
/// Between two questions for a next hop that is not known.
const ASK_AGAIN: Nanos = Nanos(100_000_000);
/// How long nothing may come before the next hop is asked again.
const SILENCE: Nanos = Nanos(1_000_000_000);

#[cfg(test)]
mod tests;
