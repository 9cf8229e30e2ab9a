//! `recvmmsg`, `recvmsg` and `sendmmsg` through nix, without allocation per burst.
//!
//! The message headers are scratch space between two system calls. They live per thread and not in
//! the port because they hold raw pointers, which would tie a port to the thread that opened it.
//! One set per address family for receiving: the kernel leaves the sizes it used in them, which
//! are those of the next message only while the family stays the same, and while all messages
//! carry the same control messages. A merged one has one more, so where datagrams may be merged
//! they are received one message at a time.

use std::cell::RefCell;
use std::io::{IoSlice, IoSliceMut};
use std::net::{SocketAddr, SocketAddrV4, SocketAddrV6};

use arrayvec::ArrayVec;
use nix::errno::Errno;
use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, MsgFlags, MultiHeaders, RecvMsg, SockaddrIn, SockaddrIn6,
    SockaddrLike, SockaddrStorage, recvmmsg, recvmsg, sendmmsg,
};
use nix::sys::time::TimeSpec;

use super::receive::SEGMENTS_MAX;
use super::runs::Call;
use super::socket::Socket;
use super::transmit::Departure;
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

impl Received {
    pub(super) const NOTHING: Self =
        Self { source: None, payload_len: 0, truncated: false, traffic_class: 0, arrived_ns: 0 };
}

struct Headers {
    rx_ipv4: MultiHeaders<SockaddrIn>,
    rx_ipv6: MultiHeaders<SockaddrIn6>,
    tx: MultiHeaders<SockaddrStorage>,
    tx_runs: MultiHeaders<SockaddrStorage>,
    controls: Box<[u8]>,
}

impl Headers {
    fn new() -> Self {
        let class_space = || Some(nix::cmsg_space!(libc::c_int, TimeSpec));
        Self {
            rx_ipv4: MultiHeaders::preallocate(BURST_MAX, class_space()),
            rx_ipv6: MultiHeaders::preallocate(BURST_MAX, class_space()),
            tx: MultiHeaders::preallocate(BURST_MAX, None),
            tx_runs: MultiHeaders::preallocate(BURST_MAX, Some(nix::cmsg_space!(u16))),
            controls: vec![0; nix::cmsg_space!(libc::c_int, TimeSpec, libc::c_int).capacity()]
                .into_boxed_slice(),
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
            let headers = &mut headers.rx_ipv4;
            receive_with(headers, socket, frames, header_len, source_ipv4, received)
        } else {
            let headers = &mut headers.rx_ipv6;
            receive_with(headers, socket, frames, header_len, source_ipv6, received)
        }
    });
    match outcome {
        Err(Errno::EAGAIN | Errno::EINTR) => Ok(()),
        outcome => outcome,
    }
}

fn source_ipv4(addr: SockaddrIn) -> SocketAddr {
    SocketAddrV4::from(addr).into()
}

/// Without flow label and scope, so that it equals an address from a frame.
fn source_ipv6(addr: SockaddrIn6) -> SocketAddr {
    (SocketAddrV6::from(addr).ip().to_owned(), addr.port()).into()
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
    received.extend(messages.map(|message| read(&message, &source).0));
    Ok(())
}

