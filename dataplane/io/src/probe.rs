//! Sends packet trains and notes when their packets arrive (SPEC#probe-trains).
//! Decides nothing: what arrival times mean is `weft-plan`'s business.
//!
//! Arrivals carry the kernel's own time stamps (`SO_TIMESTAMPNS`), taken before the receiving
//! thread is even woken, so that a busy CPU does not stretch a train. A train is handed to the
//! kernel in a few system calls from memory that was written before.
//!
//! Invariant: no allocation per train or packet after [`ProbeSocket::bind`] and a thread's first
//! train.

mod collect;
mod departures;
mod station;

use std::cell::RefCell;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, MultiHeaders, SockaddrStorage, recvmmsg, sendmmsg, setsockopt,
    sockopt,
};
use nix::sys::time::TimeSpec;
use nix::time::{ClockId, clock_gettime};
use socket2::{Domain, Protocol, SockAddr, Type};
use weft_wire::probe::{PROBE_LEN, Probe};

pub use collect::{ArrivedTrain, Collector};
pub use departures::StampedSocket;
pub use station::{ProbeStation, read_promptly};

/// Most datagrams of a train.
pub const TRAIN_PACKETS_MAX: u16 = 256;

/// A UDP socket for trains.
#[derive(Debug)]
pub struct ProbeSocket {
    inner: socket2::Socket,
    local: SocketAddr,
    nonce: u64,
    /// The datagrams of a train, one after the other, each `payload_len` bytes.
    tx: Vec<u8>,
    rx: Vec<u8>,
    payload_len: usize,
}

/// One datagram of a train, as it arrived.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ProbeArrival {
    /// What it says.
    pub probe: Probe,
    /// Who sent it.
    pub source: SocketAddr,
    /// When the kernel got it, by `CLOCK_REALTIME`.
    pub at_ns: u64,
    /// Length of its frame, Ethernet header included.
    pub frame_len: u32,
}

thread_local! {
    /// Message headers to receive and to send with: scratch space of a system call, which holds
    /// raw pointers and would tie a socket to its thread.
    static HEADERS: RefCell<(MultiHeaders<SockaddrStorage>, MultiHeaders<SockaddrStorage>)> =
        RefCell::new((
            MultiHeaders::preallocate(BATCH, Some(nix::cmsg_space!(TimeSpec))),
            MultiHeaders::preallocate(BATCH, None),
        ));
}

/// What cannot be done.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// The socket cannot be made ready.
    #[error("cannot open a UDP socket for probes on {addr}: {source}; is the address this host's?")]
    Open {
        /// Where.
        addr: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// The MTU leaves no room.
    #[error("mtu {mtu} is too small for a probe; use at least {}", MTU_MIN)]
    Mtu {
        /// The MTU.
        mtu: usize,
    },
    /// Nothing can be sent or received.
    #[error("cannot {attempt} a probe train: {errno}")]
    Socket {
        /// What was attempted.
        attempt: &'static str,
        /// Why not.
        errno: Errno,
    },
}

