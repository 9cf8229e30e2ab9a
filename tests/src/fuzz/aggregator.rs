//! A sequence of operations, read from the fuzzer's bytes, against an aggregator with one open
//! lease of two members.
//!
//! No operation may make it panic, and a frame without right (damaged, or of a foreign job, cookie
//! or group) may change no slot (DESIGN I7).

use std::net::SocketAddr;

use weft_control::SumOrder;
use weft_engine::role::Verdict;
use weft_engine::role::aggregator::Aggregator;
use weft_engine::table::{BoxConfig, JobConfig, MemberConfig, RowConfig, Table};
use weft_kernel::{Kernels, crc32c};
use weft_wire::frame::{Encap, Endpoint, Udp};
use weft_wire::header::{ElementType, Flags, HEADER_LEN, Header, Kind, Operation, Outcome, Packet};
use weft_wire::hello::{Hello, Integrity, Overflow, Phase};
use weft_wire::{ChunkIndex, Cookie, GroupId, JobId, MacAddr, Members, Nanos, Rank};

use weft_sim::frames::sealed;

/// Runs the operations that `data` spells, five bytes each.
pub fn aggregator_frames(data: &[u8]) {
    let mut rig = Rig::open();
    for operation in data.chunks_exact(OPERATION_LEN) {
        rig.apply(operation);
    }
    // Whatever happened, the box still answers a good handshake.
    assert!(rig.join(0).is_some(), "the box challenges a member");
}

const OPERATION_LEN: usize = 5;
const ELEMENTS: u16 = 4;
const PORT: u16 = 22_336;

struct Rig {
    aggregator: Aggregator,
    now: Nanos,
    members: [Member; 2],
}

#[derive(Clone, Copy)]
struct Member {
    encap: Encap,
    bit: Members,
    life: u64,
    session: u64,
    cookie: Cookie,
    group: GroupId,
}

impl Rig {
    fn open() -> Self {
        let members = [0, 1].map(|rank| Member {
            encap: Encap::new(endpoint(10 + rank), endpoint(1)).expect("both are IPv4"),
            bit: Rank::new(rank).expect("below 64").bit(),
            life: 100 + u64::from(rank),
            session: 0,
            cookie: Cookie::default(),
            group: GroupId::default(),
        });
        let aggregator = Aggregator::new(&table(), 0, 7, Kernels::detect());
        let mut rig = Self { aggregator, now: Nanos(0), members };
        for rank in [0, 1, 0] {
            rig.join(rank);
        }
        assert_ne!(rig.members[0].session, 0, "the lease is open");
        rig
    }

    fn apply(&mut self, operation: &[u8]) {
        let &[code, rank, at, value, extra] = operation else { return };
        let rank = usize::from(rank & 1);
        let member = self.members[rank];
        match code % 8 {
            0 => self.deliver(member.data(Kind::Contrib, at, value, extra), false),
            1 => self.deliver(member.data(Kind::Status, at, value, 0), false),
            2 => self.deliver(member.data(Kind::Answer, at, value, extra), false),
            3 => {
                // Damage that no checksum was made for: each changed byte differs.
                let mut frame = member.data(Kind::Contrib, at, value, 0);
                let start = 42 + usize::from(extra) % (frame.len() - 42);
                frame[start] ^= value | 1;
                self.deliver(frame, true);
            }
            4 => {
                // A foreign job, cookie or group, with a good checksum.
                let mut frame = member.data(Kind::Contrib, at, value, 0);
                frame[42 + 2 + usize::from(extra) % 10] ^= value | 1;
                Packet::new_unchecked(&mut frame[42..]).seal(crc32c);
                self.deliver(frame, true);
            }
            5 => {
                let mut body =
                    Hello::new([Phase::Hello, Phase::Join, Phase::Close][at as usize % 3]);
                body.life = member.life ^ u64::from(value & 1);
                body.token = u64::from(extra);
                body.low_step = u32::from(value);
                self.deliver(member.hello(body), false);
            }
            6 => {
                self.members[rank].session *= u64::from(value & 1);
                self.members[rank].life += u64::from(extra & 1);
                self.join(rank);
            }
            _ => {
                self.now = self.now.saturating_add(Nanos(u64::from(at) << 20));
                self.deliver(operation.repeat(1 + usize::from(extra) % 40), true);
            }
        }
    }

    fn deliver(&mut self, mut frame: Vec<u8>, without_right: bool) {
        let before = without_right.then(|| self.snapshot());
        self.exchange(&mut frame);
        if let Some(before) = before {
            assert_eq!(before, self.snapshot(), "a frame without right changed a slot");
        }
    }

