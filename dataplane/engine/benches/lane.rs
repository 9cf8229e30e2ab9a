//! What a lane pays beside sums: asking what is due with one row and with a thousand, finding a
//! root's lease, forming a lease, and refusing frames that are forged.
//!
//! `cargo bench -p weft-engine -- rows` runs the groups whose name contains `rows`.

use std::hint::black_box;
use std::net::SocketAddr;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use weft_control::SumOrder;
use weft_engine::role::Verdict;
use weft_engine::role::aggregator::Aggregator;
use weft_engine::table::{BoxConfig, JobConfig, MemberConfig, ParentConfig, RowConfig, Table};
use weft_kernel::{Kernels, crc32c};
use weft_wire::frame::{Encap, Endpoint};
use weft_wire::header::{ElementType, Flags, HEADER_LEN, Header, Kind, Operation, Outcome, Packet};
use weft_wire::hello::{Hello, Integrity, Overflow, Phase};
use weft_wire::{ChunkIndex, Cookie, GroupId, JobId, MacAddr, Members, Nanos, Rank};

const ELEMENTS: u16 = 256;
const FRAME_LEN_MAX: usize = 1514;

fn endpoint(host: u8, last: u8, port: u16) -> Endpoint {
    let addr = SocketAddr::from(([10, 0, host, last], port));
    Endpoint { mac: MacAddr([2, 0, 0, 0, host, last]), addr }
}

fn here() -> Endpoint {
    endpoint(0, 100, 22_341)
}

fn root() -> Endpoint {
    endpoint(0, 200, 22_341)
}

/// A row of `members`, a leaf's if it has a root.
fn row(row: u16, members: u8, window: u16, has_root: bool) -> RowConfig {
    let addr =
        |rank| endpoint((1 + row / 4).to_be_bytes()[1], rank + 1, 7_000 + (row % 4) * 16).addr;
    let parent = ParentConfig {
        endpoint: root(),
        row,
        rank: Rank::new(0).expect("below 64"),
        source_port: 9_000,
    };
    RowConfig {
        row,
        job: JobId(0),
        members: (0..members)
            .map(|rank| MemberConfig { addr: addr(rank), weight: 1, is_box: false })
            .collect(),
        element_type: ElementType::I32,
        operation: Operation::Sum,
        sum_order: SumOrder::Arrival,
        overflow: Overflow::Wrap,
        integrity: Integrity::None,
        elements: if has_root { 1 } else { ELEMENTS },
        window,
        chunks_max: 1 << 20,
        exponent: Some(0),
        fan_in: u32::from(members),
        parent: has_root.then_some(parent),
    }
}

fn lane(rows: Vec<RowConfig>) -> Aggregator {
    let job =
        JobConfig { job: JobId(0), slots_max: u32::MAX, rate_bytes_per_sec: None, burst_bytes: 0 };
    let config =
        BoxConfig { local: here(), shards: 1, mtu: 1500, jobs: vec![job], rows, pushes: vec![] };
    Aggregator::new(&Table::new(config).expect("valid"), 0, 1, Kernels::detect())
}

/// A member of a row.
#[derive(Clone)]
struct Member {
    encap: Encap,
    row: u16,
    rank: Rank,
    life: u64,
}

impl Member {
    fn new(row: &RowConfig, rank: u8, life: u64) -> Self {
        let source = Endpoint { mac: MacAddr([2; 6]), addr: row.members[usize::from(rank)].addr };
        let encap = Encap::new(source, here()).expect("IPv4 both");
        Self { encap, row: row.row, rank: Rank::new(rank).expect("below 64"), life }
    }

    fn header(&self, kind: Kind, cookie: u32) -> Header {
        let has_data = kind == Kind::Contrib;
        Header {
            kind,
            flags: Flags::NONE,
            outcome: Outcome::None,
            job: JobId(0),
            cookie: Cookie(cookie),
            group: GroupId::new(self.row, 0),
            chunk: ChunkIndex(0),
            element_type: if has_data { ElementType::I32 } else { ElementType::None },
            operation: if has_data { Operation::Sum } else { Operation::None },
            exponent: 0,
            count: if has_data { ELEMENTS } else { 0 },
            members: self.rank.bit(),
        }
    }

    fn hello(&self, phase: Phase, token: u64) -> Vec<u8> {
        let body = Hello { life: self.life, token, ..Hello::new(phase) };
        let mut payload = vec![0; body.body_len()];
        body.emit(&[], &mut payload);
        frame(&self.encap, &self.header(Kind::Hello, 0), &payload)
    }
}

