//! One rule at a time: closing members, and deciding in sequence.

use alloc::vec::Vec;

use weft_control::{
    Command, CommitMode, Decision, Event, GroupMember, InstallError, OrderNumber, Version,
};
use weft_wire::header::{ElementType, Flags, Header, Kind, Outcome};
use weft_wire::rows::ROW_LOG;
use weft_wire::{ChunkIndex, GroupId, Members};

use super::super::ServerJobConfig;
use super::rig::*;
use super::world::{AGGREGATOR, REPLICA};
use crate::drops::DropReason;
use crate::send::datagram::plain_header;

#[test]
fn a_closed_member_takes_its_chunks_with_it_and_is_told() {
    let mut rig = Rig::new(job());
    rig.install(descriptor(0, &[0, 1], true)).unwrap();
    rig.pulls();
    rig.sum(group(0), 0, 0b11).unwrap();
    let close = Command::CloseMember { job: JOB, group: Some(group(0)), rank: rank(1) };
    rig.server.handle_command(rig.now, close);
    let out = rig.poll();
    // It is told with the group's decision, which may have to become durable first.
    assert!(out.iter().all(|out| out.ack().is_none()));
    assert_eq!(rig.status(2, group(0)).header.outcome, Outcome::Wait);
    // Chunk 0 is asked for again: it held the member.
    let pulls: Vec<_> = out.iter().filter_map(Out::pull).collect();
    assert_eq!(pulls, [(AGGREGATOR, 0), (AGGREGATOR, 1), (AGGREGATOR, 2)]);
    assert!(out.iter().filter(|out| out.pull().is_some()).all(|o| o.header.members.0 == 1));
    // The aggregator summed before it knew: the other member is asked.
    assert_eq!(rig.sum(group(0), 1, 0b11), Err(DropReason::BadMembers));
    assert_eq!(rig.pulls(), [(1, 0), (1, 1), (1, 2)]);
    for chunk in 0..3 {
        rig.direct(1, group(0), chunk).unwrap();
    }
    let acks = rig.acks();
    assert!(acks.contains(&(1, Outcome::Committed, 1)) && acks.contains(&(2, Outcome::Void, 1)));
    assert_eq!(rig.status(2, group(0)).header.outcome, Outcome::Void);
    assert_eq!(rig.server.model(JOB).unwrap().weights, [1.0; 6]);
}

#[test]
fn a_member_that_gave_up_says_so() {
    let mut rig = Rig::new(job());
    rig.install(descriptor(0, &[0], false)).unwrap();
    rig.pulls();
    let stale = Header {
        flags: Flags::DIRECT,
        outcome: Outcome::Stale,
        ..plain_header(Kind::State, JOB, group(0), rank(0).bit())
    };
    let frame = rig.frame(1, &stale, &[]);
    rig.send(&frame).unwrap();
    assert!(rig.acks().contains(&(1, Outcome::Void, 0)));
    assert_eq!(rig.server.model(JOB).unwrap().next_order, OrderNumber(1));
}

#[test]
fn a_decision_is_told_with_the_norms_that_it_comes_to() {
    let mut config = job();
    config.model.momentum = 0.5;
    let mut rig = Rig::new(config);
    // Six ones, then half of them and six ones.
    for (order, momentum) in [(0, 1.0), (1, 1.5)] {
        rig.install(descriptor(order, &[0], false)).unwrap();
        rig.pulls();
        for chunk in 0..CHUNKS {
            rig.direct(1, group(order), chunk).unwrap();
        }
        rig.poll();
        let norms = rig.events().into_iter().find_map(|event| match event {
            Event::Decided { norm, momentum_norm, .. } => Some([norm, momentum_norm]),
            _ => None,
        });
        let [norm, momentum_norm] = norms.expect("it is decided");
        assert!((norm - 6f64.sqrt()).abs() < 1e-6, "{norm}");
        assert!((momentum_norm - momentum * 6f64.sqrt()).abs() < 1e-6, "{momentum_norm}");
    }
}

#[test]
fn decisions_wait_for_their_turn_and_not_for_ever() {
    let mut rig = Rig::new(job());
    rig.install(descriptor(1, &[1], false)).unwrap();
    rig.pulls();
    for chunk in 0..3 {
        rig.direct(2, group(1), chunk).unwrap();
    }
    assert!(rig.acks().is_empty(), "order 0 is not decided");
    assert_eq!(rig.status(2, group(1)).header.outcome, Outcome::Wait);
    rig.wait(1999);
    assert!(rig.acks().is_empty());
    rig.wait(1);
    // Nobody installed order 0: it is void after the job's bound of 2 s.
    assert_eq!(rig.acks(), [(2, Outcome::Committed, 1)]);
    assert_eq!(rig.install(descriptor(0, &[0], false)), Err(InstallError::Order));
    // A group at the head that does not come in time is void too.
    rig.install(descriptor(2, &[0], false)).unwrap();
    rig.poll();
    rig.wait(1001);
    assert_eq!(rig.acks(), [(1, Outcome::Void, 1)]);
    assert_eq!(rig.version(), 1);
}

