//! Sends a burst: which frames cross the kernel as one packet, and what becomes of those that it
//! refuses.
//!
//! Nothing of a frame is copied but the headers of a run's first: a packet is gathered from a
//! header for the kernel, these headers with the lengths of all, and the payloads where they lie.

use std::io::{self, IoSlice, Write as _};

use arrayvec::ArrayVec;
use nix::errno::Errno;
use weft_wire::Nanos;
use weft_wire::frame::{Datagram, ETHERNET_LEN, run};

use super::sys::PacketSocket;
use super::vnet::{HEADERS_LEN_MAX, VNET_LEN, VnetHeader};
use crate::pool::PoolFrame;
use crate::port::{BURST_MAX, Burst, PortStats};
use crate::runs::{Leaving, Run, Segmentation};

/// The sending half of a port.
#[derive(Debug)]
pub(super) struct Sender {
    socket: PacketSocket,
    mtu: usize,
    /// For people.
    interface: String,
    /// The kernel reads a header in front of each packet.
    has_vnet: bool,
    segmentation: Segmentation,
    /// Frames pass the queueing discipline by. A device that cannot cut a run then makes the kernel
    /// drop it, with an error that says the same as a full ring.
    is_direct: bool,
    /// Why a run failed whose frames are tried one by one now.
    doubt: Option<Errno>,
    /// Runs that found no room in a row while their frames did.
    doubts: u8,
}

/// Runs that may find no room in a row before they are given up: a full ring is not that unlucky.
const DOUBTS_MAX: u8 = 8;

/// A frame that is to leave.
struct Departure<'a> {
    frame: &'a [u8],
    header_len: usize,
    payload_len: usize,
    is_apart: bool,
}

impl Leaving for Departure<'_> {
    fn payload_len(&self) -> usize {
        self.payload_len
    }

    fn is_apart(&self) -> bool {
        self.is_apart
    }

    fn goes_with(&self, other: &Self) -> bool {
        self.header_len == other.header_len
            && run::are_alike(self.frame, other.frame, self.header_len)
    }
}

impl Sender {
    pub(super) fn new(
        socket: PacketSocket,
        interface: &str,
        mtu: usize,
        has_vnet: bool,
        is_direct: bool,
    ) -> Self {
        let (doubt, doubts, segmentation) = (None, 0, Segmentation::new(has_vnet));
        let interface = interface.to_owned();
        Self { socket, mtu, interface, has_vnet, segmentation, is_direct, doubt, doubts }
    }

    /// True while the kernel takes runs.
    pub(super) fn takes_runs(&self, now: Nanos) -> bool {
        self.segmentation.takes_runs(now)
    }

    /// Sends frames from the front of `tx`, and has `done` take those that left or never will.
    pub(super) fn transmit(
        &mut self,
        now: Nanos,
        tx: &mut Burst<PoolFrame>,
        stats: &mut PortStats,
        mut done: impl FnMut(PoolFrame),
    ) -> usize {
        let offered = tx.len();
        while !tx.is_empty() {
            let sent = if self.has_vnet { self.send(now, tx, stats) } else { self.socket.send(tx) };
            match sent {
                Ok(0) => break,
                Ok(sent) => {
                    for frame in tx.drain(..sent) {
                        stats.tx_packets += 1;
                        stats.tx_bytes += frame.as_ref().len() as u64;
                        done(frame);
                    }
                }
                Err(errno) if is_full(errno) => break,
                // Too long, too short, interface down: this one frame will never leave.
                Err(_) => {
                    stats.tx_errors += 1;
                    done(tx.remove(0));
                }
            }
        }
        offered - tx.len()
    }

    /// As [`PacketSocket::send`], with runs as one packet each.
    fn send(
        &mut self,
        now: Nanos,
        frames: &[PoolFrame],
        stats: &mut PortStats,
    ) -> Result<usize, Errno> {
        let takes_runs = self.takes_runs(now) && self.doubt.is_none();
        let departures: ArrayVec<Departure<'_>, BURST_MAX> =
            frames.iter().map(|frame| plan(frame, self.mtu)).collect();
        let runs = group(&departures, takes_runs);
        let first_run = runs.first().map_or(0, Run::frames);
        match gather(&self.socket, &departures, &runs) {
            Ok(messages) => {
                if messages > 0 {
                    let is_refused = self.resolve(now, first_run > 1);
                    stats.tx_runs_refused += u64::from(is_refused);
                }
                Ok(runs.iter().take(messages).map(Run::frames).sum())
            }
            Err(errno) if first_run > 1 && (!is_full(errno) || self.is_lost(errno)) => {
                self.doubt = Some(errno);
                self.send(now, frames, stats)
            }
            Err(errno) => {
                if !is_full(errno) {
                    self.doubt = None;
                }
                Err(errno)
            }
        }
    }

