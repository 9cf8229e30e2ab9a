use weft_control::{Decision, InstallError};
use weft_wire::header::ElementType;

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
        Event::Heir { is_fit: true },
        Event::Heir { is_fit: false },
        Event::PromotionRefused { applied: OrderNumber(6) },
        Event::StoodDown { epoch: ServerEpoch(3) },
    ];
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
