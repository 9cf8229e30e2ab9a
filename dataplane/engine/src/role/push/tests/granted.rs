//! What a grant says and what becomes of it: segments, copies, groups that close without us.

use alloc::vec;

use weft_control::{Decision, Version};
use weft_wire::header::{Flags, Header, Kind, Outcome};
use weft_wire::{GroupId, Members};

use super::fake::{FakeBox, JOB};
use super::hostile::{cookie, frame};
use super::world::{Faults, World, grant};
use super::{CHUNKS, check_books, expected, values};
use crate::role::push::Segment;
use crate::send::datagram::plain_header;

const GROUP: GroupId = GroupId::new(4, 4);

#[test]
fn each_segment_has_its_rate_and_late_gates_change_nothing() {
    let mut world = World::connected(30, 1, 4_000, Faults::default());
    world.begin(0, 0, (0..32_000).collect());
    let mut granted = grant(GROUP, true, 1, true, 1_000_000);
    granted.segments.push(Segment { is_open: false, rate_bytes_per_sec: 20_000_000 });
    world.grant(GROUP, &[(0, 0)], true, granted);
    world.run_for(50_000_000, |_| false);
    let slow: usize = world.fake_box.arrivals.iter().map(|(_, len)| len).sum();
    assert!((45_000..=53_200).contains(&slow), "{slow} bytes in 50 ms at 1 MB/s");
    let now = world.now;
    world.workers[0].handle_release(now, 0, 1).unwrap();
    world.workers[0].handle_release(now, 0, 0).unwrap();
    world.workers[0].handle_release(now, 0, 9).unwrap();
    world.run(|world| world.decision(0, 0).is_some());
    let took_ns = world.now.since(now).0;
    // The other 3,500 frames of 106 bytes at 20 MB/s.
    assert!((16_000_000..25_000_000).contains(&took_ns), "{took_ns} ns");
}

#[test]
fn a_direct_update_is_copied_to_the_replica_chunk_by_chunk() {
    let mut world = World::connected(31, 1, CHUNKS, Faults::default());
    world.run_for(100_000_000, |_| false);
    world.begin(0, 0, values(5));
    world.replica.install(GROUP);
    let mut granted = grant(GROUP, false, 1, true, 0);
    granted.replicate = true;
    world.grant(GROUP, &[(0, 0)], false, granted);
    world.run(|world| world.decision(0, 0).is_some());
    world.run_for(10_000_000, |_| false);
    assert_eq!(world.workers[0].stats().replica_copies, u64::from(CHUNKS));
    assert_eq!(world.replica.values(GROUP), expected(&[values(5)]));
    assert_eq!(world.workers[0].stats().chunks_sent, u64::from(CHUNKS), "copies are not chunks");
    check_books(&world);
}

#[test]
fn an_aggregator_makes_the_copies_of_its_groups() {
    let mut world = World::connected(32, 1, CHUNKS, Faults::default());
    world.begin(0, 0, values(5));
    let mut granted = grant(GROUP, true, 1, true, 0);
    granted.replicate = true;
    world.grant(GROUP, &[(0, 0)], true, granted);
    world.run(|world| world.decision(0, 0).is_some());
    assert_eq!(world.workers[0].stats().replica_copies, 0);
}

#[test]
fn a_group_committed_without_us_leaves_our_update_void() {
    let mut world = World::connected(33, 1, CHUNKS, Faults::default());
    world.begin(0, 0, values(1));
    world.grant(GROUP, &[(0, 0)], true, grant(GROUP, true, 1, false, 0));
    let ack = Header {
        outcome: Outcome::Committed,
        cookie: cookie(&world, 0),
        ..plain_header(Kind::Ack, JOB, GROUP, Members(0b1100))
    };
    world.workers[0].handle_frame(world.now, &mut frame(100, &ack, &[])).unwrap();
    world.poll_workers();
    assert_eq!(world.decision(0, 0), Some(Decision::Void));
}

#[test]
fn a_sum_that_went_up_without_us_ends_the_transfer() {
    let mut world = World::connected(34, 1, CHUNKS, Faults::default());
    world.begin(0, 0, values(1));
    world.grant(GROUP, &[(0, 0)], true, grant(GROUP, true, 1, true, 0));
    let mut sent = vec![0; 2048];
    assert!(world.workers[0].poll_transmit(world.now, &mut sent).is_some());
    let have = Header {
        outcome: Outcome::Have,
        cookie: cookie(&world, 1),
        ..plain_header(Kind::State, JOB, GROUP, Members(0b1100))
    };
    let mut have = frame(FakeBox::HOST, &have, &[]);
    world.workers[0].handle_frame(world.now, &mut have).unwrap();
    // Nothing goes to the box any more; the server is asked.
    let len = world.workers[0].poll_transmit(world.now, &mut sent).unwrap();
    assert!(len < 100, "a STATUS, and no chunk");
    assert_eq!(world.workers[0].poll_transmit(world.now, &mut sent), None);
    assert_eq!(world.workers[0].stats().status_probes, 1);
}

#[test]
fn a_controllers_word_is_as_good_as_the_servers() {
    let mut world = World::connected(35, 1, CHUNKS, Faults::default());
    world.begin(0, 0, values(1));
    world.grant(GROUP, &[(0, 0)], true, grant(GROUP, true, 1, false, 0));
    world.workers[0].handle_outcome(0, Decision::Committed(Version(9))).unwrap();
    world.poll_workers();
    assert_eq!(world.decision(0, 0), Some(Decision::Committed(Version(9))));
    // A credit that comes late for it is not answered.
    let pull = Header {
        flags: Flags::DIRECT,
        cookie: cookie(&world, 0),
        ..plain_header(Kind::Pull, JOB, GROUP, Members(1))
    };
    assert!(world.workers[0].handle_frame(world.now, &mut frame(100, &pull, &[])).is_err());
    assert_eq!(world.workers[0].poll_transmit(world.now, &mut vec![0; 2048]), None);
}

/// A train leaves at once, beyond window and rate, and what follows pays for it.
#[test]
fn a_transfer_begins_with_a_train_and_keeps_its_rate() {
    let mut world = World::connected(36, 1, 4_000, Faults::default());
    world.begin(0, 0, (0..32_000).collect());
    let mut granted = grant(GROUP, true, 1, true, 106_000);
    granted.train_chunks = 100;
    world.grant(GROUP, &[(0, 0)], true, granted);
    world.run_for(2_000_000, |_| false);
    assert_eq!(world.fake_box.arrivals.len(), 100);
    // A bucket of 3,100 bytes holds 29 frames; the other 71 take a millisecond each.
    world.run_for(65_000_000, |_| false);
    assert_eq!(world.fake_box.arrivals.len(), 100);
    world.run_for(133_000_000, |_| false);
    let bytes: usize = world.fake_box.arrivals.iter().map(|(_, len)| len).sum();
    assert!((20_000..=3_100 + 21_200 + 106).contains(&bytes), "{bytes} bytes in 200 ms");
}