impl ProbeSocket {
    /// Binds a socket for trains of datagrams that fill `mtu`; those with another `nonce` are not
    /// looked at.
    ///
    /// # Errors
    /// When the address is not this host's or the MTU is too small.
    pub fn bind(addr: SocketAddr, mtu: usize, nonce: u64) -> Result<Self, ProbeError> {
        let payload_len = mtu.checked_sub(ip_udp_len(addr)).filter(|len| *len >= PROBE_LEN);
        let payload_len = payload_len.ok_or(ProbeError::Mtu { mtu })?;
        let open = || -> io::Result<(socket2::Socket, SocketAddr)> {
            let kind = Type::DGRAM.nonblocking().cloexec();
            let socket =
                socket2::Socket::new(Domain::for_address(addr), kind, Some(Protocol::UDP))?;
            socket.bind(&SockAddr::from(addr))?;
            setsockopt(&socket, sockopt::ReceiveTimestampns, &true)?;
            for (force, plain) in [(true, false), (false, true)] {
                // Beyond the system's limit where that is allowed.
                if force && setsockopt(&socket, sockopt::RcvBufForce, &BUFFER_BYTES).is_ok() {
                    setsockopt(&socket, sockopt::SndBufForce, &BUFFER_BYTES)?;
                    break;
                }
                if plain {
                    setsockopt(&socket, sockopt::RcvBuf, &BUFFER_BYTES)?;
                    setsockopt(&socket, sockopt::SndBuf, &BUFFER_BYTES)?;
                }
            }
            let local = socket.local_addr()?.as_socket().unwrap_or(addr);
            Ok((socket, local))
        };
        let (inner, local) = open().map_err(|source| ProbeError::Open { addr, source })?;
        let tx = vec![0; payload_len * usize::from(TRAIN_PACKETS_MAX)];
        let rx = vec![0; payload_len * BATCH];
        Ok(Self { inner, local, nonce, tx, rx, payload_len })
    }

    /// The bound address.
    #[must_use]
    pub const fn local(&self) -> SocketAddr {
        self.local
    }

    /// Length of the frame of each datagram of a train, Ethernet header included.
    #[must_use]
    pub fn frame_len(&self) -> u32 {
        frame_len(self.payload_len, self.local)
    }

    /// A second handle to the same socket, to send from another thread.
    ///
    /// # Errors
    /// When the process has no file descriptor left.
    pub fn try_clone(&self) -> Result<Self, ProbeError> {
        let inner = self.inner.try_clone();
        let inner = inner.map_err(|source| ProbeError::Open { addr: self.local, source })?;
        Ok(Self {
            inner,
            local: self.local,
            nonce: self.nonce,
            tx: self.tx.clone(),
            rx: self.rx.clone(),
            payload_len: self.payload_len,
        })
    }

    /// Sends a train of `packets` datagrams (at most [`TRAIN_PACKETS_MAX`]) as fast as the kernel
    /// takes them; returns how many it took.
    ///
    /// # Errors
    /// When the kernel refuses even the first.
    pub fn send_train(
        &mut self,
        target: SocketAddr,
        train: u32,
        packets: u16,
    ) -> Result<u16, ProbeError> {
        let packets = packets.min(TRAIN_PACKETS_MAX);
        let count = usize::from(packets);
        for (index, datagram) in (0..packets).zip(self.tx.chunks_exact_mut(self.payload_len)) {
            // A payload is never shorter than a probe.
            let _ = Probe { packets, train, index, nonce: self.nonce }.emit(datagram);
        }
        let target = [Some(SockaddrStorage::from(target)); BATCH];
        let mut sent = 0;
        while sent < count {
            let batch = (count - sent).min(BATCH);
            let mut slices = [[IoSlice::new(&[])]; BATCH];
            let datagrams = self.tx.chunks_exact(self.payload_len).skip(sent);
            for (slice, datagram) in slices.iter_mut().zip(datagrams) {
                *slice = [IoSlice::new(datagram)];
            }
            let flags = MsgFlags::MSG_DONTWAIT;
            let fd = self.inner.as_raw_fd();
            let slices = slices.iter().take(batch);
            let taken = HEADERS.with_borrow_mut(|(_, headers)| {
                sendmmsg(fd, headers, slices, target, [], flags).map(|taken| taken.count())
            });
            match taken {
                Ok(taken) => sent += taken,
                Err(Errno::EINTR) => {}
                // No room: the train ends here, and the receiver sees a shorter one.
                Err(_) if sent > 0 => break,
                Err(errno) => return Err(ProbeError::Socket { attempt: "send", errno }),
            }
        }
        Ok(u16::try_from(sent).unwrap_or(packets))
    }

