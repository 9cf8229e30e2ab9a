//! Opens the sockets of a UDP port: addresses, buffer sizes, ECN, DF, drop counters.

use std::io::{self, Write as _};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, RawFd};

use arrayvec::ArrayVec;
// The macro names its two helpers without a path.
use nix::errno::Errno;
use nix::net::if_::if_nametoindex;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll, ppoll};
use nix::sys::socket::{getsockopt, setsockopt, sockopt};
use nix::sys::time::TimeSpec;
use nix::{getsockopt_impl, setsockopt_impl, sockopt_impl};
use socket2::{Domain, Protocol, SockAddr, Type};
use weft_wire::Nanos;

use super::{Hears, SOCKETS_MAX, UdpConfig, UdpError};
use crate::nic::interface_with;
use crate::runs::Segmentation;
use crate::wake::Waker;

/// RFC 3168: ECN-capable transport, codepoint 0.
pub(super) const ECT0: u8 = 0b10;
/// Tries to find free consecutive ports when the kernel chooses the first.
const PORT_TRIES: usize = 32;
/// Place of the drop counter in `SO_MEMINFO` (`SK_MEMINFO_DROPS`).
const MEMINFO_DROPS: usize = 8;

/// A bound, non-blocking socket.
#[derive(Debug)]
pub(super) struct Socket {
    inner: socket2::Socket,
    addr: SocketAddr,
    rx_buffer_bytes: usize,
    tx_buffer_bytes: usize,
    segmentation: Segmentation,
    /// DSCP and ECN of what it sends.
    traffic_class: u8,
}

impl Socket {
    pub(super) fn addr(&self) -> SocketAddr {
        self.addr
    }

    pub(super) fn raw_fd(&self) -> RawFd {
        self.inner.as_raw_fd()
    }

    pub(super) fn inner(&self) -> &socket2::Socket {
        &self.inner
    }

    pub(super) fn rx_buffer_bytes(&self) -> usize {
        self.rx_buffer_bytes
    }

    pub(super) fn tx_buffer_bytes(&self) -> usize {
        self.tx_buffer_bytes
    }

    /// Sends with this DSCP and ECN from now on. A kernel that refuses goes on with what it has.
    pub(super) fn set_traffic_class(&mut self, class: u8) {
        if class == self.traffic_class {
            return;
        }
        let set = match self.addr.is_ipv4() {
            true => self.inner.set_tos_v4(class.into()),
            false => self.inner.set_tclass_v6(class.into()),
        };
        if set.is_ok() {
            self.traffic_class = class;
        }
    }

    /// True while the kernel cuts messages into datagrams.
    pub(super) fn takes_runs(&self, now: Nanos) -> bool {
        self.segmentation.takes_runs(now)
    }

    /// A message that was to be cut has left.
    pub(super) fn accept_runs(&mut self) {
        self.segmentation.accept();
    }

    /// A message that was to be cut was refused, and its datagrams alone were not.
    pub(super) fn refuse_runs(&mut self, now: Nanos, errno: Errno) {
        let pause_s = self.segmentation.refuse(now).0 / 1_000_000_000;
        let addr = self.addr;
        // Whoever read standard error may have gone: that is no reason to end.
        let _ = writeln!(
            io::stderr(),
            "weft: UDP port {addr} sends datagrams one by one for {pause_s} s: no segmentation \
             ({errno})"
        );
    }

    /// Datagrams that the kernel dropped at this socket, most for want of buffer. A merged
    /// message counts once.
    pub(super) fn rx_missed(&self) -> u64 {
        getsockopt(&self.inner, MemInfo).map_or(0, |info| u64::from(info[MEMINFO_DROPS]))
    }

    fn bind(addr: SocketAddr, config: &UdpConfig) -> Result<Self, UdpError> {
        Self::bind_with(addr, config, false)
    }

    /// A socket beside another of this process that allows it.
    pub(super) fn bind_shared(addr: SocketAddr, config: &UdpConfig) -> Result<Self, UdpError> {
        Self::bind_with(addr, config, true)
    }

    /// Lets further sockets of this user be bound to the same port.
    pub(super) fn allow_sharing(&self) -> io::Result<()> {
        self.inner.set_reuse_port(true)
    }

    fn bind_with(addr: SocketAddr, config: &UdpConfig, shares: bool) -> Result<Self, UdpError> {
        let failed = |attempt| move |source| UdpError::Socket { addr, attempt, source };
        let inner = make(addr).map_err(failed("make a socket"))?;
        if addr.is_ipv6() {
            inner.set_only_v6(true).map_err(failed("set IPV6_V6ONLY"))?;
            choose_interface(&inner, addr.ip());
        }
        if shares {
            inner.set_reuse_port(true).map_err(failed("share a socket's port"))?;
        }
        inner.bind(&SockAddr::from(addr)).map_err(|source| match source.kind() {
            io::ErrorKind::AddrInUse => UdpError::InUse { addr },
            io::ErrorKind::AddrNotAvailable => UdpError::NoSuchAddress { ip: addr.ip() },
            _ => failed("bind a socket")(source),
        })?;
        Self::begin(inner, addr, config)
    }

