//! Captures as ports: frames come from one file and go to another.
//!
//! Frames arrive in the order of the file, when their time since the first frame has passed on the
//! caller's clock ([`Pace`]), counted from the first `rx_burst`. After the last, the port is
//! closed.
//!
//! Invariants: the input is read and checked whole in [`PcapPort::open`]; afterwards nothing
//! allocates and no input can fail. A frame that cannot be written (disk full) counts as
//! [`PortStats::tx_errors`] and is dropped.

mod capture;
mod writer;

use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::time::Duration;

use weft_wire::frame::ETHERNET_LEN;
use weft_wire::{MacAddr, Nanos};

pub use self::capture::{CAPTURE_LEN_MAX, Capture, Packet, PcapError};
pub use self::writer::PcapWriter;
pub(crate) use self::writer::{HEADER_LEN, RECORD_LEN, record_len};
use crate::pool::{Pool, PoolFrame};
use crate::port::{Burst, Frame, Port, PortInfo, PortStats};

const OUTPUT_BUFFER_BYTES: usize = 1 << 18;

/// How fast a capture is replayed.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Pace {
    /// Every frame as soon as somebody asks.
    #[default]
    Unpaced,
    /// At capture time, at this many per cent of the capture's speed: 100 as it was captured, 200
    /// twice as fast. 0 counts as 1.
    Percent(u32),
}

impl Pace {
    /// When a frame is due that came `since_first` after the first one.
    fn due(self, since_first: Nanos) -> Nanos {
        match self {
            Self::Unpaced => Nanos(0),
            Self::Percent(percent) => {
                let due = u128::from(since_first.0) * 100 / u128::from(percent.max(1));
                Nanos(u64::try_from(due).unwrap_or(u64::MAX))
            }
        }
    }
}

/// What a capture port is opened with.
#[derive(Clone, Debug)]
pub struct PcapConfig {
    /// The capture to receive; `None` receives nothing.
    pub input: Option<PathBuf>,
    /// The capture to write what is sent into, nanosecond pcap; `None` drops it.
    pub output: Option<PathBuf>,
    /// When frames arrive.
    pub pace: Pace,
    /// The port's address in [`PortInfo`].
    pub mac: MacAddr,
    /// Largest IP packet in bytes.
    pub mtu: usize,
    /// Buffers in the pool, each for the longest of `mtu + 14` bytes and the input's frames.
    pub frame_count: usize,
    /// Added to the caller's clock in the output, to show dates: the Unix time of its origin.
    pub clock_origin: Nanos,
}

impl Default for PcapConfig {
    fn default() -> Self {
        Self {
            input: None,
            output: None,
            pace: Pace::default(),
            mac: MacAddr([0x02, b'W', b'E', 0, 1, 0]),
            mtu: 1500,
            frame_count: 1024,
            clock_origin: Nanos(0),
        }
    }
}

/// A port over captures.
#[derive(Debug)]
pub struct PcapPort {
    capture: Capture,
    next: usize,
    pace: Pace,
    /// When the replay began, on the caller's clock.
    started: Option<Nanos>,
    now: Nanos,
    output: Option<PcapWriter<BufWriter<File>>>,
    output_path: PathBuf,
    clock_origin: Nanos,
    pool: Pool,
    info: PortInfo,
    stats: PortStats,
}

impl PcapPort {
    /// Reads the input and creates the output.
    ///
    /// # Errors
    /// [`PcapError`], naming the file, and the offset in it where a record is damaged.
    pub fn open(config: &PcapConfig) -> Result<Self, PcapError> {
        let capture = config.input.as_deref().map(Capture::load).transpose()?.unwrap_or_default();
        let output = config.output.as_deref().map(create).transpose()?;
        let name = config.input.as_deref().or(config.output.as_deref());
        let name = name.map_or_else(String::new, |path| path.display().to_string());
        let frame_len_max = capture.frame_len_max().max(config.mtu + ETHERNET_LEN);
        Ok(Self {
            capture,
            next: 0,
            pace: config.pace,
            started: None,
            now: Nanos(0),
            output,
            output_path: config.output.clone().unwrap_or_default(),
            clock_origin: config.clock_origin,
            pool: Pool::new(config.frame_count, frame_len_max),
            info: PortInfo { name, driver: "pcap".to_owned(), mac: config.mac, mtu: config.mtu },
            stats: PortStats::default(),
        })
    }

    /// Completes the output. A dropped port does so too, but cannot say whether it succeeded.
    ///
    /// # Errors
    /// [`PcapError::File`] when not everything could be written.
    pub fn finish(mut self) -> Result<(), PcapError> {
        let outcome = self.output.take().map_or(Ok(()), |output| output.finish().map(drop));
        outcome.map_err(|source| PcapError::File {
            path: self.output_path,
            attempt: "finish writing",
            source,
        })
    }

    /// When the next frame is due on the caller's clock.
    fn next_due(&self) -> Option<Nanos> {
        let (since_first, _) = self.capture.frame(self.next)?;
        Some(self.started?.saturating_add(self.pace.due(since_first)))
    }
}

impl Port for PcapPort {
    type Frame = PoolFrame;

    fn rx_burst(&mut self, now: Nanos, rx: &mut Burst<PoolFrame>) -> usize {
        self.now = now;
        self.started.get_or_insert(now);
        let mut count = 0;
        while !rx.is_full() && self.next_due().is_some_and(|due| due <= now) {
            let Some((_, bytes)) = self.capture.frame(self.next) else { break };
            let Some(mut frame) = self.pool.alloc() else {
                // The capture waits; nothing is lost.
                self.stats.rx_nombuf += 1;
                break;
            };
            frame.set_len(bytes.len());
            frame.as_mut().copy_from_slice(bytes);
            self.stats.rx_packets += 1;
            self.stats.rx_bytes += bytes.len() as u64;
            rx.push(frame);
            self.next += 1;
            count += 1;
        }
        count
    }

    fn tx_burst(&mut self, now: Nanos, tx: &mut Burst<PoolFrame>) -> usize {
        let at = self.clock_origin.saturating_add(now);
        let count = tx.len();
        for frame in tx.drain(..) {
            let bytes = frame.as_ref();
            let written = self.output.as_mut().is_none_or(|output| output.write(at, bytes).is_ok());
            if written {
                self.stats.tx_packets += 1;
                self.stats.tx_bytes += bytes.len() as u64;
            } else {
                self.stats.tx_errors += 1;
            }
        }
        count
    }

    fn alloc(&mut self) -> Option<PoolFrame> {
        let frame = self.pool.alloc();
        self.stats.rx_nombuf += u64::from(frame.is_none());
        frame
    }

    fn info(&self) -> PortInfo {
        self.info.clone()
    }

    fn stats(&self) -> PortStats {
        self.stats
    }

    fn is_open(&self) -> bool {
        self.capture.frame(self.next).is_some()
    }

    fn wait(&mut self, timeout_ns: u64) {
        let until_due = self.next_due().map_or(u64::MAX, |due| due.since(self.now).0);
        std::thread::sleep(Duration::from_nanos(timeout_ns.min(until_due)));
    }
}

fn create(path: &Path) -> Result<PcapWriter<BufWriter<File>>, PcapError> {
    File::create(path)
        .and_then(|file| PcapWriter::new(BufWriter::with_capacity(OUTPUT_BUFFER_BYTES, file)))
        .map_err(|source| PcapError::File { path: path.to_owned(), attempt: "create", source })
}
