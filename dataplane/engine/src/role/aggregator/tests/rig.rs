//! A member made of plain functions: builds its frames and reads the answers, so that each test
//! says in a line what goes in and what comes out.

use alloc::vec;
use alloc::vec::Vec;
use core::net::SocketAddr;

use weft_control::SumOrder;
use weft_kernel::{Kernels, crc32c};
use weft_wire::frame::{Encap, Endpoint, Udp};
use weft_wire::header::{ElementType, Flags, HEADER_LEN, Header, Kind, Operation, Outcome, Packet};
use weft_wire::hello::{Hello, Integrity, Overflow, Phase};
use weft_wire::{ChunkIndex, Cookie, GroupId, JobId, MacAddr, Nanos, Rank};

use super::super::Aggregator;
use crate::drops::DropReason;
use crate::role::Verdict;
use crate::table::{BoxConfig, JobConfig, MemberConfig, RowConfig, Table};

pub(super) const ELEMENTS: u16 = 4;
pub(super) const MAX_FRAME: usize = 1514;

pub(super) fn box_endpoint() -> Endpoint {
    Endpoint { mac: MacAddr([2, 0, 0, 0, 0, 0xff]), addr: "10.0.0.100:22341".parse().unwrap() }
}

pub(super) fn member_addr(job: u16, rank: u8) -> SocketAddr {
    alloc::format!("10.0.{job}.{}:7000", rank + 1).parse().unwrap()
}

pub(super) fn row(row: u16, job: u16, members: u8) -> RowConfig {
    RowConfig {
        row,
        job: JobId(job),
        members: (0..members)
            .map(|rank| MemberConfig { addr: member_addr(job, rank), weight: 1, is_box: false })
            .collect(),
        element_type: ElementType::I32,
        operation: Operation::Sum,
        sum_order: SumOrder::Arrival,
        overflow: Overflow::Wrap,
        integrity: Integrity::Crc32c,
        elements: ELEMENTS,
        window: 2,
        chunks_max: 1000,
        exponent: Some(0),
        fan_in: u32::from(members),
        parent: None,
    }
}

pub(super) fn config(rows: Vec<RowConfig>) -> BoxConfig {
    let mut jobs: Vec<u16> = rows.iter().map(|row| row.job.0).collect();
    jobs.dedup();
    BoxConfig {
        local: box_endpoint(),
        shards: 1,
        mtu: 1500,
        jobs: jobs
            .into_iter()
            .map(|job| JobConfig {
                job: JobId(job),
                slots_max: 64,
                rate_bytes_per_sec: None,
                burst_bytes: 0,
            })
            .collect(),
        rows,
        pushes: Vec::new(),
    }
}

pub(super) fn aggregator(config: BoxConfig, seed: u64) -> Aggregator {
    Aggregator::new(&Table::new(config).unwrap(), 0, seed, Kernels::detect())
}

/// What a frame that left the box says.
#[derive(Clone, Debug)]
pub(super) struct Out {
    pub(super) header: Header,
    pub(super) target: SocketAddr,
    pub(super) values: Vec<i32>,
    pub(super) hello: Option<Hello>,
    pub(super) multicast: bool,
    pub(super) len: usize,
}

/// A member of a lease, with what it learnt from the handshake.
#[derive(Clone, Debug)]
pub(super) struct Member {
    pub(super) encap: Encap,
    pub(super) job: JobId,
    pub(super) row: u16,
    pub(super) rank: Rank,
    pub(super) life: u64,
    pub(super) session: u64,
    pub(super) cookie: Cookie,
    pub(super) cookie_down: Cookie,
    pub(super) group: GroupId,
}

impl Member {
    pub(super) fn new(row: &RowConfig, rank: u8, life: u64) -> Self {
        let addr = row.members[usize::from(rank)].addr;
        let local = Endpoint { mac: MacAddr([2, 0, 0, 0, 1, rank]), addr };
        Self {
            encap: Encap::new(local, box_endpoint()).unwrap(),
            job: row.job,
            row: row.row,
            rank: Rank::new(rank).unwrap(),
            life,
            session: 0,
            cookie: Cookie::default(),
            cookie_down: Cookie::default(),
            group: GroupId::default(),
        }
    }

