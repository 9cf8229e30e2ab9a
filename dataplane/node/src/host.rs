//! The host side of a port that has no kernel behind it: ARP, NDP and ping, through smoltcp.
//!
//! Gets the frames that are not Weft's, one at a time, and may answer each with one frame, in the
//! buffer that it came in. A token bucket bounds how many it looks at, so that a flood of pings
//! costs the lane little (I8). No state grows with traffic: the neighbour table is of fixed size.

use smoltcp::iface::{Config, Interface, SocketSet};
use smoltcp::phy::{Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::time::Instant;
use smoltcp::wire::{EthernetAddress, HardwareAddress, IpAddress, IpCidr};
use weft_config::node::HostAddr;
use weft_engine::send::pacer::TokenBucket;
use weft_io::{Frame, Port};
use weft_lane::HostSide;
use weft_wire::frame::ETHERNET_LEN;
use weft_wire::{MacAddr, Nanos};

/// What the host side did.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, serde::Serialize)]
pub struct HostStats {
    /// Frames that were not Weft's.
    pub frames: u64,
    /// Of these, answered.
    pub answered: u64,
    /// Of these, dropped unseen because too many came.
    pub over_rate: u64,
}

/// The host side, or silence where a kernel answers.
#[derive(Default)]
pub struct Host {
    stack: Option<Stack>,
    stats: HostStats,
}

impl Host {
    /// Answers nothing and counts: for ports behind a kernel.
    #[must_use]
    pub fn silent() -> Self {
        Self::default()
    }

    /// Answers for `addr` at `mac`. `seed` is smoltcp's.
    #[must_use]
    pub fn answering(addr: HostAddr, mac: MacAddr, mtu: u16, seed: u64) -> Self {
        Self { stack: Some(Stack::new(addr, mac, mtu, seed)), stats: HostStats::default() }
    }

    /// True when it answers anything.
    #[must_use]
    pub fn is_answering(&self) -> bool {
        self.stack.is_some()
    }

    /// What it did.
    #[must_use]
    pub fn stats(&self) -> HostStats {
        self.stats
    }
}

impl std::fmt::Debug for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Host").field("stats", &self.stats).finish_non_exhaustive()
    }
}

impl<P: Port> HostSide<P> for Host {
    fn handle(&mut self, now: Nanos, _port: &mut P, mut frame: P::Frame) -> Option<P::Frame> {
        self.stats.frames += 1;
        let stack = self.stack.as_mut()?;
        if !stack.bucket.take(now, 1) {
            self.stats.over_rate += 1;
            return None;
        }
        let answer = stack.answer(now, frame.as_ref())?;
        if answer.len() > frame.buffer_mut().len() {
            return None;
        }
        frame.set_len(answer.len());
        frame.as_mut().copy_from_slice(answer);
        self.stats.answered += 1;
        Some(frame)
    }
}

struct Stack {
    interface: Interface,
    slots: Slots,
    /// A frame whose sender's Ethernet address was asked for.
    waiting: Buffer,
    sockets: SocketSet<'static>,
    bucket: TokenBucket,
}

impl Stack {
    fn new(addr: HostAddr, mac: MacAddr, mtu: u16, seed: u64) -> Self {
        let mut config = Config::new(HardwareAddress::Ethernet(EthernetAddress(mac.0)));
        config.random_seed = seed;
        let frame_len_max = usize::from(mtu) + ETHERNET_LEN;
        let mut slots = Slots {
            incoming: Buffer::new(frame_len_max),
            outgoing: Buffer::new(frame_len_max),
            frame_len_max,
        };
        let mut interface = Interface::new(config, &mut slots, Instant::ZERO);
        let cidr = IpCidr::new(IpAddress::from(addr.ip), addr.prefix_len);
        interface.update_ip_addrs(|addrs| addrs.push(cidr).expect("there is room for one address"));
        Self {
            interface,
            slots,
            waiting: Buffer::new(frame_len_max),
            sockets: SocketSet::new(Vec::new()),
            bucket: TokenBucket::new(FRAMES_PER_SEC_MAX, FRAMES_BURST_MAX),
        }
    }

