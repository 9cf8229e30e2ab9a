//! Frames on any Linux network interface, through packet sockets.
//!
//! Receiving uses a TPACKET_V3 ring that the kernel fills block by block; frames are copied out of
//! it into the pool, so a slow engine never holds ring memory. Sending uses `sendmmsg`. A block is
//! handed over when it is full or 1 ms after it was begun, so a lone frame waits up to 1 ms (4 ms
//! on a kernel with 250 ticks): this port is for throughput, not for latency.
//!
//! The frames are what was on the wire: a VLAN tag that the kernel took off is put back, and a UDP
//! checksum that a local sender left to its NIC is completed. Several lcores share an interface by
//! [`Steering`]: the kernel hands each the frames of its UDP source ports.
//!
//! Invariants: no allocation after [`AfPacketPort::open`]; a frame that finds no buffer stays in
//! the ring (`rx_nombuf`), one that finds the ring full is counted by the kernel (`rx_missed`);
//! frames that this host sends on the interface are not received.
//!
//! Needs CAP_NET_RAW in the network namespace of the interface. Source: packet(7) and the kernel's
//! Documentation/networking/packet_mmap.rst.

mod bpf;
mod filter;
mod ring;
mod steer;
mod sys;

use std::io;
use std::time::Duration;

use nix::errno::Errno;
use weft_wire::frame::{ETHERNET_LEN, Encap, Endpoint, Udp};
use weft_wire::{MacAddr, Nanos};

use self::ring::{Captured, Ring};
use self::sys::PacketSocket;
use crate::pool::{Pool, PoolFrame};
use crate::port::{Burst, Frame, Port, PortInfo, PortStats};

const VLAN_TAG_LEN: usize = 4;
const ETHERTYPE_VLAN: u16 = 0x8100;
/// Where the Ethernet addresses end and a VLAN tag would be.
const ADDRESSES_LEN: usize = 12;

/// What an AF_PACKET port is opened with.
#[derive(Clone, Debug)]
pub struct AfPacketConfig {
    /// The interface's name.
    pub interface: String,
    /// Buffers in the pool, each for a frame of the interface's MTU with a VLAN tag.
    pub frame_count: usize,
    /// Bytes of the receive ring, rounded up to whole blocks.
    pub ring_bytes: usize,
    /// Bytes of a block, a power of two from 4096 on; raised to what one frame needs. Small blocks
    /// are handed over sooner.
    pub block_bytes: usize,
    /// Send without the interface's queueing discipline: faster, but then a rate limit set with
    /// `tc` does not apply.
    pub qdisc_bypass: bool,
    /// Receive frames for other Ethernet addresses as well.
    pub promiscuous: bool,
    /// Receive UDP datagrams for these target ports only, and no TCP; `None`: all there is. What
    /// neither is (ARP, ICMP) comes in any case.
    pub listens: Option<Listens>,
    /// Which share of the frames this port gets; `None`: all.
    pub steering: Option<Steering>,
}

impl AfPacketConfig {
    /// The interface with 2048 frames, a ring of 4 MiB in blocks of 16 KiB, past the queueing
    /// discipline, not promiscuous, not shared.
    #[must_use]
    pub fn new(interface: &str) -> Self {
        Self {
            interface: interface.to_owned(),
            frame_count: 2048,
            ring_bytes: 4 << 20,
            block_bytes: 16 << 10,
            qdisc_bypass: true,
            promiscuous: false,
            listens: None,
            steering: None,
        }
    }
}

/// Shares an interface among lcores by UDP source port.
///
/// Ports of one `group` are numbered in the order in which they are opened; number
/// `(source port - first_port) mod shard_count` gets the frame, number 0 what is not UDP. Until
/// all are open, frames go to those that are.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Steering {
    /// Any number that no other group of this network namespace uses.
    pub group: u16,
    /// Ports that share the interface, a power of two.
    pub shard_count: u16,
    /// The source port of lane 0, or 0 for the port number itself modulo `shard_count`.
    pub first_port: u16,
}

/// Consecutive UDP ports.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Listens {
    /// The first.
    pub first_port: u16,
    /// How many.
    pub count: u16,
}

/// Why an AF_PACKET port could not be opened. Each message says what to do.
#[derive(Debug, thiserror::Error)]
pub enum AfPacketError {
    /// The process may not open packet sockets.
    #[error(
        "no right to open a packet socket on {interface}: run as root, or `setcap cap_net_raw+ep` \
         the binary, or use a namespace of your own (`unshare -rn`)"
    )]
    NotPermitted {
        /// The interface.
        interface: String,
    },
    /// The namespace has no such interface.
    #[error("no interface {interface} in this network namespace: `ip link` lists those it has")]
    UnknownInterface {
        /// The name asked for.
        interface: String,
    },
    /// The interface is not up.
    #[error("interface {interface} is down: `ip link set {interface} up`")]
    Down {
        /// The interface.
        interface: String,
    },
    /// The interface carries something else than Ethernet frames.
    #[error("interface {interface} is no Ethernet device (ARP type {arp_type}): use the udp port")]
    NotEthernet {
        /// The interface.
        interface: String,
        /// The kernel's ARPHRD_ number.
        arp_type: u16,
    },
    /// The configuration cannot work, whatever the interface.
    #[error("AF_PACKET port on {interface}: {problem}")]
    Config {
        /// The interface.
        interface: String,
        /// What is wrong, and what to write instead.
        problem: &'static str,
    },
    /// The kernel refused something else.
    #[error("could not {attempt} on interface {interface}")]
    Socket {
        /// The interface.
        interface: String,
        /// What was attempted.
        attempt: &'static str,
        /// The kernel's answer.
        #[source]
        source: io::Error,
    },
}

