//! The wrappers that a configuration puts around a port: a capture next to the wire, faults
//! outside of it. One type for all four combinations, so that a lane is compiled once per port.

use std::fs::File;
use std::io::BufWriter;

use weft_config::node::FaultsSection;
use weft_io::fault::{Fault, FaultConfig, FaultCounts, FaultRates};
use weft_io::trace::{Trace, TraceCounts};
use weft_io::{Burst, Port, PortInfo, PortStats};
use weft_wire::Nanos;

/// Where a capture goes.
pub type Capture = BufWriter<File>;

/// What `[faults]` means.
pub(crate) fn fault_config(section: &FaultsSection) -> FaultConfig {
    let rates = FaultRates {
        loss: section.loss,
        duplicate: section.duplicate,
        reorder: section.reorder,
        delay: section.delay,
        corrupt: section.corrupt,
    };
    FaultConfig {
        seed: section.seed,
        rx: rates,
        tx: rates,
        reorder_span: section.reorder_span,
        delay_min_ns: section.delay_min_us.saturating_mul(1000),
        delay_max_ns: section.delay_max_us.saturating_mul(1000),
        link_delay_ns: section.link_delay_us.saturating_mul(1000),
        ..FaultConfig::default()
    }
}

/// A port with the wrappers that were asked for.
pub enum Wrapped<P: Port> {
    /// As it is.
    Plain(P),
    /// With a capture.
    Traced(Trace<P, Capture>),
    /// With faults.
    Faulty(Fault<P>),
    /// With faults, and a capture of the wire behind them.
    Both(Fault<Trace<P, Capture>>),
}

impl<P: Port> Wrapped<P> {
    /// Wraps `port`, without a capture.
    pub fn without_capture(port: P, faults: Option<&FaultConfig>) -> Self {
        match faults {
            None => Self::Plain(port),
            Some(faults) => Self::Faulty(Fault::new(port, faults)),
        }
    }

    /// Wraps `port` and captures into `output`, at most `bytes_max`. `clock_origin` is the Unix
    /// time of the origin of the node's clock.
    ///
    /// # Errors
    /// If the capture cannot be begun.
    pub fn with_capture(
        port: P,
        faults: Option<&FaultConfig>,
        output: Capture,
        bytes_max: u64,
        clock_origin: Nanos,
    ) -> std::io::Result<Self> {
        let traced = Trace::new(port, output, clock_origin)?.with_bytes_max(bytes_max);
        Ok(match faults {
            None => Self::Traced(traced),
            Some(faults) => Self::Both(Fault::new(traced, faults)),
        })
    }

    /// Faults of received and of sent frames, if there are any to come.
    #[must_use]
    pub fn fault_counts(&self) -> Option<[FaultCounts; 2]> {
        match self {
            Self::Plain(_) | Self::Traced(_) => None,
            Self::Faulty(port) => Some([port.rx_counts(), port.tx_counts()]),
            Self::Both(port) => Some([port.rx_counts(), port.tx_counts()]),
        }
    }

    /// What the capture holds, if there is one.
    #[must_use]
    pub fn trace_counts(&self) -> Option<TraceCounts> {
        match self {
            Self::Plain(_) | Self::Faulty(_) => None,
            Self::Traced(port) => Some(port.counts()),
            Self::Both(port) => Some(port.port().counts()),
        }
    }
}

impl<P: Port> std::fmt::Debug for Wrapped<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Wrapped").field("port", &self.info()).finish_non_exhaustive()
    }
}

/// Calls the same on whichever port it is.
macro_rules! each {
    ($self:expr, $port:ident => $call:expr) => {
        match $self {
            Wrapped::Plain($port) => $call,
            Wrapped::Traced($port) => $call,
            Wrapped::Faulty($port) => $call,
            Wrapped::Both($port) => $call,
        }
    };
}

impl<P: Port> Port for Wrapped<P> {
    type Frame = P::Frame;

    fn rx_burst(&mut self, now: Nanos, rx: &mut Burst<P::Frame>) -> usize {
        each!(self, port => port.rx_burst(now, rx))
    }

    fn tx_burst(&mut self, now: Nanos, tx: &mut Burst<P::Frame>) -> usize {
        each!(self, port => port.tx_burst(now, tx))
    }

    fn alloc(&mut self) -> Option<P::Frame> {
        each!(self, port => port.alloc())
    }

    fn copy(&mut self, frame: &P::Frame, header_len: usize) -> Option<P::Frame> {
        each!(self, port => port.copy(frame, header_len))
    }

    fn recycles(&self, frame_len: usize) -> bool {
        each!(self, port => port.recycles(frame_len))
    }

    fn merges(&self) -> bool {
        each!(self, port => port.merges())
    }

    fn free(&mut self, frames: &mut Burst<P::Frame>) {
        each!(self, port => port.free(frames));
    }

    fn info(&self) -> PortInfo {
        each!(self, port => port.info())
    }

    fn stats(&self) -> PortStats {
        each!(self, port => port.stats())
    }

    fn carried(&self) -> (u64, u64) {
        each!(self, port => port.carried())
    }

    fn is_open(&self) -> bool {
        each!(self, port => port.is_open())
    }

    fn wait(&mut self, timeout_ns: u64) {
        each!(self, port => port.wait(timeout_ns));
    }

    fn waker(&mut self) -> Option<weft_io::Waker> {
        each!(self, port => port.waker())
    }
}
