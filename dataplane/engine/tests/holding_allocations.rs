//! Zero allocations of a lane while jobs, leases and push jobs come and go, from its first command
//! on, counted: what is installed, what is refused, what is removed, and frames to each of them
//! meanwhile.

use std::net::SocketAddr;

use crate::counting::counted;
use weft_control::{
    BoxIndex, Command, Event, GroupDescriptor, GroupMember, HoldingCommand, JobConfig,
    MemberConfig, OrderNumber, ParentConfig, PushConfig, RowConfig, SumOrder, Version,
};
use weft_engine::role::Verdict;
use weft_engine::role::aggregator::Aggregator;
use weft_engine::table::{ArenaConfig, BoxConfig, Table};
use weft_kernel::{Kernels, crc32c};
use weft_wire::frame::{Encap, Endpoint};
use weft_wire::header::{ElementType, Flags, HEADER_LEN, Header, Kind, Operation, Outcome, Packet};
use weft_wire::hello::{Hello, Integrity, Overflow, Phase};
use weft_wire::rows::ROW_WORKER_CHANNEL;
use weft_wire::{ChunkIndex, Cookie, GroupId, JobId, MacAddr, Nanos, Rank};

fn endpoint(host: u8) -> Endpoint {
    let addr = SocketAddr::from(([10, 0, 0, host], 22341));
    Endpoint { mac: MacAddr([2, 0, 0, 0, 0, host]), addr }
}

fn row(row: u16, members: u8, window: u16, element_type: ElementType, is_leaf: bool) -> RowConfig {
    let member = |rank| MemberConfig { addr: endpoint(rank + 1).addr, weight: 1, is_box: false };
    let root = ParentConfig {
        endpoint: endpoint(200),
        row: 0,
        rank: Rank::new(0).expect("a rank"),
        source_port: 9000,
    };
    RowConfig {
        row,
        job: JobId(1),
        members: (0..members).map(member).collect(),
        element_type,
        operation: Operation::Sum,
        sum_order: SumOrder::Arrival,
        overflow: Overflow::Wrap,
        integrity: Integrity::Crc32c,
        elements: 16,
        window,
        chunks_max: 1 << 20,
        exponent: Some(0),
        fan_in: members.into(),
        parent: is_leaf.then_some(root),
    }
}

fn push(job: u16, workers: u8, elements: u16, element_type: ElementType) -> PushConfig {
    PushConfig {
        job: JobId(job),
        box_index: BoxIndex(1),
        workers: (0..workers).map(|rank| endpoint(rank + 1).addr).collect(),
        server: endpoint(210),
        replica: Some(endpoint(211)),
        quota_bytes: 64 << 10,
        pull_cache_bytes: 4096,
        chunks: 10,
        elements,
        element_type,
        overflow: Overflow::Wrap,
        integrity: Integrity::Crc32c,
        exponent: Some(0),
        rate_bytes_per_sec: Some(1_000_000_000),
        burst_bytes: 4096,
    }
}

/// A group of a push job, of one worker.
fn group(job: u16, elements: u16, element_type: ElementType) -> Command {
    Command::Install(GroupDescriptor {
        job: JobId(job),
        group: GroupId::new(5, 1),
        order: OrderNumber(1),
        members: vec![GroupMember { rank: Rank::new(0).expect("a rank"), version: Version(0) }],
        chunks: 10,
        element_type,
        elements,
        exponent: 0,
        via: Some(BoxIndex(1)),
        replicate: true,
        rate_bytes_per_sec: None,
        after: None,
        train_chunks: 8,
        lateness_ns: 0,
    })
}

/// A HELLO of rank 0 of a row.
fn hello(row: u16) -> Vec<u8> {
    hello_of(JobId(1), row)
}

fn hello_of(job: JobId, row: u16) -> Vec<u8> {
    let encap = Encap::new(endpoint(1), endpoint(100)).expect("IPv4 both");
    let body = Hello { life: 7, ..Hello::new(Phase::Hello) };
    let header = Header {
        kind: Kind::Hello,
        flags: Flags::NONE,
        outcome: Outcome::None,
        job,
        cookie: Cookie::default(),
        group: GroupId::new(row, 0),
        chunk: ChunkIndex(0),
        element_type: ElementType::None,
        operation: Operation::None,
        exponent: 0,
        count: 0,
        members: Rank::new(0).expect("a rank").bit(),
    };
    let (start, len) = (encap.header_len(), HEADER_LEN + body.body_len());
    let mut frame = vec![0; 1514];
    let mut packet = Packet::new_unchecked(&mut frame[start..start + len]);
    header.emit(&mut packet);
    body.emit(&[], packet.payload_mut());
    packet.seal(crc32c);
    let len = encap.emit(&mut frame, len);
    frame.truncate(len);
    frame
}