    /// A socket that takes what `source` sends to the multicast address `group`.
    fn hear(group: SocketAddr, source: SocketAddr, config: &UdpConfig) -> Result<Self, UdpError> {
        let failed =
            |attempt| move |error| UdpError::Socket { addr: group, attempt, source: error };
        let inner = make(group).map_err(failed("make a socket"))?;
        // Every worker of a host hears it by a socket of its own.
        inner.set_reuse_address(true).map_err(failed("share the address"))?;
        join(&inner, group, config.addr.ip()).map_err(|error| match error.kind() {
            io::ErrorKind::AddrInUse => UdpError::InUse { addr: group },
            _ => failed("join the multicast group")(error),
        })?;
        inner.connect(&SockAddr::from(source)).map_err(failed("take one sender's alone"))?;
        Self::begin(inner, group, config)
    }

    /// Sets the options of a socket that is bound to `addr`.
    fn begin(
        inner: socket2::Socket,
        addr: SocketAddr,
        config: &UdpConfig,
    ) -> Result<Self, UdpError> {
        let failed = |attempt| move |source| UdpError::Socket { addr, attempt, source };
        configure(&inner, addr).map_err(failed("set ECN and path MTU options"))?;
        let (rx_buffer_bytes, tx_buffer_bytes) =
            grow_buffers(&inner, config.socket_buffer_bytes)
                .map_err(|errno| failed("size the socket buffers")(errno.into()))?;
        let bound = inner.local_addr().map_err(failed("read the bound address"))?;
        let addr = bound.as_socket().unwrap_or(addr);
        // Kernels before 4.18 (5.0 for receiving) know neither; then nothing is merged.
        let takes_runs = config.offload && setsockopt(&inner, sockopt::UdpGsoSegment, &0).is_ok();
        if config.offload {
            let _ = setsockopt(&inner, sockopt::UdpGroSegment, &true);
        }
        let (segmentation, traffic_class) = (Segmentation::new(takes_runs), ECT0);
        Ok(Self { inner, addr, rx_buffer_bytes, tx_buffer_bytes, segmentation, traffic_class })
    }
}

/// A socket for addresses like `addr`, which never blocks.
fn make(addr: SocketAddr) -> io::Result<socket2::Socket> {
    let kind = Type::DGRAM.nonblocking().cloexec();
    socket2::Socket::new(Domain::for_address(addr), kind, Some(Protocol::UDP))
}

/// Binds the port's sockets to consecutive UDP ports.
pub(super) fn bind_all(config: &UdpConfig) -> Result<Vec<Socket>, UdpError> {
    let tries = if config.addr.port() == 0 { PORT_TRIES } else { 1 };
    let mut outcome = bind_from(config);
    for _ in 1..tries {
        if !matches!(outcome, Err(UdpError::InUse { .. })) {
            break;
        }
        outcome = bind_from(config);
    }
    outcome
}

/// Opens a socket for each lane of a multicast address.
pub(super) fn hear_all(hears: &Hears, config: &UdpConfig) -> Result<Vec<Socket>, UdpError> {
    let above = |mut addr: SocketAddr, lane: u16| {
        addr.set_port(addr.port() + lane);
        addr
    };
    let lanes = 0..u16::try_from(config.socket_count).unwrap_or(u16::MAX);
    let hear = |lane| Socket::hear(above(hears.group, lane), above(hears.source, lane), config);
    lanes.map(hear).collect()
}

/// Binds a socket to `group` and asks for what is sent there, on the interface that has `local`.
fn join(socket: &socket2::Socket, group: SocketAddr, local: IpAddr) -> io::Result<()> {
    match (group, local) {
        (SocketAddr::V4(group), IpAddr::V4(local)) => {
            socket.bind(&SockAddr::from(group))?;
            socket.join_multicast_v4(group.ip(), &local)
        }
        (SocketAddr::V6(mut group), local) => {
            let index = index_with(local).ok_or(io::ErrorKind::AddrNotAvailable)?;
            // Addresses of a link's scope are of one link.
            group.set_scope_id(index);
            socket.bind(&SockAddr::from(group))?;
            socket.join_multicast_v6(group.ip(), index)
        }
        _ => Err(io::ErrorKind::InvalidInput.into()),
    }
}