#[test]
fn skipped_numbers_are_not_waited_for() {
    let mut rig = Rig::new(job());
    rig.install(descriptor(0, &[0], false)).unwrap();
    rig.install(descriptor(3, &[1], false)).unwrap();
    rig.pulls();
    for chunk in 0..3 {
        rig.direct(2, group(3), chunk).unwrap();
    }
    // Numbers 1 and 2 stay free; 0 is installed, so it is waited for.
    rig.server.handle_command(rig.now, Command::Skip { job: JOB, below: OrderNumber(3) });
    assert!(rig.acks().is_empty(), "order 0 is not decided");
    for chunk in 0..3 {
        rig.direct(1, group(0), chunk).unwrap();
    }
    assert_eq!(rig.acks(), [(1, Outcome::Committed, 1), (2, Outcome::Committed, 2)]);
    assert_eq!(rig.install(descriptor(2, &[0], false)), Err(InstallError::Order));
}

/// It went through them one by one, with a record, a frame and an event each. A replica that hears
/// of the run goes over it at once, and what is asked for anew is told again as a run.
#[test]
fn a_run_of_numbers_that_nobody_has_is_one_decision() {
    let far = (1u32 << 30) - 1;
    let mut rig = Rig::new(job());
    let mut last = descriptor(1, &[1], false);
    last.order = OrderNumber(1 << 30);
    assert_eq!(rig.install(last.clone()), Err(InstallError::Order), "its low bits are another's");
    last.order = OrderNumber(far.into());
    rig.install(last).unwrap();
    rig.pulls();
    for chunk in 0..CHUNKS {
        rig.direct(2, group(1), chunk).unwrap();
    }
    // Some numbers are not meant; the others are waited for.
    rig.server.handle_command(rig.now, Command::Skip { job: JOB, below: OrderNumber(1_000_000) });
    let replica = |rig: &mut Rig| -> Vec<(u32, Outcome, u64)> {
        let to_it =
            rig.poll().into_iter().filter(|out| out.to == REPLICA && out.header.kind == Kind::Ack);
        to_it.map(|out| (out.header.chunk.0, out.header.outcome, out.header.members.0)).collect()
    };
    assert_eq!(replica(&mut rig), [(0, Outcome::Void, 1_000_000)]);
    rig.wait(2000);
    let run = (1_000_000, Outcome::Void, far.into());
    let commit = (far, Outcome::Committed, 0b10);
    assert_eq!(replica(&mut rig), [run, commit]);
    let decided: Vec<u64> = core::iter::from_fn(|| rig.server.poll_event())
        .filter_map(|(_, event)| match event {
            Event::Decided { order, .. } => Some(order.0),
            _ => None,
        })
        .collect();
    assert_eq!(decided, [999_999, u64::from(far) - 1, far.into()]);
    // The log answers for every number of the run.
    for wanted in [0, 5, 1_000_000, far - 1] {
        let header = plain_header(Kind::Status, JOB, GroupId::new(ROW_LOG, 0), Members(0b10));
        let header = Header { flags: Flags::REPLICA, chunk: ChunkIndex(wanted), ..header };
        let frame = rig.frame(REPLICA, &header, &[]);
        assert_eq!(rig.send(&frame).unwrap().unwrap().header.outcome, Outcome::Wait);
        let again = replica(&mut rig);
        assert_eq!(again.last(), Some(&commit));
        assert_eq!(again.len(), if wanted < 1_000_000 { 3 } else { 2 });
    }
}

