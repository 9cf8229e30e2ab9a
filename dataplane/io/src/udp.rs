//! Weft frames over the kernel's UDP sockets: no privileges, any machine, the slowest port.
//!
//! One port is one socket (a box), several on consecutive UDP ports (a worker's lanes), or one lane
//! of a box with several, whose ports share the first ([`UdpPort::open_lanes`]). Sockets
//! carry payloads only, so the port writes the 42 or 62 bytes of headers in front of each received
//! payload, and reads them off each frame to send: engines, traces and classification see what a
//! wire would show. Ethernet addresses are made up from the IP ([`pseudo_mac`]), time to live and
//! identification are those of `weft_wire::frame::Encap`, and a received ECN mark is kept.
//!
//! A run of frames to one destination, all as long as the first and the last perhaps shorter,
//! crosses the kernel as one message (generic segmentation and receive offload): the path through
//! it costs about as much for a run as for a frame. Only what is in one burst makes a run; nothing
//! waits for more. A frame that was asked to stay apart ([`Frame::keep_apart`]) is in none.
//!
//! Invariants: few system calls per socket and burst; no allocation after
//! [`UdpPort::open`], except the message headers (about 20 KiB) when a port is first used on
//! another thread than the one that opened it. Every frame taken from `tx` is sent or counted as
//! [`PortStats::tx_errors`]; when a socket buffer is full the rest stays with the caller. A failing
//! send costs one frame, so no error can spin.
//!
//! Not supported: IPv6 scopes (link-local addresses), and binding to the unspecified address, for
//! the headers of received frames must name the address that they were sent to.

mod frame_set;
mod headers;
mod joined;
mod lanes;
mod mmsg;
mod receive;
mod reserve;
mod runs;
mod socket;
mod transmit;
mod turns;

use std::net::{IpAddr, SocketAddr};

use weft_wire::frame::ETHERNET_LEN;
use weft_wire::{MacAddr, Nanos};

use self::receive::Merged;
pub use self::reserve::ReservedPorts;
use self::socket::Socket;
use self::turns::Turns;
use crate::pool::PoolFrame;
#[cfg(doc)]
use crate::port::Frame;
use crate::port::{Burst, Port, PortInfo, PortStats};
use crate::rest::Yielding;
use crate::supply::Supply;
use crate::wake::{Waker, yield_core};

/// Most sockets of one port.
pub const SOCKETS_MAX: usize = 64;

/// What a UDP port is opened with.
#[derive(Clone, Debug)]
pub struct UdpConfig {
    /// This host's address and the first UDP port; port 0 lets the kernel choose.
    pub addr: SocketAddr,
    /// Sockets on consecutive UDP ports, 1 to [`SOCKETS_MAX`].
    pub socket_count: usize,
    /// Largest IP packet in bytes. Larger datagrams are refused in both directions.
    pub mtu: usize,
    /// Buffers in the pool, each of `mtu + 14` bytes.
    pub frame_count: usize,
    /// Bytes asked for as each socket's receive and send buffer; the kernel may grant less
    /// ([`UdpPort::granted`]).
    pub socket_buffer_bytes: usize,
    /// Write a UDP checksum into received IPv4 frames as well, for groups whose integrity is
    /// `checksum16`. The kernel has verified the carried one and does not hand it over.
    pub ipv4_checksum: bool,
    /// Hand runs of frames to the kernel, and take them from it, as one message each (`UDP_SEGMENT`
    /// and `UDP_GRO`), where it can. On a wire they are the same datagrams; the kernel's own path,
    /// a bridge and a queueing discipline see one packet of up to 64 KiB. 64 KiB of memory. Not
    /// beside a DPDK port, BMv2, or an AF_PACKET port without offload, at a veth whose offloads are
    /// on: what reads frames there is given the packet whole.
    pub offload: bool,
    /// Multicast addresses that are heard beside the port's own, on the interface that has `addr`.
    pub hears: Vec<Hears>,
}

/// A multicast address that a port hears, as many UDP ports of it as the port has sockets.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Hears {
    /// The address and its first UDP port.
    pub group: SocketAddr,
    /// Who sends there, and its first UDP port: what others send is not taken in.
    pub source: SocketAddr,
}

impl UdpConfig {
    /// One socket at `addr`, Ethernet's MTU of 1500, 1024 frames, 4 MiB socket buffers, no offload.
    #[must_use]
    pub fn new(addr: SocketAddr) -> Self {
        Self {
            addr,
            socket_count: 1,
            mtu: 1500,
            frame_count: 1024,
            socket_buffer_bytes: 4 << 20,
            ipv4_checksum: false,
            offload: false,
            hears: Vec::new(),
        }
    }
}

