//! Notes when the datagrams of a train left the sender's interface, by the kernel's own stamps
//! (`SO_TIMESTAMPING`), which are taken behind the interface's queue. Decides nothing.
//!
//! Invariant: what is waited for is bounded; an interface that does not stamp costs
//! [`SILENCE`] a train.

use std::cell::RefCell;
use std::io::IoSliceMut;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, MultiHeaders, SockaddrStorage, TimestampingFlag, Timestamps,
    recvmmsg, setsockopt, sockopt,
};
use nix::sys::time::TimeSpec;

use super::{BATCH, ProbeError, ProbeSocket, nanoseconds};

/// A socket for trains whose departures are noted. It receives nothing.
#[derive(Debug)]
pub struct StampedSocket {
    inner: ProbeSocket,
    departed_ns: Vec<u64>,
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
            | TimestampingFlag::SOF_TIMESTAMPING_OPT_TSONLY;
        setsockopt(&inner.inner, sockopt::Timestamping, &flags)
            .map_err(|errno| ProbeError::Open { addr, source: errno.into() })?;
        let departed_ns = Vec::with_capacity(usize::from(super::TRAIN_PACKETS_MAX));
        Ok(Self { inner, departed_ns })
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
        // Stamps of a train that was given up may have come since.
        self.read_stamps()?;
        self.departed_ns.clear();
        self.inner.send_train(target, train, packets)
    }

    /// Waits until the `sent` datagrams of the last train have left: when each did, in order, by
    /// `CLOCK_REALTIME`; fewer where the kernel does not tell.
    ///
    /// # Errors
    /// When the socket is broken.
    pub fn departures(&mut self, sent: u16) -> Result<&[u64], ProbeError> {
        self.read_stamps()?;
        while self.departed_ns.len() < usize::from(sent) && self.wait()? {
            self.read_stamps()?;
        }
        self.departed_ns.sort_unstable();
        Ok(&self.departed_ns)
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
        let departed_ns = &mut self.departed_ns;
        loop {
            let outcome = HEADERS.with_borrow_mut(|headers| {
                let mut nothing: [[IoSliceMut<'_>; 1]; BATCH] =
                    std::array::from_fn(|_| [IoSliceMut::new(&mut [])]);
                let flags = MsgFlags::MSG_ERRQUEUE | MsgFlags::MSG_DONTWAIT;
                let messages = recvmmsg(fd, headers, nothing.iter_mut(), flags, None)?;
                for message in messages {
                    let stamp = message.cmsgs().ok().and_then(|mut controls| {
                        controls.find_map(|control| match control {
                            ControlMessageOwned::ScmTimestampsns(stamps) => Some(stamps.system),
                            _ => None,
                        })
                    });
                    if departed_ns.len() < departed_ns.capacity() {
                        departed_ns.extend(stamp.map(nanoseconds));
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

fn failed(errno: Errno) -> ProbeError {
    ProbeError::Socket { attempt: "note the departures of", errno }
}

/// A train of which no stamp came for so long has left, or is not stamped.
const SILENCE: Duration = Duration::from_millis(50);
