//! One rule at a time: credits, staging, closing, deciding, answering.

use alloc::vec;
use alloc::vec::Vec;

use weft_control::{
    BoxIndex, Command, CommitMode, ConductMode, Decision, Event, GroupMember, InstallError,
    OrderNumber, Version,
};
use weft_wire::header::{ElementType, Flags, Header, Kind, Outcome};
use weft_wire::rows::{ROW_DIRECT, ROW_LOG, ROW_MODEL};
use weft_wire::{ChunkIndex, GroupId, Members};

use super::super::ServerJobConfig;
use super::rig::*;
use super::world::{AGGREGATOR, REPLICA};
use crate::drops::DropReason;
use crate::send::datagram::plain_header;

#[test]
fn credits_go_to_the_source_in_the_plans_order() {
    let mut rig = Rig::new(ServerJobConfig { credits_max: 4, ..job() });
    // Installed out of order, served in order.
    rig.install(descriptor(1, &[1], false)).unwrap();
    rig.install(descriptor(0, &[0, 1], true)).unwrap();
    assert_eq!(rig.pulls(), [(AGGREGATOR, 0), (AGGREGATOR, 1), (AGGREGATOR, 2), (2, 0)]);
    rig.sum(group(0), 1, 0b11).unwrap();
    assert_eq!(rig.pulls(), [(2, 1)]);
    rig.sum(group(0), 0, 0b11).unwrap();
    rig.sum(group(0), 2, 0b11).unwrap();
    let out = rig.poll();
    let pulls: Vec<_> = out.iter().filter_map(Out::pull).collect();
    assert_eq!(pulls, [(2, 2)]);
    let acks: Vec<_> = out.iter().filter_map(Out::ack).collect();
    let committed = |to| (to, Outcome::Committed, 2);
    // The aggregator, the members; the replica is told the order number.
    assert!(acks.contains(&committed(AGGREGATOR)) && acks.contains(&committed(1)), "{acks:?}");
    assert!(acks.contains(&committed(2)) && acks.contains(&(REPLICA, Outcome::Committed, 0)));
    assert_eq!(rig.server.model(JOB).unwrap().weights, [1.0; 6]);
}

#[test]
fn fair_sharing_gives_everybody_a_turn() {
    let mut rig = Rig::new(ServerJobConfig { credits_max: 4, conduct: ConductMode::Fair, ..job() });
    rig.install(descriptor(0, &[0], false)).unwrap();
    rig.install(descriptor(1, &[1], false)).unwrap();
    assert_eq!(rig.pulls(), [(1, 0), (2, 0), (1, 1), (2, 1)]);
}

#[test]
fn a_gate_opens_when_the_group_before_is_ending() {
    let mut rig = Rig::new(job());
    rig.install(descriptor(0, &[0], false)).unwrap();
    let mut second = descriptor(1, &[1], false);
    second.after = Some(group(0));
    rig.install(second).unwrap();
    assert_eq!(rig.pulls(), [(1, 0), (1, 1), (1, 2)], "called, but nothing of it has come");
    rig.direct(1, group(0), 1).unwrap();
    assert_eq!(rig.pulls(), [(2, 0), (2, 1), (2, 2)], "the rest is on its way");
}

/// Credits given within 400 ms, each answered at once.
fn asked_in_400_ms(rig: &mut Rig) -> usize {
    let mut asked = 0;
    for _ in 0..400 {
        let pulls = rig.pulls();
        asked += pulls.len();
        for (worker, chunk) in pulls {
            rig.direct(worker, group(0), chunk).unwrap();
        }
        rig.wait(1);
    }
    asked
}

#[test]
fn rates_are_ceilings_of_groups_and_of_the_server() {
    // A credit stands for a frame of 42 + 32 + 8 bytes: 1000 a second. The bucket holds 16 KiB.
    let rate_bytes_per_sec = 82_000;
    let at_once = 16 * 1024 / 82;
    for by_group in [true, false] {
        let mut rig = Rig::new(ServerJobConfig { window_max: 1024, credits_max: 2000, ..wide() });
        let mut first = descriptor(0, &[0], false);
        first.chunks = 1000;
        if by_group {
            first.rate_bytes_per_sec = Some(rate_bytes_per_sec);
        } else {
            rig.server.handle_command(rig.now, Command::SetRate { job: JOB, rate_bytes_per_sec });
        }
        rig.install(first).unwrap();
        let asked = asked_in_400_ms(&mut rig);
        assert!((at_once + 395..=at_once + 401).contains(&asked), "{by_group} {asked}");
    }
    let mut rig = Rig::new(ServerJobConfig { window_max: 1024, credits_max: 2000, ..wide() });
    let mut first = descriptor(0, &[0], false);
    first.chunks = 1000;
    rig.install(first).unwrap();
    assert_eq!(asked_in_400_ms(&mut rig), 1000, "without a rate the window is the limit");
}

