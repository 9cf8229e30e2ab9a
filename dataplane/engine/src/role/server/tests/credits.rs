//! One rule at a time: what a credit is worth, how long it lives, and what is told of it.

use alloc::collections::BTreeSet;
use alloc::vec;
use alloc::vec::Vec;

use weft_control::{Command, Event, GroupDescriptor};
use weft_wire::header::{Flags, Header, Kind, Outcome};
use weft_wire::hello::Integrity;
use weft_wire::rows::ROW_DIRECT;
use weft_wire::{GroupId, Members};

use super::super::ServerJobConfig;
use super::rig::*;
use super::world::{AGGREGATOR, BOX, FRAME_LEN, REPLICA, REPLICA_BOX, addr};
use crate::role::channel::{Peer, Standing};
use crate::role::model::ModelConfig;
use crate::send::datagram::plain_header;

/// The aggregator's channel is closed: nobody is there.
fn close_box(rig: &mut Rig) {
    let now = rig.now;
    rig.peer(AGGREGATOR).close(now);
    let mut frame = vec![0; FRAME_LEN];
    let len = rig.peer(AGGREGATOR).poll_transmit(now, &mut frame).unwrap();
    let mut reply = rig.raw(&frame[..len]).unwrap().unwrap();
    let (udp, header) = parse(&reply);
    rig.peer(AGGREGATOR).handle_frame(now, &udp, &header, &mut reply).unwrap();
    assert_eq!(rig.peer(AGGREGATOR).standing(), Standing::Closed);
}

/// The aggregator has given a group up.
fn give_up(rig: &mut Rig, id: GroupId) {
    let stale =
        Header { outcome: Outcome::Stale, ..plain_header(Kind::State, JOB, id, Members(0b111)) };
    let frame = rig.frame(AGGREGATOR, &stale, &[]);
    rig.send(&frame).unwrap();
}

#[test]
fn the_credits_of_a_decided_group_are_free_at_once() {
    let mut rig = Rig::new(ServerJobConfig { credits_max: 3, ..job() });
    rig.install(descriptor(0, &[0], false)).unwrap();
    assert_eq!(rig.pulls(), [(1, 0), (1, 1), (1, 2)]);
    rig.server.handle_command(rig.now, Command::Remove { job: JOB, group: group(0) });
    rig.install(descriptor(1, &[1], false)).unwrap();
    assert_eq!(rig.pulls(), [(2, 0), (2, 1), (2, 2)]);
}

/// From the call to the first chunk is the way, from there to the last the transfer.
#[test]
fn a_transfer_is_told_with_its_times_and_who_sent_it() {
    let mut rig = Rig::new(job());
    let transferred = |rig: &mut Rig| {
        let of = |event| match event {
            Event::Transferred { rank, bytes, duration_ns, wait_ns, idle_ns, .. } => {
                Some((rank, bytes, duration_ns / MS, wait_ns / MS, idle_ns / MS))
            }
            _ => None,
        };
        rig.events().into_iter().find_map(of).expect("it is staged")
    };
    rig.wait(4);
    rig.install(descriptor(0, &[0], false)).unwrap();
    rig.pulls();
    rig.wait(5);
    rig.direct(1, group(0), 0).unwrap();
    rig.wait(7);
    rig.direct(1, group(0), 1).unwrap();
    rig.direct(1, group(0), 2).unwrap();
    // Three Ethernet frames of 42 + 32 + 8 bytes.
    assert_eq!(transferred(&mut rig), (Some(rank(0)), 3 * 82, 7, 5, 0));
    // One member alone, and not by itself.
    rig.install(descriptor(1, &[0], true)).unwrap();
    rig.pulls();
    rig.wait(3);
    for chunk in 0..CHUNKS {
        rig.sum(group(1), chunk, 0b01).unwrap();
    }
    assert_eq!(transferred(&mut rig), (None, 3 * 82, 0, 3, 3));
}

#[test]
fn of_the_way_to_a_new_life_nothing_is_known() {
    let mut rig = Rig::new(job());
    rig.install(descriptor(0, &[0], false)).unwrap();
    rig.pulls();
    rig.direct(1, group(0), 1).unwrap();
    // Two round trips that were lost: the next deadline is far.
    for _ in 0..2 {
        rig.wait(300);
        assert_eq!(rig.pulls(), [(1, 0), (1, 2)]);
    }
    rig.begin_life(1, 21);
    rig.poll();
    rig.install(descriptor(1, &[0], false)).unwrap();
    assert_eq!(rig.pulls(), [(1, 0), (1, 1), (1, 2)]);
    rig.wait(40);
    assert_eq!(rig.pulls(), [(1, 0), (1, 1), (1, 2)], "twice the shortest deadline");
}

