//! Replayed contributions become new ones, in an order that the successor rule allows.

use std::collections::HashSet;

use crate::common::{contribution, datagram, ethernet, payload, route};
use weft_io::memory::{MemoryPort, link};
use weft_io::restamp::{Restamp, Stamp, WindowStamp, WindowStampConfig};
use weft_io::{Burst, Port};
use weft_wire::header::Packet;
use weft_wire::{Cookie, GroupId, MacAddr, Nanos};

fn config() -> WindowStampConfig {
    WindowStampConfig {
        payload_start: 42,
        datagram_len: contribution(0, 1).len(),
        group: GroupId::new(7, 8),
        cookies: vec![Cookie(100), Cookie(101), Cookie(102)],
        window: 4,
        shards: 2,
        shard: 1,
        step_start: 10,
        step_end: 1000,
        crc32c: Some(weft_kernel::crc32c),
    }
}

fn sealed(chunk: u32, members: u64) -> Vec<u8> {
    let mut bytes = contribution(chunk, members);
    Packet::new_unchecked(&mut bytes[..]).seal(weft_kernel::crc32c);
    bytes.to_vec()
}

/// Sends one contribution of each rank in `ranks`; returns (rank, step) of those that came.
fn round(
    near: &mut Restamp<MemoryPort, WindowStamp>,
    far: &mut MemoryPort,
    ranks: &[u64],
) -> Vec<(usize, u32)> {
    let mut tx = Burst::new();
    for rank in ranks {
        // Always the same frame, as from a capture that runs in a circle.
        tx.push(datagram(far, &route(), &sealed(99, 1 << rank)));
    }
    far.tx_burst(Nanos(0), &mut tx);
    let mut rx = Burst::new();
    near.rx_burst(Nanos(0), &mut rx);
    let mut seen = Vec::new();
    for mut frame in rx {
        let mut bytes = payload(frame.as_mut()).to_vec();
        let mut packet = Packet::new_checked(&mut bytes[..]).expect("a header");
        let rank = packet.members().single().expect("one member").index();
        assert_eq!(packet.group(), GroupId::new(7, 8));
        assert_eq!(usize::try_from(packet.cookie().0).expect("small"), 100 + rank);
        assert_eq!(packet.chunk().0 % 2, 1);
        assert!(packet.verify_crc(weft_kernel::crc32c));
        seen.push((rank, packet.chunk().0 / 2));
    }
    seen
}

#[test]
fn members_progress_together() {
    let (near, mut far) = link(64, 1500, ["near", "far"]);
    let mut near = Restamp::new(near, WindowStamp::new(config()));
    let mut seen = HashSet::new();
    for expected in 10..200 {
        for (rank, step) in round(&mut near, &mut far, &[0, 1, 2]) {
            assert_eq!(step, expected);
            assert!(seen.insert((rank, step)), "every contribution is new");
        }
    }
    assert_eq!(seen.len(), 3 * 190);
    assert_eq!(near.stamp().complete_steps(), 190);
    assert_eq!(near.refused(), 0);
}

#[test]
fn nobody_runs_ahead_by_more_than_a_window() {
    let (near, mut far) = link(64, 1500, ["near", "far"]);
    let mut near = Restamp::new(near, WindowStamp::new(config()));
    let seen = round(&mut near, &mut far, &[0; 6]);
    assert_eq!(seen, [(0, 10), (0, 11), (0, 12), (0, 13)]);
    assert_eq!(near.refused(), 2);
    assert_eq!(round(&mut near, &mut far, &[1, 2, 0, 0]), [(1, 10), (2, 10), (0, 14)]);
    assert_eq!(near.stamp().complete_steps(), 1);
}

#[test]
fn the_last_step_ends_the_stream() {
    let (near, mut far) = link(64, 1500, ["near", "far"]);
    let stamp = WindowStamp::new(WindowStampConfig { step_end: 12, ..config() });
    let mut near = Restamp::new(near, stamp);
    assert_eq!(round(&mut near, &mut far, &[0, 1, 2, 0, 1, 2, 0, 1, 2]).len(), 6);
    assert_eq!(near.stamp().complete_steps(), 2);
}

#[test]
fn what_is_no_contribution_of_a_member_is_refused() {
    let (near, mut far) = link(64, 1500, ["near", "far"]);
    let mut near = Restamp::new(near, WindowStamp::new(config()));
    let mut tx = Burst::new();
    tx.push(ethernet(&mut far, MacAddr::BROADCAST, MacAddr::default(), 0));
    tx.push(datagram(&mut far, &route(), &contribution(0, 0b11)));
    tx.push(datagram(&mut far, &route(), &contribution(0, 1 << 3)));
    tx.push(datagram(&mut far, &route(), &contribution(0, 1)[..60]));
    tx.push(datagram(&mut far, &route(), b"short"));
    far.tx_burst(Nanos(0), &mut tx);
    let mut rx = Burst::new();
    assert_eq!(near.rx_burst(Nanos(0), &mut rx), 0);
    assert_eq!(near.refused(), 5);
}

#[test]
fn a_closure_is_a_stamp_and_leaves_earlier_frames_alone() {
    let (near, mut far) = link(64, 1500, ["near", "far"]);
    let mut count = 0_u8;
    let mut near = Restamp::new(near, |frame: &mut [u8]| {
        frame[20] = 200 + count;
        count += 1;
        count % 2 == 1
    });
    let mut rx = Burst::new();
    rx.push(ethernet(&mut near, MacAddr::BROADCAST, MacAddr::default(), 5));
    let mut tx = Burst::new();
    for _ in 0..4 {
        tx.push(ethernet(&mut far, MacAddr::BROADCAST, MacAddr::default(), 1));
    }
    far.tx_burst(Nanos(0), &mut tx);
    assert_eq!(near.rx_burst(Nanos(0), &mut rx), 2);
    assert_eq!(rx.iter().map(|frame| frame.as_ref()[20]).collect::<Vec<_>>(), [5, 200, 202]);
}

#[test]
fn a_stamp_does_not_touch_what_it_refuses_to_number() {
    let mut stamp = WindowStamp::new(WindowStampConfig { payload_start: 0, ..config() });
    let mut frame = contribution(99, 1 << 5);
    assert!(!stamp.stamp(&mut frame));
    assert_eq!(frame, contribution(99, 1 << 5));
}
