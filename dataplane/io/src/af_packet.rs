//! Frames on any Linux network interface, through packet sockets.
//!
//! With [`AfPacketConfig::offload`], a run of frames to one destination, all as long as the first
//! and the last perhaps shorter, crosses the kernel as one packet (`PACKET_VNET_HDR`, generic
//! segmentation): the path through it costs about as much for a run as for a frame. Only what is in
//! one burst makes a run, and a frame that was asked to stay apart ([`Frame::keep_apart`]) is in
//! none. What is received goes from the socket straight into frames of the pool, at once.
//!
//! Otherwise receiving uses a TPACKET_V3 ring that the kernel fills block by block; frames are
//! copied out of it into the pool, so a slow engine never holds ring memory. A block is handed over
//! when it is full or 1 ms after it was begun, so a lone frame waits up to 1 ms (4 ms on a kernel
//! with 250 ticks). Sending uses `sendmmsg` in both cases.
//!
//! The frames are what was on the wire: a VLAN tag that the kernel took off is put back, and a UDP
//! checksum that a local sender left to its NIC is completed. Several lcores share an interface by
//! [`Steering`]: the kernel hands each the frames of its UDP source ports.
//!
//! Invariants: no allocation after [`AfPacketPort::open`]; a frame that finds no buffer stays in
//! the ring or socket (`rx_nombuf`), one that finds that full is counted by the kernel
//! (`rx_missed`, a run once); frames that this host sends on the interface are not received.
//!
//! Needs CAP_NET_RAW in the network namespace of the interface. Source: packet(7) and the kernel's
//! Documentation/networking/packet_mmap.rst.

mod bpf;
mod config;
mod filter;
mod intake;
mod receive;
mod restore;
mod ring;
mod steer;
mod sys;
mod transmit;
mod vnet;

use std::io;
use std::time::Duration;

use weft_wire::Nanos;
use weft_wire::frame::ETHERNET_LEN;

pub use self::config::{AfPacketConfig, AfPacketError, Listens, Steering};
use self::intake::Intake;
use self::receive::Messages;
use self::restore::VLAN_TAG_LEN;
use self::ring::Ring;
use self::sys::PacketSocket;
use self::transmit::Sender;
use crate::pool::PoolFrame;
#[cfg(doc)]
use crate::port::Frame;
use crate::port::{Burst, Port, PortInfo, PortStats};
use crate::rest::Yielding;
use crate::supply::Supply;
use crate::wake::yield_core;

/// A port over packet sockets.
#[derive(Debug)]
pub struct AfPacketPort {
    receiver: Receiver,
    sender: Sender,
    intake: Intake,
    info: PortInfo,
    /// What the interface allows, where the port may allow less.
    link_mtu: usize,
    yielding: Yielding,
    /// When it was used last.
    now: Nanos,
}

/// How frames come in.
#[derive(Debug)]
enum Receiver {
    /// Frame by frame.
    Ring(PacketSocket, Ring),
    /// Runs as one packet each.
    Messages(Box<Messages>),
}

impl AfPacketPort {
    /// Opens the sockets, maps the ring and allocates the frames.
    ///
    /// # Errors
    /// [`AfPacketError`], one line that says what to do.
    pub fn open(config: &AfPacketConfig) -> Result<Self, AfPacketError> {
        let interface = || config.interface.clone();
        let failed = |attempt| {
            move |source: io::Error| match source.kind() {
                io::ErrorKind::PermissionDenied => {
                    AfPacketError::NotPermitted { interface: interface() }
                }
                _ => AfPacketError::Socket { interface: interface(), attempt, source },
            }
        };
        if let Some(problem) = config::check(config) {
            return Err(AfPacketError::Config { interface: interface(), problem });
        }
        let rx = PacketSocket::open().map_err(failed("open a packet socket"))?;
        let tx = PacketSocket::open().map_err(failed("open a packet socket"))?;
        let index = nix::net::if_::if_nametoindex(config.interface.as_str())
            .map_err(|_| AfPacketError::UnknownInterface { interface: interface() })?;
        let link = rx.link(&config.interface).map_err(failed("read address and MTU"))?;
        if !link.up {
            return Err(AfPacketError::Down { interface: interface() });
        }
        if !matches!(link.arp_type, libc::ARPHRD_ETHER | libc::ARPHRD_LOOPBACK) {
            let arp_type = link.arp_type;
            return Err(AfPacketError::NotEthernet { interface: interface(), arp_type });
        }
        let mtu = config.mtu.map_or(link.mtu, |mtu| mtu.min(link.mtu));
        let frame_len_max = mtu + ETHERNET_LEN + VLAN_TAG_LEN;
        // A kernel without headers for runs does without them.
        let offload = config.offload && rx.put_vnet_headers().is_ok();
        let ring = if offload {
            rx.ask_for_more().map_err(failed("have the kernel say more of each packet"))?;
            rx.grow(config.ring_bytes).map_err(failed("size the receive buffer"))?;
            tx.put_vnet_headers().map_err(failed("set PACKET_VNET_HDR"))?;
            None
        } else {
            let ring = Ring::map(&rx, config.ring_bytes, config.block_bytes, frame_len_max)
                .map_err(failed("map a receive ring (lower ring_bytes or block_bytes?)"))?;
            Some(ring)
        };
        if config.promiscuous {
            rx.join_promiscuous(index).map_err(failed("enter promiscuous mode"))?;
        }
        rx.ignore_outgoing().map_err(failed("set PACKET_IGNORE_OUTGOING"))?;
        if let Some(listens) = config.listens {
            rx.filter(listens).map_err(failed("choose what to receive"))?;
        }
        rx.bind(index, true).map_err(failed("bind the receiving socket"))?;
        if let Some(steering) = config.steering {
            rx.steer(steering).map_err(failed("join the fanout group"))?;
        }
        if config.qdisc_bypass {
            tx.bypass_qdisc().map_err(failed("set PACKET_QDISC_BYPASS"))?;
        }
        tx.bind(index, false).map_err(failed("bind the sending socket"))?;
        let info =
            PortInfo { name: interface(), driver: "af_packet".to_owned(), mac: link.mac, mtu };
        let receiver = match ring {
            Some(ring) => Receiver::Ring(rx, ring),
            None => Receiver::Messages(Box::new(Messages::new(rx, frame_len_max))),
        };
        Ok(Self {
            receiver,
            yielding: Yielding::default(),
            now: Nanos(0),
            sender: Sender::new(tx, &config.interface, mtu, offload, config.qdisc_bypass),
            intake: Intake::new(
                Supply::new(config.frame_count, frame_len_max),
                config.ipv4_checksum,
            ),
            info,
            link_mtu: link.mtu,
        })
    }

