//! Writes captures: classic pcap with nanosecond times, little-endian, link type Ethernet.
//! Wireshark, tcpdump and DPDK's net_pcap read it. The same frames give the same bytes (I10).

use std::io::{self, Write};

use weft_wire::Nanos;

/// Nanosecond magic of libpcap.
const MAGIC: u32 = 0xa1b2_3c4d;
const LINKTYPE_ETHERNET: u32 = 1;
const SNAP_LEN: u32 = 262_144;
const NANOS_PER_SEC: u64 = 1_000_000_000;
/// Bytes before the first frame.
pub(crate) const HEADER_LEN: u64 = 24;
/// Bytes before each frame.
pub(crate) const RECORD_LEN: usize = 16;

/// Bytes of the record that begins here, its header included; `None` if that is not whole.
pub(crate) fn record_len(bytes: &[u8]) -> Option<usize> {
    let len = bytes.get(..RECORD_LEN)?[8..].first_chunk()?;
    RECORD_LEN.checked_add(u32::from_le_bytes(*len) as usize)
}

/// Appends frames to a capture.
#[derive(Debug)]
pub struct PcapWriter<W: Write> {
    output: W,
}

impl<W: Write> PcapWriter<W> {
    /// Writes the file header.
    ///
    /// # Errors
    /// What `output` says.
    pub fn new(mut output: W) -> io::Result<Self> {
        let mut header = [0; 24];
        header[0..4].copy_from_slice(&MAGIC.to_le_bytes());
        // Version 2.4, then time zone and accuracy, which are always 0.
        header[4..6].copy_from_slice(&2_u16.to_le_bytes());
        header[6..8].copy_from_slice(&4_u16.to_le_bytes());
        header[16..20].copy_from_slice(&SNAP_LEN.to_le_bytes());
        header[20..24].copy_from_slice(&LINKTYPE_ETHERNET.to_le_bytes());
        output.write_all(&header)?;
        Ok(Self { output })
    }

    /// Writes one frame. `at` counts from the Unix epoch if the capture is to show dates; it
    /// saturates in the year 2106, where the format ends.
    ///
    /// # Errors
    /// What the output says; the capture is then cut off in the middle of a record.
    pub fn write(&mut self, at: Nanos, frame: &[u8]) -> io::Result<()> {
        let word = |value: u64| u32::try_from(value).unwrap_or(u32::MAX).to_le_bytes();
        let len = frame.len() as u64;
        let mut record = [0; RECORD_LEN];
        record[0..4].copy_from_slice(&word(at.0 / NANOS_PER_SEC));
        record[4..8].copy_from_slice(&word(at.0 % NANOS_PER_SEC));
        record[8..12].copy_from_slice(&word(len));
        record[12..16].copy_from_slice(&word(len));
        self.output.write_all(&record)?;
        self.output.write_all(frame)
    }

    /// What the frames go to.
    pub(crate) fn output_mut(&mut self) -> &mut W {
        &mut self.output
    }

    /// Passes on what the output buffers.
    ///
    /// # Errors
    /// What the output says.
    pub fn flush(&mut self) -> io::Result<()> {
        self.output.flush()
    }

    /// Flushes and gives the output back.
    ///
    /// # Errors
    /// What the output says.
    pub fn finish(mut self) -> io::Result<W> {
        self.output.flush()?;
        Ok(self.output)
    }
}