/// A job of 1000 chunks.
fn wide() -> ServerJobConfig {
    let mut wide = job();
    wide.model.dimension = 2000;
    wide.staging_bytes_max = 4 * 8000;
    wide.log_bytes_max = 4 * 8000;
    wide
}

#[test]
fn an_unanswered_credit_is_repeated_until_its_chunk_is_there() {
    let mut rig = Rig::new(job());
    rig.install(descriptor(0, &[0], false)).unwrap();
    assert_eq!(rig.pulls().len(), 3);
    rig.direct(1, group(0), 1).unwrap();
    assert!(rig.pulls().is_empty());
    rig.wait(45);
    let again = rig.poll();
    let chunks: Vec<_> = again.iter().filter_map(Out::pull).collect();
    assert_eq!(chunks, [(1, 0), (1, 2)]);
    assert!(again.iter().all(|out| out.header.flags == Flags::RETRANSMIT.union(Flags::DIRECT)));
    assert!(again.iter().all(|out| out.header.members == Members(1)));
}

#[test]
fn what_overlaps_is_refused_and_the_members_are_asked() {
    let mut rig = Rig::new(job());
    rig.install(descriptor(0, &[0, 1], true)).unwrap();
    rig.pulls();
    rig.sum(group(0), 0, 0b01).unwrap();
    assert_eq!(rig.sum(group(0), 0, 0b01), Err(DropReason::Duplicate));
    // A member that was not asked may send: what it sends is as good.
    rig.direct(2, group(0), 1).unwrap();
    rig.sum(group(0), 0, 0b11).unwrap();
    rig.sum(group(0), 1, 0b11).unwrap();
    rig.sum(group(0), 2, 0b11).unwrap();
    assert_eq!(rig.acks().len(), 3);
    assert_eq!(rig.server.model(JOB).unwrap().weights, [1.0; 6], "the full sums count alone");
}

#[test]
fn sums_that_overlap_make_the_server_ask_the_members() {
    let mut rig = Rig::new(job());
    rig.install(descriptor(0, &[0, 1, 2], true)).unwrap();
    rig.pulls();
    rig.sum(group(0), 0, 0b011).unwrap();
    assert_eq!(rig.sum(group(0), 0, 0b110), Err(DropReason::Unwanted));
    // Worker 2 has no channel; the others are asked for what is missing of theirs.
    assert_eq!(rig.pulls(), [(1, 1), (1, 2), (2, 1), (2, 2)]);
    rig.sum(group(0), 0, 0b100).unwrap();
    let stats = rig.server.jobs().next().unwrap().1;
    assert_eq!((stats.overlaps, stats.fallbacks, stats.chunks_composed), (1, 1, 1));
}

#[test]
fn an_aggregator_that_is_stale_or_silent_is_left() {
    for is_silent in [false, true] {
        let mut rig = Rig::new(job());
        rig.install(descriptor(0, &[0, 1], true)).unwrap();
        assert_eq!(rig.pulls(), [(AGGREGATOR, 0), (AGGREGATOR, 1), (AGGREGATOR, 2)]);
        rig.sum(group(0), 0, 0b11).unwrap();
        let pulls = if is_silent {
            let mut last = Vec::new();
            for _ in 0..60 {
                rig.wait(10);
                last = rig.pulls();
                if last.iter().any(|(to, _)| *to != AGGREGATOR) {
                    break;
                }
            }
            last
        } else {
            let stale = Header {
                outcome: Outcome::Stale,
                ..plain_header(Kind::State, JOB, group(0), Members(0b111))
            };
            let frame = rig.frame(AGGREGATOR, &stale, &[]);
            rig.send(&frame).unwrap();
            rig.pulls()
        };
        assert_eq!(pulls, [(1, 1), (1, 2), (2, 1), (2, 2)], "silent: {is_silent}");
        // HAVE would have kept it.
        for chunk in 1..3 {
            rig.direct(1, group(0), chunk).unwrap();
            rig.direct(2, group(0), chunk).unwrap();
        }
        assert_eq!(rig.version(), 0);
        rig.poll();
        assert_eq!(rig.version(), 2);
        assert_eq!(rig.server.model(JOB).unwrap().weights, [1.0, 1.0, 2.0, 2.0, 2.0, 2.0]);
        assert_eq!(rig.server.jobs().next().unwrap().1.fallbacks, 1);
    }
}