    /// Gives the box a frame; what it says back, in place.
    fn exchange(&mut self, frame: &mut Vec<u8>) -> Option<usize> {
        let len = frame.len();
        frame.resize(1_514.max(len), 0xee);
        self.aggregator.prefetch(&frame[..len]);
        match self.aggregator.handle_frame(self.now, frame, len) {
            Verdict::Send { len } | Verdict::Multicast { len, .. } => {
                let udp = Udp::parse(&frame[..len]).expect("the box sends whole datagrams");
                let mut packet = Packet::new_unchecked(frame[udp.payload_range()].to_vec());
                assert!(packet.verify_crc(crc32c), "the box seals what it sends");
                Some(len)
            }
            _ => None,
        }
    }

    /// HELLO and JOIN; learns from a WELCOME. `None` when the box gives no challenge.
    fn join(&mut self, rank: usize) -> Option<()> {
        let mut frame = self.members[rank].hello(Hello::new(Phase::Hello));
        let len = self.exchange(&mut frame)?;
        let mut body = Hello::new(Phase::Join);
        body.token = Hello::parse(&frame[42 + HEADER_LEN..len]).ok()?.0.token;
        body.session = self.members[rank].session;
        let mut frame = self.members[rank].hello(body);
        let len = self.exchange(&mut frame)?;
        let hello = Hello::parse(&frame[42 + HEADER_LEN..len]).ok()?.0;
        if hello.phase == Phase::Welcome {
            let member = &mut self.members[rank];
            member.session = hello.session;
            member.cookie = hello.cookie_up;
            member.group = Packet::new_unchecked(&frame[42..len]).group();
        }
        Some(())
    }

    fn snapshot(&self) -> Vec<(u32, u64, bool)> {
        let leases = self.aggregator.leases();
        let banks = leases.flat_map(|lease| lease.slots().occupied());
        banks.map(|bank| (bank.step(), bank.members().0, bank.state().is_complete())).collect()
    }
}

impl Member {
    fn data(&self, kind: Kind, chunk: u8, value: u8, exponent: u8) -> Vec<u8> {
        let payload_len = if kind == Kind::Status { 0 } else { usize::from(ELEMENTS) * 4 };
        let header = Header {
            kind,
            flags: Flags::NONE,
            outcome: Outcome::None,
            job: JobId(1),
            cookie: self.cookie,
            group: self.group,
            chunk: ChunkIndex(u32::from(chunk) % 40),
            element_type: ElementType::I32,
            operation: Operation::Sum,
            exponent: i8::from_be_bytes([exponent % 3]),
            count: ELEMENTS,
            members: if kind == Kind::Answer { Members::first(2) } else { self.bit },
        };
        self.frame(&header, &vec![value; payload_len])
    }

    fn hello(&self, mut body: Hello) -> Vec<u8> {
        if body.life == 0 {
            body.life = self.life;
        }
        let header = Header {
            kind: Kind::Hello,
            flags: Flags::NONE,
            outcome: Outcome::None,
            job: JobId(1),
            cookie: Cookie::default(),
            group: GroupId::new(2, 0),
            chunk: ChunkIndex(0),
            element_type: ElementType::None,
            operation: Operation::None,
            exponent: 0,
            count: 0,
            members: self.bit,
        };
        let mut payload = vec![0; body.body_len()];
        body.emit(&[], &mut payload);
        self.frame(&header, &payload)
    }

    fn frame(&self, header: &Header, payload: &[u8]) -> Vec<u8> {
        sealed(&self.encap, header, payload)
    }
}

fn endpoint(host: u8) -> Endpoint {
    let mac = MacAddr([2, 0, 0, 0, 0, host]);
    Endpoint { mac, addr: SocketAddr::from(([10, 0, 0, host], PORT)) }
}

fn table() -> Table {
    let member = |host| MemberConfig { addr: endpoint(host).addr, weight: 1, is_box: false };
    let row = RowConfig {
        row: 2,
        job: JobId(1),
        members: vec![member(10), member(11)],
        element_type: ElementType::I32,
        operation: Operation::Sum,
        sum_order: SumOrder::Arrival,
        overflow: Overflow::Clamp,
        integrity: Integrity::Crc32c,
        elements: ELEMENTS,
        window: 4,
        chunks_max: 32,
        exponent: None,
        fan_in: 2,
        parent: None,
    };
    let job = JobConfig { job: JobId(1), slots_max: 4, rate_bytes_per_sec: None, burst_bytes: 0 };
    let config = BoxConfig {
        local: endpoint(1),
        shards: 1,
        mtu: 1500,
        jobs: vec![job],
        rows: vec![row],
        pushes: vec![],
    };
    Table::new(config).expect("a valid table")
}
