//! A server and peers made of plain channels, so that each test says in a line what goes in and
//! what comes out. No time passes unless a test says so.

use alloc::vec;
use alloc::vec::Vec;

use weft_control::{
    Command, Event, GroupDescriptor, GroupMember, InstallError, OrderNumber, Version,
};
use weft_kernel::Kernels;
use weft_wire::frame::{Datagram, Endpoint, Udp};
use weft_wire::header::{ElementType, Flags, HEADER_LEN, Header, Kind, Operation, Outcome, Packet};
use weft_wire::rows::{ROW_DIRECT, ROW_LOG};
use weft_wire::{ChunkIndex, GroupId, JobId, Members, Nanos, Rank};

use super::super::{ModelState, Server, ServerJobConfig, ServerJobStats};
use super::world::{AGGREGATOR, BOX, FRAME_LEN, REPLICA, REPLICA_BOX, SERVER, addr, endpoint};
use crate::drops::DropReason;
use crate::role::Verdict;
use crate::role::channel::{ChannelClient, ChannelClientConfig, Peer, Standing};
use crate::role::model::ModelConfig;
use crate::send::datagram::plain_header;

pub(super) const JOB: JobId = JobId(3);
pub(super) const ELEMENTS: u16 = 2;
pub(super) const CHUNKS: u32 = 3;
/// The replica among the boxes.
pub(super) const REPLICA_BIT: Members = Peer::Box(REPLICA_BOX).bit();
pub(super) const MS: u64 = 1_000_000;

/// A frame that left the server.
#[derive(Clone, Debug)]
pub(super) struct Out {
    pub(super) to: u8,
    pub(super) header: Header,
    pub(super) payload: Vec<u8>,
}

impl Out {
    /// `(to, chunk)` of a PULL.
    pub(super) fn pull(&self) -> Option<(u8, u32)> {
        (self.header.kind == Kind::Pull).then_some((self.to, self.header.chunk.0))
    }

    /// `(to, outcome, version)` of an ACK.
    pub(super) fn ack(&self) -> Option<(u8, Outcome, u32)> {
        let is_ack = self.header.kind == Kind::Ack;
        is_ack.then_some((self.to, self.header.outcome, self.header.chunk.0))
    }
}

pub(super) struct Rig {
    pub(super) server: Server,
    pub(super) now: Nanos,
    /// Workers 0 and 1, the aggregator, the replica.
    pub(super) peers: Vec<(u8, ChannelClient)>,
}

pub(super) fn job() -> ServerJobConfig {
    let model = ModelConfig {
        elements: ELEMENTS,
        exponent: 0,
        ..ModelConfig::new(JOB, usize::from(ELEMENTS) * CHUNKS as usize)
    };
    ServerJobConfig {
        boxes: vec![Some(addr(AGGREGATOR)), Some(addr(REPLICA))],
        replica: Some(REPLICA_BOX),
        tau_max: 5,
        groups_open_max: 4,
        staging_bytes_max: 4 * 24,
        log_bytes_max: 4 * 24,
        ..ServerJobConfig::new(model, vec![addr(1), addr(2), addr(3)])
    }
}

pub(super) fn client(host: u8, peer: Peer, life: u64) -> ChannelClient {
    let target = Endpoint { addr: addr(SERVER), ..endpoint(SERVER) };
    let config = ChannelClientConfig::new(JOB, peer, endpoint(host), target);
    let config = ChannelClientConfig { probe_len: 0, ..config };
    ChannelClient::new(config, life, Nanos(0)).unwrap()
}

pub(super) fn rank(rank: u8) -> Rank {
    Rank::new(rank).unwrap()
}

impl Rig {
    pub(super) fn new(job: ServerJobConfig) -> Self {
        Self::of(&[job])
    }

    pub(super) fn of(jobs: &[ServerJobConfig]) -> Self {
        let server = Server::new(endpoint(SERVER), 1500, jobs, 9, Kernels::detect()).unwrap();
        let mut rig = Self { server, now: Nanos(0), peers: Vec::new() };
        rig.connect_all();
        rig
    }

    pub(super) fn peer(&mut self, host: u8) -> &mut ChannelClient {
        &mut self.peers.iter_mut().find(|(own, _)| *own == host).unwrap().1
    }

    pub(super) fn connect(&mut self, host: u8) {
        while self.peer(host).standing() != Standing::Open {
            let now = self.now;
            let mut frame = vec![0; FRAME_LEN];
            let len = self.peer(host).poll_transmit(now, &mut frame).unwrap();
            let mut reply = self.raw(&frame[..len]).unwrap().unwrap();
            let (udp, header) = parse(&reply);
            self.peer(host).handle_frame(now, &udp, &header, &mut reply).unwrap();
        }
    }

