//! The one seam between code that decides and hardware that moves frames.
//!
//! A [`Port`] hands out Ethernet frames in bursts and takes them back in bursts, as a DPDK port
//! does. The engines see only `&mut [u8]`; they never learn which port the bytes came from.
//! Wrappers (`Fault`, `Trace`, `Restamp`) are ports around ports.
//!
//! Invariants: a frame is owned by exactly one place (I7: no aliasing between what was received
//! and what is sent); nothing here blocks except [`Port::wait`]; a full transmit ring leaves the
//! unsent frames with the caller, who counts them as loss (PROTOCOL section 10).

use std::net::IpAddr;

use arrayvec::ArrayVec;
use weft_wire::{MacAddr, Nanos};

use crate::wake::Waker;

/// Frames per burst: a run of datagrams of 1 KiB fills a message of 64 KiB. A DPDK device gives 32
/// at once, testpmd's default.
pub const BURST_MAX: usize = 64;

/// Bytes after which a port that copies what it receives takes no more into a burst from a socket,
/// or from its rings: a core's cache keeps these until they have been handled. Of frames of 64 KiB
/// a whole burst would be several caches full.
pub(crate) const BURST_BYTES: u64 = 128 << 10;

/// Up to [`BURST_MAX`] frames, owned, in order.
pub type Burst<F> = ArrayVec<F, BURST_MAX>;

/// An owned buffer that holds one Ethernet frame (without FCS) in one contiguous piece.
///
/// `as_ref`/`as_mut` give the frame's bytes. Dropping a frame returns its buffer to its pool.
pub trait Frame: AsRef<[u8]> + AsMut<[u8]> {
    /// The whole writable buffer, of which the frame is a prefix.
    fn buffer_mut(&mut self) -> &mut [u8];

    /// Sets the frame's length in bytes.
    ///
    /// # Panics
    /// If `len` exceeds the buffer: a bug in Weft, never a consequence of network input.
    fn set_len(&mut self, len: usize);

    /// Asks a port that sends neighbours as one not to do so with this frame: how such frames
    /// arrive is measured (SPEC#transfer-trains). Off until it is asked for; ignored by default.
    fn keep_apart(&mut self, is_apart: bool) {
        let _ = is_apart;
    }

    /// Bytes of each datagram of a run, the last of which may be shorter: behind the headers of the
    /// first all of them follow each other ([`Port::join_runs`]). `None`: it is one datagram.
    fn datagram_len(&self) -> Option<usize> {
        None
    }

    /// Says that the frame is such a run. Ignored by default.
    fn set_datagram_len(&mut self, datagram_len: usize) {
        let _ = datagram_len;
    }

    /// When the port got the frame, on a clock of its own in nanoseconds, where it can tell better
    /// than by the time of the burst. By default it cannot.
    fn arrived_ns(&self) -> Option<u64> {
        None
    }
}

/// A source and sink of Ethernet frames. `now` is the caller's clock; wrappers use it for delays
/// and capture times, replay ports for pacing.
pub trait Port {
    /// The buffer type of this port.
    type Frame: Frame;

    /// Appends frames that have arrived, at most as many as `rx` has room for; returns how many.
    /// Never blocks. A port that is out of buffers counts [`PortStats::rx_nombuf`].
    fn rx_burst(&mut self, now: Nanos, rx: &mut Burst<Self::Frame>) -> usize;

    /// Sends frames from the front of `tx`; returns how many. Frames that were not accepted stay
    /// in `tx`, in order; the caller re-offers or drops them, never both.
    fn tx_burst(&mut self, now: Nanos, tx: &mut Burst<Self::Frame>) -> usize;

    /// An empty frame from the pool; `None` when the pool is exhausted (counted, I8).
    fn alloc(&mut self) -> Option<Self::Frame>;

    /// A second frame with the bytes of `frame`, whose first `header_len` bytes may be rewritten
    /// without changing `frame`. A port may share the rest, which neither owner may write again.
    fn copy(&mut self, frame: &Self::Frame, header_len: usize) -> Option<Self::Frame> {
        let _ = header_len;
        let mut copy = self.alloc()?;
        let bytes = frame.as_ref();
        copy.set_len(bytes.len());
        copy.as_mut().copy_from_slice(bytes);
        Some(copy)
    }