/// Server and aggregator are told of a group by two messages, and the server's PULL may be faster.
#[test]
fn an_aggregator_that_does_not_know_a_young_group_is_asked_again() {
    let mut rig = Rig::new(job());
    rig.install(descriptor(0, &[0, 1], true)).unwrap();
    rig.pulls();
    let unknown = Header {
        outcome: Outcome::Stale,
        ..plain_header(Kind::State, JOB, group(0), Members::EMPTY)
    };
    let timeout_ms = job().source_timeout_ns / MS;
    let mut waited_ms = 0;
    while waited_ms + 10 < timeout_ms {
        rig.wait(10);
        waited_ms += 10;
        let frame = rig.frame(AGGREGATOR, &unknown, &[]);
        rig.send(&frame).unwrap();
        let pulls = rig.pulls();
        assert!(pulls.iter().all(|(to, _)| *to == AGGREGATOR), "{waited_ms} ms: {pulls:?}");
    }
    rig.wait(20);
    let frame = rig.frame(AGGREGATOR, &unknown, &[]);
    rig.send(&frame).unwrap();
    assert!(rig.pulls().iter().any(|(to, _)| *to != AGGREGATOR), "it will never know");
}

#[test]
fn an_aggregator_that_waits_for_members_is_not_left() {
    let mut rig = Rig::new(job());
    let mut patient = descriptor(0, &[0, 1], true);
    patient.lateness_ns = 60_000 * MS;
    rig.install(patient).unwrap();
    rig.pulls();
    for _ in 0..200 {
        rig.wait(20);
        let pulls = rig.pulls();
        assert!(pulls.iter().all(|(to, _)| *to == AGGREGATOR), "{pulls:?}");
        let have = Header {
            outcome: Outcome::Have,
            ..plain_header(Kind::State, JOB, group(0), Members(0b01))
        };
        let frame = rig.frame(AGGREGATOR, &have, &[]);
        rig.send(&frame).unwrap();
    }
}

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
fn groups_that_cannot_be_are_refused() {
    let mut rig = Rig::new(job());
    let good = descriptor(0, &[0, 1], true);
    let mut cases = vec![];
    let mut case = |error, change: fn(&mut weft_control::GroupDescriptor)| {
        let mut descriptor = descriptor(0, &[0, 1], true);
        change(&mut descriptor);
        cases.push((error, descriptor));
    };
    case(InstallError::Shape, |d| d.chunks += 1);
    case(InstallError::Shape, |d| d.elements += 1);
    case(InstallError::Shape, |d| d.element_type = ElementType::Bf16);
    case(InstallError::Shape, |d| d.members.clear());
    case(InstallError::Shape, |d| d.members[1] = d.members[0]);
    case(InstallError::Shape, |d| d.members[1].rank = rank(3));
    case(InstallError::Shape, |d| d.via = None);
    case(InstallError::Shape, |d| d.via = Some(BoxIndex(7)));
    case(InstallError::Shape, |d| d.rate_bytes_per_sec = Some(0));
    case(InstallError::Shape, |d| d.group = GroupId::new(ROW_DIRECT, 0));
    case(InstallError::UnknownJob, |d| d.job.0 += 1);
    for (error, descriptor) in cases {
        assert_eq!(rig.install(descriptor.clone()), Err(error), "{descriptor:?}");
    }
    rig.install(good.clone()).unwrap();
    rig.install(good.clone()).unwrap();
    let mut other = good.clone();
    other.group = GroupId::new(0, 2);
    assert_eq!(rig.install(other.clone()), Err(InstallError::RowTaken));
    other.group = GroupId::new(9, 2);
    assert_eq!(rig.install(other), Err(InstallError::Order));
    for order in 1..4 {
        rig.install(descriptor(order, &[0], false)).unwrap();
    }
    assert_eq!(rig.install(descriptor(4, &[0], false)), Err(InstallError::Full));
    // Removed groups are void, and make room.
    rig.server.handle_command(rig.now, Command::Remove { job: JOB, group: group(0) });
    let acks = rig.acks();
    assert!(acks.contains(&(1, Outcome::Void, 0)) && acks.contains(&(2, Outcome::Void, 0)));
    rig.install(descriptor(4, &[0], false)).unwrap();
}

