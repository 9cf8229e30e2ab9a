//! The wrappers that a configuration puts around a port: a capture next to the wire, faults
//! outside of it, and outside of both the labels of jobs. One type for all combinations, so that a
//! lane is compiled once per port.

use std::fmt;
use std::fs::File;
use std::io;
use std::sync::Arc;

use weft_config::node::FaultsSection;
use weft_io::bands::{BandCounts, Banded, BandsConfig, QUEUES};
use weft_io::fault::{Fault, FaultConfig, FaultCounts, FaultRates};
use weft_io::marks::JobMarks;
use weft_io::trace::{Trace, TraceCounts, Warn};
use weft_io::{Burst, Port, PortInfo, PortStats};
use weft_wire::Nanos;

/// Where a capture goes.
pub struct Capture {
    /// An empty file.
    pub output: File,
    /// The Unix time of the origin of the node's clock.
    pub clock_origin: Nanos,
    /// Is told once if the file takes no more: why, and the bytes up to the last whole frame.
    pub warn: Box<dyn Warn>,
}

impl fmt::Debug for Capture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Capture").field("output", &self.output).finish_non_exhaustive()
    }
}

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

/// A port with the wrappers that were asked for, and what jobs' frames carry.
pub struct Wrapped<P: Port> {
    outer: Outer<P>,
    marks: Option<Arc<JobMarks>>,
}

/// With queues for the bands of jobs, or without.
#[expect(
    clippy::large_enum_variant,
    reason = "one a lane; the way of each frame has no pointer more"
)]
enum Outer<P: Port> {
    Plain(Chain<P>),
    Banded(Box<Banded<Chain<P>>>),
}

enum Chain<P: Port> {
    /// As it is.
    Plain(P),
    /// With a capture.
    Traced(Trace<P, File>),
    /// With faults.
    Faulty(Fault<P>),
    /// With faults, and a capture of the wire behind them.
    Both(Fault<Trace<P, File>>),
}

impl<P: Port> Wrapped<P> {
    /// Wraps `port`, without a capture.
    pub fn without_capture(port: P, faults: Option<&FaultConfig>) -> Self {
        Self::of(match faults {
            None => Chain::Plain(port),
            Some(faults) => Chain::Faulty(Fault::new(port, faults)),
        })
    }

    const fn of(chain: Chain<P>) -> Self {
        Self { outer: Outer::Plain(chain), marks: None }
    }

    const fn chain(&self) -> &Chain<P> {
        match &self.outer {
            Outer::Plain(chain) => chain,
            Outer::Banded(banded) => banded.port(),
        }
    }

    /// Has frames leave by the bands of their jobs, through queues that take their memory here.
    #[must_use]
    pub fn with_bands(mut self, config: BandsConfig) -> Self {
        let marks = self.marks.clone().unwrap_or_default();
        self.outer = match self.outer {
            Outer::Plain(chain) => Outer::Banded(Box::new(Banded::new(chain, config, marks))),
            banded @ Outer::Banded(_) => banded,
        };
        self
    }

    /// What became of the frames of each band, if there are queues for them.
    #[must_use]
    pub fn band_counts(&self) -> Option<[BandCounts; QUEUES]> {
        match &self.outer {
            Outer::Plain(_) => None,
            Outer::Banded(banded) => Some(banded.counts()),
        }
    }

    /// Has frames of jobs carry their labels.
    #[must_use]
    pub fn with_marks(mut self, marks: Arc<JobMarks>) -> Self {
        self.marks = Some(marks);
        self
    }

    /// Wraps `port` and captures at most `bytes_max`.
    ///
    /// # Errors
    /// If the capture cannot be begun.
    pub fn with_capture(
        port: P,
        faults: Option<&FaultConfig>,
        capture: Capture,
        bytes_max: u64,
    ) -> io::Result<Self> {
        let Capture { output, clock_origin, warn } = capture;
        let traced = Trace::new(port, output, clock_origin)?;
        let traced = traced.with_bytes_max(bytes_max).with_warning(warn);
        Ok(Self::of(match faults {
            None => Chain::Traced(traced),
            Some(faults) => Chain::Both(Fault::new(traced, faults)),
        }))
    }

