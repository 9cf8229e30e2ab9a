//! A member made of a plain UDP socket and the wire format: it shares no code with the engines.

use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use weft_kernel::crc32c;
use weft_wire::header::{ElementType, Flags, HEADER_LEN, Header, Kind, Operation, Outcome, Packet};
use weft_wire::hello::{Hello, Phase};
use weft_wire::{ChunkIndex, Cookie, GroupId, JobId, Members, Rank};

use crate::common::PATIENCE;

/// How long to wait before asking again.
const AGAIN: Duration = Duration::from_millis(50);

/// One lane of a worker.
pub(crate) struct Member {
    socket: UdpSocket,
    target: SocketAddr,
    rank: u8,
    lane: u32,
    life: u64,
    token: u64,
    welcome: Option<(Hello, GroupId)>,
}

impl Member {
    /// A member on `local`, which is its lane's own address.
    pub(crate) fn new(local: SocketAddr, target: SocketAddr, rank: u8, lane: u16) -> Self {
        let socket = UdpSocket::bind(local).expect("the member's port is free");
        socket.set_read_timeout(Some(AGAIN)).expect("a timeout");
        let life = 1000 + u64::from(rank) * 64 + u64::from(lane);
        Self { socket, target, rank, lane: lane.into(), life, token: 0, welcome: None }
    }

    fn header(&self, kind: Kind) -> Header {
        Header {
            kind,
            flags: Flags::NONE,
            outcome: Outcome::None,
            job: JobId(1),
            cookie: Cookie::default(),
            group: GroupId::new(0, 0),
            chunk: ChunkIndex(self.lane),
            element_type: ElementType::None,
            operation: Operation::None,
            exponent: 0,
            count: 0,
            members: Rank::new(self.rank).expect("a rank").bit(),
        }
    }

    fn hello(&self, phase: Phase) {
        let mut body = Hello::new(phase);
        body.life = self.life;
        body.token = self.token;
        let mut datagram = vec![0; HEADER_LEN + body.body_len()];
        let mut packet = Packet::new_unchecked(&mut datagram[..]);
        self.header(Kind::Hello).emit(&mut packet);
        body.emit(&[], packet.payload_mut());
        self.send(&mut datagram);
    }

    fn send(&self, datagram: &mut [u8]) {
        Packet::new_unchecked(&mut *datagram).seal(crc32c);
        self.socket.send_to(datagram, self.target).expect("the socket sends");
    }

    /// The next datagram of the box that is whole, if one comes.
    fn receive(&self) -> Option<(Header, Vec<u8>)> {
        let mut buffer = [0; 2048];
        let (len, source) = self.socket.recv_from(&mut buffer).ok()?;
        assert_eq!(source.ip(), self.target.ip(), "only the box speaks to a member");
        let mut packet = Packet::new_unchecked(&mut buffer[..len]);
        assert!(packet.verify_crc(crc32c), "the box's datagram is whole");
        let header = Header::parse(&packet).expect("the box's header is good");
        Some((header, packet.payload().to_vec()))
    }

    /// One step of the handshake: asks, and takes in what comes. True once welcomed.
    pub(crate) fn join(&mut self) -> bool {
        let phase = if self.token == 0 { Phase::Hello } else { Phase::Join };
        self.hello(phase);
        while let Some((header, payload)) = self.receive() {
            let (hello, _) = Hello::parse(&payload).expect("a handshake body");
            match hello.phase {
                Phase::Challenge => self.token = hello.token,
                Phase::Welcome => self.welcome = Some((hello, header.group)),
                Phase::Waiting => continue,
                phase => panic!("the box answered {phase}"),
            }
            break;
        }
        self.welcome.is_some()
    }

    pub(crate) fn contribute(&self, chunk: u32, values: &[i32]) {
        let (hello, group) = self.welcome.as_ref().expect("welcomed");
        let header = Header {
            cookie: hello.cookie_up,
            group: *group,
            chunk: ChunkIndex(chunk),
            element_type: ElementType::I32,
            operation: Operation::Sum,
            count: u16::try_from(values.len()).expect("a chunk"),
            ..self.header(Kind::Contrib)
        };
        let mut datagram = vec![0; HEADER_LEN + values.len() * 4];
        let mut packet = Packet::new_unchecked(&mut datagram[..]);
        header.emit(&mut packet);
        for (bytes, value) in packet.payload_mut().chunks_exact_mut(4).zip(values) {
            bytes.copy_from_slice(&value.to_be_bytes());
        }
        self.send(&mut datagram);
    }

    /// The sum of `chunk`, with its contributors.
    pub(crate) fn answer(&self, chunk: u32) -> (Vec<i32>, Members) {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            let Some((header, payload)) = self.receive() else { continue };
            if header.kind != Kind::Answer {
                continue;
            }
            assert_eq!(header.chunk, ChunkIndex(chunk));
            let (hello, group) = self.welcome.as_ref().expect("welcomed");
            assert_eq!((header.cookie, header.group), (hello.cookie_down, *group));
            let values = payload.chunks_exact(4);
            let value = |bytes: &[u8]| i32::from_be_bytes(bytes.try_into().expect("4 bytes"));
            return (values.map(value).collect(), header.members);
        }
        panic!("rank {}: no answer for chunk {chunk}", self.rank);
    }
}

/// Brings all members into the group.
pub(crate) fn join_all(members: &mut [Member]) {
    let deadline = Instant::now() + PATIENCE;
    let mut welcomed = vec![false; members.len()];
    while welcomed.iter().any(|done| !done) {
        assert!(Instant::now() < deadline, "the group does not form");
        for (member, done) in members.iter_mut().zip(&mut welcomed) {
            if !*done {
                *done = member.join();
            }
        }
    }
}