    pub(super) fn header(&self, kind: Kind, chunk: u32) -> Header {
        let data = matches!(kind, Kind::Contrib | Kind::Answer);
        Header {
            kind,
            flags: Flags::NONE,
            outcome: Outcome::None,
            job: self.job,
            cookie: self.cookie,
            group: self.group,
            chunk: ChunkIndex(chunk),
            element_type: if data { ElementType::I32 } else { ElementType::None },
            operation: if data { Operation::Sum } else { Operation::None },
            exponent: 0,
            count: if data { ELEMENTS } else { 0 },
            members: self.rank.bit(),
        }
    }

    /// A sealed frame with this header and payload.
    pub(super) fn frame(&self, header: &Header, payload: &[u8]) -> Vec<u8> {
        let start = self.encap.header_len();
        let mut frame = vec![0; start + HEADER_LEN + payload.len()];
        let mut packet = Packet::new_unchecked(&mut frame[start..]);
        header.emit(&mut packet);
        packet.payload_mut().copy_from_slice(payload);
        packet.seal(crc32c);
        self.encap.emit(&mut frame, HEADER_LEN + payload.len());
        frame
    }

    pub(super) fn contribution(&self, chunk: u32, value: i32) -> Vec<u8> {
        self.frame(&self.header(Kind::Contrib, chunk), &payload(value))
    }

    /// The last contribution of a vector, with `count` elements and padding.
    pub(super) fn last(&self, chunk: u32, count: u16, padded_len: u16) -> Vec<u8> {
        let header = self.header(Kind::Contrib, chunk);
        let payload = 1_i32.to_be_bytes().repeat(usize::from(padded_len));
        self.frame(&Header { outcome: Outcome::LAST, count, ..header }, &payload)
    }

    pub(super) fn status(&self, chunk: u32) -> Vec<u8> {
        self.frame(&self.header(Kind::Status, chunk), &[])
    }

    pub(super) fn hello(&self, mut body: Hello, bitmap: &[u8]) -> Vec<u8> {
        body.life = self.life;
        let mut header = self.header(Kind::Hello, 0);
        header.cookie = Cookie::default();
        header.group = GroupId::new(self.row, 0);
        let mut payload = vec![0; body.body_len()];
        body.emit(bitmap, &mut payload);
        self.frame(&header, &payload)
    }

    /// HELLO and JOIN; returns the answer to the JOIN, having learnt from a WELCOME.
    pub(super) fn join(&mut self, aggregator: &mut Aggregator, held: Option<(u32, &[u8])>) -> Out {
        self.join_at(aggregator, held, Nanos(0))
    }

    pub(super) fn join_at(
        &mut self,
        aggregator: &mut Aggregator,
        held: Option<(u32, &[u8])>,
        now: Nanos,
    ) -> Out {
        let mut send = |frame| deliver(aggregator, frame, now).1.expect("an answer");
        let challenge = send(self.hello(Hello::new(Phase::Hello), &[]));
        let mut body = Hello::new(Phase::Join);
        body.token = challenge.hello.unwrap().token;
        body.session = self.session;
        let mut bitmap: &[u8] = &[];
        if let Some((low_step, bytes)) = held {
            body.low_step = low_step;
            body.step_bits = u16::try_from(bytes.len() * 8).unwrap();
            bitmap = bytes;
        }
        let answer = send(self.hello(body, bitmap));
        let hello = answer.hello.unwrap();
        if hello.phase == Phase::Welcome {
            self.session = hello.session;
            self.cookie = hello.cookie_up;
            self.cookie_down = hello.cookie_down;
            self.group = answer.header.group;
        }
        answer
    }
}

