//! The contributions of a bench and what their sums must be.
//!
//! Frames are laid out step by step, each member in turn. Sums are made here by plain wrapping
//! additions of the numbers as they were drawn, so a wrong slot or kernel cannot hide.

use std::fs::File;
use std::io::BufWriter;
use std::path::Path;

use weft_engine::random::SplitMix64;
use weft_engine::table::{BoxConfig, RowConfig};
use weft_io::pcap::PcapWriter;
use weft_wire::frame::{Encap, Endpoint, Udp};
use weft_wire::header::{ElementType, Flags, HEADER_LEN, Header, Kind, Operation, Outcome, Packet};
use weft_wire::hello::Integrity;
use weft_wire::{ChunkIndex, Cookie, GroupId, MacAddr, Members, Nanos};

use super::BenchError;

/// Contributions to a few steps, which repeat for ever.
#[derive(Clone, Debug)]
pub(super) struct Frames {
    /// Frames, `per_step` of them for each step.
    frames: Vec<Vec<u8>>,
    members: usize,
    per_step: usize,
    /// Sums as they are on the wire, one for each step.
    sums: Vec<Vec<u8>>,
    integrity: Integrity,
}

impl Frames {
    /// Makes about `count` frames of i32 contributions to `row`; the same `seed` gives the same.
    pub(super) fn new(table: &BoxConfig, row: &RowConfig, count: u32, seed: u64) -> Self {
        Self::make(table, row, count, seed, false)
    }

    /// The same, and a credit of the server after the contributions of each step.
    pub(super) fn with_credits(table: &BoxConfig, row: &RowConfig, count: u32, seed: u64) -> Self {
        Self::make(table, row, count, seed, true)
    }

    fn make(table: &BoxConfig, row: &RowConfig, count: u32, seed: u64, credits: bool) -> Self {
        assert_eq!(row.element_type, ElementType::I32, "benches sum integers");
        let mut random = SplitMix64::new(seed);
        let members = row.members.len();
        let steps = (count as usize / members).max(1);
        let elements = usize::from(row.elements);
        let mut frames = Vec::with_capacity(steps * members);
        let mut sums = Vec::with_capacity(steps);
        for step in 0..u32::try_from(steps).expect("a count of 32 bits") {
            let mut sum = vec![0_i32; elements];
            for rank in 0..members {
                let numbers: Vec<i32> =
                    (0..elements).map(|_| random.next_u32().cast_signed()).collect();
                for (sum, number) in sum.iter_mut().zip(&numbers) {
                    *sum = sum.wrapping_add(*number);
                }
                frames.push(contribution(table, row, rank, step, &numbers));
            }
            if credits {
                frames.push(credit(table, row));
            }
            sums.push(sum.iter().flat_map(|number| number.to_be_bytes()).collect());
        }
        let per_step = members + usize::from(credits);
        Self { frames, members, per_step, sums, integrity: row.integrity }
    }

    /// The contribution of a member to a step.
    pub(super) fn frame(&self, step: u32, rank: usize) -> &[u8] {
        let step = step as usize % self.sums.len();
        &self.frames[step * self.per_step + rank]
    }

    /// The frame at `index`, in the order of the capture.
    pub(super) fn nth(&self, index: usize) -> &[u8] {
        &self.frames[index]
    }

    /// How many frames there are.
    pub(super) fn len(&self) -> usize {
        self.frames.len()
    }

    /// Bytes of the longest frame.
    pub(super) fn frame_len(&self) -> usize {
        self.frames[0].len()
    }

    /// Where the datagram starts in a frame.
    pub(super) fn payload_start(&self) -> usize {
        Udp::parse(&self.frames[0]).map_or(0, |udp| udp.payload_start)
    }

    /// True when `frame` is the answer to `step` with the right sum.
    pub(super) fn is_answer(&self, frame: &[u8], step: u32) -> bool {
        let Ok(udp) = Udp::parse(frame) else { return false };
        let datagram = &frame[udp.payload_range()];
        let packet = Packet::new_unchecked(datagram);
        let Ok(header) = Header::parse(&packet) else { return false };
        header.kind == Kind::Answer
            && header.chunk.0 == step
            && header.members == Members::first(self.members)
            && self.is_sealed(datagram)
            && packet.payload() == self.sums[step as usize % self.sums.len()]
    }

