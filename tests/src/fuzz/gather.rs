//! A sequence of operations, read from the fuzzer's bytes, against an aggregator with one push job:
//! two workers, a server, a replica, groups that come and go.
//!
//! No operation may make it panic; a frame without right (damaged, or of a foreign job or cookie)
//! may change no slot (DESIGN I7); a sum that leaves is the sum of those that it names (I2).

use std::net::SocketAddr;

use weft_control::{BoxIndex, Command, GroupDescriptor, GroupMember, OrderNumber, Version};
use weft_engine::random::SplitMix64;
use weft_engine::role::Verdict;
use weft_engine::role::aggregator::Aggregator;
use weft_engine::role::channel::{
    ChannelClient, ChannelClientConfig, ChannelHost, ChannelHostConfig, JobTerms, Peer, Standing,
};
use weft_engine::role::gather::PushConfig;
use weft_engine::send::datagram::plain_header;
use weft_engine::table::{BoxConfig, Table};
use weft_kernel::{Kernels, crc32c};
use weft_wire::frame::{Datagram, Endpoint, UdpAddr};
use weft_wire::header::{ElementType, Header, Kind, Operation, Outcome, Packet};
use weft_wire::hello::{Integrity, Overflow};
use weft_wire::rows::ROW_MODEL;
use weft_wire::{ChunkIndex, GroupId, JobId, MacAddr, Members, Nanos, Rank};

/// Runs the operations that `data` spells, five bytes each.
pub fn gather_frames(data: &[u8]) {
    let mut rig = Rig::open();
    for operation in data.chunks_exact(OPERATION_LEN) {
        rig.apply(operation);
    }
    rig.connect(0);
    assert_eq!(rig.workers[0].standing(), Standing::Open, "the box still opens channels");
}

const OPERATION_LEN: usize = 5;
const ELEMENTS: u16 = 4;
const CHUNKS: u32 = 3;
const JOB: JobId = JobId(1);
const AGGREGATOR: BoxIndex = BoxIndex(5);
const FRAME_LEN_MAX: usize = 1_514;

struct Rig {
    aggregator: Aggregator,
    now: Nanos,
    workers: Vec<ChannelClient>,
    /// The server and the replica.
    hosts: [ChannelHost; 2],
    lives: u64,
    generation: u16,
}

impl Rig {
    fn open() -> Self {
        let table = BoxConfig {
            local: endpoint(1),
            shards: 1,
            mtu: 1500,
            jobs: Vec::new(),
            rows: Vec::new(),
            pushes: vec![push()],
        };
        let table = Table::new(table).expect("a valid table");
        let mut rig = Self {
            // What gathers draws from the seed's complement.
            aggregator: Aggregator::new(&table, 0, !7, Kernels::detect()),
            now: Nanos(0),
            workers: (0..2).map(|rank| worker(rank, 50)).collect(),
            hosts: [host(20, 3), host(21, 4)],
            lives: 50,
            generation: 0,
        };
        rig.connect(0);
        rig.connect(1);
        rig.poll();
        rig
    }

    fn apply(&mut self, operation: &[u8]) {
        let &[code, rank, at, value, extra] = operation else { return };
        let rank = usize::from(rank & 1);
        let group = GroupId::new(u16::from(at & 1), self.generation);
        let chunk = u32::from(at >> 1) % (CHUNKS + 1);
        match code % 12 {
            0 | 1 => self.deliver(self.contribution(rank, group, chunk), false),
            2 => {
                let mut frame = self.contribution(rank, group, chunk);
                let start = 42 + usize::from(extra) % (frame.len() - 42);
                frame[start] ^= value | 1;
                self.deliver(frame, true);
            }
            3 => {
                let mut frame = self.contribution(rank, group, chunk);
                frame[42 + 2 + usize::from(extra) % 6] ^= value | 1;
                Packet::new_unchecked(&mut frame[42..]).seal(crc32c);
                self.deliver(frame, true);
            }
            4 | 5 => {
                let header = Header {
                    chunk: ChunkIndex(chunk),
                    members: Members(u64::from(value)),
                    ..plain(Kind::Pull, group)
                };
                self.deliver(self.server_frame(&header, &[]), false);
            }
            6 => {
                let outcome = [Outcome::Committed, Outcome::Void, Outcome::Staged, Outcome::None];
                let header =
                    Header { outcome: outcome[usize::from(value) % 4], ..plain(Kind::Ack, group) };
                self.deliver(self.server_frame(&header, &[]), false);
            }
            7 => self.install(group, value, extra),
            8 => {
                let model = GroupId::new(ROW_MODEL, u16::from(at % 3));
                let header = Header {
                    chunk: ChunkIndex(u32::from(value) % 7),
                    ..plain(Kind::Contrib, model)
                };
                self.deliver(self.worker_frame(rank, &header, &[]), false);
            }
            9 => {
                let model = GroupId::new(ROW_MODEL, u16::from(at % 3));
                let header =
                    Header { chunk: ChunkIndex(u32::from(value) % 7), ..model_answer(model) };
                let payload = vec![extra; usize::from(ELEMENTS) * 4];
                self.deliver(self.server_frame(&header, &payload), false);
            }
            10 => {
                self.lives += 1;
                self.workers[rank] = worker(rank, self.lives);
                self.connect(rank);
            }
            _ => {
                self.now = self.now.saturating_add(Nanos(u64::from(at) << 20));
                self.deliver(operation.repeat(1 + usize::from(extra) % 40), true);
                self.poll();
            }
        }
    }

