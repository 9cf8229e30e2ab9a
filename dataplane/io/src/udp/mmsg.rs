//! `recvmmsg` and `sendmmsg` through nix, without allocation per burst.
//!
//! The message headers are scratch space between two system calls. They live per thread and not in
//! the port because they hold raw pointers, which would tie a port to the thread that opened it.
//! One set per address family for receiving: the kernel leaves the sizes it used in them, which
//! are those of the next message only while the family stays the same.

use std::cell::RefCell;
use std::io::{IoSlice, IoSliceMut};
use std::net::{SocketAddr, SocketAddrV4, SocketAddrV6};

use arrayvec::ArrayVec;
use nix::errno::Errno;
use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, MultiHeaders, RecvMsg, SockaddrIn, SockaddrIn6, SockaddrLike,
    SockaddrStorage, recvmmsg, sendmmsg,
};
use nix::sys::time::TimeSpec;

use super::Departure;
use super::socket::Socket;
use crate::pool::PoolFrame;
use crate::port::{BURST_MAX, Frame};
use crate::probe::nanoseconds;

/// What the kernel says about a received payload.
#[derive(Clone, Copy, Debug)]
pub(super) struct Received {
    pub(super) source: Option<SocketAddr>,
    pub(super) payload_len: usize,
    /// The payload was longer than the frame.
    pub(super) truncated: bool,
    /// DSCP and ECN.
    pub(super) traffic_class: u8,
    /// When the kernel got it, by `CLOCK_REALTIME`; 0: it does not say.
    pub(super) arrived_ns: u64,
}

struct Headers {
    rx_ipv4: MultiHeaders<SockaddrIn>,
    rx_ipv6: MultiHeaders<SockaddrIn6>,
    tx: MultiHeaders<SockaddrStorage>,
}

impl Headers {
    fn new() -> Self {
        let class_space = || Some(nix::cmsg_space!(libc::c_int, TimeSpec));
        Self {
            rx_ipv4: MultiHeaders::preallocate(BURST_MAX, class_space()),
            rx_ipv6: MultiHeaders::preallocate(BURST_MAX, class_space()),
            tx: MultiHeaders::preallocate(BURST_MAX, None),
        }
    }
}

thread_local! {
    static HEADERS: RefCell<Headers> = RefCell::new(Headers::new());
}

/// Allocates this thread's message headers, if it has none yet.
pub(super) fn prepare_thread() {
    HEADERS.with_borrow(|_| ());
}

/// Receives payloads into `frames`, `header_len` bytes into each, and appends what the kernel says
/// about them to `received`, in the order of `frames`. Nothing there is no error.
pub(super) fn receive(
    socket: &Socket,
    frames: &mut [PoolFrame],
    header_len: usize,
    received: &mut ArrayVec<Received, BURST_MAX>,
) -> Result<(), Errno> {
    let outcome = HEADERS.with_borrow_mut(|headers| {
        if socket.addr().is_ipv4() {
            let source = |addr: SockaddrIn| SocketAddrV4::from(addr).into();
            receive_with(&mut headers.rx_ipv4, socket, frames, header_len, source, received)
        } else {
            // Without flow label and scope, so that it equals an address from a frame.
            let source =
                |addr: SockaddrIn6| (SocketAddrV6::from(addr).ip().to_owned(), addr.port());
            let source = |addr| source(addr).into();
            receive_with(&mut headers.rx_ipv6, socket, frames, header_len, source, received)
        }
    });
    match outcome {
        Err(Errno::EAGAIN | Errno::EINTR) => Ok(()),
        outcome => outcome,
    }
}

fn receive_with<S: SockaddrLike + Copy>(
    headers: &mut MultiHeaders<S>,
    socket: &Socket,
    frames: &mut [PoolFrame],
    header_len: usize,
    source: impl Fn(S) -> SocketAddr,
    received: &mut ArrayVec<Received, BURST_MAX>,
) -> Result<(), Errno> {
    let count = frames.len();
    let mut frames = frames.iter_mut();
    let mut slices: [_; BURST_MAX] = std::array::from_fn(|_| {
        let payload = frames.next().map_or(&mut [][..], |f| &mut f.buffer_mut()[header_len..]);
        [IoSliceMut::new(payload)]
    });
    let slices = slices.iter_mut().take(count);
    let messages = recvmmsg(socket.raw_fd(), headers, slices, MsgFlags::MSG_DONTWAIT, None)?;
    received.extend(messages.map(|message| {
        let (traffic_class, arrived_ns) = controls(&message);
        Received {
            source: message.address.map(&source),
            payload_len: message.bytes,
            truncated: message.flags.contains(MsgFlags::MSG_TRUNC),
            traffic_class,
            arrived_ns,
        }
    }));
    Ok(())
}

/// Traffic class, and when the kernel got the payload.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a class is one byte")]
fn controls<S>(message: &RecvMsg<'_, '_, S>) -> (u8, u64) {
    let (mut class, mut arrived_ns) = (0, 0);
    for control in message.cmsgs().into_iter().flatten() {
        match control {
            ControlMessageOwned::Ipv4Tos(byte) => class = byte,
            ControlMessageOwned::Ipv6TClass(word) => class = word as u8,
            ControlMessageOwned::ScmTimestampns(at) => arrived_ns = nanoseconds(at),
            _ => {}
        }
    }
    (class, arrived_ns)
}

/// Sends payloads; returns how many from the front left. An error concerns the first one.
pub(super) fn send<'a>(
    socket: &Socket,
    departures: impl Iterator<Item = (&'a Departure, &'a [u8])>,
) -> Result<usize, Errno> {
    let mut targets = [None; BURST_MAX];
    let mut slices = [[IoSlice::new(&[])]; BURST_MAX];
    let mut count = 0;
    for (departure, frame) in departures.take(BURST_MAX) {
        targets[count] = Some(SockaddrStorage::from(departure.target));
        slices[count] = [IoSlice::new(&frame[departure.payload.clone()])];
        count += 1;
    }
    HEADERS.with_borrow_mut(|headers| {
        let slices = slices.iter().take(count);
        let flags = MsgFlags::MSG_DONTWAIT;
        let sent = sendmmsg(socket.raw_fd(), &mut headers.tx, slices, targets, [], flags)?;
        Ok(sent.count())
    })
}

/// True when the same send may succeed later: it found no room.
pub(super) fn is_full(errno: Errno) -> bool {
    matches!(errno, Errno::EAGAIN | Errno::ENOBUFS | Errno::ENOMEM | Errno::EINTR)
}