/// A port over packet sockets.
#[derive(Debug)]
pub struct AfPacketPort {
    ring: Ring,
    rx: PacketSocket,
    tx: PacketSocket,
    pool: Pool,
    info: PortInfo,
    stats: PortStats,
    /// Frames that were longer than the interface's MTU allows.
    oversize: u64,
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
        let problem = check(config);
        if let Some(problem) = problem {
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
        let frame_len_max = link.mtu + ETHERNET_LEN + VLAN_TAG_LEN;
        let ring = Ring::map(&rx, config.ring_bytes, config.block_bytes, frame_len_max)
            .map_err(failed("map a receive ring (lower ring_bytes or block_bytes?)"))?;
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
        let info = PortInfo {
            name: interface(),
            driver: "af_packet".to_owned(),
            mac: link.mac,
            mtu: link.mtu,
        };
        let pool = Pool::new(config.frame_count, frame_len_max);
        Ok(Self { ring, rx, tx, pool, info, stats: PortStats::default(), oversize: 0 })
    }
}

impl Port for AfPacketPort {
    type Frame = PoolFrame;

    fn rx_burst(&mut self, _now: Nanos, rx: &mut Burst<PoolFrame>) -> usize {
        let mut count = 0;
        while !rx.is_full() {
            let Some(captured) = self.ring.peek() else { break };
            let Some(mut frame) = self.pool.alloc() else {
                self.stats.rx_nombuf += 1;
                break;
            };
            if restore(&captured, &mut frame) {
                self.stats.rx_packets += 1;
                self.stats.rx_bytes += frame.as_ref().len() as u64;
                rx.push(frame);
                count += 1;
            } else {
                self.stats.rx_errors += 1;
                let room = frame.buffer_mut().len();
                self.oversize += u64::from(captured.cut || captured.bytes.len() > room);
            }
            self.ring.advance();
        }
        count
    }

    fn tx_burst(&mut self, _now: Nanos, tx: &mut Burst<PoolFrame>) -> usize {
        let offered = tx.len();
        while !tx.is_empty() {
            match self.tx.send(tx) {
                Ok(0) | Err(Errno::EAGAIN | Errno::ENOBUFS | Errno::ENOMEM | Errno::EINTR) => break,
                Ok(sent) => {
                    for frame in tx.drain(..sent) {
                        self.stats.tx_packets += 1;
                        self.stats.tx_bytes += frame.as_ref().len() as u64;
                    }
                }
                // Too long, too short, interface down: this one frame will never leave.
                Err(_) => {
                    self.stats.tx_errors += 1;
                    tx.remove(0);
                }
            }
        }
        offered - tx.len()
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
        PortStats { rx_missed: self.rx.dropped(), ..self.stats }
    }

    fn complaint(&self) -> Option<String> {
        let (Self { oversize, .. }, PortInfo { name, mtu, .. }) = (self, &self.info);
        (*oversize > 0).then(|| {
            format!(
                "{oversize} frames on {name} were longer than its MTU of {mtu}: runs of frames \
                 that nothing has cut, as a veth passes them on; `ethtool -K` its peer `tx off gso \
                 off`, or have who sends do without offload"
            )
        })
    }

    fn wait(&mut self, timeout_ns: u64) {
        if self.ring.peek().is_none() {
            self.rx.wait(Duration::from_nanos(timeout_ns));
        }
    }
}

/// Copies a frame out of the ring as it was on the wire. False when it does not fit or was cut.
fn restore(captured: &Captured<'_>, frame: &mut PoolFrame) -> bool {
    let bytes = captured.bytes;
    let tag_len = if captured.vlan.is_some() { VLAN_TAG_LEN } else { 0 };
    let len = bytes.len() + tag_len;
    if captured.cut || bytes.len() < ETHERNET_LEN || len > frame.buffer_mut().len() {
        return false;
    }
    frame.set_len(len);
    frame.set_arrived_ns(captured.arrived_ns);
    if let Some((tpid, tci)) = captured.vlan {
        let frame = frame.as_mut();
        frame[..ADDRESSES_LEN].copy_from_slice(&bytes[..ADDRESSES_LEN]);
        frame[ADDRESSES_LEN..][..2].copy_from_slice(&tpid.unwrap_or(ETHERTYPE_VLAN).to_be_bytes());
        frame[ADDRESSES_LEN + 2..][..2].copy_from_slice(&tci.to_be_bytes());
        frame[ADDRESSES_LEN + VLAN_TAG_LEN..].copy_from_slice(&bytes[ADDRESSES_LEN..]);
    } else {
        frame.as_mut().copy_from_slice(bytes);
    }
    if captured.checksum_missing {
        complete_checksum(frame.as_mut());
    }
    true
}

/// Writes the UDP checksum that a local sender left to hardware that was not there.
fn complete_checksum(frame: &mut [u8]) {
    let Ok(udp) = Udp::parse(frame) else { return };
    let end = |addr| Endpoint { mac: MacAddr::default(), addr };
    if let Some(encap) = Encap::new(end(udp.source), end(udp.target)) {
        encap.finish(&mut frame[..udp.payload_range().end]);
    }
}

fn check(config: &AfPacketConfig) -> Option<&'static str> {
    if !config.block_bytes.is_power_of_two() || !(4096..=1 << 22).contains(&config.block_bytes) {
        return Some("block_bytes must be a power of two from 4096 to 4194304");
    }
    if config.ring_bytes == 0 || config.ring_bytes > 1 << 30 {
        return Some("ring_bytes must be between 1 and 1 GiB");
    }
    if config.steering.is_some_and(|steering| !steering.shard_count.is_power_of_two()) {
        return Some("shard_count must be a power of two");
    }
    None
}
