//! Where a server's rules begin and end: configurations, announcements, pulls, holes, and what is
//! counted.

use alloc::vec::Vec;

use weft_control::{AckMode, BoxIndex, InstallError};
use weft_wire::header::{ElementType, Flags, Header, Kind, Operation, Outcome};
use weft_wire::rows::{ROW_DIRECT, ROW_MODEL};
use weft_wire::{ChunkIndex, GroupId};

use super::super::ServerJobConfig;
use super::rig::*;
use super::world::{REPLICA, SERVER, addr, endpoint};
use crate::drops::DropReason;
use crate::send::datagram::plain_header;

type Change = fn(&mut ServerJobConfig);

/// The field because of which a changed configuration is refused.
fn refused(change: impl Fn(&mut ServerJobConfig)) -> Option<&'static str> {
    let mut config = job();
    change(&mut config);
    config.check(&endpoint(SERVER), 1500).err().map(|error| error.field)
}

#[test]
fn a_configuration_is_refused_beyond_its_bounds_and_not_at_them() {
    let good: [Change; 10] = [
        |_| {},
        |job| (job.replica, job.log_bytes_max) = (None, 0),
        |job| (job.ack, job.div_max) = (AckMode::Replica, Some(1.0)),
        |job| job.groups_open_max = 1024,
        |job| (job.staging_bytes_max, job.log_bytes_max) = (24, 24),
        |job| job.snapshots_max = 64,
        |job| job.window_max = 1024,
        |job| job.rto_max_ns = job.rto_min_ns,
        |job| job.initial = [0.0; 6].into(),
        |job| job.boxes.extend([None; 62]),
    ];
    for (index, change) in good.into_iter().enumerate() {
        assert_eq!(refused(change), None, "{index}");
    }
    let bad: [(&str, Change); 21] = [
        ("dimension", |job| job.model.dimension = 0),
        ("replica", |job| job.replica = Some(BoxIndex(5))),
        ("replica", |job| (job.replica, job.div_max) = (None, Some(1.0))),
        ("replica", |job| (job.replica, job.ack) = (None, AckMode::Replica)),
        ("div_max", |job| job.div_max = Some(0.0)),
        ("div_max", |job| job.div_max = Some(f64::NAN)),
        ("rate_bytes_per_sec", |job| job.rate_bytes_per_sec = Some(0)),
        ("groups_open_max", |job| job.groups_open_max = 0),
        ("groups_open_max", |job| job.groups_open_max = 1025),
        ("staging_bytes_max", |job| job.staging_bytes_max = 23),
        ("log_entries_max", |job| job.log_entries_max = 0),
        ("log_bytes_max", |job| job.log_bytes_max = 23),
        ("snapshots_max", |job| job.snapshots_max = 0),
        ("snapshots_max", |job| job.snapshots_max = 65),
        ("window_max", |job| job.window_max = 0),
        ("window_max", |job| job.window_max = 1025),
        ("credits_max", |job| job.credits_max = 0),
        ("rto_min_ns", |job| job.rto_min_ns = 0),
        ("rto_min_ns", |job| job.rto_max_ns = job.rto_min_ns - 1),
        ("initial", |job| job.initial = [0.0; 7].into()),
        ("boxes", |job| job.boxes.extend([None; 63])),
    ];
    for (index, (field, change)) in bad.into_iter().enumerate() {
        assert_eq!(refused(change), Some(field), "{index}");
    }
}

#[test]
fn peers_are_distinct_of_one_family_and_at_most_64() {
    let workers = |count: u8| (150..150 + count).map(addr).collect::<Vec<_>>();
    assert_eq!(refused(|job| job.workers = workers(64)), None);
    assert_eq!(refused(|job| job.workers = workers(65)), Some("workers"));
    assert_eq!(refused(|job| job.workers = Vec::new()), Some("workers"));
    assert_eq!(refused(|job| job.workers.push(addr(1))), Some("workers"), "the first's");
    assert_eq!(refused(|job| job.workers[2] = addr(REPLICA)), Some("boxes"), "its box's");
    let ipv6 = "[fe80::1]:7000".parse().unwrap();
    assert_eq!(refused(|job| job.workers[0] = ipv6), Some("workers"));
    assert_eq!(refused(|job| job.boxes[0] = Some(ipv6)), Some("boxes"));
}

#[test]
fn an_announcement_must_fit_the_model() {
    let id = GroupId::new(ROW_DIRECT, 1);
    let good = Header {
        element_type: ElementType::I32,
        count: ELEMENTS,
        ..plain_header(Kind::Status, JOB, id, rank(0).bit())
    };
    let announce = |header: Header| {
        let mut rig = Rig::new(job());
        let frame = rig.frame(1, &header, &[]);
        let outcome = rig.send(&frame).unwrap().expect("a question is answered").header.outcome;
        (outcome, rig.pulls().len())
    };
    assert_eq!(announce(good), (Outcome::Wait, 3));
    assert_eq!(announce(Header { count: ELEMENTS + 1, ..good }), (Outcome::Stale, 0));
    assert_eq!(announce(Header { element_type: ElementType::Bf16, ..good }), (Outcome::Stale, 0));
    let mut rig = Rig::new(job());
    let frame = rig.frame(2, &Header { members: rank(1).bit(), ..good }, &[]);
    assert_eq!(rig.send(&frame).unwrap_err(), DropReason::BadMembers, "it is another's row");
}