    /// The frame that answers `frame`, if one does.
    ///
    /// To a sender that it does not know the stack sends a question instead of its answer. What
    /// was asked then waits, and is answered when the sender has answered; the last one wins.
    fn answer(&mut self, now: Nanos, frame: &[u8]) -> Option<&[u8]> {
        let now = Instant::from_micros(i64::try_from(now.0 / 1000).unwrap_or(i64::MAX));
        self.slots.incoming.fill(frame)?;
        self.turn(now);
        match &self.slots.outgoing {
            Buffer { len: Some(len), bytes } if is_question(&bytes[..*len]) => {
                self.waiting.fill(frame);
            }
            Buffer { len: None, .. } if is_neighbour_talk(frame) => {
                if let Some(len) = self.waiting.len.take() {
                    self.slots.incoming.fill(&self.waiting.bytes[..len])?;
                    self.turn(now);
                }
            }
            Buffer { .. } => {}
        }
        let len = self.slots.outgoing.len?;
        Some(&self.slots.outgoing.bytes[..len])
    }

    /// Lets the stack take in what lies in the incoming slot.
    fn turn(&mut self, now: Instant) {
        self.slots.outgoing.len = None;
        self.interface.poll(now, &mut self.slots, &mut self.sockets);
        self.slots.incoming.len = None;
    }
}

/// True for ARP and for ICMPv6, which neighbour discovery is a part of.
fn is_neighbour_talk(frame: &[u8]) -> bool {
    match frame.get(12..14) {
        Some([0x08, 0x06]) => true,
        Some([0x86, 0xdd]) => frame.get(20) == Some(&ICMPV6),
        _ => false,
    }
}

/// True for an ARP request and for a neighbour solicitation.
fn is_question(frame: &[u8]) -> bool {
    let is_arp = frame.get(12..14) == Some(&[0x08, 0x06]);
    let asks = if is_arp {
        frame.get(20..22) == Some(&[0, ARP_REQUEST])
    } else {
        frame.get(54) == Some(&NEIGHBOUR_SOLICITATION)
    };
    is_neighbour_talk(frame) && asks
}

/// A device of one frame each way.
struct Slots {
    incoming: Buffer,
    outgoing: Buffer,
    frame_len_max: usize,
}

struct Buffer {
    bytes: Box<[u8]>,
    len: Option<usize>,
}

impl Buffer {
    fn new(len_max: usize) -> Self {
        Self { bytes: vec![0; len_max].into_boxed_slice(), len: None }
    }

    fn fill(&mut self, frame: &[u8]) -> Option<()> {
        self.bytes.get_mut(..frame.len())?.copy_from_slice(frame);
        self.len = Some(frame.len());
        Some(())
    }
}

impl Device for Slots {
    type RxToken<'a> = Incoming<'a>;
    type TxToken<'a> = Outgoing<'a>;

    fn receive(&mut self, _now: Instant) -> Option<(Incoming<'_>, Outgoing<'_>)> {
        let len = self.incoming.len.take()?;
        Some((Incoming(&self.incoming.bytes[..len]), Outgoing(&mut self.outgoing)))
    }

    fn transmit(&mut self, _now: Instant) -> Option<Outgoing<'_>> {
        self.outgoing.len.is_none().then_some(Outgoing(&mut self.outgoing))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.max_transmission_unit = self.frame_len_max;
        capabilities.max_burst_size = Some(1);
        capabilities.medium = Medium::Ethernet;
        capabilities
    }
}

struct Incoming<'a>(&'a [u8]);

impl RxToken for Incoming<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, take: F) -> R {
        take(self.0)
    }
}

struct Outgoing<'a>(&'a mut Buffer);

impl TxToken for Outgoing<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, write: F) -> R {
        // smoltcp keeps to the MTU that it was told.
        let outcome = write(&mut self.0.bytes[..len]);
        self.0.len = Some(len);
        outcome
    }
}

const ARP_REQUEST: u8 = 1;
const ICMPV6: u8 = 58;
const NEIGHBOUR_SOLICITATION: u8 = 135;
/// Frames that the host side looks at per second.
const FRAMES_PER_SEC_MAX: u64 = 10_000;
/// Frames that it looks at in a row.
const FRAMES_BURST_MAX: u64 = 1_000;

#[cfg(test)]
mod tests;