    /// Waits up to `timeout` for datagrams and shows each one of this measurement to `see`; true
    /// when any datagram came.
    ///
    /// # Errors
    /// When the socket is broken.
    pub fn receive(
        &mut self,
        timeout: Duration,
        mut see: impl FnMut(ProbeArrival),
    ) -> Result<bool, ProbeError> {
        let failed = |errno| ProbeError::Socket { attempt: "receive", errno };
        let mut fds = [PollFd::new(self.inner.as_fd(), PollFlags::POLLIN)];
        match ppoll(&mut fds, Some(TimeSpec::from_duration(timeout)), None) {
            Ok(0) | Err(Errno::EINTR) => return Ok(false),
            Ok(_) => {}
            Err(errno) => return Err(failed(errno)),
        }
        let mut lengths = [(0_usize, 0_u64, None::<SocketAddr>); BATCH];
        let mut count = 0;
        {
            let rx = &mut self.rx;
            let len = self.payload_len;
            let fd = self.inner.as_raw_fd();
            let outcome = HEADERS.with_borrow_mut(|(headers, _)| {
                let mut chunks = rx.chunks_exact_mut(len);
                let mut slices: [_; BATCH] =
                    std::array::from_fn(|_| [IoSliceMut::new(chunks.next().unwrap_or_default())]);
                let flags = MsgFlags::MSG_DONTWAIT;
                for message in recvmmsg(fd, headers, slices.iter_mut(), flags, None)? {
                    let stamped = message.cmsgs().ok().and_then(|mut controls| {
                        controls.find_map(|control| match control {
                            ControlMessageOwned::ScmTimestampns(at) => Some(nanoseconds(at)),
                            _ => None,
                        })
                    });
                    let source = message.address.and_then(|address| socket_addr(&address));
                    lengths[count] = (message.bytes, stamped.unwrap_or_else(realtime_ns), source);
                    count += 1;
                }
                Ok(())
            });
            match outcome {
                Ok(()) => {}
                Err(Errno::EAGAIN | Errno::EINTR) => return Ok(false),
                Err(errno) => return Err(failed(errno)),
            }
        }
        for (datagram, (len, at_ns, source)) in
            self.rx.chunks_exact(self.payload_len).zip(&lengths[..count])
        {
            let probe = Probe::parse(&datagram[..*len]);
            if let (Some(probe), Some(source)) = (probe, *source)
                && probe.nonce == self.nonce
            {
                let frame_len = frame_len(*len, source);
                see(ProbeArrival { probe, source, at_ns: *at_ns, frame_len });
            }
        }
        Ok(count > 0)
    }
}

/// Now by the clock of the arrivals.
#[must_use]
pub fn realtime_ns() -> u64 {
    clock_gettime(ClockId::CLOCK_REALTIME).map_or(0, nanoseconds)
}

pub(crate) fn nanoseconds(time: TimeSpec) -> u64 {
    let seconds = u64::try_from(time.tv_sec()).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(u64::try_from(time.tv_nsec()).unwrap_or(0))
}

fn socket_addr(address: &SockaddrStorage) -> Option<SocketAddr> {
    let v4 = address.as_sockaddr_in().map(|v4| SocketAddr::new(v4.ip().into(), v4.port()));
    v4.or_else(|| address.as_sockaddr_in6().map(|v6| SocketAddr::new(v6.ip().into(), v6.port())))
}

const fn ip_udp_len(addr: SocketAddr) -> usize {
    if addr.is_ipv4() { 28 } else { 48 }
}

fn frame_len(payload_len: usize, addr: SocketAddr) -> u32 {
    u32::try_from(payload_len + ip_udp_len(addr) + ETHERNET_HEADER_LEN).unwrap_or(u32::MAX)
}

/// Datagrams per system call.
const BATCH: usize = 64;
const ETHERNET_HEADER_LEN: usize = 14;
/// Room for a whole train, were the receiver not scheduled meanwhile.
const BUFFER_BYTES: usize = 4 << 20;
const MTU_MIN: usize = 48 + PROBE_LEN;
