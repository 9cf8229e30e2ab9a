//! A worker that ignores its grants: sends all chunks of its update at once and over again, as fast
//! as its link takes them, without a credit, and other groups' chunks beside. It announces the same
//! update of its own accord too, as workers do that have no controller, and sends it under that id:
//! admitted, it would get an order number that the controller gives to somebody else.
//!
//! It sits in the worker's namespace and reads from the wire what the worker's engine sends: the
//! first chunk of a group shows cookie, group and exponent. What all chunks say is in the worker's
//! recording, which is written before the update is asked for.

use std::collections::BTreeSet;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};
use weft_io::af_packet::{AfPacketConfig, AfPacketPort};
use weft_io::{Burst, Frame as _, Port as _};
use weft_kernel::{Kernels, crc32c};
use weft_wire::frame::Udp;
use weft_wire::header::{Flags, HEADER_LEN, Header, Kind, Operation, Packet};
use weft_wire::rows::ROW_DIRECT;
use weft_wire::{ChunkIndex, GroupId, Nanos, quant};

use weft_sim::hostile::assemble;

/// What it has sent.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sent {
    /// Chunks of its own groups, beyond or before what it was asked for.
    pub own: u64,
    /// Chunks under the ids of other groups.
    pub foreign: u64,
    /// Updates that it announced, each followed by its chunks.
    pub announced: u64,
}

/// The rogue.
#[derive(Debug)]
pub struct Rogue {
    recording: PathBuf,
    wire: Socket,
    port: AfPacketPort,
    seen: BTreeSet<GroupId>,
    sent: Sent,
}

impl Rogue {
    /// In the namespace of a worker of a lab that records its updates there.
    ///
    /// # Panics
    /// Without the right to open packet sockets, or an interface `eth0`.
    #[must_use]
    pub fn new(recording: &Path) -> Self {
        let all = Protocol::from(i32::from(u16::to_be(ETH_P_ALL)));
        let wire = Socket::new(Domain::PACKET, Type::RAW, Some(all)).expect("a packet socket");
        wire.set_read_timeout(Some(Duration::from_millis(20))).expect("a timeout");
        let config = AfPacketConfig { qdisc_bypass: false, ..AfPacketConfig::new("eth0") };
        let port = AfPacketPort::open(&config).expect("the lab's interface");
        let recording = recording.to_owned();
        Self { recording, wire, port, seen: BTreeSet::new(), sent: Sent::default() }
    }

    /// Disobeys until told to stop.
    ///
    /// # Panics
    /// When a frame of the worker is not what it should be.
    pub fn run(mut self, stop: &AtomicBool) -> Sent {
        let mut buffer = vec![0; 2048];
        while !stop.load(Ordering::Relaxed) {
            let Ok(len) = (&self.wire).read(&mut buffer) else { continue };
            let Some((frame, header)) = contribution(&buffer[..len]) else { continue };
            if self.seen.insert(header.group) {
                self.flood(&frame, &header);
            }
        }
        self.sent
    }

    /// Everything at once, several times over, the own group's and others'.
    fn flood(&mut self, frame: &[u8], header: &Header) {
        let Some((version, values)) = self.last_update() else { return };
        let kernels = Kernels::detect();
        let elements = usize::from(header.count);
        let (row, generation) = (header.group.row(), header.group.generation());
        let groups = [
            header.group,
            GroupId::new(row ^ 1, generation),
            GroupId::new(row, generation.wrapping_add(1)),
            GroupId::new(row + 1, generation.wrapping_add(1)),
            self.announce(frame, header, version),
        ];
        for group in groups {
            let chunks = values.chunks(elements);
            for (chunk, values) in (0..).map(ChunkIndex).zip(chunks) {
                let mut forged = frame.to_vec();
                let udp = Udp::parse(&forged).expect("it was parsed before");
                let range = udp.payload_range();
                let mut packet = Packet::new_unchecked(&mut forged[range.clone()]);
                Header { group, chunk, flags: Flags::DIRECT, ..*header }.emit(&mut packet);
                let payload = packet.payload_mut();
                payload.fill(0);
                let (inverse, limit) =
                    (quant::inverse_quantum(header.exponent), quant::clamp_limit(1));
                let _ =
                    kernels.quantise_f32(values, inverse, limit, &mut payload[..values.len() * 4]);
                packet.seal(crc32c);
                // No UDP checksum: IPv4 allows it, and the frame has its own.
                forged[range.start - 2..range.start].fill(0);
                self.send(&forged);
                match group == header.group {
                    true => self.sent.own += 1,
                    false => self.sent.foreign += 1,
                }
            }
        }
    }

