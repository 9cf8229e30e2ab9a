//! Packet sockets: the system calls that nix has no safe wrapper for, one function each.
#![allow(unsafe_code, reason = "packet sockets need raw system calls")]

use std::cell::Cell;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::{size_of, zeroed};
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::ptr;
use std::time::Duration;

use arrayvec::ArrayVec;
use libc::{
    c_int, c_void, iovec, mmsghdr, sockaddr_ll, tpacket_auxdata, tpacket_req3, tpacket_stats_v3,
};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::socket::{setsockopt, sockopt};
use nix::sys::time::TimeSpec;
use socket2::{Domain, SockFilter, Socket, Type};
use weft_wire::MacAddr;

use super::config::{Listens, Steering};
use super::restore::{VLAN_TAG_LEN, VlanTag};
use super::{filter, steer};
use crate::pool::PoolFrame;
use crate::port::BURST_MAX;
use crate::probe::nanoseconds;

/// What the kernel says about an interface.
#[derive(Clone, Copy, Debug)]
pub(super) struct Link {
    pub(super) mac: MacAddr,
    pub(super) mtu: usize,
    pub(super) up: bool,
    /// ARPHRD_ number.
    pub(super) arp_type: u16,
}

/// What the kernel says about a received packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Received {
    /// Bytes received, without the tag.
    pub(super) len: usize,
    /// It had more.
    pub(super) truncated: bool,
    /// The tag that the kernel took off.
    pub(super) vlan: Option<VlanTag>,
    /// When the kernel got it, by `CLOCK_REALTIME`; 0: it does not say.
    pub(super) arrived_ns: u64,
}

impl Received {
    /// Bytes with the tag.
    pub(super) fn frame_len(&self) -> usize {
        self.len + if self.vlan.is_some() { VLAN_TAG_LEN } else { 0 }
    }
}

/// Room for a tpacket_auxdata and a timespec as control messages, aligned as these.
#[derive(Default)]
struct Controls([u64; 16]);