pub(super) fn payload(value: i32) -> Vec<u8> {
    value.to_be_bytes().repeat(usize::from(ELEMENTS))
}

/// Gives the box a frame; what it sends back, or why it refused. `Hold` is `None` in `Ok` terms:
/// use [`absorb`] where that is expected.
pub(super) fn send(aggregator: &mut Aggregator, frame: Vec<u8>) -> Result<Out, DropReason> {
    match deliver(aggregator, frame, Nanos(0)) {
        (Verdict::Drop(reason), _) => Err(reason),
        (verdict, Some(out)) => {
            Ok(Out { multicast: matches!(verdict, Verdict::Multicast { .. }), ..out })
        }
        (verdict, None) => panic!("expected an answer, got {verdict:?}"),
    }
}

/// Gives the box a frame that it must take in silently.
pub(super) fn absorb(aggregator: &mut Aggregator, frame: Vec<u8>) {
    let (verdict, _) = deliver(aggregator, frame, Nanos(0));
    assert_eq!(verdict, Verdict::Hold);
}

pub(super) fn deliver(
    aggregator: &mut Aggregator,
    frame: Vec<u8>,
    now: Nanos,
) -> (Verdict, Option<Out>) {
    let len = frame.len();
    let mut buffer = frame;
    buffer.resize(MAX_FRAME.max(len), 0xee);
    let verdict = aggregator.handle_frame(now, &mut buffer, len);
    let out = match verdict {
        Verdict::Send { len } | Verdict::Multicast { len, .. } => Some(read(&buffer[..len])),
        _ => None,
    };
    (verdict, out)
}

pub(super) fn read(frame: &[u8]) -> Out {
    let udp = Udp::parse(frame).expect("the box sends whole datagrams");
    assert_eq!(udp.payload_range().end, frame.len(), "no bytes behind the datagram");
    let mut datagram = frame[udp.payload_range()].to_vec();
    let mut packet = Packet::new_checked(&mut datagram[..]).expect("a header");
    assert!(packet.crc() == 0 || packet.verify_crc(crc32c), "the box seals what it sends");
    let header = Header::parse(&packet).expect("the box sends valid headers");
    let is_hello = header.kind == Kind::Hello;
    let values = if is_hello { &[][..] } else { packet.payload() };
    let values = values
        .chunks_exact(4)
        .map(|bytes| i32::from_be_bytes(bytes.try_into().expect("four bytes")))
        .collect();
    let hello = is_hello.then(|| Hello::parse(packet.payload()).expect("a valid body").0);
    Out { header, target: udp.target, values, hello, multicast: false, len: frame.len() }
}

/// A box with one open lease of `members`.
pub(super) fn open(members: u8) -> (Aggregator, Vec<Member>, RowConfig) {
    let row = row(0, 0, members);
    let mut aggregator = aggregator(config(vec![row.clone()]), 1);
    let mut group: Vec<Member> =
        (0..members).map(|r| Member::new(&row, r, 100 + u64::from(r))).collect();
    form(&mut aggregator, &mut group);
    (aggregator, group, row)
}

/// Joins all members and makes each learn the WELCOME, a second later: by then the job has paid for
/// its formation.
pub(super) fn form(aggregator: &mut Aggregator, group: &mut [Member]) {
    for member in group.iter_mut() {
        member.join(aggregator, None);
    }
    for member in group {
        let answer = member.join_at(aggregator, None, Nanos(1_000_000_000));
        assert_eq!(answer.hello.unwrap().phase, Phase::Welcome);
    }
}

/// What the slots hold, to show that a refused frame changed nothing (I7).
pub(super) fn snapshot(aggregator: &Aggregator) -> Vec<(u32, u64, bool)> {
    aggregator
        .leases()
        .flat_map(|lease| {
            lease
                .slots()
                .occupied()
                .map(|bank| (bank.step(), bank.members().0, bank.state().is_complete()))
                .collect::<Vec<_>>()
        })
        .collect()
}