#[test]
fn too_old_is_dropped_and_void_may_come_again() {
    let mut rig = Rig::new(ServerJobConfig { tau_max: 1, ..job() });
    let mut order = 0;
    let mut push = |rig: &mut Rig, versions: [u64; 2]| {
        let mut both = descriptor(order, &[0, 1], true);
        order += 1;
        for (member, version) in both.members.iter_mut().zip(versions) {
            *member = GroupMember { version: Version(version), ..*member };
        }
        let id = both.group;
        rig.install(both).unwrap();
        for chunk in 0..CHUNKS {
            let _ = rig.sum(id, chunk, 0b11);
        }
        rig.acks()
    };
    // The second of a group is one version later than the first.
    let acks = push(&mut rig, [0, 0]);
    assert!(acks.contains(&(2, Outcome::Committed, 2)), "{acks:?}");
    let acks = push(&mut rig, [1, 1]);
    assert!(acks.contains(&(1, Outcome::Void, 2)), "{acks:?}");
    assert!(acks.contains(&(2, Outcome::Dropped, 2)), "{acks:?}");
    let acks = push(&mut rig, [1, 2]);
    assert!(acks.contains(&(2, Outcome::Committed, 4)), "{acks:?}");
    // A version that the model never had.
    let acks = push(&mut rig, [4, 99]);
    assert!(acks.contains(&(2, Outcome::Dropped, 4)), "{acks:?}");
}

#[test]
fn arrival_mode_numbers_groups_as_they_are_committed() {
    let mut rig = Rig::new(ServerJobConfig { commit: CommitMode::Arrival, ..job() });
    rig.install(descriptor(5, &[0], false)).unwrap();
    rig.install(descriptor(3, &[1], false)).unwrap();
    rig.poll();
    for chunk in 0..3 {
        rig.direct(2, group(3), chunk).unwrap();
    }
    rig.poll();
    let mut decided = Vec::new();
    while let Some((_, event)) = rig.server.poll_event() {
        if let Event::Decided { group, order, decision, .. } = event {
            decided.push((group, order, decision));
        }
    }
    let committed = Decision::Committed(Version(1));
    assert_eq!(decided, [(group(3), OrderNumber(0), committed)]);
}

/// The aggregator frees its lease, the replica's log and the journal say which group it was.
#[test]
fn a_group_that_is_not_committed_is_told_to_all_as_what_it_is() {
    let mut rig = Rig::new(ServerJobConfig { tau_max: 1, ..job() });
    rig.sum_first_group();
    rig.poll();
    let mut old = descriptor(1, &[0, 1], true);
    old.exponent = -3;
    rig.install(old).unwrap();
    let out = rig.poll();
    let dropped = out.iter().find(|out| out.to == REPLICA).unwrap().header;
    let told = (dropped.outcome, dropped.element_type, dropped.exponent, dropped.group);
    assert_eq!(told, (Outcome::Dropped, ElementType::I32, -3, group(1)));
    let acks: Vec<_> = out.iter().filter(|o| o.to != REPLICA).filter_map(Out::ack).collect();
    let dropped = |to| (to, Outcome::Dropped, 2);
    assert_eq!(acks, [(AGGREGATOR, Outcome::Void, 2), dropped(1), dropped(2)]);
    let is_decided = |event: &Event| matches!(event, Event::Decided { decision, .. } if *decision == Decision::Dropped);
    assert!(rig.events().iter().any(is_decided));
}

#[test]
fn a_group_is_staged_when_the_member_that_it_waited_for_is_closed() {
    for chunks in [CHUNKS, 1] {
        let mut rig = Rig::new(job());
        rig.install(descriptor(0, &[0, 1], true)).unwrap();
        rig.pulls();
        for chunk in 0..chunks {
            rig.direct(1, group(0), chunk).unwrap();
        }
        assert_eq!(rig.events(), []);
        let close = Command::CloseMember { job: JOB, group: Some(group(0)), rank: rank(1) };
        rig.server.handle_command(rig.now, close);
        let is_whole = chunks == CHUNKS;
        let staged = Event::Staged { group: group(0) };
        assert_eq!(rig.events().contains(&staged), is_whole);
        rig.poll();
        assert_eq!(rig.version(), u64::from(is_whole));
    }
}

/// It knows nothing of these updates: what is not whole will never be, and what is whole counts.
#[test]
fn a_new_life_gives_up_what_its_former_life_had_not_sent_whole() {
    for is_restored in [false, true] {
        let mut rig = Rig::new(job());
        if is_restored {
            rig.crash(job());
        }
        for order in 1..4 {
            let worker = u8::from(order < 3);
            rig.install(descriptor(order, &[worker], false)).unwrap();
        }
        rig.pulls();
        for chunk in 0..CHUNKS {
            rig.direct(2, group(1), chunk).unwrap();
        }
        rig.direct(2, group(2), 0).unwrap();
        rig.begin_life(2, 99);
        assert_eq!(rig.stats().members_closed, 1, "restored: {is_restored}");
        rig.poll();
        // Nobody has order 0.
        rig.wait(2000);
        rig.poll();
        assert_eq!((rig.version(), rig.next_order()), (1, 3));
    }
}