    /// Has received IPv4 frames whose checksum was left to hardware carry one from now on, or not
    /// ([`AfPacketConfig::ipv4_checksum`]).
    pub fn set_ipv4_checksum(&mut self, has_one: bool) {
        self.intake.ipv4_checksum = has_one;
    }
}

/// Copies frames out of the ring until `rx` is full, or the ring or the supply is empty.
fn receive_from(ring: &mut Ring, intake: &mut Intake, rx: &mut Burst<PoolFrame>) -> usize {
    let mut count = 0;
    while !rx.is_full() {
        let Some(captured) = ring.peek() else { break };
        let Some(mut frame) = intake.alloc() else { break };
        if restore::copy(&captured, &mut frame, intake.ipv4_checksum) {
            count += intake.pass(frame, rx);
        } else {
            intake.refuse(if captured.cut { usize::MAX } else { captured.bytes.len() });
        }
        ring.advance();
    }
    count
}

impl Port for AfPacketPort {
    type Frame = PoolFrame;

    fn rx_burst(&mut self, now: Nanos, rx: &mut Burst<PoolFrame>) -> usize {
        self.now = now;
        let count = match &mut self.receiver {
            Receiver::Ring(_, ring) => receive_from(ring, &mut self.intake, rx),
            Receiver::Messages(messages) => messages.receive(&mut self.intake, rx),
        };
        if count > 0 {
            self.yielding.note_received();
        }
        count
    }

    fn tx_burst(&mut self, now: Nanos, tx: &mut Burst<PoolFrame>) -> usize {
        self.now = now;
        let Intake { supply, stats, .. } = &mut self.intake;
        self.sender.transmit(now, tx, stats, |frame| supply.keep(frame))
    }

    fn free(&mut self, frames: &mut Burst<PoolFrame>) {
        for frame in frames.drain(..) {
            self.intake.supply.keep(frame);
        }
    }

    fn merges(&self) -> bool {
        self.sender.takes_runs(self.now)
    }

    fn alloc(&mut self) -> Option<PoolFrame> {
        self.intake.alloc()
    }

    fn info(&self) -> PortInfo {
        self.info.clone()
    }

    fn stats(&self) -> PortStats {
        let rx_missed = match &self.receiver {
            Receiver::Ring(socket, _) => socket.dropped(),
            Receiver::Messages(messages) => messages.dropped(),
        };
        PortStats { rx_missed, ..self.intake.stats }
    }

    fn carried(&self) -> (u64, u64) {
        (self.intake.stats.rx_bytes, self.intake.stats.tx_bytes)
    }

    fn complaint(&self) -> Option<String> {
        let (Intake { oversize, .. }, PortInfo { name, mtu, .. }) = (&self.intake, &self.info);
        if *oversize > 0 && *mtu < self.link_mtu {
            return Some(format!(
                "{oversize} frames on {name} were longer than this port's MTU of {mtu}, less than \
                 the interface's {}: give both ends one",
                self.link_mtu
            ));
        }
        (*oversize > 0).then(|| {
            format!(
                "{oversize} frames on {name} were longer than its MTU of {mtu}: runs of frames \
                 that nothing has cut, as a veth passes them on; `ethtool -K` its peer `tx off gso \
                 off`, or have who sends do without offload{}",
                if matches!(self.receiver, Receiver::Ring(..)) {
                    ", or this port do with it"
                } else {
                    ""
                }
            )
        })
    }

    fn wait(&mut self, timeout_ns: u64) {
        let timeout = Duration::from_nanos(timeout_ns);
        match &mut self.receiver {
            Receiver::Ring(socket, ring) => {
                if ring.peek().is_none() {
                    socket.wait(timeout);
                }
            }
            Receiver::Messages(_) if yield_core(&mut self.yielding) => {}
            Receiver::Messages(messages) => messages.wait(timeout),
        }
    }
}
