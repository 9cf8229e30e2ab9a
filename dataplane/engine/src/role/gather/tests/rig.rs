//! An aggregator between workers, a server and a replica that are nothing but channels: each test
//! says in a line what goes in and what comes out.

use alloc::vec;
use alloc::vec::Vec;
use core::net::SocketAddr;

use weft_control::{
    BoxIndex, Command, Event, GroupDescriptor, GroupMember, HoldingCommand, OrderNumber, Version,
};
use weft_kernel::Kernels;
use weft_wire::frame::{Datagram, Endpoint, Udp};
use weft_wire::header::{ElementType, Flags, HEADER_LEN, Header, Kind, Operation, Outcome, Packet};
use weft_wire::hello::{Integrity, Overflow};
use weft_wire::{ChunkIndex, GroupId, JobId, MacAddr, Members, Nanos, Rank};

use super::super::{PushConfig, PushReport};
use crate::drops::DropReason;
use crate::random::SplitMix64;
use crate::role::Verdict;
use crate::role::aggregator::Aggregator;
use crate::role::channel::{
    ChannelClient, ChannelClientConfig, ChannelHost, ChannelHostConfig, JobTerms, Peer, Standing,
};
use crate::send::datagram::plain_header;
use crate::table::{ArenaConfig, BoxConfig, Table};

pub(super) const ELEMENTS: u16 = 4;
pub(super) const CHUNKS: u32 = 3;
const FRAME_LEN_MAX: usize = 1514;

pub(super) fn endpoint(host: u8, last: u8, port: u16) -> Endpoint {
    let addr = SocketAddr::from(([10, 0, host, last], port));
    Endpoint { mac: MacAddr([2, 0, 0, 0, host, last]), addr }
}

pub(super) fn box_endpoint() -> Endpoint {
    endpoint(9, 9, 22341)
}

fn worker_endpoint(job: u16, rank: usize) -> Endpoint {
    endpoint(u8::try_from(job).unwrap() + 1, u8::try_from(rank).unwrap() + 1, 7000)
}