    fn install(&mut self, group: GroupId, value: u8, extra: u8) {
        let job = JOB;
        let command = match extra % 4 {
            0 => Command::Remove { job, group },
            1 => Command::CloseMember {
                job,
                group: (value & 1 == 0).then_some(group),
                rank: Rank::new(value % 64).expect("below 64"),
            },
            _ => {
                self.generation = self.generation.wrapping_add(u16::from(value & 1));
                let group = GroupId::new(group.row(), self.generation);
                Command::Install(descriptor(group, value))
            }
        };
        self.aggregator.gather_mut().handle_command(&command);
        while self.aggregator.gather_mut().poll_event().is_some() {}
    }

    fn deliver(&mut self, mut frame: Vec<u8>, without_right: bool) {
        let before = without_right.then(|| self.snapshot());
        for frame in self.exchange(&mut frame) {
            check(&frame);
        }
        if let Some(before) = before {
            assert_eq!(before, self.snapshot(), "a frame without right changed a slot");
        }
    }

    /// Gives the box a frame; what it sends, copies included.
    fn exchange(&mut self, frame: &mut Vec<u8>) -> Vec<Vec<u8>> {
        let len = frame.len();
        frame.resize(FRAME_LEN_MAX.max(len), 0xee);
        self.aggregator.prefetch(&frame[..len]);
        match self.aggregator.handle_frame(self.now, frame, len) {
            Verdict::Send { len } => vec![frame[..len].to_vec()],
            Verdict::Fan { len, push } => {
                let gather = self.aggregator.gather();
                let mut out = vec![frame[..len].to_vec()];
                for peer in gather.copies(push, &frame[..len]) {
                    let mut copy = frame[..len].to_vec();
                    let head = &mut copy[..gather.copy_header_len(push)];
                    if gather.address_copy(push, peer, head, len) {
                        out.push(copy);
                    }
                }
                out
            }
            _ => Vec::new(),
        }
    }

    /// What the box sends by itself; its handshakes are answered.
    fn poll(&mut self) {
        self.now = self.now.saturating_add(Nanos::from_millis(1_000));
        let mut buffer = vec![0; FRAME_LEN_MAX];
        for _ in 0..200 {
            let Some(len) = self.aggregator.poll_transmit(self.now, &mut buffer) else { return };
            let mut frame = buffer.clone();
            let Some((udp, header)) = parse(&frame[..len]) else { continue };
            if header.kind != Kind::Hello {
                check(&frame[..len]);
                continue;
            }
            let is_server = udp.target(&frame) == UdpAddr::from(endpoint(20).addr);
            let host = &mut self.hosts[usize::from(!is_server)];
            if let Ok(reply) = host.handle_hello(&udp, &header, &mut frame) {
                self.exchange(&mut frame[..reply.len].to_vec());
            }
        }
    }

    /// Opens a worker's channel.
    fn connect(&mut self, rank: usize) {
        for _ in 0..4 {
            self.now = self.now.saturating_add(Nanos::from_millis(1_000));
            let mut frame = vec![0; FRAME_LEN_MAX];
            let Some(len) = self.workers[rank].poll_transmit(self.now, &mut frame) else { return };
            frame.truncate(len);
            for mut reply in self.exchange(&mut frame) {
                if let Some((udp, header)) = parse(&reply) {
                    let _ = self.workers[rank].handle_frame(self.now, &udp, &header, &mut reply);
                }
            }
        }
    }

    fn contribution(&self, rank: usize, group: GroupId, chunk: u32) -> Vec<u8> {
        let header = Header {
            chunk: ChunkIndex(chunk),
            element_type: ElementType::I32,
            operation: Operation::Sum,
            count: ELEMENTS,
            ..plain(Kind::Contrib, group)
        };
        self.worker_frame(rank, &header, &value(rank, group, chunk).to_be_bytes().repeat(4))
    }

    fn worker_frame(&self, rank: usize, header: &Header, payload: &[u8]) -> Vec<u8> {
        let client = &self.workers[rank];
        let header = Header { members: client.peer().bit(), ..*header };
        let mut frame = vec![0; FRAME_LEN_MAX];
        let start = client.payload_start();
        frame[start..start + payload.len()].copy_from_slice(payload);
        let len = client.write(&header, &mut frame, payload.len()).unwrap_or(0);
        frame.truncate(len.max(80));
        frame
    }

    fn server_frame(&self, header: &Header, payload: &[u8]) -> Vec<u8> {
        let peer = Peer::Box(AGGREGATOR);
        let mut frame = vec![0; FRAME_LEN_MAX];
        let start = self.hosts[0].payload_start(peer);
        frame[start..start + payload.len()].copy_from_slice(payload);
        let len = self.hosts[0].write(peer, header, &mut frame, payload.len()).unwrap_or(0);
        frame.truncate(len.max(80));
        frame
    }

