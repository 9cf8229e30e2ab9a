//! One rule at a time: who is asked for what and when, and when an aggregator is left.

use alloc::vec::Vec;

use weft_control::{Command, ConductMode, GroupDescriptor};
use weft_wire::Members;
use weft_wire::header::{Flags, Header, Kind, Outcome};

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

#[test]
fn a_gate_opens_when_the_last_sum_of_an_aggregators_group_is_called() {
    let mut rig = Rig::new(job());
    rig.install(descriptor(0, &[0, 1], true)).unwrap();
    let mut second = descriptor(1, &[1], false);
    second.after = Some(group(0));
    rig.install(second).unwrap();
    assert_eq!(rig.pulls(), [(AGGREGATOR, 0), (AGGREGATOR, 1), (AGGREGATOR, 2)]);
    rig.sum(group(0), 1, 0b11).unwrap();
    assert_eq!(rig.pulls(), [(2, 0), (2, 1), (2, 2)]);
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
        // Of its own rate the server leaves one part in 32 to requests for models.
        let flowing = if by_group { 395..=401 } else { 383..=388 };
        assert!(flowing.contains(&(asked - at_once)), "{by_group} {asked}");
    }
    let mut rig = Rig::new(ServerJobConfig { window_max: 1024, credits_max: 2000, ..wide() });
    let mut first = descriptor(0, &[0], false);
    first.chunks = 1000;
    rig.install(first).unwrap();
    assert_eq!(asked_in_400_ms(&mut rig), 1000, "without a rate the window is the limit");
}

/// A link that was idle has not saved what nobody called for: two groups would send it as a burst,
/// at twice its rate. What a late thread could have called for is not lost.
#[test]
fn an_idle_link_gives_no_burst_and_a_late_thread_loses_nothing() {
    // A chunk of 64 elements in its frame: 50 of them in 16 KiB. Each worker's window is 64.
    let (rate_bytes_per_sec, frame_len) = (20_000_000, 42 + 32 + 256);
    let mut job = wide();
    (job.model.elements, job.model.dimension) = (64, 64_000);
    (job.staging_bytes_max, job.log_bytes_max) = (4 * 256_000, 4 * 256_000);
    let mut rig = Rig::new(job);
    rig.server.handle_command(rig.now, Command::SetRate { job: JOB, rate_bytes_per_sec });
    let count = |rig: &mut Rig| rig.poll().iter().filter_map(Out::pull).count();
    for turn in 0..2 {
        // When the bucket holds the next credit it is looked at, and nobody wants that.
        rig.wait(1);
        assert_eq!(count(&mut rig), 0);
        rig.wait(100);
        for worker in 0..2 {
            let order = 2 * turn + u64::from(worker);
            let mut group = GroupDescriptor { elements: 64, ..descriptor(order, &[worker], false) };
            group.chunks = 1000;
            group.rate_bytes_per_sec = Some(rate_bytes_per_sec);
            rig.install(group).unwrap();
        }
        let at_once = 16 * 1024 / frame_len;
        assert_eq!(count(&mut rig), at_once, "turn {turn}");
        rig.wait(1);
        let flown = (16 * 1024 + 20_000 * 31 / 32) / frame_len - at_once;
        assert_eq!(count(&mut rig), flown, "what flows in 1 ms");
        for worker in 0..2 {
            let group = group(2 * turn + worker);
            rig.server.handle_command(rig.now, Command::Remove { job: JOB, group });
        }
        rig.poll();
    }
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
