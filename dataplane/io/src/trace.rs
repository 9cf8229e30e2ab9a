//! A capture of what a port saw: every frame received, every frame that the port took to send.
//!
//! Nanosecond pcap with times from `now`, so a run in virtual time gives the same bytes each time
//! (I10). Inside a `Fault` it shows the wire, outside what the engine met. A refused frame is
//! written when it leaves, once. Nothing allocates per burst if the output does not. A burst's
//! frames go to the output together, and count once they are there. An output that fails never
//! disturbs the port: the capture ends there, which is said once, and what came after it counts as
//! missing ([`TraceCounts::errors`]). A capture with a largest size holds what came until the first
//! frame without room, and nothing after it ([`TraceCounts::cut`]).

use std::fmt;
use std::io::{self, Write};

use arrayvec::ArrayVec;
use weft_wire::Nanos;
use weft_wire::frame::ETHERNET_LEN;

use crate::forward_port;
use crate::pcap::{HEADER_LEN, PcapWriter, RECORD_LEN, record_len};
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
    /// Whole frames that the output took.
    pub frames: u64,
    /// Bytes of the capture up to the last of them.
    pub bytes: u64,
    /// Frames that came when there was no room any more.
    pub cut: u64,
    /// Frames that are missing because the output failed then or before, or the frame was longer
    /// than the port's MTU allows.
    pub errors: u64,
}

/// Is told what the output of a capture says, and the bytes up to the last whole frame.
pub trait Warn: FnOnce(&io::Error, u64) + Send {}

impl<F: FnOnce(&io::Error, u64) + Send> Warn for F {}

impl<P: Port, W: Write> Trace<P, W> {
    /// Wraps `port` and starts a capture. `clock_origin` is added to the caller's clock, to show
    /// dates: the Unix time of the clock's origin, or 0.
    ///
    /// # Errors
    /// What `output` says to the file header.
    pub fn new(port: P, mut output: W, clock_origin: Nanos) -> io::Result<Self> {
        let frame_len_max = port.info().mtu + ETHERNET_LEN;
        let burst_len_max = BURST_MAX * (RECORD_LEN + frame_len_max);
        let mut burst = PcapWriter::new(Vec::with_capacity(burst_len_max))?;
        output.write_all(burst.output_mut())?;
        output.flush()?;
        burst.output_mut().clear();
        Ok(Self {
            port,
            log: Log {
                output,
                burst,
                counts: TraceCounts { bytes: HEADER_LEN, ..TraceCounts::default() },
                bytes_max: u64::MAX,
                has_failed: false,
                warning: None,
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

    /// Has `warn` called when the output fails, once, with what it says and the bytes of the
    /// capture up to its last whole frame.
    #[must_use]
    pub fn with_warning(mut self, warn: impl Warn + 'static) -> Self {
        self.log.warning = Some(Warning(Box::new(warn)));
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
        let Log { mut output, .. } = self.log;
        output.flush()?;
        Ok((self.port, output))
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
        self.log.write_out();
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
        self.log.write_out();
        count
    }

    forward_port!(port: alloc, copy, recycles, free, info, stats, carried, is_open, wait, waker);
    forward_port!(port: merges, multicast_base, hears, complaint);
}

/// The capture and what is in it.
#[derive(Debug)]
struct Log<W: Write> {
    output: W,
    /// Records on their way to it: those of one burst.
    burst: PcapWriter<Vec<u8>>,
    counts: TraceCounts,
    bytes_max: u64,
    has_failed: bool,
    warning: Option<Warning>,
}

/// Who is told that the output has failed.
struct Warning(Box<dyn Warn>);

impl fmt::Debug for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Warning").finish_non_exhaustive()
    }
}

impl<W: Write> Log<W> {
    /// Takes in a frame; `None` for one that could not be kept whole.
    fn note(&mut self, at: Nanos, frame: Option<&[u8]>) {
        let counts = &mut self.counts;
        if self.has_failed {
            counts.errors += 1;
            return;
        }
        let len = frame.map_or(0, |frame| (RECORD_LEN + frame.len()) as u64);
        let bytes = counts.bytes + self.burst.output_mut().len() as u64;
        // After the first that is left out there is none, short as it may be.
        if counts.cut > 0 || bytes.saturating_add(len) > self.bytes_max {
            counts.cut += 1;
            return;
        }
        match frame.map(|frame| self.burst.write(at, frame)) {
            Some(Ok(())) => {}
            Some(Err(_)) | None => counts.errors += 1,
        }
    }

    /// Writes the burst, and counts what of it is in the output.
    fn write_out(&mut self) {
        let records = self.burst.output_mut();
        if records.is_empty() {
            return;
        }
        let (written, result) = write_counted(&mut self.output, records);
        let (frames, bytes) = whole(&records[..written]);
        self.counts.frames += frames;
        self.counts.bytes += bytes;
        if let Err(error) = result {
            self.has_failed = true;
            self.counts.errors += whole(records).0 - frames;
            if let Some(Warning(warn)) = self.warning.take() {
                warn(&error, self.counts.bytes);
            }
        }
        records.clear();
    }
}

/// Writes all of it, and says how much of it was taken.
fn write_counted(output: &mut impl Write, bytes: &[u8]) -> (usize, io::Result<()>) {
    let mut written = 0;
    while written < bytes.len() {
        match output.write(&bytes[written..]) {
            Ok(0) => return (written, Err(io::ErrorKind::WriteZero.into())),
            Ok(len) => written += len,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return (written, Err(error)),
        }
    }
    match output.flush() {
        Ok(()) => (written, Ok(())),
        // What it buffers may be anywhere.
        Err(error) => (0, Err(error)),
    }
}

/// The records that are whole, and their bytes.
fn whole(records: &[u8]) -> (u64, u64) {
    let (mut frames, mut bytes) = (0, 0);
    let mut rest = records;
    while let Some(len) = record_len(rest).filter(|len| *len <= rest.len()) {
        rest = &rest[len..];
        frames += 1;
        bytes += len as u64;
    }
    (frames, bytes)
}

/// A frame that the port may or may not take.
#[derive(Debug)]
struct Offer {
    address: usize,
    start: usize,
    end: usize,
    whole: bool,
}