/// Receives one message: `segment_len` bytes of it into each of `frames`, `header_len` bytes into
/// each, and what is longer into `rest`, from the index on at which it lies in the message. Returns
/// what the kernel says about it and the length of its datagrams, of which the last may be shorter;
/// `None` when there is none.
pub(super) fn receive_one(
    socket: &Socket,
    frames: &mut [PoolFrame],
    header_len: usize,
    segment_len: usize,
    rest: &mut [u8],
) -> Result<Option<(Received, usize)>, Errno> {
    let in_frames = frames.len() * segment_len;
    let mut slices: ArrayVec<IoSliceMut<'_>, { SEGMENTS_MAX + 1 }> = frames
        .iter_mut()
        .map(|frame| IoSliceMut::new(&mut frame.buffer_mut()[header_len..][..segment_len]))
        .collect();
    if let Some(rest) = rest.get_mut(in_frames..) {
        slices.push(IoSliceMut::new(rest));
    }
    let slices = &mut slices[..];
    let outcome = HEADERS.with_borrow_mut(|headers| {
        let (fd, controls) = (socket.raw_fd(), Some(&mut headers.controls[..]));
        if socket.addr().is_ipv4() {
            let message = recvmsg(fd, slices, controls, MsgFlags::MSG_DONTWAIT)?;
            Ok(read(&message, source_ipv4))
        } else {
            let message = recvmsg(fd, slices, controls, MsgFlags::MSG_DONTWAIT)?;
            Ok(read(&message, source_ipv6))
        }
    });
    match outcome {
        Err(Errno::EAGAIN | Errno::EINTR) => Ok(None),
        outcome => outcome.map(Some),
    }
}

/// What the kernel says about a message, and the length of its datagrams.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a class is one byte")]
fn read<S: Copy>(
    message: &RecvMsg<'_, '_, S>,
    source: impl Fn(S) -> SocketAddr,
) -> (Received, usize) {
    let (mut class, mut arrived_ns, mut segment_len) = (0, 0, 0);
    for control in message.cmsgs().into_iter().flatten() {
        match control {
            ControlMessageOwned::Ipv4Tos(byte) => class = byte,
            ControlMessageOwned::Ipv6TClass(word) => class = word as u8,
            ControlMessageOwned::ScmTimestampns(at) => arrived_ns = nanoseconds(at),
            ControlMessageOwned::UdpGroSegments(len) => {
                segment_len = usize::try_from(len).unwrap_or(0);
            }
            _ => {}
        }
    }
    let received = Received {
        source: message.address.map(source),
        payload_len: message.bytes,
        truncated: message.flags.contains(MsgFlags::MSG_TRUNC),
        traffic_class: class,
        arrived_ns,
    };
    let segment_len = if segment_len == 0 { message.bytes } else { segment_len.min(message.bytes) };
    (received, segment_len)
}

/// Sends the messages of `call`, which `departures` begin with; returns how many from the front
/// left. An error concerns the first one.
pub(super) fn send<'a>(
    socket: &Socket,
    mut departures: impl Iterator<Item = (&'a Departure, &'a [u8])>,
    call: &Call,
) -> Result<usize, Errno> {
    let mut targets: ArrayVec<_, BURST_MAX> = ArrayVec::new();
    let mut slices: ArrayVec<_, BURST_MAX> = ArrayVec::new();
    for run in &call.runs {
        for (index, (departure, frame)) in departures.by_ref().take(usize::from(*run)).enumerate() {
            if index == 0 {
                targets.push(Some(SockaddrStorage::from(departure.target)));
            }
            slices.push(IoSlice::new(&frame[departure.payload.clone()]));
        }
    }
    let mut left = &slices[..];
    let mut messages: ArrayVec<&[IoSlice<'_>], BURST_MAX> = ArrayVec::new();
    for run in &call.runs {
        let (message, others) = left.split_at(usize::from(*run));
        messages.push(message);
        left = others;
    }
    let (fd, flags) = (socket.raw_fd(), MsgFlags::MSG_DONTWAIT);
    HEADERS.with_borrow_mut(|headers| {
        let sent = match &call.segment_len {
            None => sendmmsg(fd, &mut headers.tx, &messages, &targets, [], flags)?,
            Some(segment_len) => {
                let controls = [ControlMessage::UdpGsoSegments(segment_len)];
                sendmmsg(fd, &mut headers.tx_runs, &messages, &targets, controls, flags)?
            }
        };
        Ok(sent.count())
    })
}

/// True when the same send may succeed later: it found no room.
pub(super) fn is_full(errno: Errno) -> bool {
    matches!(errno, Errno::EAGAIN | Errno::ENOBUFS | Errno::ENOMEM | Errno::EINTR)
}