fn frame(encap: &Encap, header: &Header, payload: &[u8]) -> Vec<u8> {
    let start = encap.header_len();
    let mut frame = vec![0; start + HEADER_LEN + payload.len()];
    let mut packet = Packet::new_unchecked(&mut frame[start..]);
    header.emit(&mut packet);
    packet.payload_mut().copy_from_slice(payload);
    packet.seal(crc32c);
    encap.emit(&mut frame, HEADER_LEN + payload.len());
    frame
}

/// Hands over a frame; the verdict, with the answer in `buffer`.
fn hand(lane: &mut Aggregator, now: Nanos, frame: &[u8], buffer: &mut [u8]) -> Verdict {
    buffer[..frame.len()].copy_from_slice(frame);
    lane.handle_frame(now, buffer, frame.len())
}

fn rows(c: &mut Criterion) {
    let mut group = c.benchmark_group("rows");
    group.measurement_time(Duration::from_millis(700)).warm_up_time(Duration::from_millis(200));
    for count in [1, 100, 1000] {
        let mut lane = lane((0..count).map(|index| row(index, 1, 1, true)).collect());
        let mut buffer = vec![0; FRAME_LEN_MAX];
        group.bench_function(BenchmarkId::new("poll_timeout", count), |b| {
            b.iter(|| black_box(&lane).poll_timeout());
        });
        group.bench_function(BenchmarkId::new("poll_transmit", count), |b| {
            b.iter(|| lane.poll_transmit(Nanos(1), &mut buffer));
        });
        let to_leaf = Endpoint { addr: endpoint(0, 100, 9_000).addr, ..here() };
        let encap = Encap::new(root(), to_leaf).expect("IPv4 both");
        let last = Member { row: count - 1, ..Member::new(&row(0, 1, 1, true), 0, 1) };
        let answer = frame(&encap, &last.header(Kind::State, 7), &[]);
        group.bench_function(BenchmarkId::new("from_root", count), |b| {
            b.iter(|| hand(&mut lane, Nanos(1), &answer, &mut buffer));
        });
    }
    group.finish();
}

fn formation(c: &mut Criterion) {
    let mut group = c.benchmark_group("formation");
    group.measurement_time(Duration::from_millis(700)).warm_up_time(Duration::from_millis(200));
    for (members, window) in [(2, 2), (2, 256), (2, 2048), (8, 2048)] {
        let row = row(0, members, window, false);
        let mut lane = lane(vec![row.clone()]);
        let mut buffer = vec![0; FRAME_LEN_MAX];
        let (mut life, mut now) = (0, 0);
        let name = format!("{members} members, {window} slots");
        group.bench_function(BenchmarkId::from_parameter(name), |b| {
            b.iter(|| {
                for rank in 0..members {
                    (life, now) = (life + 1, now + 1_000_000);
                    let member = Member::new(&row, rank, life);
                    let hello = member.hello(Phase::Hello, 0);
                    hand(&mut lane, Nanos(now), &hello, &mut buffer);
                    let (challenge, _) = Hello::parse(&buffer[74..]).expect("a challenge");
                    let join = member.hello(Phase::Join, challenge.token);
                    hand(&mut lane, Nanos(now), &join, &mut buffer);
                }
            });
        });
        assert!(lane.stats().formations > 10, "{}", lane.stats().formations);
    }
    group.finish();
}

fn forged(c: &mut Criterion) {
    let mut group = c.benchmark_group("forged");
    group.measurement_time(Duration::from_millis(700)).warm_up_time(Duration::from_millis(200));
    group.throughput(Throughput::Elements(1));
    let row = row(0, 4, 256, false);
    let member = Member::new(&row, 0, 7);
    let foreign = Member { row: 900, ..member.clone() };
    let data = vec![0; usize::from(ELEMENTS) * 4];
    let hand_over = Header { members: Members::first(4), ..member.header(Kind::Contrib, 7) };
    let frames = [
        ("contribution", frame(&member.encap, &member.header(Kind::Contrib, 7), &data)),
        ("question", frame(&member.encap, &member.header(Kind::Status, 7), &[])),
        ("hand-over", frame(&member.encap, &Header { kind: Kind::Answer, ..hand_over }, &data)),
        ("hello", member.hello(Phase::Hello, 0)),
        ("join", member.hello(Phase::Join, 7)),
        ("close", member.hello(Phase::Close, 0)),
        ("unknown row", foreign.hello(Phase::Hello, 0)),
    ];
    for (name, frame) in frames {
        let mut lane = lane(vec![row.clone()]);
        let mut buffer = vec![0; FRAME_LEN_MAX];
        group.bench_function(name, |b| {
            b.iter(|| hand(&mut lane, Nanos(0), &frame, &mut buffer));
        });
    }
    group.finish();
}

criterion_group!(benches, rows, formation, forged);
criterion_main!(benches);
