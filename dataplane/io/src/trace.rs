//! A capture of what a port saw: every frame received, every frame that the port took to send.
//!
//! Nanosecond pcap with times from `now`, so a run in virtual time gives the same bytes each time
//! (I10). Inside a `Fault` it shows the wire, outside what the engine met. A refused frame is
//! written when it leaves, once. Nothing allocates per burst if the writer does not; a writer that
//! fails never disturbs the port ([`TraceCounts::errors`]). A capture with a largest size holds
//! what came until the first frame without room, and nothing after it ([`TraceCounts::cut`]).

use std::io::{self, Write};

use arrayvec::ArrayVec;
use weft_wire::Nanos;
use weft_wire::frame::ETHERNET_LEN;

use crate::forward_port;
use crate::pcap::{HEADER_LEN, PcapWriter, RECORD_LEN};
use crate::port::{BURST_MAX, Burst, Port};

/// A port with a capture of its frames.
#[derive(Debug)]
pub struct Trace<P: Port, W: Write> {
    port: P,
    log: Log<W>,
    clock_origin: Nanos,
    /// Bytes of the frames on offer, for those that leave are gone when that is known.
    staged: Vec<u8>,
    frame_len_max: usize,
}

/// What a capture holds, and what it lacks.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct TraceCounts {
    /// Frames written.
    pub frames: u64,
    /// Bytes of the capture.
    pub bytes: u64,
    /// Frames that came when there was no room any more.
    pub cut: u64,
    /// Frames that are missing because the output failed or the frame was longer than the port's
    /// MTU allows.
    pub errors: u64,
}

impl<P: Port, W: Write> Trace<P, W> {
    /// Wraps `port` and starts a capture. `clock_origin` is added to the caller's clock, to show
    /// dates: the Unix time of the clock's origin, or 0.
    ///
    /// # Errors
    /// What `output` says to the file header.
    pub fn new(port: P, output: W, clock_origin: Nanos) -> io::Result<Self> {
        let frame_len_max = port.info().mtu + ETHERNET_LEN;
        Ok(Self {
            port,
            log: Log {
                writer: PcapWriter::new(output)?,
                counts: TraceCounts { bytes: HEADER_LEN, ..TraceCounts::default() },
                bytes_max: u64::MAX,
            },
            clock_origin,
            staged: Vec::with_capacity(BURST_MAX * frame_len_max),
            frame_len_max,
        })
    }

    /// Limits the capture's size.
    #[must_use]
    pub fn with_bytes_max(mut self, bytes_max: u64) -> Self {
        self.log.bytes_max = bytes_max;
        self
    }

    /// The wrapped port.
    pub fn port(&self) -> &P {
        &self.port
    }

    /// What the capture holds so far.
    #[must_use]
    pub fn counts(&self) -> TraceCounts {
        self.log.counts
    }

    /// Completes the capture and gives port and output back.
    ///
    /// # Errors
    /// What the output says.
    pub fn finish(self) -> io::Result<(P, W)> {
        Ok((self.port, self.log.writer.finish()?))
    }
}

impl<P: Port, W: Write> Port for Trace<P, W> {
    type Frame = P::Frame;

    fn rx_burst(&mut self, now: Nanos, rx: &mut Burst<P::Frame>) -> usize {
        let before = rx.len();
        let count = self.port.rx_burst(now, rx);
        let at = self.clock_origin.saturating_add(now);
        for frame in &rx[before..] {
            self.log.note(at, Some(frame.as_ref()));
        }
        count
    }

    fn tx_burst(&mut self, now: Nanos, tx: &mut Burst<P::Frame>) -> usize {
        self.staged.clear();
        let mut offers: ArrayVec<Offer, BURST_MAX> = ArrayVec::new();
        for frame in tx.iter() {
            let bytes = frame.as_ref();
            let start = self.staged.len();
            let whole = bytes.len() <= self.frame_len_max;
            self.staged.extend_from_slice(if whole { bytes } else { &[] });
            offers.push(Offer {
                address: bytes.as_ptr().addr(),
                start,
                end: self.staged.len(),
                whole,
            });
        }
        let count = self.port.tx_burst(now, tx);
        let at = self.clock_origin.saturating_add(now);
        // What was refused is still in `tx`, at the same address.
        let mut refused = tx.iter().map(|frame| frame.as_ref().as_ptr().addr()).peekable();
        for offer in offers {
            if refused.next_if_eq(&offer.address).is_some() {
                continue;
            }
            self.log.note(at, offer.whole.then(|| &self.staged[offer.start..offer.end]));
        }
        count
    }

    forward_port!(port: alloc, copy, recycles, free, info, stats, carried, is_open, wait, waker);
    forward_port!(port: merges, multicast_base, hears, complaint);
}

/// The capture and what is in it.
#[derive(Debug)]
struct Log<W: Write> {
    writer: PcapWriter<W>,
    counts: TraceCounts,
    bytes_max: u64,
}

impl<W: Write> Log<W> {
    /// Takes in a frame; `None` for one that could not be kept whole.
    fn note(&mut self, at: Nanos, frame: Option<&[u8]>) {
        let counts = &mut self.counts;
        let len = frame.map_or(0, |frame| RECORD_LEN + frame.len() as u64);
        // After the first that is left out there is none, short as it may be.
        if counts.cut > 0 || counts.bytes.saturating_add(len) > self.bytes_max {
            counts.cut += 1;
            return;
        }
        match frame.map(|frame| self.writer.write(at, frame)) {
            Some(Ok(())) => {
                counts.frames += 1;
                counts.bytes += len;
            }
            Some(Err(_)) | None => counts.errors += 1,
        }
    }
}

/// A frame that the port may or may not take.
#[derive(Debug)]
struct Offer {
    address: usize,
    start: usize,
    end: usize,
    whole: bool,
}