#[test]
fn a_credit_is_not_repeated_for_what_came_another_way() {
    let mut rig = Rig::new(job());
    rig.install(descriptor(0, &[0, 1], true)).unwrap();
    assert_eq!(rig.pulls(), [(AGGREGATOR, 0), (AGGREGATOR, 1), (AGGREGATOR, 2)]);
    rig.direct(1, group(0), 0).unwrap();
    rig.direct(2, group(0), 0).unwrap();
    rig.wait(45);
    assert_eq!(rig.pulls(), [(AGGREGATOR, 1), (AGGREGATOR, 2)]);
    give_up(&mut rig, group(0));
    assert_eq!(rig.pulls(), [(1, 1), (1, 2), (2, 1), (2, 2)]);
    // Its sum was on the way.
    rig.sum(group(0), 1, 0b11).unwrap();
    rig.wait(45);
    assert_eq!(rig.pulls(), [(1, 2), (2, 2)]);
}

#[test]
fn only_a_transfer_that_flows_tells_of_losses() {
    let mut rig = Rig::new(job());
    rig.install(descriptor(0, &[0], false)).unwrap();
    rig.pulls();
    rig.wait(45);
    assert_eq!(rig.pulls().len(), 3);
    let counts = |rig: &Rig| {
        let stats = rig.stats();
        (stats.credits_sent, stats.credits_repeated, stats.window_reductions)
    };
    assert_eq!(counts(&rig), (3, 3, 0), "it may be waiting for its grant");
    let mut rig = Rig::new(job());
    rig.install(descriptor(0, &[0], false)).unwrap();
    rig.pulls();
    rig.wait(5);
    rig.direct(1, group(0), 1).unwrap();
    rig.wait(40);
    assert_eq!(rig.pulls().len(), 2);
    assert_eq!(counts(&rig), (3, 2, 1), "one round trip, one loss");
}

#[test]
fn an_aggregator_that_is_left_is_left_for_what_it_still_owes() {
    let mut rig = Rig::new(job());
    rig.install(descriptor(0, &[0], false)).unwrap();
    rig.install(descriptor(1, &[0, 1], true)).unwrap();
    rig.install(descriptor(2, &[0, 1], true)).unwrap();
    rig.poll();
    for chunk in 0..CHUNKS {
        rig.sum(group(1), chunk, 0b11).unwrap();
    }
    *rig.peer(AGGREGATOR) = client(AGGREGATOR, Peer::Box(BOX), 99);
    rig.connect(AGGREGATOR);
    rig.poll();
    assert_eq!(rig.stats().fallbacks, 1, "group 1 is here");
    // Nor is a group that is here given up later.
    close_box(&mut rig);
    rig.wait(job().source_timeout_ns / MS + 1);
    rig.poll();
    assert_eq!(rig.stats().fallbacks, 1);
}

#[test]
fn an_aggregator_of_another_group_stays() {
    let boxes = vec![Some(addr(AGGREGATOR)), Some(addr(REPLICA))];
    let mut rig = Rig::new(ServerJobConfig { boxes, replica: None, ..job() });
    let through_the_other =
        GroupDescriptor { via: Some(REPLICA_BOX), ..descriptor(0, &[0, 1], true) };
    rig.install(through_the_other).unwrap();
    rig.install(descriptor(1, &[0, 1], true)).unwrap();
    rig.poll();
    *rig.peer(AGGREGATOR) = client(AGGREGATOR, Peer::Box(BOX), 99);
    rig.connect(AGGREGATOR);
    assert_eq!(rig.stats().fallbacks, 1);
}

#[test]
fn an_aggregator_without_a_channel_is_waited_for_as_a_silent_one() {
    let mut rig = Rig::new(job());
    close_box(&mut rig);
    rig.wait(1);
    rig.install(descriptor(0, &[0, 1], true)).unwrap();
    assert_eq!(rig.pulls(), []);
    let timeout_ms = job().source_timeout_ns / MS;
    assert_eq!(rig.server.poll_timeout().0, (1 + timeout_ms) * MS);
    rig.wait(timeout_ms - 1);
    assert_eq!(rig.pulls(), []);
    rig.wait(1);
    assert_eq!(rig.pulls(), [(1, 0), (1, 1), (1, 2), (2, 0), (2, 1), (2, 2)]);
}

/// There is memory for one update, so that what lies behind its last chunk is nobody's.
#[test]
fn what_is_here_already_is_not_asked_for() {
    let small = || ServerJobConfig {
        replica: None,
        groups_open_max: 1,
        staging_bytes_max: 24,
        log_bytes_max: 0,
        ..job()
    };
    for here in 0..CHUNKS {
        let missing: Vec<_> = (0..CHUNKS).filter(|chunk| *chunk != here).collect();
        let mut rig = Rig::new(small());
        rig.install(descriptor(0, &[0], false)).unwrap();
        rig.direct(1, group(0), here).unwrap();
        assert_eq!(rig.pulls(), [(1, missing[0]), (1, missing[1])]);
        let mut rig = Rig::new(small());
        rig.install(descriptor(0, &[0], true)).unwrap();
        rig.direct(1, group(0), here).unwrap();
        assert_eq!(rig.pulls(), [(AGGREGATOR, missing[0]), (AGGREGATOR, missing[1])]);
    }
}

