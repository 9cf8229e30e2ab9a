//! One rule at a time: what workers and replicas are told when they ask.

use alloc::vec::Vec;

use weft_control::{Command, OrderNumber};
use weft_wire::header::{ElementType, Flags, Header, Kind, Outcome};
use weft_wire::rows::{ROW_LOG, ROW_MODEL};
use weft_wire::{ChunkIndex, GroupId, Members};

use super::super::ServerJobConfig;
use super::rig::*;
use super::world::REPLICA;
use crate::drops::DropReason;
use crate::send::datagram::plain_header;

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

/// Copies are few, and one that somebody may be pulling stays (SPEC#pull): who asks meanwhile is
/// offered an older version than that of an update that was committed, and reported, before.
#[test]
fn while_all_copies_are_in_use_an_older_version_is_offered_than_the_newest() {
    let mut rig = Rig::new(ServerJobConfig { snapshots_max: 1, ..job() });
    let ask = |rig: &mut Rig, worker: u8| {
        let bit = rank(worker - 1).bit();
        let header = plain_header(Kind::Status, JOB, GroupId::new(ROW_MODEL, 0), bit);
        let frame = rig.frame(worker, &header, &[]);
        rig.send(&frame).unwrap().unwrap().header.chunk.0
    };
    assert_eq!(ask(&mut rig, 1), 0, "this worker pulls version 0");
    rig.install(descriptor(0, &[0], false)).unwrap();
    for chunk in 0..3 {
        rig.direct(1, group(0), chunk).unwrap();
    }
    let told: Vec<_> = rig.poll().iter().filter_map(Out::ack).collect();
    assert!(told.contains(&(1, Outcome::Committed, 1)), "its worker knows version 1: {told:?}");
    assert_eq!(rig.version(), 1);
    assert_eq!(ask(&mut rig, 2), 0, "another is offered the copy that there is");
    rig.wait(49);
    assert_eq!(ask(&mut rig, 2), 0, "each question keeps it");
    rig.wait(51);
    assert_eq!(ask(&mut rig, 2), 1, "nobody pulls the old one any more");
}

/// With the copies that a job has by default: what a worker pulled before keeps nobody waiting.
#[test]
fn whoever_asks_after_a_commit_is_offered_it_however_fast_they_follow() {
    let mut rig = Rig::new(ServerJobConfig { tau_max: 100, ..job() });
    for order in 0..20 {
        let worker = u8::try_from(order % 2).unwrap() + 1;
        rig.install(descriptor(order, &[worker - 1], false)).unwrap();
        for chunk in 0..3 {
            rig.direct(worker, group(order), chunk).unwrap();
        }
        rig.poll();
        let bit = rank(worker - 1).bit();
        let header = plain_header(Kind::Status, JOB, GroupId::new(ROW_MODEL, 0), bit);
        let frame = rig.frame(worker, &header, &[]);
        let offer = rig.send(&frame).unwrap().unwrap().header;
        assert_eq!(u64::from(offer.chunk.0), order + 1);
        let header = plain_header(Kind::Contrib, JOB, offer.group, bit);
        let frame = rig.frame(worker, &header, &[]);
        assert_eq!(rig.send(&frame).unwrap().unwrap().header.kind, Kind::Answer);
    }
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
    // The whole of a sum goes back; a question that is as long is none of a replica's.
    let padded =
        Header { flags: Flags::REPLICA, ..plain_header(Kind::Pull, JOB, group(2), Members(2)) };
    let padded = rig.frame(REPLICA, &padded, &ones());
    assert_eq!(rig.send(&padded).unwrap_err(), DropReason::Length);
    let answer = repair(&mut rig, 2);
    assert_eq!((answer.header.kind, answer.payload), (Kind::Answer, ones()));
    assert_eq!(repair(&mut rig, 0).header.outcome, Outcome::Stale);
    let stats = *rig.server.jobs().next().unwrap().1;
    assert_eq!((stats.repairs, stats.replica_lag), (1, 2));
    assert_eq!((stats.replica_repair_bytes, stats.decisions_repeated), (42 + 32 + 8, 2));
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

/// I8: what is not sent is asked for again.
#[test]
fn what_a_full_outbox_cannot_take_is_counted() {
    let mut rig = Rig::new(job());
    (0..40).for_each(|order| rig.void(order));
    // 4 groups of 3 workers and 2 boxes, and 64.
    let most = 4 * (3 + 2) + 64;
    for _ in 0..3 {
        rig.follow(0);
    }
    assert_eq!((rig.stats().decisions_repeated, rig.stats().acks_lost), (96, 96 - most));
    assert_eq!(rig.poll().len() as u64, most);
}
