//! Reads a whole capture into memory: classic pcap and pcapng, either byte order, any time
//! resolution. A capture that is damaged anywhere is refused at once, with file and offset, so a
//! replay never fails half-way and never allocates.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use pcap_parser::{Block, Linktype, PcapBlockOwned, PcapError as ParserError, create_reader};
use weft_wire::Nanos;

/// Largest capture that is read, in bytes.
pub const CAPTURE_LEN_MAX: u64 = 1 << 30;
/// Largest record: a 64 KiB frame and its options.
const RECORD_LEN_MAX: usize = 1 << 18;
const NANOS_PER_SEC: u128 = 1_000_000_000;

/// Why a capture could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum PcapError {
    /// The file could not be opened, read or written.
    #[error("could not {attempt} the capture {}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What was attempted.
        attempt: &'static str,
        /// The system's answer.
        #[source]
        source: io::Error,
    },
    /// The file is not a whole, well-formed capture.
    #[error("{}: {problem} at byte {offset}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Where in the file the bad record starts.
        offset: usize,
        /// What is wrong, and what to do where something can be done.
        problem: &'static str,
    },
    /// The file is longer than [`CAPTURE_LEN_MAX`].
    #[error("{} has {len_bytes} bytes, more than 1 GiB: split it with `editcap -c`", path.display())]
    TooLong {
        /// The file.
        path: PathBuf,
        /// Its length.
        len_bytes: u64,
    },
}

/// A capture's frames with their times.
#[derive(Debug, Default)]
pub(super) struct Capture {
    records: Vec<Record>,
    bytes: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
struct Record {
    at: Nanos,
    start: usize,
    len: usize,
}

impl Capture {
    pub(super) fn load(path: &Path) -> Result<Self, PcapError> {
        let failed = |attempt| {
            let path = path.to_owned();
            move |source| PcapError::File { path, attempt, source }
        };
        let file = File::open(path).map_err(failed("open"))?;
        let len_bytes = file.metadata().map_err(failed("measure"))?.len();
        if len_bytes > CAPTURE_LEN_MAX {
            return Err(PcapError::TooLong { path: path.to_owned(), len_bytes });
        }
        let malformed =
            |offset, problem| PcapError::Malformed { path: path.to_owned(), offset, problem };
        let mut reader = create_reader(RECORD_LEN_MAX, file)
            .map_err(|_| malformed(0, "not the start of a pcap or pcapng file"))?;
        let mut capture = Self::default();
        let mut times = Times::default();
        loop {
            let offset = reader.consumed();
            match reader.next() {
                Ok((len, block)) => {
                    capture
                        .take(&mut times, block)
                        .map_err(|problem| malformed(offset, problem))?;
                    reader.consume(len);
                }
                Err(ParserError::Eof) => return Ok(capture),
                Err(ParserError::Incomplete(_)) => {
                    reader.refill().map_err(|_| malformed(offset, "the file could not be read"))?;
                }
                Err(ParserError::UnexpectedEof) => {
                    return Err(malformed(offset, "the file ends within the record"));
                }
                Err(ParserError::BufferTooSmall) => {
                    return Err(malformed(offset, "a record claims more than 256 KiB"));
                }
                Err(_) => return Err(malformed(offset, "the record is damaged")),
            }
        }
    }

    pub(super) fn frame_len_max(&self) -> usize {
        self.records.iter().map(|record| record.len).max().unwrap_or(0)
    }

    /// The frame at `index` and its time since the first frame; `None` past the end.
    pub(super) fn frame(&self, index: usize) -> Option<(Nanos, &[u8])> {
        let record = self.records.get(index)?;
        let first = self.records.first()?;
        Some((record.at.since(first.at), &self.bytes[record.start..record.start + record.len]))
    }

    fn take(&mut self, times: &mut Times, block: PcapBlockOwned<'_>) -> Result<(), &'static str> {
        match block {
            PcapBlockOwned::LegacyHeader(header) => {
                check_link(header.network)?;
                times.legacy_nanos = header.is_nanosecond_precision();
            }
            PcapBlockOwned::Legacy(record) => {
                let fraction = u64::from(record.ts_usec);
                let nanos = if times.legacy_nanos { fraction } else { fraction * 1000 };
                let at = Nanos(u64::from(record.ts_sec) * 1_000_000_000 + nanos);
                self.push(at, record.data, record.caplen)?;
            }
            PcapBlockOwned::NG(Block::SectionHeader(_)) => times.interfaces.clear(),
            PcapBlockOwned::NG(Block::InterfaceDescription(interface)) => {
                check_link(interface.linktype)?;
                let units_per_sec = interface.ts_resolution().filter(|units| *units > 0);
                let units_per_sec = units_per_sec.ok_or("an impossible time resolution")?;
                times.interfaces.push(Clock { units_per_sec, offset_sec: interface.ts_offset() });
            }
            PcapBlockOwned::NG(Block::EnhancedPacket(packet)) => {
                let clock = times.interfaces.get(packet.if_id as usize);
                let clock = clock.ok_or("a packet of an interface that is not described")?;
                let ticks = u64::from(packet.ts_high) << 32 | u64::from(packet.ts_low);
                self.push(clock.at(ticks), packet.data, packet.caplen)?;
            }
            PcapBlockOwned::NG(Block::SimplePacket(_)) => {
                return Err("a packet without a time (simple packet block)");
            }
            PcapBlockOwned::NG(_) => {}
        }
        Ok(())
    }

    fn push(&mut self, at: Nanos, data: &[u8], len: u32) -> Result<(), &'static str> {
        let frame = data.get(..len as usize).ok_or("a packet shorter than it says")?;
        self.records.push(Record { at, start: self.bytes.len(), len: frame.len() });
        self.bytes.extend_from_slice(frame);
        Ok(())
    }
}

#[derive(Debug, Default)]
struct Times {
    legacy_nanos: bool,
    interfaces: Vec<Clock>,
}

#[derive(Debug)]
struct Clock {
    units_per_sec: u64,
    offset_sec: i64,
}

impl Clock {
    fn at(&self, ticks: u64) -> Nanos {
        let nanos = u128::from(ticks) * NANOS_PER_SEC / u128::from(self.units_per_sec);
        let offset = i128::from(self.offset_sec) * 1_000_000_000;
        let nanos = i128::try_from(nanos).unwrap_or(i128::MAX).saturating_add(offset);
        Nanos(u64::try_from(nanos.max(0)).unwrap_or(u64::MAX))
    }
}

fn check_link(link: Linktype) -> Result<(), &'static str> {
    if link == Linktype::ETHERNET { Ok(()) } else { Err("a link type other than Ethernet") }
}