/// Why a UDP port could not be opened. Each message says what to do.
#[derive(Debug, thiserror::Error)]
pub enum UdpError {
    /// Another process, or another port of this one, has the UDP port.
    #[error(
        "UDP port {addr} is in use: stop the process that `ss -ulpn 'sport = :{port}'` names, or \
         choose another port base", port = .addr.port()
    )]
    InUse {
        /// The address that was refused.
        addr: SocketAddr,
    },
    /// No interface has the address.
    #[error("no interface of this host has the address {ip}: see `ip address` for those it has")]
    NoSuchAddress {
        /// The address that was refused.
        ip: IpAddr,
    },
    /// The configuration cannot work, whatever the host.
    #[error("UDP port {addr}: {problem}")]
    Config {
        /// The address asked for.
        addr: SocketAddr,
        /// What is wrong, and what to write instead.
        problem: &'static str,
    },
    /// The kernel refused a socket or one of its options.
    #[error("could not {attempt} for UDP port {addr}")]
    Socket {
        /// The address asked for.
        addr: SocketAddr,
        /// What was attempted.
        attempt: &'static str,
        /// The kernel's answer.
        #[source]
        source: std::io::Error,
    },
}

/// Socket buffer bytes that the kernel granted, for its own book-keeping included: about half of
/// them hold payload.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct GrantedBuffers {
    /// Smallest receive buffer among the sockets.
    pub rx_bytes: usize,
    /// Smallest send buffer among the sockets.
    pub tx_bytes: usize,
}

/// A port over UDP sockets.
#[derive(Debug)]
pub struct UdpPort {
    /// Those that send, then those of multicast addresses, or one of a port that lanes share.
    sockets: Vec<Socket>,
    sender_count: usize,
    supply: Supply,
    info: PortInfo,
    stats: PortStats,
    header_len: usize,
    ipv4_checksum: bool,
    /// What the kernel gave as one message, where it may.
    merged: Option<Merged>,
    /// For messages in one piece, where they were asked for.
    joined: Option<Supply>,
    turns: Turns,
    /// Polled beside the sockets once somebody has asked for it.
    waker: Option<Waker>,
    yielding: Yielding,
    /// When it was used last.
    now: Nanos,
}

impl UdpPort {
    /// Binds the sockets and allocates the frames.
    ///
    /// # Errors
    /// [`UdpError`], one line that says what to do.
    pub fn open(config: &UdpConfig) -> Result<Self, UdpError> {
        check(config)?;
        let mut sockets = socket::bind_all(config)?;
        let sender_count = sockets.len();
        for hears in &config.hears {
            sockets.extend(socket::hear_all(hears, config)?);
        }
        Ok(Self::on(sockets, sender_count, config))
    }

    /// A port on open sockets, of which the first `sender_count` send.
    fn on(sockets: Vec<Socket>, sender_count: usize, config: &UdpConfig) -> Self {
        let addr = sockets[0].addr();
        let socket_count = sockets.len();
        mmsg::prepare_thread();
        let name =
            if sender_count == 1 { addr.to_string() } else { format!("{addr}+{sender_count}") };
        let mac = pseudo_mac(addr.ip());
        let headers_len = headers::len(addr.ip());
        Self {
            sockets,
            sender_count,
            turns: Turns::new(sender_count, socket_count),
            supply: Supply::new(config.frame_count, config.mtu + ETHERNET_LEN),
            info: PortInfo { name, driver: "udp".to_owned(), mac, mtu: config.mtu },
            stats: PortStats::default(),
            header_len: headers_len,
            ipv4_checksum: config.ipv4_checksum,
            joined: None,
            merged: config.offload.then(|| Merged::new(config.mtu - (headers_len - ETHERNET_LEN))),
            waker: None,
            yielding: Yielding::default(),
            now: Nanos(0),
        }
    }

    /// The address of the first socket; the others follow on the next UDP ports.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.sockets[0].addr()
    }

    /// Has received IPv4 frames carry a UDP checksum from now on, or not
    /// ([`UdpConfig::ipv4_checksum`]).
    pub fn set_ipv4_checksum(&mut self, has_one: bool) {
        self.ipv4_checksum = has_one;
    }

    /// The socket buffers that the kernel granted.
    #[must_use]
    pub fn granted(&self) -> GrantedBuffers {
        let least = |bytes: fn(&Socket) -> usize| self.sockets.iter().map(bytes).min().unwrap_or(0);
        GrantedBuffers {
            rx_bytes: least(Socket::rx_buffer_bytes),
            tx_bytes: least(Socket::tx_buffer_bytes),
        }
    }
}

impl Port for UdpPort {
    type Frame = PoolFrame;

