//! The contributions of a bench and what their sums must be.
//!
//! Members send one or several steps at a time, each in turn. Sums are made here by plain wrapping
//! additions of the numbers as they were drawn, so a wrong slot or kernel cannot hide; nor can a
//! slot that is not written any more, for no bank meets the same numbers twice in a row
//! ([`steps`]).

use std::fs::File;
use std::io::BufWriter;
use std::path::Path;

use weft_engine::random::SplitMix64;
use weft_engine::table::{BoxConfig, RowConfig};
use weft_io::pcap::PcapWriter;
use weft_wire::frame::{Encap, Endpoint, Udp};
use weft_wire::header::{ElementType, Flags, HEADER_LEN, Header, Kind, Operation, Outcome, Packet};
use weft_wire::hello::Integrity;
use weft_wire::{ChunkIndex, Cookie, GroupId, JobId, MacAddr, Members, Nanos};

use super::BenchError;

/// Contributions to a few steps of one or several rows, which repeat for ever.
#[derive(Clone, Debug)]
pub(super) struct Frames {
    frames: Vec<Vec<u8>>,
    rows: Vec<Row>,
    /// Where the datagram starts in a frame.
    payload_start: usize,
    /// Where each contribution to the first row lies, step by step, each member in turn.
    places: Vec<usize>,
}

/// What the contributions to a row must become.
#[derive(Clone, Debug)]
struct Row {
    job: JobId,
    members: Members,
    integrity: Integrity,
    /// Sums as they are on the wire, one for each step.
    sums: Vec<Vec<u8>>,
}

/// What a bench's frames are like.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    /// About so many frames.
    pub(super) count: u32,
    /// Steps that a member sends before it is the next member's turn.
    pub(super) order: u32,
    /// A credit of the server follows the contributions to each step.
    pub(super) credits: bool,
    /// Frames carry a VLAN tag.
    pub(super) vlan: bool,
    /// The same seed gives the same numbers.
    pub(super) seed: u64,
}

impl Frames {
    /// Makes i32 contributions to all rows of the table, which have as many members each; frames of
    /// the rows take turns.
    pub(super) fn new(table: &BoxConfig, shape: Shape) -> Self {
        let members = table.rows[0].members.len();
        let (steps, order) = (steps(table, shape.count), shape.order.max(1));
        let mut random = SplitMix64::new(shape.seed);
        let mut numbers = |row: &RowConfig| -> Vec<i32> {
            (0..row.elements).map(|_| random.next_u32().cast_signed()).collect()
        };
        let mut frames = Vec::new();
        let mut sums: Vec<Vec<Vec<i32>>> = Vec::new();
        for row in &table.rows {
            assert_eq!(row.element_type, ElementType::I32, "benches sum integers");
            assert_eq!(row.members.len(), members, "rows of a bench have as many members");
            sums.push(vec![vec![0; usize::from(row.elements)]; steps as usize]);
        }
        let mut places = vec![0; steps as usize * members];
        let mut first = 0;
        while first < steps {
            let block = first..steps.min(first + order);
            for rank in 0..members {
                for step in block.clone() {
                    places[step as usize * members + rank] = frames.len();
                    for (row, sums) in table.rows.iter().zip(&mut sums) {
                        let numbers = numbers(row);
                        for (sum, number) in sums[step as usize].iter_mut().zip(&numbers) {
                            *sum = sum.wrapping_add(*number);
                        }
                        frames.push(contribution(table, row, rank, step, &numbers));
                    }
                }
            }
            if shape.credits {
                frames.extend(block.clone().map(|_| credit(table, &table.rows[0])));
            }
            first = block.end;
        }
        let mut payload_start = Udp::parse(&frames[0]).map_or(0, |udp| udp.payload_start);
        if shape.vlan {
            payload_start += VLAN_TAG.len();
            frames.iter_mut().for_each(|frame| drop(frame.splice(VLAN_AT..VLAN_AT, VLAN_TAG)));
        }
        let on_wire = |sum: Vec<i32>| sum.iter().flat_map(|number| number.to_be_bytes()).collect();
        let rows = table.rows.iter().zip(sums).map(|(row, sums)| Row {
            job: row.job,
            members: Members::first(members),
            integrity: row.integrity,
            sums: sums.into_iter().map(on_wire).collect(),
        });
        Self { frames, rows: rows.collect(), payload_start, places }
    }

    /// The contribution of a member to a step of the first row.
    pub(super) fn frame(&self, step: u32, rank: usize) -> &[u8] {
        let row = &self.rows[0];
        let step = step as usize % row.sums.len();
        &self.frames[self.places[step * row.members.len() + rank]]
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
        self.payload_start
    }

    /// True when `frame` is the answer to a chunk with the right sum.
    pub(super) fn is_answer(&self, frame: &[u8], chunk: u32) -> bool {
        self.carries_sum(frame, chunk, |header| {
            header.kind == Kind::Answer && header.chunk.0 == chunk
        })
    }

    /// True when `frame` is the sum of all members' contributions to `step`, under its chunk.
    pub(super) fn is_sum(&self, frame: &[u8], step: u32) -> bool {
        self.carries_sum(frame, step, |header| header.kind == Kind::Contrib)
    }

    fn carries_sum(&self, frame: &[u8], step: u32, is_right: impl Fn(&Header) -> bool) -> bool {
        let Ok(udp) = Udp::parse(frame) else { return false };
        let datagram = &frame[udp.payload_range()];
        let packet = Packet::new_unchecked(datagram);
        let Ok(header) = Header::parse(&packet) else { return false };
        let Some(row) = self.rows.iter().find(|row| row.job == header.job) else { return false };
        is_right(&header)
            && header.members == row.members
            && row.is_sealed(datagram)
            && packet.payload() == row.sums[step as usize % row.sums.len()]
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

impl Row {
    /// True unless the row has CRCs and this one is wrong.
    fn is_sealed(&self, datagram: &[u8]) -> bool {
        // Verifying writes, so it takes a copy.
        self.integrity != Integrity::Crc32c
            || Packet::new_unchecked(datagram.to_vec()).verify_crc(weft_kernel::crc32c)
    }
}

/// Chunks before the numbers repeat, for about `count` frames: an odd number of steps in each lane.
/// Windows are powers of two, so that no bank meets the numbers that it holds: a slot that is not
/// written any more shows a sum that is wrong.
fn steps(table: &BoxConfig, count: u32) -> u32 {
    let rows = &table.rows;
    assert!(rows.iter().all(|row| row.window.is_power_of_two()), "the table admits no other");
    let per_step: usize = rows.iter().map(|row| row.members.len()).sum();
    let per_step = u32::try_from(per_step).expect("a few rows of at most 64 members");
    let lanes = u32::from(table.shards);
    ((count / per_step / lanes).saturating_sub(1).max(2) | 1) * lanes
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
    let mut packet = Packet::new_unchecked(&mut frame[start..]);
    header.emit(&mut packet);
    if row.integrity == Integrity::Crc32c {
        packet.seal(weft_kernel::crc32c);
    }
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
    let mut from = member_endpoint(row, rank);
    // A member's lane sends from a port of its own.
    let lane = u16::try_from(step % u32::from(table.shards)).expect("below the shards");
    from.addr.set_port(from.addr.port() + lane);
    let encap = Encap::new(from, table.local).expect("the table admits one address family");
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

/// Behind the Ethernet addresses: VLAN 7.
const VLAN_TAG: [u8; 4] = [0x81, 0, 0, 7];
const VLAN_AT: usize = 12;
