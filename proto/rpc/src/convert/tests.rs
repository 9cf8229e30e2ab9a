use weft_control::{
    BandError, Decision, Holding, HoldingCommand, HoldingError, InstallError, JobConfig,
    MemberConfig, NodeHello, ParentConfig, PushConfig, RowConfig, SumOrder,
};
use weft_wire::MacAddr;
use weft_wire::frame::Endpoint;
use weft_wire::header::{ElementType, Operation};
use weft_wire::hello::{Integrity, Overflow};

use super::*;

fn rank_of(index: u8) -> Rank {
    Rank::new(index).unwrap()
}

fn group() -> GroupDescriptor {
    GroupDescriptor {
        job: JobId(3),
        group: GroupId::new(1023, 9),
        order: OrderNumber(u64::MAX),
        members: vec![
            GroupMember { rank: rank_of(63), version: Version(4) },
            GroupMember { rank: rank_of(0), version: Version(7) },
        ],
        chunks: 1 << 20,
        element_type: ElementType::Bf16,
        elements: 512,
        exponent: -126,
        via: Some(BoxIndex(2)),
        replicate: true,
        rate_bytes_per_sec: Some(125_000_000),
        after: Some(GroupId::new(0, 1)),
        train_chunks: 0,
        lateness_ns: 5,
    }
}

fn share(rate_bytes_per_sec: Option<u64>) -> JobConfig {
    JobConfig { job: JobId(3), slots_max: 512, rate_bytes_per_sec, burst_bytes: 4096 }
}

fn row() -> RowConfig {
    let endpoint =
        Endpoint { mac: MacAddr([2, 0, 0, 0, 0, 9]), addr: "10.0.0.9:22341".parse().unwrap() };
    let root = ParentConfig { endpoint, row: 1023, rank: rank_of(63), source_port: 9000 };
    RowConfig {
        row: 1023,
        job: JobId(3),
        members: vec![
            MemberConfig { addr: "[2001:db8::1]:7000".parse().unwrap(), weight: 1, is_box: false },
            MemberConfig { addr: "10.0.0.2:7000".parse().unwrap(), weight: 9, is_box: true },
        ],
        element_type: ElementType::F32,
        operation: Operation::Max,
        sum_order: SumOrder::Rank,
        overflow: Overflow::Clamp,
        integrity: Integrity::Checksum16,
        elements: 256,
        window: 2048,
        chunks_max: 1 << 31,
        exponent: Some(-126),
        fan_in: 10,
        parent: Some(root),
    }
}

#[test]
fn every_bad_field_of_a_lease_is_named() {
    let bad = |field: &str, change: fn(&mut v1::WindowedLease)| {
        let sent = Command::Holding(HoldingCommand::InstallLease(row()));
        let mut proto = command_to_proto(&sent);
        let Some(v1::command::Command::InstallLease(lease)) = &mut proto.command else {
            panic!("a lease");
        };
        change(lease);
        assert_eq!(command(&proto).unwrap_err().field, field);
    };
    bad("job", |lease| lease.job = 65536);
    bad("row", |lease| lease.row = 65536);
    bad("members", |lease| lease.members[0].address = "nowhere".into());
    bad("members", |lease| lease.members = vec![lease.members[0].clone(); 65]);
    bad("element_type", |lease| lease.element_type = 0);
    bad("operation", |lease| lease.operation = 0);
    bad("sum_order", |lease| lease.sum_order = 99);
    bad("overflow", |lease| lease.overflow = 0);
    bad("integrity", |lease| lease.integrity = 0);
    bad("elements_per_chunk", |lease| lease.elements_per_chunk = 65536);
    bad("window", |lease| lease.window = 65536);
    bad("exponent", |lease| lease.exponent = Some(128));
    bad("root", |lease| lease.root.as_mut().unwrap().address = "10.0.0.1".into());
    bad("mac", |lease| lease.root.as_mut().unwrap().mac = Some("02".into()));
    bad("rank", |lease| lease.root.as_mut().unwrap().rank = 64);
    bad("source_port", |lease| lease.root.as_mut().unwrap().source_port = 65536);
}

fn push_job() -> PushConfig {
    let endpoint = |mac| Endpoint { mac, addr: "[2001:db8::9]:22341".parse().unwrap() };
    PushConfig {
        job: JobId(3),
        box_index: BoxIndex(2),
        workers: vec!["10.0.0.1:4000".parse().unwrap(), "[::1]:1".parse().unwrap()],
        server: endpoint(MacAddr::BROADCAST),
        replica: Some(endpoint(MacAddr([2, 0, 0, 0, 0, 9]))),
        quota_bytes: 1 << 40,
        pull_cache_bytes: 5,
        chunks: 7,
        elements: 256,
        element_type: ElementType::F32,
        overflow: Overflow::Clamp,
        integrity: Integrity::None,
        exponent: Some(-126),
        rate_bytes_per_sec: Some(9),
        burst_bytes: 11,
    }
}