    /// Faults of received and of sent frames, if there are any to come.
    #[must_use]
    pub fn fault_counts(&self) -> Option<[FaultCounts; 2]> {
        match self.chain() {
            Chain::Plain(_) | Chain::Traced(_) => None,
            Chain::Faulty(port) => Some([port.rx_counts(), port.tx_counts()]),
            Chain::Both(port) => Some([port.rx_counts(), port.tx_counts()]),
        }
    }

    /// What the capture holds, if there is one.
    #[must_use]
    pub fn trace_counts(&self) -> Option<TraceCounts> {
        match self.chain() {
            Chain::Plain(_) | Chain::Faulty(_) => None,
            Chain::Traced(port) => Some(port.counts()),
            Chain::Both(port) => Some(port.port().counts()),
        }
    }
}

impl<P: Port> fmt::Debug for Wrapped<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wrapped").field("port", &self.info()).finish_non_exhaustive()
    }
}

/// Calls the same on whichever port it is.
macro_rules! each {
    ($outer:ident { $($variant:ident),+ }, $at:expr, $port:ident => $call:expr) => {
        match $at {
            $($outer::$variant($port) => $call,)+
        }
    };
}

impl<P: Port> Port for Wrapped<P> {
    type Frame = P::Frame;

    fn rx_burst(&mut self, now: Nanos, rx: &mut Burst<P::Frame>) -> usize {
        each!(Outer { Plain, Banded }, &mut self.outer, port => port.rx_burst(now, rx))
    }

    fn tx_burst(&mut self, now: Nanos, tx: &mut Burst<P::Frame>) -> usize {
        if let Some(marks) = &self.marks {
            marks.label_all(tx);
        }
        each!(Outer { Plain, Banded }, &mut self.outer, port => port.tx_burst(now, tx))
    }

    fn alloc(&mut self) -> Option<P::Frame> {
        each!(Outer { Plain, Banded }, &mut self.outer, port => port.alloc())
    }

    fn copy(&mut self, frame: &P::Frame, header_len: usize) -> Option<P::Frame> {
        each!(Outer { Plain, Banded }, &mut self.outer, port => port.copy(frame, header_len))
    }

    fn recycles(&self, frame_len: usize) -> bool {
        each!(Outer { Plain, Banded }, &self.outer, port => port.recycles(frame_len))
    }

    fn merges(&self) -> bool {
        each!(Outer { Plain, Banded }, &self.outer, port => port.merges())
    }

    /// Nothing else is done to frames, so they may be runs.
    fn join_runs(&mut self, is_on: bool) -> bool {
        match &mut self.outer {
            Outer::Plain(Chain::Plain(port)) => port.join_runs(is_on),
            _ => false,
        }
    }

    fn free(&mut self, frames: &mut Burst<P::Frame>) {
        each!(Outer { Plain, Banded }, &mut self.outer, port => port.free(frames));
    }

    fn info(&self) -> PortInfo {
        each!(Outer { Plain, Banded }, &self.outer, port => port.info())
    }

    fn stats(&self) -> PortStats {
        each!(Outer { Plain, Banded }, &self.outer, port => port.stats())
    }

    fn carried(&self) -> (u64, u64) {
        each!(Outer { Plain, Banded }, &self.outer, port => port.carried())
    }

    fn complaint(&self) -> Option<String> {
        each!(Outer { Plain, Banded }, &self.outer, port => port.complaint())
    }

    fn is_open(&self) -> bool {
        each!(Outer { Plain, Banded }, &self.outer, port => port.is_open())
    }

    fn wait(&mut self, timeout_ns: u64) {
        each!(Outer { Plain, Banded }, &mut self.outer, port => port.wait(timeout_ns));
    }

    fn waker(&mut self) -> Option<weft_io::Waker> {
        each!(Outer { Plain, Banded }, &mut self.outer, port => port.waker())
    }
}

impl<P: Port> Port for Chain<P> {
    type Frame = P::Frame;

    fn rx_burst(&mut self, now: Nanos, rx: &mut Burst<P::Frame>) -> usize {
        each!(Chain { Plain, Traced, Faulty, Both }, self, port => port.rx_burst(now, rx))
    }

    fn tx_burst(&mut self, now: Nanos, tx: &mut Burst<P::Frame>) -> usize {
        each!(Chain { Plain, Traced, Faulty, Both }, self, port => port.tx_burst(now, tx))
    }

    fn alloc(&mut self) -> Option<P::Frame> {
        each!(Chain { Plain, Traced, Faulty, Both }, self, port => port.alloc())
    }

