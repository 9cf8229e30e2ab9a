//! The host that a port without a kernel behind it is: ARP, NDP and ping, through smoltcp.
//!
//! [`HostStack`] answers frames that are not Weft's, for boxes and workers alike; [`Neighbour`]
//! asks for the Ethernet address behind which a peer is. Both see bytes and times alone. No state
//! grows with traffic: the neighbour table is of fixed size. How much is looked at at all its owner
//! bounds, by [`FRAMES_PER_SEC_MAX`] and [`FRAMES_BURST_MAX`] (I8).

mod neighbour;

use std::net::IpAddr;

use smoltcp::iface::{Config, Interface, SocketSet};
use smoltcp::phy::{Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::time::Instant;
use smoltcp::wire::{EthernetAddress, HardwareAddress, IpAddress, IpCidr};
use weft_wire::frame::ETHERNET_LEN;
use weft_wire::{MacAddr, Nanos};

pub use self::neighbour::Neighbour;

/// Answers for an address at an Ethernet address.
pub struct HostStack {
    interface: Interface,
    slots: Slots,
    /// A frame whose sender's Ethernet address was asked for.
    waiting: Buffer,
    sockets: SocketSet<'static>,
}

impl std::fmt::Debug for HostStack {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HostStack")
            .field("addr", &self.interface.ip_addrs())
            .finish_non_exhaustive()
    }
}

impl HostStack {
    /// Answers for `ip`, in a network of `prefix_len` bits, at `mac`. `seed` is smoltcp's.
    ///
    /// # Panics
    /// When `prefix_len` is longer than the address.
    #[must_use]
    pub fn new(ip: IpAddr, prefix_len: u8, mac: MacAddr, mtu: u16, seed: u64) -> Self {
        let mut config = Config::new(HardwareAddress::Ethernet(EthernetAddress(mac.0)));
        config.random_seed = seed;
        let frame_len_max = usize::from(mtu) + ETHERNET_LEN;
        let mut slots = Slots {
            incoming: Buffer::new(frame_len_max),
            outgoing: Buffer::new(frame_len_max),
            frame_len_max,
        };
        let mut interface = Interface::new(config, &mut slots, Instant::ZERO);
        let cidr = IpCidr::new(IpAddress::from(ip), prefix_len);
        interface.update_ip_addrs(|addrs| addrs.push(cidr).expect("there is room for one address"));
        Self {
            interface,
            slots,
            waiting: Buffer::new(frame_len_max),
            sockets: SocketSet::new(Vec::new()),
        }
    }

    /// The frame that answers `frame`, if one does.
    ///
    /// To a sender that it does not know the stack sends a question instead of its answer. What
    /// was asked then waits, and is answered when the sender has answered; the last one wins.
    pub fn answer(&mut self, now: Nanos, frame: &[u8]) -> Option<&[u8]> {
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
/// Frames that a host side looks at per second.
pub const FRAMES_PER_SEC_MAX: u64 = 10_000;
/// Frames that it looks at in a row.
pub const FRAMES_BURST_MAX: u64 = 1_000;