#[test]
fn every_bad_field_of_a_push_job_is_named() {
    let bad = |field: &str, change: fn(&mut v1::PushJob)| {
        let sent = Command::Holding(HoldingCommand::InstallPush(push_job()));
        let mut proto = command_to_proto(&sent);
        let Some(v1::command::Command::InstallPush(push)) = &mut proto.command else {
            panic!("a push job");
        };
        change(push);
        assert_eq!(command(&proto).unwrap_err().field, field);
    };
    bad("job", |push| push.job = 65536);
    bad("box_index", |push| push.box_index = 256);
    bad("workers", |push| push.workers[0] = "nowhere".into());
    bad("workers", |push| push.workers = vec![push.workers[0].clone(); 65]);
    bad("server", |push| push.server = None);
    bad("server", |push| push.server.as_mut().unwrap().address = "10.0.0.1".into());
    bad("mac", |push| push.server.as_mut().unwrap().mac = Some("02".into()));
    bad("replica", |push| push.replica.as_mut().unwrap().address.clear());
    bad("elements_per_chunk", |push| push.elements_per_chunk = 65536);
    bad("element_type", |push| push.element_type = 0);
    bad("overflow", |push| push.overflow = 0);
    bad("integrity", |push| push.integrity = 99);
    bad("exponent", |push| push.exponent = Some(-129));
}

#[test]
fn what_a_box_holds_comes_back_as_it_went() {
    let job = JobId(3);
    let holdings = [Holding::Job, Holding::Row(1023), Holding::Push].map(|held| (job, held));
    let sent = NodeHello {
        name: "a0".into(),
        life: 1,
        roles: vec![],
        holdings: holdings.into(),
        bands: Some(vec![(JobId(3), 6)]),
    };
    let mut proto = hello_to_proto(&sent, "0.1.0", 0);
    assert_eq!(hello(&proto), Ok(sent));
    proto.holdings[0].holding = None;
    assert_eq!(hello(&proto).unwrap_err().field, "holding");
}

#[test]
fn commands_come_back_as_they_went() {
    let plain = GroupDescriptor { via: None, rate_bytes_per_sec: None, after: None, ..group() };
    let job = JobId(3);
    let commands = [
        Command::Install(group()),
        Command::Install(plain),
        Command::Remove { job, group: GroupId::new(5, 6) },
        Command::CloseMember { job, group: None, rank: rank_of(1) },
        Command::CloseMember { job, group: Some(GroupId::new(5, 6)), rank: rank_of(1) },
        Command::SetRate { job, rate_bytes_per_sec: 12 },
        Command::Skip { job, below: OrderNumber(1 << 40) },
        Command::Promote { job, epoch: ServerEpoch(2), order: OrderNumber(9) },
        Command::MoveServer { job, server: "[2001:db8::1]:22341".parse().unwrap() },
        Command::StandDown { job, epoch: ServerEpoch(2) },
        Command::LeaveReplica { job },
        Command::Holding(HoldingCommand::InstallJob(share(None))),
        Command::Holding(HoldingCommand::InstallJob(share(Some(5)))),
        Command::Holding(HoldingCommand::InstallLease(row())),
        Command::Holding(HoldingCommand::InstallLease(RowConfig {
            parent: None,
            exponent: None,
            ..row()
        })),
        Command::Holding(HoldingCommand::RemoveJob { job }),
        Command::Holding(HoldingCommand::RemoveLease { job, row: 7 }),
        Command::Holding(HoldingCommand::InstallPush(push_job())),
        Command::Holding(HoldingCommand::InstallPush(PushConfig {
            replica: None,
            exponent: None,
            rate_bytes_per_sec: None,
            ..push_job()
        })),
        Command::Holding(HoldingCommand::RemovePush { job }),
        Command::SetBands { job, label: 63, band: Some(6) },
        Command::SetBands { job, label: 3, band: None },
        Command::SetLabel { job, label: 63 },
    ];
    for sent in commands {
        assert_eq!(command(&command_to_proto(&sent)), Ok(Some(sent)));
    }
}