    /// True when `frame` is the sum of all members' contributions to `step`, under its chunk.
    pub(super) fn is_sum(&self, frame: &[u8], step: u32) -> bool {
        let Ok(udp) = Udp::parse(frame) else { return false };
        let datagram = &frame[udp.payload_range()];
        let packet = Packet::new_unchecked(datagram);
        let Ok(header) = Header::parse(&packet) else { return false };
        header.kind == Kind::Contrib
            && header.members == Members::first(self.members)
            && self.is_sealed(datagram)
            && packet.payload() == self.sums[step as usize % self.sums.len()]
    }

    /// True unless the row has CRCs and this one is wrong.
    fn is_sealed(&self, datagram: &[u8]) -> bool {
        // Verifying writes, so it takes a copy.
        self.integrity != Integrity::Crc32c
            || Packet::new_unchecked(datagram.to_vec()).verify_crc(weft_kernel::crc32c)
    }

    /// Writes all frames to a capture, in order.
    pub(super) fn write(&self, path: &Path) -> Result<(), BenchError> {
        let failed = |source| BenchError::Pcap { path: path.to_owned(), source };
        let file = File::create(path).map_err(failed)?;
        let mut writer = PcapWriter::new(BufWriter::new(file)).map_err(failed)?;
        for frame in &self.frames {
            writer.write(Nanos(0), frame).map_err(failed)?;
        }
        writer.finish().map_err(failed)?;
        Ok(())
    }
}

/// One end of a member's path: an Ethernet address made from its rank.
pub(super) fn member_endpoint(row: &RowConfig, rank: usize) -> Endpoint {
    let rank_byte = u8::try_from(rank).expect("a rank is below 64");
    Endpoint { mac: MacAddr([0x02, b'W', b'E', 0, 2, rank_byte]), addr: row.members[rank].addr }
}

/// The server's end: a neighbour of the members.
pub(super) fn server_endpoint(row: &RowConfig) -> Endpoint {
    let mut addr = row.members[0].addr;
    // Below the ports of any member.
    addr.set_port(1);
    Endpoint { mac: MacAddr([0x02, b'W', b'E', 0, 3, 0]), addr }
}

/// A credit for whatever is stamped on it.
fn credit(table: &BoxConfig, row: &RowConfig) -> Vec<u8> {
    let encap =
        Encap::new(server_endpoint(row), table.local).expect("the table admits one address family");
    let header = Header {
        kind: Kind::Pull,
        element_type: ElementType::None,
        operation: Operation::None,
        count: 0,
        members: Members::first(row.members.len()),
        ..contribution_header(row, 0, 0)
    };
    let start = encap.header_len();
    let mut frame = vec![0; start + HEADER_LEN];
    header.emit(&mut Packet::new_unchecked(&mut frame[start..]));
    encap.emit(&mut frame, HEADER_LEN);
    if encap.target().addr.is_ipv6() {
        encap.finish(&mut frame);
    }
    frame
}

fn contribution_header(row: &RowConfig, rank: usize, step: u32) -> Header {
    Header {
        kind: Kind::Contrib,
        flags: Flags::NONE,
        outcome: Outcome::None,
        job: row.job,
        cookie: Cookie::default(),
        group: GroupId::new(row.row, 0),
        // Told to the stamp, which puts the right one there.
        chunk: ChunkIndex(step),
        element_type: row.element_type,
        operation: row.operation,
        exponent: row.exponent.unwrap_or(0),
        count: row.elements,
        members: Members(1 << rank),
    }
}

fn contribution(
    table: &BoxConfig,
    row: &RowConfig,
    rank: usize,
    step: u32,
    numbers: &[i32],
) -> Vec<u8> {
    let encap = Encap::new(member_endpoint(row, rank), table.local)
        .expect("the table admits one address family");
    let header = contribution_header(row, rank, step);
    let start = encap.header_len();
    let datagram_len = HEADER_LEN + header.payload_len();
    let mut frame = vec![0; start + datagram_len];
    let mut packet = Packet::new_unchecked(&mut frame[start..]);
    header.emit(&mut packet);
    for (wire, number) in packet.payload_mut().chunks_exact_mut(4).zip(numbers) {
        wire.copy_from_slice(&number.to_be_bytes());
    }
    if row.integrity == Integrity::Crc32c {
        packet.seal(weft_kernel::crc32c);
    }
    encap.emit(&mut frame, datagram_len);
    if encap.target().addr.is_ipv6() || row.integrity == Integrity::Checksum16 {
        encap.finish(&mut frame);
    }
    frame
}