    /// True when a received frame that nobody needs any more may become a copy of another one of
    /// `frame_len` bytes: it came from this port's pool, and [`copy`](Self::copy) would copy all of
    /// it. Such a buffer is warm in cache and costs neither an allocation nor a release.
    fn recycles(&self, frame_len: usize) -> bool {
        let _ = frame_len;
        false
    }

    /// True when neighbours in a burst that go to one destination may leave as one: then it pays to
    /// offer what goes there together. By default they do not.
    fn merges(&self) -> bool {
        false
    }

    /// Asks for runs in one piece: what the kernel gives as one message may come as one frame from
    /// now on ([`Frame::datagram_len`]), or does no longer. Only asked of a port whose frames go
    /// straight to the caller. False where none ever comes so, as by default.
    fn join_runs(&mut self, is_on: bool) -> bool {
        let _ = is_on;
        false
    }

    /// An empty frame with room for a run, to be sent alone; `None` where the port takes none, or
    /// has not been asked for them.
    fn alloc_run(&mut self) -> Option<Self::Frame> {
        None
    }

    /// Returns frames to the pool, emptying `frames`; a port may do it in bulk.
    fn free(&mut self, frames: &mut Burst<Self::Frame>) {
        frames.clear();
    }

    /// What the port is: name, address, MTU.
    fn info(&self) -> PortInfo;

    /// Counters since the port was opened, in DPDK's words. May ask the kernel.
    fn stats(&self) -> PortStats;

    /// Bytes received and sent, as in [`stats`](Self::stats), for those who ask at every burst.
    fn carried(&self) -> (u64, u64) {
        let stats = self.stats();
        (stats.rx_bytes, stats.tx_bytes)
    }

    /// False once no further frame can ever arrive (end of a capture, peer gone).
    fn is_open(&self) -> bool {
        true
    }

    /// What this port knows of itself that would keep frames from passing, in words for people: who
    /// has ended a session for want of answers then says it. By default it knows nothing.
    fn complaint(&self) -> Option<String> {
        None
    }

    /// Where the multicast addresses of a box's rows begin, if the port knows: one that reaches a
    /// single box may have heard it there. By default it does not.
    fn multicast_base(&self) -> Option<IpAddr> {
        None
    }

    /// True when what is sent to this multicast address comes in here, as far as the port and its
    /// host are concerned. By default nothing does.
    fn hears(&self, group: IpAddr) -> bool {
        let _ = group;
        false
    }

    /// Sleeps until a frame may have arrived or `timeout_ns` has passed. Idle back-off only:
    /// returning early, or always at the timeout, is correct.
    fn wait(&mut self, timeout_ns: u64) {
        std::thread::sleep(std::time::Duration::from_nanos(timeout_ns));
    }

    /// What ends a [`wait`](Self::wait) from another thread; `None` where nothing does, as by
    /// default.
    fn waker(&mut self) -> Option<Waker> {
        None
    }
}