/// A job of `workers`, with room for two updates.
pub(super) fn push(job: u16, workers: usize) -> PushConfig {
    let host = u8::try_from(job).unwrap() + 1;
    PushConfig {
        job: JobId(job),
        box_index: BoxIndex(2),
        workers: (0..workers).map(|rank| worker_endpoint(job, rank).addr).collect(),
        server: endpoint(host, 100, 22341),
        replica: Some(endpoint(host, 101, 22341)),
        quota_bytes: 2 * u64::from(CHUNKS) * (64 + 16),
        pull_cache_bytes: 8 * 16,
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

/// Who a frame that left the box is for, and what it says.
#[derive(Clone, Debug)]
pub(super) struct Out {
    pub(super) header: Header,
    pub(super) target: SocketAddr,
    pub(super) payload: Vec<u8>,
}

impl Out {
    /// The elements as i32.
    pub(super) fn values(&self) -> Vec<i32> {
        let words = self.payload.chunks_exact(4);
        words.map(|word| i32::from_be_bytes(word.try_into().unwrap())).collect()
    }

    pub(super) fn is_state(&self, outcome: Outcome, members: u64) -> bool {
        self.header.kind == Kind::State
            && self.header.outcome == outcome
            && self.header.members == Members(members)
            && self.payload.is_empty()
    }
}

/// The ends of one job.
pub(super) struct Ends {
    pub(super) config: PushConfig,
    pub(super) workers: Vec<ChannelClient>,
    pub(super) server: ChannelHost,
    pub(super) replica: ChannelHost,
}

pub(super) struct Rig {
    pub(super) aggregator: Aggregator,
    pub(super) jobs: Vec<Ends>,
    pub(super) now: Nanos,
}

fn terms(config: &PushConfig) -> JobTerms {
    JobTerms {
        job: config.job,
        elements: config.elements,
        integrity: config.integrity,
        exponent: config.exponent,
        chunks: config.chunks,
    }
}

fn host(config: &PushConfig, local: Endpoint, seed: u64) -> ChannelHost {
    let mut boxes = vec![None; usize::from(config.box_index.0)];
    boxes.push(Some(box_endpoint().addr));
    let config =
        ChannelHostConfig { local, terms: terms(config), workers: config.workers.clone(), boxes };
    ChannelHost::new(&config, SplitMix64::new(seed))
}

pub(super) fn worker(config: &PushConfig, rank: usize, life: u64) -> ChannelClient {
    let peer = Peer::Worker(Rank::new(u8::try_from(rank).unwrap()).unwrap());
    let local = worker_endpoint(config.job.0, rank);
    let config = ChannelClientConfig::new(config.job, peer, local, box_endpoint());
    let config = ChannelClientConfig { probe_len: 0, ..config };
    ChannelClient::new(config, life, Nanos(0)).unwrap()
}

impl Ends {
    /// Of the nth job that there ever was, with channels that are to be opened.
    fn new(config: PushConfig, number: u64) -> Self {
        let life = 50 + 10 * number;
        Self {
            workers: (0..config.workers.len()).map(|rank| worker(&config, rank, life)).collect(),
            server: host(&config, config.server, 11 + 2 * number),
            replica: host(&config, config.replica.unwrap(), 12 + 2 * number),
            config,
        }
    }
}

impl Rig {
    pub(super) fn new(pushes: Vec<PushConfig>) -> Self {
        Self::with_arena(pushes, ArenaConfig::default())
    }

    pub(super) fn with_arena(pushes: Vec<PushConfig>, arena: ArenaConfig) -> Self {
        let table = BoxConfig {
            local: box_endpoint(),
            shards: 1,
            mtu: 1500,
            jobs: Vec::new(),
            rows: Vec::new(),
            pushes: pushes.clone(),
        };
        let table = Table::new(table).and_then(|table| table.with_arena(arena)).unwrap();
        let aggregator = Aggregator::new(&table, 0, 8, Kernels::detect());
        let mut rig = Self { aggregator, jobs: Vec::new(), now: Nanos(1) };
        pushes.into_iter().for_each(|config| rig.open(config));
        rig.poll();
        rig
    }

    /// Opens the workers' channels of a job that the box has.
    pub(super) fn open(&mut self, config: PushConfig) {
        let job = self.jobs.len();
        self.jobs.push(Ends::new(config, job as u64));
        for rank in 0..self.jobs[job].workers.len() {
            self.connect(job, rank);
        }
    }

    /// What the box answers to a command about what it holds.
    pub(super) fn told(&mut self, command: HoldingCommand) -> Event {
        self.aggregator.handle_command(Command::Holding(command));
        let event = self.event().expect("each command has an answer");
        assert_eq!(self.event(), None, "and one only");
        event
    }

    /// One job of two workers, channels open.
    pub(super) fn of_two() -> Self {
        Self::new(vec![push(1, 2)])
    }

    /// Hands a frame to the box; everything that leaves because of it, the copies last.
    pub(super) fn raw(&mut self, frame: &[u8]) -> Result<Vec<Vec<u8>>, DropReason> {
        let mut buffer = frame.to_vec();
        buffer.resize(FRAME_LEN_MAX.max(frame.len()), 0xee);
        let verdict = self.aggregator.handle_frame(self.now, &mut buffer, frame.len());
        let mut frames = Vec::new();
        match verdict {
            Verdict::Drop(reason) => return Err(reason),
            Verdict::Hold | Verdict::Host => {}
            Verdict::Send { len } => frames.push(buffer[..len].to_vec()),
            Verdict::Fan { len, push } => {
                let gather = self.aggregator.gather();
                let frame = buffer[..len].to_vec();
                frames.push(frame.clone());
                for peer in gather.copies(push, &frame) {
                    let mut copy = frame.clone();
                    let head_len = gather.copy_header_len(push);
                    assert!(gather.address_copy(push, peer, &mut copy[..head_len], len));
                    frames.push(copy);
                }
            }
            verdict => panic!("a push job gets no {verdict:?}"),
        }
        Ok(frames)
    }

    pub(super) fn send(&mut self, frame: &[u8]) -> Result<Vec<Out>, DropReason> {
        Ok(self.raw(frame)?.iter().map(|frame| read(frame)).collect())
    }

    /// The one frame that comes back for this one.
    pub(super) fn ask(&mut self, frame: &[u8]) -> Out {
        let mut out = self.send(frame).expect("it is taken");
        assert_eq!(out.len(), 1, "{out:?}");
        out.remove(0)
    }

    /// Everything that the box sends by itself, its handshakes answered.
    pub(super) fn poll(&mut self) -> Vec<Out> {
        let mut out = Vec::new();
        self.now = Nanos(self.now.0 + 1_000_000_000);
        let mut buffer = vec![0; FRAME_LEN_MAX];
        for _ in 0..64 {
            let Some(len) = self.aggregator.poll_transmit(self.now, &mut buffer) else { break };
            let mut frame = buffer.clone();
            let udp = Datagram::find(&frame[..len]).unwrap();
            let header =
                Header::parse(&Packet::new_unchecked(&frame[udp.payload_range()])).unwrap();
            if header.kind != Kind::Hello {
                out.push(read(&frame[..len]));
                continue;
            }
            let target = Udp::parse(&frame[..len]).unwrap().target;
            let mut jobs = self.jobs.iter_mut().rev();
            let job = jobs.find(|job| job.config.job == header.job).unwrap();
            let is_server = target == job.config.server.addr;
            let host = if is_server { &mut job.server } else { &mut job.replica };
            let reply = host.handle_hello(&udp, &header, &mut frame).unwrap();
            let taken = self.raw(&frame[..reply.len]).unwrap();
            assert!(taken.is_empty());
        }
        out
    }

    /// Opens a worker's channel.
    pub(super) fn connect(&mut self, job: usize, rank: usize) {
        while self.jobs[job].workers[rank].standing() == Standing::Opening {
            let mut frame = vec![0; FRAME_LEN_MAX];
            self.now = Nanos(self.now.0 + 1_000_000_000);
            let now = self.now;
            let len = self.jobs[job].workers[rank].poll_transmit(now, &mut frame).unwrap();
            let mut reply = self.raw(&frame[..len]).unwrap().remove(0);
            let udp = Datagram::find(&reply).unwrap();
            let header =
                Header::parse(&Packet::new_unchecked(&reply[udp.payload_range()])).unwrap();
            self.jobs[job].workers[rank].handle_frame(now, &udp, &header, &mut reply).unwrap();
        }
    }

    pub(super) fn install(&mut self, descriptor: GroupDescriptor) -> Event {
        self.aggregator.gather_mut().handle_command(&Command::Install(descriptor));
        self.event().expect("a command is answered")
    }

    pub(super) fn event(&mut self) -> Option<Event> {
        self.aggregator.gather_mut().poll_event().map(|(_, event)| event)
    }

    pub(super) fn report(&self, job: usize) -> PushReport<'_> {
        self.aggregator.gather().reports().nth(job).unwrap()
    }

    pub(super) fn contribution(
        &self,
        rank: usize,
        group: GroupId,
        chunk: u32,
        value: i32,
    ) -> Vec<u8> {
        let payload = value.to_be_bytes().repeat(usize::from(ELEMENTS));
        self.worker_frame(0, rank, &data_header(group, chunk, ElementType::I32), &payload)
    }

    pub(super) fn worker_frame(
        &self,
        job: usize,
        rank: usize,
        header: &Header,
        payload: &[u8],
    ) -> Vec<u8> {
        let client = &self.jobs[job].workers[rank];
        let header = Header { members: client.peer().bit(), ..*header };
        let mut frame = vec![0; FRAME_LEN_MAX];
        let start = client.payload_start();
        frame[start..start + payload.len()].copy_from_slice(payload);
        let len = client.write(&header, &mut frame, payload.len()).expect("an open channel");
        frame.truncate(len);
        frame
    }

    pub(super) fn server_frame(&self, job: usize, header: &Header, payload: &[u8]) -> Vec<u8> {
        let job = &self.jobs[job];
        let peer = Peer::Box(job.config.box_index);
        let header = Header { job: job.config.job, ..*header };
        let mut frame = vec![0; FRAME_LEN_MAX];
        let start = job.server.payload_start(peer);
        frame[start..start + payload.len()].copy_from_slice(payload);
        let len = job.server.write(peer, &header, &mut frame, payload.len()).expect("open");
        frame.truncate(len);
        frame
    }

    pub(super) fn credit(&self, group: GroupId, chunk: u32, mask: u64) -> Vec<u8> {
        let header = plain_header(Kind::Pull, JobId(0), group, Members(mask));
        self.server_frame(0, &Header { chunk: ChunkIndex(chunk), ..header }, &[])
    }

    pub(super) fn ack(&self, group: GroupId, outcome: Outcome) -> Vec<u8> {
        let header = plain_header(Kind::Ack, JobId(0), group, Members(0b11));
        self.server_frame(0, &Header { outcome, chunk: ChunkIndex(7), ..header }, &[])
    }
}

pub(super) fn data_header(group: GroupId, chunk: u32, element_type: ElementType) -> Header {
    Header {
        chunk: ChunkIndex(chunk),
        element_type,
        operation: Operation::Sum,
        count: ELEMENTS,
        flags: Flags::NONE,
        ..plain_header(Kind::Contrib, JobId(0), group, Members::EMPTY)
    }
}

pub(super) fn group(row: u16, generation: u16) -> GroupId {
    GroupId::new(row, generation)
}

pub(super) fn descriptor(job: u16, id: GroupId, ranks: &[u8]) -> GroupDescriptor {
    let member = |rank: &u8| GroupMember { rank: Rank::new(*rank).unwrap(), version: Version(0) };
    GroupDescriptor {
        job: JobId(job),
        group: id,
        order: OrderNumber(1),
        members: ranks.iter().map(member).collect(),
        chunks: CHUNKS,
        element_type: ElementType::I32,
        elements: ELEMENTS,
        exponent: 0,
        via: Some(BoxIndex(2)),
        replicate: false,
        rate_bytes_per_sec: None,
        after: None,
        train_chunks: 0,
        lateness_ns: 0,
    }
}

/// Reads a frame that must be whole, sealed and well-formed.
pub(super) fn read(frame: &[u8]) -> Out {
    let udp = Udp::parse(frame).expect("the box sends whole datagrams");
    assert_eq!(udp.payload_range().end, frame.len(), "no bytes behind the datagram");
    let mut datagram = frame[udp.payload_range()].to_vec();
    let mut packet = Packet::new_checked(&mut datagram[..]).expect("a header");
    assert!(packet.crc() == 0 || packet.verify_crc(weft_kernel::crc32c), "sealed");
    let header = Header::parse(&packet).expect("the box sends valid headers");
    Out { header, target: udp.target, payload: datagram[HEADER_LEN..].to_vec() }
}