    /// The kernel may have dropped the run because the device cannot cut it.
    fn is_lost(&self, errno: Errno) -> bool {
        self.is_direct && errno == Errno::ENOBUFS
    }

    /// A packet has left: a run, or the first frame of one that failed. True when runs count as
    /// refused by that.
    fn resolve(&mut self, now: Nanos, is_run: bool) -> bool {
        if is_run {
            self.doubts = 0;
            self.segmentation.accept();
        }
        let Some(errno) = self.doubt.take() else { return false };
        self.doubts += 1;
        let is_refused = !self.is_lost(errno) || self.doubts >= DOUBTS_MAX;
        if is_refused {
            self.refuse_runs(now, errno);
        }
        is_refused
    }

    fn refuse_runs(&mut self, now: Nanos, errno: Errno) {
        self.doubts = 0;
        let pause_s = self.segmentation.refuse(now).0 / 1_000_000_000;
        let interface = &self.interface;
        // Whoever read standard error may have gone: that is no reason to end.
        let _ = writeln!(
            io::stderr(),
            "weft: AF_PACKET port {interface} sends frames one by one for {pause_s} s: no \
             segmentation ({errno})"
        );
    }
}

/// Where a frame's payload lies, and whether it may be in a run.
fn plan(frame: &PoolFrame, mtu: usize) -> Departure<'_> {
    let is_asked = frame.is_apart();
    let frame = frame.as_ref();
    let apart = Departure { frame, header_len: 0, payload_len: 0, is_apart: true };
    let Ok(datagram) = Datagram::find(frame) else { return apart };
    let (header_len, payload_len) = (datagram.payload_start(), datagram.payload_len());
    // Over IPv4 a checksum is the sender's wish to have it kept; over IPv6 all have one.
    let is_kept = !datagram.is_ipv6() && frame[header_len - 2..header_len] != [0, 0];
    let fits = frame.len() == header_len + payload_len && frame.len() <= mtu + ETHERNET_LEN;
    Departure { frame, header_len, payload_len, is_apart: is_asked || is_kept || !fits }
}

/// The packets that frames leave as.
fn group<'a, 'b>(
    departures: &'b [Departure<'a>],
    takes_runs: bool,
) -> ArrayVec<Run<'b, Departure<'a>>, BURST_MAX> {
    let mut left = departures.iter().peekable();
    let mut runs = ArrayVec::new();
    while let Some(first) = left.next() {
        let mut run = Run::begin(first);
        while takes_runs && left.next_if(|next| run.take(next)).is_some() {}
        runs.push(run);
    }
    runs
}

/// Sends packets; returns how many from the front left. An error concerns the first one.
fn gather(
    socket: &PacketSocket,
    departures: &[Departure<'_>],
    runs: &[Run<'_, Departure<'_>>],
) -> Result<usize, Errno> {
    let mut heads: ArrayVec<([u8; VNET_LEN], [u8; HEADERS_LEN_MAX]), BURST_MAX> = ArrayVec::new();
    let mut left = departures.iter();
    for run in runs {
        let Some(first) = left.by_ref().take(run.frames()).reduce(|first, _| first) else { break };
        let mut headers = [0; HEADERS_LEN_MAX];
        let mut vnet = VnetHeader::PLAIN;
        if run.frames() > 1 {
            let headers = &mut headers[..first.header_len];
            headers.copy_from_slice(&first.frame[..first.header_len]);
            run::set_payload_len(headers, run.bytes());
            run::leave_checksum(headers);
            vnet = VnetHeader::of_run(first.header_len, run.segment_len());
        }
        heads.push((vnet, headers));
    }
    let mut parts: ArrayVec<IoSlice<'_>, { PARTS_MAX }> = ArrayVec::new();
    let mut counts: ArrayVec<usize, BURST_MAX> = ArrayVec::new();
    let mut left = departures.iter();
    for (run, (vnet, headers)) in runs.iter().zip(&heads) {
        let before = parts.len();
        parts.push(IoSlice::new(vnet));
        for (index, departure) in left.by_ref().take(run.frames()).enumerate() {
            if run.frames() == 1 {
                parts.push(IoSlice::new(departure.frame));
                continue;
            }
            if index == 0 {
                parts.push(IoSlice::new(&headers[..departure.header_len]));
            }
            parts.push(IoSlice::new(&departure.frame[departure.header_len..]));
        }
        counts.push(parts.len() - before);
    }
    socket.send_gathered(&parts, &counts)
}

/// True when the same send may succeed later: it found no room.
fn is_full(errno: Errno) -> bool {
    matches!(errno, Errno::EAGAIN | Errno::ENOBUFS | Errno::ENOMEM | Errno::EINTR)
}

/// Most pieces of a burst: two of a single frame, and two more than its frames of a run.
const PARTS_MAX: usize = 2 * BURST_MAX;

#[cfg(test)]
mod tests;