/// Writes the methods of [`Port`] that a port around another leaves to it: its field, then any of
/// all methods but the two bursts.
///
/// ```
/// use weft_io::{Burst, Port, forward_port};
/// use weft_wire::Nanos;
///
/// struct Counted<P> {
///     port: P,
///     offered: usize,
/// }
///
/// impl<P: Port> Port for Counted<P> {
///     type Frame = P::Frame;
///
///     fn rx_burst(&mut self, now: Nanos, rx: &mut Burst<P::Frame>) -> usize {
///         self.port.rx_burst(now, rx)
///     }
///
///     fn tx_burst(&mut self, now: Nanos, tx: &mut Burst<P::Frame>) -> usize {
///         self.offered += tx.len();
///         self.port.tx_burst(now, tx)
///     }
///
///     forward_port!(port: alloc, copy, recycles, free, info, stats, carried, is_open);
///     forward_port!(port: wait, waker);
/// }
/// ```
#[macro_export]
macro_rules! forward_port {
    (@ $port:ident alloc) => {
        fn alloc(&mut self) -> Option<Self::Frame> {
            self.$port.alloc()
        }
    };
    (@ $port:ident copy) => {
        fn copy(&mut self, frame: &Self::Frame, header_len: usize) -> Option<Self::Frame> {
            self.$port.copy(frame, header_len)
        }
    };
    (@ $port:ident recycles) => {
        fn recycles(&self, frame_len: usize) -> bool {
            self.$port.recycles(frame_len)
        }
    };
    (@ $port:ident multicast_base) => {
        fn multicast_base(&self) -> Option<std::net::IpAddr> {
            self.$port.multicast_base()
        }
    };
    (@ $port:ident hears) => {
        fn hears(&self, group: std::net::IpAddr) -> bool {
            self.$port.hears(group)
        }
    };
    (@ $port:ident merges) => {
        fn merges(&self) -> bool {
            self.$port.merges()
        }
    };
    (@ $port:ident free) => {
        fn free(&mut self, frames: &mut $crate::Burst<Self::Frame>) {
            self.$port.free(frames);
        }
    };
    (@ $port:ident info) => {
        fn info(&self) -> $crate::PortInfo {
            self.$port.info()
        }
    };
    (@ $port:ident stats) => {
        fn stats(&self) -> $crate::PortStats {
            self.$port.stats()
        }
    };
    (@ $port:ident carried) => {
        fn carried(&self) -> (u64, u64) {
            self.$port.carried()
        }
    };
    (@ $port:ident waker) => {
        fn waker(&mut self) -> Option<$crate::Waker> {
            self.$port.waker()
        }
    };
    (@ $port:ident complaint) => {
        fn complaint(&self) -> Option<String> {
            self.$port.complaint()
        }
    };
    (@ $port:ident is_open) => {
        fn is_open(&self) -> bool {
            self.$port.is_open()
        }
    };
    (@ $port:ident wait) => {
        fn wait(&mut self, timeout_ns: u64) {
            self.$port.wait(timeout_ns);
        }
    };
    ($port:ident: $($method:ident),+) => {
        $($crate::forward_port!(@ $port $method);)+
    };
}

/// What a port is.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct PortInfo {
    /// Name for people and labels: the device, socket address or file.
    pub name: String,
    /// `memory`, `pcap`, `udp`, `af_packet`, or the DPDK driver such as `net_memif`.
    pub driver: String,
    /// The port's own Ethernet address.
    pub mac: MacAddr,
    /// Largest IP packet in bytes (1500 on plain Ethernet), so a frame is at most `mtu + 14`.
    pub mtu: usize,
}

/// Counters of a port, named as in `rte_eth_stats`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct PortStats {
    /// Frames received.
    pub rx_packets: u64,
    /// Bytes received, Ethernet header included, FCS not.
    pub rx_bytes: u64,
    /// Frames lost because the receive ring or socket buffer was full.
    pub rx_missed: u64,
    /// Frames that the port refused: bad length, error from the driver or the kernel.
    pub rx_errors: u64,
    /// Frames lost because the pool had no buffer.
    pub rx_nombuf: u64,
    /// Frames sent.
    pub tx_packets: u64,
    /// Bytes sent, Ethernet header included, FCS not.
    pub tx_bytes: u64,
    /// Frames that the driver or the kernel failed to send.
    pub tx_errors: u64,
    /// Runs of frames that the kernel refused to cut; their frames left one by one.
    pub tx_runs_refused: u64,
}

impl PortStats {
    /// The sum of two ports' counters.
    pub(crate) const fn plus(self, other: Self) -> Self {
        Self {
            rx_packets: self.rx_packets + other.rx_packets,
            rx_bytes: self.rx_bytes + other.rx_bytes,
            rx_missed: self.rx_missed + other.rx_missed,
            rx_errors: self.rx_errors + other.rx_errors,
            rx_nombuf: self.rx_nombuf + other.rx_nombuf,
            tx_packets: self.tx_packets + other.tx_packets,
            tx_bytes: self.tx_bytes + other.tx_bytes,
            tx_errors: self.tx_errors + other.tx_errors,
            tx_runs_refused: self.tx_runs_refused + other.tx_runs_refused,
        }
    }

    /// Counts a received frame into `rx`, which has room, or an unusable one; returns how many.
    #[inline]
    pub(crate) fn take<F: Frame>(&mut self, frame: Option<F>, rx: &mut Burst<F>) -> usize {
        let Some(frame) = frame else {
            self.rx_errors += 1;
            return 0;
        };
        self.rx_packets += 1;
        self.rx_bytes += frame.as_ref().len() as u64;
        rx.push(frame);
        1
    }
}