/// Has what an IPv6 socket sends to multicast addresses leave by the interface that has its
/// address, as IPv4 does by itself. Whoever has none there sends nothing.
fn choose_interface(socket: &socket2::Socket, local: IpAddr) {
    let _ = index_with(local).map(|index| socket.set_multicast_if_v6(index));
}

fn index_with(local: IpAddr) -> Option<u32> {
    if_nametoindex(interface_with(local)?.as_str()).ok()
}

fn bind_from(config: &UdpConfig) -> Result<Vec<Socket>, UdpError> {
    let first = Socket::bind(config.addr, config)?;
    let mut addr = first.addr();
    let mut sockets = vec![first];
    while sockets.len() < config.socket_count {
        let port = addr.port().checked_add(1).ok_or(UdpError::InUse { addr })?;
        addr.set_port(port);
        sockets.push(Socket::bind(addr, config)?);
    }
    Ok(sockets)
}

/// What the kernel is asked of the sockets.
fn poll_fds<const MAX: usize>(sockets: &[Socket]) -> ArrayVec<PollFd<'_>, MAX> {
    sockets.iter().map(|socket| PollFd::new(socket.inner.as_fd(), PollFlags::POLLIN)).collect()
}

/// The sockets from which something, or an error, can be taken now: a bit for each.
pub(super) fn readable(sockets: &[Socket]) -> u64 {
    let mut fds = poll_fds::<SOCKETS_MAX>(sockets);
    // What cannot be told is tried.
    let Ok(count) = poll(&mut fds, PollTimeout::ZERO) else { return u64::MAX };
    if count == 0 {
        return 0;
    }
    let bits = (0..).zip(&fds).filter(|(_, fd)| fd.any() != Some(false));
    bits.fold(0, |bits, (index, _): (u32, _)| bits | 1 << index)
}

/// Sleeps until a socket is readable, `waker` was called or the time has passed.
pub(super) fn wait(sockets: &[Socket], waker: Option<&Waker>, timeout_ns: u64) {
    let mut fds = poll_fds::<{ SOCKETS_MAX + 1 }>(sockets);
    fds.extend(waker.map(|waker| PollFd::new(waker.as_fd(), PollFlags::POLLIN)));
    // An interrupted wait returns early, which `Port::wait` allows.
    let timeout = TimeSpec::from_duration(std::time::Duration::from_nanos(timeout_ns));
    let _ = ppoll(&mut fds, Some(timeout), None);
    let is_woken = |fd: &PollFd<'_>| fd.any() == Some(true);
    if let Some(waker) = waker.filter(|_| fds.last().is_some_and(is_woken)) {
        waker.clear();
    }
}

fn configure(socket: &socket2::Socket, addr: SocketAddr) -> io::Result<()> {
    setsockopt(socket, sockopt::ReceiveTimestampns, &true)?;
    if addr.is_ipv4() {
        socket.set_tos_v4(ECT0.into())?;
        socket.set_recv_tos_v4(true)?;
        setsockopt(socket, IpMtuDiscover, &libc::IP_PMTUDISC_PROBE)?;
    } else {
        socket.set_tclass_v6(ECT0.into())?;
        socket.set_recv_tclass_v6(true)?;
        setsockopt(socket, Ipv6MtuDiscover, &libc::IPV6_PMTUDISC_PROBE)?;
    }
    Ok(())
}

/// Asks for buffers beyond the system's limit, then within it; returns what was granted.
fn grow_buffers(socket: &socket2::Socket, bytes: usize) -> nix::Result<(usize, usize)> {
    if setsockopt(socket, sockopt::RcvBufForce, &bytes).is_err() {
        setsockopt(socket, sockopt::RcvBuf, &bytes)?;
    }
    if setsockopt(socket, sockopt::SndBufForce, &bytes).is_err() {
        setsockopt(socket, sockopt::SndBuf, &bytes)?;
    }
    Ok((getsockopt(socket, sockopt::RcvBuf)?, getsockopt(socket, sockopt::SndBuf)?))
}

sockopt_impl!(
    /// DF on every datagram, and no belief in ICMP about the path: too long is an error at once.
    IpMtuDiscover,
    SetOnly,
    libc::IPPROTO_IP,
    libc::IP_MTU_DISCOVER,
    libc::c_int
);

sockopt_impl!(
    /// As [`IpMtuDiscover`].
    Ipv6MtuDiscover,
    SetOnly,
    libc::IPPROTO_IPV6,
    libc::IPV6_MTU_DISCOVER,
    libc::c_int
);

sockopt_impl!(
    /// The socket's memory counters.
    MemInfo,
    GetOnly,
    libc::SOL_SOCKET,
    libc::SO_MEMINFO,
    [u32; 9]
);
