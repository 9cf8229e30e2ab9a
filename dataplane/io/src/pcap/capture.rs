//! Reads a whole capture into memory: classic pcap and pcapng, either byte order, any time
//! resolution, any number of interfaces. A capture that is damaged anywhere is refused at once,
//! with file and offset, so a replay never fails half-way and never allocates. No length that a
//! file claims is ever taken for room.
//!
//! Links are Ethernet, or "null" with Ethernet inside, as BMv2 writes its captures; a loopback
//! interface's captures, which have the same type and no Ethernet header, are refused.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use pcap_parser::{
    Block, Linktype, OptionCode, PcapBlockOwned, PcapError as ParserError, create_reader,
};
use weft_wire::Nanos;

use crate::record::Direction;

/// Largest capture that is read, in bytes.
pub const CAPTURE_LEN_MAX: u64 = 1 << 30;
/// Largest record: a 64 KiB frame and its options.
const RECORD_LEN_MAX: usize = 1 << 18;
const NANOS_PER_SEC: u64 = 1_000_000_000;
const MICROS_PER_SEC: u64 = 1_000_000;
/// `epb_flags`: the direction is in it.
const PACKET_FLAGS: OptionCode = OptionCode(2);
/// The packet block of pcapng's first drafts.
const PACKET_BLOCK: u32 = 2;
const INTERFACES_MAX: usize = 1 << 16;
const NAME_LEN_MAX: usize = 64;

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
pub struct Capture {
    records: Vec<Record>,
    bytes: Vec<u8>,
    interfaces: Vec<String>,
    /// Where the file ends within a record, if that was put up with.
    cut_at: Option<usize>,
}

/// A frame of a capture.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// Its time, from the origin of the capture's clock.
    pub at: Nanos,
    /// Which of [`Capture::interfaces`] it was seen on.
    pub interface: usize,
    /// Which way it went, where the capture says so.
    pub direction: Option<Direction>,
    /// What was kept of it.
    pub bytes: &'a [u8],
    /// Its length on the wire.
    pub len_original: usize,
}

impl Packet<'_> {
    /// True when the capture has only its beginning.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        self.len_original > self.bytes.len()
    }
}

#[derive(Clone, Copy, Debug)]
struct Record {
    at: Nanos,
    start: usize,
    len: usize,
    len_original: u32,
    interface: u32,
    direction: Option<Direction>,
}

impl Capture {
    /// Reads a file.
    ///
    /// # Errors
    /// [`PcapError`], naming the file, and the offset in it where a record is damaged.
    pub fn load(path: &Path) -> Result<Self, PcapError> {
        Self::read(path, false)
    }

    /// Reads a file that may end within a record, as that of a process that was killed.
    ///
    /// # Errors
    /// As of [`Capture::load`], besides.
    pub fn load_cut(path: &Path) -> Result<Self, PcapError> {
        Self::read(path, true)
    }