/// The replica must not use an aggregator's copies of it: in floating point they are other bits.
#[test]
fn a_sum_that_was_put_together_here_is_told_as_such() {
    let mut rig = Rig::new(job());
    for order in 0..2 {
        rig.install(descriptor(order, &[0, 1], true)).unwrap();
        let is_composed = order == 0;
        if is_composed {
            rig.direct(1, group(order), 0).unwrap();
            rig.direct(2, group(order), 0).unwrap();
        } else {
            rig.sum(group(order), 0, 0b11).unwrap();
        }
        for chunk in 1..CHUNKS {
            rig.sum(group(order), chunk, 0b11).unwrap();
        }
        let out = rig.poll();
        let told = out.iter().find(|out| out.to == REPLICA && out.ack().is_some()).unwrap();
        assert_eq!(told.header.flags.contains(Flags::DIRECT), is_composed);
    }
    assert_eq!(rig.stats().chunks_composed, 1);
}

#[test]
fn a_new_life_is_not_told_what_became_of_the_old_ones_update() {
    let mut rig = Rig::new(job());
    rig.install(descriptor(0, &[0, 1], true)).unwrap();
    let close = Command::CloseMember { job: JOB, group: Some(group(0)), rank: rank(1) };
    rig.server.handle_command(rig.now, close);
    rig.begin_life(2, 22);
    for chunk in 0..CHUNKS {
        rig.direct(1, group(0), chunk).unwrap();
    }
    let acks = rig.acks();
    assert!(acks.contains(&(1, Outcome::Committed, 1)), "{acks:?}");
    assert!(acks.iter().all(|(to, ..)| *to != 2), "{acks:?}");
}

#[test]
fn announced_updates_stand_in_nobodys_place() {
    let mut rig = Rig::new(ServerJobConfig { replica: None, ..job() });
    for (order, row) in [(0, 1023), (1, 1021)] {
        let high =
            GroupDescriptor { group: GroupId::new(row, 1), ..descriptor(order, &[0], false) };
        rig.install(high).unwrap();
    }
    rig.announce(1, 1, 0);
    rig.announce(2, 1, 0);
    let asked: BTreeSet<_> =
        rig.poll().iter().filter(|out| out.pull().is_some()).map(|o| o.header.group).collect();
    let direct = [0, 1].map(|rank| GroupId::new(ROW_DIRECT + rank, 1));
    let all = [GroupId::new(1023, 1), GroupId::new(1021, 1), direct[0], direct[1]];
    assert_eq!(asked, all.into());
}

/// A switch cannot make a frame longer by more than 512 bytes, so a longer sum needs a credit of
/// its own length. A member, and an aggregator that cannot be a switch, is asked by a header.
#[test]
fn a_credit_is_as_long_as_a_sum_that_a_switch_could_not_put_into_it() {
    for (integrity, elements, is_padded) in [
        (Integrity::Checksum16, 128, false),
        (Integrity::Checksum16, 129, true),
        (Integrity::Crc32c, 129, false),
        (Integrity::None, 129, false),
    ] {
        let dimension = usize::from(elements) * CHUNKS as usize;
        let model = ModelConfig { elements, integrity, ..ModelConfig::new(JOB, dimension) };
        let bytes = 4 * 4 * dimension as u64;
        let config = ServerJobConfig { model, staging_bytes_max: bytes, ..job() };
        let mut rig = Rig::new(ServerJobConfig { log_bytes_max: bytes, ..config });
        let of = |order, ranks: &[u8], via_box| GroupDescriptor {
            elements,
            exponent: -20,
            ..descriptor(order, ranks, via_box)
        };
        rig.install(of(0, &[0, 1], true)).unwrap();
        let expected = if is_padded { usize::from(elements) * 4 } else { 0 };
        let mut repeated = false;
        for wait_ms in [0, 200] {
            rig.wait(wait_ms);
            for pull in rig.poll().into_iter().filter(|out| out.header.kind == Kind::Pull) {
                repeated |= pull.header.flags.contains(Flags::RETRANSMIT);
                assert_eq!((pull.to, pull.header.count), (AGGREGATOR, 0));
                assert_eq!(pull.payload, vec![0; expected], "{integrity:?}");
            }
        }
        assert!(repeated);
        rig.install(of(1, &[0], false)).unwrap();
        let own = rig.poll().into_iter().filter(|out| out.to == 1 && out.pull().is_some());
        let own: Vec<usize> = own.map(|out| out.payload.len()).collect();
        assert!(!own.is_empty() && own.iter().all(|len| *len == 0), "{own:?}");
    }
}
