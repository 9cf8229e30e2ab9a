//! A member of raw sockets and the wire format alone. It joins as it should and then sends what
//! and when it likes: no window, no pace, no ear for the box.

use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use weft_kernel::crc32c;
use weft_wire::header::{ElementType, Flags, HEADER_LEN, Header, Kind, Operation, Outcome, Packet};
use weft_wire::hello::{Hello, Phase};
use weft_wire::{ChunkIndex, Cookie, GroupId, JobId, Rank};

use super::PATIENCE;

/// A joined member.
#[derive(Debug)]
pub struct RawMember {
    socket: UdpSocket,
    target: SocketAddr,
    header: Header,
}

impl RawMember {
    /// Joins row `row` of `job` as rank 0, from `local`.
    ///
    /// # Panics
    /// When the box does not welcome it.
    #[must_use]
    pub fn join(local: SocketAddr, target: SocketAddr, job: u16, row: u16) -> Self {
        let socket = UdpSocket::bind(local).expect("the member's port is free");
        socket.set_read_timeout(Some(Duration::from_millis(50))).expect("a timeout");
        let header = Header {
            kind: Kind::Hello,
            flags: Flags::NONE,
            outcome: Outcome::None,
            job: JobId(job),
            cookie: Cookie::default(),
            group: GroupId::new(row, 0),
            chunk: ChunkIndex(0),
            element_type: ElementType::None,
            operation: Operation::None,
            exponent: 0,
            count: 0,
            members: Rank::new(0).expect("a rank").bit(),
        };
        let mut member = Self { socket, target, header };
        let mut token = 0;
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            let mut hello = Hello::new(if token == 0 { Phase::Hello } else { Phase::Join });
            (hello.life, hello.token) = (77, token);
            let mut datagram = vec![0; HEADER_LEN + hello.body_len()];
            let mut packet = Packet::new_unchecked(&mut datagram[..]);
            member.header.emit(&mut packet);
            hello.emit(&[], packet.payload_mut());
            packet.seal(crc32c);
            member.socket.send_to(&datagram, target).expect("the socket sends");
            let mut buffer = [0; 2048];
            let Ok(len) = member.socket.recv(&mut buffer) else { continue };
            let packet = Packet::new_unchecked(&buffer[..len]);
            let answer = Header::parse(&packet).expect("the box's header is good");
            let (hello, _) = Hello::parse(packet.payload()).expect("a handshake body");
            match hello.phase {
                Phase::Challenge => token = hello.token,
                Phase::Welcome => {
                    member.header.cookie = hello.cookie_up;
                    member.header.group = answer.group;
                    return member;
                }
                _ => {}
            }
        }
        panic!("the box does not welcome {local}");
    }

    /// Sends `count` contributions of `elements` i32 each, one chunk after another, as fast as the
    /// socket takes them. Those that the kernel refuses are lost.
    ///
    /// # Panics
    /// If a chunk is longer than a datagram can be.
    pub fn flood(&mut self, first_chunk: u32, count: u32, elements: u16) {
        let mut datagram = vec![0; HEADER_LEN + usize::from(elements) * 4];
        self.header.kind = Kind::Contrib;
        self.header.element_type = ElementType::I32;
        self.header.operation = Operation::Sum;
        self.header.count = elements;
        for chunk in first_chunk..first_chunk + count {
            let mut packet = Packet::new_unchecked(&mut datagram[..]);
            self.header.chunk = ChunkIndex(chunk);
            self.header.emit(&mut packet);
            packet.seal(crc32c);
            let _ = self.socket.send_to(&datagram, self.target);
        }
    }
}