#[test]
fn no_command_allocates_and_no_frame_beside_it() {
    let config = BoxConfig {
        local: endpoint(100),
        shards: 1,
        mtu: 1500,
        jobs: Vec::new(),
        rows: Vec::new(),
        pushes: Vec::new(),
    };
    let arena = ArenaConfig {
        jobs: 2,
        leases: 3,
        lease_bytes: 64 << 10,
        pushes: 2,
        push_bytes: 64 << 10,
        pull_cache_bytes: 4096,
        ..ArenaConfig::default()
    };
    let table = Table::new(config).and_then(|table| table.with_arena(arena)).expect("good");
    let mut lane = Aggregator::new(&table, 0, 1, Kernels::detect());
    let job =
        JobConfig { job: JobId(1), slots_max: 4096, rate_bytes_per_sec: None, burst_bytes: 0 };
    let (mut allocations, mut answers, mut refusals, mut sent, mut groups) = (0, 0, 0, 0, 0);
    for turn in 0..50 {
        let element_type = if turn % 2 == 0 { ElementType::I32 } else { ElementType::F32 };
        let install = HoldingCommand::InstallLease;
        let commands = [
            HoldingCommand::InstallJob(job),
            HoldingCommand::InstallJob(job),
            install(row(1, 64, 256, element_type, false)),
            install(row(2, 3, 16, element_type, true)),
            install(row(2, 3, 16, element_type, true)),
            install(row(3, 64, 512, ElementType::I32, true)),
            install(row(4, 1, 1, ElementType::I32, false)),
            HoldingCommand::RemoveJob { job: JobId(1) },
            HoldingCommand::RemoveLease { job: JobId(1), row: 2 },
            HoldingCommand::RemoveLease { job: JobId(1), row: 2 },
            HoldingCommand::RemoveLease { job: JobId(1), row: 1 },
            HoldingCommand::RemoveLease { job: JobId(1), row: 3 },
            HoldingCommand::RemoveJob { job: JobId(1) },
            HoldingCommand::InstallPush(push(1, 64, 16, element_type)),
            HoldingCommand::InstallPush(push(1, 64, 16, element_type)),
            HoldingCommand::InstallPush(push(2, 3, 300, element_type)),
            HoldingCommand::InstallPush(push(3, 1, 16, element_type)),
            HoldingCommand::InstallJob(job),
            HoldingCommand::RemovePush { job: JobId(3) },
            HoldingCommand::RemovePush { job: JobId(2) },
            HoldingCommand::RemovePush { job: JobId(1) },
        ];
        for command in commands {
            let channel = hello_of(JobId(1), ROW_WORKER_CHANNEL);
            let frames = [hello(1), hello(2), hello(3), channel];
            let command = Command::Holding(command);
            for command in [command, group(1, 16, element_type), group(2, 300, element_type)] {
                counted(&mut allocations, || lane.handle_command(command));
            }
            let mut frame = vec![0; 1514];
            for _ in 0..6 {
                let now = Nanos(turn * 1_000_000_000);
                counted(&mut allocations, || lane.poll_transmit(now, &mut frame));
            }
            while let Some((_, event)) =
                counted(&mut allocations, || lane.gather_mut().poll_event())
            {
                answers += u32::from(event.holding().is_some());
                groups += u32::from(matches!(event, Event::Installed { .. }));
                refusals += u32::from(matches!(event, Event::HoldingRefused { .. }));
            }
            for mut frame in frames {
                let len = frame.len();
                frame.resize(1514, 0);
                let now = Nanos(turn * 1_000_000_000);
                let verdict = counted(&mut allocations, || lane.handle_frame(now, &mut frame, len));
                sent += u32::from(matches!(verdict, Verdict::Send { .. }));
            }
        }
    }
    assert_eq!((answers, refusals), (50 * 21, 50 * 9));
    assert!(groups > 50 * 4, "groups are installed: {groups}");
    assert!(sent > 50 * 13, "frames are answered");
    assert_eq!(allocations, 0);
}