#[test]
fn events_come_back_as_they_went() {
    let (job, group, rank) = (JobId(3), GroupId::new(5, 6), rank_of(1));
    let decided = |decision| Event::Decided {
        group,
        order: OrderNumber(8),
        decision,
        members: Members(5),
        norm: 1.5,
        momentum_norm: 0.0,
    };
    let transferred =
        |rank| Event::Transferred { group, rank, bytes: 1, duration_ns: 2, wait_ns: 3, idle_ns: 4 };
    let errors = [
        InstallError::UnknownJob,
        InstallError::RowTaken,
        InstallError::Shape,
        InstallError::Order,
        InstallError::Full,
    ];
    let mut events = vec![
        Event::Installed { group },
        Event::Gathered { group, rank },
        Event::Staged { group },
        transferred(None),
        transferred(Some(rank)),
        decided(Decision::Committed(Version(9))),
        decided(Decision::Void),
        decided(Decision::Dropped),
        Event::MemberLost { job, rank },
        Event::ReplicaAt { order: OrderNumber(1), divergence_bound: 2.0, is_held: true },
        // The replica is behind what the server remembers.
        Event::ReplicaAt { order: OrderNumber(1), divergence_bound: f64::INFINITY, is_held: false },
        Event::Promoted {
            epoch: ServerEpoch(2),
            applied: OrderNumber(7),
            order: OrderNumber(9),
            version: Version(4),
            momentum_norm: 0.5,
        },
        Event::ReplicaFitness { is_fit: true },
        Event::ReplicaFitness { is_fit: false },
        Event::PromotionRefused { applied: OrderNumber(6) },
        Event::StoodDown { epoch: ServerEpoch(3) },
        Event::BandSet { band: Some(0) },
        Event::BandSet { band: None },
    ];
    for error in [
        BandError::NoBands,
        BandError::OutOfRange,
        BandError::LabelTaken,
        BandError::NoTool,
        BandError::NotPermitted,
        BandError::NoDevice,
        BandError::Foreign,
        BandError::NoDiscipline,
        BandError::Failed,
        BandError::NoClass,
    ] {
        events.push(Event::BandRefused { band: Some(6), error });
        events.push(Event::BandLost { band: Some(6), error });
    }
    for holding in [Holding::Job, Holding::Row(u16::MAX), Holding::Push] {
        events.push(Event::HoldingInstalled { holding });
        events.push(Event::HoldingRemoved { holding });
        let refused = |error| Event::HoldingRefused { holding, error };
        events.extend(
            [
                HoldingError::UnknownJob,
                HoldingError::Missing,
                HoldingError::Taken,
                HoldingError::OtherJob,
                HoldingError::InUse,
                HoldingError::Full,
                HoldingError::Quota,
                HoldingError::Number,
                HoldingError::Members,
                HoldingError::Window,
                HoldingError::Elements,
                HoldingError::Root,
                HoldingError::Role,
                HoldingError::Both,
                HoldingError::Workers,
                HoldingError::Updates,
                HoldingError::Memory,
                HoldingError::Switch,
                HoldingError::Port,
            ]
            .map(refused),
        );
    }
    events.extend(errors.map(|error| Event::Refused { group, error }));
    for sent in events {
        assert_eq!(event(&event_to_proto(job, &sent)), Ok((job, sent)));
    }
}

#[test]
fn every_bad_field_of_a_descriptor_is_named() {
    let bad = |field: &str, change: fn(&mut v1::GroupDescriptor)| {
        let mut proto = descriptor_to_proto(&group());
        change(&mut proto);
        assert_eq!(descriptor(&proto).unwrap_err().field, field);
    };
    bad("job", |group| group.job = 65536);
    bad("group", |group| group.group = 1024 << 16);
    bad("members", |group| group.members.clear());
    bad("members", |group| group.members = vec![group.members[0]; 2]);
    bad("members", |group| group.members = vec![group.members[0]; 65]);
    bad("rank", |group| group.members[0].rank = 64);
    bad("chunk_count", |group| group.chunk_count = 0);
    bad("chunk_count", |group| group.chunk_count = (1 << 20) + 1);
    bad("element_type", |group| group.element_type = 0);
    bad("element_type", |group| group.element_type = 99);
    bad("elements_per_chunk", |group| group.elements_per_chunk = 0);
    bad("elements_per_chunk", |group| group.elements_per_chunk = 65536);
    bad("exponent", |group| group.exponent = 128);
    bad("exponent", |group| group.exponent = 127);
    bad("exponent", |group| group.exponent = -127);
    bad("exponent", |group| group.exponent = -128);
    bad("via", |group| group.via = Some(256));
    bad("after", |group| group.after = Some(u32::MAX));
}

#[test]
fn figures_that_are_no_magnitudes_are_refused() {
    for value in [f64::NAN, -1.0] {
        let proto = v1::Event {
            job: 0,
            event: Some(v1::event::Event::ReplicaAt(v1::ReplicaAt {
                order: 0,
                divergence_bound: value,
                is_held: true,
            })),
        };
        assert_eq!(event(&proto).unwrap_err().field, "divergence_bound");
    }
}

#[test]
fn empty_messages_are_refused() {
    assert_eq!(command(&v1::Command { command: None }).unwrap_err().field, "command");
    assert_eq!(event(&v1::Event { job: 0, event: None }).unwrap_err().field, "event");
    assert_eq!(event(&v1::Event { job: 1 << 16, event: None }).unwrap_err().field, "job");
}