    fn snapshot(&self) -> Vec<(GroupId, Members, Vec<Option<u64>>)> {
        let report = self.aggregator.gather().reports().next().expect("one job");
        let groups = report.groups().map(|(id, mask)| {
            let slots = (0..CHUNKS).map(|chunk| report.slot(id, chunk).map(|(_, held)| held.0));
            (id, mask, slots.collect())
        });
        groups.collect()
    }
}

/// What a worker contributes: a function of where, so that sums can be judged without a record.
fn value(rank: usize, group: GroupId, chunk: u32) -> i32 {
    let rank = u64::try_from(rank).expect("a small number");
    let mut random = SplitMix64::new(u64::from(group.0) << 16 | u64::from(chunk) << 8 | rank);
    random.next_u32().cast_signed()
}

/// What leaves is sealed, and a sum is the sum of whom it names.
fn check(frame: &[u8]) {
    let (udp, header) = parse(frame).expect("the box sends whole datagrams");
    let mut packet = Packet::new_unchecked(frame[udp.payload_range()].to_vec());
    assert!(packet.verify_crc(crc32c), "the box seals what it sends");
    let is_model = header.group.row() == ROW_MODEL;
    if header.kind == Kind::Contrib && !is_model {
        let ranks = header.members.iter();
        let want = ranks.fold(0_i32, |sum, rank| {
            sum.wrapping_add(value(rank.index(), header.group, header.chunk.0))
        });
        assert_eq!(packet.payload(), want.to_be_bytes().repeat(4), "{header}");
    }
}

fn parse(frame: &[u8]) -> Option<(Datagram, Header)> {
    let udp = Datagram::find(frame).ok()?;
    let header = Header::parse(&Packet::new_unchecked(&frame[udp.payload_range()])).ok()?;
    Some((udp, header))
}

fn plain(kind: Kind, group: GroupId) -> Header {
    plain_header(kind, JOB, group, Members(1 << AGGREGATOR.0))
}

fn model_answer(group: GroupId) -> Header {
    Header { element_type: ElementType::F32, count: ELEMENTS, ..plain(Kind::Answer, group) }
}

fn descriptor(group: GroupId, ranks: u8) -> GroupDescriptor {
    let ranks = Members(u64::from(ranks >> 1 & 3));
    let member = |rank| GroupMember { rank, version: Version(0) };
    GroupDescriptor {
        job: JOB,
        group,
        order: OrderNumber(0),
        members: ranks.iter().map(member).collect(),
        chunks: CHUNKS,
        element_type: ElementType::I32,
        elements: ELEMENTS,
        exponent: 0,
        via: Some(AGGREGATOR),
        replicate: true,
        rate_bytes_per_sec: None,
        after: None,
        train_chunks: 0,
        lateness_ns: 0,
    }
}

fn endpoint(host: u8) -> Endpoint {
    let mac = MacAddr([2, 0, 0, 0, 0, host]);
    Endpoint { mac, addr: SocketAddr::from(([10, 0, 0, host], 22_336)) }
}

fn worker_endpoint(rank: usize) -> Endpoint {
    endpoint(10 + u8::try_from(rank).expect("a small number"))
}

fn worker(rank: usize, life: u64) -> ChannelClient {
    let number = u8::try_from(rank).expect("a small number");
    let peer = Peer::Worker(Rank::new(number).expect("below 64"));
    let config = ChannelClientConfig {
        probe_len: 0,
        ..ChannelClientConfig::new(JOB, peer, worker_endpoint(rank), endpoint(1))
    };
    ChannelClient::new(config, life, Nanos(0)).expect("both are IPv4")
}

fn host(address: u8, seed: u64) -> ChannelHost {
    let mut boxes = vec![None; usize::from(AGGREGATOR.0)];
    boxes.push(Some(endpoint(1).addr));
    let terms = JobTerms {
        job: JOB,
        elements: ELEMENTS,
        integrity: Integrity::Crc32c,
        exponent: Some(0),
        chunks: CHUNKS,
    };
    let workers = (0..2).map(|rank| worker_endpoint(rank).addr).collect();
    let config = ChannelHostConfig { local: endpoint(address), terms, workers, boxes };
    ChannelHost::new(&config, SplitMix64::new(seed))
}

fn push() -> PushConfig {
    PushConfig {
        job: JOB,
        box_index: AGGREGATOR,
        workers: (0..2).map(|rank| worker_endpoint(rank).addr).collect(),
        server: endpoint(20),
        replica: Some(endpoint(21)),
        quota_bytes: 2 * 3 * 80,
        pull_cache_bytes: 4 * 16,
        chunks: CHUNKS,
        elements: ELEMENTS,
        element_type: ElementType::I32,
        overflow: Overflow::Wrap,
        integrity: Integrity::Crc32c,
        exponent: Some(0),
        rate_bytes_per_sec: None,
        burst_bytes: 1 << 20,
    }
}
