//! A capture of what a port saw: every frame received, every frame that the port took to send.
//!
//! Nanosecond pcap with times from `now`, so a run in virtual time gives the same bytes each time
//! (I10). Inside a `Fault` it shows the wire, outside what the engine met. A refused frame is
//! written when it leaves, once. Nothing allocates per burst if the writer does not; a writer that
//! fails never disturbs the port ([`Trace::errors`]).

use std::io::{self, Write};

use arrayvec::ArrayVec;
use weft_wire::Nanos;
use weft_wire::frame::ETHERNET_LEN;

use crate::forward_port;
use crate::pcap::PcapWriter;
use crate::port::{BURST_MAX, Burst, Port};

/// A port with a capture of its frames.
#[derive(Debug)]
pub struct Trace<P: Port, W: Write> {
    port: P,
    writer: PcapWriter<W>,
    clock_origin: Nanos,
    /// Bytes of the frames on offer, for those that leave are gone when that is known.
    staged: Vec<u8>,
    frame_len_max: usize,
    frames: u64,
    errors: u64,
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
            writer: PcapWriter::new(output)?,
            clock_origin,
            staged: Vec::with_capacity(BURST_MAX * frame_len_max),
            frame_len_max,
            frames: 0,
            errors: 0,
        })
    }

    /// The wrapped port.
    pub fn port(&self) -> &P {
        &self.port
    }

    /// Frames written.
    #[must_use]
    pub fn frames(&self) -> u64 {
        self.frames
    }

    /// Frames that are missing in the capture because the output failed or the frame was longer
    /// than the port's MTU allows.
    #[must_use]
    pub fn errors(&self) -> u64 {
        self.errors
    }

    /// Completes the capture and gives port and output back.
    ///
    /// # Errors
    /// What the output says.
    pub fn finish(self) -> io::Result<(P, W)> {
        Ok((self.port, self.writer.finish()?))
    }
}

impl<P: Port, W: Write> Port for Trace<P, W> {
    type Frame = P::Frame;

    fn rx_burst(&mut self, now: Nanos, rx: &mut Burst<P::Frame>) -> usize {
        let before = rx.len();
        let count = self.port.rx_burst(now, rx);
        let at = self.clock_origin.saturating_add(now);
        for frame in &rx[before..] {
            let written = self.writer.write(at, frame.as_ref()).is_ok();
            self.frames += u64::from(written);
            self.errors += u64::from(!written);
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
            let bytes = &self.staged[offer.start..offer.end];
            let written = offer.whole && self.writer.write(at, bytes).is_ok();
            self.frames += u64::from(written);
            self.errors += u64::from(!written);
        }
        count
    }

    forward_port!(port: alloc, copy, recycles, free, info, stats, carried, is_open, wait, waker);
}

/// A frame that the port may or may not take.
#[derive(Debug)]
struct Offer {
    address: usize,
    start: usize,
    end: usize,
    whole: bool,
}