    /// The peers' first lives find a server that does not know them.
    fn connect_all(&mut self) {
        let lives = [
            (1, Peer::Worker(rank(0)), 11),
            (2, Peer::Worker(rank(1)), 12),
            (AGGREGATOR, Peer::Box(BOX), 13),
            (REPLICA, Peer::Box(REPLICA_BOX), 14),
        ];
        self.peers = lives.map(|(host, peer, life)| (host, client(host, peer, life))).into();
        for (host, ..) in lives {
            self.connect(host);
        }
    }

    /// The server crashes, and begins anew with what it kept, which is returned. Its peers live on.
    pub(super) fn crash(&mut self, job: ServerJobConfig) -> ModelState {
        let state = self.server.state(JOB).unwrap();
        self.server = Server::new(endpoint(SERVER), 1500, &[job], 77, Kernels::detect()).unwrap();
        self.server.restore(JOB, &state).unwrap();
        self.connect_all();
        state
    }

    /// A worker's next life.
    pub(super) fn begin_life(&mut self, worker: u8, life: u64) {
        *self.peer(worker) = client(worker, Peer::Worker(rank(worker - 1)), life);
        self.connect(worker);
    }

    /// Hands a frame to the server; the reply, if there is one.
    pub(super) fn raw(&mut self, frame: &[u8]) -> Result<Option<Vec<u8>>, DropReason> {
        let mut buffer = frame.to_vec();
        buffer.resize(FRAME_LEN.max(frame.len()), 0xee);
        match self.server.handle_frame(self.now, &mut buffer, frame.len()) {
            Verdict::Drop(reason) => Err(reason),
            Verdict::Hold | Verdict::Host => Ok(None),
            Verdict::Send { len } => Ok(Some(buffer[..len].to_vec())),
            verdict => panic!("a server gives no {verdict:?}"),
        }
    }

    pub(super) fn send(&mut self, frame: &[u8]) -> Result<Option<Out>, DropReason> {
        Ok(self.raw(frame)?.map(|frame| read(&frame)))
    }

    /// A frame from a peer.
    pub(super) fn frame(&mut self, host: u8, header: &Header, payload: &[u8]) -> Vec<u8> {
        let mut frame = vec![0; FRAME_LEN];
        let client = self.peer(host);
        let start = client.payload_start();
        frame[start..start + payload.len()].copy_from_slice(payload);
        let len = client.write(header, &mut frame, payload.len()).unwrap();
        frame.truncate(len);
        frame
    }

    /// Everything that the server sends now by itself.
    pub(super) fn poll(&mut self) -> Vec<Out> {
        let mut out = Vec::new();
        let mut buffer = vec![0; FRAME_LEN];
        while let Some(len) = self.server.poll_transmit(self.now, &mut buffer) {
            out.push(read(&buffer[..len]));
            assert!(out.len() < 1000, "it does not end");
        }
        assert!(self.server.poll_timeout() > self.now, "nothing is due any more");
        out
    }

    pub(super) fn pulls(&mut self) -> Vec<(u8, u32)> {
        self.poll().iter().filter_map(Out::pull).collect()
    }

    pub(super) fn acks(&mut self) -> Vec<(u8, Outcome, u32)> {
        let acks = self.poll().into_iter().filter(|out| !out.header.flags.contains(Flags::REPLICA));
        acks.filter_map(|out| out.ack()).collect()
    }

    pub(super) fn wait(&mut self, ms: u64) {
        self.now = Nanos(self.now.0 + ms * MS);
    }

    pub(super) fn install(&mut self, descriptor: GroupDescriptor) -> Result<(), InstallError> {
        self.server.handle_command(self.now, Command::Install(descriptor));
        loop {
            match self.server.poll_event().expect("a command is answered").1 {
                Event::Installed { .. } => return Ok(()),
                Event::Refused { error, .. } => return Err(error),
                _ => {}
            }
        }
    }

    /// The first group, of workers 0 and 1 through the aggregator: all its sums reach the server.
    pub(super) fn sum_first_group(&mut self) {
        self.install(descriptor(0, &[0, 1], true)).unwrap();
        self.pulls();
        for chunk in 0..CHUNKS {
            self.sum(group(0), chunk, 0b11).unwrap();
        }
    }

    /// A chunk of ones from a worker, as it was asked for.
    pub(super) fn direct(&mut self, worker: u8, id: GroupId, chunk: u32) -> Result<(), DropReason> {
        let members = rank(worker - 1).bit();
        let header = Header { flags: Flags::DIRECT, members, ..data(id, chunk) };
        let frame = self.frame(worker, &header, &ones());
        self.send(&frame).map(|reply| assert!(reply.is_none()))
    }