    fn read(path: &Path, may_be_cut: bool) -> Result<Self, PcapError> {
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
        // What the file has, not what it claims.
        let room = usize::try_from(len_bytes).unwrap_or(0);
        let mut capture = Self { bytes: Vec::with_capacity(room), ..Self::default() };
        let mut file_says = Layout::default();
        loop {
            let offset = reader.consumed();
            match reader.next() {
                Ok((len, block)) => {
                    capture
                        .take(&mut file_says, block)
                        .map_err(|problem| malformed(offset, problem))?;
                    reader.consume(len);
                }
                Err(ParserError::Eof) => return Ok(capture),
                Err(ParserError::Incomplete(_)) => {
                    reader.refill().map_err(|_| malformed(offset, "the file could not be read"))?;
                }
                Err(ParserError::UnexpectedEof) if may_be_cut => {
                    capture.cut_at = Some(offset);
                    return Ok(capture);
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

    /// The packets in the order of the file.
    pub fn packets(&self) -> impl ExactSizeIterator<Item = Packet<'_>> {
        self.records.iter().map(|record| self.packet(record))
    }

    /// The packet at `index`; `None` past the end.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<Packet<'_>> {
        self.records.get(index).map(|record| self.packet(record))
    }

    /// Packets in it.
    #[must_use]
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// True without any packet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Names of the interfaces, empty where the file does not say.
    #[must_use]
    pub fn interfaces(&self) -> &[String] {
        &self.interfaces
    }

    /// Where the file ends within a record, if that was put up with.
    #[must_use]
    pub fn cut_at(&self) -> Option<usize> {
        self.cut_at
    }

    /// The first packet whose time is before that of the one in front of it.
    #[must_use]
    pub fn first_backward(&self) -> Option<usize> {
        let backward = |pair: &[Record]| pair[1].at < pair[0].at;
        self.records.windows(2).position(backward).map(|index| index + 1)
    }

    fn packet(&self, record: &Record) -> Packet<'_> {
        Packet {
            at: record.at,
            interface: record.interface as usize,
            direction: record.direction,
            bytes: &self.bytes[record.start..record.start + record.len],
            len_original: record.len_original as usize,
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

    fn take(&mut self, file: &mut Layout, block: PcapBlockOwned<'_>) -> Result<(), &'static str> {
        match block {
            PcapBlockOwned::LegacyHeader(header) => {
                let units_per_sec =
                    if header.is_nanosecond_precision() { NANOS_PER_SEC } else { MICROS_PER_SEC };
                self.interfaces.push(String::new());
                file.add(header.network, header.snaplen, units_per_sec, 0)?;
            }
            PcapBlockOwned::Legacy(record) => {
                let interface = file.interface(0)?;
                let ticks = u128::from(record.ts_sec) * u128::from(interface.units_per_sec);
                let at = interface.at(ticks + u128::from(record.ts_usec));
                let (data, lens) = (record.data, (record.caplen, record.origlen));
                self.push(interface, at, data, lens, (0, None))?;
            }
            PcapBlockOwned::NG(Block::SectionHeader(header)) => {
                file.is_big_endian = header.big_endian();
                file.interfaces.clear();
                file.first = self.interfaces.len();
            }
            PcapBlockOwned::NG(Block::InterfaceDescription(block)) => {
                // A power of two where the upper bit is set, else of ten.
                let exponent = u32::from(block.if_tsresol & 0x7f);
                let is_binary = block.if_tsresol & 0x80 != 0;
                let base: u64 = if is_binary { 2 } else { 10 };
                let units_per_sec = base.checked_pow(exponent);
                let units_per_sec =
                    units_per_sec.ok_or("a time resolution below 2^-63 or 10^-19")?;
                if self.interfaces.len() >= INTERFACES_MAX {
                    return Err("more than 65536 interfaces");
                }
                let name = block.options.iter().find(|option| option.code == OptionCode::IfName);
                let name = name.and_then(|option| option.as_str().ok()).unwrap_or_default();
                self.interfaces.push(name.chars().take(NAME_LEN_MAX).collect());
                file.add(block.linktype, block.snaplen, units_per_sec, block.ts_offset())?;
            }
            PcapBlockOwned::NG(Block::EnhancedPacket(packet)) => {
                let interface = file.interface(packet.if_id)?;
                let ticks = u64::from(packet.ts_high) << 32 | u64::from(packet.ts_low);
                let at = interface.at(ticks.into());
                let flags = packet.options.iter().find(|option| option.code == PACKET_FLAGS);
                let flags = flags.and_then(|option| option.value.first_chunk::<4>());
                let direction = flags.and_then(|flags| Direction::of_flags(file.word(*flags)));
                let number = u32::try_from(file.first).unwrap_or(u32::MAX) + packet.if_id;
                let lens = (packet.caplen, packet.origlen);
                self.push(interface, at, packet.data, lens, (number, direction))?;
            }
            // The parser leaves the type of an unknown block in little-endian order.
            PcapBlockOwned::NG(Block::Unknown(block))
                if file.word(block.block_type.to_le_bytes()) == PACKET_BLOCK =>
            {
                let head = block.data.split_first_chunk::<20>();
                let (head, data) = head.ok_or("a packet block shorter than its fields")?;
                let (words, _) = head.as_chunks::<4>();
                let [ids, high, low, len, len_original] =
                    [0, 1, 2, 3, 4].map(|at| file.word(words[at]));
                // The interface, and behind it how many packets were lost.
                let id = if file.is_big_endian { ids >> 16 } else { ids & 0xffff };
                let interface = file.interface(id)?;
                let at = interface.at((u64::from(high) << 32 | u64::from(low)).into());
                let number = u32::try_from(file.first).unwrap_or(u32::MAX) + id;
                self.push(interface, at, data, (len, len_original), (number, None))?;
            }
            PcapBlockOwned::NG(Block::SimplePacket(_)) => {
                return Err("a packet without a time (simple packet block)");
            }
            PcapBlockOwned::NG(_) => {}
        }
        Ok(())
    }

    fn push(
        &mut self,
        file: &Interface,
        at: Nanos,
        data: &[u8],
        (len, len_original): (u32, u32),
        (interface, direction): (u32, Option<Direction>),
    ) -> Result<(), &'static str> {
        let frame = data.get(..len as usize).ok_or("a packet shorter than it says")?;
        if file.snaplen != 0 && len > file.snaplen {
            return Err("a packet longer than the capture's snaplen");
        }
        if file.is_null && !looks_like_ethernet(frame) {
            return Err("a packet of link type null without an Ethernet header");
        }
        let start = self.bytes.len();
        let len = frame.len();
        self.records.push(Record { at, start, len, len_original, interface, direction });
        self.bytes.extend_from_slice(frame);
        Ok(())
    }
}

/// What a file has said so far of the packets that follow.
#[derive(Debug, Default)]
struct Layout {
    interfaces: Vec<Interface>,
    /// Interfaces of the sections before.
    first: usize,
    is_big_endian: bool,
}

#[derive(Clone, Copy, Debug)]
struct Interface {
    units_per_sec: u64,
    offset_sec: i64,
    snaplen: u32,
    is_null: bool,
}

impl Layout {
    fn add(
        &mut self,
        link: Linktype,
        snaplen: u32,
        units_per_sec: u64,
        offset_sec: i64,
    ) -> Result<(), &'static str> {
        // The upper bits of a pcap's hold the length of the frames' FCS.
        let link = Linktype(link.0 & 0xffff);
        let is_null = link == Linktype::NULL;
        if !is_null && link != Linktype::ETHERNET {
            return Err("a link type other than Ethernet");
        }
        self.interfaces.push(Interface { units_per_sec, offset_sec, snaplen, is_null });
        Ok(())
    }

    fn word(&self, octets: [u8; 4]) -> u32 {
        if self.is_big_endian { u32::from_be_bytes(octets) } else { u32::from_le_bytes(octets) }
    }

    fn interface(&self, index: u32) -> Result<&Interface, &'static str> {
        let interface = self.interfaces.get(index as usize);
        interface.ok_or("a packet of an interface that is not described")
    }
}

impl Interface {
    fn at(&self, ticks: u128) -> Nanos {
        let nanos = ticks * u128::from(NANOS_PER_SEC) / u128::from(self.units_per_sec);
        let offset = i128::from(self.offset_sec) * i128::from(NANOS_PER_SEC);
        let nanos = i128::try_from(nanos).unwrap_or(i128::MAX).saturating_add(offset);
        Nanos(u64::try_from(nanos.max(0)).unwrap_or(u64::MAX))
    }
}

/// A header of a loopback interface has an address family of four octets instead.
fn looks_like_ethernet(frame: &[u8]) -> bool {
    let Some(kind) = frame.get(12..14) else { return false };
    matches!(kind, [0x08, 0x00 | 0x06] | [0x86, 0xdd])
}