/// A message that receives into `parts` and `controls`, which must outlive it.
fn message(parts: &mut [IoSliceMut<'_>], controls: &mut Controls) -> libc::msghdr {
    // SAFETY: all bytes zero is a valid msghdr without address and data.
    let mut message: libc::msghdr = unsafe { zeroed() };
    // An `IoSliceMut` is an iovec (std::io::IoSliceMut).
    message.msg_iov = parts.as_mut_ptr().cast();
    message.msg_iovlen = parts.len();
    message.msg_control = controls.0.as_mut_ptr().cast();
    message.msg_controllen = size_of::<Controls>();
    message
}

/// What the kernel says of a message of `len` bytes.
///
/// # Safety
/// The kernel has filled it in, and its control messages are still there.
unsafe fn read(message: &libc::msghdr, len: usize) -> Received {
    let truncated = message.msg_flags & libc::MSG_TRUNC != 0;
    let mut received = Received { len, truncated, vlan: None, arrived_ns: 0 };
    // SAFETY: the control messages are there, as the caller promises.
    let mut control = unsafe { libc::CMSG_FIRSTHDR(&raw const *message) };
    while !control.is_null() {
        // SAFETY: the macros gave a control message that is there as a whole; an unaligned read
        // does not depend on how it lies.
        let (header, data) = unsafe { (ptr::read_unaligned(control), libc::CMSG_DATA(control)) };
        match (header.cmsg_level, header.cmsg_type) {
            (libc::SOL_PACKET, libc::PACKET_AUXDATA) => {
                // SAFETY: what the kernel writes under this name is a tpacket_auxdata.
                received.vlan = tag(unsafe { ptr::read_unaligned(data.cast()) });
            }
            (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) => {
                // SAFETY: what the kernel writes under this name is a timespec.
                let at: libc::timespec = unsafe { ptr::read_unaligned(data.cast()) };
                received.arrived_ns = nanoseconds(TimeSpec::from(at));
            }
            _ => {}
        }
        // SAFETY: `control` is a control message of `message`, as above.
        control = unsafe { libc::CMSG_NXTHDR(&raw const *message, control) };
    }
    received
}

fn tag(about: tpacket_auxdata) -> Option<VlanTag> {
    let has = |flag: u32| about.tp_status & flag != 0;
    let tpid = has(libc::TP_STATUS_VLAN_TPID_VALID).then_some(about.tp_vlan_tpid);
    has(libc::TP_STATUS_VLAN_VALID).then_some((tpid, about.tp_vlan_tci))
}

/// A packet socket that carries whole Ethernet frames.
#[derive(Debug)]
pub(super) struct PacketSocket {
    inner: Socket,
    /// Drops read so far: reading resets the kernel's counter.
    dropped: Cell<u64>,
}

impl PacketSocket {
    /// Opens a socket that receives nothing until it is bound.
    pub(super) fn open() -> io::Result<Self> {
        let inner = Socket::new(Domain::PACKET, Type::RAW.nonblocking().cloexec(), None)?;
        Ok(Self { inner, dropped: Cell::new(0) })
    }

    /// Any socket in its place.
    #[cfg(test)]
    pub(super) fn of(inner: Socket) -> Self {
        Self { inner, dropped: Cell::new(0) }
    }

    pub(super) fn raw_fd(&self) -> RawFd {
        self.inner.as_raw_fd()
    }

    /// Binds to an interface; `receives` says whether frames come in.
    pub(super) fn bind(&self, interface: u32, receives: bool) -> io::Result<()> {
        let protocol = if receives { libc::ETH_P_ALL } else { 0 };
        // SAFETY: all bytes zero is a valid sockaddr_ll.
        let mut address: sockaddr_ll = unsafe { zeroed() };
        address.sll_family = u16::try_from(libc::AF_PACKET).map_err(io::Error::other)?;
        address.sll_protocol = u16::try_from(protocol).map_err(io::Error::other)?.to_be();
        address.sll_ifindex = interface.cast_signed();
        // SAFETY: the address is a sockaddr_ll that lives through the call, with its length.
        check(unsafe {
            libc::bind(self.raw_fd(), (&raw const address).cast(), len_of::<sockaddr_ll>())
        })
    }

    /// Reads an interface's address, MTU and state.
    pub(super) fn link(&self, interface: &str) -> io::Result<Link> {
        // SAFETY: all bytes zero is a valid ifreq.
        let mut request: libc::ifreq = unsafe { zeroed() };
        let (_, room) = request.ifr_name.split_last_mut().unwrap_or((&mut 0, &mut []));
        for (target, byte) in room.iter_mut().zip(interface.bytes()) {
            *target = libc::c_char::from_ne_bytes([byte]);
        }
        self.ioctl(libc::SIOCGIFFLAGS, &mut request)?;
        // SAFETY: SIOCGIFFLAGS has filled in this field of the union.
        let flags = c_int::from(unsafe { request.ifr_ifru.ifru_flags });
        self.ioctl(libc::SIOCGIFMTU, &mut request)?;
        // SAFETY: SIOCGIFMTU has filled in this field of the union.
        let mtu = unsafe { request.ifr_ifru.ifru_mtu };
        self.ioctl(libc::SIOCGIFHWADDR, &mut request)?;
        // SAFETY: SIOCGIFHWADDR has filled in this field of the union.
        let address = unsafe { request.ifr_ifru.ifru_hwaddr };
        let [a, b, c, d, e, f, ..] = address.sa_data.map(|byte| byte.to_ne_bytes()[0]);
        Ok(Link {
            mac: MacAddr([a, b, c, d, e, f]),
            mtu: usize::try_from(mtu).map_err(io::Error::other)?,
            up: flags & libc::IFF_UP != 0,
            arp_type: address.sa_family,
        })
    }

    /// Makes a TPACKET_V3 receive ring.
    pub(super) fn request_ring(&self, request: &tpacket_req3) -> io::Result<()> {
        // TPACKET_V3 (linux/if_packet.h).
        const VERSION: c_int = 2;
        self.set(libc::PACKET_VERSION, &VERSION)?;
        self.set(libc::PACKET_RX_RING, request)
    }

    pub(super) fn ignore_outgoing(&self) -> io::Result<()> {
        self.set::<c_int>(libc::PACKET_IGNORE_OUTGOING, &1)
    }

    pub(super) fn bypass_qdisc(&self) -> io::Result<()> {
        self.set::<c_int>(libc::PACKET_QDISC_BYPASS, &1)
    }

    /// Receives frames for all addresses until the socket is closed.
    pub(super) fn join_promiscuous(&self, interface: u32) -> io::Result<()> {
        let request = libc::packet_mreq {
            mr_ifindex: interface.cast_signed(),
            mr_type: u16::try_from(libc::PACKET_MR_PROMISC).map_err(io::Error::other)?,
            mr_alen: 0,
            mr_address: [0; 8],
        };
        self.set(libc::PACKET_ADD_MEMBERSHIP, &request)
    }

    /// Receives what the filter lets in. To be called before the socket is bound.
    pub(super) fn filter(&self, listens: Listens) -> io::Result<()> {
        let of = |op: &libc::sock_filter| SockFilter::new(op.code, op.jt, op.jf, op.k);
        self.inner.attach_filter(&filter::program(listens).each_ref().map(of))
    }

    /// Joins a fanout group that steers by UDP source port. The socket must be bound.
    pub(super) fn steer(&self, steering: Steering) -> io::Result<()> {
        let join = (libc::PACKET_FANOUT_CBPF << 16) | u32::from(steering.group);
        self.set(libc::PACKET_FANOUT, &join)?;
        let mut program = steer::program(steering);
        let request = libc::sock_fprog {
            len: u16::try_from(program.len()).map_err(io::Error::other)?,
            filter: program.as_mut_ptr(),
        };
        // The kernel copies the program during the call.
        self.set(libc::PACKET_FANOUT_DATA, &request)
    }

    /// Frames that found the ring full.
    pub(super) fn dropped(&self) -> u64 {
        // SAFETY: all bytes zero is a valid tpacket_stats_v3.
        let mut stats: tpacket_stats_v3 = unsafe { zeroed() };
        let mut len = len_of::<tpacket_stats_v3>();
        // SAFETY: the kernel writes at most `len` bytes into `stats`, which are its size.
        let outcome = check(unsafe {
            let value: *mut c_void = (&raw mut stats).cast();
            let option = libc::PACKET_STATISTICS;
            libc::getsockopt(self.raw_fd(), libc::SOL_PACKET, option, value, &raw mut len)
        });
        if outcome.is_ok() {
            self.dropped.set(self.dropped.get() + u64::from(stats.tp_drops));
        }
        self.dropped.get()
    }

    /// Sends frames; returns how many from the front left. An error concerns the first one.
    pub(super) fn send(&self, frames: &[PoolFrame]) -> Result<usize, Errno> {
        // SAFETY: all bytes zero is a valid iovec, and a valid mmsghdr without address and data.
        let (mut parts, mut messages): ([iovec; BURST_MAX], [mmsghdr; BURST_MAX]) =
            unsafe { (zeroed(), zeroed()) };
        let mut count = 0;
        for ((frame, part), message) in frames.iter().zip(&mut parts).zip(&mut messages) {
            let bytes = frame.as_ref();
            *part = iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
            message.msg_hdr.msg_iov = part;
            message.msg_hdr.msg_iovlen = 1;
            count += 1;
        }
        // SAFETY: `count` messages are filled in; they point at `parts` and through them at the
        // frames, all of which outlive the call, and sending only reads what they point at.
        let sent = unsafe {
            libc::sendmmsg(self.raw_fd(), messages.as_mut_ptr(), count, libc::MSG_DONTWAIT)
        };
        Errno::result(sent).map(|sent| usize::try_from(sent).unwrap_or(0))
    }

    /// Sends packets, the next of `counts` pieces of `parts` each; returns how many from the front
    /// left. An error concerns the first one.
    pub(super) fn send_gathered(
        &self,
        parts: &[IoSlice<'_>],
        counts: &[usize],
    ) -> Result<usize, Errno> {
        // SAFETY: all bytes zero is a valid mmsghdr without address and data.
        let mut messages: [mmsghdr; BURST_MAX] = unsafe { zeroed() };
        let (mut left, mut count) = (parts, 0);
        for (message, pieces) in messages.iter_mut().zip(counts) {
            let (own, others) = left.split_at(*pieces);
            // An `IoSlice` is an iovec (std::io::IoSlice).
            message.msg_hdr.msg_iov = own.as_ptr().cast_mut().cast();
            message.msg_hdr.msg_iovlen = own.len();
            (left, count) = (others, count + 1);
        }
        // SAFETY: `count` messages are filled in; they point at `parts` and through them at what
        // these borrow, all of which outlive the call, and sending only reads what they point at.
        let sent = unsafe {
            libc::sendmmsg(self.raw_fd(), messages.as_mut_ptr(), count, libc::MSG_DONTWAIT)
        };
        Errno::result(sent).map(|sent| usize::try_from(sent).unwrap_or(0))
    }

    /// Receives a packet into `parts`, one after the other.
    pub(super) fn receive(&self, parts: &mut [IoSliceMut<'_>]) -> Result<Received, Errno> {
        let mut controls = Controls::default();
        let mut message = message(parts, &mut controls);
        // SAFETY: the message points at `parts`, through them at memory that they borrow for
        // writing, and at `controls`, with the lengths of each; all outlive the call.
        let len = unsafe { libc::recvmsg(self.raw_fd(), &raw mut message, libc::MSG_DONTWAIT) };
        let len = usize::try_from(Errno::result(len)?).unwrap_or(0);
        // SAFETY: the kernel has filled in `message`, which points at `controls`.
        Ok(unsafe { read(&message, len) })
    }

    /// Receives packets, each into one of `parts`, and appends what the kernel says of them.
    pub(super) fn receive_many(
        &self,
        parts: &mut [[IoSliceMut<'_>; 3]],
        received: &mut ArrayVec<Received, BURST_MAX>,
    ) -> Result<(), Errno> {
        let mut controls: [Controls; BURST_MAX] = std::array::from_fn(|_| Controls::default());
        // SAFETY: all bytes zero is a valid mmsghdr without address and data.
        let mut messages: [mmsghdr; BURST_MAX] = unsafe { zeroed() };
        let mut count = 0;
        for ((own, parts), controls) in messages.iter_mut().zip(parts).zip(&mut controls) {
            own.msg_hdr = message(parts, controls);
            count += 1;
        }
        let (flags, no_end) = (libc::MSG_DONTWAIT, ptr::null_mut());
        // SAFETY: `count` messages point at `parts`, through them at memory that they borrow for
        // writing, and at `controls`, with the lengths of each; all outlive the call.
        let came =
            unsafe { libc::recvmmsg(self.raw_fd(), messages.as_mut_ptr(), count, flags, no_end) };
        let came = usize::try_from(Errno::result(came)?).unwrap_or(0);
        // SAFETY: the kernel has filled in these messages, which point at `controls`.
        let read = |message: &mmsghdr| unsafe { read(&message.msg_hdr, message.msg_len as usize) };
        received.extend(messages.iter().take(came).map(read));
        Ok(())
    }

    /// Has each packet begin with a header that says what it is a run of, in both directions.
    pub(super) fn put_vnet_headers(&self) -> io::Result<()> {
        self.set::<c_int>(libc::PACKET_VNET_HDR, &1)
    }

    /// Has the kernel say of each packet which VLAN tag it took off, and when it came.
    pub(super) fn ask_for_more(&self) -> io::Result<()> {
        self.set::<c_int>(libc::PACKET_AUXDATA, &1)?;
        setsockopt(&self.inner, sockopt::ReceiveTimestampns, &true)?;
        Ok(())
    }

    /// Gives it a small send buffer.
    #[cfg(test)]
    pub(super) fn shrink(&self, bytes: usize) {
        self.inner.set_send_buffer_size(bytes).expect("a smaller buffer");
    }

    /// Asks for a receive buffer beyond the system's limit, then within it.
    pub(super) fn grow(&self, bytes: usize) -> io::Result<()> {
        if setsockopt(&self.inner, sockopt::RcvBufForce, &bytes).is_err() {
            setsockopt(&self.inner, sockopt::RcvBuf, &bytes)?;
        }
        Ok(())
    }

    /// Sleeps until a frame is ready or the time has passed.
    pub(super) fn wait(&self, timeout: Duration) {
        let mut fds = [PollFd::new(self.inner.as_fd(), PollFlags::POLLIN)];
        // An interrupted wait returns early, which `Port::wait` allows.
        let _ = ppoll(&mut fds, Some(TimeSpec::from_duration(timeout)), None);
    }

    fn ioctl(&self, request: libc::Ioctl, argument: &mut libc::ifreq) -> io::Result<()> {
        // SAFETY: the SIOCGIF* requests read and write one ifreq.
        check(unsafe { libc::ioctl(self.raw_fd(), request, &raw mut *argument) })
    }

    /// Sets an option of level SOL_PACKET whose value is a `T`.
    fn set<T>(&self, option: c_int, value: &T) -> io::Result<()> {
        let pointer: *const c_void = (&raw const *value).cast();
        // SAFETY: the kernel reads `len_of::<T>()` bytes of `value`, which is a `T`.
        check(unsafe {
            libc::setsockopt(self.raw_fd(), libc::SOL_PACKET, option, pointer, len_of::<T>())
        })
    }
}

fn check(outcome: c_int) -> io::Result<()> {
    if outcome < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[expect(clippy::cast_possible_truncation, reason = "the structures have a few dozen bytes")]
const fn len_of<T>() -> libc::socklen_t {
    size_of::<T>() as libc::socklen_t
}