#[test]
fn an_announcement_waits_for_the_one_in_its_place_and_for_room() {
    let mut rig = Rig::new(ServerJobConfig { groups_open_max: 1, ..job() });
    rig.announce(1, 1, 0);
    rig.announce(1, 5, 0);
    assert_eq!((rig.stats().groups_installed, rig.stats().groups_refused), (1, 0));
    rig.announce(2, 1, 0);
    assert_eq!((rig.stats().groups_installed, rig.stats().groups_refused), (1, 1));
    let error = rig.install(descriptor(0, &[0], false)).unwrap_err();
    assert!(matches!(error, InstallError::Full | InstallError::Order), "{error:?}");
    assert_eq!(rig.stats().groups_refused, 2);
}

/// What is asked for comes back as it was asked for, to a worker and to a box.
#[test]
fn a_pulled_chunk_says_what_it_is_and_who_asked() {
    let mut rig = Rig::new(job());
    for (host, members, flags) in
        [(1, rank(0).bit(), Flags::NONE), (REPLICA, REPLICA_BIT, Flags::REPLICA)]
    {
        let ask = |id, kind, chunk| Header {
            flags,
            chunk: ChunkIndex(chunk),
            ..plain_header(kind, JOB, id, members)
        };
        let frame = rig.frame(host, &ask(GroupId::new(ROW_MODEL, 0), Kind::Status, 0), &[]);
        let offered = rig.send(&frame).unwrap().unwrap().header.group;
        let frame = rig.frame(host, &ask(offered, Kind::Contrib, 1), &[]);
        let answer = rig.send(&frame).unwrap().unwrap().header;
        assert_eq!((answer.kind, answer.flags, answer.chunk.0), (Kind::Answer, flags, 1));
        assert_eq!((answer.group, answer.members, answer.count), (offered, members, ELEMENTS));
        assert_eq!((answer.element_type, answer.operation), (ElementType::F32, Operation::None));
        let frame = rig.frame(host, &ask(GroupId::new(ROW_MODEL, 7), Kind::Contrib, 2), &[]);
        let stale = rig.send(&frame).unwrap().unwrap().header;
        assert_eq!((stale.kind, stale.flags, stale.chunk.0), (Kind::State, flags, 2));
        assert_eq!(stale.outcome, Outcome::Stale);
    }
    assert_eq!((rig.stats().model_chunks_sent, rig.stats().model_stale), (2, 2));
}

#[test]
fn a_marked_chunk_halves_the_window_and_every_chunk_is_counted_in_bytes() {
    let mut rig = Rig::new(job());
    rig.install(descriptor(0, &[0], false)).unwrap();
    rig.pulls();
    rig.wait(5);
    let counts = |rig: &Rig| {
        let stats = rig.stats();
        (stats.window_reductions, stats.chunk_bytes, stats.duplicates)
    };
    rig.direct(1, group(0), 0).unwrap();
    assert_eq!(counts(&rig), (0, 82, 0));
    let flags = Flags::DIRECT.union(Flags::CONGESTION);
    let marked = Header { flags, members: rank(0).bit(), ..data(group(0), 1) };
    let frame = rig.frame(1, &marked, &ones());
    rig.send(&frame).unwrap();
    assert_eq!(counts(&rig), (1, 2 * 82, 0));
    assert_eq!(rig.send(&frame).unwrap_err(), DropReason::Duplicate);
    assert_eq!(counts(&rig), (1, 3 * 82, 1));
    let frames = rig.server.stats().frames;
    rig.direct(1, group(0), 2).unwrap();
    assert_eq!(rig.server.stats().frames, frames + 1);
}

#[test]
fn a_worker_gives_up_what_it_announced_by_itself() {
    let mut rig = Rig::new(job());
    rig.announce(1, 1, 0);
    rig.poll();
    let id = GroupId::new(ROW_DIRECT, 1);
    let outcome = Outcome::Stale;
    let stale = Header { outcome, ..plain_header(Kind::State, JOB, id, rank(0).bit()) };
    let frame = rig.frame(1, &stale, &[]);
    rig.send(&frame).unwrap();
    assert!(rig.acks().contains(&(1, Outcome::Void, 0)));
}

/// Each run of unused numbers is waited for by itself.
#[test]
fn a_hole_that_was_filled_does_not_count_towards_the_next() {
    let mut rig = Rig::new(job());
    rig.install(descriptor(1, &[1], false)).unwrap();
    rig.poll();
    rig.wait(1_500);
    rig.install(descriptor(0, &[0], false)).unwrap();
    for (worker, order) in [(1, 0), (2, 1)] {
        for chunk in 0..CHUNKS {
            rig.direct(worker, group(order), chunk).unwrap();
        }
    }
    rig.poll();
    assert_eq!(rig.next_order(), 2);
    rig.install(descriptor(3, &[0], false)).unwrap();
    rig.poll();
    for (ms, next_order) in [(1_000, 2), (999, 2), (1, 3)] {
        rig.wait(ms);
        rig.poll();
        assert_eq!(rig.next_order(), next_order);
    }
}

#[test]
fn something_to_say_is_due_at_once() {
    let mut rig = Rig::new(job());
    rig.poll();
    rig.install(descriptor(0, &[0], false)).unwrap();
    assert_eq!(rig.server.poll_timeout().0, 0);
    rig.poll();
    assert!(rig.server.poll_timeout().0 > 0);
}