#[test]
fn announced_updates_are_opened_pulled_and_answered() {
    let mut rig = Rig::new(job());
    let id = GroupId::new(ROW_DIRECT + 1, 65_535);
    assert_eq!(rig.announce(2, 65_535, 0).header.outcome, Outcome::Wait);
    assert_eq!(rig.announce(2, 65_535, 0).header.outcome, Outcome::Wait);
    assert_eq!(rig.pulls(), [(2, 0), (2, 1), (2, 2)]);
    for chunk in 0..3 {
        rig.direct(2, id, chunk).unwrap();
    }
    assert_eq!(rig.acks(), [(2, Outcome::Committed, 1)]);
    // The ACK was lost: asked again, told again, committed once.
    let again = rig.announce(2, 65_535, 0);
    assert_eq!(again.ack(), Some((2, Outcome::Committed, 1)));
    assert_eq!(rig.announce(2, 0, 1).header.outcome, Outcome::Wait);
    assert_eq!(rig.version(), 1);
    // Another life's numbers are its own.
    rig.begin_life(2, 99);
    assert_eq!(rig.announce(2, 65_535, 1).header.outcome, Outcome::Wait);
}

#[test]
fn late_announcements_of_decided_updates_open_nothing() {
    let mut rig = Rig::new(job());
    for generation in 0..40u16 {
        let id = GroupId::new(ROW_DIRECT, generation);
        rig.announce(1, generation, u32::from(generation));
        rig.poll();
        for chunk in 0..3 {
            rig.direct(1, id, chunk).unwrap();
        }
        rig.poll();
    }
    assert_eq!(rig.version(), 40);
    for late in 0..8u16 {
        assert_eq!(rig.announce(1, late, u32::from(late)).header.outcome, Outcome::Stale);
    }
    assert!(rig.pulls().is_empty());
    // Too many at a time wait; a shape that is not the job's never comes in.
    for generation in 40..44 {
        assert_eq!(rig.announce(1, generation, 40).header.outcome, Outcome::Wait);
    }
    assert_eq!(rig.announce(1, 44, 40).header.outcome, Outcome::Wait);
    assert_eq!(rig.server.jobs().next().unwrap().1.groups_installed, 44);
}

#[test]
fn statuses_of_what_is_unknown_are_stale() {
    let mut rig = Rig::new(job());
    assert_eq!(rig.status(1, group(7)).header.outcome, Outcome::Stale);
    rig.install(descriptor(0, &[0], false)).unwrap();
    assert_eq!(rig.status(2, group(0)).header.outcome, Outcome::Stale);
    assert_eq!(rig.status(1, group(0)).header.outcome, Outcome::Wait);
}

#[test]
fn models_are_pulled_by_version() {
    let mut rig = Rig::new(job());
    let ask = |rig: &mut Rig| {
        let header = plain_header(Kind::Status, JOB, GroupId::new(ROW_MODEL, 0), rank(0).bit());
        let frame = rig.frame(1, &header, &[]);
        rig.send(&frame).unwrap().unwrap()
    };
    let pull = |rig: &mut Rig, generation, chunk| {
        let id = GroupId::new(ROW_MODEL, generation);
        let header = plain_header(Kind::Contrib, JOB, id, rank(0).bit());
        let frame = rig.frame(1, &Header { chunk: ChunkIndex(chunk), ..header }, &[]);
        rig.send(&frame)
    };
    assert_eq!(ask(&mut rig).ack(), Some((1, Outcome::None, 0)));
    assert_eq!(pull(&mut rig, 0, 2).unwrap().unwrap().payload, [0; 8]);
    rig.install(descriptor(0, &[0], false)).unwrap();
    for chunk in 0..3 {
        rig.direct(1, group(0), chunk).unwrap();
    }
    rig.poll();
    let newest = ask(&mut rig);
    assert_eq!((newest.header.chunk.0, newest.header.group.generation()), (1, 1));
    let answer = pull(&mut rig, 1, 2).unwrap().unwrap();
    assert_eq!(answer.payload, 1f32.to_be_bytes().repeat(2));
    assert_eq!(answer.header.element_type, ElementType::F32);
    assert_eq!(pull(&mut rig, 0, 2).unwrap().unwrap().payload, [0; 8], "kept");
    assert_eq!(pull(&mut rig, 7, 2).unwrap().unwrap().header.outcome, Outcome::Stale);
    // The momentum term is for boxes.
    assert_eq!(pull(&mut rig, 1, 3).unwrap_err(), DropReason::ChunkOutOfRange);
}