    /// A chunk of a sum from the aggregator.
    pub(super) fn sum(&mut self, id: GroupId, chunk: u32, members: u64) -> Result<(), DropReason> {
        let header = Header { members: Members(members), ..data(id, chunk) };
        let frame = self.frame(AGGREGATOR, &header, &ones());
        self.send(&frame).map(|reply| assert!(reply.is_none()))
    }

    pub(super) fn status(&mut self, worker: u8, id: GroupId) -> Out {
        let header = plain_header(Kind::Status, JOB, id, rank(worker - 1).bit());
        let frame = self.frame(worker, &header, &[]);
        self.send(&frame).unwrap().expect("a question is answered")
    }

    /// A worker announces an update without a controller.
    pub(super) fn announce(&mut self, worker: u8, generation: u16, version: u32) -> Out {
        let id = GroupId::new(ROW_DIRECT + u16::from(worker) - 1, generation);
        let header = Header {
            chunk: ChunkIndex(version),
            element_type: ElementType::I32,
            count: ELEMENTS,
            ..plain_header(Kind::Status, JOB, id, rank(worker - 1).bit())
        };
        let frame = self.frame(worker, &header, &[]);
        self.send(&frame).unwrap().expect("a question is answered")
    }

    /// The replica says that it has applied all before `wanted`.
    pub(super) fn follow(&mut self, wanted: u32) -> Out {
        let header = plain_header(Kind::Status, JOB, GroupId::new(ROW_LOG, 0), REPLICA_BIT);
        let header = Header { flags: Flags::REPLICA, chunk: ChunkIndex(wanted), ..header };
        let frame = self.frame(REPLICA, &header, &[]);
        self.send(&frame).unwrap().expect("a question is answered")
    }

    /// A group of this order number is installed and removed: one decision that changes nothing.
    pub(super) fn void(&mut self, order: u64) {
        self.install(descriptor(order, &[0], false)).unwrap();
        self.server.handle_command(self.now, Command::Remove { job: JOB, group: group(order) });
        self.poll();
    }

    pub(super) fn next_order(&self) -> u64 {
        self.server.model(JOB).unwrap().next_order.0
    }

    pub(super) fn stats(&self) -> ServerJobStats {
        *self.server.jobs().next().unwrap().1
    }

    /// What it has said since this was asked last.
    pub(super) fn events(&mut self) -> Vec<Event> {
        core::iter::from_fn(|| self.server.poll_event()).map(|(_, event)| event).collect()
    }

    pub(super) fn version(&self) -> u64 {
        self.server.model(JOB).unwrap().version.0
    }
}

pub(super) fn ones() -> Vec<u8> {
    1i32.to_be_bytes().repeat(usize::from(ELEMENTS))
}

pub(super) fn data(id: GroupId, chunk: u32) -> Header {
    Header {
        chunk: ChunkIndex(chunk),
        element_type: ElementType::I32,
        operation: Operation::Sum,
        count: ELEMENTS,
        ..plain_header(Kind::Contrib, JOB, id, Members::EMPTY)
    }
}

pub(super) fn group(order: u64) -> GroupId {
    GroupId::new(u16::try_from(order).unwrap(), 1)
}

/// A group of these workers; one alone sends by itself.
pub(super) fn descriptor(order: u64, ranks: &[u8], via_box: bool) -> GroupDescriptor {
    let member = |own: &u8| GroupMember { rank: rank(*own), version: Version(0) };
    GroupDescriptor {
        job: JOB,
        group: group(order),
        order: OrderNumber(order),
        members: ranks.iter().map(member).collect(),
        chunks: CHUNKS,
        element_type: ElementType::I32,
        elements: ELEMENTS,
        exponent: 0,
        via: via_box.then_some(BOX),
        replicate: true,
        rate_bytes_per_sec: None,
        after: None,
        train_chunks: 0,
        lateness_ns: 1000 * MS,
    }
}

pub(super) fn parse(frame: &[u8]) -> (Datagram, Header) {
    let udp = Datagram::find(frame).unwrap();
    (udp, Header::parse(&Packet::new_unchecked(&frame[udp.payload_range()])).unwrap())
}

fn read(frame: &[u8]) -> Out {
    let (udp, header) = parse(frame);
    let target = Udp::parse(frame).unwrap().target;
    let core::net::IpAddr::V4(ip) = target.ip() else { panic!("IPv4 here") };
    let payload = frame[udp.payload_range()][HEADER_LEN..].to_vec();
    Out { to: ip.octets()[3], header, payload }
}