    /// Offers the update to the server without a grant; the group that it would be.
    fn announce(&mut self, frame: &[u8], header: &Header, version: u64) -> GroupId {
        self.sent.announced += 1;
        let rank = header.members.single().expect("a direct chunk is of one member").index();
        let row = ROW_DIRECT + u16::try_from(rank).expect("below 64");
        // Its worker's own have smaller numbers.
        let generation = u16::try_from(0x8000 | (self.sent.announced & 0x7fff)).expect("16 bits");
        let group = GroupId::new(row, generation);
        let [_, _, _, _, low @ ..] = version.to_be_bytes();
        let announced = Header {
            kind: Kind::Status,
            flags: Flags::NONE,
            group,
            chunk: ChunkIndex(u32::from_be_bytes(low)),
            operation: Operation::None,
            ..*header
        };
        let udp = Udp::parse(frame).expect("it was parsed before");
        let mut forged = assemble(udp.source, udp.target, &announced, &[]);
        forged[..MACS_LEN].copy_from_slice(&frame[..MACS_LEN]);
        self.send(&forged);
        group
    }

    fn send(&mut self, bytes: &[u8]) {
        let Some(mut frame) = self.port.alloc() else { return };
        frame.set_len(bytes.len());
        frame.as_mut().copy_from_slice(bytes);
        let mut burst = Burst::new();
        burst.push(frame);
        // What a full queue refuses is lost: it does not care.
        let _ = self.port.tx_burst(Nanos(0), &mut burst);
    }

    /// The update that is being sent, and the version it was computed on: the last whole one of the
    /// recording.
    fn last_update(&self) -> Option<(u64, Vec<f32>)> {
        let bytes = std::fs::read(&self.recording).ok()?;
        let stride = UPDATE_HEADER_LEN + PARAMETERS * 4;
        let whole = bytes.len() / stride * stride;
        let last = bytes.get(whole.checked_sub(stride)?..whole)?;
        let (head, update) = last.split_at(UPDATE_HEADER_LEN);
        let version = u64::from_le_bytes(*head.last_chunk()?);
        let (words, _) = update.as_chunks::<4>();
        Some((version, words.iter().map(|word| f32::from_le_bytes(*word)).collect()))
    }
}

/// An outgoing chunk of an update, as it was on the wire.
fn contribution(bytes: &[u8]) -> Option<(Vec<u8>, Header)> {
    let udp = Udp::parse(bytes).ok()?;
    let packet = Packet::new_unchecked(&bytes[udp.payload_range()]);
    let header = Header::parse(&packet).ok()?;
    let is_chunk = header.kind == Kind::Contrib && header.flags.contains(Flags::DIRECT);
    let is_whole = udp.payload_range().len() == HEADER_LEN + usize::from(header.count) * 4;
    (is_chunk && is_whole && header.count > 0)
        .then(|| (bytes[..udp.payload_range().end].to_vec(), header))
}

/// All protocols, of packet(7).
const ETH_P_ALL: u16 = 3;
/// Both addresses at the front of a frame.
const MACS_LEN: usize = 12;
/// Number and version before each update of a recording.
const UPDATE_HEADER_LEN: usize = 16;
/// Of the small perceptron: 64 inputs, 64 hidden, 10 outputs.
const PARAMETERS: usize = 65 * 64 + 65 * 10;