    fn rx_burst(&mut self, now: Nanos, rx: &mut Burst<PoolFrame>) -> usize {
        self.now = now;
        let mut count = self.split_merged(rx);
        if !rx.is_full() {
            // One call tells of all sockets. A receive that finds nothing costs more, for the
            // kernel looks at its buffers first.
            let readable = socket::readable(&self.sockets);
            for index in self.turns.order() {
                if readable & 1 << index != 0 && !rx.is_full() {
                    let received = self.receive(index, rx);
                    self.turns.note(index, count == 0 && received > 0);
                    count += received;
                }
            }
            self.turns.end(readable);
        }
        if count > 0 {
            self.yielding.note_received();
        }
        count
    }

    /// Sends in order within each socket; one `sendmmsg` serves all frames of a socket, or a few
    /// where runs of segments differ in length.
    fn tx_burst(&mut self, now: Nanos, tx: &mut Burst<PoolFrame>) -> usize {
        self.now = now;
        self.transmit(tx)
    }

    fn alloc(&mut self) -> Option<PoolFrame> {
        let frame = self.supply.alloc();
        self.stats.rx_nombuf += u64::from(frame.is_none());
        frame
    }

    fn free(&mut self, frames: &mut Burst<PoolFrame>) {
        for frame in frames.drain(..) {
            self.keep(frame);
        }
    }

    fn join_runs(&mut self, is_on: bool) -> bool {
        self.joined = (is_on && self.has_runs()).then(|| self.room_for_runs());
        self.has_runs()
    }

    fn alloc_run(&mut self) -> Option<PoolFrame> {
        let takes_runs =
            self.sockets[..self.sender_count].iter().all(|socket| socket.takes_runs(self.now));
        self.joined.as_mut().filter(|_| takes_runs)?.alloc()
    }

    fn merges(&self) -> bool {
        self.sockets.iter().any(|socket| socket.takes_runs(self.now))
    }

    fn hears(&self, group: IpAddr) -> bool {
        self.sockets[self.sender_count..].iter().any(|socket| socket.addr().ip() == group)
    }

    fn info(&self) -> PortInfo {
        self.info.clone()
    }

    fn stats(&self) -> PortStats {
        PortStats { rx_missed: self.sockets.iter().map(Socket::rx_missed).sum(), ..self.stats }
    }

    fn carried(&self) -> (u64, u64) {
        (self.stats.rx_bytes, self.stats.tx_bytes)
    }

    fn wait(&mut self, timeout_ns: u64) {
        if self.merged.as_ref().is_some_and(Merged::has_more) {
            return;
        }
        if !yield_core(&mut self.yielding) {
            socket::wait(&self.sockets, self.waker.as_ref(), timeout_ns);
        }
    }

    fn waker(&mut self) -> Option<Waker> {
        self.waker = self.waker.take().or_else(Waker::new);
        self.waker.clone()
    }
}

/// A locally administered Ethernet address for a host that is only known by its IP: 02:00 and the
/// four octets of an IPv4 address, 02:06 and the folded octets of an IPv6 address.
#[must_use]
pub fn pseudo_mac(ip: IpAddr) -> MacAddr {
    match ip {
        IpAddr::V4(ip) => {
            let [a, b, c, d] = ip.octets();
            MacAddr([0x02, 0x00, a, b, c, d])
        }
        IpAddr::V6(ip) => {
            let mut folded = [0; 4];
            for (index, octet) in ip.octets().into_iter().enumerate() {
                folded[index % 4] ^= octet;
            }
            let [a, b, c, d] = folded;
            MacAddr([0x02, 0x06, a, b, c, d])
        }
    }
}

/// True for what can be heard.
fn is_heard(Hears { group, source }: &Hears, config: &UdpConfig) -> bool {
    let has_room = |addr: &SocketAddr| usize::from(addr.port()) + config.socket_count <= 1 << 16;
    let is_ipv4 = config.addr.is_ipv4();
    group.ip().is_multicast()
        && (group.is_ipv4(), source.is_ipv4()) == (is_ipv4, is_ipv4)
        && has_room(group)
        && has_room(source)
}

fn check(config: &UdpConfig) -> Result<(), UdpError> {
    let headers_len = headers::len(config.addr.ip()) - ETHERNET_LEN;
    let problem = if config.addr.ip().is_unspecified() {
        "give the address of one interface instead of the unspecified one"
    } else if !(1..=SOCKETS_MAX).contains(&config.socket_count) {
        "the number of sockets must be 1 to 64"
    } else if usize::from(config.addr.port()) + config.socket_count > 1 << 16 {
        "its sockets would pass port 65535: choose a lower port"
    } else if config.socket_count * (1 + config.hears.len()) > SOCKETS_MAX {
        "it would have more than 64 sockets: hear fewer multicast addresses"
    } else if config.hears.iter().any(|hears| !is_heard(hears, config)) {
        "a multicast address must be one, and of the family of the port and of who sends there"
    } else if config.mtu <= headers_len || config.mtu > usize::from(u16::MAX) {
        "the MTU must be above its headers and at most 65535"
    } else {
        return Ok(());
    };
    Err(UdpError::Config { addr: config.addr, problem })
}
