//! Notes when the datagrams of a train left the sender's interface, by the kernel's own stamps
//! (`SO_TIMESTAMPING`), which are taken behind the interface's queue. Decides nothing.
//!
//! Each datagram's stamp carries its number. Where the path goes on through this machine, as in a
//! lab, every interface on it stamps the datagram; the first stamp is the departure's.
//!
//! Invariant: what is waited for is bounded; an interface that does not stamp costs `SILENCE` a
//! train.

use std::cell::RefCell;
use std::io::IoSliceMut;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::socket::{
    CmsgIterator, ControlMessageOwned, MsgFlags, MultiHeaders, SockaddrStorage, TimestampingFlag,
    Timestamps, recvmmsg, setsockopt, sockopt,
};
use nix::sys::time::TimeSpec;

use super::{BATCH, ProbeError, ProbeSocket, nanoseconds};

/// A socket for trains whose departures are noted. It receives nothing.
#[derive(Debug)]
pub struct StampedSocket {
    inner: ProbeSocket,
    /// The kernel's number of the last train's first datagram, and of the next one.
    numbers: [u32; 2],
    /// By datagram of the last train; 0 for one that has not left.
    departed_ns: Vec<u64>,
    missing: usize,
}

thread_local! {
    /// Message headers to read stamps with: scratch space of a system call, tied to its thread.
    static HEADERS: RefCell<MultiHeaders<SockaddrStorage>> =
        RefCell::new(MultiHeaders::preallocate(
            BATCH,
            // The stamp, in both forms, and the error that it comes as.
            Some(nix::cmsg_space!(TimeSpec, Timestamps, [u8; 64])),
        ));
}

impl StampedSocket {
    /// Binds a socket as [`ProbeSocket::bind`] does.
    ///
    /// # Errors
    /// As there, or when the kernel knows no such stamps.
    pub fn bind(addr: SocketAddr, mtu: usize, nonce: u64) -> Result<Self, ProbeError> {
        let inner = ProbeSocket::bind(addr, mtu, nonce)?;
        let flags = TimestampingFlag::SOF_TIMESTAMPING_TX_SOFTWARE
            | TimestampingFlag::SOF_TIMESTAMPING_SOFTWARE
            | TimestampingFlag::SOF_TIMESTAMPING_OPT_TSONLY
            | TimestampingFlag::SOF_TIMESTAMPING_OPT_ID;
        setsockopt(&inner.inner, sockopt::Timestamping, &flags)
            .map_err(|errno| ProbeError::Open { addr, source: errno.into() })?;
        let departed_ns = Vec::with_capacity(usize::from(super::TRAIN_PACKETS_MAX));
        Ok(Self { inner, numbers: [0; 2], departed_ns, missing: 0 })
    }

    /// Length of the frame of each datagram of a train, Ethernet header included.
    #[must_use]
    pub fn frame_len(&self) -> u32 {
        self.inner.frame_len()
    }

    /// Sends a train as [`ProbeSocket::send_train`] does.
    ///
    /// # Errors
    /// When the kernel refuses even the first, or the socket is broken.
    pub fn send_train(
        &mut self,
        target: SocketAddr,
        train: u32,
        packets: u16,
    ) -> Result<u16, ProbeError> {
        let sent = self.inner.send_train(target, train, packets)?;
        let [_, first] = self.numbers;
        self.numbers = [first, first.wrapping_add(u32::from(sent))];
        self.missing = usize::from(sent);
        self.departed_ns.clear();
        self.departed_ns.resize(self.missing, 0);
        Ok(sent)
    }

    /// Waits until the last train has left: when each datagram did, in order, by `CLOCK_REALTIME`;
    /// none where the kernel does not tell of all of them.
    ///
    /// # Errors
    /// When the socket is broken.
    pub fn departures(&mut self) -> Result<&[u64], ProbeError> {
        self.read_stamps()?;
        while self.missing > 0 && self.wait()? {
            self.read_stamps()?;
        }
        let all = self.missing == 0 && self.departed_ns.is_sorted();
        Ok(if all { &self.departed_ns } else { &[] })
    }

    /// Waits for a stamp; false when none comes for a while.
    fn wait(&self) -> Result<bool, ProbeError> {
        // Stamps come as errors, which are always polled for.
        let mut fds = [PollFd::new(self.inner.inner.as_fd(), PollFlags::empty())];
        match ppoll(&mut fds, Some(TimeSpec::from_duration(SILENCE)), None) {
            Ok(ready) => Ok(ready > 0),
            Err(Errno::EINTR) => Ok(true),
            Err(errno) => Err(failed(errno)),
        }
    }

    /// Takes the stamps that have come.
    fn read_stamps(&mut self) -> Result<(), ProbeError> {
        let fd = self.inner.inner.as_raw_fd();
        let [first, _] = self.numbers;
        let (departed_ns, missing) = (&mut self.departed_ns, &mut self.missing);
        loop {
            let outcome = HEADERS.with_borrow_mut(|headers| {
                let mut nothing: [[IoSliceMut<'_>; 1]; BATCH] =
                    std::array::from_fn(|_| [IoSliceMut::new(&mut [])]);
                let flags = MsgFlags::MSG_ERRQUEUE | MsgFlags::MSG_DONTWAIT;
                for message in recvmmsg(fd, headers, nothing.iter_mut(), flags, None)? {
                    let Some((number, at_ns)) = message.cmsgs().ok().and_then(stamp) else {
                        continue;
                    };
                    let index = usize::try_from(number.wrapping_sub(first)).unwrap_or(usize::MAX);
                    // Of an earlier train, or of an interface further on.
                    if let Some(departed_ns @ 0) = departed_ns.get_mut(index) {
                        *departed_ns = at_ns;
                        *missing -= 1;
                    }
                }
                Ok(())
            });
            match outcome {
                Ok(()) | Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => return Ok(()),
                Err(errno) => return Err(failed(errno)),
            }
        }
    }
}

/// The number of a datagram, and when it passed an interface.
fn stamp(controls: CmsgIterator<'_>) -> Option<(u32, u64)> {
    let (mut number, mut at_ns) = (None, None);
    for control in controls {
        match control {
            ControlMessageOwned::ScmTimestampsns(stamps) => {
                at_ns = Some(nanoseconds(stamps.system))
            }
            ControlMessageOwned::Ipv4RecvErr(error, _)
            | ControlMessageOwned::Ipv6RecvErr(error, _) => {
                number = Some(error.ee_data);
            }
            _ => {}
        }
    }
    number.zip(at_ns)
}

fn failed(errno: Errno) -> ProbeError {
    ProbeError::Socket { attempt: "note the departures of", errno }
}

/// A train of which no stamp came for so long has left, or is not stamped.
const SILENCE: Duration = Duration::from_millis(50);