    fn copy(&mut self, frame: &P::Frame, header_len: usize) -> Option<P::Frame> {
        each!(Chain { Plain, Traced, Faulty, Both }, self, port => port.copy(frame, header_len))
    }

    fn recycles(&self, frame_len: usize) -> bool {
        each!(Chain { Plain, Traced, Faulty, Both }, self, port => port.recycles(frame_len))
    }

    fn merges(&self) -> bool {
        each!(Chain { Plain, Traced, Faulty, Both }, self, port => port.merges())
    }

    fn free(&mut self, frames: &mut Burst<P::Frame>) {
        each!(Chain { Plain, Traced, Faulty, Both }, self, port => port.free(frames));
    }

    fn info(&self) -> PortInfo {
        each!(Chain { Plain, Traced, Faulty, Both }, self, port => port.info())
    }

    fn stats(&self) -> PortStats {
        each!(Chain { Plain, Traced, Faulty, Both }, self, port => port.stats())
    }

    fn carried(&self) -> (u64, u64) {
        each!(Chain { Plain, Traced, Faulty, Both }, self, port => port.carried())
    }

    fn complaint(&self) -> Option<String> {
        each!(Chain { Plain, Traced, Faulty, Both }, self, port => port.complaint())
    }

    fn is_open(&self) -> bool {
        each!(Chain { Plain, Traced, Faulty, Both }, self, port => port.is_open())
    }

    fn wait(&mut self, timeout_ns: u64) {
        each!(Chain { Plain, Traced, Faulty, Both }, self, port => port.wait(timeout_ns));
    }

    fn waker(&mut self) -> Option<weft_io::Waker> {
        each!(Chain { Plain, Traced, Faulty, Both }, self, port => port.waker())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use weft_io::forward_port;
    use weft_io::memory::{MemoryPort, link};
    use weft_io::pool::PoolFrame;

    use super::*;

    /// A port that says whether it was asked for runs in one piece.
    struct Asked {
        port: MemoryPort,
        joins: Arc<AtomicBool>,
    }

    impl Port for Asked {
        type Frame = PoolFrame;

        fn rx_burst(&mut self, now: Nanos, rx: &mut Burst<PoolFrame>) -> usize {
            self.port.rx_burst(now, rx)
        }

        fn tx_burst(&mut self, now: Nanos, tx: &mut Burst<PoolFrame>) -> usize {
            self.port.tx_burst(now, tx)
        }

        fn join_runs(&mut self, is_on: bool) -> bool {
            self.joins.store(is_on, Ordering::Relaxed);
            true
        }

        forward_port!(port: alloc, free, info, stats);
    }

    /// Whether a port is asked that is wrapped so.
    fn is_asked(wrap: impl FnOnce(Asked) -> Wrapped<Asked>) -> bool {
        let (port, _peer) = link(4, 1500, ["near", "far"]);
        let joins = Arc::new(AtomicBool::new(false));
        let told = wrap(Asked { port, joins: Arc::clone(&joins) }).join_runs(true);
        assert_eq!(told, joins.load(Ordering::Relaxed));
        told
    }

    #[test]
    fn runs_in_one_piece_come_only_where_nothing_else_is_done_to_frames() {
        let capture = |port, faults: Option<&FaultConfig>| {
            let output = File::options().write(true).open("/dev/null").expect("it is everywhere");
            let warn = Box::new(|_: &io::Error, _: u64| {});
            let capture = Capture { output, clock_origin: Nanos(0), warn };
            Wrapped::with_capture(port, faults, capture, 1 << 20).expect("a capture")
        };
        let faults = FaultConfig::default();
        assert!(is_asked(|port| Wrapped::without_capture(port, None)));
        assert!(is_asked(|port| {
            Wrapped::without_capture(port, None).with_marks(Arc::new(JobMarks::default()))
        }));
        assert!(!is_asked(|port| Wrapped::without_capture(port, Some(&faults))));
        assert!(!is_asked(|port| capture(port, None)));
        assert!(!is_asked(|port| capture(port, Some(&faults))));
        let bands =
            BandsConfig { rate_bytes_per_sec: 1 << 20, queue_frames_max: 4, age_max_ns: 1 << 20 };
        assert!(!is_asked(|port| Wrapped::without_capture(port, None).with_bands(bands)));
    }
}