#[test]
fn the_log_answers_its_replica_until_it_is_past() {
    let mut rig = Rig::new(ServerJobConfig { log_entries_max: 2, ..job() });
    let ask = |rig: &mut Rig, wanted: u32| {
        let id = GroupId::new(ROW_LOG, 0);
        let header = plain_header(Kind::Status, JOB, id, Members(0b10));
        let header = Header { flags: Flags::REPLICA, chunk: ChunkIndex(wanted), ..header };
        let frame = rig.frame(REPLICA, &header, &[]);
        rig.send(&frame).unwrap().unwrap()
    };
    assert_eq!(ask(&mut rig, 0).header.outcome, Outcome::Wait);
    for order in 0..3 {
        rig.install(descriptor(order, &[0], false)).unwrap();
        for chunk in 0..3 {
            rig.direct(1, group(order), chunk).unwrap();
        }
        rig.poll();
    }
    assert_eq!(ask(&mut rig, 0).header.outcome, Outcome::Stale);
    assert_eq!(ask(&mut rig, 9).header.outcome, Outcome::Stale);
    // What it lacks, and up to where: what is decided next.
    let level = ask(&mut rig, 1).header;
    assert_eq!((level.outcome, level.chunk.0), (Outcome::Wait, 3));
    let more: Vec<_> = rig.poll().iter().filter_map(Out::ack).collect();
    let decided = |order| (REPLICA, Outcome::Committed, order);
    assert_eq!(more, [decided(1), decided(2)]);
    let repair = |rig: &mut Rig, order: u64| {
        let header = plain_header(Kind::Pull, JOB, group(order), Members(order));
        let header = Header { flags: Flags::REPLICA, chunk: ChunkIndex(2), ..header };
        let frame = rig.frame(REPLICA, &header, &[]);
        rig.send(&frame).unwrap().unwrap()
    };
    let answer = repair(&mut rig, 2);
    assert_eq!((answer.header.kind, answer.payload), (Kind::Answer, ones()));
    assert_eq!(repair(&mut rig, 0).header.outcome, Outcome::Stale);
    let stats = *rig.server.jobs().next().unwrap().1;
    assert_eq!((stats.repairs, stats.replica_lag), (1, 2));
    assert_eq!(ask(&mut rig, 3).header.outcome, Outcome::Wait);
    assert_eq!(rig.server.jobs().next().unwrap().1.replica_lag, 0);
    let held = rig.server.poll_event();
    assert!(held.is_some());
}

/// Decisions that leave the model as it is may be all that a replica lacks.
#[test]
fn a_version_is_offered_to_replicas_with_the_order_number_that_it_has_come_to() {
    let mut rig = Rig::new(job());
    let ask = |rig: &mut Rig| {
        let header = plain_header(Kind::Status, JOB, GroupId::new(ROW_MODEL, 0), Members(0b10));
        let header = Header { flags: Flags::REPLICA, ..header };
        let frame = rig.frame(REPLICA, &header, &[]);
        let offer = rig.send(&frame).unwrap().unwrap().header;
        (offer.chunk.0, offer.members.0)
    };
    rig.install(descriptor(0, &[0], false)).unwrap();
    for chunk in 0..3 {
        rig.direct(1, group(0), chunk).unwrap();
    }
    rig.poll();
    assert_eq!(ask(&mut rig), (1, 1));
    rig.server.handle_command(rig.now, Command::Skip { job: JOB, below: OrderNumber(5) });
    rig.install(descriptor(5, &[0], false)).unwrap();
    rig.poll();
    assert_eq!(ask(&mut rig), (1, 5));
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

/// I6: one job's groups, frames and limits are nothing to another.
#[test]
fn jobs_share_nothing() {
    let mut other = job();
    other.model.job.0 = 4;
    other.workers = vec![super::world::addr(1), super::world::addr(2)];
    let mut rig = Rig::of(&[job(), other]);
    for order in 0..4 {
        rig.install(descriptor(order, &[0], false)).unwrap();
    }
    let mut foreign = descriptor(0, &[0], false);
    foreign.job.0 = 4;
    rig.install(foreign).unwrap();
    // A frame of job 3's channel that says it is of job 4 is nobody's there.
    let mut frame = {
        let header = Header { flags: Flags::DIRECT, members: rank(0).bit(), ..data(group(0), 0) };
        rig.frame(1, &header, &ones())
    };
    let at = 42 + 3;
    frame[at] = 4;
    let before = alloc::format!("{:?}", rig.server.jobs);
    assert!(rig.send(&frame).unwrap().is_some_and(|out| out.header.outcome == Outcome::Stale));
    assert_eq!(alloc::format!("{:?}", rig.server.jobs), before);
}
